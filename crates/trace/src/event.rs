//! Events: a record's bytes seen through its probe's layout, nothing copied.

use crate::branches::{self, Snapshot};
use crate::context::Context;
use crate::expressions::{Shown, ShownKind, VALUE};
use crate::layout::{Argument, NOT_READ, StringField, header, stack};
use crate::notes::{Condition, Hop, NoteField, NoteKind};
use crate::path;
use crate::plan::Probe;
use crate::pointee::Format;
use crate::syscalls::TS_COMPAT;
use crate::walk::{PathField, PathText};
use btf::Shape;

/// One event. Lives as long as the record is lent.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// Whose event it is.
    pub probe: &'a Probe,
    index: usize,
    record: &'a [u8],
}

/// A text that an argument points to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text<'a> {
    /// Its bytes, without terminator; `cut`: there was more.
    Read {
        /// The bytes.
        bytes: &'a [u8],
        /// Whether the text goes on.
        cut: bool,
    },
    /// Reading failed with this (negative) error.
    Fault(i32),
    /// Not read: a buffer in user memory.
    NotRead,
}

/// One argument or return value with its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    /// What it is.
    pub field: &'a Argument,
    /// Its bytes: `field.size` of them.
    pub bytes: &'a [u8],
    record: &'a [u8],
}

/// What is shown of the object behind a pointer.
#[derive(Clone, Copy, Debug)]
pub enum Note<'a> {
    /// A text.
    Text(Text<'a>),
    /// A member's value.
    Value {
        /// How it reads by its type.
        shape: &'a Shape,
        /// How it reads where the type does not say.
        format: Format,
        /// Whether it is a pointer to code.
        function: bool,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A path.
    Path(PathText<'a>),
    /// The member could not be read: this (negative) error.
    Fault(i32),
}

/// What an expression came to.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// What it is.
    pub shown: &'a Shown,
    /// Its value, or why there is none.
    pub value: Result<OutputValue<'a>, expr::Failure>,
    record: &'a [u8],
}

/// The value of an expression.
#[derive(Clone, Copy, Debug)]
pub enum OutputValue<'a> {
    /// A number, a structure, an array, or a path's pointer: its bytes.
    Bytes(&'a [u8]),
    /// A text.
    Text(Text<'a>),
    /// Bytes; there may have been more than were read.
    Buffer {
        /// What was read.
        bytes: &'a [u8],
        /// How many were asked for.
        of: u64,
    },
}

impl<'a> Output<'a> {
    fn new(shown: &'a Shown, record: &'a [u8]) -> Output<'a> {
        let at = shown.room.offset;
        let value = match expr::Failure::of(u64_at(record, at)) {
            Some(failure) => Err(failure),
            None => Ok(output_value(shown, record, at + VALUE)),
        };
        Output { shown, value, record }
    }

    /// What is shown of the object that it points to, if it points to one.
    pub fn notes(&self) -> impl Iterator<Item = (&'static str, Note<'a>)> + use<'a> {
        let record = self.record;
        let object = match self.value {
            Ok(OutputValue::Bytes(bytes)) => is_object(bytes),
            _ => false,
        };
        let notes: &[NoteField] = if object { &self.shown.notes } else { &[] };
        notes.iter().filter_map(move |note| Some((note.label, note_of(record, note)?)))
    }
}

fn output_value<'a>(shown: &Shown, record: &'a [u8], at: u32) -> OutputValue<'a> {
    let read = |at, len| bytes(record, at, len).unwrap_or_default();
    match &shown.kind {
        ShownKind::Number { size, .. } => OutputValue::Bytes(read(at, *size)),
        ShownKind::Bytes { len, .. } => OutputValue::Bytes(read(at, *len)),
        ShownKind::Value { skip, len, .. } => OutputValue::Bytes(read(at + skip, *len)),
        ShownKind::Path => OutputValue::Bytes(read(at, 8)),
        ShownKind::Buffer { most, .. } => {
            let of = u64_at(record, at);
            OutputValue::Buffer { bytes: read(at + 8, of.min(u64::from(*most)) as u32), of }
        }
        ShownKind::Text { room, whole } => {
            // A room that can never be full, for what ends with its array.
            let size = room.saturating_add(u32::from(*whole));
            OutputValue::Text(text(record, StringField { offset: at, size, user_too: true }))
        }
    }
}

/// A kernel stack.
#[derive(Clone, Copy, Debug)]
pub enum Stack<'a> {
    /// Its addresses, innermost first: return addresses, our own program's among them.
    Frames(Frames<'a>),
    /// It could not be taken: this (negative) error.
    Fault(i32),
}

/// Hits of a function's blocks by one call, in their order.
#[derive(Clone, Copy, Debug)]
pub struct Hits<'a> {
    /// How many there were; 0 when they were not kept. At most [`path::HITS`] are there.
    pub total: u32,
    bytes: &'a [u8],
}

impl<'a> Hits<'a> {
    /// Offsets of the blocks from the function's address.
    pub fn offsets(&self) -> impl Iterator<Item = i32> + use<'a> {
        self.bytes.chunks_exact(4).filter_map(|word| Some(i32::from_ne_bytes(word.try_into().ok()?)))
    }
}

/// Addresses of a stack.
#[derive(Clone, Copy, Debug)]
pub struct Frames<'a> {
    bytes: &'a [u8],
    /// Where a traced BPF program was entered, and the address that it returns to.
    entered: Option<(u64, u64)>,
    /// What is to come before the next of the bytes.
    due: Option<u64>,
}

/// A program's first instructions are patched to call its trampoline: it goes on at most this far in (`endbr64`, the call).
const PATCHED: u64 = 16;

impl<'a> Frames<'a> {
    /// Frames as the kernel took them.
    ///
    /// Where a BPF program is entered it has no frame yet, and kernels that keep no frame pointers themselves cannot tell
    /// (`orc_fp_entry`, arch/x86/kernel/unwind_orc.c): they leave out the program's caller, if they do not end there. So it
    /// is put back from `words`, where the trampoline's own frame ends with the address in the program at which to go on,
    /// followed by the one that the program returns to. `address` is where the program begins. (Where the trampoline was
    /// jumped to, as 7.x does, there is no such place, and nothing to be put back.)
    fn new(bytes: &'a [u8], words: &[u8], address: Option<u64>) -> Frames<'a> {
        let plain = Frames { bytes, entered: None, due: None };
        let Some(address) = address else { return plain };
        let mut words = Frames { bytes: words, entered: None, due: None };
        let place = words.find(|word| (1..=PATCHED).contains(&word.wrapping_sub(address)));
        let entered = place.zip(words.next().filter(|caller| *caller != 0));
        Frames { entered, ..plain }
    }
}

impl Iterator for Frames<'_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if let Some(caller) = self.due.take() {
            let known = self.bytes.first_chunk().is_some_and(|next| u64::from_ne_bytes(*next) == caller);
            if !known {
                return Some(caller);
            }
        }
        let (first, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        let address = u64::from_ne_bytes(*first);
        if let Some((_, caller)) = self.entered.take_if(|(place, _)| *place == address) {
            self.due = Some(caller);
        }
        Some(address)
    }
}

fn bytes(record: &[u8], at: u32, len: u32) -> Option<&[u8]> {
    let at = at as usize;
    record.get(at..at.checked_add(len as usize)?)
}

fn u16_at(record: &[u8], at: u32) -> u16 {
    bytes(record, at, 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

fn u32_at(record: &[u8], at: u32) -> u32 {
    bytes(record, at, 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn u64_at(record: &[u8], at: u32) -> u64 {
    bytes(record, at, 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

impl<'a> Event<'a> {
    /// Decodes a record. `None` when it is no record of these probes: too short for its layout, or of a probe that
    /// there is not.
    pub fn new(probes: &'a [Probe], record: &'a [u8]) -> Option<Event<'a>> {
        let index = u32::from_ne_bytes(bytes(record, header::PROBE, 4)?.try_into().ok()?) as usize;
        let probe = probes.get(index)?;
        (record.len() >= probe.layout.size as usize).then_some(Event { probe, index, record })
    }

    /// The probe's index in the plan.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Kernel time in ns (CLOCK_MONOTONIC).
    pub fn time_ns(&self) -> u64 {
        u64_at(self.record, header::TIME)
    }

    /// CPU it happened on.
    pub fn cpu(&self) -> u32 {
        u16_at(self.record, header::CPU).into()
    }

    /// What was running: a task, or something that interrupted it. `None` where this kernel does not tell.
    pub fn context(&self) -> Option<Context> {
        self.probe.layout.context.then(|| Context::of(u16_at(self.record, header::CONTEXT)))
    }

    /// The kernel stack; `None` if none was asked for.
    pub fn stack(&self) -> Option<Stack<'a>> {
        let address = self.probe.target.program.as_ref().and_then(|function| function.address);
        let words = self.probe.layout.words;
        let words = words.and_then(|at| bytes(self.record, at, stack::WORDS * stack::FRAME));
        self.probe.layout.stack.map(|at| stack(self.record, at, words.unwrap_or_default(), address))
    }

    /// The blocks that the call went through; `None` if they were not asked for.
    pub fn hits(&self) -> Option<Hits<'a>> {
        let at = self.probe.layout.path?;
        let total = u32_at(self.record, at);
        let kept = total.min(path::HITS);
        Some(Hits { total, bytes: bytes(self.record, at + 8, kept * 4).unwrap_or_default() })
    }

    /// The CPU's branch records; `None` if none were asked for.
    pub fn branches(&self) -> Option<Snapshot<'a>> {
        let at = self.probe.layout.branches?;
        let room = bytes(self.record, at + 8, branches::ROOM).unwrap_or_default();
        Some(Snapshot::new(u64_at(self.record, at).cast_signed(), room))
    }

    /// Thread id.
    pub fn tid(&self) -> u32 {
        u32_at(self.record, header::TID)
    }

    /// Process (thread group) id.
    pub fn tgid(&self) -> u32 {
        u32_at(self.record, header::TGID)
    }

    /// Name of the thread, up to its terminator.
    pub fn comm(&self) -> &'a [u8] {
        until_nul(bytes(self.record, header::COMM, header::COMM_SIZE).unwrap_or_default())
    }

    /// At exits, ns since the entry; `None` when the entry was not seen, or for events that are no exits.
    pub fn duration_ns(&self) -> Option<u64> {
        let start = u64_at(self.record, self.probe.layout.entry_time?);
        (start != 0).then(|| self.time_ns().saturating_sub(start))
    }

    /// Where entries and exits are both taken, a number that the two of a call have in common. No two calls under way
    /// have the same; a later call may have it again.
    pub fn call(&self) -> Option<u64> {
        Some(u64_at(self.record, self.probe.layout.call?))
    }

    /// Which system call it is, at the tracepoints of all system calls: its number, and whether a 32-bit program made it.
    pub fn system_call(&self) -> Option<(u64, bool)> {
        let at = self.probe.layout.number?.offset;
        Some((u64_at(self.record, at), u32_at(self.record, at + 8) & TS_COMPAT != 0))
    }

    /// Arguments in order.
    pub fn args(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let record = self.record;
        self.probe.layout.args.iter().map(move |field| Value::new(field, record))
    }

    /// What expressions show.
    pub fn outputs(&self) -> impl Iterator<Item = Output<'a>> + use<'a> {
        let record = self.record;
        self.probe.layout.asked.shown.iter().map(move |shown| Output::new(shown, record))
    }

    /// Return value, if captured.
    pub fn retval(&self) -> Option<Value<'a>> {
        self.probe.layout.ret.as_ref().map(|field| Value::new(field, self.record))
    }
}

impl<'a> Value<'a> {
    fn new(field: &'a Argument, record: &'a [u8]) -> Value<'a> {
        Value { field, bytes: bytes(record, field.offset, field.size).unwrap_or_default(), record }
    }

    /// Whether it is, as a pointer, one to an object: neither NULL nor an error (`IS_ERR_OR_NULL`).
    pub fn is_object(&self) -> bool {
        is_object(self.bytes)
    }

    /// The text it points to, for pointers to characters.
    pub fn text(&self) -> Option<Text<'a>> {
        self.field.string.filter(|_| self.is_object()).map(|field| text(self.record, field))
    }

    /// What is shown of the object it points to, if it points to one.
    pub fn notes(&self) -> impl Iterator<Item = (&'static str, Note<'a>)> + use<'a> {
        let record = self.record;
        let notes: &[NoteField] =
            if !self.field.notes.is_empty() && self.is_object() { &self.field.notes } else { &[] };
        notes.iter().filter_map(move |note| Some((note.label, note_of(record, note)?)))
    }
}

fn is_object(bytes: &[u8]) -> bool {
    bytes.first_chunk().is_some_and(|word| (1..=u64::MAX - MAX_ERRNO).contains(&u64::from_ne_bytes(*word)))
}

/// The last 4095 addresses are error numbers (include/linux/err.h).
const MAX_ERRNO: u64 = 4095;

fn until_nul(text: &[u8]) -> &[u8] {
    text.iter().position(|b| *b == 0).and_then(|end| text.get(..end)).unwrap_or(text)
}

/// A cut text without the beginning of a character whose rest was cut off.
pub fn whole_characters(text: &[u8]) -> &[u8] {
    match std::str::from_utf8(text) {
        // No `error_len`: the text ends within a character; any other error is the text's own.
        Err(error) if error.error_len().is_none() => text.get(..error.valid_up_to()).unwrap_or(text),
        _ => text,
    }
}

fn text(record: &[u8], field: StringField) -> Text<'_> {
    let length = u32_at(record, field.offset) as i32;
    if length == NOT_READ {
        return Text::NotRead;
    }
    let Ok(length) = u32::try_from(length) else { return Text::Fault(length) };
    // The helpers answer with the room's size both when the text just fits and when it was cut. So the last character
    // of a full room is never shown, and the mark for "goes on" always tells the truth.
    let cut = length >= field.size;
    let shown = if cut { field.size.saturating_sub(2) } else { length.saturating_sub(1) };
    let text = until_nul(bytes(record, field.offset + 4, shown).unwrap_or_default());
    Text::Read { bytes: if cut { whole_characters(text) } else { text }, cut }
}

fn stack<'a>(record: &'a [u8], at: u32, words: &[u8], address: Option<u64>) -> Stack<'a> {
    let length = u64_at(record, at) as i64;
    let Ok(length) = u32::try_from(length) else { return Stack::Fault(length as i32) };
    // Only what the kernel says that it wrote: the room beyond is as some earlier record left it.
    Stack::Frames(Frames::new(bytes(record, at + 8, length).unwrap_or_default(), words, address))
}

/// `None`: a pointer on the way is NULL, or this object has no such member.
fn note_of<'a>(record: &'a [u8], note: &'a NoteField) -> Option<Note<'a>> {
    if note.when.is_some_and(|when| !holds(record, when)) {
        return None;
    }
    if u64_at(record, note.pointer) == 0 {
        return unread(record, &note.way).map(Note::Fault);
    }
    Some(match &note.kind {
        NoteKind::Text(field) => Note::Text(text(record, *field)),
        NoteKind::Value { status, offset, size, shape, function } => {
            let status = u32_at(record, *status) as i32;
            if status < 0 {
                return Some(Note::Fault(status));
            }
            let bytes = bytes(record, *offset, *size).unwrap_or_default();
            Note::Value { shape, format: note.format, function: *function, bytes }
        }
        NoteKind::Path(field) => {
            match PathText::new(bytes(record, field.offset, PathField::SIZE).unwrap_or_default()) {
                Ok(path) => Note::Path(path),
                Err(error) => Note::Fault(error),
            }
        }
    })
}

/// The error of the read that should have had a pointer, if it is none because of that. A read through NULL fails as well:
/// then the reason lies further back.
fn unread(record: &[u8], way: &[Hop]) -> Option<i32> {
    let hop = way.iter().find(|hop| u64_at(record, hop.from) != 0)?;
    let status = u32_at(record, hop.status) as i32;
    (status < 0).then_some(status)
}

fn holds(record: &[u8], when: Condition) -> bool {
    let value = match when.size {
        1 => bytes(record, when.at, 1).and_then(|b| b.first()).map_or(0, |b| u64::from(*b)),
        2 => u16_at(record, when.at).into(),
        4 => u32_at(record, when.at).into(),
        _ => u64_at(record, when.at),
    };
    when.values.contains(&value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(length: i64, words: &[u64]) -> Vec<u8> {
        let header = [u64::MAX, length as u64];
        header.iter().chain(words).flat_map(|w| w.to_ne_bytes()).collect()
    }

    fn frames(record: &[u8]) -> Vec<u64> {
        match stack(record, 8, &[], None) {
            Stack::Frames(frames) => frames.collect(),
            Stack::Fault(error) => panic!("error {error}"),
        }
    }

    #[test]
    fn a_stack_is_what_was_written_and_nothing_left_over() {
        assert_eq!(frames(&record(24, &[1, 2, 3, 0xdead, 0xbeef])), [1, 2, 3]);
        assert_eq!(frames(&record(0, &[0xdead])), []);
        let most: Vec<u64> = (1..=127).collect();
        assert_eq!(frames(&record(1016, &most)), most);
    }

    #[test]
    fn the_caller_of_a_traced_program_is_put_back() {
        let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        let (start, ours, trampoline, caller) = (1000, 1, 2, 5000);
        let place = start + 9;
        let words = bytes(&[1, 2, 0, 77, place, caller, 5, 0, 0, 0]);
        let shown = |frames: &[u64], words: &[u8]| {
            let frames = bytes(frames);
            Frames::new(&frames, words, Some(start)).collect::<Vec<u64>>()
        };
        assert_eq!(shown(&[ours, trampoline, place], &words), [ours, trampoline, place, caller]);
        assert_eq!(shown(&[ours, trampoline, place, 9], &words), [ours, trampoline, place, caller, 9]);
        // A kernel that tells it itself; one that jumps to the trampoline; words that could not be read, or end early.
        assert_eq!(shown(&[ours, trampoline, place, caller], &words), [ours, trampoline, place, caller]);
        let jumped = bytes(&[1, 2, 0, 77, caller, 6000, 5, 0, 0, 0]);
        assert_eq!(shown(&[ours, trampoline, caller], &jumped), [ours, trampoline, caller]);
        assert_eq!(shown(&[ours, trampoline, place], &[0; 80]), [ours, trampoline, place]);
        assert_eq!(shown(&[ours, trampoline, place], &bytes(&[place])), [ours, trampoline, place]);
        assert_eq!(shown(&[], &words), []);
        // The program's own start, and what is far inside, is no such place.
        assert_eq!(shown(&[start], &bytes(&[start, caller])), [start]);
        assert_eq!(shown(&[start + 40], &bytes(&[start + 40, caller])), [start + 40]);
    }

    #[test]
    fn a_pointer_that_could_not_be_read_is_told_from_one_that_is_null() {
        // An argument at 0; through it a pointer at 16 (status at 8); through that one at 32 (status at 24).
        let way = [Hop { status: 24, from: 16 }, Hop { status: 8, from: 0 }];
        let of = |words: [i64; 5]| {
            let record: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
            unread(&record, &way)
        };
        assert_eq!(of([1, 0, 2, 0, 0]), None, "NULL");
        assert_eq!(of([1, 0, 2, -14, 0]), Some(-14), "the second could not be read");
        assert_eq!(of([1, 0, 0, -14, 0]), None, "the first is NULL, and so nothing was read through it");
        assert_eq!(of([1, -14, 0, -14, 0]), Some(-14), "the first could not be read");
        assert_eq!(unread(&[], &way), None);
    }

    #[test]
    fn an_error_is_no_stack() {
        assert!(matches!(stack(&record(-14, &[1, 2, 3]), 8, &[], None), Stack::Fault(-14)));
    }

    #[test]
    fn a_length_beyond_the_record_gives_nothing() {
        assert_eq!(frames(&record(1016, &[1, 2, 3])), []);
        assert_eq!(frames(&[0; 8]), []);
    }
}
