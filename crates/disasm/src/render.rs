//! Lines as text, in colour or not.
//!
//! Colours are constants of a type ([`Paint`]), so that text without colour costs nothing for there being any.

use crate::line::{Instruction, Line, Source, Target, TargetKind};
use crate::{Frame, Symbol, text};
use std::io::Write;
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
    pub fn write(&self, line: &Line<'_>, out: &mut Vec<u8>) {
        match line {
            Line::Source(source) => self.source(source, out),
            Line::Label { number, .. } => {
                self.label(*number, out);
                out.push(b':');
            }
            Line::Instruction(instruction) => self.instruction(instruction, out),
        }
        out.push(b'\n');
    }

    fn source(&self, source: &Source<'_>, out: &mut Vec<u8>) {
        text::push(out, P::SOURCE.0);
        text::push(out, "; ");
        match &source.symbol {
            Some(symbol) => write_symbol(symbol, out),
            None => text::hex(out, source.address),
        }
        let mut outer = source.chain.iter();
        if let Some(frame) = outer.next() {
            out.push(b' ');
            write_frame(frame, out);
            // An inlined function's name is not the symbol's.
            let inlined = source.chain.len() > 1 && !frame.function.is_empty();
            if inlined {
                text::push(out, " (");
                text::push(out, frame.function);
            }
            for frame in outer {
                text::push(out, if inlined { " in " } else { " < " });
                if !frame.function.is_empty() {
                    text::push(out, frame.function);
                    out.push(b' ');
                }
                write_frame(frame, out);
            }
            if inlined {
                out.push(b')');
            }
        }
        text::push(out, P::SOURCE.1);
    }

    fn label(&self, number: u32, out: &mut Vec<u8>) {
        text::push(out, P::LABEL.0);
        out.push(b'L');
        text::decimal(out, number.into());
        text::push(out, P::LABEL.1);
    }

    fn instruction(&self, instruction: &Instruction<'_>, out: &mut Vec<u8>) {
        /// As wide as objdump makes it.
        const MNEMONIC: usize = 6;
        text::push(out, P::ADDRESS.0);
        text::hex(out, instruction.address);
        out.push(b':');
        text::push(out, P::ADDRESS.1);
        out.push(b' ');
        if self.options.bytes {
            text::push(out, P::BYTES.0);
            // Two blanks more than the column.
            text::bytes(out, instruction.bytes, self.options.width * 3 + 1);
            text::push(out, P::BYTES.1);
            if instruction.bytes.len() > self.options.width {
                text::blanks(out, 2);
            }
        }
        let (mnemonic, operands) = (instruction.mnemonic(), instruction.operands());
        text::push(out, P::MNEMONIC.0);
        text::push(out, mnemonic);
        text::push(out, P::MNEMONIC.1);
        if !operands.is_empty() {
            text::blanks(out, MNEMONIC.saturating_sub(mnemonic.len()) + 1);
            text::push(out, operands);
        }
        self.comment(instruction, out);
    }

    fn comment(&self, instruction: &Instruction<'_>, out: &mut Vec<u8>) {
        let mut begun = false;
        for target in instruction.targets.iter() {
            if target.symbol.is_some() || target.label.is_some() || target.location.is_some() {
                text::push(out, if begun { ", " } else { "  " });
                if !begun {
                    text::push(out, P::COMMENT.0);
                    text::push(out, "; ");
                }
                begun = true;
                self.target(target, out);
            }
        }
        if let Some(site) = instruction.site {
            if !begun {
                text::push(out, "  ");
                text::push(out, P::COMMENT.0);
                text::push(out, "; ");
                // Writing into memory does not fail.
                let _ = write!(out, "{site}");
            } else {
                text::push(out, " (");
                let _ = write!(out, "{site}");
                out.push(b')');
            }
            begun = true;
        }
        if begun {
            text::push(out, P::COMMENT.1);
        }
    }

    fn target(&self, target: &Target<'_>, out: &mut Vec<u8>) {
        let mut blank = false;
        if let Some(number) = target.label {
            if !P::LABEL.0.is_empty() {
                text::push(out, P::COMMENT.1);
            }
            self.label(number, out);
            text::push(out, P::COMMENT.0);
            blank = true;
        }
        if let Some(symbol) = &target.symbol {
            if blank {
                out.push(b' ');
            }
            blank = true;
            if target.kind == TargetKind::PerCpu {
                text::push(out, "per-CPU ");
            }
            let name = program_name(symbol).map_or(symbol.name, |(name, _)| name);
            text::push(out, name);
            out.push(b'+');
            text::hex(out, symbol.offset);
        }
        // Programs without lines of their own name no line.
        if let Some(frame) = target.location.as_ref().filter(|frame| frame.line > 0) {
            if blank {
                out.push(b' ');
            }
            write_frame(frame, out);
        }
        if let Some(symbol) = &target.symbol {
            write_module(symbol, out);
        }
    }
}

/// The name that a program's author gave it, and its tag: kallsyms has them as `bpf_prog_TAG_NAME`.
fn program_name<'a>(symbol: &Symbol<'a>) -> Option<(&'a str, &'a str)> {
    const TAG: usize = 16;
    let rest = symbol.name.strip_prefix("bpf_prog_").filter(|_| symbol.module == Some("bpf"))?;
    let (tag, name) = rest.split_at_checked(TAG)?;
    let is_tag = tag.bytes().all(|b| b.is_ascii_hexdigit());
    Some((name.strip_prefix('_').filter(|name| is_tag && !name.is_empty())?, tag))
}

fn write_symbol(symbol: &Symbol<'_>, out: &mut Vec<u8>) {
    text::push(out, program_name(symbol).map_or(symbol.name, |(name, _)| name));
    out.push(b'+');
    text::hex(out, symbol.offset);
    write_module(symbol, out);
}

/// ` [nf_tables]`; of a program ` [bpf 6deef7357e7b4530]`, by its tag.
fn write_module(symbol: &Symbol<'_>, out: &mut Vec<u8>) {
    let Some(module) = symbol.module else { return };
    text::push(out, " [");
    text::push(out, module);
    if let Some((_, tag)) = program_name(symbol) {
        out.push(b' ');
        text::push(out, tag);
    }
    out.push(b']');
}

fn write_frame(frame: &Frame<'_>, out: &mut Vec<u8>) {
    text::push(out, frame.file);
    out.push(b':');
    text::decimal(out, frame.line.into());
}
