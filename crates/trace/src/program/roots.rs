//! Where a program finds what expressions name.

use super::source::Source;
use super::{Lines, context_value};
use crate::arch;
use crate::layout::{Argument, Layout};
use crate::plan::Plan;
use asm::{Alu, Arg, Func, Helper, Operand, Reg, Size, Width};
use expr::Compiler;
use expr::tree::Root;
use std::cell::Cell;

/// One probe's.
pub(super) struct Roots<'p> {
    plan: &'p Plan,
    layout: &'p Layout,
    source: Source,
    ctx: Reg,
    lines: &'p Lines,
    /// The verifier knows the types of arguments, and guards loads through them.
    typed: bool,
    /// The event's time, once it is known.
    pub now: Cell<Option<Reg>>,
    /// At exits, the time of entry, once it is known.
    pub entry_time: Cell<Option<Operand>>,
}

impl<'p> Roots<'p> {
    pub(super) fn new(
        plan: &'p Plan,
        layout: &'p Layout,
        source: Source,
        ctx: Reg,
        lines: &'p Lines,
    ) -> Roots<'p> {
        Roots {
            plan,
            layout,
            source,
            ctx,
            lines,
            typed: false,
            now: Cell::new(None),
            entry_time: Cell::new(None),
        }
    }

    /// Lets arguments be followed by loads.
    pub(super) fn typed(self, typed: bool) -> Roots<'p> {
        Roots { typed, ..self }
    }

    /// A compiler of what is asked of the probe.
    pub(super) fn compiler<'r>(&'r self, mark: expr::Mark<'r>) -> Compiler<'r> {
        let mut compiler = Compiler::new(self, mark);
        let asked = &self.layout.asked;
        let tests = asked.tests.at_entry.iter().chain(&asked.tests.at_exit).flat_map(|c| &c.tests);
        compiler.foresee(tests, asked.shown.iter().map(|shown| &shown.output));
        compiler
    }

    /// A compiler of what is asked when a call begins, where a program sees that alone.
    pub(super) fn compiler_at_entry<'r>(&'r self, mark: expr::Mark<'r>) -> Compiler<'r> {
        let mut compiler = Compiler::new(self, mark);
        compiler.foresee(self.layout.asked.tests.at_entry.iter().flat_map(|c| &c.tests), []);
        compiler
    }

    fn argument(&self, f: &mut Func<'_>, n: u16, slot: u32) -> Reg {
        let Some(arg) = self.layout.args.get(usize::from(n)) else { return f.imm(0) };
        if let (0, Some(registers)) = (arg.slots, &self.layout.registers) {
            return self.register(f, arg, registers);
        }
        let place = arch::places(self.layout.args.iter().map(|a| a.size)).get(usize::from(n)).copied();
        let pointer = matches!(arg.shape, btf::Shape::Ptr { .. });
        self.source.word(f, arg, place.unwrap_or(arch::Place::Register(0)), slot, pointer, self.ctx)
    }

    /// An argument of a system call, in the registers that its wrapper's argument points to.
    fn register(&self, f: &mut Func<'_>, arg: &Argument, registers: &crate::layout::Registers) -> Reg {
        let first = self.source.first(f, self.ctx);
        let value = f.var();
        f.labelled(|f, _| {
            let cell = f.slot(8, 8);
            f.store_slot(Size::DW, cell, 0, 0);
            let from =
                f.alu(Alu::Add, Width::W64, first, i64::from(arg.offset - registers.offset + registers.from));
            f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(cell, 0), Arg::Imm(8), Arg::Reg(from)]);
            let word = f.load_slot(Size::DW, cell, 0);
            f.assign(value, word);
        });
        if registers.cleared.contains(&(arg.offset + 4)) { f.zext(value, Size::W) } else { value }
    }
}

impl expr::Source for Roots<'_> {
    fn word(&self, f: &mut Func<'_>, root: Root, slot: u32) -> Reg {
        match root {
            Root::Arg(n) => self.argument(f, n, slot),
            Root::Retval => match &self.layout.ret {
                Some(ret) => {
                    let pointer = matches!(ret.shape, btf::Shape::Ptr { .. });
                    self.source.result_word(f, ret, slot, pointer, self.ctx)
                }
                None => f.imm(0),
            },
            Root::Pid | Root::Tid => {
                if self.plan.current_task_btf {
                    let task = f.call(Helper::GET_CURRENT_TASK_BTF, &[]);
                    let at = if root == Root::Pid { self.plan.task.tgid } else { self.plan.task.pid };
                    return f.load(Size::W, task, at as i32);
                }
                let both = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
                if root == Root::Pid { f.alu(Alu::Rsh, Width::W64, both, 32) } else { f.zext(both, Size::W) }
            }
            Root::Cpu => f.call(Helper::GET_SMP_PROCESSOR_ID, &[]),
            Root::Cgroup => f.call(Helper::GET_CURRENT_CGROUP_ID, &[]),
            Root::Ns => match self.now.get() {
                Some(now) => now,
                None => f.call(Helper::KTIME_GET_NS, &[]),
            },
            Root::Duration => match (self.now.get(), self.entry_time.get()) {
                (Some(now), Some(start)) => f.alu(Alu::Sub, Width::W64, now, start),
                _ => f.imm(0),
            },
            Root::Context => context_value(f, self.lines, self.plan),
            Root::Task => f.call(Helper::GET_CURRENT_TASK, &[]),
            Root::PerCpu(id) => {
                let var = f.btf_var(id);
                f.call(Helper::THIS_CPU_PTR, &[Arg::Reg(var)])
            }
        }
    }

    fn typed(&self, root: Root) -> bool {
        match root {
            Root::Arg(n) => {
                self.typed && self.layout.args.get(usize::from(n)).is_some_and(|arg| arg.slots == 1)
            }
            Root::Retval => self.typed,
            Root::Task => self.plan.current_task_btf,
            _ => false,
        }
    }

    fn pointer(&self, f: &mut Func<'_>, root: Root) -> Reg {
        match root {
            Root::Task => f.call(Helper::GET_CURRENT_TASK_BTF, &[]),
            Root::Arg(n) => {
                let slot = self.layout.args.get(usize::from(n)).map_or(0, |arg| arg.slot);
                f.load(Size::DW, self.ctx, (slot * 8) as i32)
            }
            _ => {
                let slot = self.layout.ret.as_ref().map_or(0, |ret| ret.slot);
                f.load(Size::DW, self.ctx, (slot * 8) as i32)
            }
        }
    }

    fn known(&self, f: &mut Func<'_>, root: Root) -> Option<Reg> {
        match (root, self.entry_time.get()?) {
            (Root::Duration, Operand::Reg(start)) => Some(start),
            (Root::Duration, Operand::Imm(start)) => Some(f.imm(start)),
            _ => None,
        }
    }

    fn cheap(&self, root: Root) -> bool {
        matches!(
            (root, self.source),
            (Root::Arg(_) | Root::Retval, Source::Slots | Source::Registers | Source::Kept(_))
        ) && !matches!(root, Root::Arg(n) if self.layout.args.get(usize::from(n)).is_none_or(|arg| arg.slots == 0))
    }
}
