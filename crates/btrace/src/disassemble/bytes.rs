//! Where names and bytes of code come from: the running kernel; where it does not tell, its files.

use anyhow::{Context, bail};
use btrace::logging::say;
use std::path::Path;
use symbols::{CodeFiles, FileSymbols, Kallsyms, Live, Symbol, Table};

/// A reader of code.
pub enum Bytes {
    /// What runs.
    Live(Live),
    /// What was built, because what runs cannot be read.
    Files {
        /// The files.
        files: Box<CodeFiles>,
        /// Why.
        why: String,
        /// It was said.
        is_said: bool,
    },
}

impl Bytes {
    /// The reader of what runs, if that can be read.
    pub fn live(&self) -> Option<&Live> {
        match self {
            Bytes::Live(live) => Some(live),
            Bytes::Files { .. } => None,
        }
    }

    /// Whether it reads what runs.
    pub fn is_live(&self) -> bool {
        self.live().is_some()
    }

    /// Up to `len` bytes from `address` on, of the kernel or a module. That they are not live is said with the first of each file.
    ///
    /// # Errors
    /// They can be read neither live nor from a file, with both reasons.
    pub fn read(&mut self, module: Option<&str>, address: u64, len: usize) -> anyhow::Result<Vec<u8>> {
        match self {
            Bytes::Live(live) => Ok(live.read(address, len)?),
            Bytes::Files { why, .. }
                if matches!(module, Some("bpf" | "__builtin__ftrace" | "__builtin__kprobes")) =>
            {
                bail!("{why}; no file has what the kernel made at run time")
            }
            Bytes::Files { files, why, is_said } => {
                let read = files.read(module, address, len);
                for remark in files.remarks() {
                    let because = if *is_said { String::new() } else { format!(" ({why})") };
                    say(format_args!("btrace: the bytes are not live{because} but of {remark}"));
                    *is_said = true;
                }
                read.map_err(|file| anyhow::anyhow!("{why}; {file}"))
            }
        }
    }
}

/// The symbols that are searched for names.
pub enum Names {
    /// Those of /proc/kallsyms.
    Kernel,
    /// Those of the kernel's file.
    File(Vec<Symbol>),
}

impl Names {
    /// Each symbol with a name that `matches`.
    ///
    /// # Errors
    /// /proc/kallsyms cannot be read.
    pub fn find(&self, matches: impl Fn(&str) -> bool) -> anyhow::Result<Vec<Symbol>> {
        Ok(match self {
            Names::Kernel => symbols::find_where(matches)?,
            Names::File(all) => all.iter().filter(|s| matches(&s.name)).cloned().collect(),
        })
    }

    /// What they are of.
    pub fn of(&self) -> &'static str {
        match self {
            Names::Kernel => "/proc/kallsyms",
            Names::File(_) => "the kernel's file",
        }
    }
}

/// What is known of the kernel's code.
pub struct Known {
    /// Its symbols, by address.
    pub tables: Kallsyms,
    /// Its symbols, one by one.
    pub list: Names,
    /// Its bytes.
    pub bytes: Bytes,
}

impl Known {
    /// Of the running kernel, or where it tells nothing of `vmlinux`, or of its file where distributions put it.
    ///
    /// # Errors
    /// Neither the kernel nor a file tells.
    pub fn open(vmlinux: Option<&Path>) -> anyhow::Result<Known> {
        let hidden = match Table::load_all() {
            Ok(tables) => {
                let bytes = match Live::open() {
                    Ok(live) => Bytes::Live(live),
                    Err(why) => Bytes::Files {
                        files: Box::new(CodeFiles::new(&tables.code, vmlinux)),
                        why: why.to_string(),
                        is_said: false,
                    },
                };
                return Ok(Known { tables, list: Names::Kernel, bytes });
            }
            Err(hidden @ symbols::Error::Hidden { .. }) => hidden,
            Err(error) => return Err(error).context("names and addresses of code come from /proc/kallsyms"),
        };
        let (mut files, FileSymbols { tables, all }) = CodeFiles::as_linked(vmlinux)
            .map_err(|file| anyhow::anyhow!("{hidden}; {file}"))
            .context("names and addresses of code come from /proc/kallsyms")?;
        for remark in files.remarks() {
            say(format_args!(
                "btrace: the bytes are not live, and the addresses are as linked ({hidden}): they are of {remark}"
            ));
        }
        let why = hidden.to_string();
        Ok(Known {
            tables,
            list: Names::File(all),
            bytes: Bytes::Files { files: Box::new(files), why, is_said: true },
        })
    }
}
