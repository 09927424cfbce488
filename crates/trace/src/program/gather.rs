//! What is gathered of events in the kernel: a table by keys, a value of which each CPU has its own; an array of one where there are
//! no keys.
//!
//! What is counted is added atomically, for another probe's program may interrupt this one on its CPU. A smallest or largest value is
//! not, so those have an entry for each probe: a program does not interrupt itself.

use super::{Moment, count, counter, maps};
use crate::expressions::{Gathered, KeyKind};
use crate::layout::Layout;
use crate::plan::Plan;
use crate::syscalls::TS_COMPAT;
use asm::{Alu, Arg, Cmp, Func, Helper, MapId, Operand, Reg, Size, Slot, Width};
use expr::Compiler;
use expr::tree::Function;

/// Bytes of an array's index.
const INDEX: u32 = 4;

/// `BPF_NOEXIST`
const NOEXIST: i64 = 1;

/// Gathers what is asked of an event.
pub(super) fn gather(
    f: &mut Func<'_>,
    plan: &Plan,
    layout: &Layout,
    moment: &Moment,
    compiler: &mut Compiler<'_>,
) {
    if !layout.asked.gathered.is_empty() {
        count(f, counter::GATHERED);
    }
    for gathered in &layout.asked.gathered {
        compiler.attempt(f, |compiler, f, done| {
            compiler.attempt(f, |compiler, f, unread| {
                let size = if gathered.is_one() { INDEX } else { gathered.key_size() };
                let key = f.slot(size, size.min(8));
                if gathered.is_one() {
                    f.store_slot(Size::W, key, 0, 0);
                } else {
                    let probe = if gathered.apart() { moment.index } else { Operand::Imm(0) };
                    // Before the keys, see `expressions::FIRST_KEY`.
                    f.store_slot(Size::DW, key, 0, probe);
                }
                for (part, output) in gathered.keys.iter().zip(&gathered.aggregate.keys) {
                    let call = matches!(part.kind, KeyKind::SystemCall { .. });
                    let size = if call { 8 } else { part.size };
                    compiler.key(f, output, &gathered.text, key, part.offset, size, unread);
                    if call {
                        compat(f, layout, key, part.offset as i32 + 8);
                    }
                }
                let value = match &gathered.aggregate.value {
                    Some(value) => compiler.value_or_leave(f, value, &gathered.text, unread),
                    None => Operand::Imm(1),
                };
                let table = Arg::Map(maps::gathered(gathered.number));
                let cell = f.var();
                let found = f.call(Helper::MAP_LOOKUP_ELEM, &[table, Arg::SlotAddr(key, 0)]);
                f.assign(cell, found);
                if !gathered.is_one() {
                    f.if_unlikely(Cmp::Eq, Width::W64, found, 0, |f| {
                        let made = first(f, maps::gathered(gathered.number), Arg::SlotAddr(key, 0));
                        f.assign(cell, made);
                    });
                }
                f.if_unlikely(Cmp::Eq, Width::W64, cell, 0, |f| {
                    count(f, counter::NO_ROOM);
                    f.leave(done);
                });
                add(f, plan, gathered, cell, value);
                f.leave(done);
            });
            count(f, counter::UNREAD);
        });
    }
}

/// Puts into a key whether a 32-bit program made the system call.
fn compat(f: &mut Func<'_>, layout: &Layout, key: Slot, offset: i32) {
    f.store_slot(Size::DW, key, offset, 0);
    let Some(number) = layout.number else { return };
    let task = f.call(Helper::GET_CURRENT_TASK, &[]);
    let from = f.alu(Alu::Add, Width::W64, task, i64::from(number.told.status));
    f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(key, offset), Arg::Imm(4), Arg::Reg(from)]);
    let status = f.load_slot(Size::W, key, offset);
    // What else the status says makes no other call of it.
    let compat = f.alu(Alu::And, Width::W64, status, i64::from(TS_COMPAT));
    f.store_slot(Size::DW, key, offset, compat);
}

/// Makes the entry of a key, all zeros; gives it, or 0 if the table is full.
fn first(f: &mut Func<'_>, table: MapId, key: Arg) -> Reg {
    let at = f.slot(4, 4);
    f.store_slot(Size::W, at, 0, 0);
    let blank = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::ZEROS), Arg::SlotAddr(at, 0)]);
    f.if_(Cmp::Ne, Width::W64, blank, 0, |f| {
        f.call(Helper::MAP_UPDATE_ELEM, &[Arg::Map(table), key, Arg::Reg(blank), Arg::Imm(NOEXIST)]);
    });
    f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(table), key])
}

/// Adds a value to what an entry has of this CPU.
fn add(f: &mut Func<'_>, plan: &Plan, gathered: &Gathered, cell: Reg, value: Operand) {
    let value = match value {
        Operand::Reg(reg) => reg,
        Operand::Imm(n) => f.imm(n),
    };
    let signed = gathered.signed;
    let one = |f: &mut Func<'_>, base: Reg, at: i32| {
        let one = f.imm(1);
        f.atomic_add(Size::DW, base, at, one);
    };
    match gathered.function {
        Function::Count => one(f, cell, 0),
        Function::Sum | Function::Avg => {
            one(f, cell, 0);
            sum(f, plan, cell, value, signed);
        }
        Function::Min | Function::Max => {
            let better = match (gathered.function, signed) {
                (Function::Min, true) => Cmp::SLt,
                (Function::Min, false) => Cmp::Lt,
                (_, true) => Cmp::SGt,
                (_, false) => Cmp::Gt,
            };
            let seen = f.load(Size::DW, cell, 0);
            f.if_else(
                Cmp::Eq,
                Width::W64,
                seen,
                0,
                |f| {
                    f.store(Size::DW, cell, 8, value);
                    f.store(Size::DW, cell, 0, 1);
                },
                |f| {
                    let best = f.load(Size::DW, cell, 8);
                    f.if_(better, Width::W64, value, best, |f| f.store(Size::DW, cell, 8, value));
                },
            );
        }
        Function::Hist => {
            let bucket = bucket(f, value, signed);
            at_word(f, cell, bucket, gathered.words());
        }
        Function::LHist { low, high, step } => {
            let word = f.var();
            let (below, above) = if signed { (Cmp::SLt, Cmp::SGe) } else { (Cmp::Lt, Cmp::Ge) };
            let steps = (high - low) / step;
            f.labelled(|f, done| {
                f.assign(word, 0);
                // Without a sign nothing is below a bound that is negative.
                if signed || low > 0 {
                    let low = f.imm(low);
                    f.if_(below, Width::W64, value, low, |f| f.leave(done));
                }
                f.assign(word, steps + 1);
                if signed || high > 0 {
                    let high = f.imm(high);
                    f.if_(above, Width::W64, value, high, |f| f.leave(done));
                }
                let from = f.alu(Alu::Sub, Width::W64, value, low);
                let step = f.alu(Alu::Div, Width::W64, from, step);
                let step = f.alu(Alu::Add, Width::W64, step, 1);
                f.assign(word, step);
            });
            at_word(f, cell, word, gathered.words());
        }
    }
}

/// Adds to a sum of 128 bits, its lower half at 8, its upper one at 16: what overflows the lower is rare, and carried up.
fn sum(f: &mut Func<'_>, plan: &Plan, cell: Reg, value: Reg, signed: bool) {
    let before = if plan.fetch_add {
        f.fetch_add(Size::DW, cell, 8, value)
    } else {
        // A program that interrupts this one here, where the sum is about to overflow, would not be seen.
        let before = f.load(Size::DW, cell, 8);
        f.atomic_add(Size::DW, cell, 8, value);
        before
    };
    let after = f.alu(Alu::Add, Width::W64, before, value);
    let carry = |f: &mut Func<'_>, by: i64| {
        let by = f.imm(by);
        f.atomic_add(Size::DW, cell, 16, by);
    };
    if !signed {
        return f.if_unlikely(Cmp::Lt, Width::W64, after, value, |f| carry(f, 1));
    }
    // It has overflowed if both had one sign, and their sum has the other.
    let changed = f.alu(Alu::Xor, Width::W64, before, after);
    let differs = f.alu(Alu::Xor, Width::W64, value, after);
    let overflow = f.alu(Alu::And, Width::W64, changed, differs);
    f.if_unlikely(Cmp::SLt, Width::W64, overflow, 0, |f| {
        f.if_else(Cmp::SLt, Width::W64, value, 0, |f| carry(f, -1), |f| carry(f, 1));
    });
}

/// Bumps the word of that number.
fn at_word(f: &mut Func<'_>, cell: Reg, word: Reg, words: u32) {
    let last = i64::from(words) - 1;
    let at = f.var();
    f.assign(at, word);
    // For the verifier, which does not know how it came about.
    f.if_(Cmp::Gt, Width::W64, at, last, |f| f.assign(at, last));
    let offset = f.alu(Alu::Lsh, Width::W64, at, 3);
    let place = f.alu(Alu::Add, Width::W64, cell, offset);
    let one = f.imm(1);
    f.atomic_add(Size::DW, place, 0, one);
}

/// 0 of negative numbers, 1 of zero, else 2 and the number of the highest bit.
fn bucket(f: &mut Func<'_>, value: Reg, signed: bool) -> Reg {
    let bucket = f.var();
    f.labelled(|f, done| {
        f.assign(bucket, 0);
        if signed {
            f.if_(Cmp::SLt, Width::W64, value, 0, |f| f.leave(done));
        }
        f.assign(bucket, 1);
        f.if_(Cmp::Eq, Width::W64, value, 0, |f| f.leave(done));
        let (log, rest) = (f.var(), f.var());
        f.assign(log, 2);
        f.assign(rest, value);
        for bits in [32, 16, 8, 4, 2, 1] {
            let bound = f.imm(1 << bits);
            f.if_(Cmp::Ge, Width::W64, rest, bound, |f| {
                f.alu_to(rest, Alu::Rsh, Width::W64, bits);
                f.alu_to(log, Alu::Add, Width::W64, bits);
            });
        }
        f.assign(bucket, log);
    });
    bucket
}
