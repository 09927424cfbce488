//! Addresses, names and source lines of the running kernel.
//!
//! `/proc/kallsyms` by name without keeping it ([`find`]), and as a table for addresses ([`Table`]); the source lines of
//! addresses ([`lines::Source`]); the bytes of code, live ([`Live`]) or from files ([`CodeFiles`]). User processes come with their issue.
//!
//! Reading kallsyms costs tens of milliseconds (122,000 lines on a small kernel), so nothing on the path of a plain
//! trace does it: it is for errors, stacks and addresses.
#![forbid(unsafe_code)]

mod build_id;
mod files;
mod hidden;
mod kallsyms;
pub mod lines;
mod live;
mod namesakes;

pub use build_id::BuildId;
pub use files::{CodeFiles, FileSymbols, code_in};
pub use hidden::Hidden;
pub use kallsyms::{Error, Extent, Kallsyms, Resolved, Symbol, Table, find, find_in, find_where};
pub use live::{Live, Unreadable};
/// Where the sections of a loaded module lie (/sys/module/NAME/sections, root's to read); empty where that is not told.
pub fn module_sections(name: &str) -> std::collections::HashMap<String, u64> {
    lines::find::Places::of_system(std::path::Path::new("/")).module_sections(name)
}

pub use namesakes::{namesakes, namesakes_in};
