//! The evaluator against examples worked out by hand from
//! `Documentation/bpf/standardization/instruction-set.rst`.
#![allow(clippy::unwrap_used, missing_docs)]

use asm::{Alu, Cmp, Fault, Helper, Machine, MapId, Program, Size, Width};

fn alu(op: Alu, width: Width, a: u64, b: u64) -> u64 {
    let mut program = Program::new("p", "t");
    program.main(|f| {
        let r = f.alu(op, width, a, b);
        f.ret(r);
    });
    program.evaluate(&mut Machine::default()).unwrap()
}

#[test]
fn arithmetic() {
    use Alu::*;
    use Width::*;
    let minus = |n: u64| 0u64.wrapping_sub(n);
    for (op, width, a, b, result) in [
        (Add, W64, u64::MAX, 1, 0),
        (Add, W32, u64::MAX, 1, 0),
        (Add, W32, 0xffff_ffff_0000_0001, 2, 3),
        (Sub, W32, 0, 1, 0xffff_ffff),
        (Mul, W32, 0x1_0000_0003, 0xffff_ffff, 0xffff_fffd),
        (Div, W64, minus(8), 2, 0x7fff_ffff_ffff_fffc),
        (Div, W64, 5, 0, 0),
        (Div, W32, 0x1_0000_0008, 0x1_0000_0000, 0),
        (Mod, W64, 5, 0, 5),
        (Mod, W32, 0xf_0000_0005, 0x1_0000_0000, 5),
        (Mod, W32, 0xf_0000_0007, 4, 3),
        (Xor, W32, u64::MAX, 0, 0xffff_ffff),
        (Lsh, W64, 1, 63, 1 << 63),
        (Lsh, W64, 1, 64, 1),
        (Lsh, W32, 1, 33, 2),
        (Rsh, W64, minus(1), 63, 1),
        (Rsh, W32, minus(1), 31, 1),
        (Arsh, W64, minus(8), 2, minus(2)),
        (Arsh, W64, minus(8), 64, minus(8)),
        (Arsh, W32, 0x8000_0000, 31, 0xffff_ffff),
        (Arsh, W32, 0x8000_0000, 32, 0x8000_0000),
        (Arsh, W32, 0xffff_ffff_7000_0000, 28, 7),
    ] {
        assert_eq!(alu(op, width, a, b), result, "{op:?} {width:?} {a:#x} {b:#x}");
    }
}

#[test]
fn comparisons() {
    let holds = |cmp, width, a: u64, b: u64| {
        let mut program = Program::new("p", "t");
        program.main(|f| {
            let a = f.imm(a.cast_signed());
            f.if_(cmp, width, a, b, |f| f.ret(1));
        });
        program.evaluate(&mut Machine::default()).unwrap() == 1
    };
    assert!(holds(Cmp::Gt, Width::W64, u64::MAX, 0));
    assert!(!holds(Cmp::SGt, Width::W64, u64::MAX, 0));
    assert!(holds(Cmp::SLt, Width::W32, 0x8000_0000, 0));
    assert!(!holds(Cmp::SLt, Width::W64, 0x8000_0000, 0));
    assert!(holds(Cmp::Eq, Width::W32, 0x5_0000_0001, 1));
    assert!(!holds(Cmp::Set, Width::W32, 0x5_0000_0000, u64::MAX));
    assert!(holds(Cmp::Set, Width::W64, 0x5_0000_0000, u64::MAX));
}

#[test]
fn extension_and_order() {
    let mut program = Program::new("p", "t");
    program.main(|f| {
        let v = f.imm(0x1122_3344_5566_7788);
        let out = f.map_value(MapId(0), 0);
        let all = [
            f.sext(v, Size::B),
            f.zext(v, Size::B),
            f.swap(v, Size::W),
            f.to_be(v, Size::H),
            f.neg(Width::W32, v),
            f.not(Width::W64, v),
        ];
        for (i, r) in all.into_iter().enumerate() {
            f.store(Size::DW, out, i as i32 * 8, r);
        }
    });
    let mut machine = Machine::default();
    machine.memory.add_map(MapId(0), 48, &[0; 48]);
    program.evaluate(&mut machine).unwrap();
    let words: Vec<u64> = machine
        .memory
        .map(MapId(0))
        .unwrap()
        .chunks(8)
        .map(|c| u64::from_ne_bytes(c.try_into().unwrap()))
        .collect();
    let be = u64::from(0x7788u16.to_be());
    assert_eq!(words, [0xffff_ffff_ffff_ff88, 0x88, 0x8877_6655, be, 0xaa99_8878, !0x1122_3344_5566_7788]);
}

#[test]
fn faults() {
    let fault = |body: fn(&mut asm::Func<'_>)| {
        let mut program = Program::new("p", "t");
        program.main(body);
        program.evaluate(&mut Machine::new(&[0; 8])).unwrap_err()
    };
    assert!(matches!(
        fault(|f| {
            let c = f.ctx();
            f.load(Size::DW, c, 4);
        }),
        Fault::Address { len: 8, .. }
    ));
    assert!(matches!(
        fault(|f| {
            let z = f.imm(0);
            f.load(Size::B, z, 0);
        }),
        Fault::Address { addr: 0, .. }
    ));
    assert!(matches!(
        fault(|f| {
            let s = f.slot(8, 8);
            f.load_slot(Size::B, s, 0);
        }),
        Fault::Undefined { .. }
    ));
    assert!(matches!(
        fault(|f| {
            let v = f.var();
            f.ret(v);
        }),
        Fault::Unassigned(1)
    ));
    assert!(matches!(
        fault(|f| {
            f.call(Helper::JIFFIES64, &[]);
        }),
        Fault::NoFunction(_)
    ));
    assert!(matches!(fault(|f| f.loop_(u32::MAX, |_, _| {})), Fault::Steps(_)));
    // A slot holds nothing when its block begins again.
    let again = fault(|f| {
        f.loop_(2, |f, i| {
            let s = f.slot(8, 8);
            f.if_(Cmp::Eq, Width::W64, i, 1, |f| {
                f.load_slot(Size::DW, s, 0);
            });
            f.store_slot(Size::DW, s, 0, 1);
        });
    });
    assert!(matches!(again, Fault::Undefined { .. }));
}
