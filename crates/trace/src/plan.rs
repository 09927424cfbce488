//! The plan: for each target the attach method, and the layout of its events.

use crate::context::PreemptCount;
use crate::danger;
use crate::error::Error;
use crate::filter::Filter;
use crate::kernel::{Kernel, TaskFields};
use crate::layout::{Captures, Layout};
use crate::request::{Mode, Request, TargetKind};
use crate::target::{self, Resolved, Target};
use std::fmt;

/// How a program comes to run at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A trampoline at the function's entry.
    Fentry,
    /// A trampoline around the function; our program runs at its return, a smaller one at its entry for the time.
    Fexit,
    /// A tracepoint, arguments typed by BTF.
    TpBtf,
    /// A tracepoint, arguments as untyped words: where tp_btf is refused.
    RawTp,
}

impl Method {
    /// The kernel's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Method::Fentry => "fentry",
            Method::Fexit => "fexit",
            Method::TpBtf => "tp_btf",
            Method::RawTp => "raw_tp",
        }
    }

    /// What the program is loaded for.
    pub(crate) fn attach_type(self) -> bpf::AttachType {
        match self {
            Method::Fentry => bpf::AttachType::Fentry,
            Method::Fexit => bpf::AttachType::Fexit,
            Method::TpBtf => bpf::AttachType::TpBtf,
            Method::RawTp => bpf::AttachType::None,
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A target with its method and layout.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What is traced.
    pub target: Target,
    /// How.
    pub method: Method,
    /// What its events hold.
    pub layout: Layout,
    /// With entries and exits both, the index of the probe at the call's other end. The two are attached as one.
    pub pair: Option<u32>,
}

impl Probe {
    /// Whether it is the entry of a pair, which its exit's probe attaches.
    pub(crate) fn is_paired_entry(&self) -> bool {
        self.pair.is_some() && self.method == Method::Fentry
    }
}

/// What will be loaded. It borrows nothing from the kernel's BTF, which can be dropped now.
#[derive(Debug)]
pub struct Plan {
    /// Probes; an event names its own by index.
    pub probes: Vec<Probe>,
    /// Targets that cannot be traced, with the reason.
    pub refused: Vec<(String, String)>,
    pub(crate) filter: Filter,
    pub(crate) task: TaskFields,
    pub(crate) current_task_btf: bool,
    pub(crate) preempt_count: Option<PreemptCount>,
    pub(crate) ring_size: u32,
}

impl Plan {
    /// Resolves and plans a request.
    ///
    /// A target that cannot be traced is an error when it is the only one; else it is listed in
    /// [`Plan::refused`] and the rest go on.
    pub fn new(kernel: &Kernel, request: &Request) -> Result<Plan, Error> {
        let Resolved { targets, mut refused } = target::resolve(kernel, &request.targets)?;
        let count = targets.len() + refused.len();
        let mut probes = Vec::with_capacity(targets.len());
        let preempt_count = PreemptCount::of(&kernel.btf);
        if preempt_count.is_none() {
            log::debug!("this kernel does not tell where its preempt count is: interrupts are not marked");
        }
        let captures = Captures {
            string_size: request.string_size,
            pointees: request.pointees,
            context: preempt_count.is_some(),
            stack: request.stack,
        };
        for target in targets {
            let method = match (target.kind, request.mode) {
                (TargetKind::Tracepoint, _) => Method::TpBtf,
                (TargetKind::Function, Mode::Entry) => Method::Fentry,
                (TargetKind::Function, Mode::Exit | Mode::Both) => Method::Fexit,
            };
            let danger = match target.kind {
                TargetKind::Function if !request.force => danger::reason(&target.name),
                _ => None,
            };
            let obstacle = match target.obstacle(kernel) {
                Ok(None) if danger.is_some() => {
                    Ok(danger.map(|reason| format!("refused: {reason} (--force traces it all the same)")))
                }
                Ok(None) if request.filter.errors => {
                    no_errors(kernel, &target, method, request.mode == Mode::Both)
                        .map(|reason| reason.map(str::to_string))
                }
                obstacle => obstacle,
            };
            let both = method == Method::Fexit && request.mode == Mode::Both;
            let laid_out = obstacle.and_then(|obstacle| match obstacle {
                Some(reason) => Err(Error::Target { target: target.label(), reason }),
                None => {
                    let layout = |method| Layout::new(kernel, &target, method, both, captures);
                    let entry = both.then(|| layout(Method::Fentry)).transpose()?;
                    Ok((entry, layout(method)?))
                }
            });
            match laid_out {
                Ok((None, layout)) => probes.push(Probe { target, method, layout, pair: None }),
                Ok((Some(entry), layout)) => {
                    let index = probes.len() as u32;
                    let first = Probe {
                        target: target.clone(),
                        method: Method::Fentry,
                        layout: entry,
                        pair: Some(index + 1),
                    };
                    probes.push(first);
                    probes.push(Probe { target, method, layout, pair: Some(index) });
                }
                Err(Error::Target { reason, .. }) if count > 1 => refused.push((target.label(), reason)),
                // One odd prototype is no reason to trace nothing.
                Err(error @ Error::Btf(_)) if count > 1 => refused.push((target.label(), error.to_string())),
                Err(error) => return Err(error),
            }
        }
        if let (true, Some((target, reason))) = (probes.is_empty(), refused.first()) {
            return Err(Error::AllFailed { count, first: format!("{target}: {reason}") });
        }
        Ok(Plan {
            probes,
            refused,
            filter: request.filter.clone(),
            task: kernel.task,
            current_task_btf: kernel.current_task_btf,
            preempt_count,
            ring_size: request.ring_size,
        })
    }
}

/// Why a filter for errors cannot apply to a target, if it cannot.
fn no_errors(
    kernel: &Kernel,
    target: &Target,
    method: Method,
    both: bool,
) -> Result<Option<&'static str>, Error> {
    if method != Method::Fexit || both {
        return Ok(Some("only errors are wanted, and an event here is not a function's return"));
    }
    let btf = kernel.types_of(target)?;
    let ret = btf.get(btf.resolve(target.ret))?;
    let signed = ret.int().is_some_and(|int| int.signed) && matches!(ret.size(), Some(4 | 8));
    let pointer = ret.kind() == btf::Kind::Ptr;
    Ok((!signed && !pointer)
        .then_some("only errors are wanted, and it returns neither a signed number nor a pointer"))
}
