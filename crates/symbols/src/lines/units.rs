//! From an address to its lines, through DWARF that is read as far as it is asked: a compilation unit (a source file) at a time.
//!
//! Which unit an address is in, `.debug_aranges` tells; units that it does not name (clang's, Rust's) are asked
//! themselves, once an address is in none of the others.

use super::Line;
use super::elf::{SECTIONS, Sections};
use addr2line::{Context, LookupResult};
use gimli::{DebugInfo, DebugInfoOffset, Dwarf, EndianSlice, LittleEndian, SectionId};
use std::collections::{HashMap, HashSet};

type Bytes<'a> = EndianSlice<'a, LittleEndian>;

/// Units that are kept read, some 100 KB each.
const MOST_KEPT: usize = 128;

/// Functions inlined into one another, at most: more is a mistake in the file.
const DEEPEST: usize = 256;

/// The units of a file.
pub(crate) struct Units<'a> {
    sections: &'a Sections<'a>,
    /// By their start.
    ranges: Vec<Range>,
    /// Whether units that `.debug_aranges` does not name are among them.
    complete: bool,
    read: HashMap<usize, Option<Context<Bytes<'a>>>>,
    /// The whole file as one, for units that refer to others (link-time optimisation).
    whole: Option<Option<Context<Bytes<'a>>>>,
}

/// Code of a unit.
#[derive(Clone, Copy, Debug)]
struct Range {
    low: u64,
    high: u64,
    /// The highest end of this range and of all before it.
    reach: u64,
    /// Where the unit is in `.debug_info`.
    unit: usize,
}

impl<'a> Units<'a> {
    /// Reads which unit is where.
    pub fn new(sections: &'a Sections<'a>) -> Units<'a> {
        let mut units =
            Units { sections, ranges: Vec::new(), complete: false, read: HashMap::new(), whole: None };
        if units.read_aranges().is_err() {
            units.ranges.clear();
        }
        units.sort();
        units
    }

    /// The lines of an address, innermost function first; paths as they are in the file.
    pub fn lines_at(&mut self, address: u64) -> Vec<Line> {
        let mut found = self.look(address);
        if found.is_empty() && !self.complete {
            self.complete = true;
            // What was read before a mistake in the file is good.
            let _ = self.ask_the_others();
            self.sort();
            found = self.look(address);
        }
        found
    }

    fn look(&mut self, address: u64) -> Vec<Line> {
        for unit in self.units_at(address) {
            let found = match self.unit(unit) {
                Some(context) => frames(context, address),
                None => Ok(Vec::new()),
            };
            match found {
                Ok(found) if found.is_empty() => {}
                Ok(found) => return found,
                Err(_) => return self.whole().and_then(|c| frames(c, address).ok()).unwrap_or_default(),
            }
        }
        Vec::new()
    }

    /// The units with code at an address, as a rule one.
    fn units_at(&self, address: u64) -> Vec<usize> {
        let end = self.ranges.partition_point(|r| r.low <= address);
        let before = self.ranges.get(..end).unwrap_or_default();
        let near = before.iter().rev().take_while(|r| r.reach > address);
        let mut units: Vec<usize> = near.filter(|r| r.high > address).map(|r| r.unit).collect();
        units.dedup();
        units
    }

    fn unit(&mut self, offset: usize) -> Option<&Context<Bytes<'a>>> {
        if self.read.len() >= MOST_KEPT && !self.read.contains_key(&offset) {
            self.read.clear();
        }
        let sections = self.sections;
        let read = self.read.entry(offset).or_insert_with(|| {
            let info = section(sections, SectionId::DebugInfo);
            let header = DebugInfo::from(info).header_from_offset(DebugInfoOffset(offset)).ok()?;
            let end = offset.checked_add(header.length_including_self())?;
            let alone = Bytes::new(info.slice().get(offset..end)?, LittleEndian);
            Context::from_dwarf(dwarf(sections, alone)).ok()
        });
        read.as_ref()
    }

    fn whole(&mut self) -> Option<&Context<Bytes<'a>>> {
        let sections = self.sections;
        let whole = self.whole.get_or_insert_with(|| {
            Context::from_dwarf(dwarf(sections, section(sections, SectionId::DebugInfo))).ok()
        });
        whole.as_ref()
    }

    fn read_aranges(&mut self) -> Result<(), gimli::Error> {
        let aranges = gimli::DebugAranges::from(section(self.sections, SectionId::DebugAranges));
        let mut headers = aranges.headers();
        while let Some(header) = headers.next()? {
            let mut entries = header.entries();
            while let Some(entry) = entries.next()? {
                self.add(entry.range(), header.debug_info_offset().0);
            }
        }
        Ok(())
    }

    /// Reads the ranges of the units that `.debug_aranges` does not name.
    fn ask_the_others(&mut self) -> Result<(), gimli::Error> {
        let named: HashSet<usize> = self.ranges.iter().map(|r| r.unit).collect();
        let dwarf = dwarf(self.sections, section(self.sections, SectionId::DebugInfo));
        let mut headers = dwarf.units();
        while let Some(header) = headers.next()? {
            let Some(DebugInfoOffset(offset)) = header.debug_info_offset() else { continue };
            if named.contains(&offset) {
                continue;
            }
            // One unit that cannot be read does not hide the next.
            let Ok(unit) = dwarf.unit(header) else { continue };
            let Ok(mut ranges) = dwarf.unit_ranges(&unit) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                self.add(range, offset);
            }
        }
        Ok(())
    }

    fn add(&mut self, range: gimli::Range, unit: usize) {
        if range.begin < range.end {
            self.ranges.push(Range { low: range.begin, high: range.end, reach: 0, unit });
        }
    }

    fn sort(&mut self) {
        self.ranges.sort_unstable_by_key(|r| (r.low, r.high, r.unit));
        let mut reach = 0;
        for range in &mut self.ranges {
            reach = range.high.max(reach);
            range.reach = reach;
        }
    }
}

fn section<'a>(sections: &'a Sections<'a>, id: SectionId) -> Bytes<'a> {
    let at = SECTIONS.iter().position(|s| *s == id);
    let bytes = at.and_then(|at| sections.get(at)).map_or(&[] as &[u8], |s| s);
    Bytes::new(bytes, LittleEndian)
}

/// What is read from: of `.debug_info` a part, of the other sections all.
fn dwarf<'a>(sections: &'a Sections<'a>, info: Bytes<'a>) -> Dwarf<Bytes<'a>> {
    let load = |id| -> Result<Bytes<'a>, std::convert::Infallible> {
        Ok(match id {
            SectionId::DebugInfo => info,
            // It speaks of the whole section; the unit itself tells its ranges as well.
            SectionId::DebugAranges => Bytes::new(&[], LittleEndian),
            _ => section(sections, id),
        })
    };
    match Dwarf::load(load) {
        Ok(dwarf) => dwarf,
        Err(never) => match never {},
    }
}

/// The frames of an address, innermost first.
fn frames(context: &Context<Bytes<'_>>, address: u64) -> Result<Vec<Line>, gimli::Error> {
    let mut lookup = context.find_frames(address);
    let mut frames = loop {
        match lookup {
            LookupResult::Output(frames) => break frames?,
            // Debug information in files of its own (split DWARF) no kernel has.
            LookupResult::Load { continuation, .. } => {
                lookup = addr2line::LookupContinuation::resume(continuation, None);
            }
        }
    };
    let mut lines = Vec::new();
    while let Some(frame) = frames.next()? {
        let location = frame.location;
        let name = frame.function.as_ref().and_then(|f| f.demangle().ok().map(|n| n.into_owned()));
        lines.push(Line {
            function: name,
            file: location.as_ref().and_then(|l| l.file).unwrap_or_default().to_string(),
            line: location.as_ref().and_then(|l| l.line).unwrap_or(0),
            column: location.as_ref().and_then(|l| l.column).unwrap_or(0),
        });
        if lines.len() >= DEEPEST {
            break;
        }
    }
    // A unit may have code there of which it tells nothing.
    if lines.iter().all(|l| l.file.is_empty()) {
        lines.clear();
    }
    Ok(lines)
}
