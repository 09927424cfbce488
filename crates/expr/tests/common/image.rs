//! Memory that expressions read: random bytes, with pointers where the types of `types.h` have them.

use super::World;
use expr::eval::Machine;
use expr::tree::Root;
use std::cell::Cell;

/// Bytes of an image.
pub const SIZE: usize = 0x2000;
/// What the probe brings, 16 bytes each.
pub const ROOTS: usize = 0;
pub const OUTER: usize = 0x1000;
pub const SECOND: usize = 0x1280;
pub const NODES: [usize; 4] = [0x1500, 0x1548, 0x1590, 0x15d8];
pub const BITS: usize = 0x1700;
pub const PBITS: usize = 0x1780;
pub const PACKED: usize = 0x17c0;
/// Texts, 64 bytes each.
pub const TEXTS: usize = 0x1800;
pub const POINTERS: usize = 0x1a00;
pub const NUMBERS: usize = 0x1b00;
/// What is not there: `bad` is no address at all, `far` one of the kernel's that nothing is mapped at.
pub const BAD: u64 = 0x8000_1234_0000_0000;
pub const FAR: u64 = 0xffff_8000_1234_0000;

pub const EDGES: [u64; 16] = [
    0,
    1,
    2,
    3,
    7,
    31,
    32,
    63,
    64,
    127,
    128,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    i64::MIN as u64,
    u64::MAX,
];

/// Numbers that a seed makes again (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

#[derive(Clone, Debug)]
pub struct Image {
    pub base: u64,
    pub bytes: Vec<u8>,
    /// The name of the thread that made it.
    pub comm: [u8; 16],
    /// An address was read that is neither here nor known not to be anywhere: what the kernel would find there is not known.
    pub unknown: Cell<bool>,
}

/// Where a root lies in an image.
pub fn root_at(root: Root, slot: u32) -> usize {
    let number = match root {
        Root::Arg(n) => usize::from(n),
        Root::Retval => 40,
        Root::Pid => 41,
        Root::Tid => 42,
        Root::Cpu => 43,
        Root::Cgroup => 44,
        Root::Ns => 45,
        Root::Duration => 46,
        Root::Context => 47,
        Root::Task => 48,
        Root::PerCpu(_) => 49,
    };
    ROOTS + number * 16 + slot as usize * 8
}

impl Image {
    /// `tame`: every `_Bool` is one, as C takes for granted.
    pub fn new(world: &World, base: u64, seed: u64, tame: bool) -> Image {
        let mut random = Random(seed);
        let mut bytes = Vec::new();
        while bytes.len() < SIZE {
            let word = match random.below(3) {
                0 => *random.pick(&EDGES),
                // Half and half.
                1 => *random.pick(&EDGES) as u32 as u64 | random.next() << 32,
                _ => random.next(),
            };
            bytes.extend(word.to_le_bytes());
        }
        let name = std::fs::read("/proc/thread-self/comm").unwrap();
        let mut comm = [0; 16];
        comm[..name.len() - 1].copy_from_slice(&name[..name.len() - 1]);
        let mut image = Image { base, bytes, comm, unknown: Cell::new(false) };
        for (n, text) in ["eth0", "a somewhat longer text, of more bytes than sixteen", "", "lo\x01\u{e9}"]
            .iter()
            .enumerate()
        {
            let at = TEXTS + n * 64;
            image.bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
            image.bytes[at + text.len()] = 0;
        }
        for (n, at) in NODES.into_iter().enumerate() {
            let next = if n == 3 { 0 } else { base + NODES[n + 1] as u64 };
            image.word(at, next);
            image.word(at + 8, base + at as u64);
            let name = format!("node{n}\0");
            image.bytes[at + 20..at + 20 + name.len()].copy_from_slice(name.as_bytes());
            image.word(at + 40, base + TEXTS as u64 + n as u64 * 64);
            image.word(at + 48, [base + NUMBERS as u64, 0, BAD, FAR][n]);
            image.word(at + 56, base + OUTER as u64);
            image.word(at + 64, 0xffff_ffff_8100_0000 + n as u64);
        }
        // No terminator in the last one's name.
        image.bytes[NODES[3] + 20..NODES[3] + 36].copy_from_slice(b"sixteen bytes ok");
        for outer in [OUTER, SECOND] {
            for (n, node) in NODES.into_iter().enumerate() {
                image.word(outer + 120 + n * 8, if n == 2 { 0 } else { base + node as u64 });
            }
            let second = outer == SECOND;
            image.word(outer + 168, if second { 0 } else { base + NODES[0] as u64 });
            image.word(outer + 176, base + POINTERS as u64);
            image.word(outer + 184, if second { FAR } else { base + NUMBERS as u64 + 3 });
            image.word(outer + 192, base + TEXTS as u64 + 64 * u64::from(second));
            image.bytes[outer + 200..outer + 216].copy_from_slice(b"kworker/0:1\0\xffabc");
            image.bytes[outer + 216..outer + 222].copy_from_slice(&[0, 0x11, 0x22, 0xaa, 0xbb, 0xcc]);
            image.bytes[outer + 224..outer + 228].copy_from_slice(&[10, 0, 0, 1]);
            image.bytes[outer + 228..outer + 244].copy_from_slice(&[0; 16]);
            image.bytes[outer + 243] = 1;
            image.word(outer + 288, 0xffff_ffff_8100_1000);
            image.word(outer + 296, base + NUMBERS as u64);
            image.word(outer + 472, base + NUMBERS as u64 + 8);
            image.word(outer + 480, base + NUMBERS as u64 + 1);
            image.word(outer + 488, base + NUMBERS as u64 + 5);
            image.word(outer + 496, base + NUMBERS as u64 + 12);
            image.word(outer + 504, base + if second { OUTER } else { SECOND } as u64);
            image.word(outer + 424 + 29, base + NODES[1] as u64);
            if tame {
                image.bytes[outer + 32] &= 1;
                image.bytes[outer + 304 + 64] |= 0;
            }
        }
        image.word(PACKED + 29, base + NODES[2] as u64);
        for n in 0..4 {
            image.word(POINTERS + n * 8, [base + NODES[0] as u64, 0, base + NODES[1] as u64, BAD][n]);
        }
        if tame {
            for byte in &mut image.bytes[NUMBERS..NUMBERS + 0x100] {
                *byte &= 1;
            }
        }
        for (n, (name, _)) in world.args.iter().enumerate() {
            let word = match *name {
                "o" => base + OUTER as u64,
                "n" => base + NODES[0] as u64,
                "bits" => base + BITS as u64,
                "pb" => base + PBITS as u64,
                "pk" => base + PACKED as u64,
                "str" => base + TEXTS as u64,
                "v" => base + NUMBERS as u64,
                "null" => 0,
                "bad" => BAD,
                "far" => FAR,
                "b" => image.at(root_at(Root::Arg(n as u16), 0)) & !0xfe,
                _ => continue,
            };
            image.word(root_at(Root::Arg(n as u16), 0), word);
        }
        image.word(root_at(Root::Task, 0), base + OUTER as u64);
        image.word(root_at(Root::PerCpu(0), 0), base + NUMBERS as u64);
        image.word(root_at(Root::Context, 0), random.next() % 4);
        image
    }

    pub fn word(&mut self, at: usize, word: u64) {
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn at(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap())
    }
}

impl Machine for Image {
    fn root(&self, root: Root, slot: u32) -> u64 {
        self.at(root_at(root, slot))
    }

    /// As `copy_from_kernel_nofault` of x86-64 does (arch/x86/mm/maccess.c): -ERANGE where the kernel's memory cannot be.
    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), u16> {
        const ERANGE: u16 = 34;
        const EFAULT: u16 = 14;
        let inside = address
            .checked_sub(self.base)
            .and_then(|at| self.bytes.get(at as usize..(at as usize).checked_add(out.len())?));
        if let Some(bytes) = inside {
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let near = |to: u64| address.abs_diff(to) < 1 << 20;
        if near(FAR) {
            return Err(EFAULT);
        }
        // Of user memory this process may have anything, but not at its beginning.
        if address < 1 << 16 || near(BAD) || address >> 56 == 0x80 {
            return Err(ERANGE);
        }
        self.unknown.set(true);
        Err(EFAULT)
    }

    fn comm(&self) -> [u8; 16] {
        self.comm
    }
}
