//! Where stack slots lie below the frame pointer.

use crate::cfg::{Cfg, Inst, Term};
use crate::ir::{Op, Operand, Reg, Slot};
use crate::liveness::liveness;
use crate::spill::spill_access;

/// The stack of one function.
pub(crate) struct Frame {
    /// By slot: its first byte, relative to r10.
    pub offsets: Vec<i32>,
    /// Bytes used.
    pub size: u32,
}

/// Places every slot. Slots of blocks that are never open together share their bytes, and so do spilled values that
/// are never alive together.
pub(crate) fn frame(cfg: &Cfg) -> Frame {
    let mut offsets = vec![0i32; cfg.slots.len()];
    let user = cfg.first_spill as usize;
    let mut depth = 0;
    // A scope's parent has a smaller number, so its end is known when the scope is reached.
    let mut ends = vec![0u32; cfg.scopes.len()];
    for scope in 0..cfg.scopes.len() {
        let mut end = if scope == 0 { 0 } else { ends[cfg.scopes[scope] as usize] };
        let mut slots: Vec<usize> = (0..user).filter(|s| cfg.slots[*s].scope as usize == scope).collect();
        slots.sort_by_key(|s| std::cmp::Reverse(cfg.slots[*s].align));
        for s in slots {
            end = end.saturating_add(cfg.slots[s].size).next_multiple_of(cfg.slots[s].align);
            offsets[s] = 0i32.saturating_sub_unsigned(end);
        }
        ends[scope] = end;
        depth = depth.max(end);
    }
    if cfg.slots.len() > user {
        depth = depth.next_multiple_of(8);
        let colours = colour_spills(cfg);
        for (i, colour) in colours.iter().enumerate() {
            offsets[user + i] = 0i32.saturating_sub_unsigned(depth.saturating_add(8 * (colour + 1)));
        }
        depth = depth.saturating_add(colours.iter().map(|c| 8 * (c + 1)).max().unwrap_or(0));
    }
    Frame { offsets, size: depth }
}

/// A number for each spill slot, different for slots that hold values at the same time.
fn colour_spills(cfg: &Cfg) -> Vec<u32> {
    let first = cfg.first_spill;
    let count = cfg.slots.len() as u32 - first;
    // The same function with only its spill traffic left, slots taking the place of registers.
    let reg = |s: Slot| Reg { func: cfg.func, id: s.id - first };
    let nothing = Reg { func: cfg.func, id: count };
    let mut shadow = cfg.clone();
    shadow.params.clear();
    shadow.nregs = count + 1;
    for b in &cfg.order {
        let block = &mut shadow.blocks[*b];
        block.insts = cfg.blocks[*b]
            .insts
            .iter()
            .filter_map(|inst| {
                let op = match spill_access(&inst.op, first)? {
                    (s, true) => Op::Mov { dst: reg(s), src: Operand::Imm(0) },
                    (s, false) => Op::Mov { dst: nothing, src: Operand::Reg(reg(s)) },
                };
                Some(Inst { op, line: None })
            })
            .collect();
        match &mut block.term {
            Term::Jump(_) => {}
            Term::Cond { a, b, .. } => (*a, *b) = (nothing, Operand::Imm(0)),
            Term::Ret(v) => *v = Operand::Imm(0),
        }
    }
    let ranges = liveness(&shadow).ranges;
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_by_key(|s| ranges[*s as usize].parts.first().copied());
    let mut colours = vec![0u32; count as usize];
    let mut taken: Vec<Vec<(u32, u32)>> = Vec::new();
    for s in order {
        let parts = &ranges[s as usize].parts;
        let free = taken.iter().position(|busy| {
            parts.iter().all(|(start, end)| busy.iter().all(|(s, e)| end <= s || e <= start))
        });
        let colour = free.unwrap_or(taken.len());
        if colour == taken.len() {
            taken.push(Vec::new());
        }
        taken[colour].extend(parts);
        colours[s as usize] = colour as u32;
    }
    colours
}
