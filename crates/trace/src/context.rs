//! What interrupted what: the context that an event happened in, from the kernel's count of preemptions.
//!
//! The count's bits are those of include/linux/preempt.h. Where it lies has moved from kernel to kernel (a per-CPU
//! variable of its own, a member of `pcpu_hot` from 6.2 to 6.14), so the kernel's BTF is asked.

use asm::{Arg, Helper, Program, Size};
use bpf::{Load, ProgType};
use btf::{Btf, Kind, TypeId};

/// What was running when an event happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// A task, in the kernel on its own behalf.
    Task,
    /// A softirq was being served: the task shown was only interrupted.
    Softirq,
    /// An interrupt handler.
    Hardirq,
    /// A non-maskable interrupt.
    Nmi,
}

impl Context {
    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Context::Task => "task",
            Context::Softirq => "softirq",
            Context::Hardirq => "hardirq",
            Context::Nmi => "nmi",
        }
    }

    /// Reads bits 8 to 23 of the count, as the header keeps them.
    pub(crate) fn of(bits: u16) -> Context {
        match bits {
            _ if bits & NMI != 0 => Context::Nmi,
            _ if bits & HARDIRQ != 0 => Context::Hardirq,
            _ if bits & SERVING_SOFTIRQ != 0 => Context::Softirq,
            _ => Context::Task,
        }
    }
}

/// Bits of the count that are left out at its low end: `PREEMPT_BITS`.
pub(crate) const SHIFT: u32 = 8;
/// `SOFTIRQ_OFFSET`; the higher bits of the field count `local_bh_disable()`, which a task does too.
const SERVING_SOFTIRQ: u16 = 1 << (8 - SHIFT);
/// `HARDIRQ_MASK`.
const HARDIRQ: u16 = 0xf << (16 - SHIFT);
/// `NMI_MASK`.
const NMI: u16 = 0xf << (20 - SHIFT);

/// Bits of the header's context of softirqs, hardirqs and NMIs: the last of them that is set tells.
pub(crate) const MASKS: [u16; 3] = [SERVING_SOFTIRQ, HARDIRQ, NMI];

/// Where the count lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PreemptCount {
    /// The per-CPU variable.
    pub var: TypeId,
    /// Offset in it, bytes.
    pub offset: u32,
}

/// The helper that gives a per-CPU variable's address; 5.10 spells its number with the prefix twice.
const THIS_CPU_PTR: [&str; 2] = ["BPF_FUNC_this_cpu_ptr", "BPF_FUNC_bpf_this_cpu_ptr"];

impl PreemptCount {
    /// Asks the kernel's BTF; `None` where it does not say, or where programs cannot read per-CPU variables.
    pub fn of(btf: &Btf) -> Option<PreemptCount> {
        let names = ["__preempt_count", "pcpu_hot"];
        let wanted = names.map(|name| (Kind::Var, name));
        let found = btf.find_many(&[wanted[0], wanted[1], (Kind::Datasec, ".data..percpu")]);
        let &[own, hot, per_cpu] = found.as_slice() else { return None };
        let count = match (own, hot) {
            (Some(var), _) => PreemptCount { var, offset: 0 },
            (None, Some(var)) => {
                let strukt = btf.get(var).ok()?.target().map(|t| btf.resolve(t))?;
                PreemptCount { var, offset: btf.member(strukt, "preempt_count").ok()?.bit_offset / 8 }
            }
            (None, None) => return None,
        };
        // The verifier looks for the variable there, and takes the load for a plain one if it is not.
        let listed = btf.get(per_cpu?).ok()?.section_vars().any(|v| v.var == count.var);
        let helper = THIS_CPU_PTR.iter().any(|name| btf.enum_has("bpf_func_id", name).is_some());
        (listed && helper && count.is_readable()).then_some(count)
    }

    /// Whether the kernel takes a program that reads it: the address comes from kallsyms, which has no variables
    /// without CONFIG_KALLSYMS_ALL, whatever BTF lists.
    fn is_readable(self) -> bool {
        let mut program = Program::new("preempt_count", "context");
        program.main(|f| {
            f.line("preempt count", 1, 1);
            let var = f.btf_var(self.var.0);
            let here = f.call(Helper::THIS_CPU_PTR, &[Arg::Reg(var)]);
            let count = f.load(Size::W, here, self.offset as i32);
            f.ret(count);
        });
        let Ok(code) = program.assemble(&asm::Options::default()) else { return false };
        let Ok(insns) = code.relocate(|_| -1) else { return false };
        match bpf::Program::load(&Load::new("preempt_count", ProgType::RawTracepoint, &insns)) {
            Ok(_) => true,
            Err(error) => {
                log::debug!("the preempt count cannot be read: {error}");
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Context;

    /// Values of preempt_count, whole, and what they mean (include/linux/preempt.h).
    #[test]
    fn counts_and_contexts() {
        let of = |count: u32| Context::of((count >> super::SHIFT) as u16);
        for (count, context) in [
            (0, Context::Task),
            (0x8000_0003, Context::Task),
            (0x0000_0200, Context::Task),
            (0x0000_0101, Context::Softirq),
            (0x0000_0301, Context::Softirq),
            (0x0001_0000, Context::Hardirq),
            (0x0001_0101, Context::Hardirq),
            (0x0010_0000, Context::Nmi),
            (0x0011_0100, Context::Nmi),
        ] {
            assert_eq!(of(count), context, "{count:#x}");
        }
    }
}
