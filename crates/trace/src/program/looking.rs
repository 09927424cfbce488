//! Programs for a place that is looked at: they find out by what way they are called.

use crate::branches;
use asm::{Alu, Arg, Cmp, Code, Error, Func, Helper, MapId, Options, Program, Reg, Size, Width};

/// How a program takes the stack that it is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// bpf_get_stack, which begins at the program in programs that have no registers of the traced place.
    Here,
    /// bpf_get_task_stack of the current task: of kprobes and perf's tracepoints bpf_get_stack begins at the traced place.
    OfTask,
    /// Not itself: it calls a function that does nothing, for [`watching`] to be attached to.
    Watched,
}

/// The map's value of programs that take a stack.
pub mod sight {
    /// `u64` runs.
    pub const HITS: i32 = 0;
    /// `u64` runs for the process that was asked for.
    pub const OWN: i32 = 8;
    /// `i64` bytes of the stack, or an error; 0: none was taken yet.
    pub const LENGTH: i32 = 16;
    /// The stack.
    pub const STACK: i32 = 24;
    /// Frames that it has room for.
    pub const FRAMES: u32 = 127;
    /// Bytes of all.
    pub const SIZE: u32 = STACK as u32 + FRAMES * 8;
}

/// The map's value of programs that take branch records: at its start how many did, in the next cell the first.
pub mod cells {
    /// `u64` process whose records these are; 0 while they are being written.
    pub const OWNER: i32 = 0;
    /// `i64` what the helper returned.
    pub const LENGTH: i32 = 8;
    /// The records.
    pub const RECORDS: i32 = 16;
    /// Bytes of a cell, as a power of two.
    pub const BITS: u32 = 10;
    /// Cells, a power of two.
    pub const COUNT: u32 = 32;
    /// Bytes of all, with the first cell's worth for how many there were.
    pub const SIZE: u32 = (COUNT + 1) << BITS;
    const _: () = assert!(RECORDS as u32 + crate::branches::ROOM <= 1 << BITS);
}

/// The name of the function that is watched, for [`Taking::Watched`].
pub const WATCHED: &str = "cost_watched";

/// The one map that such a program has.
const MAP: MapId = MapId(0);

fn program(name: &str) -> Program {
    Program::new(name, "cost")
}

/// Counts its runs, those for the process `tgid` apart (0: all of them), and takes the stack of one of these.
pub fn looking(tgid: u32, taking: Taking) -> Result<Code, Error> {
    let mut program = program("cost_look");
    let watched = (taking == Taking::Watched).then(|| program.sub(WATCHED, 1, |f| f.ret(0)));
    program.main(|f| {
        let ctx = f.ctx();
        let value = f.map_value(MAP, 0);
        f.atomic_add(Size::DW, value, sight::HITS, 1);
        if tgid != 0 {
            let process = process(f);
            f.if_(Cmp::Ne, Width::W32, process, i64::from(tgid.cast_signed()), |f| f.ret(0));
        }
        f.atomic_add(Size::DW, value, sight::OWN, 1);
        match watched {
            Some(watched) => {
                f.call_sub(watched, &[Arg::Imm(0)]);
            }
            None => take_stack(f, value, ctx, taking),
        }
        f.ret(0);
    });
    program.assemble(&Options::default())
}

/// Takes the stack in the place of a program of [`Taking::Watched`], whose map it shares.
pub fn watching() -> Result<Code, Error> {
    let mut program = program("cost_watching");
    program.main(|f| {
        let ctx = f.ctx();
        let value = f.map_value(MAP, 0);
        take_stack(f, value, ctx, Taking::Here);
        f.ret(0);
    });
    program.assemble(&Options::default())
}

/// Takes branch records, before anything else that branches or calls, into the next cell, for [`cells`] to be read.
pub fn branching() -> Result<Code, Error> {
    let mut program = program("cost_branches");
    program.main(|f| {
        let value = f.map_value(MAP, 0);
        let one = f.imm(1);
        let number = f.fetch_add(Size::DW, value, 0, one);
        let number = f.alu(Alu::And, Width::W64, number, i64::from(cells::COUNT - 1));
        let offset = f.alu(Alu::Lsh, Width::W64, number, i64::from(cells::BITS));
        let first = f.map_value(MAP, 1 << cells::BITS);
        let cell = f.alu(Alu::Add, Width::W64, first, offset);
        f.store(Size::DW, cell, cells::OWNER, 0);
        let room = [Arg::Offset(cell, cells::RECORDS), Arg::Imm(branches::ROOM.into()), Arg::Imm(0)];
        let length = f.call(Helper::GET_BRANCH_SNAPSHOT, &room);
        f.store(Size::DW, cell, cells::LENGTH, length);
        let process = process(f);
        f.store(Size::DW, cell, cells::OWNER, process);
        f.ret(0);
    });
    program.assemble(&Options::default())
}

/// The current process.
fn process(f: &mut Func<'_>) -> Reg {
    let both = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
    f.alu(Alu::Rsh, Width::W64, both, 32)
}

/// Takes the stack, unless there is one.
fn take_stack(f: &mut Func<'_>, value: Reg, ctx: Reg, taking: Taking) {
    let taken = f.load(Size::DW, value, sight::LENGTH);
    f.if_(Cmp::Eq, Width::W64, taken, 0, |f| {
        let room = Arg::Imm(i64::from(sight::FRAMES) * 8);
        let room = [Arg::Offset(value, sight::STACK), room, Arg::Imm(0)];
        let of = |whose: Reg| [Arg::Reg(whose), room[0], room[1], room[2]];
        let length = match taking {
            Taking::OfTask => {
                let task = f.call(Helper::GET_CURRENT_TASK_BTF, &[]);
                f.call(Helper::GET_TASK_STACK, &of(task))
            }
            _ => f.call(Helper::GET_STACK, &of(ctx)),
        };
        f.store(Size::DW, value, sight::LENGTH, length);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Instructions of a program: opcode and immediate.
    fn of(code: &Code) -> Vec<(u64, u32)> {
        let insns = code.relocate(|_| 3).expect("maps");
        insns.iter().map(|insn| (insn & 0xff, (insn >> 32) as u32)).collect()
    }

    #[test]
    fn the_snapshot_is_first_and_nothing_jumps_before() {
        const CALL: u64 = 0x85;
        let code = branching().expect("assembled");
        let before: Vec<(u64, u32)> = of(&code).into_iter().take_while(|(op, _)| *op != CALL).collect();
        let first = of(&code).into_iter().find(|(op, _)| *op == CALL);
        assert_eq!(first, Some((CALL, 176)));
        // BPF_JMP and BPF_JMP32.
        assert!(before.iter().all(|(op, _)| ![5, 6].contains(&(op & 7))), "{before:x?}");
    }

    #[test]
    fn the_function_that_is_watched_is_called() {
        let code = looking(7, Taking::Watched).expect("assembled");
        // A call of a function of the program has BPF_PSEUDO_CALL for its source register.
        let calls =
            code.relocate(|_| 3).expect("maps").iter().filter(|insn| *insn & 0xf0ff == 0x1085).count();
        assert_eq!((calls, code.func_info.len()), (1, 2));
        for taking in [Taking::Here, Taking::OfTask] {
            assert_eq!(looking(u32::MAX, taking).expect("assembled").func_info.len(), 1);
        }
    }
}
