//! Reading a BPF ring buffer (kernel/bpf/ringbuf.c) where it lies.
//!
//! The kernel maps the data pages twice in a row so that a record never looks torn. We map them once: mapped pages
//! count against this process's memory, and a record crosses the end only once a round. Such a record is put
//! together in a scratch buffer; every other one is lent to the caller in place.

use crate::error::{Error, Result};
use crate::map::Map;
use crate::sys::page_size;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The kernel is still writing the record (`BPF_RINGBUF_BUSY_BIT`).
const BUSY: u32 = 1 << 31;
/// The record was given up and holds nothing (`BPF_RINGBUF_DISCARD_BIT`).
const DISCARD: u32 = 1 << 30;
/// Bytes before a record: length and flags, page offset (`BPF_RINGBUF_HDR_SZ`).
const HEADER: u64 = 8;

/// A mapping of part of the map's memory.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(map: &Map, offset: usize, len: usize, prot: i32) -> Result<Mapping> {
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs no memory of ours; `map` is an open
        // descriptor.
        let base = unsafe {
            libc::mmap(ptr::null_mut(), len, prot, libc::MAP_SHARED, map.as_fd().as_raw_fd(), offset as i64)
        };
        if base == libc::MAP_FAILED {
            return Err(Error::last(format!("map {len} bytes of the ring buffer")));
        }
        match NonNull::new(base.cast()) {
            Some(base) => Ok(Mapping { base, len }),
            None => Err(Error::Protocol("ring buffer mapped at address 0".into())),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours, made in `new`, and nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// What one pass over the ring did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Records handed over.
    pub records: usize,
    /// The caller asked to stop before the ring was empty.
    pub stopped: bool,
}

/// The reading end of a ring buffer map. There is one reader.
#[derive(Debug)]
pub struct RingBuf {
    map: Map,
    consumer: Mapping,
    producer: Mapping,
    page: usize,
    mask: u64,
    scratch: Vec<u8>,
    /// How far was read; the kernel may not have been told yet.
    read: u64,
    /// How far the kernel was told.
    freed: u64,
    /// The producer's position when last looked at.
    end: u64,
    /// Bytes of the record that was peeked at, header and padding included; 0 for none.
    step: u64,
}

/// What lies at a position of the ring.
enum Found {
    /// A record that the kernel is still writing.
    Busy,
    /// A record of `len` bytes that takes `step`; one that was given up holds nothing.
    Record { len: u64, step: u64, discarded: bool },
}

impl AsFd for RingBuf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }
}

impl RingBuf {
    /// Maps the ring of `map`, a [`crate::MapType::RingBuf`].
    pub fn new(map: Map) -> Result<RingBuf> {
        let page = page_size()?;
        let size = map.max_entries() as usize;
        if !size.is_power_of_two() || !size.is_multiple_of(page) {
            return Err(Error::Protocol(format!("ring buffer of {size} bytes: not a power of two of pages")));
        }
        let consumer = Mapping::new(&map, 0, page, libc::PROT_READ | libc::PROT_WRITE)?;
        let producer = Mapping::new(&map, page, page + size, libc::PROT_READ)?;
        let mask = size as u64 - 1;
        let scratch = Vec::new();
        let mut ring =
            RingBuf { map, consumer, producer, page, mask, scratch, read: 0, freed: 0, end: 0, step: 0 };
        ring.read = ring.consumer_pos().load(Ordering::Relaxed);
        (ring.freed, ring.end) = (ring.read, ring.read);
        Ok(ring)
    }

    /// The map, for programs to refer to.
    pub fn map(&self) -> &Map {
        &self.map
    }

    fn consumer_pos(&self) -> &AtomicU64 {
        // SAFETY: the first word of the mapped consumer page, aligned, shared with the kernel, which only reads it.
        unsafe { &*self.consumer.base.as_ptr().cast::<AtomicU64>() }
    }

    fn producer_pos(&self) -> &AtomicU64 {
        // SAFETY: the first word of the mapped producer page, aligned; the kernel alone writes it.
        unsafe { &*self.producer.base.as_ptr().cast::<AtomicU64>() }
    }

    /// Bytes between what was written and what was read.
    pub fn pending(&self) -> u64 {
        self.producer_pos().load(Ordering::Acquire).wrapping_sub(self.consumer_pos().load(Ordering::Relaxed))
    }

    /// What lies at `pos`, which is below `end`, a position of the producer's.
    #[inline]
    fn look(&self, pos: u64, end: u64) -> Result<Found> {
        // Records start at multiples of 8, so a header never crosses the end of the ring.
        let at = pos & self.mask;
        // SAFETY: the data pages follow the producer page in the same mapping; `at` < size and a multiple of 8, so the
        // word lies in the mapping and is aligned; the kernel writes it, hence the atomic.
        let header =
            unsafe { &*self.producer.base.as_ptr().add(self.page).add(at as usize).cast::<AtomicU32>() }
                .load(Ordering::Acquire);
        if header & BUSY != 0 {
            return Ok(Found::Busy);
        }
        let len = u64::from(header & !(BUSY | DISCARD));
        let step = (len + HEADER).next_multiple_of(8);
        if step > end.wrapping_sub(pos) {
            return Err(Error::Protocol(format!(
                "ring buffer: record of {len} bytes at {pos} passes the producer's position {end}"
            )));
        }
        Ok(Found::Record { len, step, discarded: header & DISCARD != 0 })
    }

    /// The bytes of the record that [`RingBuf::look`] found at `pos`, which the kernel has not been told to be read.
    #[inline]
    fn lend(&mut self, pos: u64, len: u64) -> &[u8] {
        let size = self.mask + 1;
        let start = (pos + HEADER) & self.mask;
        let first = len.min(size - start) as usize;
        // SAFETY: the data pages follow the producer page in the same mapping.
        let data = unsafe { self.producer.base.as_ptr().add(self.page) };
        // SAFETY: `start + first` <= size, inside the mapping; the kernel has finished this record (not BUSY, acquired
        // by `look`) and does not touch it before the consumer position passes it, which takes `&mut self`, after the
        // borrow ended.
        let head = unsafe { std::slice::from_raw_parts(data.add(start as usize), first) };
        if first as u64 == len {
            return head;
        }
        // SAFETY: the rest lies at the start of the ring; `len - first` < size since the record is no larger than the
        // ring (checked against the producer's position by `look`).
        let tail = unsafe { std::slice::from_raw_parts(data, len as usize - first) };
        self.scratch.clear();
        self.scratch.extend_from_slice(head);
        self.scratch.extend_from_slice(tail);
        &self.scratch
    }

    /// Goes past a record. Space is given back in sixteenths, so that a busy kernel is not starved by a long pass.
    #[inline]
    fn pass(&mut self, step: u64) {
        self.read = self.read.wrapping_add(step);
        if self.read.wrapping_sub(self.freed) >= (self.mask + 1) / 16 {
            self.release();
        }
    }

    /// Tells the kernel how far was read: after the last [`RingBuf::skip`] of a pass.
    pub fn release(&mut self) {
        self.consumer_pos().store(self.read, Ordering::Release);
        self.freed = self.read;
    }

    /// The oldest record, where it lies; `None` when there is none, or the kernel is still writing it. It stays until
    /// [`RingBuf::skip`].
    pub fn peek(&mut self) -> Result<Option<&[u8]>> {
        loop {
            if self.read == self.end {
                self.end = self.producer_pos().load(Ordering::Acquire);
                if self.read == self.end {
                    return Ok(None);
                }
            }
            match self.look(self.read, self.end)? {
                Found::Busy => return Ok(None),
                Found::Record { step, discarded: true, .. } => self.pass(step),
                Found::Record { len, step, .. } => {
                    self.step = step;
                    return Ok(Some(self.lend(self.read, len)));
                }
            }
        }
    }

    /// Goes past the record that [`RingBuf::peek`] gave, once.
    pub fn skip(&mut self) {
        let step = std::mem::take(&mut self.step);
        self.pass(step);
    }

    /// Hands over every complete record in order, until the ring is empty, the kernel is busy with the next one,
    /// or `each` breaks (the record it broke on counts as read).
    pub fn drain(&mut self, mut each: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<Drained> {
        let mut done = Drained::default();
        self.step = 0;
        'refill: loop {
            self.end = self.producer_pos().load(Ordering::Acquire);
            if self.read == self.end {
                break;
            }
            while self.read != self.end {
                let Found::Record { len, step, discarded } = self.look(self.read, self.end)? else {
                    break 'refill;
                };
                if !discarded {
                    let flow = each(self.lend(self.read, len));
                    done.records += 1;
                    if flow.is_break() {
                        done.stopped = true;
                        self.pass(step);
                        break 'refill;
                    }
                }
                self.pass(step);
            }
        }
        self.release();
        Ok(done)
    }
}
