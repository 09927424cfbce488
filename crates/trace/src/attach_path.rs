//! Attaching to a function's blocks.

use crate::attach::{Attached, Attacher, Piece, assemble, refusal};
use crate::error::Error;
use crate::plan::{Method, Probe};
use crate::program;
use bpf::{AttachType, KprobeAt, ProgType};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Blocks that one program is attached to: each program's links are detached one after the other, programs side by side.
const SHARE: usize = 16;

/// What the kernel says of places where no kprobe can be: not at an instruction's beginning; in code that kprobes must not touch, or that is
/// patched itself (static branches, static calls, BUG); shared with another probe that cannot be moved (kernel/kprobes.c,
/// arch/x86/kernel/kprobes/core.c): ENOENT, EACCES, EBUSY, EINVAL, EILSEQ, EOPNOTSUPP, EADDRNOTAVAIL.
const NOT_THERE: [i32; 7] = [2, 13, 16, 22, 84, 95, 99];

impl Attacher<'_> {
    /// Attaches to a function's blocks, then to its entry and return, so that no path lacks a block that was not attached yet.
    pub fn by_path(&self, index: u32, probe: &Probe) -> Result<Attached, Error> {
        let lacking = |reason: &str| Error::Target { target: probe.target.label(), reason: reason.into() };
        let Some(Some(code)) = self.plan.codes.get(index as usize) else {
            return Err(lacking("its code was not found"));
        };
        if self.plan.task_stack.is_none() {
            return Err(lacking("this kernel does not tell where a task's stack is"));
        }
        let name = format!("at_{}", probe.target.name);
        let assembled =
            assemble(&probe.target.name, &program::hits(self.plan, index, code, &probe.target.name))?;
        log::trace!("{name}:\n{}", assembled.dump());
        let mut pieces: Vec<Piece> = Vec::new();
        let mut unprobed = BTreeSet::new();
        for (at, block) in code.blocks.list().iter().enumerate() {
            // What is attached already is detached with all the rest.
            if self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                let path = Some((unprobed, pieces));
                return Ok(Attached { method: Method::Kprobe, pieces: Vec::new(), remark: None, path });
            }
            // The entry's own probe tells of the first.
            if block.start == code.address {
                continue;
            }
            if pieces.last().is_none_or(|piece| piece.links.len() >= SHARE) {
                let program = self
                    .load(&assembled, &name, ProgType::Kprobe, AttachType::None, None)
                    .map_err(|error| refusal(error, probe, "kprobe"))?;
                pieces.push(Piece::new(program, Vec::new()));
            }
            let Some(piece) = pieces.last_mut() else { continue };
            let mut why = None;
            for place in &block.places {
                match bpf::attach_kprobe(&piece.program, KprobeAt::Address(*place), false) {
                    Ok(link) => {
                        piece.links.push(link);
                        why = None;
                        break;
                    }
                    Err(error) if error.errno().is_some_and(|errno| NOT_THERE.contains(&errno)) => {
                        why = Some(error);
                    }
                    // Not about the place: too many open files, no memory.
                    Err(error) => {
                        return Err(lacking(&format!("a probe on its block at {place:#x}: {error}")));
                    }
                }
            }
            if let Some(error) = why {
                log::debug!("{}: no probe on its block at {:#x}: {error}", probe.target.label(), block.start);
                unprobed.insert(at);
            }
        }
        let attached = self.by_kprobe(index, probe, Some(&[code.address]))?;
        Ok(Attached { path: Some((unprobed, pieces)), ..attached })
    }
}
