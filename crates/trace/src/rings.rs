//! The ring buffers of a trace: one for all CPUs, or, where they are many, one for each, merged by time.
//!
//! A ring is reserved from under a lock, which many CPUs would wait for. Records stay where they are until they are handed
//! over: the merge copies nothing and holds nothing, so that it needs no memory, whatever comes.
//!
//! How it is ordered: a program reads the time first and reserves its record a moment later, so that a ring that is empty now may
//! still get a record of the recent past. Therefore only what is older than [`SETTLED`] is handed over, oldest first. A record
//! that took longer from its time to its end (a virtual CPU that was not running) comes late, and is waited for by nobody.
//! Within a ring records stay in their order, which interrupts can make differ from that of their times.

use crate::error::Error;
use crate::layout::header;
use bpf::{Drained, Map, MapType, RingBuf};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// Up to so many CPUs share one ring: there its lock costs less than finding one's own ring.
const SHARE: usize = 4;

/// Most rings; beyond, CPUs share them by the lower bits of their numbers.
const MOST: usize = 64;

/// Smallest ring worth having, in bytes.
const SMALLEST: u32 = 64 << 10;

/// How old an event must be before it is handed over, ns: then all that happened before it lies in some ring. As long as the
/// reader rests anyway.
const SETTLED: u64 = 2_000_000;

/// `percpu`: a ring for each CPU, however few there are. For tests.
const FORCE: &str = "BTRACE_RINGS";

/// How many rings this machine is to have, a power of two; 1: a single one for all CPUs.
pub fn wanted() -> u32 {
    let forced = match std::env::var_os(FORCE) {
        None => false,
        Some(word) if word == "percpu" => true,
        Some(word) => {
            log::warn!("{FORCE}={}: not percpu, which is all it can be; ignored", word.display());
            false
        }
    };
    match bpf::online_cpus() {
        Ok((cpus, numbers)) => count(cpus, numbers, forced),
        Err(error) => {
            log::warn!("one ring buffer for all CPUs, since they cannot be counted: {error}");
            1
        }
    }
}

fn count(cpus: usize, numbers: usize, forced: bool) -> u32 {
    if cpus <= SHARE && !forced {
        return 1;
    }
    numbers.clamp(2, MOST).next_power_of_two() as u32
}

/// The reading end of all rings.
#[derive(Debug)]
pub enum Rings {
    /// One for all CPUs.
    Shared(RingBuf),
    /// One for each CPU.
    PerCpu(PerCpu),
}

/// Rings by the lower bits of the CPU's number, in an array of maps.
#[derive(Debug)]
pub struct PerCpu {
    outer: Map,
    rings: Vec<RingBuf>,
    /// The time of each ring's next record.
    heads: Vec<u64>,
    /// How far the kernel's clock is ahead of ours, ns: not 0 in a time namespace that sets it back.
    ahead: u64,
}

impl Rings {
    /// Makes `count` rings of together `size` bytes (a power of two), each at least [`SMALLEST`]; smaller ones when there is no
    /// memory for them, and that is said. A single ring may be asked for as small as a page.
    pub fn create(count: u32, size: u32) -> Result<Rings, Error> {
        let wanted = if count == 1 { size } else { (size / count).max(SMALLEST) };
        let mut each = wanted;
        loop {
            match Rings::create_each(count, each) {
                Err(error) if error.is_out_of_memory() && each > SMALLEST => each /= 2,
                Err(error) => return Err(permission(error)),
                Ok(rings) => {
                    if each < wanted {
                        let (wanted, got) =
                            (u64::from(wanted) * u64::from(count), u64::from(each) * u64::from(count));
                        log::warn!("no memory for a ring buffer of {wanted} bytes; it has {got}");
                    }
                    return Ok(rings);
                }
            }
        }
    }

    fn create_each(count: u32, each: u32) -> bpf::Result<Rings> {
        let ring = || RingBuf::new(Map::create(MapType::RingBuf, "events", 0, 0, each)?);
        if count == 1 {
            return ring().map(Rings::Shared);
        }
        let rings = (0..count).map(|_| ring()).collect::<bpf::Result<Vec<_>>>()?;
        let outer = Map::create_of_maps("rings", rings.iter().map(RingBuf::map))?;
        log::debug!("{count} ring buffers of {each} bytes each");
        Ok(Rings::PerCpu(PerCpu { outer, heads: Vec::with_capacity(rings.len()), rings, ahead: 0 }))
    }

    /// What programs name: the ring, or the array of rings.
    pub fn map_fd(&self) -> RawFd {
        match self {
            Rings::Shared(ring) => ring.map().as_fd().as_raw_fd(),
            Rings::PerCpu(many) => many.outer.as_fd().as_raw_fd(),
        }
    }

    /// Descriptors of which one is readable when something has come.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.all().iter().map(AsFd::as_fd)
    }

    /// Hands over what is there, oldest first, until nothing is left that may be or `each` breaks.
    pub fn drain(&mut self, each: impl FnMut(&[u8]) -> ControlFlow<()>) -> bpf::Result<Drained> {
        match self {
            Rings::Shared(ring) => ring.drain(each),
            Rings::PerCpu(many) => many.drain(each),
        }
    }

    /// Throws away what is there; says how many records that was.
    pub fn discard(&mut self) -> bpf::Result<usize> {
        let rings = match self {
            Rings::Shared(ring) => std::slice::from_mut(ring),
            Rings::PerCpu(many) => &mut many.rings,
        };
        let mut records = 0;
        for ring in rings {
            records += ring.drain(|_| ControlFlow::Continue(()))?.records;
        }
        Ok(records)
    }

    /// Whether there is nothing, not even what may not be handed over yet.
    pub fn is_drained(&self) -> bool {
        self.all().iter().all(|ring| ring.pending() == 0)
    }

    /// Whether there is something that waits for its time, so that waiting for more to come would be wrong.
    pub fn hold_back(&self) -> bool {
        matches!(self, Rings::PerCpu(_)) && !self.is_drained()
    }

    fn all(&self) -> &[RingBuf] {
        match self {
            Rings::Shared(ring) => std::slice::from_ref(ring),
            Rings::PerCpu(many) => &many.rings,
        }
    }
}

impl PerCpu {
    fn drain(&mut self, each: impl FnMut(&[u8]) -> ControlFlow<()>) -> bpf::Result<Drained> {
        // Before the rings are looked at: what comes into one that was found empty is younger than this, but for SETTLED.
        let now = bpf::monotonic_ns()?;
        look(&mut self.rings, &mut self.heads)?;
        let newest = self.heads.iter().copied().filter(|head| *head != NONE).max().unwrap_or(0);
        if newest > now.saturating_add(self.ahead) {
            // It came meanwhile, if it is not the clock.
            let now = bpf::monotonic_ns()?;
            self.ahead = self.ahead.max(newest.saturating_sub(now));
        }
        let until = now.saturating_add(self.ahead).saturating_sub(SETTLED);
        merge(&mut self.rings, &mut self.heads, until, each)
    }
}

/// Refusals of the very first map are a matter of permission.
fn permission(error: bpf::Error) -> Error {
    if error.is_permission() { Error::Permission(error) } else { Error::Sys(error) }
}

/// What is merged: records in the order of one CPU.
trait Source {
    /// The oldest record, if it is there and complete.
    fn peek(&mut self) -> bpf::Result<Option<&[u8]>>;
    /// Goes past it.
    fn skip(&mut self);
    /// Gives the room of what was passed back.
    fn release(&mut self);
}

impl Source for RingBuf {
    fn peek(&mut self) -> bpf::Result<Option<&[u8]>> {
        RingBuf::peek(self)
    }
    fn skip(&mut self) {
        RingBuf::skip(self);
    }
    fn release(&mut self) {
        RingBuf::release(self);
    }
}

/// The time of a source that has no record: after all others.
const NONE: u64 = u64::MAX;

/// A record's time. One that is too short to have any is none of ours, and to be seen at once.
fn time(record: &[u8]) -> u64 {
    let bytes = record.get(header::TIME as usize..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes)).min(NONE - 1)
}

/// Notes the time of each source's next record.
fn look(sources: &mut [impl Source], heads: &mut Vec<u64>) -> bpf::Result<()> {
    heads.clear();
    for source in sources {
        heads.push(source.peek()?.map_or(NONE, time));
    }
    Ok(())
}

/// The place of the oldest head, its time, and the time of the oldest of the others.
fn oldest(heads: &[u64]) -> (usize, u64, u64) {
    let mut found = (0, NONE, NONE);
    for (place, head) in heads.iter().copied().enumerate() {
        if head < found.1 {
            found = (place, head, found.1);
        } else {
            found.2 = found.2.min(head);
        }
    }
    found
}

/// Hands over what is not younger than `until`, the oldest first. `heads` is what [`look`] found: a source that had nothing then
/// is not asked again.
fn merge(
    sources: &mut [impl Source],
    heads: &mut [u64],
    until: u64,
    mut each: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> bpf::Result<Drained> {
    let mut done = Drained::default();
    let until = until.min(NONE - 1);
    let merged = loop {
        let (place, head, next) = oldest(heads);
        let (Some(source), Some(at)) = (sources.get_mut(place), heads.get_mut(place)) else { break Ok(()) };
        if head > until {
            break Ok(());
        }
        // Events come in bursts: this source goes on as long as no other is older.
        match run(source, next.min(until), &mut done, &mut each) {
            Ok(head) => *at = head,
            Err(error) => break Err(error),
        }
        if done.stopped {
            break Ok(());
        }
    };
    for source in sources {
        source.release();
    }
    merged.map(|()| done)
}

/// Hands over a source's records up to that time; gives the time of the one after.
fn run(
    source: &mut impl Source,
    until: u64,
    done: &mut Drained,
    each: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
) -> bpf::Result<u64> {
    loop {
        let Some(record) = source.peek()? else { return Ok(NONE) };
        let time = time(record);
        if time > until {
            return Ok(time);
        }
        done.stopped = each(record).is_break();
        done.records += 1;
        source.skip();
        if done.stopped {
            return Ok(time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A ring of records, 16 bytes each: a time, then a number of its own. `None`: being written.
    #[derive(Default)]
    struct Queue {
        records: VecDeque<Option<[u8; 16]>>,
        skipped: usize,
        released: usize,
    }

    impl Queue {
        fn push(&mut self, time: u64, number: u64) {
            let mut record = [0; 16];
            record[..8].copy_from_slice(&time.to_ne_bytes());
            record[8..].copy_from_slice(&number.to_ne_bytes());
            self.records.push_back(Some(record));
        }
    }

    impl Source for Queue {
        fn peek(&mut self) -> bpf::Result<Option<&[u8]>> {
            Ok(self.records.front().and_then(|record| record.as_ref()).map(|record| &record[..]))
        }
        fn skip(&mut self) {
            self.records.pop_front();
            self.skipped += 1;
        }
        fn release(&mut self) {
            self.released = self.skipped;
        }
    }

    /// One pass; a break after `most`. Times and numbers as they came.
    fn pass(queues: &mut [Queue], until: u64, most: usize) -> (Drained, Vec<(u64, u64)>) {
        let (mut heads, mut got) = (Vec::new(), Vec::new());
        look(queues, &mut heads).expect("look");
        let done = merge(queues, &mut heads, until, |record| {
            let number = u64::from_ne_bytes(record[8..].try_into().expect("16 bytes"));
            got.push((time(record), number));
            if got.len() >= most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert!(queues.iter().all(|q| q.released == q.skipped), "room is given back");
        (done.expect("merge"), got)
    }

    /// xorshift, seeded: a failure names its seed.
    fn random(state: &mut u64, below: u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % below
    }

    #[test]
    fn any_interleaving_comes_out_in_order_nothing_lost_nothing_doubled() {
        for seed in 1..=500u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let rings = 1 + random(&mut state, 9) as usize;
            let mut queues: Vec<Queue> = (0..rings).map(|_| Queue::default()).collect();
            // The clock goes on; each event is of a time up to LATE ago when it comes into its ring, and no ring goes back.
            const LATE: u64 = 20;
            let (mut clock, mut sent, mut last) = (LATE, 0u64, vec![0u64; rings]);
            let mut got: Vec<(u64, u64)> = Vec::new();
            for _ in 0..random(&mut state, 400) {
                clock += random(&mut state, 8);
                let ring = random(&mut state, rings as u64) as usize;
                let time = (clock - random(&mut state, LATE)).max(last[ring]);
                last[ring] = time;
                queues[ring].push(time, sent);
                sent += 1;
                if random(&mut state, 5) == 0 {
                    let most = 1 + random(&mut state, 12) as usize;
                    got.extend(pass(&mut queues, clock - LATE, most).1);
                }
            }
            while let (Drained { records: 1.., .. }, more) = pass(&mut queues, NONE, 7) {
                got.extend(more);
            }
            assert!(got.iter().map(|(time, _)| time).is_sorted(), "seed {seed}: {got:?}");
            let mut numbers: Vec<u64> = got.iter().map(|(_, number)| *number).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..sent), "seed {seed}");
        }
    }

    #[test]
    fn what_is_too_young_waits() {
        let mut queues = [Queue::default(), Queue::default()];
        queues[0].push(10, 0);
        queues[0].push(30, 2);
        let (done, got) = pass(&mut queues, 20, usize::MAX);
        assert_eq!((done.records, got), (1, vec![(10, 0)]));
        // Something older comes, in time.
        queues[1].push(25, 1);
        assert_eq!(pass(&mut queues, 40, usize::MAX).1, [(25, 1), (30, 2)]);
    }

    #[test]
    fn a_record_that_is_never_finished_starves_no_other_ring() {
        let mut queues = [Queue::default(), Queue::default()];
        queues[0].records.push_back(None);
        queues[0].push(5, 9);
        queues[1].push(10, 0);
        queues[1].push(20, 1);
        assert_eq!(pass(&mut queues, 100, usize::MAX).1, [(10, 0), (20, 1)]);
        assert_eq!(queues[0].records.len(), 2, "what is being written stays");
        // Once it is, it comes, late as it is.
        queues[0].records[0] = Some([0; 16]);
        assert_eq!(pass(&mut queues, 100, usize::MAX).1, [(0, 0), (5, 9)]);
    }

    #[test]
    fn a_break_counts_the_record_it_broke_on() {
        let mut queues = [Queue::default(), Queue::default()];
        (0..6).for_each(|n| queues[n as usize % 2].push(n, n));
        let (done, got) = pass(&mut queues, 100, 2);
        assert_eq!((done, got.len()), (Drained { records: 2, stopped: true }, 2));
        assert_eq!(pass(&mut queues, 100, usize::MAX).1.len(), 4);
    }

    #[test]
    fn rings_for_machines() {
        assert_eq!([1, 2, 4].map(|n| count(n, n, false)), [1, 1, 1]);
        assert_eq!(count(4, 64, false), 1, "numbers with gaps");
        assert_eq!([5, 8, 9, 48, 64, 512].map(|n| count(n, n, false)), [8, 8, 16, 64, 64, 64]);
        assert_eq!([1, 2, 3].map(|n| count(n, n, true)), [2, 2, 4]);
    }
}
