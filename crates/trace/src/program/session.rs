//! One program for both ends of a call (fsession): the entry leaves its time in a cookie that the kernel keeps for the
//! exit, so that no map is asked.

use super::calls::call_key;
use super::roots::Roots;
use super::whose::{self, on_cpu};
use super::{ArgAccess, Lines, Moment, admit_by, branches, write_event};
use crate::kernel::SessionKfuncs;
use crate::plan::{Plan, Probe};
use asm::{Arg, Cmp, Func, Helper, Program, Reg, Size, Width};

/// The program for the exit's probe `index`, and for its entry's too where both are taken.
pub fn session(plan: &Plan, kfuncs: SessionKfuncs, index: u32, probe: &Probe, access: ArgAccess) -> Program {
    let name = &probe.target.name;
    let mut program = Program::new(&super::name(probe, name), name);
    program.main(|f| {
        let lines = Lines::new();
        let ctx = f.ctx();
        branches::snapshot(f, &lines, plan, ctx);
        let typed = access == ArgAccess::Plain;
        let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
        let cookie = is_return(f, &lines, kfuncs, ctx, |f, cookie| {
            let entry = probe.pair.and_then(|i| Some((i, plan.probes.get(i as usize)?)));
            let layout = entry.map_or(&probe.layout, |(_, entry)| &entry.layout);
            let roots = Roots::new(plan, layout, access.source(), ctx, &lines).typed(typed);
            let compiler = &mut roots.compiler(&mark);
            let mut who = whose::admit_by(f, &lines, plan, 0, |f| admit_by(f, &mut *compiler, layout, 0));
            lines.mark(f, "time of entry");
            let now = f.call(Helper::KTIME_GET_NS, &[]);
            f.store(Size::DW, cookie, 0, now);
            roots.now.set(Some(now));
            if let Some((at, entry)) = entry {
                on_cpu(f, &lines, plan);
                who.identify(f, plan);
                let call = Some(call_key(f, ctx));
                let moment = Moment { now, entry_time: None, call, index: i64::from(at).into(), path: None };
                write_event(f, &lines, plan, &entry.layout, &who, access.source(), ctx, &moment, compiler);
            }
            f.ret(0);
        });
        let start = entry_time(f, &lines, cookie);
        apart(f, start, |f| {
            on_cpu(f, &lines, plan);
            let mut who = super::Who::default();
            who.identify(f, plan);
            let now = f.call(Helper::KTIME_GET_NS, &[]);
            let call = probe.layout.call.map(|_| call_key(f, ctx));
            let moment = Moment {
                now,
                entry_time: Some(start.into()),
                call,
                index: i64::from(index).into(),
                path: None,
            };
            let roots = Roots::new(plan, &probe.layout, access.source(), ctx, &lines).typed(typed);
            roots.now.set(Some(now));
            roots.entry_time.set(Some(start.into()));
            let compiler = &mut roots.compiler(&mark);
            write_event(f, &lines, plan, &probe.layout, &who, access.source(), ctx, &moment, compiler);
        });
    });
    program
}

/// Asks whether this is the return; if not, `entry` is all there is. Gives the cookie.
pub(super) fn is_return(
    f: &mut Func<'_>,
    lines: &Lines,
    kfuncs: SessionKfuncs,
    ctx: Reg,
    entry: impl FnOnce(&mut Func<'_>, Reg),
) -> Reg {
    lines.mark(f, "entry or return?");
    // Kernels before 7.0 take no argument, and mind none.
    let cookie = f.call_kfunc(kfuncs.cookie.0, &[Arg::Reg(ctx)]);
    let returns = f.call_kfunc(kfuncs.is_return.0, &[Arg::Reg(ctx)]);
    f.if_(Cmp::Eq, Width::W32, returns, 0, |f| entry(f, cookie));
    cookie
}

/// A block of its own for the exit, so that its stack slots share their bytes with the entry's: the two stacks that are
/// taken would not fit side by side. `start` is known not to be 0.
pub(super) fn apart(f: &mut Func<'_>, start: Reg, exit: impl FnOnce(&mut Func<'_>)) {
    f.if_(Cmp::Ne, Width::W64, start, 0, exit);
    f.ret(0);
}

/// What the entry left in the cookie. Nothing: the filter did not admit the call, or the program was running already.
pub(super) fn entry_time(f: &mut Func<'_>, lines: &Lines, cookie: Reg) -> Reg {
    lines.mark(f, "admitted at the entry?");
    let start = f.load(Size::DW, cookie, 0);
    f.if_(Cmp::Eq, Width::W64, start, 0, |f| f.ret(0));
    start
}
