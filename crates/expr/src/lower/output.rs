//! What an event shows, written into its record.

use super::text::{COMM, comm};
use super::{Compiler, Fail};
use crate::tree::{Expr, Output, Place, Text};
use asm::{Arg, Cmp, Func, Label, Operand, Reg, Size, Slot, Width};

/// Where an output lies in a record.
///
/// ```text
/// 0  u64   0, or why the value could not be had ([`crate::Failure`]); then what follows is not ours to read
/// 8        a number: 8 bytes, extended from its type
///          bytes: as many as they are
///          part of what is passed by value: the words that it lies in, from the one where it begins
///          a text: i32 its length as the kernel's helpers give it (terminator counted; negative: the error), then its bytes
///          a buffer (a negative length is `EINVAL`): u64 how many bytes were asked for, then what was read of them
///          a path: the pointer; whoever walks it has room elsewhere
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Offset in the record, a multiple of 8.
    pub offset: u32,
    /// Bytes, a multiple of 8.
    pub size: u32,
    /// Of a text, how many bytes are read at most, terminator included.
    pub text: u32,
    /// It is all of an array: however full the room is, the text does not go on.
    pub whole: bool,
}

/// What a negative length is.
pub(crate) const EINVAL: u16 = 22;

/// The last byte of a text in a key that was cut: no text ends so.
pub const CUT: u8 = 0xff;

/// Where the value begins.
pub const VALUE: u32 = 8;

/// Words of a part of what is passed by value: the first, and how many.
pub(crate) fn words_of(place: &Place, len: u32) -> (u32, u32) {
    let offset = place.offset.max(0) as u32;
    (offset / 8, (offset % 8 + len).div_ceil(8))
}

impl Room {
    /// The room of an output at `offset`. `text`: so much is read of texts that do not say how much, terminator included; `len` is the
    /// size of what is passed by value.
    pub fn of(output: &Output, offset: u32, text: u32, len: u32) -> Room {
        let text = match output {
            Output::Text(Text::Comm, _) => COMM,
            _ => text_room(output).unwrap_or(text),
        };
        let value = match output {
            Output::Scalar(..) | Output::Path(..) => 8,
            Output::Bytes { len, .. } => *len,
            Output::Buffer { most, .. } => 8 + most,
            Output::Value(place) => words_of(place, len).1 * 8,
            Output::Text(Text::Comm, _) => 4 + COMM,
            Output::Text(..) => 4 + text,
        };
        let whole = is_whole_array(output);
        Room { offset, size: VALUE + value.next_multiple_of(8), text, whole }
    }
}

impl Compiler<'_> {
    /// Writes an output into the record. `text` is what it was written as.
    pub fn output(&mut self, f: &mut Func<'_>, output: &Output, text: &str, record: Reg, room: Room) {
        self.text = text.into();
        let at = room.offset as i32;
        let value = at + VALUE as i32;
        self.block(f, |this, f, done| {
            let fail = Fail::Record { record, at, label: done };
            match output {
                Output::Scalar(e, _) | Output::Path(e, _) => {
                    let number = this.number(f, e, fail);
                    f.store(Size::DW, record, value, number);
                }
                Output::Bytes { pointer, len, .. } => {
                    let from = this.from(f, pointer, fail);
                    this.note(f, pointer.span);
                    this.probe(f, Arg::Offset(record, value), *len, from, 0, pointer.span, fail);
                }
                Output::Buffer { pointer, len, most, .. } => {
                    let bytes = this.number(f, len, fail);
                    let bytes = this.register(f, bytes);
                    let from = this.from(f, pointer, fail);
                    this.note(f, pointer.span);
                    // `-errno` of a call that failed, as often as not.
                    f.if_unlikely(Cmp::SLt, Width::W64, bytes, 0, |f| {
                        let invalid = f.imm(-i64::from(EINVAL));
                        fail.fault(f, len.span, invalid);
                    });
                    f.store(Size::DW, record, value, bytes);
                    let read = f.var();
                    f.assign(read, bytes);
                    f.if_(Cmp::Gt, Width::W64, read, i64::from(*most), |f| f.assign(read, i64::from(*most)));
                    this.probe_sized(
                        f,
                        Arg::Offset(record, value + 8),
                        Arg::Reg(read),
                        from,
                        0,
                        pointer.span,
                        fail,
                    );
                }
                Output::Value(place) => {
                    let (first, count) = words_of(place, (room.size - VALUE).min(u32::MAX - 8));
                    let count = count.min((room.size - VALUE) / 8);
                    if let crate::tree::Base::Value(root) = place.base {
                        for word in 0..count {
                            let part = this.source.word(f, root, first + word);
                            f.store(Size::DW, record, value + 8 * word as i32, part);
                        }
                    }
                }
                Output::Text(Text::Comm, _) => {
                    let name = comm(f);
                    f.store(Size::W, record, value, i64::from(COMM));
                    for word in [0, 8] {
                        let part = f.load_slot(Size::DW, name, word);
                        for (half, shift) in [(0, 0), (4, 32)] {
                            let half_word = f.alu(asm::Alu::Rsh, Width::W64, part, shift);
                            f.store(Size::W, record, value + 4 + word + half, half_word);
                        }
                    }
                }
                Output::Text(Text::Memory { pointer, .. }, _) => {
                    let from = this.from(f, pointer, fail);
                    this.note(f, pointer.span);
                    let length = this.read_text(f, Arg::Offset(record, value + 4), room.text, from);
                    f.if_unlikely(Cmp::SLt, Width::W64, length, 0, |f| fail.fault(f, pointer.span, length));
                    f.store(Size::W, record, value, length);
                }
            }
            f.store(Size::DW, record, at, 0);
        });
    }

    /// Writes a key of an aggregation into a slot: a number as 8 bytes, a text padded with zeros to `room`, a multiple of 8.
    /// Goes to the end of the block where it cannot be had.
    #[allow(clippy::too_many_arguments)]
    pub fn key(
        &mut self,
        f: &mut Func<'_>,
        key: &Output,
        text: &str,
        slot: Slot,
        at: u32,
        room: u32,
        label: Label,
    ) {
        self.text = text.into();
        let fail = Fail::Leave(label);
        match key {
            Output::Scalar(e, _) => {
                let number = self.number(f, e, fail);
                f.store_slot(Size::DW, slot, at as i32, number);
            }
            Output::Text(Text::Comm, _) => {
                let name = comm(f);
                for word in [0, 8] {
                    let part = f.load_slot(Size::DW, name, word);
                    f.store_slot(Size::DW, slot, at as i32 + word, part);
                }
            }
            Output::Text(Text::Memory { pointer, .. }, _) => {
                for word in (0..room).step_by(8) {
                    f.store_slot(Size::DW, slot, (at + word) as i32, 0);
                }
                let from = self.from(f, pointer, fail);
                self.note(f, pointer.span);
                let size = text_room(key).map_or(room, |size| room.min(size));
                let length = self.read_text(f, Arg::SlotAddr(slot, at as i32), size, from);
                f.if_unlikely(Cmp::SLe, Width::W64, length, 0, |f| fail.fault(f, pointer.span, length));
                // What goes on is marked behind what is shown of it, lest it pass for the whole.
                if !is_whole_array(key) {
                    let last = (at + size.saturating_sub(2)) as i32;
                    f.if_unlikely(Cmp::Ge, Width::W64, length, i64::from(size), |f| {
                        f.store_slot(Size::B, slot, last, i64::from(CUT));
                    });
                }
            }
            _ => f.leave(label),
        }
    }

    /// A pointer that is not NULL, as a number.
    pub fn address_or_leave(
        &mut self,
        f: &mut Func<'_>,
        pointer: &Expr,
        text: &str,
        label: Label,
    ) -> Operand {
        self.value_or_leave(f, pointer, text, label)
    }
}

/// Room for a text that says how long it is at most, terminator included: as many bytes as the array has that it lies in; or as many
/// as were asked for, and one more that tells whether it goes on.
pub fn text_room(output: &Output) -> Option<u32> {
    let Output::Text(Text::Memory { most: array, .. }, most) = output else { return None };
    if is_whole_array(output) {
        return array.map(|array| array.saturating_add(1));
    }
    most.map(|most| most.saturating_add(2))
}

/// Whether a text is all that lies in an array, so that it does not go on behind what is read of it.
pub(crate) fn is_whole_array(output: &Output) -> bool {
    match output {
        Output::Text(Text::Memory { most: Some(array), .. }, most) => most.is_none_or(|most| most >= *array),
        Output::Text(Text::Comm, _) => true,
        _ => false,
    }
}
