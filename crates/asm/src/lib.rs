//! A structured assembler for BPF: the back end of a small compiler.
//!
//! What it does: whoever generates a program writes operations on virtual registers and structured control
//! ([`Func`]); this crate finds the registers, spills what does not fit, encodes the instructions and describes them
//! with func_info and line_info, so that `bpftool prog dump xlated linum` and the verifier's log show what the user
//! wrote. Constants, copies and slot addresses are folded into the instructions that use them, and rarely run blocks
//! are placed out of the way.
//!
//! What it does not: it makes no system call and knows no map, only numbers for them ([`MapId`]) that
//! [`Code::relocate`] turns into descriptors. It does not check types of pointers: that is the verifier's job.
//!
//! What you must bring: every register must be assigned on every path before it is read; loops are bounded.
//!
//! [`Program::evaluate`] interprets a program as it was written, without any of the above: tests compare it with what
//! the kernel computes.
//!
//! ```
//! use asm::{Alu, Cmp, Helper, MapId, Options, Program, Size, Width};
//!
//! let mut program = Program::new("count", "example");
//! program.main(|f| {
//!     f.line("pid == 42", 1, 1);
//!     let pid_tgid = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
//!     let tgid = f.alu(Alu::Rsh, Width::W64, pid_tgid, 32);
//!     f.if_(Cmp::Ne, Width::W64, tgid, 42, |f| f.ret(0));
//!     let counter = f.map_value(MapId(0), 8);
//!     f.atomic_add(Size::DW, counter, 0, 1);
//!     f.ret(0);
//! });
//! let code = program.assemble(&Options::default())?;
//! assert_eq!(code.insns.len(), 9);
//! # Ok::<(), asm::Error>(())
//! ```

#![forbid(unsafe_code)]

mod alloc;
mod build;
mod cfg;
mod code;
mod dump;
mod emit;
mod encode;
mod error;
mod eval;
mod frame;
mod helpers;
mod info;
mod ir;
mod legalize;
mod liveness;
mod lower;
mod memory;
mod simplify;
mod spill;
mod thread;

pub use build::{Func, Program};
pub use code::{Code, Cpu, FuncInfo, LineInfo, Options, Position, Reloc, RelocKind};
pub use encode::Insn;
pub use error::Error;
pub use eval::{Fault, HelperFn, KfuncFn, Machine};
pub use helpers::Helper;
pub use ir::{Alu, Arg, Cmp, Label, MapId, Operand, Reg, Size, Slot, SubId, Width};
pub use memory::Memory;
