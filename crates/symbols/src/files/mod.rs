//! Code of the kernel and its modules from the files that they were loaded from: for where nobody may read what runs.
//!
//! A file is of the very build that runs (build-id), or it is refused. It has the code as it was built: what the kernel patches at
//! boot and later (alternatives, static branches, ftrace's calls) is not in it. Whatever else may differ from memory is in
//! [`CodeFiles::remarks`], never passed over in silence.

mod image;
mod unpack;

use crate::lines::find::Places;
use crate::{BuildId, Kallsyms, Symbol, Table, kallsyms};
use image::Image;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use unpack::Bytes;

/// The files, each opened when code of it is first asked for.
pub struct CodeFiles {
    places: Places,
    /// The kernel's file, where it is not to be looked for.
    given: Option<PathBuf>,
    /// Where symbols of the kernel lie now; empty when it does not tell.
    anchors: Vec<(&'static str, u64)>,
    kernel: Option<Result<Image, String>>,
    modules: HashMap<String, Result<Image, String>>,
    remarks: Vec<String>,
}

impl CodeFiles {
    /// Files of the running system, whose `table` of symbols tells where its code lies. `vmlinux`: the kernel's, where it is
    /// not to be looked for.
    pub fn new(table: &Table, vmlinux: Option<&Path>) -> CodeFiles {
        CodeFiles::below(Path::new("/"), table, vmlinux)
    }

    /// The same with the file system of the running system below `root`.
    pub fn below(root: &Path, table: &Table, vmlinux: Option<&Path>) -> CodeFiles {
        CodeFiles {
            places: Places::of_system(root),
            given: vmlinux.map(Path::to_path_buf),
            anchors: table.anchors(),
            kernel: None,
            modules: HashMap::new(),
            remarks: Vec::new(),
        }
    }

    /// For a kernel that hides where it lies: its file, whose own symbols serve instead, at the addresses that it was linked for.
    ///
    /// # Errors
    /// There is no such file.
    pub fn as_linked(vmlinux: Option<&Path>) -> Result<(CodeFiles, FileSymbols), String> {
        CodeFiles::as_linked_below(Path::new("/"), vmlinux)
    }

    /// The same with the file system of the running system below `root`.
    ///
    /// # Errors
    /// As of [`CodeFiles::as_linked`].
    pub fn as_linked_below(root: &Path, vmlinux: Option<&Path>) -> Result<(CodeFiles, FileSymbols), String> {
        let places = Places::of_system(root);
        let image = open_kernel(&places, vmlinux, &[])?;
        let all = image.symbols()?;
        let tables = Table::of_symbols(&all);
        if tables.code.is_empty() {
            return Err(format!("{}: has no symbols", image.path().display()));
        }
        let mut files = CodeFiles {
            places,
            given: None,
            anchors: Vec::new(),
            kernel: None,
            modules: HashMap::new(),
            remarks: image.remarks(),
        };
        files.kernel = Some(Ok(image));
        Ok((files, FileSymbols { tables, all }))
    }

    /// Up to `len` bytes of code from `address` on, of the kernel or of a module: fewer, or none, where the file has no more.
    ///
    /// # Errors
    /// No file of that build was found, or it is of no use; in one line.
    pub fn read(&mut self, module: Option<&str>, address: u64, len: usize) -> Result<Vec<u8>, String> {
        let image = match module {
            None => {
                let opened = self.kernel.take().unwrap_or_else(|| {
                    self.noted(open_kernel(&self.places, self.given.as_deref(), &self.anchors))
                });
                self.kernel.insert(opened)
            }
            Some(name) => {
                let opened =
                    self.modules.remove(name).unwrap_or_else(|| self.noted(open_module(&self.places, name)));
                self.modules.entry(name.to_string()).or_insert(opened)
            }
        };
        image.as_ref().map_err(Clone::clone)?.read(address, len)
    }

    /// What is to be said of the files that were opened since this was last asked: each a line.
    pub fn remarks(&mut self) -> Vec<String> {
        std::mem::take(&mut self.remarks)
    }

    fn noted(&mut self, image: Result<Image, String>) -> Result<Image, String> {
        if let Ok(image) = &image {
            self.remarks.extend(image.remarks());
        }
        image
    }
}

/// The symbols of the kernel's file, at the addresses that it was linked for.
pub struct FileSymbols {
    /// By address.
    pub tables: Kallsyms,
    /// All of them.
    pub all: Vec<Symbol>,
}

/// The code of a file of which nothing is checked, as the kernel's and as a module's whose sections of code lie at the addresses of
/// `at`: 256 bytes from each of `addresses`, whatever runs.
///
/// # Errors
/// What is wrong with the file.
pub fn code_in(file: &[u8], at: &HashMap<String, u64>, addresses: &[u64]) -> Result<Vec<Vec<u8>>, String> {
    const LEN: usize = 256;
    let path = Path::new("file");
    let moved = [("_stext", 0xffff_ffff_9100_0000)];
    let images = [
        Image::of_kernel(path, Bytes::Unpacked(file.into()), &moved),
        Image::of_kernel(path, Bytes::Unpacked(file.into()), &[]),
        Image::of_module(path, Bytes::Unpacked(file.into()), at, &|names| {
            names.iter().map(|name| ((*name).to_string(), 0xffff_ffff_8100_0000)).collect()
        }),
    ];
    let mut read = Vec::new();
    for image in images.into_iter().flatten() {
        image.symbols()?;
        for address in addresses {
            read.push(image.read(*address, LEN)?);
        }
    }
    Ok(read)
}

fn open_kernel(
    places: &Places,
    given: Option<&Path>,
    anchors: &[(&'static str, u64)],
) -> Result<Image, String> {
    let running = places.kernel_id().ok_or(
        "the running kernel tells no build-id (/sys/kernel/notes), so no file can be known to be its own",
    )?;
    let paths = match given {
        Some(path) => vec![path.to_path_buf()],
        None => places.kernel_paths(&running),
    };
    first(paths, "this kernel", &running, |path, bytes| Image::of_kernel(path, bytes, anchors))
}

fn open_module(places: &Places, name: &str) -> Result<Image, String> {
    let running = places.module_id(name).ok_or_else(|| {
        format!("module {name} tells no build-id (/sys/module/{name}/notes), so no file can be known to be its own")
    })?;
    let at = places.module_sections(name);
    if at.is_empty() {
        return Err(format!(
            "the kernel does not tell where module {name} lies (/sys/module/{name}/sections, root's to read)"
        ));
    }
    first(places.module_paths(name), &format!("module {name}"), &running, |path, bytes| {
        Image::of_module(path, bytes, &at, &|names| exported(places, names))
    })
}

/// The first file that is of the build and has code.
fn first(
    paths: Vec<PathBuf>,
    what: &str,
    running: &BuildId,
    open: impl Fn(&Path, Bytes) -> Result<Image, String>,
) -> Result<Image, String> {
    // Of the files that are there and do not serve, the first one's reason.
    let mut reason = None;
    for path in paths {
        let bytes = match Bytes::open(&path) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => continue,
            Err(error) => {
                reason.get_or_insert(error);
                continue;
            }
        };
        let image = image::check(&path, &bytes, running).and_then(|()| open(&path, bytes));
        match image {
            Ok(image) => return Ok(image),
            Err(error) => {
                log::debug!("passed over: {error}");
                reason.get_or_insert(error);
            }
        }
    }
    Err(reason.unwrap_or_else(|| format!("no file of {what} with its code was found")))
}

/// Where what the kernel and its modules export lies: names that two symbols have are left out, for no one can tell which is meant.
fn exported(places: &Places, names: &[&str]) -> HashMap<String, u64> {
    let sorted: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    let found = kallsyms::find_where_in(&places.kallsyms(), |name| sorted.contains(name)).unwrap_or_default();
    unambiguous(found)
}

fn unambiguous(symbols: Vec<Symbol>) -> HashMap<String, u64> {
    let mut at: HashMap<String, Option<u64>> = HashMap::new();
    // What is exported is global, which an upper-case letter says.
    for symbol in
        symbols.into_iter().filter(|s| s.kind.is_ascii_uppercase() && (s.address != 0 || s.kind == 'A'))
    {
        let place = at.entry(symbol.name).or_insert(Some(symbol.address));
        if *place != Some(symbol.address) {
            *place = None;
        }
    }
    at.into_iter().filter_map(|(name, address)| Some((name, address?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_have_is_nobodys() {
        let symbol = |address, kind, name: &str| Symbol { address, kind, name: name.into(), module: None };
        let found = unambiguous(vec![
            symbol(1, 'T', "a"),
            symbol(2, 't', "a"),
            symbol(3, 'T', "b"),
            symbol(4, 'T', "b"),
            symbol(5, 'D', "c"),
            symbol(5, 'D', "c"),
            symbol(0, 'T', "hidden"),
        ]);
        let mut names: Vec<_> = found.into_iter().collect();
        names.sort_unstable();
        assert_eq!(names, [("a".to_string(), 1), ("c".to_string(), 5)]);
    }
}
