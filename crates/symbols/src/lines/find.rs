//! Where distributions put debug information.

use super::elf::Elf;
use super::{DebugFile, Error, package};
use crate::BuildId;
use bpf::FileMap;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The running system, as far as it tells where debug information may be.
#[derive(Debug)]
pub(crate) struct Places {
    root: PathBuf,
    release: String,
    /// Folders of debuginfod clients.
    caches: Vec<PathBuf>,
}

/// Files and folders looked at in search of a module's, at most.
const MOST_ENTRIES: usize = 50_000;

impl Places {
    /// Of the system whose file system is below `root`.
    pub fn of_system(root: &Path) -> Places {
        let release = std::fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
        Places {
            root: root.into(),
            release: release.trim().into(),
            caches: caches(|name| std::env::var_os(name)),
        }
    }

    /// The kernel's debug file; `None` when there is none. What was passed over is told at `-v`.
    pub fn kernel(&self) -> Option<DebugFile> {
        let running = self.running("the kernel", self.kernel_id())?;
        self.first_of(self.kernel_paths(&running), &running)
    }

    /// The running kernel's build-id, if it tells one.
    pub fn kernel_id(&self) -> Option<BuildId> {
        BuildId::of_kernel(&self.root)
    }

    /// A loaded module's build-id, if the kernel tells one.
    pub fn module_id(&self, name: &str) -> Option<BuildId> {
        BuildId::of_module(&self.root, name)
    }

    /// Where the kernel's own file may be, with its debug information or without.
    pub fn kernel_paths(&self, running: &BuildId) -> Vec<PathBuf> {
        let release = &self.release;
        let mut paths = self.by_id(running);
        if !release.is_empty() {
            let names = [
                format!("usr/lib/debug/boot/vmlinux-{release}"),
                format!("usr/lib/debug/boot/vmlinux-{release}.debug"),
                format!("usr/lib/debug/lib/modules/{release}/vmlinux"),
                format!("usr/lib/debug/lib/modules/{release}/vmlinux.debug"),
                format!("usr/lib/debug/usr/lib/modules/{release}/vmlinux"),
                format!("usr/lib/debug/usr/lib/modules/{release}/vmlinux.debug"),
                format!("usr/lib/debug/vmlinux-{release}"),
                format!("boot/vmlinux-{release}"),
                format!("lib/modules/{release}/vmlinux"),
                format!("lib/modules/{release}/build/vmlinux"),
                format!("usr/lib/modules/{release}/vmlinux"),
            ];
            paths.extend(names.map(|name| self.root.join(name)));
        }
        paths
    }

    /// The file that a module was loaded from, as modules.dep names it: perhaps compressed.
    pub fn module_paths(&self, name: &str) -> Vec<PathBuf> {
        let file = |folder: &PathBuf| Some(folder.join(self.module_entry(folder, name)?));
        let folders = self.module_folders();
        let mut paths: Vec<PathBuf> = folders.iter().filter_map(file).collect();
        if paths.is_empty() {
            // Of a tree without modules.dep.
            paths.extend(folders.iter().flat_map(|folder| modules_below(folder, name)));
        }
        paths
    }

    /// A loaded module's debug file.
    pub fn module(&self, name: &str) -> Option<DebugFile> {
        let running = self.running(&format!("module {name}"), self.module_id(name))?;
        let mut paths = self.by_id(&running);
        for folder in self.module_folders() {
            let Some(file) = self.module_file(&folder, name) else { continue };
            for debug in self.debug_folders() {
                let there = debug.join(&file);
                paths.push(with_suffix(&there, ".debug"));
                paths.push(there);
            }
            paths.push(folder.join(&file));
            paths.push(with_suffix(&folder.join(&file), ".debug"));
            break;
        }
        self.first_of(paths, &running).or_else(|| {
            // Of a tree without modules.dep.
            let folders = self.debug_folders();
            self.first_of(folders.iter().flat_map(|f| modules_below(f, name)).collect(), &running)
        })
    }

    /// Where the sections of a loaded module lie (/sys/module/NAME/sections, root's to read).
    pub fn module_sections(&self, name: &str) -> HashMap<String, u64> {
        let folder = self.root.join("sys/module").join(name).join("sections");
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let address = |path: &Path| {
            let text = std::fs::read_to_string(path).ok()?;
            u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok().filter(|a| *a != 0)
        };
        entries.filter_map(|e| Some((e.file_name().into_string().ok()?, address(&e.path())?))).collect()
    }

    /// The kernel's symbols.
    pub fn kallsyms(&self) -> PathBuf {
        self.root.join("proc/kallsyms")
    }

    /// What to do when the kernel's is not there.
    pub fn kernel_remedy(&self) -> String {
        let os = ["etc/os-release", "usr/lib/os-release"]
            .iter()
            .find_map(|file| std::fs::read_to_string(self.root.join(file)).ok());
        package::remedy(&os.unwrap_or_default(), &self.release)
    }

    fn running(&self, what: &str, id: Option<BuildId>) -> Option<BuildId> {
        if id.is_none() {
            log::debug!("no source lines of {what}: it tells no build-id");
        }
        id
    }

    fn by_id(&self, id: &BuildId) -> Vec<PathBuf> {
        let link = self.root.join("usr/lib/debug/.build-id").join(id.link());
        let cached = self.caches.iter().map(|cache| cache.join(id.to_string()).join("debuginfo"));
        std::iter::once(with_suffix(&link, ".debug")).chain(cached).collect()
    }

    fn module_folders(&self) -> [PathBuf; 2] {
        ["lib/modules", "usr/lib/modules"].map(|folder| self.root.join(folder).join(&self.release))
    }

    /// Where the modules' debug files are.
    fn debug_folders(&self) -> [PathBuf; 2] {
        let folders = ["usr/lib/debug/lib/modules", "usr/lib/debug/usr/lib/modules"];
        folders.map(|folder| self.root.join(folder).join(&self.release))
    }

    /// Where below `folder` the module lies, its name ending in `.ko` whatever it is compressed with.
    fn module_file(&self, folder: &Path, name: &str) -> Option<PathBuf> {
        let path = self.module_entry(folder, name)?;
        let end = path.rfind(".ko")?;
        Some(PathBuf::from(format!("{}.ko", path.get(..end)?)))
    }

    /// The module's path as modules.dep(5) has it.
    fn module_entry(&self, folder: &Path, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(folder.join("modules.dep")).ok()?;
        text.lines().find_map(|line| {
            let (path, _) = line.split_once(':')?;
            let (stem, _) = path.rsplit('/').next()?.split_once(".ko")?;
            (stem.replace('-', "_") == name).then(|| path.to_string())
        })
    }

    /// The first that fits; from one that has been stripped the way leads on by its `.gnu_debuglink`.
    fn first_of(&self, paths: Vec<PathBuf>, running: &BuildId) -> Option<DebugFile> {
        let mut paths = VecDeque::from(paths);
        let mut linked = false;
        while let Some(path) = paths.pop_front() {
            match DebugFile::open(&path, running) {
                Ok(file) => return Some(file),
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(Error::NoLines { .. }) if !linked => {
                    // Once: a link to a link there is not.
                    let there = self.linked_from(&path);
                    linked = !there.is_empty();
                    there.into_iter().rev().for_each(|path| paths.push_front(path));
                }
                Err(error) => log::debug!("passed over: {error}"),
            }
        }
        None
    }

    fn linked_from(&self, path: &Path) -> Vec<PathBuf> {
        let name = FileMap::open(path).ok().and_then(|map| Elf::parse(&map).ok()?.debug_link());
        // A name; with a path it could lead anywhere.
        let (Some(name), Some(folder)) = (name.filter(|n| !n.contains('/')), path.parent()) else {
            return Vec::new();
        };
        let below = folder.strip_prefix(&self.root).unwrap_or(folder);
        vec![
            folder.join(&name),
            folder.join(".debug").join(&name),
            self.root.join("usr/lib/debug").join(below).join(&name),
        ]
    }
}

/// Where debuginfod clients keep what they fetched (debuginfod-find(1)).
fn caches(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut folders = Vec::new();
    folders.extend(set("DEBUGINFOD_CACHE_PATH"));
    folders.extend(set("XDG_CACHE_HOME").map(|folder| folder.join("debuginfod_client")));
    folders.extend(set("HOME").map(|folder| folder.join(".cache/debuginfod_client")));
    folders.extend(set("HOME").map(|folder| folder.join(".debuginfod_client_cache")));
    folders
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

/// Files of a module anywhere below a folder.
fn modules_below(folder: &Path, name: &str) -> Vec<PathBuf> {
    let (mut found, mut looked_at) = (Vec::new(), 0);
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            looked_at += 1;
            if looked_at > MOST_ENTRIES {
                return found;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let file = entry.file_name();
            let stem = file.to_str().and_then(|f| f.strip_suffix(".debug").unwrap_or(f).strip_suffix(".ko"));
            if kind.is_dir() {
                folders.push(entry.path());
            } else if stem.is_some_and(|stem| stem.replace('-', "_") == name) {
                found.push(entry.path());
            }
        }
    }
    found
}
