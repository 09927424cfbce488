//! Lines as text, in colour or not.
//!
//! Colours are constants of a type ([`Paint`]), so that text without colour costs nothing for there being any.

use crate::line::{Instruction, Line, Source, Target};
use crate::{Frame, Symbol, text};
use std::marker::PhantomData;

/// What stands before and after each part of a line.
pub trait Paint {
    /// An instruction's address.
    const ADDRESS: (&'static str, &'static str);
    /// Its bytes.
    const BYTES: (&'static str, &'static str);
    /// Its mnemonic.
    const MNEMONIC: (&'static str, &'static str);
    /// What is said of it.
    const COMMENT: (&'static str, &'static str);
    /// A source header.
    const SOURCE: (&'static str, &'static str);
    /// A label, wherever it is.
    const LABEL: (&'static str, &'static str);
}

/// No colours.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

/// Those of a terminal (ECMA-48, "select graphic rendition"): what is the same in every line dim, mnemonics bold, labels yellow, headers cyan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Colour;

impl Paint for Plain {
    const ADDRESS: (&'static str, &'static str) = ("", "");
    const BYTES: (&'static str, &'static str) = ("", "");
    const MNEMONIC: (&'static str, &'static str) = ("", "");
    const COMMENT: (&'static str, &'static str) = ("", "");
    const SOURCE: (&'static str, &'static str) = ("", "");
    const LABEL: (&'static str, &'static str) = ("", "");
}

impl Paint for Colour {
    const ADDRESS: (&'static str, &'static str) = ("\x1b[2m", "\x1b[0m");
    const BYTES: (&'static str, &'static str) = ("\x1b[2m", "\x1b[0m");
    const MNEMONIC: (&'static str, &'static str) = ("\x1b[1m", "\x1b[0m");
    const COMMENT: (&'static str, &'static str) = ("\x1b[36m", "\x1b[0m");
    const SOURCE: (&'static str, &'static str) = ("\x1b[36m", "\x1b[0m");
    const LABEL: (&'static str, &'static str) = ("\x1b[33m", "\x1b[0m");
}

/// What a line has.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The bytes of each instruction.
    pub bytes: bool,
    /// The width of their column, in bytes; longer instructions push the rest to the right.
    pub width: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { bytes: true, width: 10 }
    }
}

/// Writes lines:
///
/// ```text
/// ; vfs_read+0x0 fs/read_write.c:552
/// 0xffffffff81000000: 0f 1f 44 00 00                 nopl   0x0(%rax,%rax,1)  ; fentry
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Text<P> {
    options: Options,
    paint: PhantomData<P>,
}

impl<P: Paint> Text<P> {
    /// A writer.
    pub fn new(options: Options) -> Text<P> {
        Text { options, paint: PhantomData }
    }

    /// Appends a line, its end included.
    pub fn write(&self, line: &Line<'_>, out: &mut String) {
        match line {
            Line::Source(source) => self.source(source, out),
            Line::Label { number, .. } => {
                self.label(*number, out);
                out.push(':');
            }
            Line::Instruction(instruction) => self.instruction(instruction, out),
        }
        out.push('\n');
    }

    fn source(&self, source: &Source<'_>, out: &mut String) {
        out.push_str(P::SOURCE.0);
        out.push_str("; ");
        match &source.symbol {
            Some(symbol) => write_symbol(symbol, out),
            None => text::hex(out, source.address),
        }
        let mut outer = source.chain.iter();
        if let Some(frame) = outer.next() {
            out.push(' ');
            write_frame(frame, out);
            // An inlined function's name is not the symbol's.
            let inlined = source.chain.len() > 1 && !frame.function.is_empty();
            if inlined {
                out.push_str(" (");
                out.push_str(frame.function);
            }
            for frame in outer {
                out.push_str(if inlined { " in " } else { " < " });
                if !frame.function.is_empty() {
                    out.push_str(frame.function);
                    out.push(' ');
                }
                write_frame(frame, out);
            }
            if inlined {
                out.push(')');
            }
        }
        out.push_str(P::SOURCE.1);
    }

    fn label(&self, number: u32, out: &mut String) {
        out.push_str(P::LABEL.0);
        out.push('L');
        text::decimal(out, number.into());
        out.push_str(P::LABEL.1);
    }

    fn instruction(&self, instruction: &Instruction<'_>, out: &mut String) {
        /// As wide as objdump makes it.
        const MNEMONIC: usize = 6;
        out.push_str(P::ADDRESS.0);
        text::hex(out, instruction.address);
        out.push(':');
        out.push_str(P::ADDRESS.1);
        out.push(' ');
        if self.options.bytes {
            out.push_str(P::BYTES.0);
            text::bytes(out, instruction.bytes);
            out.push_str(P::BYTES.1);
            let missing = self.options.width.saturating_sub(instruction.bytes.len());
            text::blanks(out, missing * 3 + 2);
        }
        let (mnemonic, operands) = (instruction.mnemonic(), instruction.operands());
        out.push_str(P::MNEMONIC.0);
        out.push_str(mnemonic);
        out.push_str(P::MNEMONIC.1);
        if !operands.is_empty() {
            text::blanks(out, MNEMONIC.saturating_sub(mnemonic.len()) + 1);
            out.push_str(operands);
        }
        self.comment(instruction, out);
    }

    fn comment(&self, instruction: &Instruction<'_>, out: &mut String) {
        let mut begun = false;
        for target in instruction.targets.iter() {
            if target.symbol.is_some() || target.label.is_some() || target.location.is_some() {
                out.push_str(if begun { ", " } else { "  " });
                if !begun {
                    out.push_str(P::COMMENT.0);
                    out.push_str("; ");
                }
                begun = true;
                self.target(target, out);
            }
        }
        if let Some(site) = instruction.site {
            if !begun {
                out.push_str("  ");
                out.push_str(P::COMMENT.0);
                out.push_str("; ");
                out.push_str(site.describe());
            } else {
                out.push_str(" (");
                out.push_str(site.describe());
                out.push(')');
            }
            begun = true;
        }
        if begun {
            out.push_str(P::COMMENT.1);
        }
    }

    fn target(&self, target: &Target<'_>, out: &mut String) {
        let mut blank = false;
        if let Some(number) = target.label {
            if !P::LABEL.0.is_empty() {
                out.push_str(P::COMMENT.1);
            }
            self.label(number, out);
            out.push_str(P::COMMENT.0);
            blank = true;
        }
        if let Some(symbol) = &target.symbol {
            if blank {
                out.push(' ');
            }
            blank = true;
            out.push_str(symbol.name);
            out.push('+');
            text::hex(out, symbol.offset);
        }
        if let Some(frame) = &target.location {
            if blank {
                out.push(' ');
            }
            write_frame(frame, out);
        }
        if let Some(module) = target.symbol.and_then(|symbol| symbol.module) {
            out.push_str(" [");
            out.push_str(module);
            out.push(']');
        }
    }
}

fn write_symbol(symbol: &Symbol<'_>, out: &mut String) {
    out.push_str(symbol.name);
    out.push('+');
    text::hex(out, symbol.offset);
    if let Some(module) = symbol.module {
        out.push_str(" [");
        out.push_str(module);
        out.push(']');
    }
}

fn write_frame(frame: &Frame<'_>, out: &mut String) {
    out.push_str(frame.file);
    out.push(':');
    text::decimal(out, frame.line.into());
}
