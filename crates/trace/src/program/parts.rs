//! Programs of kprobe_multi for many functions: one that is attached, and parts that it goes to by tail call, each for some
//! groups of probes whose records are laid out alike.
//!
//! However many the groups, one program is attached, by one link: the kernel takes 130 ms to detach a link (RCU tasks), one
//! after another. And small programs load faster, side by side.

use super::kprobe::{call_number, keep_call, take_call};
use super::many::{Ends, Group, Groups};
use super::session::{entry_time, is_return};
use super::source::Source;
use super::whose::{Who, admit};
use super::{Lines, branches, count, counter, maps, stack_words};
use crate::plan::Plan;
use asm::{Alu, Arg, Cmp, Func, Helper, Program, Reg, Size, Width};

/// Groups of a part, as a power of two: the part's number is a shift away from the cookie.
const BITS: u32 = 5;

/// Groups of a part, at most.
pub const PART: usize = 1 << BITS;

/// Some groups, which one program serves.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// Its number.
    pub number: usize,
    /// At most [`PART`].
    pub groups: &'a [Group],
}

impl Part<'_> {
    /// The number of its first group, for [`super::cookie`].
    pub fn first(&self) -> usize {
        self.number << BITS
    }

    /// The most words of the stack that hold arguments of any of its functions.
    pub fn stack_words(&self, plan: &Plan) -> u32 {
        let words = |group: &Group| {
            let probe = plan.probes.get(*group.first()? as usize)?;
            Some(stack_words(&probe.layout))
        };
        self.groups.iter().filter_map(words).max().unwrap_or(0)
    }
}

/// What is attached: it admits a call and goes to its part, number n of `parts` at place n of [`maps::PARTS`]. The entries of the
/// parts from `entries` on have programs of their own, `parts` places further.
pub fn dispatch(plan: &Plan, ends: Ends, parts: usize, entries: usize) -> Program {
    let mut program = Program::new(ends.name(), "many");
    program.main(|f| {
        let lines = &Lines::new();
        let ctx = f.ctx();
        branches::snapshot(f, lines, plan, ctx);
        match ends {
            Ends::Entries => {
                admit(f, lines, plan, 0);
            }
            Ends::Both(kfuncs) => {
                let kept = is_return(f, lines, kfuncs, ctx, |f, kept| {
                    // 1: the return is of no interest.
                    admit(f, lines, plan, 1);
                    if entries < parts {
                        let part = part_of(f, ctx);
                        let apart = |f: &mut Func<'_>| {
                            let place = f.alu(Alu::Add, Width::W64, part, parts as i64);
                            go(f, lines, ctx, place);
                            f.ret(1);
                        };
                        if entries == 0 {
                            return apart(f);
                        }
                        f.if_(Cmp::Ge, Width::W64, part, entries as i64, apart);
                    }
                    keep(f, lines, ctx, kept, 0);
                    f.ret(0);
                });
                // Most calls that are not admitted end here, before a part is gone to.
                entry_time(f, lines, kept);
            }
        }
        let part = part_of(f, ctx);
        go(f, lines, ctx, part);
        f.ret(0);
    });
    program
}

/// The number of the part that serves the call under way.
pub(super) fn part_of(f: &mut Func<'_>, ctx: Reg) -> Reg {
    let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
    f.alu(Alu::Rsh, Width::W64, cookie, i64::from(32 + BITS))
}

/// Goes to a part and does not come back, unless it is missing, which the verifier alone thinks possible.
pub(super) fn go(f: &mut Func<'_>, lines: &Lines, ctx: Reg, place: Reg) {
    lines.mark(f, "the program for records like this");
    f.call(Helper::TAIL_CALL, &[Arg::Reg(ctx), Arg::Map(maps::PARTS), Arg::Reg(place)]);
    count(f, counter::LOST);
}

/// At an entry: keeps the time and the arguments of the call, and in the session's cookie where.
fn keep(f: &mut Func<'_>, lines: &Lines, ctx: Reg, kept: Reg, words: u32) -> (Reg, Reg, Reg) {
    let now = f.call(Helper::KTIME_GET_NS, &[]);
    let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
    let key = keep_call(f, lines, ctx, now, cookie.into(), words);
    f.store(Size::DW, kept, 0, key);
    (now, cookie, key)
}

/// The program of a part for its events; where both ends are seen, for those of the exits.
pub fn part(plan: &Plan, part: Part<'_>, ends: Ends) -> Program {
    let mut program = Program::new(ends.name(), "many");
    program.main(|f| {
        let lines = &Lines::new();
        let ctx = f.ctx();
        let groups = Groups { plan, groups: part.groups, first: part.first() };
        match ends {
            Ends::Entries => groups.alone(f, lines, &mut Who::default(), Source::Registers, ctx),
            Ends::Both(kfuncs) => {
                let kept = f.call_kfunc(kfuncs.cookie.0, &[Arg::Reg(ctx)]);
                let key = entry_time(f, lines, kept);
                let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
                let (cell, start) = take_call(f, key, cookie.into());
                let number = call_number(f, key, cookie.into());
                groups.exits(f, lines, Source::Kept(cell), ctx, cookie, start, number);
            }
        }
    });
    program
}

/// The program of a part for its entries, where both ends are seen: it keeps what the exit wants, and writes the entry's event
/// if that is wanted.
pub fn part_entry(plan: &Plan, part: Part<'_>, kfuncs: crate::kernel::SessionKfuncs) -> Program {
    let mut program = Program::new(Ends::Both(kfuncs).name(), "many");
    program.main(|f| {
        let lines = &Lines::new();
        let ctx = f.ctx();
        let kept = f.call_kfunc(kfuncs.cookie.0, &[Arg::Reg(ctx)]);
        let groups = Groups { plan, groups: part.groups, first: part.first() };
        // 1: the return is of no interest.
        groups.admit(f, lines, Source::Registers, ctx, 1);
        let (now, cookie, key) = keep(f, lines, ctx, kept, part.stack_words(plan));
        let number = call_number(f, key, cookie.into());
        groups.entries(f, lines, &mut Who::default(), Source::Registers, ctx, now, number);
        f.ret(0);
    });
    program
}
