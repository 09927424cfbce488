//! Branch records of the CPUs (LBR, BRS), kept going by perf events: hardware records branches only while an event that wants them is
//! on that CPU.

use crate::error::{Error, Result};
use crate::map::online_cpu_numbers;
use crate::perf_event::{self, PerfEvent};
use std::os::fd::OwnedFd;

/// Which branches are recorded; more than one kind is any of them. (`enum perf_branch_sample_type`)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BranchFilter(u64);

const KERNEL: u64 = 1 << 1;
const ANY: u64 = 1 << 3;
/// The kernel finds out what kind each branch is, where the hardware does not say.
const TYPE_SAVE: u64 = 1 << 16;

impl BranchFilter {
    /// Their names, and the bits that they stand for.
    const NAMES: [(&'static str, u64); 11] = [
        ("any", ANY),
        ("call", 1 << 4),
        ("ret", 1 << 5),
        ("ind_call", 1 << 6),
        ("abort_tx", 1 << 7),
        ("in_tx", 1 << 8),
        ("no_tx", 1 << 9),
        ("cond", 1 << 10),
        ("call_stack", 1 << 11),
        ("ind_jump", 1 << 12),
        ("direct_call", 1 << 13),
    ];

    /// Every branch.
    pub const ANY: BranchFilter = BranchFilter(ANY);

    /// The kind of that name: `any`, `call`, `ret`, `cond`, `ind_call`, `ind_jump`, `direct_call`, `call_stack`, `in_tx`, `no_tx`,
    /// `abort_tx`.
    pub fn named(name: &str) -> Option<BranchFilter> {
        BranchFilter::NAMES.iter().find(|(known, _)| *known == name).map(|(_, bits)| BranchFilter(*bits))
    }

    /// The names that there are.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BranchFilter::NAMES.iter().map(|(name, _)| *name)
    }

    /// Either of both.
    #[must_use]
    pub fn or(self, other: BranchFilter) -> BranchFilter {
        BranchFilter(self.0 | other.0)
    }
}

/// Recording on every CPU that is online; ends when it is dropped.
#[derive(Debug)]
pub struct BranchRecords {
    _events: Vec<OwnedFd>,
}

const PERF_TYPE_HARDWARE: u32 = 0;
const PERF_COUNT_HW_CPU_CYCLES: u64 = 0;
const PERF_TYPE_RAW: u32 = 4;
/// Retired taken branches, the one event that AMD's BRS records with (`AMD_FAM19H_BRS_EVENT`).
const BRS_EVENT: u64 = 0xc4;
const PERF_SAMPLE_BRANCH_STACK: u64 = 1 << 11;
/// `pinned`, the third bit of the flags: the event is always on its CPU, never taking turns with others.
const PINNED: u64 = 1 << 2;
/// As rare as interrupts can be made for hardware that has to count towards one: less than 32 bits, for BRS takes its depth off.
const RARELY: u64 = 0x7fff_ff00;

impl BranchRecords {
    /// Has every CPU that is online record the kernel's branches.
    ///
    /// The event counts cycles and never interrupts; AMD before 6.10 wants one that samples, and BRS an event of its own.
    ///
    /// # Errors
    /// ENOENT without a PMU for the CPU; EOPNOTSUPP where it records no branches, or not such; EACCES or EPERM without
    /// CAP_PERFMON; ENOSYS without perf events.
    pub fn start(filter: BranchFilter) -> Result<BranchRecords> {
        let bits = KERNEL | filter.0;
        let cycles = |branch_sample_type, sample_period| PerfEvent {
            ty: PERF_TYPE_HARDWARE,
            config: PERF_COUNT_HW_CPU_CYCLES,
            sample_period,
            sample_type: PERF_SAMPLE_BRANCH_STACK,
            flags: PINNED,
            branch_sample_type,
            ..Default::default()
        };
        let brs = || PerfEvent { ty: PERF_TYPE_RAW, config: BRS_EVENT, ..cycles(bits, RARELY) };
        let ways: [&dyn Fn() -> PerfEvent; 4] =
            [&|| cycles(bits | TYPE_SAVE, 0), &|| cycles(bits, 0), &|| cycles(bits, RARELY), &brs];
        let mut events = Vec::new();
        for cpu in online_cpu_numbers()? {
            events.push(open(&ways, cpu)?);
        }
        Ok(BranchRecords { _events: events })
    }
}

/// Opens the event in the first way that is not refused as such; the first refusal is the error.
fn open(ways: &[&dyn Fn() -> PerfEvent], cpu: u32) -> Result<OwnedFd> {
    let number = i32::try_from(cpu).map_err(|_| Error::Protocol(format!("CPU {cpu}")))?;
    let mut first = None;
    for way in ways {
        match perf_event::open(way(), -1, number, || format!("record branches on CPU {cpu}: perf_event_open"))
        {
            Ok(event) => return Ok(event),
            Err(error) => {
                let other_way_helps = matches!(error.errno(), Some(libc::EINVAL | libc::EOPNOTSUPP));
                first.get_or_insert(error);
                if !other_way_helps {
                    break;
                }
            }
        }
    }
    Err(first.unwrap_or_else(|| Error::Protocol("no way to record branches".into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_have_the_kernels_bits() {
        let bits = |name| BranchFilter::named(name).map(|filter| filter.0);
        // include/uapi/linux/perf_event.h
        assert_eq!(bits("any"), Some(1 << 3));
        assert_eq!(bits("call"), Some(1 << 4));
        assert_eq!(bits("ret"), Some(1 << 5));
        assert_eq!(bits("cond"), Some(1 << 10));
        assert_eq!(bits("call_stack"), Some(1 << 11));
        assert_eq!(bits("ind_jump"), Some(1 << 12));
        assert_eq!(bits("anything"), None);
        let both = BranchFilter::named("call").zip(BranchFilter::named("ret")).map(|(a, b)| a.or(b));
        assert_eq!(both, Some(BranchFilter(1 << 4 | 1 << 5)));
        assert_eq!(BranchFilter::names().count(), BranchFilter::NAMES.len());
    }

    #[test]
    fn the_event_has_the_kernels_size() {
        assert_eq!(size_of::<PerfEvent>(), 80);
    }
}
