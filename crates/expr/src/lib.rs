//! C expressions over what a probe can see.
//!
//! What it does: reads an expression, gives everything in it its type from BTF ([`filter`], [`output`], [`value`]), and lowers it to
//! instructions of [`asm`]. An evaluator over plain bytes computes the same: the oracle that programs are held against.
//!
//! What you must bring: the types, what the arguments are called, and where a program finds them ([`Scope`]).
//!
//! What it leaves out of C: assignment, calls, floating-point numbers, initialisers. What it adds: `in`, texts compared with `==`,
//! `$pid` and its like, functions that print, and that everything is defined: division by zero gives 0 and its remainder the left
//! side, shifts count modulo the width, overflow wraps; and a test of what cannot be read, or has NULL on the way, does not
//! hold.
//!
//! An error is one line and a place ([`Error::point`] draws a caret). Texts are at most 4096 bytes and nested at most 100 deep.

#![forbid(unsafe_code)]

mod ast;
mod check;
mod error;
pub mod eval;
mod lower;
mod parse;
mod scope;
mod status;
mod token;
pub mod tree;
mod types;

pub use check::{filter, output, value};
pub use error::{Error, Span};
pub use lower::{CUT, Compiler, Mark, Room, Source, text_room};
pub use scope::{Scope, Symbol, Variable, spelled};
pub use status::Failure;
pub use types::{IntTy, Tid, Ty, Types};
