//! One program for many functions. Each is attached with a cookie that names its probe, and the group of probes whose
//! records are laid out alike; the program goes to that group's code.

use super::calls::call_key;
use super::kprobe::{call_number, keep_call, take_call};
use super::session::{apart, entry_time, is_return};
use super::source::Source;
use super::whose::{Who, admit, on_cpu};
use super::{Here, Lines, Moment, count, counter, write_one_of_many};
use crate::kernel::SessionKfuncs;
use crate::plan::{Plan, Probe};
use asm::{Alu, Arg, Cmp, Func, Helper, Operand, Program, Reg, Size, Width};

/// Probes, by their indices, whose records are filled by the same instructions. Never empty.
pub type Group = Vec<u32>;

/// How the functions are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Many {
    /// fentry for many: entries alone.
    Entries,
    /// fsession for many: both ends.
    Sessions(SessionKfuncs),
    /// kprobe_multi: entries alone.
    Kprobes,
    /// kprobe_multi as a session: both ends.
    KprobeSessions(SessionKfuncs),
}

/// The cookie of a probe in a group.
pub fn cookie(group: usize, index: u32) -> u64 {
    (group as u64) << 32 | u64::from(index)
}

/// The program for these groups: all of exits, or all of entries.
pub fn many(plan: &Plan, groups: &[Group], how: Many) -> Program {
    let at_exit = matches!(how, Many::Sessions(_) | Many::KprobeSessions(_));
    let mut program = Program::new(if at_exit { "ex_many" } else { "en_many" }, "many");
    let probe = |index: u32| plan.probes.get(index as usize);
    let first = |group: usize| groups.get(group).and_then(|g| probe(*g.first()?));
    program.main(|f| {
        let lines = &Lines::new();
        let ctx = f.ctx();
        match how {
            Many::Entries | Many::Kprobes => {
                let source = if how == Many::Kprobes { Source::Registers } else { Source::Helpers };
                let mut who = admit(f, lines, plan, 0);
                on_cpu(f, lines, plan);
                who.identify(f, plan);
                let now = f.call(Helper::KTIME_GET_NS, &[]);
                let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
                let moment = Moment { now, entry_time: None, call: None, index: cookie.into() };
                let here = Here::all(f, lines, plan);
                each_group(f, lines, groups.len(), cookie, &|f, group| {
                    let Some(probe) = first(group) else { return };
                    write_one_of_many(f, lines, plan, &probe.layout, &who, source, ctx, &moment, &here);
                });
            }
            Many::Sessions(kfuncs) => {
                let kept = is_return(f, lines, kfuncs, ctx, |f, kept| {
                    let mut who = admit(f, lines, plan, 0);
                    let now = f.call(Helper::KTIME_GET_NS, &[]);
                    f.store(Size::DW, kept, 0, now);
                    let call = call_key(f, ctx);
                    entries(f, lines, plan, groups, &mut who, Source::Helpers, ctx, now, call);
                    f.ret(0);
                });
                let start = entry_time(f, lines, kept);
                let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
                let call = call_key(f, ctx);
                exits(f, lines, plan, groups, Source::Helpers, ctx, cookie, start, call);
            }
            Many::KprobeSessions(kfuncs) => {
                let kept = is_return(f, lines, kfuncs, ctx, |f, kept| {
                    // 1: the return is of no interest.
                    let mut who = admit(f, lines, plan, 1);
                    let now = f.call(Helper::KTIME_GET_NS, &[]);
                    let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
                    let key = keep_call(f, lines, ctx, now, cookie.into(), 0);
                    f.store(Size::DW, kept, 0, key);
                    let number = call_number(f, key, cookie.into());
                    entries(f, lines, plan, groups, &mut who, Source::Registers, ctx, now, number);
                    f.ret(0);
                });
                let key = entry_time(f, lines, kept);
                let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
                let (cell, start) = take_call(f, key, cookie.into());
                let number = call_number(f, key, cookie.into());
                exits(f, lines, plan, groups, Source::Kept(cell), ctx, cookie, start, number);
            }
        }
    });
    program
}

/// The entries' events, where both ends are taken.
#[allow(clippy::too_many_arguments)]
fn entries(
    f: &mut Func<'_>,
    lines: &Lines,
    plan: &Plan,
    groups: &[Group],
    who: &mut Who,
    source: Source,
    ctx: Reg,
    now: Reg,
    call: Operand,
) {
    let entry = |group: usize| -> Option<&Probe> {
        let exit = plan.probes.get(*groups.get(group)?.first()? as usize)?;
        plan.probes.get(exit.pair? as usize)
    };
    if entry(0).is_none() {
        return;
    }
    on_cpu(f, lines, plan);
    who.identify(f, plan);
    let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
    // The entry's probe comes just before the exit's.
    let index = f.alu(Alu::Sub, Width::W64, cookie, 1);
    let moment = Moment { now, entry_time: None, call: Some(call), index: index.into() };
    let here = Here::all(f, lines, plan);
    each_group(f, lines, groups.len(), cookie, &|f, group| {
        let Some(probe) = entry(group) else { return };
        write_one_of_many(f, lines, plan, &probe.layout, who, source, ctx, &moment, &here);
    });
}

/// The exits' events.
#[allow(clippy::too_many_arguments)]
fn exits(
    f: &mut Func<'_>,
    lines: &Lines,
    plan: &Plan,
    groups: &[Group],
    source: Source,
    ctx: Reg,
    cookie: Reg,
    start: Reg,
    call: Operand,
) {
    apart(f, start, |f| {
        on_cpu(f, lines, plan);
        let mut who = Who::default();
        who.identify(f, plan);
        let now = f.call(Helper::KTIME_GET_NS, &[]);
        let moment = Moment { now, entry_time: Some(start.into()), call: Some(call), index: cookie.into() };
        let here = Here::all(f, lines, plan);
        each_group(f, lines, groups.len(), cookie, &|f, group| {
            let Some(probe) = groups.get(group).and_then(|g| plan.probes.get(*g.first()? as usize)) else {
                return;
            };
            write_one_of_many(f, lines, plan, &probe.layout, &who, source, ctx, &moment, &here);
        });
    });
}

/// Goes to the code of the cookie's group, halving the groups that are left. Code that finds no room in the ring falls through.
fn each_group(
    f: &mut Func<'_>,
    lines: &Lines,
    groups: usize,
    cookie: Reg,
    code: &dyn Fn(&mut Func<'_>, usize),
) {
    let group = f.alu(Alu::Rsh, Width::W64, cookie, 32);
    among(f, group, 0, groups, code);
    lines.mark(f, "the ring buffer is full");
    count(f, counter::LOST);
    f.ret(0);
}

fn among(f: &mut Func<'_>, group: Reg, from: usize, to: usize, code: &dyn Fn(&mut Func<'_>, usize)) {
    if to.saturating_sub(from) <= 1 {
        code(f, from);
        return;
    }
    let middle = from.midpoint(to);
    f.if_else(
        Cmp::Lt,
        Width::W64,
        group,
        middle as i64,
        |f| among(f, group, from, middle, code),
        |f| among(f, group, middle, to, code),
    );
}
