//! Reading the kernel's memory: by a program that copies what is asked for into a map, and is run once for each piece. It
//! works wherever programs of type raw_tracepoint may be test-run (5.10), /proc/kcore or not.

use crate::error::Result;
use crate::map::{Map, MapType};
use crate::prog::{Load, ProgType, Program, TestRun};
use std::os::fd::{AsFd, AsRawFd};

/// Most bytes of one run.
const PIECE: u32 = 64 << 10;

/// Smallest page of any kernel: what lies in one is readable as a whole, or not at all.
const PAGE: u64 = 4096;

/// `bpf_probe_read_kernel` (5.5).
const PROBE_READ_KERNEL: u64 = 113;

/// A reader of kernel memory.
#[derive(Debug)]
pub struct KernelMemory {
    program: Program,
    piece: Map,
}

impl KernelMemory {
    /// Loads the program. Takes CAP_BPF and CAP_PERFMON, and a kernel that is not locked down for confidentiality.
    pub fn open() -> Result<KernelMemory> {
        let piece = Map::create(MapType::Array, "piece", 4, PIECE, 1)?;
        let insns = instructions(piece.as_fd().as_raw_fd());
        let program = Program::load(&Load::new("read_memory", ProgType::RawTracepoint, &insns))?;
        Ok(KernelMemory { program, piece })
    }

    /// The bytes from `address` on, up to `len` of them, as far as they can be read: fewer, or none, where memory ends or
    /// the kernel lets nobody read.
    pub fn read(&self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let Some(at) = address.checked_add(bytes.len() as u64) else { break };
            let want = (len - bytes.len()).min(PIECE as usize);
            let mut got = self.piece(at, want)?;
            if got.is_empty() {
                let rest_of_page = (PAGE - at % PAGE) as usize;
                if want <= rest_of_page {
                    break;
                }
                got = self.piece(at, rest_of_page)?;
                if got.is_empty() {
                    break;
                }
            }
            bytes.append(&mut got);
        }
        Ok(bytes)
    }

    /// A piece, whole or nothing.
    fn piece(&self, address: u64, len: usize) -> Result<Vec<u8>> {
        let mut ctx = [0u8; 16];
        let (first, second) = ctx.split_at_mut(8);
        first.copy_from_slice(&address.to_ne_bytes());
        second.copy_from_slice(&(len as u64).to_ne_bytes());
        let run = self.program.test_run(&TestRun { ctx: &ctx, ..Default::default() })?;
        if run.retval != 0 {
            return Ok(Vec::new());
        }
        let mut bytes = self.piece.lookup(&0u32.to_ne_bytes())?.unwrap_or_default();
        bytes.truncate(len);
        Ok(bytes)
    }
}

/// The program, whose context is an address and a length: it returns 0 if all could be read.
fn instructions(map: i32) -> [u64; 8] {
    let insn = |code: u8, dst: u8, src: u8, off: i16, imm: i32| {
        u64::from(code)
            | u64::from(dst | src << 4) << 8
            | u64::from(off.cast_unsigned()) << 16
            | u64::from(imm.cast_unsigned()) << 32
    };
    [
        // r2 = length; r3 = address
        insn(0x79, 2, 1, 8, 0),
        insn(0x79, 3, 1, 0, 0),
        // r0 = 1; if r2 > PIECE: exit
        insn(0xb7, 0, 0, 0, 1),
        insn(0x25, 2, 0, 3, PIECE.cast_signed()),
        // r1 = the map's value (BPF_PSEUDO_MAP_VALUE)
        insn(0x18, 1, 2, 0, map),
        insn(0, 0, 0, 0, 0),
        insn(0x85, 0, 0, 0, PROBE_READ_KERNEL as i32),
        insn(0x95, 0, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a symbol lies, by /proc/kallsyms.
    fn address_of(name: &str) -> Option<u64> {
        let text = std::fs::read_to_string("/proc/kallsyms").ok()?;
        let line = text.lines().find(|l| l.split_ascii_whitespace().nth(2) == Some(name))?;
        u64::from_str_radix(line.split_ascii_whitespace().next()?, 16).ok().filter(|a| *a != 0)
    }

    #[test]
    fn memory_is_read_across_pieces_and_what_is_not_there_is_not() {
        let memory = match KernelMemory::open() {
            Ok(memory) => memory,
            Err(error) => return println!("SKIP: {error}"),
        };
        let Some(code) = address_of("vfs_read") else {
            return println!("SKIP: kallsyms shows no addresses");
        };
        let long = memory.read(code, PIECE as usize + 5000).expect("read");
        assert_eq!(
            long.len(),
            PIECE as usize + 5000,
            "the kernel's code goes on behind a function in its midst"
        );
        assert!(long.iter().any(|b| *b != 0));
        for at in [0, 1, PIECE as usize - 7, PIECE as usize] {
            let short = memory.read(code + at as u64, 100).expect("read");
            assert_eq!(Some(short.as_slice()), long.get(at..at + 100), "at {at}");
        }
        if let Some(banner) = address_of("linux_banner") {
            let version = std::fs::read_to_string("/proc/version").expect("version");
            let bytes = memory.read(banner, version.len()).expect("read");
            assert_eq!(String::from_utf8_lossy(&bytes), version);
        }
        assert_eq!(memory.read(8, 16).expect("read"), b"", "the first page is nobody's");
        assert_eq!(memory.read(u64::MAX - 3, 16).expect("read"), b"", "nor is the end of all addresses");
    }
}
