//! Where events go: stdout or a file, in large writes.

use anyhow::Context;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

/// Written out when it has grown this large, and at the end of every batch.
const FLUSH_AT: usize = 64 << 10;

/// Collected text and its destination.
pub struct Output {
    /// Append here.
    pub buffer: Vec<u8>,
    to: Box<dyn Write>,
    name: String,
}

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Open,
    /// The reader has gone (`| head`): no error, but the end.
    Closed,
}

impl Output {
    /// Opens FILE (truncating it), or stdout.
    pub fn open(file: Option<&Path>) -> anyhow::Result<Output> {
        let (to, name): (Box<dyn Write>, String) = match file {
            Some(path) => {
                let file = File::create(path).with_context(|| format!("-o {}", path.display()))?;
                (Box::new(file), path.display().to_string())
            }
            // Rust's own stdout writes line by line; its descriptor as a file does not.
            None => match std::os::fd::AsFd::as_fd(&io::stdout()).try_clone_to_owned() {
                Ok(fd) => (Box::new(File::from(fd)), "standard output".into()),
                Err(e) => return Err(e).context("standard output"),
            },
        };
        Ok(Output { buffer: Vec::with_capacity(2 * FLUSH_AT), to, name })
    }

    /// Writes out if there is much.
    pub fn flush_if_large(&mut self) -> anyhow::Result<Flow> {
        if self.buffer.len() < FLUSH_AT { Ok(Flow::Open) } else { self.flush() }
    }

    /// Writes out what there is.
    pub fn flush(&mut self) -> anyhow::Result<Flow> {
        if self.buffer.is_empty() {
            return Ok(Flow::Open);
        }
        let result = self.to.write_all(&self.buffer);
        self.buffer.clear();
        match result {
            Ok(()) => Ok(Flow::Open),
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(Flow::Closed),
            Err(e) => Err(e).with_context(|| format!("write to {}", self.name)),
        }
    }
}
