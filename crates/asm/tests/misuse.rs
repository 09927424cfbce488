//! Misuse is an error at `assemble`, never a panic.
#![allow(clippy::unwrap_used, missing_docs)]

use asm::{Alu, Arg, Cmp, Error, Func, Helper, MapId, Options, Program, Reg, Size, Width};

fn message(body: impl FnOnce(&mut Func<'_>)) -> String {
    let mut program = Program::new("p", "file");
    program.main(body);
    program.assemble(&Options::default()).unwrap_err().to_string()
}

#[test]
fn reading_what_some_path_did_not_assign() {
    let what = message(|f| {
        let ctx = f.ctx();
        let x = f.var();
        f.if_(Cmp::Eq, Width::W64, ctx, 0, |f| f.assign(x, 1));
        f.ret(x);
    });
    assert_eq!(what, "function p: register %1 is read where it may not have been assigned");
    let what = message(|f| {
        let x = f.var();
        f.loop_(3, |f, i| {
            f.if_(Cmp::Eq, Width::W64, i, 1, |f| f.break_());
            f.assign(x, i);
        });
        f.ret(x);
    });
    assert_eq!(
        what,
        "function p: register %0 is read where it may not have been assigned".replace("%0", "%1")
    );
}

#[test]
fn assigned_on_every_path_is_fine() {
    let mut program = Program::new("p", "file");
    program.main(|f| {
        let ctx = f.ctx();
        let x = f.var();
        f.if_else(Cmp::Eq, Width::W64, ctx, 0, |f| f.assign(x, 1), |f| f.ret(7));
        f.ret(x);
    });
    program.assemble(&Options::default()).unwrap();
}

#[test]
fn registers_of_other_functions() {
    let mut stolen: Option<Reg> = None;
    let mut program = Program::new("p", "file");
    program.sub("s", 1, |f| stolen = Some(f.param(0)));
    program.main(|f| f.ret(stolen.unwrap()));
    let what = program.assemble(&Options::default()).unwrap_err().to_string();
    assert_eq!(what, "function p: a register of another function is used");
}

#[test]
fn positions_are_named() {
    let what = message(|f| {
        f.line("a->b", 3, 7);
        f.break_();
    });
    assert_eq!(what, "function p at 3:7 (a->b): break outside of a loop");
}

#[test]
fn control() {
    assert!(message(|f| f.continue_()).contains("continue outside of a loop"));
    assert!(message(|f| f.loop_(2, |f, i| f.assign(i, 0))).contains("index of a loop is assigned"));
    let mut program = Program::new("p", "file");
    program.sub("unused", 0, |f| f.ret(0));
    assert_eq!(program.assemble(&Options::default()).unwrap_err(), Error::NoMain { program: "p".into() });
}

#[test]
fn calls() {
    let six = [Arg::Imm(0); 6];
    assert!(
        message(|f| {
            f.call(Helper::SNPRINTF, &six);
        })
        .contains("6 arguments, 5 allowed")
    );
    let mut program = Program::new("p", "file");
    let sub = program.sub("s", 2, |f| f.ret(0));
    program.main(|f| {
        f.call_sub(sub, &[1.into()]);
    });
    let what = program.assemble(&Options::default()).unwrap_err().to_string();
    assert!(what.contains("1 arguments to a subprogram of 2 parameters"), "{what}");
    let mut program = Program::new("p", "file");
    program.sub("s", 6, |f| f.ret(0));
    program.main(|f| f.ret(0));
    assert!(program.assemble(&Options::default()).is_err());
    let mut program = Program::new("p", "file");
    program.sub("s", 0, |f| {
        f.ctx();
    });
    program.main(|f| f.ret(0));
    assert!(program.assemble(&Options::default()).unwrap_err().to_string().contains("no context"));
}

#[test]
fn slots() {
    let bad = message(|f| {
        let s = f.slot(8, 8);
        f.store_slot(Size::DW, s, 4, 0);
    });
    assert!(bad.contains("8 bytes at offset 4 of a stack slot of 8"), "{bad}");
    let bad = message(|f| {
        let ctx = f.ctx();
        let mut inner = None;
        f.if_(Cmp::Eq, Width::W64, ctx, 0, |f| inner = Some(f.slot(8, 8)));
        f.load_slot(Size::DW, inner.unwrap(), 0);
    });
    assert!(bad.contains("outside the block it was made in"), "{bad}");
    assert!(
        message(|f| {
            f.slot(8, 3);
        })
        .contains("aligned to 3")
    );
    assert!(
        message(|f| {
            f.slot(0, 8);
        })
        .contains("no bytes")
    );
    let bad = message(|f| {
        let ctx = f.ctx();
        f.atomic_add(Size::H, ctx, 0, 1);
    });
    assert!(bad.contains("atomic addition to 2 bytes"), "{bad}");
}

#[test]
fn stack() {
    let mut program = Program::new("p", "file");
    program.main(|f| {
        f.slot(520, 8);
    });
    let e = program.assemble(&Options::default()).unwrap_err();
    assert_eq!(e, Error::Stack { chain: "p".into(), used: 520, limit: 512 });
    let mut program = Program::new("p", "file");
    let inner = program.sub("inner", 0, |f| {
        let s = f.slot(250, 8);
        f.store_slot(Size::B, s, 249, 1);
    });
    program.main(|f| {
        let s = f.slot(260, 8);
        f.store_slot(Size::B, s, 0, 1);
        f.call_sub(inner, &[]);
    });
    let e = program.assemble(&Options::default()).unwrap_err();
    assert_eq!(e, Error::Stack { chain: "p → inner".into(), used: 288 + 256, limit: 512 });
}

#[test]
fn sibling_blocks_share_their_slots() {
    let mut program = Program::new("p", "file");
    program.main(|f| {
        let ctx = f.ctx();
        for _ in 0..4 {
            f.if_(Cmp::Ne, Width::W64, ctx, 0, |f| {
                let s = f.slot(100, 4);
                f.call(Helper::GET_CURRENT_COMM, &[s.into(), 100.into()]);
            });
        }
    });
    assert_eq!(program.assemble(&Options::default()).unwrap().stack_used, 100);
}

#[test]
fn jumps_that_are_too_far() {
    let mut program = Program::new("p", "file");
    program.main(|f| {
        let ctx = f.ctx();
        let out = f.map_value(MapId(0), 0);
        f.if_else(
            Cmp::Eq,
            Width::W64,
            ctx,
            0,
            |f| {
                for _ in 0..40_000 {
                    f.store(Size::B, out, 0, 1);
                }
            },
            |_| {},
        );
    });
    assert!(matches!(program.assemble(&Options::default()), Err(Error::JumpTooFar { .. })));
}

#[test]
fn maps_without_descriptors() {
    let mut program = Program::new("p", "file");
    program.main(|f| {
        let out = f.map_value(MapId(7), 4);
        f.store(Size::B, out, 0, 1);
    });
    let code = program.assemble(&Options::default()).unwrap();
    assert_eq!(code.relocate(|_| -1).unwrap_err(), Error::NoMap { map: MapId(7) });
    assert!(code.relocate(|_| 3).is_ok());
}

#[test]
fn offsets_and_constants_of_any_size() {
    let mut program = Program::new("p", "file");
    program.main(|f| {
        let ctx = f.ctx();
        let a = f.load(Size::DW, ctx, 1 << 20);
        let b = f.alu(Alu::Add, Width::W64, a, i64::MAX);
        f.if_(Cmp::Gt, Width::W64, b, 1i64 << 40, |f| f.ret(1i64 << 33));
        f.store(Size::DW, ctx, -(1 << 20), u64::MAX - (1 << 40));
    });
    program.assemble(&Options::default()).unwrap();
}
