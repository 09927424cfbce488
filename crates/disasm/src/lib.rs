//! Machine code into annotated lines: x86-64 and arm64, of live kernels and of what the BPF JIT makes.
//!
//! **What it does.** [`Disassembler::decode`] takes bytes, the address they are at, and someone who knows names
//! ([`Symbols`]); it gives lines one after the other: a source header before each run of instructions from one source line, a label
//! before each instruction that a jump within these bytes goes to, and the instructions, each with the addresses it refers to, named, and
//! with what the kernel patches there ([`Site`]). [`render::Text`] makes text of them, in colour or not. [`trim_padding`] finds where
//! a function ends when only the next symbol is known. [`bpf_jit::align`] tells which machine code each instruction of a BPF program
//! became.
//!
//! AT&T text of x86-64 is that of `objdump -d` (binutils 2.40), letter by letter but for white space: mnemonics, suffixes, idle prefixes,
//! operands; Intel's is that of `objdump -d -M intel`. `tests/objdump.rs` holds them to that on some 200 functions of a live kernel. When it was written the whole text of four kernels
//! (27 million instructions) was compared: what differed was `lkgs`, which that objdump does not know, and `fwait` before `fninit`, which
//! objdump reads as one instruction. arm64 is yaxpeax-arm's text with targets and names of ours; SVE, SME and some later extensions
//! (tests/capstone.rs lists them) are `(bad)`.
//!
//! **What you bring.** The bytes of one function (its beginning decides what its first no-op is called), and [`Symbols`], of which every
//! question but one may stay unanswered. Look-ups come in ascending addresses for instructions and in any order for targets, several million
//! a second, so binary search will do and a hash of strings will not.
//!
//! **What it will not do.** It reads no files, knows no symbol table and no debug information, follows no indirect jump, and
//! does not tell data in text from code: what cannot be decoded is shown as `(bad)`, one byte (arm64: one word) at a time, and
//! it goes on. No bytes make it panic.
//!
//! **How it is fast.** Nothing is allocated per instruction: a line borrows the disassembler's one buffer. What iced-x86 has to say of an
//! opcode is asked once. Keep the [`Disassembler`] for many functions.
//!
//! ```
//! use disasm::{Arch, Disassembler, Symbol, Symbols, Syntax, render};
//!
//! struct Names;
//! impl Symbols for Names {
//!     fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
//!         let offset = address.checked_sub(0xffffffff81000000)?;
//!         let name = if offset < 0x100 { "copy" } else { "__x86_return_thunk" };
//!         Some(Symbol { name, offset: offset % 0x100, module: None })
//!     }
//! }
//!
//! let bytes = [
//!     0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x1f, 0x44, 0x00, 0x00, // endbr64, room for fentry's call
//!     0x48, 0xff, 0xce, 0x75, 0xfb, 0xe9, 0xed, 0x00, 0x00, 0x00, 0xcc, 0xcc, // a loop, the return, padding
//! ];
//! let bytes = disasm::trim_padding(&bytes, Arch::X86_64);
//! let mut disassembler = Disassembler::new(Arch::X86_64, Syntax::Att);
//! let mut lines = disassembler.decode(bytes, 0xffffffff81000000, &Names);
//! let text = render::Text::<render::Plain>::new(render::Options { bytes: false, ..Default::default() });
//! let mut out = Vec::new();
//! while let Some(line) = lines.next_line() {
//!     text.write(&line, &mut out);
//! }
//! assert_eq!(std::str::from_utf8(&out), Ok("\
//! ; copy+0x0
//! 0xffffffff81000000: endbr64
//! 0xffffffff81000004: nopl   0x0(%rax,%rax,1)  ; fentry
//! L1:
//! 0xffffffff81000009: dec    %rsi
//! 0xffffffff8100000c: jne    0xffffffff81000009  ; L1 copy+0x9
//! 0xffffffff8100000e: jmp    0xffffffff81000100  ; __x86_return_thunk+0x0 (return thunk)
//! "));
//! ```
#![forbid(unsafe_code)]

mod arm64;
pub mod bpf_jit;
mod decoded;
mod labels;
mod line;
mod lines;
mod padding;
pub mod render;
mod site;
mod symbols;
mod text;
mod x86;

pub use line::{Flow, Instruction, Line, Source, Target, TargetKind, Targets};
pub use lines::{Disassembler, Lines};
pub use padding::trim_padding;
pub use site::{Site, StaticBranch, Target as BranchTarget};
pub use symbols::{Frame, NoSymbols, Symbol, Symbols};

/// Whose machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// x86 in 64-bit mode.
    X86_64,
    /// ARMv8 and later in AArch64 state, little-endian.
    Arm64,
}

/// How instructions of x86-64 are written; arm64 has but one way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Syntax {
    /// AT&T, as `objdump -d` does.
    #[default]
    Att,
    /// Intel's.
    Intel,
}
