//! BPF maps (BPF_MAP_CREATE and element calls).

use crate::error::{Error, Result};
use crate::sys::{self, MapCreate, MapElem, addr, addr_mut, bpf, bpf_fd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The map types in use (include/uapi/linux/bpf.h, `enum bpf_map_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MapType {
    /// Hash table, preallocated.
    Hash = 1,
    /// Array, zeroed at creation.
    Array = 2,
    /// Programs to tail-call, by index; a value is a program's descriptor when written, its id when read.
    ProgArray = 3,
    /// Hash table with one value for each possible CPU, preallocated.
    PerCpuHash = 5,
    /// Array with one value for each possible CPU.
    PerCpuArray = 6,
    /// Maps by index; a value is a map's descriptor when written. See [`Map::create_of_maps`].
    ArrayOfMaps = 12,
    /// Ring buffer; `max_entries` is its size in bytes.
    RingBuf = 27,
}

/// A map, its sizes in bytes, owned.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    name: String,
    key_size: usize,
    value_size: usize,
    max_entries: u32,
    per_cpu: bool,
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Map {
    /// Creates a map. Sizes in bytes; for a ring buffer both are 0 and `max_entries` is a power of two times the
    /// page size.
    pub fn create(ty: MapType, name: &str, key_size: u32, value_size: u32, max_entries: u32) -> Result<Map> {
        Map::create_with(ty, name, key_size, value_size, max_entries, None)
    }

    /// Creates an array that holds these maps, in order. They are of one kind and size, which some kernels insist on
    /// (`bpf_map_meta_equal`) and the verifier takes for granted of each.
    pub fn create_of_maps<'a>(name: &str, maps: impl ExactSizeIterator<Item = &'a Map>) -> Result<Map> {
        let count = u32::try_from(maps.len()).unwrap_or(u32::MAX);
        let mut maps = maps.peekable();
        let Some(model) = maps.peek().map(|map| map.raw()) else {
            return Err(Error::Protocol(format!("map {name}: no map to hold")));
        };
        let outer = Map::create_with(MapType::ArrayOfMaps, name, 4, 4, count, Some(model))?;
        for (index, map) in (0u32..).zip(maps) {
            outer.update(&index.to_ne_bytes(), &map.raw().to_ne_bytes())?;
        }
        Ok(outer)
    }

    fn create_with(
        ty: MapType,
        name: &str,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        inner: Option<u32>,
    ) -> Result<Map> {
        let mut attr = MapCreate {
            map_type: ty as u32,
            key_size,
            value_size,
            max_entries,
            inner_map_fd: inner.unwrap_or(0),
            map_name: sys::object_name(name),
            ..Default::default()
        };
        let fd = bpf_fd(sys::MAP_CREATE, &mut attr).map_err(|source| Error::Sys {
            action: format!(
                "create map {name} ({ty:?}, {max_entries} entries of {key_size}+{value_size} bytes)"
            ),
            source,
        })?;
        Ok(Map {
            fd,
            name: name.into(),
            key_size: key_size as usize,
            value_size: value_size as usize,
            max_entries,
            per_cpu: matches!(ty, MapType::PerCpuArray | MapType::PerCpuHash),
        })
    }

    /// Entries, or bytes for a ring buffer.
    pub fn max_entries(&self) -> u32 {
        self.max_entries
    }

    fn raw(&self) -> u32 {
        self.fd.as_raw_fd() as u32
    }

    fn check(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        if key.len() != self.key_size || value.is_some_and(|v| v.len() != self.value_size) {
            return Err(Error::Protocol(format!("map {}: key or value of the wrong size", self.name)));
        }
        Ok(())
    }

    /// Sets an entry (BPF_ANY). Not for per-CPU maps.
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check(key, Some(value))?;
        let mut attr =
            MapElem { map_fd: self.raw(), key: addr(key), value: addr(value), ..Default::default() };
        bpf(sys::MAP_UPDATE_ELEM, &mut attr)
            .map(drop)
            .map_err(|source| Error::Sys { action: format!("update map {}", self.name), source })
    }

    /// Reads an entry; `None` when there is none.
    ///
    /// A per-CPU map answers with one value for each possible CPU, each padded to 8 bytes, end to end.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.check(key, None)?;
        let len = if self.per_cpu {
            self.value_size.next_multiple_of(8) * possible_cpus()?
        } else {
            self.value_size
        };
        let mut value = vec![0u8; len];
        let mut attr =
            MapElem { map_fd: self.raw(), key: addr(key), value: addr_mut(&mut value), ..Default::default() };
        match bpf(sys::MAP_LOOKUP_ELEM, &mut attr) {
            Ok(_) => Ok(Some(value)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(source) => Err(Error::Sys { action: format!("read map {}", self.name), source }),
        }
    }

    /// Reads entry `index` of a per-CPU array of `u64` and adds its CPUs up.
    pub fn sum_u64(&self, index: u32) -> Result<u64> {
        let value = self.lookup(&index.to_ne_bytes())?.unwrap_or_default();
        Ok(value.chunks_exact(8).filter_map(|c| c.try_into().ok()).map(u64::from_ne_bytes).sum())
    }

    /// Deletes an entry; `false` when there was none.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.check(key, None)?;
        let mut attr = MapElem { map_fd: self.raw(), key: addr(key), ..Default::default() };
        match bpf(sys::MAP_DELETE_ELEM, &mut attr) {
            Ok(_) => Ok(true),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(source) => Err(Error::Sys { action: format!("delete from map {}", self.name), source }),
        }
    }

    /// Calls `each` with the keys now in the map, one after the other; it may delete that key, and no other. At most
    /// `max_entries` of them, even if the map changes meanwhile.
    pub fn each_key(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut at = self.next_key(None)?;
        for _ in 0..self.max_entries {
            let Some(key) = at else { break };
            // Of a key that is gone the kernel cannot tell the next.
            at = self.next_key(Some(&key))?;
            each(&key)?;
        }
        Ok(())
    }

    /// The key after this one, or the first (BPF_MAP_GET_NEXT_KEY).
    fn next_key(&self, key: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let mut next = vec![0u8; self.key_size];
        let mut attr = MapElem {
            map_fd: self.raw(),
            key: key.map_or(0, addr),
            value: addr_mut(&mut next),
            ..Default::default()
        };
        match bpf(sys::MAP_GET_NEXT_KEY, &mut attr) {
            Ok(_) => Ok(Some(next)),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(source) => Err(Error::Sys { action: format!("list keys of map {}", self.name), source }),
        }
    }
}

/// The numbers of the CPUs that are online.
pub(crate) fn online_cpu_numbers() -> Result<Vec<u32>> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(PATH)
        .map_err(|source| Error::Sys { action: format!("read {PATH}"), source })?;
    let bad = || Error::Protocol(format!("{PATH}: cannot read {text:?}"));
    parse_online(&text).ok_or_else(bad)?;
    let mut numbers = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let first = first.parse::<u32>().map_err(|_| bad())?;
        numbers.extend(first..=last.parse::<u32>().map_err(|_| bad())?);
    }
    Ok(numbers)
}

/// CPUs that are online: how many, and the highest number of one plus one.
pub fn online_cpus() -> Result<(usize, usize)> {
    const PATH: &str = "/sys/devices/system/cpu/online";
    let text = std::fs::read_to_string(PATH)
        .map_err(|source| Error::Sys { action: format!("read {PATH}"), source })?;
    parse_online(&text).ok_or_else(|| Error::Protocol(format!("{PATH}: cannot read {text:?}")))
}

/// A list like `0-3,8,10-11`: how many numbers, and the highest plus one.
fn parse_online(text: &str) -> Option<(usize, usize)> {
    let end = parse_possible(text)?;
    let mut count = 0usize;
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (count <= end).then_some((count, end))
}

/// CPUs the kernel keeps per-CPU values for: the last number of /sys/devices/system/cpu/possible, plus one.
pub fn possible_cpus() -> Result<usize> {
    const PATH: &str = "/sys/devices/system/cpu/possible";
    let text = std::fs::read_to_string(PATH)
        .map_err(|source| Error::Sys { action: format!("read {PATH}"), source })?;
    parse_possible(&text).ok_or_else(|| Error::Protocol(format!("{PATH}: cannot read {text:?}")))
}

fn parse_possible(text: &str) -> Option<usize> {
    let last = text.trim().rsplit([',', '-']).next()?;
    last.parse::<usize>().ok()?.checked_add(1).filter(|n| *n <= 1 << 16)
}

#[cfg(test)]
mod tests {
    use super::{parse_online, parse_possible};

    #[test]
    fn online_cpus_formats() {
        assert_eq!(parse_online("0\n"), Some((1, 1)));
        assert_eq!(parse_online("0-7\n"), Some((8, 8)));
        assert_eq!(parse_online("0-3,8,10-11\n"), Some((7, 12)));
        for bad in ["", "0-", "3-0", "0-7,2", "-", "0-99999999999999999999"] {
            assert_eq!(parse_online(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn possible_cpus_formats() {
        assert_eq!(parse_possible("0\n"), Some(1));
        assert_eq!(parse_possible("0-7\n"), Some(8));
        assert_eq!(parse_possible("0-3,8-11\n"), Some(12));
        assert_eq!(parse_possible("rubbish"), None);
    }
}
