//! Texts and bytes, and what they are compared with.

use super::memory::From;
use super::{Compiler, Fail};
use crate::error::Span;
use crate::tree::{Expr, Text};
use asm::{Arg, Cmp, Func, Helper, Operand, Reg, Size, Slot, Width};

/// `TASK_COMM_LEN`
pub(super) const COMM: u32 = 16;

impl Compiler<'_> {
    /// Goes on where the text is one of these (`negated`: none), else to `no`.
    pub(super) fn text_is(
        &mut self,
        f: &mut Func<'_>,
        text: &Text,
        any_of: &[Vec<u8>],
        negated: bool,
        no: Fail,
    ) {
        match text {
            Text::Comm => self.one_of(f, any_of, negated, no, |_, f| {
                let slot = comm(f);
                // Padded with zeros to its end, so that all of it can be compared.
                (slot, None, COMM)
            }),
            Text::Memory { pointer, most } => {
                // One more than the longest, so that a longer text is told from it, and the terminator.
                let longest = any_of.iter().map(Vec::len).max().unwrap_or(0) as u32;
                let size = (longest + 2).min(most.map_or(u32::MAX, |most| most.saturating_add(1)));
                let from = self.from(f, pointer, no);
                self.note(f, pointer.span);
                self.one_of(f, any_of, negated, no, |this, f| {
                    let slot = f.slot(size.next_multiple_of(8), 8);
                    let length = this.read_text(f, Arg::SlotAddr(slot, 0), size, from);
                    f.if_(Cmp::SLe, Width::W64, length, 0, |f| no.leave(f, Span::default()));
                    (slot, Some(length), size)
                });
            }
        }
    }

    /// Compares what `read` leaves in a slot, with its length (terminator counted), of which so many bytes at most.
    fn one_of(
        &mut self,
        f: &mut Func<'_>,
        any_of: &[Vec<u8>],
        negated: bool,
        no: Fail,
        read: impl FnOnce(&mut Self, &mut Func<'_>) -> (Slot, Option<Reg>, u32),
    ) {
        self.block(f, |this, f, found| {
            let (slot, length, room) = read(this, f);
            for literal in any_of {
                let whole = match length {
                    Some(_) => literal.len() + 1,
                    None => room as usize,
                };
                if literal.len() >= room as usize {
                    continue;
                }
                let mut bytes = literal.clone();
                bytes.resize(whole, 0);
                f.labelled(|f, next| {
                    if let Some(length) = length {
                        f.if_(Cmp::Ne, Width::W64, length, whole as i64, |f| f.leave(next));
                    }
                    unless_equal(f, slot, &bytes, |f| f.leave(next));
                    if negated {
                        no.leave(f, Span::default());
                    } else {
                        f.leave(found);
                    }
                });
            }
            if !negated {
                no.leave(f, Span::default());
            }
        });
    }

    /// Goes on where the bytes are these (`negated`: are not), else to `no`.
    pub(super) fn bytes_are(
        &mut self,
        f: &mut Func<'_>,
        pointer: &Expr,
        wanted: &[u8],
        negated: bool,
        no: Fail,
    ) {
        let from = self.from(f, pointer, no);
        self.note(f, pointer.span);
        self.block(f, |this, f, differ| {
            let slot = f.slot((wanted.len() as u32).next_multiple_of(8), 8);
            this.probe(f, Arg::SlotAddr(slot, 0), wanted.len() as u32, from, 0, pointer.span, no);
            if negated {
                unless_equal(f, slot, wanted, |f| f.leave(differ));
                no.leave(f, Span::default());
            } else {
                unless_equal(f, slot, wanted, |f| no.leave(f, Span::default()));
            }
        });
    }

    /// Reads a text of at most `size` bytes, terminator counted; gives its length, or a negative error.
    pub(super) fn read_text(&self, f: &mut Func<'_>, to: Arg, size: u32, from: From) -> Reg {
        let args = [to, Arg::Imm(size.into()), Arg::Offset(from.base, from.offset)];
        if !from.user {
            return f.call(Helper::PROBE_READ_KERNEL_STR, &args);
        }
        let length = f.var();
        let read = |helper| {
            move |f: &mut Func<'_>| {
                let got = f.call(helper, &args);
                f.assign(length, got);
            }
        };
        let (kernel, user) = (read(Helper::PROBE_READ_KERNEL_STR), read(Helper::PROBE_READ_USER_STR));
        f.if_else(Cmp::SLt, Width::W64, from.base, 0, kernel, user);
        length
    }
}

/// The current thread's name, zeros behind it: the helper does not always write them.
pub(super) fn comm(f: &mut Func<'_>) -> Slot {
    let slot = f.slot(COMM, 8);
    f.store_slot(Size::DW, slot, 0, 0);
    f.store_slot(Size::DW, slot, 8, 0);
    f.call(Helper::GET_CURRENT_COMM, &[Arg::SlotAddr(slot, 0), Arg::Imm(COMM.into())]);
    slot
}

/// Does `differ`, which leaves, unless a slot begins with these bytes.
fn unless_equal(f: &mut Func<'_>, slot: Slot, bytes: &[u8], differ: impl Fn(&mut Func<'_>)) {
    let mut at = 0;
    while at < bytes.len() {
        let left = bytes.len() - at;
        let size = match left {
            8.. => Size::DW,
            4.. => Size::W,
            2.. => Size::H,
            _ => Size::B,
        };
        let len = size.bytes() as usize;
        let part = bytes.get(at..at + len).unwrap_or_default();
        let wanted = part.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        let got = f.load_slot(size, slot, at as i32);
        // Of 32 bits and less the constant fits the instruction.
        match size {
            Size::DW => f.if_(Cmp::Ne, Width::W64, got, Operand::Imm(wanted.cast_signed()), &differ),
            _ => f.if_(Cmp::Ne, Width::W32, got, Operand::Imm(wanted.cast_signed()), &differ),
        }
        at += len;
    }
}
