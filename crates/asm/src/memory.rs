//! The memory an evaluated program sees.

use crate::eval::Fault;
use crate::ir::{MapId, Size};
use std::collections::BTreeMap;

/// Regions of bytes, so far apart that no index of 32 bits leads from one to another. Address 0 is never valid.
#[derive(Clone, Default, Debug)]
pub struct Memory {
    regions: Vec<Region>,
    maps: BTreeMap<MapId, MapArea>,
}

#[derive(Clone, Debug)]
struct Region {
    bytes: Vec<u8>,
    /// By byte, whether it was ever written.
    written: Vec<bool>,
    live: bool,
}

#[derive(Clone, Copy, Debug)]
struct MapArea {
    addr: u64,
    value_size: usize,
}

/// Bits of an address that tell where in its region it is.
const WITHIN: u32 = 40;
/// What is above them is the region's number plus this.
const FIRST: u64 = 0x10;
/// What a map looks like in a register.
const MAP: u64 = 0xfd00_0000_0000_0000;

impl Memory {
    /// Adds bytes and gives their address.
    pub fn add(&mut self, bytes: &[u8]) -> u64 {
        self.push(bytes.to_vec(), true)
    }

    /// Adds bytes that hold nothing yet: reading them before writing is a fault.
    pub(crate) fn add_undefined(&mut self, len: usize) -> u64 {
        self.push(vec![0xa5; len], false)
    }

    fn push(&mut self, bytes: Vec<u8>, written: bool) -> u64 {
        let written = vec![written; bytes.len()];
        self.regions.push(Region { bytes, written, live: true });
        (FIRST + self.regions.len() as u64 - 1) << WITHIN
    }

    /// Forgets what a region holds.
    pub(crate) fn undefine(&mut self, addr: u64) {
        if let Some((region, _)) = self.find(addr) {
            let region = &mut self.regions[region];
            region.written.fill(false);
            region.bytes.fill(0xa5);
        }
    }

    /// Ends a region's life.
    pub(crate) fn remove(&mut self, addr: u64) {
        if let Some((region, _)) = self.find(addr) {
            self.regions[region].live = false;
            self.regions[region].bytes = Vec::new();
        }
    }

    /// Adds an array map: its values end to end, `value_size` bytes each.
    pub fn add_map(&mut self, map: MapId, value_size: usize, values: &[u8]) {
        let addr = self.add(values);
        self.maps.insert(map, MapArea { addr, value_size });
    }

    /// All the values of a map.
    pub fn map(&self, map: MapId) -> Option<&[u8]> {
        let (region, _) = self.find(self.maps.get(&map)?.addr)?;
        Some(&self.regions[region].bytes)
    }

    /// The address of a map's first value.
    pub(crate) fn map_addr(&self, map: MapId) -> Option<u64> {
        self.maps.get(&map).map(|m| m.addr)
    }

    /// A map as programs hold it in a register.
    pub fn map_handle(map: MapId) -> u64 {
        MAP | u64::from(map.0)
    }

    /// The map a register holds.
    pub fn map_of_handle(handle: u64) -> Option<MapId> {
        (handle & !0xffff_ffff == MAP).then_some(MapId(handle as u32))
    }

    /// The address and size of the value with that index.
    pub(crate) fn element(&self, handle: u64, index: u32) -> Option<(u64, usize)> {
        let map = Memory::map_of_handle(handle)?;
        let area = self.maps.get(&map)?;
        let at = area.value_size.checked_mul(index as usize)?;
        let inside = at.checked_add(area.value_size)? <= self.map(map)?.len();
        inside.then_some((area.addr + at as u64, area.value_size))
    }

    fn find(&self, addr: u64) -> Option<(usize, usize)> {
        let region = usize::try_from((addr >> WITHIN).checked_sub(FIRST)?).ok()?;
        self.regions.get(region).filter(|r| r.live)?;
        Some((region, usize::try_from(addr & ((1 << WITHIN) - 1)).ok()?))
    }

    fn place(&self, addr: u64, len: usize) -> Result<(usize, std::ops::Range<usize>), Fault> {
        let bad = Fault::Address { addr, len };
        let (region, at) = self.find(addr).ok_or(bad.clone())?;
        let end = at.checked_add(len).filter(|end| *end <= self.regions[region].bytes.len()).ok_or(bad)?;
        Ok((region, at..end))
    }

    /// Reads bytes.
    pub fn read(&self, addr: u64, len: usize) -> Result<&[u8], Fault> {
        let (region, range) = self.place(addr, len)?;
        if !self.regions[region].written[range.clone()].iter().all(|w| *w) {
            return Err(Fault::Undefined { addr, len });
        }
        Ok(&self.regions[region].bytes[range])
    }

    /// Writes bytes.
    pub fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (region, range) = self.place(addr, bytes.len())?;
        self.regions[region].written[range.clone()].fill(true);
        self.regions[region].bytes[range].copy_from_slice(bytes);
        Ok(())
    }

    /// Reads a number, zero-extended.
    pub fn load(&self, size: Size, addr: u64) -> Result<u64, Fault> {
        let bytes = self.read(addr, size.bytes() as usize)?;
        let mut wide = [0u8; 8];
        if cfg!(target_endian = "little") {
            wide[..bytes.len()].copy_from_slice(bytes);
        } else {
            wide[8 - bytes.len()..].copy_from_slice(bytes);
        }
        Ok(u64::from_ne_bytes(wide))
    }

    /// Writes the low bits of a number.
    pub fn store(&mut self, size: Size, addr: u64, v: u64) -> Result<(), Fault> {
        let (wide, n) = (v.to_ne_bytes(), size.bytes() as usize);
        let bytes = if cfg!(target_endian = "little") { &wide[..n] } else { &wide[8 - n..] };
        self.write(addr, bytes)
    }
}
