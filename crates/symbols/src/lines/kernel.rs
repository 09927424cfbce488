//! A debug file of the kernel or of a module: checked when it is opened, read when an address is looked up.

use super::elf::{Elf, Sections};
use super::paths::Roots;
use super::units::Units;
use super::{Error, Line, Lines};
use crate::BuildId;
use bpf::FileMap;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A file with debug information, known to be of the build that runs.
#[derive(Debug)]
pub struct DebugFile {
    path: PathBuf,
    map: FileMap,
}

/// Functions whose files every kernel has at the same place of its source tree: from them the tree's root is learnt, as the
/// compiler was told it. The one is C, the others are assembly, which is told another.
const KNOWN: [(&str, &str); 4] = [
    ("start_kernel", "init/main.c"),
    ("entry_SYSCALL_64", "arch/x86/entry/entry_64.S"),
    ("startup_64", "arch/x86/kernel/head_64.S"),
    ("vectors", "arch/arm64/kernel/entry.S"),
];

impl DebugFile {
    /// Opens it and checks that it is of the build `running` and has lines; none of them is read.
    pub fn open(path: &Path, running: &BuildId) -> Result<DebugFile, Error> {
        let map = FileMap::open(path).map_err(|source| Error::Io { path: path.into(), source })?;
        let elf = parse(path, &map)?;
        match elf.build_id() {
            None => return Err(Error::NoId { path: path.into(), running: running.clone() }),
            Some(found) if found != *running => {
                return Err(Error::OtherBuild { path: path.into(), found, running: running.clone() });
            }
            Some(_) => {}
        }
        if !elf.has_lines() {
            return Err(Error::NoLines { path: path.into() });
        }
        Ok(DebugFile { path: path.into(), map })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it as the kernel's, `anchors` being where symbols of it lie in memory.
    pub(super) fn load_kernel(self, anchors: &[(&str, u64)]) -> Result<Loaded, Error> {
        let (path, elf) = self.stay()?;
        let names: Vec<&str> = anchors.iter().map(|a| a.0).chain(KNOWN.iter().map(|k| k.0)).collect();
        let addresses = elf.addresses(&names);
        let there = anchors.iter().zip(&addresses);
        let Some(moved) = there.filter_map(|((_, now), linked)| Some(now.wrapping_sub((*linked)?))).next()
        else {
            return Err(Error::NoAnchor { path });
        };
        let known = KNOWN.iter().zip(addresses.iter().skip(anchors.len()));
        let samples =
            known.filter_map(|((_, file), address)| Some(((*address)?, (*file).to_string()))).collect();
        Loaded::new(path, elf.sections(), moved, samples)
    }

    /// Reads it as a module's, whose sections lie at the addresses of `at` in memory.
    pub(super) fn load_module(self, at: &HashMap<String, u64>) -> Result<Loaded, Error> {
        if at.is_empty() {
            let reason = "the kernel does not tell where the module lies (/sys/module/NAME/sections)".into();
            return Err(Error::Debug { path: self.path, reason });
        }
        let (path, elf) = self.stay()?;
        // A module's file lies below `kernel` where its source does in the tree.
        let folder = path.parent().and_then(|p| p.to_str()).and_then(|p| p.rsplit_once("/kernel/"));
        let samples = match folder {
            Some((_, folder)) => {
                elf.functions_at(at).into_iter().map(|address| (address, format!("{folder}/"))).collect()
            }
            None => Vec::new(),
        };
        Loaded::new(path, elf.sections_at(at), 0, samples)
    }

    /// Lets the map stay to the end of the process, so that what is read can refer to it: there is one file for the kernel and
    /// one for each module, opened once.
    fn stay(self) -> Result<(PathBuf, Elf<'static>), Error> {
        let map: &'static FileMap = Box::leak(Box::new(self.map));
        let elf = parse(&self.path, map)?;
        Ok((self.path, elf))
    }
}

/// A debug file whose lines are looked up.
pub(super) struct Loaded {
    units: Units<'static>,
    /// How far the kernel was moved from where it was linked for (KASLR).
    moved: u64,
    /// Addresses, as linked, with the end of the path of their file, or for a module a folder in it.
    samples: Vec<(u64, String)>,
}

impl Loaded {
    fn new(
        path: PathBuf,
        sections: Result<Sections<'static>, String>,
        moved: u64,
        samples: Vec<(u64, String)>,
    ) -> Result<Loaded, Error> {
        let sections = sections.map_err(|reason| Error::Debug { path, reason })?;
        Ok(Loaded { units: Units::new(Box::leak(Box::new(sections))), moved, samples })
    }

    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Learns how the compiler was told the root of the source tree.
    pub fn learn_roots(&mut self, roots: &mut Roots) {
        for (address, part) in std::mem::take(&mut self.samples) {
            if let Some(line) = self.units.lines_at(address).last() {
                roots.learn(&line.file, &part);
            }
        }
    }

    /// The lines of an address in memory, innermost function first.
    pub fn lines_at(&mut self, address: u64, roots: &Roots) -> Vec<Line> {
        let mut lines = self.units.lines_at(address.wrapping_sub(self.moved));
        for line in &mut lines {
            line.file = roots.shorten(&line.file);
        }
        lines
    }
}

/// The lines of addresses in an ELF image with debug information, at the addresses that it was linked for: whatever runs.
///
/// # Errors
/// What is wrong with the image.
pub fn lines_in(image: &[u8], addresses: &[u64]) -> Result<Vec<Lines>, String> {
    let elf = Elf::parse(image)?;
    let sections = elf.sections_at(&HashMap::new())?;
    let mut units = Units::new(&sections);
    let mut roots = Roots::default();
    for ((_, file), address) in KNOWN.iter().zip(elf.addresses(&KNOWN.map(|k| k.0))) {
        if let Some(line) = address.map(|a| units.lines_at(a)).unwrap_or_default().last() {
            roots.learn(&line.file, file);
        }
    }
    let mut lines_at = |address: &u64| {
        let mut chain = units.lines_at(*address);
        chain.iter_mut().for_each(|line| line.file = roots.shorten(&line.file));
        Lines { chain }
    };
    Ok(addresses.iter().map(&mut lines_at).collect())
}

fn parse<'a>(path: &Path, map: &'a FileMap) -> Result<Elf<'a>, Error> {
    Elf::parse(map).map_err(|reason| Error::NotElf { path: path.into(), reason })
}
