//! Attaching to a function's blocks.

use crate::attach::{AtBlocks, Attached, Attacher, Piece, assemble, refusal};
use crate::error::Error;
use crate::path::Code;
use crate::plan::{Method, Probe};
use crate::program;
use bpf::{AttachType, KprobeAt, Link, ProgType, Program};
use std::collections::BTreeMap;
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
        let mut at_blocks = AtBlocks::default();
        // Where each block's probe is, and which link of which piece it is.
        let mut placed: BTreeMap<usize, (u64, usize, usize)> = BTreeMap::new();
        for (at, block) in code.blocks.list().iter().enumerate() {
            self.count_block(at);
            if self.is_stopped() {
                return Ok(in_part(at_blocks));
            }
            // The entry's own probe tells of the first.
            if block.start == code.address {
                continue;
            }
            let pieces = &mut at_blocks.pieces;
            if pieces.last().is_none_or(|piece| piece.links.len() >= SHARE) {
                pieces.push(Piece::new(self.load_kprobe(&assembled, &name, probe)?, Vec::new()));
            }
            let number = pieces.len() - 1;
            let Some(piece) = pieces.last_mut() else { continue };
            match self.on_one(&piece.program, &block.places, probe)? {
                Ok((place, link)) => {
                    placed.insert(at, (place, number, piece.links.len()));
                    piece.links.push(link);
                }
                Err(why) => {
                    log::debug!(
                        "{}: no probe on its block at {:#x}: {why}",
                        probe.target.label(),
                        block.start
                    );
                    at_blocks.unprobed.insert(at);
                }
            }
        }
        let known = Code { unprobed: at_blocks.unprobed.clone(), ..code.clone() };
        let mut idle = Vec::new();
        for decision in known.decisions() {
            if self.is_stopped() {
                return Ok(in_part(at_blocks));
            }
            // Of two probes in one place the kernel does not say which comes first: so one tells both.
            let own = placed.get(&decision.block).filter(|(place, ..)| *place == decision.at);
            let program =
                program::decision(self.plan, index, code, &probe.target.name, decision, own.is_some());
            let Some(program) = program else { continue };
            let program = self.load_kprobe(&assemble(&probe.target.name, &program)?, &name, probe)?;
            match self.on_one(&program, &[decision.at], probe)? {
                Ok((_, link)) => {
                    at_blocks.pieces.push(Piece::new(program, vec![link]));
                    idle.extend(own.map(|(_, piece, link)| (*piece, *link)));
                    let told = [decision.taken, decision.fell].into_iter().flatten();
                    at_blocks.told.extend(told.map(|to| (decision.block, to)));
                }
                Err(why) => {
                    log::debug!(
                        "{}: no probe on its jump at {:#x}: {why}",
                        probe.target.label(),
                        decision.at
                    );
                }
            }
        }
        idle.sort_unstable();
        for (piece, link) in idle.into_iter().rev() {
            if let Some(piece) = at_blocks.pieces.get_mut(piece).filter(|piece| link < piece.links.len()) {
                piece.links.remove(link);
            }
        }
        let attached = self.by_kprobe(index, probe, Some(&[code.address]))?;
        Ok(Attached { path: Some(at_blocks), ..attached })
    }

    /// Counts the block before one as done.
    fn count_block(&self, at: usize) {
        if let (Some(blocks), 1..) = (self.blocks, at) {
            blocks.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn load_kprobe(&self, assembled: &asm::Code, name: &str, probe: &Probe) -> Result<Program, Error> {
        self.load(assembled, name, ProgType::Kprobe, AttachType::None, None)
            .map_err(|error| refusal(error, probe, "kprobe"))
    }

    /// Attaches to the first of these places where a probe can be; else says why there is none.
    fn on_one(
        &self,
        program: &Program,
        places: &[u64],
        probe: &Probe,
    ) -> Result<Result<(u64, Link), String>, Error> {
        let mut why = "it has no instruction".to_string();
        for place in places {
            match bpf::attach_kprobe(program, KprobeAt::Address(*place), false) {
                Ok(link) => return Ok(Ok((*place, link))),
                Err(error) if error.errno().is_some_and(|errno| NOT_THERE.contains(&errno)) => {
                    why = error.to_string();
                }
                // Not about the place: too many open files, no memory.
                Err(error) => {
                    let reason = format!("a probe on its block at {place:#x}: {error}");
                    return Err(Error::Target { target: probe.target.label(), reason });
                }
            }
        }
        Ok(Err(why))
    }
}

/// What was attached before somebody lost patience: it is detached with all the rest.
fn in_part(at_blocks: AtBlocks) -> Attached {
    Attached { method: Method::Kprobe, pieces: Vec::new(), remark: None, path: Some(at_blocks) }
}
