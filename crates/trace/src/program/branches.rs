//! The branch records of an event: taken before anything else, copied when there is a record to hold them.
//!
//! Any branch that our program takes pushes the oldest record out, so the snapshot is its first call, with nothing but straight
//! code before. 768 bytes do not fit its stack. A per-CPU map would be the usual place, and would be wrong twice: the look-up
//! calls a helper before 6.10 (four branches), and tracing programs are preemptible, so that two of them can be under way on one
//! CPU. So all share one array of one element, whose value the program knows by its address (`BPF_PSEUDO_MAP_VALUE`), and in it the cell
//! that the hash of the call's place on the stack says: no call, no branch.
//!
//! Two calls under way can have one cell, rarely. A cell counts who began and who has ended writing to it: who was not alone, or
//! finds that somebody has begun since, has no records, and the event says so ([`branches::OVERWRITTEN`]). Nothing has to be given
//! back, whichever way the program ends.

use super::calls::MULTIPLIER;
use super::{Lines, maps};
use crate::branches;
use crate::plan::Plan;
use asm::{Alu, Arg, Cmp, Func, Helper, Reg, Size, Width};

/// A cell of [`maps::SNAPSHOTS`].
mod cell {
    /// `u64` snapshots begun here.
    pub const BEGUN: i32 = 0;
    /// `u64` snapshots ended here.
    pub const ENDED: i32 = 8;
    /// `u64` place of the call whose snapshot this is; 0: of none.
    pub const OWNER: i32 = 16;
    /// `i64` what the helper returned.
    pub const LENGTH: i32 = 24;
    /// The records.
    pub const RECORDS: i32 = 32;
    /// Bytes of a cell, as a power of two.
    pub const BITS: u32 = 10;
    const _: () = assert!(RECORDS as u32 + crate::branches::ROOM <= 1 << BITS);
}

/// How many cells there are, as a power of two, for so many CPUs: enough that two of those under way rarely meet.
pub fn cells(cpus: usize) -> u32 {
    cpus.saturating_mul(16).clamp(64, 1024).next_power_of_two().trailing_zeros()
}

/// Bytes of all `1 << bits` cells, the value of [`maps::SNAPSHOTS`].
pub fn size(bits: u32) -> u32 {
    1 << (bits + cell::BITS)
}

/// Takes the snapshot, if the plan has it. Nothing that branches or calls may be before.
pub(super) fn snapshot(f: &mut Func<'_>, lines: &Lines, plan: &Plan, ctx: Reg) {
    let Some(bits) = plan.branches else { return };
    lines.mark(f, "branch records, before any branch of ours");
    take(f, bits, ctx);
}

/// Takes the snapshot into the call's cell.
fn take(f: &mut Func<'_>, bits: u32, ctx: Reg) {
    let (place, cell) = find(f, bits, ctx);
    let one = f.imm(1);
    let before = f.fetch_add(Size::DW, cell, cell::BEGUN, one);
    let ended = f.load(Size::DW, cell, cell::ENDED);
    let room = [Arg::Offset(cell, cell::RECORDS), Arg::Imm(branches::ROOM.into()), Arg::Imm(0)];
    let length = f.call(Helper::GET_BRANCH_SNAPSHOT, &room);
    let begun = f.load(Size::DW, cell, cell::BEGUN);
    let owner = f.var();
    f.assign(owner, 0);
    let alone = f.alu(Alu::Add, Width::W64, before, 1);
    f.if_(Cmp::Eq, Width::W64, ended, before, |f| {
        f.if_(Cmp::Eq, Width::W64, begun, alone, |f| f.assign(owner, place));
    });
    f.store(Size::DW, cell, cell::LENGTH, length);
    f.store(Size::DW, cell, cell::OWNER, owner);
    let one = f.imm(1);
    f.atomic_add(Size::DW, cell, cell::ENDED, one);
}

/// Copies the snapshot of this call into the record: its length, or an error, and the records.
pub(super) fn copy(f: &mut Func<'_>, lines: &Lines, plan: &Plan, ctx: Reg, record: Reg, at: u32) {
    let Some(bits) = plan.branches else { return };
    lines.mark(f, "branch records");
    hand_over(f, bits, ctx, record, at);
}

/// Copies what is in the call's cell, if it is still this call's.
fn hand_over(f: &mut Func<'_>, bits: u32, ctx: Reg, record: Reg, at: u32) {
    let (place, cell) = find(f, bits, ctx);
    f.store(Size::DW, record, at as i32, i64::from(branches::OVERWRITTEN));
    let ended = f.load(Size::DW, cell, cell::ENDED);
    // An addition of nothing, for what is before and behind to stay there: it is a barrier.
    let nothing = f.imm(0);
    let begun = f.fetch_add(Size::DW, cell, cell::BEGUN, nothing);
    let owner = f.load(Size::DW, cell, cell::OWNER);
    let length = f.load(Size::DW, cell, cell::LENGTH);
    let to = Arg::Offset(record, at as i32 + 8);
    let from = Arg::Offset(cell, cell::RECORDS);
    f.call(Helper::PROBE_READ_KERNEL, &[to, Arg::Imm(branches::ROOM.into()), from]);
    let nothing = f.imm(0);
    let now = f.fetch_add(Size::DW, cell, cell::BEGUN, nothing);
    f.if_(Cmp::Eq, Width::W64, owner, place, |f| {
        f.if_(Cmp::Eq, Width::W64, begun, ended, |f| {
            f.if_(Cmp::Eq, Width::W64, now, begun, |f| f.store(Size::DW, record, at as i32, length));
        });
    });
}

/// The call's place on the stack, as the difference that the verifier gives away, and its cell. The same for all programs of
/// one call, tail calls included.
fn find(f: &mut Func<'_>, bits: u32, ctx: Reg) -> (Reg, Reg) {
    let map = f.map(maps::SNAPSHOTS);
    let place = f.alu(Alu::Sub, Width::W64, ctx, map);
    let hash = f.alu(Alu::Mul, Width::W64, place, MULTIPLIER);
    let number = f.alu(Alu::Rsh, Width::W64, hash, i64::from(64 - bits));
    let offset = f.alu(Alu::Lsh, Width::W64, number, i64::from(cell::BITS));
    let cells = f.map_value(maps::SNAPSHOTS, 0);
    (place, f.alu(Alu::Add, Width::W64, cells, offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Filter;
    use crate::kernel::SessionKfuncs;
    use crate::program::{self, ArgAccess, Ends};
    use crate::request::Scope;
    use crate::{Kernel, Mode, Pattern, Request, TargetKind, TargetSpec};
    use asm::Program;
    use btf::TypeId;

    #[test]
    fn there_are_cells_for_every_cpu_and_not_too_many() {
        assert_eq!([1, 4, 5, 8, 64, 10_000].map(cells), [6, 6, 7, 7, 10, 10]);
        assert_eq!(size(6), 64 << 10);
        assert_eq!(size(10), 1 << 20);
    }

    /// A plan of the running kernel's `vfs_read`, with everything that costs stack.
    fn plan(mode: Mode) -> Option<Plan> {
        let kernel = match Kernel::running() {
            Ok(kernel) => kernel,
            Err(error) => {
                println!("SKIP: {error}");
                return None;
            }
        };
        let pattern = Pattern::new("vfs_read").expect("pattern");
        let request = Request {
            targets: vec![TargetSpec { kind: TargetKind::Function, pattern, scope: Scope::default() }],
            programs: Vec::new(),
            mode,
            filter: Filter { tgids: vec![1, 2, 3], not_tgid: Some(4), followed: true, ..Filter::default() },
            expressions: Default::default(),
            force: false,
            path: None,
            stack: true,
            branches: true,
            string_size: 64,
            pointees: true,
            ring_size: 1 << 16,
        };
        match Plan::new(&kernel, &request) {
            Err(error @ crate::Error::NoBranchSnapshot) => {
                println!("SKIP: {error}");
                None
            }
            plan => Some(plan.expect("plan")),
        }
    }

    /// The snapshot is the first call, and before it nothing jumps.
    fn begins_with_the_snapshot(what: &str, program: &Program) {
        const CALL: u64 = 0x85;
        let code = program.assemble(&asm::Options::default()).expect("assemble");
        assert!(code.stack_used <= 512, "{what}: {}", code.stack_used);
        for insn in code.relocate(|_| 3).expect("maps") {
            let (opcode, immediate) = (insn & 0xff, (insn >> 32) as u32);
            if opcode == CALL {
                assert_eq!(immediate.cast_signed(), Helper::GET_BRANCH_SNAPSHOT.0, "{what}");
                return;
            }
            // BPF_JMP and BPF_JMP32.
            assert!(![5, 6].contains(&(opcode & 7)), "{what}: a jump before the snapshot");
        }
        panic!("{what}: no snapshot");
    }

    #[test]
    fn nothing_is_called_and_nothing_jumps_before_the_snapshot() {
        let kfuncs = SessionKfuncs { is_return: TypeId(1), cookie: TypeId(2) };
        let (Some(both), Some(entries)) = (plan(Mode::Both), plan(Mode::Entry)) else { return };
        let (entry, exit) = (&both.probes[0], &both.probes[1]);
        for access in [ArgAccess::Plain, ArgAccess::Copied] {
            begins_with_the_snapshot("fentry", &program::event(&both, 0, entry, access));
            begins_with_the_snapshot("fexit", &program::event(&both, 1, exit, access));
            begins_with_the_snapshot("fsession", &program::session(&both, kfuncs, 1, exit, access));
        }
        begins_with_the_snapshot("kprobe", &program::kprobe(&entries, 0, &entries.probes[0]));
        begins_with_the_snapshot("kept entry", &program::keep(&both, 1, exit));
        begins_with_the_snapshot("kretprobe", &program::kretprobe(&both, 1, exit));
        let entry_groups = [vec![0]];
        let exit_groups = [vec![1]];
        begins_with_the_snapshot("many entries", &program::many(&entries, &entry_groups, Ends::Entries));
        begins_with_the_snapshot("many", &program::many(&both, &exit_groups, Ends::Both(kfuncs)));
        begins_with_the_snapshot("fork", &program::fork(&both, Ends::Both(kfuncs), 2, true));
        begins_with_the_snapshot("dispatch", &program::dispatch(&both, Ends::Both(kfuncs), 2, 0));
        begins_with_the_snapshot("dispatch entries", &program::dispatch(&entries, Ends::Entries, 2, 2));
    }

    #[test]
    fn the_records_lie_before_the_stack() {
        let Some(both) = plan(Mode::Both) else { return };
        let layout = &both.probes[0].layout;
        assert_eq!(layout.branch_bytes(), Some(776));
        assert!(layout.branches < layout.stack);
    }

    /// Takes a snapshot and copies it as a program does, in the evaluator of its instructions; `intrude` is told of each helper's call, and
    /// where the cell is, before the helper does its work. Gives the length in the record, and its first record.
    fn evaluated(mut intrude: impl FnMut(Helper, u64, &mut asm::Memory)) -> (i64, [u64; 3]) {
        const BITS: u32 = 6;
        let mut program = Program::new("snapshot", "snapshot");
        program.main(|f| {
            let ctx = f.ctx();
            take(f, BITS, ctx);
            f.call(Helper::KTIME_GET_NS, &[]);
            let ring = [Arg::Map(maps::RING), Arg::Imm(776), Arg::Imm(0)];
            let record = f.call(Helper::RINGBUF_RESERVE, &ring);
            hand_over(f, BITS, ctx, record, 0);
            f.call(Helper::RINGBUF_SUBMIT, &[Arg::Reg(record), Arg::Imm(0)]);
            f.ret(0);
        });
        let mut machine = asm::Machine::new(&[0; 64]);
        machine.memory.add_map(maps::SNAPSHOTS, size(BITS) as usize, &vec![0; size(BITS) as usize]);
        let mut at = 0;
        machine.helpers = Some(Box::new(move |helper, args, memory| {
            if helper == Helper::GET_BRANCH_SNAPSHOT {
                assert_eq!(args[1..], [768, 0]);
                at = args[0] - cell::RECORDS as u64;
            }
            intrude(helper, at, memory);
            match helper {
                Helper::GET_BRANCH_SNAPSHOT => {
                    for (n, word) in [0x1111, 0x2222, 3].into_iter().enumerate() {
                        memory.store(Size::DW, args[0] + 8 * n as u64, word)?;
                    }
                    Ok(Some(24))
                }
                Helper::KTIME_GET_NS => Ok(Some(1)),
                _ => Ok(None),
            }
        }));
        program.evaluate(&mut machine).expect("evaluated");
        let (_, record) = machine.records.pop().expect("a record");
        let word = |n: usize| u64::from_ne_bytes(record[8 * n..8 * n + 8].try_into().expect("a word"));
        (word(0).cast_signed(), [word(1), word(2), word(3)])
    }

    /// Adds to a word of a cell.
    fn bump(memory: &mut asm::Memory, cell: u64, word: i32) {
        let at = cell + word as u64;
        let old = memory.load(Size::DW, at).expect("a word");
        memory.store(Size::DW, at, old + 1).expect("a word");
    }

    #[test]
    fn what_was_taken_is_what_is_copied() {
        assert_eq!(evaluated(|_, _, _| {}), (24, [0x1111, 0x2222, 3]));
    }

    #[test]
    fn a_snapshot_that_met_anothers_is_not_shown() {
        let busy = i64::from(branches::OVERWRITTEN);
        // Another program began and ended between our snapshot and our copy: its own is there.
        let whole = |helper, cell, memory: &mut asm::Memory| {
            if helper == Helper::KTIME_GET_NS {
                bump(memory, cell, cell::BEGUN);
                bump(memory, cell, cell::OWNER);
                bump(memory, cell, cell::ENDED);
            }
        };
        assert_eq!(evaluated(whole).0, busy);
        // The same, and it was not alone either, so that nobody owns what is there.
        let nobodys = |helper, cell: u64, memory: &mut asm::Memory| {
            if helper == Helper::KTIME_GET_NS {
                bump(memory, cell, cell::BEGUN);
                memory.store(Size::DW, cell + cell::OWNER as u64, 0).expect("a word");
                bump(memory, cell, cell::ENDED);
            }
        };
        assert_eq!(evaluated(nobodys).0, busy);
        // It is still writing when we copy, when we copy it begins, and it began while we wrote.
        for at in [Helper::KTIME_GET_NS, Helper::PROBE_READ_KERNEL, Helper::GET_BRANCH_SNAPSHOT] {
            let begins = move |helper, cell, memory: &mut asm::Memory| {
                if helper == at {
                    bump(memory, cell, cell::BEGUN);
                }
            };
            assert_eq!(evaluated(begins).0, busy, "{at}");
        }
        // It was writing when we began, and has ended since.
        let earlier = |helper, cell, memory: &mut asm::Memory| match helper {
            // As if it had begun before: our own beginning is counted already, but that it has not ended is not known.
            Helper::GET_BRANCH_SNAPSHOT => bump(memory, cell, cell::BEGUN),
            Helper::KTIME_GET_NS => bump(memory, cell, cell::ENDED),
            _ => {}
        };
        assert_eq!(evaluated(earlier).0, busy);
    }
}
