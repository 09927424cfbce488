//! Addresses and names of the running kernel.
//!
//! What there is now: `/proc/kallsyms`, by name without keeping it ([`find`]), and as a table for addresses
//! ([`Table`]). Source lines, module files and user processes come with their issues.
//!
//! Reading kallsyms costs tens of milliseconds (122,000 lines on a small kernel), so nothing on the path of a plain
//! trace does it: it is for errors, stacks and addresses.
#![forbid(unsafe_code)]

mod kallsyms;
mod live;
mod namesakes;

pub use kallsyms::{Error, Extent, Resolved, Symbol, Table, find, find_in, find_where};
pub use live::{Live, Unreadable};
pub use namesakes::{namesakes, namesakes_in};
