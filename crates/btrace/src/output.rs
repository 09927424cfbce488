//! Where events go: stdout or a file, in large writes that a signal can interrupt.

use anyhow::Context;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Written out when it has grown this large, and at the end of every batch.
const FLUSH_AT: usize = 64 << 10;

/// What a pipe takes without blocking once poll(2) says that it is writable (`PIPE_BUF`, pipe(7)).
const PIPE_BUF: usize = 4096;

/// A terminal stopped by Ctrl-S takes less; this much it has room for when it says so (`N_TTY` asks for 256).
const TTY_BUF: usize = 256;

/// What was to be shown could not be written: it began, and then failed.
#[derive(Debug, thiserror::Error)]
#[error("write to {name}: {source}")]
pub struct WriteFailed {
    /// Where to.
    pub name: String,
    /// Why.
    pub source: io::Error,
}

/// Collected lines and their destination.
pub struct Output {
    /// Append here, and say where an event ends: [`Output::end_event`].
    pub buffer: Vec<u8>,
    /// Where in the buffer events end.
    ends: Vec<usize>,
    to: File,
    /// Opened by name; a redirected stdout is the shell's to truncate.
    to_file: bool,
    /// Bytes in one write, where the reader can make us wait; `None` for files.
    chunk: Option<usize>,
    name: String,
}

/// What became of a write.
#[derive(Debug, PartialEq, Eq)]
pub enum Flow {
    /// Go on.
    Open,
    /// The reader has gone (`| head`): no error, but the end.
    Closed,
    /// The reader does not read, and a signal came. What was not written is still in the buffer.
    Stuck,
}

impl Output {
    /// Opens FILE, or stdout. What FILE holds stays until [`Output::begin`]: nothing may come of the trace yet.
    ///
    /// A FIFO without a reader makes this wait, so it is to be called while signals still end us.
    pub fn open(file: Option<&Path>) -> anyhow::Result<Output> {
        let (to, name) = match file {
            Some(path) => {
                let file = File::options().write(true).create(true).truncate(false).open(path);
                let file = file.with_context(|| format!("-o {}", path.display()))?;
                (file, path.display().to_string())
            }
            // Rust's own stdout writes line by line; its descriptor as a file does not.
            None => match io::stdout().as_fd().try_clone_to_owned() {
                Ok(fd) => (File::from(fd), "standard output".into()),
                Err(e) => return Err(e).context("standard output"),
            },
        };
        let kind = to.metadata().with_context(|| name.clone())?.file_type();
        let chunk = if kind.is_fifo() || kind.is_socket() {
            Some(PIPE_BUF)
        } else {
            to.is_terminal().then_some(TTY_BUF)
        };
        Ok(Output {
            buffer: Vec::with_capacity(2 * FLUSH_AT),
            ends: Vec::new(),
            to,
            to_file: file.is_some(),
            chunk,
            name,
        })
    }

    /// Whether a person may be looking.
    pub fn is_terminal(&self) -> bool {
        self.to.is_terminal()
    }

    /// The trace begins: what was in FILE goes.
    pub fn begin(&self) -> anyhow::Result<()> {
        if self.to_file && self.to.metadata()?.file_type().is_file() {
            self.to.set_len(0).with_context(|| self.name.clone())?;
        }
        Ok(())
    }

    /// The event that was appended is whole: with a stack it has several lines.
    pub fn end_event(&mut self) {
        self.ends.push(self.buffer.len());
    }

    /// Writes out if there is much; see [`Output::flush`].
    pub fn flush_if_large(&mut self, signals: BorrowedFd<'_>) -> anyhow::Result<Flow> {
        if self.buffer.len() < FLUSH_AT { Ok(Flow::Open) } else { self.flush(signals) }
    }

    /// Writes out what there is; gives up when the reader makes us wait and `signals` becomes readable.
    pub fn flush(&mut self, signals: BorrowedFd<'_>) -> anyhow::Result<Flow> {
        let mut written = 0;
        let mut flow = Ok(Flow::Open);
        while let Some(rest) = self.buffer.get(written..).filter(|rest| !rest.is_empty()) {
            let part = match self.chunk {
                None => rest,
                Some(chunk) => {
                    if !bpf::wait_writable(self.to.as_fd(), signals)? {
                        flow = Ok(Flow::Stuck);
                        break;
                    }
                    rest.get(..chunk).unwrap_or(rest)
                }
            };
            match self.to.write(part) {
                Ok(0) => flow = Err(io::Error::from(io::ErrorKind::WriteZero)),
                Ok(n) => written += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => flow = Ok(Flow::Closed),
                Err(e) => flow = Err(e),
            }
            if !matches!(flow, Ok(Flow::Open)) {
                break;
            }
        }
        self.buffer.drain(..written);
        if self.buffer.is_empty() {
            self.ends.clear();
        } else {
            self.ends.retain(|end| *end > written);
            self.ends.iter_mut().for_each(|end| *end -= written);
        }
        flow.with_context(|| format!("write to {}", self.name))
    }

    /// Events collected and not written, a partly written one included; they are given up.
    pub fn abandon(&mut self) -> u64 {
        let events = self.ends.len();
        self.ends.clear();
        self.buffer.clear();
        events as u64
    }
}
