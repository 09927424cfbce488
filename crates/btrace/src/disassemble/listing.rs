//! Where a listing goes: stdout or a file, a function at a time.

use crate::output::WriteFailed;
use anyhow::Context;
use std::fs::File;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

/// The destination.
pub struct Listing {
    to: Box<dyn Write>,
    name: String,
    /// A person may be looking.
    pub is_terminal: bool,
    /// The reader has gone (`| head`): no error, but the end.
    pub is_closed: bool,
}

impl Listing {
    /// Opens FILE, whose content goes, or stdout.
    pub fn open(file: Option<&Path>) -> anyhow::Result<Listing> {
        let (to, name, is_terminal): (Box<dyn Write>, String, bool) = match file {
            Some(path) => {
                let name = path.display().to_string();
                (Box::new(File::create(path).with_context(|| format!("-o {name}"))?), name, false)
            }
            None => {
                let stdout = io::stdout();
                let is_terminal = stdout.is_terminal();
                (Box::new(stdout), "standard output".into(), is_terminal)
            }
        };
        Ok(Listing { to, name, is_terminal, is_closed: false })
    }

    /// Writes a part out.
    ///
    /// # Errors
    /// It could not be written, for another reason than that nobody reads on.
    pub fn write(&mut self, part: &[u8]) -> anyhow::Result<()> {
        if self.is_closed {
            return Ok(());
        }
        match self.to.write_all(part).and_then(|()| self.to.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(())
            }
            result => result.map_err(|source| WriteFailed { name: self.name.clone(), source }.into()),
        }
    }
}
