//! Branch records: the last branches that the CPU took, as `bpf_get_branch_snapshot` hands them over. Pure: bytes in, records out.
//!
//! Each is a `struct perf_branch_entry` (include/uapi/linux/perf_event.h), 24 bytes: `from`, `to`, and a word of bit-fields. What the
//! kinds of hardware put there, by arch/x86/events/intel/lbr.c, amd/lbr.c and amd/brs.c:
//!
//! | | depth | mispredicted, predicted | cycles | speculation | ends with |
//! | --- | --- | --- | --- | --- | --- |
//! | Intel LBR | 4 to 32 | either bit | from Skylake on | – | zeros: the kernel always hands over the whole depth |
//! | Intel arch LBR | 8 to 32 | either bit, where the CPU has them | where valid, else 0 | – | zeros |
//! | AMD BRS (Zen 3) | 16 | neither bit | – | – | [`BRS_POISON`] |
//! | AMD LbrExtV2 (Zen 4) | 16 | either bit | – | 1 to 3 | only valid ones are handed over |

/// Most records of a snapshot: the deepest hardware there is (`MAX_LBR_ENTRIES`).
pub(crate) const MOST: u32 = 32;

/// Bytes of a record.
pub(crate) const RECORD: u32 = 24;

/// Room of a snapshot in bytes.
pub(crate) const ROOM: u32 = MOST * RECORD;

/// Length of a snapshot that is not to be had since another one was written where it lay (-EBUSY).
pub(crate) const OVERWRITTEN: i32 = -16;

/// What AMD's BRS has in entries that hold no branch (arch/x86/events/amd/brs.c); the address above is none either.
const BRS_POISON: u64 = u64::MAX - 1;

/// A branch that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Address of the branch instruction; of an interrupt, of the instruction that was to come next.
    pub from: u64,
    /// Where it went.
    pub to: u64,
    /// The bit-fields, lowest bit first: mispred, predicted, in_tx, abort, cycles:16, type:4, spec:2, new_type:4, priv:3.
    flags: u64,
}

impl Branch {
    /// Whether the CPU had expected otherwise; `None` where the hardware does not record it.
    pub fn mispredicted(&self) -> Option<bool> {
        match self.flags & 3 {
            0 => None,
            bits => Some(bits & 1 != 0),
        }
    }

    /// Whether it was taken inside a transaction (TSX).
    pub fn in_transaction(&self) -> bool {
        self.flags & 4 != 0
    }

    /// Whether it is the abort of one.
    pub fn is_abort(&self) -> bool {
        self.flags & 8 != 0
    }

    /// Core cycles since the record before; `None` where the hardware does not record them. At most 65535, as which longer ones
    /// show.
    pub fn cycles(&self) -> Option<u16> {
        let cycles = self.flags >> 4 & 0xffff;
        u16::try_from(cycles).ok().filter(|cycles| *cycles > 0)
    }

    /// What kind of branch it is (`PERF_BR_*`), where the kernel tells.
    pub fn kind(&self) -> Option<&'static str> {
        const KINDS: [&str; 16] = [
            "",
            "cond",
            "uncond",
            "ind",
            "call",
            "ind_call",
            "ret",
            "syscall",
            "sysret",
            "cond_call",
            "cond_ret",
            "eret",
            "irq",
            "serror",
            "no_tx",
            "",
        ];
        KINDS.get((self.flags >> 20 & 15) as usize).copied().filter(|kind| !kind.is_empty())
    }

    /// The CPU took it while it guessed, and the guess was wrong: what came of it was thrown away (AMD, `PERF_BR_SPEC_WRONG_PATH`).
    pub fn is_wrong_path(&self) -> bool {
        self.flags >> 24 & 3 == 1
    }

    /// An entry of the hardware that holds no branch: never written, or marked so.
    fn is_none(&self) -> bool {
        let no_address = |address: u64| address == 0 || address >= BRS_POISON;
        no_address(self.from) || no_address(self.to)
    }
}

/// A snapshot of the branch records, taken before anything else of a program ran.
#[derive(Clone, Copy, Debug)]
pub enum Snapshot<'a> {
    /// The records.
    Taken(Branches<'a>),
    /// There are none: this (negative) error. -ENOENT: the kernel has none to give; -EBUSY: another program's came in between.
    Fault(i32),
}

impl<'a> Snapshot<'a> {
    /// Reads what the helper returned and what it wrote.
    pub(crate) fn new(length: i64, room: &'a [u8]) -> Snapshot<'a> {
        // An error that the architecture's code returns has gone through the helper's multiplication, as an unsigned number of 32 bits:
        // it is told by its being larger than what there was room for.
        match usize::try_from(length) {
            Ok(length) if length <= ROOM as usize => {
                let records = room.get(..length).unwrap_or(room);
                // ENOENT, as the helper itself says when there is none.
                if records.is_empty() { Snapshot::Fault(-2) } else { Snapshot::Taken(Branches::new(records)) }
            }
            // EPROTO.
            Ok(_) => Snapshot::Fault(-71),
            Err(_) => Snapshot::Fault(i32::try_from(length).unwrap_or(-71)),
        }
    }
}

/// Records of branches, the newest first, as the hardware's are numbered.
#[derive(Clone, Copy, Debug)]
pub struct Branches<'a> {
    records: &'a [u8],
}

impl<'a> Branches<'a> {
    /// Reads records as the kernel hands them over; what is left of the bytes is no record.
    pub fn new(records: &'a [u8]) -> Branches<'a> {
        Branches { records }
    }
}

impl Iterator for Branches<'_> {
    type Item = Branch;

    fn next(&mut self) -> Option<Branch> {
        loop {
            let (record, rest) = self.records.split_first_chunk::<{ RECORD as usize }>()?;
            self.records = rest;
            let word = |at: usize| {
                let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u64::from_ne_bytes)
            };
            let branch = Branch { from: word(0), to: word(8), flags: word(16) };
            if !branch.is_none() {
                return Some(branch);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(records: &[[u64; 3]]) -> Vec<u8> {
        records.iter().flatten().flat_map(|word| word.to_ne_bytes()).collect()
    }

    fn taken(records: &[[u64; 3]]) -> Vec<Branch> {
        let bytes = bytes(records);
        match Snapshot::new(bytes.len() as i64, &bytes) {
            Snapshot::Taken(branches) => branches.collect(),
            Snapshot::Fault(error) => panic!("fault {error}"),
        }
    }

    const FROM: u64 = 0xffff_ffff_8100_0010;
    const TO: u64 = 0xffff_ffff_8100_0040;

    #[test]
    fn intel_lbr_with_and_without_flags() {
        // mispredicted, 12 cycles, a conditional branch; predicted, 300 cycles, a return; in a transaction and its abort.
        let all = taken(&[
            [FROM, TO, 1 | 12 << 4 | 1 << 20],
            [TO, FROM, 2 | 300 << 4 | 6 << 20],
            [TO, FROM, 2 | 4 | 8],
        ]);
        let told = |b: &Branch| (b.mispredicted(), b.cycles(), b.kind(), b.in_transaction(), b.is_abort());
        assert_eq!(told(&all[0]), (Some(true), Some(12), Some("cond"), false, false));
        assert_eq!(told(&all[1]), (Some(false), Some(300), Some("ret"), false, false));
        assert_eq!(told(&all[2]), (Some(false), None, None, true, true));
        // Before Skylake there are no cycles.
        assert_eq!(taken(&[[FROM, TO, 2]])[0].cycles(), None);
    }

    #[test]
    fn what_intel_hands_over_beyond_what_was_recorded_is_no_branch() {
        let all = taken(&[[FROM, TO, 2], [0, 0, 0], [0, 0, 0]]);
        assert_eq!(all, [Branch { from: FROM, to: TO, flags: 2 }]);
        assert_eq!(taken(&[[FROM, 0, 2], [0, TO, 2]]), []);
    }

    #[test]
    fn arch_lbr_without_misprediction() {
        let branch = taken(&[[FROM, TO, 7 << 4 | 5 << 20]])[0];
        assert_eq!(
            (branch.mispredicted(), branch.cycles(), branch.kind()),
            (None, Some(7), Some("ind_call"))
        );
        assert_eq!(taken(&[[FROM, TO, 0xffff << 4]])[0].cycles(), Some(65535));
    }

    #[test]
    fn amd_brs_records_addresses_alone() {
        let all = taken(&[[FROM, TO, 0], [FROM, BRS_POISON, 0], [u64::MAX, TO, 0]]);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].mispredicted(), all[0].cycles(), all[0].is_wrong_path()), (None, None, false));
    }

    #[test]
    fn amd_lbr_records_speculation_and_no_cycles() {
        let all = taken(&[[FROM, TO, 1 | 1 << 24], [FROM, TO, 2 | 2 << 24], [FROM, TO, 2 | 3 << 24]]);
        let wrong: Vec<bool> = all.iter().map(Branch::is_wrong_path).collect();
        assert_eq!(wrong, [true, false, false]);
        assert!(all.iter().all(|b| b.cycles().is_none() && b.mispredicted().is_some()));
    }

    #[test]
    fn lengths_that_are_none() {
        let room = bytes(&[[FROM, TO, 0]; 32]);
        let fault = |length: i64| match Snapshot::new(length, &room) {
            Snapshot::Fault(error) => error,
            Snapshot::Taken(branches) => panic!("{} records", branches.count()),
        };
        assert_eq!(fault(-2), -2);
        assert_eq!(fault(0), -2);
        assert_eq!(fault(OVERWRITTEN.into()), -16);
        // -EOPNOTSUPP times 24, cut to 32 bits.
        assert_eq!(fault(i64::from((-95i32 * 24).cast_unsigned())), -71);
        assert_eq!(fault(i64::MIN), -71);
        assert_eq!(fault(i64::MAX), -71);
        let count = |length: i64| match Snapshot::new(length, &room) {
            Snapshot::Taken(branches) => branches.count(),
            Snapshot::Fault(error) => panic!("fault {error}"),
        };
        assert_eq!((count(768), count(24), count(47), count(23)), (32, 1, 1, 0));
        // A record of the ring that is shorter than it says.
        assert!(matches!(Snapshot::new(768, &room[..30]), Snapshot::Taken(b) if b.count() == 1));
    }
}
