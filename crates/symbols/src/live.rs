//! The bytes of the running kernel's code, as they are at this moment: patched sites, modules, BPF programs and trampolines
//! included. From /proc/kcore, which costs a read; where there is none, by a BPF program (`bpf::KernelMemory`).

use bpf::KernelMemory;
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Room for /proc/kcore's headers: an entry for each range of memory.
const HEADERS: u64 = 1 << 20;

/// Why the kernel's memory cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the kernel's code cannot be read: /proc/kcore: {kcore}; by a BPF program: {bpf}")]
pub struct Unreadable {
    /// What is wrong with /proc/kcore.
    pub kcore: String,
    /// What the kernel said to a BPF program that reads memory.
    #[source]
    pub bpf: bpf::Error,
}

/// A reader of live code.
#[derive(Debug)]
pub struct Live(Way);

#[derive(Debug)]
enum Way {
    Kcore { file: File, ranges: Vec<Range> },
    Bpf(KernelMemory),
}

/// A range of memory in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    address: u64,
    size: u64,
    offset: u64,
}

impl fmt::Display for Live {
    /// Where the bytes come from.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Way::Kcore { .. } => "/proc/kcore",
            Way::Bpf(_) => "reads by a BPF program",
        })
    }
}

impl Live {
    /// The first way that works.
    ///
    /// # Errors
    /// Neither does; with both reasons.
    pub fn open() -> Result<Live, Unreadable> {
        match kcore(Path::new("/proc/kcore")) {
            Ok((file, ranges)) => Ok(Live(Way::Kcore { file, ranges })),
            Err(error) => match KernelMemory::open() {
                Ok(memory) => Ok(Live(Way::Bpf(memory))),
                Err(bpf) => Err(Unreadable { kcore: error.to_string(), bpf }),
            },
        }
    }

    /// The bytes from `address` on, up to `len` of them, as far as they can be read.
    ///
    /// # Errors
    /// The read itself failed, whatever the address.
    pub fn read(&self, address: u64, len: usize) -> io::Result<Vec<u8>> {
        match &self.0 {
            Way::Bpf(memory) => memory.read(address, len).map_err(io::Error::other),
            Way::Kcore { file, ranges } => {
                let mut bytes = Vec::new();
                while bytes.len() < len {
                    let at = address.saturating_add(bytes.len() as u64);
                    let Some((offset, most)) = ranges.iter().find_map(|r| r.place(at)) else { break };
                    let mut piece = vec![0; (len - bytes.len()).min(usize::try_from(most).unwrap_or(len))];
                    match file.read_at(&mut piece, offset) {
                        Ok(0) => break,
                        Ok(got) => piece.truncate(got),
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                        // A hole in the range: memory that is not there.
                        Err(e) if e.raw_os_error() == Some(EFAULT) => break,
                        Err(e) => return Err(e),
                    }
                    bytes.append(&mut piece);
                }
                Ok(bytes)
            }
        }
    }
}

/// errno of include/uapi/asm-generic/errno-base.h.
const EFAULT: i32 = 14;

impl Range {
    /// Where in the file an address lies, and how many bytes the range has from there.
    fn place(&self, address: u64) -> Option<(u64, u64)> {
        let into = address.checked_sub(self.address).filter(|into| *into < self.size)?;
        Some((self.offset.checked_add(into)?, self.size - into))
    }
}

fn kcore(path: &Path) -> io::Result<(File, Vec<Range>)> {
    let file = File::open(path)?;
    // No more than the headers: what follows is memory, some of which may not be read.
    let mut head = vec![0; size_of::<FileHeader64<Endianness>>()];
    file.read_exact_at(&mut head, 0)?;
    let len = headers_len(&head)?;
    head.resize(len, 0);
    file.read_exact_at(&mut head, 0)?;
    let ranges = ranges(&head)?;
    // The file can be there and its bytes not be given (lockdown).
    if let Some(first) = ranges.first() {
        file.read_at(&mut [0; 1], first.offset)?;
    }
    Ok((file, ranges))
}

fn wrong(e: impl fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e.to_string())
}

/// Bytes of the file up to the end of its program headers.
fn headers_len(head: &[u8]) -> io::Result<usize> {
    let header = FileHeader64::<Endianness>::parse(head).map_err(wrong)?;
    let endian = header.endian().map_err(wrong)?;
    let table = u64::from(header.e_phnum(endian)) * u64::from(header.e_phentsize(endian));
    let len = header.e_phoff(endian).checked_add(table).filter(|len| *len <= HEADERS);
    let len = len.ok_or_else(|| wrong("its program headers are out of place"))?;
    Ok(usize::try_from(len).map_err(wrong)?.max(head.len()))
}

fn ranges(head: &[u8]) -> io::Result<Vec<Range>> {
    let header = FileHeader64::<Endianness>::parse(head).map_err(wrong)?;
    let endian = header.endian().map_err(wrong)?;
    let headers = header.program_headers(endian, head).map_err(wrong)?;
    Ok(headers
        .iter()
        .filter(|h| h.p_type(endian) == PT_LOAD)
        .map(|h| Range { address: h.p_vaddr(endian), size: h.p_memsz(endian), offset: h.p_offset(endian) })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_in_its_range_only() {
        let range = Range { address: 0xffffffff81000000, size: 0x1000, offset: 0x7000 };
        assert_eq!(range.place(0xffffffff81000000), Some((0x7000, 0x1000)));
        assert_eq!(range.place(0xffffffff81000ffe), Some((0x7ffe, 2)));
        assert_eq!(range.place(0xffffffff81001000), None);
        assert_eq!(range.place(0xffffffff80ffffff), None);
        let odd = Range { address: 0, size: u64::MAX, offset: u64::MAX - 1 };
        assert_eq!(odd.place(8), None, "an offset beyond all files");
    }

    #[test]
    fn headers_that_are_none_are_refused() {
        for bad in [
            &b""[..],
            b"\x7fELF",
            &[0u8; 4096],
            b"not an ELF file at all, however long this text may be made",
        ] {
            assert!(ranges(bad).is_err() && headers_len(bad).is_err(), "{bad:?}");
        }
    }

    /// The program's own file has the same headers.
    #[test]
    fn ranges_are_read_from_a_real_file() {
        let own = std::fs::read("/proc/self/exe").expect("own file");
        let ranges = ranges(&own).expect("headers");
        assert!(ranges.len() >= 2 && ranges.iter().all(|r| r.size > 0), "{ranges:?}");
    }
}
