//! The path of a call, kept while it is under way: begun at its entry, continued at each block, taken at its return.
//!
//! Which call a block's hit belongs to is told by the task when it runs on the task's own stack, else by the CPU: what interrupts a
//! call has a path of its own. The preempt count does not tell, for a breakpoint counts as an NMI itself
//! (`irqentry_nmi_enter`, arch/x86/kernel/traps.c), and an entry is seen without one. Calls within each other on one stack are told by their
//! depth; the first state knows how deep the innermost is.

use super::{Lines, count, counter, maps};
use crate::arch;
use crate::path::{Code, Decision, HITS};
use crate::plan::{Plan, TaskStack};
use asm::{Alu, Arg, Cmp, Func, Helper, Program, Reg, Size, Slot, Width};

/// A state in [`maps::PATHS`].
pub mod state {
    /// `u64` place of the return address on the stack; 0 when no call is under way.
    pub const PLACE: i32 = 0;
    /// `u32`, in the first of a stack: how deep the innermost call is.
    pub const DEPTH: i32 = 8;
    /// `u32` hits, those that found no room included.
    pub const HITS: i32 = 12;
    /// `u64` thread that made the call.
    pub const OWNER: i32 = 16;
    /// `i32[]` offsets of the hits from the function's address.
    pub const LOG: i32 = 24;
    /// Bytes.
    pub const SIZE: u32 = LOG as u32 + 4 * crate::path::HITS;
    /// Bytes of a key: `u64` task or CPU, `u32` probe, `u32` depth.
    pub const KEY: u32 = 16;
    /// Calls under way within each other on one stack.
    pub const MOST_DEEP: i64 = 8;
    /// How many there are.
    pub const MOST: u32 = 1024;
}

/// Who runs on this stack: the task's address, or this CPU's number when it is not the task's own stack.
fn runner(f: &mut Func<'_>, stack: TaskStack, sp: Reg) -> Reg {
    let id = f.var();
    let task = f.call(Helper::GET_CURRENT_TASK, &[]);
    f.assign(id, task);
    let base = f.slot(8, 8);
    f.store_slot(Size::DW, base, 0, 0);
    let from = f.alu(Alu::Add, Width::W64, task, i64::from(stack.offset));
    f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(base, 0), Arg::Imm(8), Arg::Reg(from)]);
    let base = f.load_slot(Size::DW, base, 0);
    // At the entry of the outermost call the return address may be the stack's last word.
    let above = f.alu(Alu::Sub, Width::W64, sp, base);
    f.if_(Cmp::Gt, Width::W64, above, i64::from(stack.size), |f| {
        let cpu = f.call(Helper::GET_SMP_PROCESSOR_ID, &[]);
        f.assign(id, cpu);
    });
    id
}

fn key_of(f: &mut Func<'_>, id: Reg, index: u32) -> Slot {
    let key = f.slot(state::KEY, 8);
    f.store_slot(Size::DW, key, 0, id);
    f.store_slot(Size::W, key, 8, i64::from(index));
    f.store_slot(Size::W, key, 12, 0);
    key
}

fn look_up(f: &mut Func<'_>, key: Slot) -> Reg {
    f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::PATHS), Arg::SlotAddr(key, 0)])
}

/// The state of a key, made if there is none.
fn made(f: &mut Func<'_>, key: Slot) -> Reg {
    let state = f.var();
    let found = look_up(f, key);
    f.assign(state, found);
    f.if_(Cmp::Eq, Width::W64, found, 0, |f| {
        let first = f.slot(4, 4);
        f.store_slot(Size::W, first, 0, 0);
        let blank = f.call(Helper::MAP_LOOKUP_ELEM, &[Arg::Map(maps::BLANK_PATH), Arg::SlotAddr(first, 0)]);
        f.if_(Cmp::Ne, Width::W64, blank, 0, |f| {
            let new = &[Arg::Map(maps::PATHS), Arg::SlotAddr(key, 0), Arg::Reg(blank), Arg::Imm(0)];
            f.call(Helper::MAP_UPDATE_ELEM, new);
        });
        let found = look_up(f, key);
        f.assign(state, found);
    });
    state
}

/// Begins the path of a call, at its entry.
pub(super) fn begin(f: &mut Func<'_>, lines: &Lines, plan: &Plan, ctx: Reg, index: u32) {
    let Some(stack) = plan.task_stack else { return };
    lines.mark(f, "path: begin");
    let place = f.load(Size::DW, ctx, arch::STACK_POINTER);
    let id = runner(f, stack, place);
    let owner = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
    let key = key_of(f, id, index);
    let state = made(f, key);
    f.if_else(
        Cmp::Ne,
        Width::W64,
        state,
        0,
        |f| {
            let first = f.var();
            f.assign(first, state);
            let depth = f.var();
            f.assign(depth, 0);
            let outer = f.load(Size::DW, first, state::PLACE);
            let outers = f.load(Size::DW, first, state::OWNER);
            // Another thread's: what had this stack before and never came back. One that is not further out: its return was not seen.
            f.if_(Cmp::Eq, Width::W64, outers, owner, |f| {
                f.if_(Cmp::Gt, Width::W64, outer, place, |f| nested(f, first, key, depth, place));
            });
            f.store(Size::W, first, state::DEPTH, depth);
            f.if_(Cmp::Ne, Width::W64, depth, 0, |f| {
                f.store_slot(Size::W, key, 12, depth);
                f.assign(state, 0);
                f.if_(Cmp::Lt, Width::W64, depth, state::MOST_DEEP, |f| {
                    let inner = made(f, key);
                    f.assign(state, inner);
                });
            });
            f.if_else(
                Cmp::Ne,
                Width::W64,
                state,
                0,
                |f| {
                    f.store(Size::DW, state, state::OWNER, owner);
                    f.store(Size::W, state, state::HITS, 1);
                    f.store(Size::W, state, state::LOG, 0);
                    f.store(Size::DW, state, state::PLACE, place);
                },
                |f| count(f, counter::PATHLESS),
            );
        },
        |f| count(f, counter::PATHLESS),
    );
}

/// How deep a call is, within another that is under way.
fn nested(f: &mut Func<'_>, first: Reg, key: Slot, depth: Reg, place: Reg) {
    let outer = f.load(Size::W, first, state::DEPTH);
    let deeper = f.alu(Alu::Add, Width::W64, outer, 1);
    f.assign(depth, deeper);
    f.if_(Cmp::Ne, Width::W64, outer, 0, |f| {
        f.store_slot(Size::W, key, 12, outer);
        let innermost = look_up(f, key);
        f.if_(Cmp::Ne, Width::W64, innermost, 0, |f| {
            let last = f.load(Size::DW, innermost, state::PLACE);
            // Not further out: its return was not seen.
            f.if_(Cmp::Le, Width::W64, last, place, |f| f.assign(depth, outer));
        });
    });
}

/// The program of a function's blocks.
pub fn hits(plan: &Plan, index: u32, code: &Code, name: &str) -> Program {
    let start = code.address;
    at_block(plan, index, name, &|f, ctx, state| {
        let ip = f.load(Size::DW, ctx, arch::INSTRUCTION_POINTER);
        let from = f.imm(start.wrapping_add(arch::PROBED) as i64);
        let offset = f.alu(Alu::Sub, Width::W64, ip, from);
        add(f, state, offset);
    })
}

/// The program of a conditional jump that tells which way it goes: where it goes to a block without probe it stands for that block's. `own`: it
/// tells of the jump's own block too.
pub fn decision(
    plan: &Plan,
    index: u32,
    code: &Code,
    name: &str,
    decision: Decision,
    own: bool,
) -> Option<Program> {
    let block = code.blocks.list().get(decision.block)?;
    let condition = arch::condition(code.bytes(block.last, block.end))?;
    let offset = |block: usize| {
        let start = code.blocks.list().get(block)?.start;
        i32::try_from(start.wrapping_sub(code.address) as i64).ok()
    };
    let offset_of = |block: Option<usize>| block.map(offset);
    let told =
        [offset_of(own.then_some(decision.block)), offset_of(decision.taken), offset_of(decision.fell)];
    // An offset that there is no room for.
    if told.contains(&Some(None)) {
        return None;
    }
    let [own, taken, fell] = told.map(Option::flatten);
    Some(at_block(plan, index, name, &|f, ctx, state| {
        let tell = |f: &mut Func<'_>, offset: Option<i32>| {
            if let Some(offset) = offset {
                let offset = f.imm(offset.into());
                add(f, state, offset);
            }
        };
        tell(f, own);
        let flags = f.load(Size::DW, ctx, arch::FLAGS);
        let holds = f.var();
        let any = f.alu(Alu::And, Width::W64, flags, i64::from(condition.any));
        f.assign(holds, any);
        if condition.signs_differ {
            let sign = f.alu(Alu::Rsh, Width::W64, flags, i64::from(arch::SIGN));
            let overflow = f.alu(Alu::Rsh, Width::W64, flags, i64::from(arch::OVERFLOW));
            let differ = f.alu(Alu::Xor, Width::W64, sign, overflow);
            let differ = f.alu(Alu::And, Width::W64, differ, 1);
            let either = f.alu(Alu::Or, Width::W64, any, differ);
            f.assign(holds, either);
        }
        let (when, otherwise) = if condition.negated { (fell, taken) } else { (taken, fell) };
        f.if_else(Cmp::Ne, Width::W64, holds, 0, |f| tell(f, when), |f| tell(f, otherwise));
    }))
}

/// Adds a hit to a call's, if there is room.
fn add(f: &mut Func<'_>, state: Reg, offset: Reg) {
    let hit = f.load(Size::W, state, state::HITS);
    let next = f.alu(Alu::Add, Width::W32, hit, 1);
    f.store(Size::W, state, state::HITS, next);
    f.if_(Cmp::Lt, Width::W64, hit, i64::from(HITS), |f| {
        let at = f.alu(Alu::And, Width::W64, hit, i64::from(HITS - 1));
        let at = f.alu(Alu::Lsh, Width::W64, at, 2);
        let to = f.alu(Alu::Add, Width::W64, state, at);
        f.store(Size::W, to, state::LOG, offset);
    });
}

/// A program at a block: finds the call that it is of, and hands its state on.
fn at_block(plan: &Plan, index: u32, name: &str, tell: &dyn Fn(&mut Func<'_>, Reg, Reg)) -> Program {
    let mut program = Program::new(&format!("at_{name}"), name);
    program.main(|f| {
        let lines = Lines::new();
        let ctx = f.ctx();
        let Some(stack) = plan.task_stack else { return f.ret(0) };
        lines.mark(f, "path: whose");
        let sp = f.load(Size::DW, ctx, arch::STACK_POINTER);
        let id = runner(f, stack, sp);
        let key = key_of(f, id, index);
        let state = f.var();
        let first = look_up(f, key);
        f.if_(Cmp::Eq, Width::W64, first, 0, |f| f.ret(0));
        f.assign(state, first);
        let depth = f.load(Size::W, first, state::DEPTH);
        f.if_unlikely(Cmp::Ne, Width::W64, depth, 0, |f| {
            f.store_slot(Size::W, key, 12, depth);
            let inner = look_up(f, key);
            f.if_(Cmp::Eq, Width::W64, inner, 0, |f| f.ret(0));
            f.assign(state, inner);
        });
        lines.mark(f, "path: a block");
        let place = f.load(Size::DW, state, state::PLACE);
        // No call is under way, or only one that never came back.
        // (Without a frame the stack pointer is where it was at the entry.)
        f.if_(Cmp::Gt, Width::W64, sp, place, |f| f.ret(0));
        tell(f, ctx, state);
        f.ret(0);
    });
    program
}

/// Ends the path of a call, at its return; gives its state, whose hits last until the next call of this runner, or 0.
pub(super) fn end(f: &mut Func<'_>, lines: &Lines, plan: &Plan, place: Reg, index: u32) -> Option<Reg> {
    let stack = plan.task_stack?;
    lines.mark(f, "path: end");
    let ended = f.var();
    f.assign(ended, 0);
    let id = runner(f, stack, place);
    let key = key_of(f, id, index);
    let first = look_up(f, key);
    f.if_(Cmp::Ne, Width::W64, first, 0, |f| {
        let state = f.var();
        f.assign(state, first);
        let depth = f.load(Size::W, first, state::DEPTH);
        let outer = f.alu(Alu::Sub, Width::W64, depth, 1);
        f.if_unlikely(Cmp::Ne, Width::W64, depth, 0, |f| {
            f.store_slot(Size::W, key, 12, depth);
            let inner = look_up(f, key);
            f.assign(state, inner);
        });
        f.if_else(
            Cmp::Ne,
            Width::W64,
            state,
            0,
            |f| {
                let begun = f.load(Size::DW, state, state::PLACE);
                f.if_(Cmp::Eq, Width::W64, begun, place, |f| {
                    f.if_(Cmp::Ne, Width::W64, depth, 0, |f| f.store(Size::W, first, state::DEPTH, outer));
                    f.store(Size::DW, state, state::PLACE, 0);
                    f.assign(ended, state);
                });
                // Further in: it has not returned, and never will.
                f.if_(Cmp::Lt, Width::W64, begun, place, |f| {
                    f.store(Size::W, first, state::DEPTH, 0);
                    f.store(Size::DW, first, state::PLACE, 0);
                });
            },
            // Deeper than states are kept.
            |f| f.store(Size::W, first, state::DEPTH, outer),
        );
    });
    Some(ended)
}

/// Copies the hits of a call into its record.
pub(super) fn copy(f: &mut Func<'_>, lines: &Lines, state: Reg, record: Reg, at: u32) {
    lines.mark(f, "path: copy");
    f.store(Size::DW, record, at as i32, 0);
    f.if_(Cmp::Ne, Width::W64, state, 0, |f| {
        let hits = f.load(Size::W, state, state::HITS);
        f.store(Size::W, record, at as i32, hits);
        let (to, size) = (Arg::Offset(record, at as i32 + 8), Arg::Imm(i64::from(HITS * 4)));
        f.call(Helper::PROBE_READ_KERNEL, &[to, size, Arg::Offset(state, state::LOG)]);
    });
}
