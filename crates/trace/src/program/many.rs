//! One program for many functions. Each is attached with a cookie that names its probe, and the group of probes whose
//! records are laid out alike; the program goes to that group's code.

use super::calls::call_key;
use super::parts::{Part, go, part_of};
use super::roots::Roots;
use super::session::{apart, entry_time, is_return};
use super::source::Source;
use super::whose::{Who, admit, on_cpu};
use super::{Here, Lines, Moment, admit_by, branches, count, counter, write_one_of_many};
use crate::kernel::SessionKfuncs;
use crate::plan::{Plan, Probe};
use asm::{Alu, Arg, Cmp, Func, Helper, Operand, Program, Reg, Size, Width};

/// Probes, by their indices, whose records are filled by the same instructions. Never empty.
pub type Group = Vec<u32>;

/// Which ends of the calls a program sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Entries alone.
    Entries,
    /// Both, as a session.
    Both(SessionKfuncs),
}

impl Ends {
    /// What the programs are called.
    pub fn name(self) -> &'static str {
        match self {
            Ends::Entries => "en_many",
            Ends::Both(_) => "ex_many",
        }
    }
}

/// Beyond so many groups arguments are read by one probe read, which costs an event 20 instructions more: the kernel makes each call
/// of the helper for one argument into instructions, and moves the whole rest of the program for it.
const FEW: usize = 8;

/// The cookie of a probe in a group.
pub fn cookie(group: usize, index: u32) -> u64 {
    (group as u64) << 32 | u64::from(index)
}

/// The program of type tracing for these groups: all of exits, or all of entries.
pub fn many(plan: &Plan, groups: &[Group], ends: Ends) -> Program {
    let mut program = Program::new(ends.name(), "many");
    program.main(|f| {
        let lines = &Lines::new();
        let ctx = f.ctx();
        branches::snapshot(f, lines, plan, ctx);
        let source = if groups.len() > FEW { Source::Copied } else { Source::Helpers };
        let groups = Groups { plan, groups, first: 0 };
        match ends {
            Ends::Entries => {
                let mut who = admit(f, lines, plan, 0);
                groups.alone(f, lines, &mut who, source, ctx);
            }
            Ends::Both(kfuncs) => {
                let kept = is_return(f, lines, kfuncs, ctx, |f, kept| {
                    let mut who = admit(f, lines, plan, 0);
                    groups.admit(f, lines, source, ctx, 0);
                    let now = f.call(Helper::KTIME_GET_NS, &[]);
                    f.store(Size::DW, kept, 0, now);
                    let call = call_key(f, ctx);
                    groups.entries(f, lines, &mut who, source, ctx, now, call);
                    f.ret(0);
                });
                let start = entry_time(f, lines, kept);
                let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
                let call = call_key(f, ctx);
                groups.exits(f, lines, source, ctx, cookie, start, call);
            }
        }
    });
    program
}

/// What is attached where the groups are more than one program's: it admits a call and goes by tail call to its part, number n of
/// `parts` at place n of [`super::maps::PARTS`]; where entries are wanted as well, theirs are `parts` places further.
///
/// One program, so that the kernel's guard against a program within itself is one for all.
pub fn fork(plan: &Plan, ends: Ends, parts: usize, entries: bool) -> Program {
    let mut program = Program::new(ends.name(), "many");
    program.main(|f| {
        let lines = &Lines::new();
        let ctx = f.ctx();
        branches::snapshot(f, lines, plan, ctx);
        match ends {
            Ends::Entries => drop(admit(f, lines, plan, 0)),
            Ends::Both(kfuncs) => {
                let kept = is_return(f, lines, kfuncs, ctx, |f, kept| {
                    admit(f, lines, plan, 0);
                    let now = f.call(Helper::KTIME_GET_NS, &[]);
                    f.store(Size::DW, kept, 0, now);
                    if entries {
                        let part = part_of(f, ctx);
                        let place = f.alu(Alu::Add, Width::W64, part, parts as i64);
                        go(f, lines, ctx, place);
                    }
                    f.ret(0);
                });
                entry_time(f, lines, kept);
            }
        }
        let part = part_of(f, ctx);
        go(f, lines, ctx, part);
        f.ret(0);
    });
    program
}

/// A part that it goes to: the events of entries where those alone are taken, else those of exits.
pub fn branch(plan: &Plan, part: Part<'_>, ends: Ends) -> Program {
    let mut program = Program::new(ends.name(), "many");
    program.main(|f| {
        let lines = &Lines::new();
        let ctx = f.ctx();
        let groups = Groups { plan, groups: part.groups, first: part.first() };
        match ends {
            Ends::Entries => groups.alone(f, lines, &mut Who::default(), Source::Copied, ctx),
            Ends::Both(kfuncs) => {
                let kept = f.call_kfunc(kfuncs.cookie.0, &[Arg::Reg(ctx)]);
                let start = entry_time(f, lines, kept);
                let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
                let call = call_key(f, ctx);
                groups.exits(f, lines, Source::Copied, ctx, cookie, start, call);
            }
        }
    });
    program
}

/// A part that it goes to for the events of entries, where those of exits are taken too.
pub fn branch_entry(plan: &Plan, part: Part<'_>, kfuncs: SessionKfuncs) -> Program {
    let mut program = Program::new(Ends::Both(kfuncs).name(), "many");
    program.main(|f| {
        let lines = &Lines::new();
        let ctx = f.ctx();
        let kept = f.call_kfunc(kfuncs.cookie.0, &[Arg::Reg(ctx)]);
        let now = f.load(Size::DW, kept, 0);
        let groups = Groups { plan, groups: part.groups, first: part.first() };
        if groups.are_asked() {
            // Nothing kept: the return is of no interest.
            f.store(Size::DW, kept, 0, 0);
            groups.admit(f, lines, Source::Copied, ctx, 0);
            f.store(Size::DW, kept, 0, now);
        }
        let call = call_key(f, ctx);
        groups.entries(f, lines, &mut Who::default(), Source::Copied, ctx, now, call);
        f.ret(0);
    });
    program
}

/// Groups that one program serves.
#[derive(Clone, Copy)]
pub(super) struct Groups<'a> {
    pub plan: &'a Plan,
    pub groups: &'a [Group],
    /// The first one's number in the cookies; the others' follow.
    pub first: usize,
}

impl<'a> Groups<'a> {
    /// A probe of the group at this place.
    fn probe(&self, at: usize) -> Option<&'a Probe> {
        self.plan.probes.get(*self.groups.get(at)?.first()? as usize)
    }

    /// The events of entries, where those alone are taken.
    pub(super) fn alone(self, f: &mut Func<'_>, lines: &Lines, who: &mut Who, source: Source, ctx: Reg) {
        let plan = self.plan;
        on_cpu(f, lines, plan);
        who.identify(f, plan);
        let now = f.call(Helper::KTIME_GET_NS, &[]);
        let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
        let moment = Moment { now, entry_time: None, call: None, index: cookie.into(), path: None };
        let here = Here::all(f, lines, plan);
        self.each(f, lines, cookie, &|f, group| {
            let Some(probe) = self.probe(group) else { return };
            let roots = Roots::new(plan, &probe.layout, source, ctx, lines);
            let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
            let compiler = &mut roots.compiler(&mark);
            admit_by(f, compiler, &probe.layout, 0);
            roots.now.set(Some(now));
            write_one_of_many(f, lines, plan, &probe.layout, who, source, ctx, &moment, &here, compiler);
        });
    }

    /// Whether something is asked of the beginning of a call.
    pub(super) fn are_asked(self) -> bool {
        (0..self.groups.len())
            .filter_map(|group| self.probe(group))
            .any(|probe| !probe.layout.asked.tests.at_entry.is_empty())
    }

    /// Leaves the program unless what is asked of the call's beginning holds.
    pub(super) fn admit(self, f: &mut Func<'_>, lines: &Lines, source: Source, ctx: Reg, otherwise: i64) {
        if !self.are_asked() {
            return;
        }
        let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
        let group = f.alu(Alu::Rsh, Width::W64, cookie, 32);
        among(f, group, self.first, self.first + self.groups.len(), &|f, group| {
            let Some(probe) = self.probe(group - self.first) else { return };
            let roots = Roots::new(self.plan, &probe.layout, source, ctx, lines);
            let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
            admit_by(f, &mut roots.compiler_at_entry(&mark), &probe.layout, otherwise);
        });
    }

    /// The entries' events, where both ends are taken.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn entries(
        self,
        f: &mut Func<'_>,
        lines: &Lines,
        who: &mut Who,
        source: Source,
        ctx: Reg,
        now: Reg,
        call: Operand,
    ) {
        let plan = self.plan;
        let entry = |group: usize| plan.probes.get(self.probe(group)?.pair? as usize);
        if entry(0).is_none() {
            return;
        }
        on_cpu(f, lines, plan);
        who.identify(f, plan);
        let cookie = f.call(Helper::GET_ATTACH_COOKIE, &[Arg::Reg(ctx)]);
        // The entry's probe comes just before the exit's.
        let index = f.alu(Alu::Sub, Width::W64, cookie, 1);
        let moment = Moment { now, entry_time: None, call: Some(call), index: index.into(), path: None };
        let here = Here::all(f, lines, plan);
        self.each(f, lines, cookie, &|f, group| {
            let Some(probe) = entry(group) else { return };
            let roots = Roots::new(plan, &probe.layout, source, ctx, lines);
            roots.now.set(Some(now));
            let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
            let compiler = &mut roots.compiler(&mark);
            write_one_of_many(f, lines, plan, &probe.layout, who, source, ctx, &moment, &here, compiler);
        });
    }

    /// The exits' events.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn exits(
        self,
        f: &mut Func<'_>,
        lines: &Lines,
        source: Source,
        ctx: Reg,
        cookie: Reg,
        start: Reg,
        call: Operand,
    ) {
        let plan = self.plan;
        apart(f, start, |f| {
            on_cpu(f, lines, plan);
            let mut who = Who::default();
            who.identify(f, plan);
            let now = f.call(Helper::KTIME_GET_NS, &[]);
            let moment = Moment {
                now,
                entry_time: Some(start.into()),
                call: Some(call),
                index: cookie.into(),
                path: None,
            };
            let here = Here::all(f, lines, plan);
            self.each(f, lines, cookie, &|f, group| {
                let Some(probe) = self.probe(group) else { return };
                let roots = Roots::new(plan, &probe.layout, source, ctx, lines);
                roots.now.set(Some(now));
                roots.entry_time.set(Some(start.into()));
                let mark = |f: &mut Func<'_>, text: &str| lines.mark(f, text);
                let compiler = &mut roots.compiler(&mark);
                write_one_of_many(f, lines, plan, &probe.layout, &who, source, ctx, &moment, &here, compiler);
            });
        });
    }

    /// Goes to the code of the cookie's group, halving the groups that are left. Code that finds no room in the ring falls
    /// through.
    fn each(self, f: &mut Func<'_>, lines: &Lines, cookie: Reg, code: &dyn Fn(&mut Func<'_>, usize)) {
        let group = f.alu(Alu::Rsh, Width::W64, cookie, 32);
        among(f, group, self.first, self.first + self.groups.len(), &|f, group| code(f, group - self.first));
        lines.mark(f, "the ring buffer is full");
        count(f, counter::LOST);
        f.ret(0);
    }
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
