//! Source lines of code addresses: of the kernel and its modules from debug information, of BPF programs from what they were
//! loaded with.

mod elf;
mod error;
pub(crate) mod find;
mod kernel;
mod package;
mod paths;
mod program;
mod units;

pub use error::Error;
pub use kernel::{DebugFile, lines_in};
pub use program::{ProgramLine, program_lines};

use crate::{BuildId, Table};
use find::Places;
use kernel::Loaded;
use paths::Roots;
use program::Programs;
use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

/// A place in source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The function, as its source names it; `None` in assembly.
    pub function: Option<String>,
    /// The file: of the kernel's own relative to its source tree (`net/sched/cls_api.c`), of others as the compiler was told.
    pub file: String,
    /// From 1; 0 when the compiler belongs no line to the code.
    pub line: u32,
    /// From 1; 0 when not known.
    pub column: u32,
}

/// What the code at an address was compiled from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The innermost function first; each further one is that into which the one before was inlined, at the place of
    /// the call. The last is the function that was compiled as such. Empty when nothing is known.
    pub chain: Vec<Line>,
}

impl Lines {
    /// The function that was compiled as such, and the place in it.
    pub fn outermost(&self) -> Option<&Line> {
        self.chain.last()
    }

    /// What was inlined there, innermost first.
    pub fn inlined(&self) -> &[Line] {
        self.chain.split_last().map_or(&[], |(_, inlined)| inlined)
    }
}

/// Addresses that are kept with their lines; the kernel has not many more places that calls return to.
const MOST_KEPT: usize = 1 << 17;

/// The lines of the running system, found when they are first asked for and kept.
///
/// Nothing is opened before an address is looked up: the kernel's debug file for one of the kernel's own, a module's for one
/// of that module's, none for BPF programs. A file once opened stays mapped to the end of the process. Opening takes
/// milliseconds (a debug file with compressed sections: seconds), the first address of a source file about one.
pub struct Source {
    table: Rc<Table>,
    places: Places,
    /// The kernel's debug file, if it was given, until it is read.
    given: Option<DebugFile>,
    kernel: State,
    modules: HashMap<String, State>,
    programs: Programs,
    roots: Roots,
    kept: HashMap<u64, Rc<Lines>>,
    remark: Option<String>,
}

/// A debug file: looked for when needed.
enum State {
    Unasked,
    Missing,
    Open(Box<Loaded>),
}

impl Source {
    /// The lines of the addresses of `table`. `vmlinux`: the kernel's debug file, where it is not to be looked for.
    pub fn new(table: Rc<Table>, vmlinux: Option<DebugFile>) -> Source {
        Source::below(Path::new("/"), table, vmlinux)
    }

    /// The same with the file system of the running system below `root`.
    pub fn below(root: &Path, table: Rc<Table>, vmlinux: Option<DebugFile>) -> Source {
        Source {
            table,
            places: Places::of_system(root),
            given: vmlinux,
            kernel: State::Unasked,
            modules: HashMap::new(),
            programs: Programs::default(),
            roots: Roots::default(),
            kept: HashMap::new(),
            remark: None,
        }
    }

    /// The lines of each address, in the same order. Of a return address it is the instruction before that is meant: ask for the
    /// address less one.
    pub fn lines_of(&mut self, addresses: &[u64]) -> Vec<Rc<Lines>> {
        // In their order in memory, so that each source file is read once.
        let mut sorted = addresses.to_vec();
        sorted.sort_unstable();
        for address in sorted {
            self.lines_at(address);
        }
        addresses.iter().map(|address| self.lines_at(*address)).collect()
    }

    /// The lines of one address.
    pub fn lines_at(&mut self, address: u64) -> Rc<Lines> {
        if let Some(known) = self.kept.get(&address) {
            return Rc::clone(known);
        }
        let lines = Rc::new(Lines { chain: self.find(address) });
        if self.kept.len() >= MOST_KEPT {
            self.kept.clear();
        }
        self.kept.insert(address, Rc::clone(&lines));
        lines
    }

    /// What is to be said of lines that were wanted and are not there, once: that no debug file was found, and which package
    /// has it.
    pub fn remark(&mut self) -> Option<String> {
        self.remark.take()
    }

    fn find(&mut self, address: u64) -> Vec<Line> {
        let table = Rc::clone(&self.table);
        let Some(symbol) = table.resolve(address) else { return Vec::new() };
        match symbol.module {
            Some("bpf") if symbol.name.starts_with("bpf_prog_") => {
                self.programs.line_at(address).into_iter().collect()
            }
            // Trampolines, dispatchers: the kernel wrote them itself. So of others that have no file.
            Some("bpf" | "__builtin__ftrace" | "__builtin__kprobes") => Vec::new(),
            Some(module) => {
                self.module(module).map_or_else(Vec::new, |(file, roots)| file.lines_at(address, roots))
            }
            None => self.kernel().map_or_else(Vec::new, |(file, roots)| file.lines_at(address, roots)),
        }
    }

    fn kernel(&mut self) -> Option<(&mut Loaded, &mut Roots)> {
        if let State::Unasked = self.kernel {
            let opened = self.open_kernel();
            self.kernel = match opened {
                Ok(mut loaded) => {
                    loaded.learn_roots(&mut self.roots);
                    State::Open(Box::new(loaded))
                }
                Err(why) => {
                    self.remark = Some(why);
                    State::Missing
                }
            };
        }
        match &mut self.kernel {
            State::Open(file) => Some((file, &mut self.roots)),
            _ => None,
        }
    }

    fn open_kernel(&mut self) -> Result<Loaded, String> {
        let file = match self.given.take() {
            Some(file) => file,
            None => self.places.kernel().ok_or_else(|| {
                format!(
                    "no source lines: no debug information of this kernel was found; {}",
                    self.places.kernel_remedy()
                )
            })?,
        };
        let path = file.path().display().to_string();
        file.load_kernel(&self.table.anchors())
            .map_err(|error| format!("no source lines of the kernel: {error}"))
            .inspect(|loaded| {
                log::debug!("source lines of the kernel: {path}, moved by {:#x}", loaded.moved());
            })
    }

    fn module(&mut self, name: &str) -> Option<(&mut Loaded, &mut Roots)> {
        if !self.modules.contains_key(name) {
            // First, for the roots of the source tree: a module's own files tell less of them.
            self.kernel();
            let state = match self.places.module(name) {
                Some(file) => {
                    let path = file.path().to_path_buf();
                    match file.load_module(&self.places.module_sections(name)) {
                        Ok(mut loaded) => {
                            log::debug!("source lines of module {name}: {}", path.display());
                            if self.roots.is_empty() {
                                loaded.learn_roots(&mut self.roots);
                            }
                            State::Open(Box::new(loaded))
                        }
                        Err(error) => {
                            log::debug!("no source lines of module {name}: {error}");
                            State::Missing
                        }
                    }
                }
                None => {
                    log::debug!("no source lines of module {name}: no debug information of it was found");
                    State::Missing
                }
            };
            self.modules.insert(name.into(), state);
        }
        match self.modules.get_mut(name) {
            Some(State::Open(file)) => Some((file, &mut self.roots)),
            _ => None,
        }
    }
}

/// The running kernel's debug file by its path, refused unless it is of the very build that runs.
pub fn open_vmlinux(path: &Path) -> Result<DebugFile, Error> {
    let running = BuildId::of_kernel(Path::new("/")).ok_or(Error::NoRunningId)?;
    DebugFile::open(path, &running)
}

/// The running kernel's debug file, looked for where distributions put it. Nothing of it is read but its headers.
///
/// # Errors
/// There is none: what would bring one, in one line.
pub fn find_vmlinux() -> Result<DebugFile, String> {
    let places = Places::of_system(Path::new("/"));
    places.kernel().ok_or_else(|| places.kernel_remedy())
}
