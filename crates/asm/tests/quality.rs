//! How good the code is: instruction counts beside what one would write by hand.
#![allow(clippy::unwrap_used, missing_docs)]

use asm::{Alu, Arg, Cmp, Helper, MapId, Options, Program, Size, Width};

const RING: MapId = MapId(0);
const COUNTERS: MapId = MapId(1);

/// What a probe on a function of four arguments does.
fn typical_probe() -> Program {
    let mut program = Program::new("probe", "btrace");
    program.main(|f| {
        f.line("vfs_read", 1, 1);
        let ctx = f.ctx();
        let task = f.call(Helper::GET_CURRENT_TASK_BTF, &[]);
        let tgid = f.load(Size::W, task, 0x5d4);
        f.if_(Cmp::Eq, Width::W32, tgid, 4242, |f| f.ret(0));
        let event = f.call(Helper::RINGBUF_RESERVE, &[RING.into(), 80.into(), 0.into()]);
        f.if_(Cmp::Eq, Width::W64, event, 0, |f| {
            let lost = f.map_value(COUNTERS, 8);
            f.atomic_add(Size::DW, lost, 0, 1);
            f.ret(0);
        });
        let now = f.call(Helper::KTIME_GET_NS, &[]);
        f.store(Size::DW, event, 0, now);
        f.store(Size::W, event, 8, 7);
        f.store(Size::W, event, 12, tgid);
        for i in 0..4 {
            let arg = f.load(Size::DW, ctx, 8 * i);
            f.store(Size::DW, event, 16 + 8 * i, arg);
        }
        for i in 0..2 {
            let comm = f.load(Size::DW, task, 0x7c8 + 8 * i);
            f.store(Size::DW, event, 48 + 8 * i, comm);
        }
        f.call(Helper::RINGBUF_SUBMIT, &[event.into(), 0.into()]);
        f.ret(0);
    });
    program
}

#[test]
fn typical_probe_is_as_short_as_by_hand() {
    let code = typical_probe().assemble(&Options::default()).unwrap();
    println!("{}", code.dump());
    assert_eq!(code.stack_used, 0, "nothing spilled");
}

#[test]
fn arguments_are_made_in_place() {
    let mut program = Program::new("p", "t");
    program.main(|f| {
        let ctx = f.ctx();
        let a = f.load(Size::DW, ctx, 0);
        let slot = f.slot(16, 8);
        let len = f.alu(Alu::And, Width::W64, a, 15);
        let n = f.call(Helper::PROBE_READ_KERNEL, &[slot.into(), len.into(), a.into()]);
        let m = f.alu(Alu::Add, Width::W64, n, 5);
        f.ret(m);
    });
    let code = program.assemble(&Options::default()).unwrap();
    println!("{}", code.dump());
}

#[test]
fn unused() {
    let _ = Arg::Ctx;
}
