//! How good the code is: instruction counts beside what one would write by hand.
//!
//! The listings are kept as snapshots, so that a change in the allocator shows what it changes.
#![allow(clippy::unwrap_used, missing_docs)]

use asm::{Alu, Arg, Cmp, Code, Cpu, Helper, MapId, Options, Program, Reg, Size, Width};

const RING: MapId = MapId(0);
const COUNTERS: MapId = MapId(1);

/// Assembles, and compares with the number of instruction slots written by hand.
fn close_to_hand(program: &Program, by_hand: usize) -> Code {
    let code = program.assemble(&Options::default()).unwrap();
    let slots = code.insns.len();
    println!("{slots} slots, {by_hand} by hand");
    assert!(slots <= by_hand + 2, "{slots} instruction slots, {by_hand} by hand\n{}", code.dump());
    code
}

/// What a probe on a function of four arguments does.
#[test]
fn typical_probe() {
    let mut program = Program::new("probe", "btrace");
    program.main(|f| {
        f.line("vfs_read", 1, 1);
        let ctx = f.ctx();
        let task = f.call(Helper::GET_CURRENT_TASK_BTF, &[]);
        let tgid = f.load(Size::W, task, 0x5d4);
        f.if_(Cmp::Eq, Width::W32, tgid, 4242, |f| f.ret(0));
        let event = f.call(Helper::RINGBUF_RESERVE, &[RING.into(), 80.into(), 0.into()]);
        f.if_(Cmp::Eq, Width::W64, event, 0, |f| {
            f.line("lost", 2, 1);
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
    // r8 = ctx; task; r9 = r0; load, compare; reserve with 3 arguments (4 slots); r6 = r0; compare; time and 3 stores
    // (4); 6 loads and stores (12); submit with 2 arguments (3); return (2); counter (4) and its jump.
    let code = close_to_hand(&program, 1 + 1 + 1 + 2 + 5 + 2 + 4 + 12 + 3 + 2 + 5);
    assert_eq!(code.stack_used, 0, "nothing is spilled");
    insta::assert_snapshot!(code.dump());
}

/// A filter on a member and an argument, a string, the thread.
#[test]
fn filter_and_string() {
    let mut program = Program::new("filter", "btrace");
    program.main(|f| {
        let ctx = f.ctx();
        f.line("file->f_flags & O_LARGEFILE && count > 100", 1, 1);
        let file = f.load(Size::DW, ctx, 0);
        let flags = f.load(Size::W, file, 0x44);
        let ok = f.var();
        f.assign(ok, 0);
        f.if_(Cmp::Set, Width::W32, flags, 0x8000, |f| {
            let count = f.load(Size::DW, ctx, 16);
            f.if_(Cmp::Gt, Width::W64, count, 100, |f| f.assign(ok, 1));
        });
        f.if_(Cmp::Eq, Width::W64, ok, 0, |f| f.ret(0));
        let event = f.call(Helper::RINGBUF_RESERVE, &[RING.into(), 256.into(), 0.into()]);
        f.if_(Cmp::Eq, Width::W64, event, 0, |f| {
            let lost = f.map_value(COUNTERS, 8);
            f.atomic_add(Size::DW, lost, 0, 1);
            f.ret(0);
        });
        let path = f.load(Size::DW, file, 0x18);
        let n = f.call(Helper::PROBE_READ_KERNEL_STR, &[Arg::Offset(event, 64), 128.into(), path.into()]);
        f.store(Size::W, event, 16, n);
        let both = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
        let tgid = f.alu(Alu::Rsh, Width::W64, both, 32);
        f.store(Size::W, event, 20, tgid);
        f.store(Size::W, event, 24, both);
        f.call(Helper::RINGBUF_SUBMIT, &[event.into(), 0.into()]);
        f.ret(0);
    });
    let code = close_to_hand(&program, 34);
    assert_eq!(code.stack_used, 0);
    insta::assert_snapshot!(code.dump());
}

/// A list of processes: found in it, the rest of the list is not looked at.
#[test]
fn list_of_processes() {
    let mut program = Program::new("list", "btrace");
    program.main(|f| {
        let both = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
        let tgid = f.alu(Alu::Rsh, Width::W64, both, 32);
        let wanted = f.var();
        f.assign(wanted, 0);
        for one in [17, 18, 19, 20] {
            f.if_(Cmp::Eq, Width::W32, tgid, one, |f| f.assign(wanted, 1));
        }
        f.if_(Cmp::Eq, Width::W64, wanted, 0, |f| f.ret(0));
        let lost = f.map_value(COUNTERS, 8);
        f.atomic_add(Size::DW, lost, 0, 1);
        f.ret(0);
    });
    // Call, shift; four comparisons; 4 to count; return 2.
    let code = close_to_hand(&program, 2 + 4 + 4 + 2);
    insta::assert_snapshot!(code.dump());
}

/// An event of variable size: strings one after the other.
#[test]
fn variable_size() {
    let mut program = Program::new("strings", "btrace");
    program.main(|f| {
        let ctx = f.ctx();
        let key = f.slot(4, 4);
        f.store_slot(Size::W, key, 0, 0);
        let buf = f.call(Helper::MAP_LOOKUP_ELEM, &[COUNTERS.into(), key.into()]);
        f.if_(Cmp::Eq, Width::W64, buf, 0, |f| f.ret(0));
        let off = f.var();
        f.assign(off, 64);
        for i in 0..2 {
            let s = f.load(Size::DW, ctx, i * 8);
            f.if_(Cmp::Ne, Width::W64, s, 0, |f| {
                f.if_(Cmp::Le, Width::W64, off, 512, |f| {
                    let dst = f.alu(Alu::Add, Width::W64, buf, off);
                    let n = f.call(Helper::PROBE_READ_KERNEL_STR, &[dst.into(), 64.into(), s.into()]);
                    f.if_(Cmp::SGt, Width::W64, n, 0, |f| {
                        f.store(Size::W, buf, 8 + 4 * i, n);
                        f.alu_to(off, Alu::Add, Width::W64, n);
                    });
                });
            });
        }
        f.call(Helper::RINGBUF_OUTPUT, &[RING.into(), buf.into(), off.into(), 0.into()]);
        f.ret(0);
    });
    // Lookup 7; result 2; offset 1; two strings of 10; output 6; return 2, after the r8 = ctx.
    let code = close_to_hand(&program, 1 + 7 + 2 + 1 + 20 + 6 + 2);
    insta::assert_snapshot!(code.dump());
}

/// Arithmetic in a loop, with both ways out of it.
#[test]
fn loop_and_diamond() {
    let mut program = Program::new("loop", "btrace");
    program.main(|f| {
        let ctx = f.ctx();
        let a = f.load(Size::DW, ctx, 0);
        let b = f.load_signed(Size::W, ctx, 8);
        let x = f.var();
        f.if_else(
            Cmp::SGt,
            Width::W64,
            a,
            b,
            |f| {
                let d = f.alu(Alu::Sub, Width::W64, a, b);
                f.assign(x, d);
            },
            |f| {
                let d = f.alu(Alu::Sub, Width::W64, b, a);
                f.assign(x, d);
            },
        );
        let sum = f.var();
        f.assign(sum, 0);
        f.loop_(4, |f, i| {
            let by = f.alu(Alu::Lsh, Width::W64, i, 3);
            let v = f.alu(Alu::Rsh, Width::W64, x, by);
            let v = f.alu(Alu::And, Width::W64, v, 255);
            f.if_(Cmp::Eq, Width::W64, v, 0, |f| f.continue_());
            f.if_(Cmp::Eq, Width::W64, v, 13, |f| f.break_());
            f.alu_to(sum, Alu::Add, Width::W64, v);
        });
        f.ret(sum);
    });
    // Loads 4; diamond 2 and 3; loop 2 before, 10 in; return 1.
    let code = close_to_hand(&program, 4 + 2 + 3 + 2 + 10 + 1);
    assert_eq!(code.stack_used, 0);
    insta::assert_snapshot!(code.dump());
}

/// More values across a call than r6-r9 hold: each of the rest costs a store and a load.
#[test]
fn more_values_than_registers() {
    let mut program = Program::new("many", "btrace");
    program.main(|f| {
        let ctx = f.ctx();
        let args: Vec<Reg> = (0..7).map(|i| f.load(Size::DW, ctx, i * 8)).collect();
        let event = f.call(Helper::RINGBUF_RESERVE, &[RING.into(), 256.into(), 0.into()]);
        f.if_(Cmp::Eq, Width::W64, event, 0, |f| f.ret(0));
        for (i, r) in args.iter().enumerate() {
            f.store(Size::DW, event, i as i32 * 8, *r);
        }
        f.call(Helper::RINGBUF_SUBMIT, &[event.into(), 0.into()]);
        f.ret(0);
    });
    // 7 loads, 3 of them put aside; reserve 5, result 2; 7 stores, 3 of them fetched; submit 2; return 2.
    let code = close_to_hand(&program, 7 + 3 + 5 + 2 + 7 + 3 + 2 + 2);
    assert_eq!(code.stack_used, 24);
    insta::assert_snapshot!(code.dump());
}

/// Constants and addresses end up in the instructions that use them.
#[test]
fn folding() {
    let mut program = Program::new("fold", "btrace");
    program.main(|f| {
        let slot = f.slot(16, 8);
        let at = f.slot_addr(slot, 0);
        let next = f.alu(Alu::Add, Width::W64, at, 8);
        let five = f.imm(5);
        let ten = f.alu(Alu::Mul, Width::W64, five, 2);
        f.store(Size::DW, next, 0, ten);
        f.store(Size::W, at, 4, -1);
        let out = f.map_value(COUNTERS, 8);
        let out = f.alu(Alu::Add, Width::W64, out, 8);
        let v = f.load(Size::DW, next, 0);
        f.store(Size::DW, out, 0, v);
        let w = f.load(Size::W, at, 4);
        let same = f.zext(w, Size::W);
        let scaled = f.alu(Alu::Mul, Width::W64, same, 8);
        f.store(Size::DW, out, 8, scaled);
        f.if_(Cmp::Gt, Width::W64, five, 7, |f| {
            f.call(Helper::KTIME_GET_NS, &[]);
        });
        f.ret(ten);
    });
    let code = close_to_hand(&program, 11);
    insta::assert_snapshot!(code.dump());
}

/// Version 4 of the instruction set says in one instruction what takes three.
#[test]
fn sign_extension() {
    let mut program = Program::new("signs", "btrace");
    program.main(|f| {
        let ctx = f.ctx();
        let a = f.load_signed(Size::H, ctx, 0);
        let b = f.load(Size::DW, ctx, 8);
        let b = f.sext(b, Size::W);
        let sum = f.alu(Alu::Add, Width::W64, a, b);
        f.ret(sum);
    });
    close_to_hand(&program, 8);
    let code = program.assemble(&Options { cpu: Cpu::V4 }).unwrap();
    assert_eq!(code.insns.len(), 5, "{}", code.dump());
    insta::assert_snapshot!(code.dump());
}
