//! What can be wrong with a program.

use crate::ir::MapId;

/// Why a program could not be assembled or relocated. Misuse of [`crate::Func`] is remembered when it happens
/// and reported by [`crate::Program::assemble`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// [`crate::Program::main`] was never called.
    #[error("program {program}: no main function")]
    NoMain {
        /// The program's name.
        program: String,
    },
    /// The functions were misused; the text says how.
    #[error("function {func}{at}: {what}")]
    Misuse {
        /// The function's name.
        func: String,
        /// Where in the user's text, as ` at LINE:COL (TEXT)`; empty if no position was set.
        at: String,
        /// What is wrong.
        what: String,
    },
    /// A register is read on a path that never wrote it.
    #[error("function {func}: register %{reg} is read where it may not have been assigned")]
    Unassigned {
        /// The function's name.
        func: String,
        /// The register's number, as [`crate::Program::dump`] shows it.
        reg: u32,
    },
    /// More stack than BPF has.
    #[error("functions {chain}: {used} bytes of stack needed, {limit} allowed")]
    Stack {
        /// The functions on the stack together, outermost first.
        chain: String,
        /// Bytes needed.
        used: u32,
        /// Bytes there are (`MAX_BPF_STACK`).
        limit: u32,
    },
    /// A jump further than its 16-bit offset reaches.
    #[error("function {func}: a jump of {distance} instructions is too far")]
    JumpTooFar {
        /// The function's name.
        func: String,
        /// Instructions to jump over.
        distance: i64,
    },
    /// A map has no descriptor.
    #[error("map {} has no file descriptor", .map.0)]
    NoMap {
        /// The map.
        map: MapId,
    },
    /// A fault of this crate.
    #[error("function {func}: internal error: {what}")]
    Internal {
        /// The function's name.
        func: String,
        /// What went wrong.
        what: String,
    },
}
