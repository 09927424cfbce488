//! Programs under BPF_PROG_TEST_RUN.
#![allow(clippy::unwrap_used, missing_docs)]

use asm::{Alu, Cmp, Helper, MapId, Options, Program, Size, Width};
use std::os::fd::{AsFd, AsRawFd};

#[test]
fn smoke() {
    let mut program = Program::new("smoke", "test");
    let twice = program.sub("twice", 2, |f| {
        let (a, b) = (f.param(0), f.param(1));
        let c = f.alu(Alu::Add, Width::W64, a, a);
        let d = f.alu(Alu::Sub, Width::W64, b, c);
        f.ret(d);
    });
    program.main(|f| {
        f.line("a + b", 1, 3);
        let ctx = f.ctx();
        let a = f.load(Size::DW, ctx, 0);
        let vals: Vec<_> = (0..9).map(|i| f.alu(Alu::Add, Width::W64, a, i)).collect();
        let sum = f.var();
        f.assign(sum, 0);
        f.call(Helper::KTIME_GET_NS, &[]);
        f.loop_(10, |f, i| {
            f.line("loop", 2, 3);
            f.if_(Cmp::Eq, Width::W64, i, 7, |f| f.break_());
            f.alu_to(sum, Alu::Add, Width::W64, i);
        });
        let r = f.call_sub(twice, &[sum.into(), vals[3].into()]);
        for v in vals {
            f.alu_to(sum, Alu::Add, Width::W64, v);
        }
        let out = f.map_value(MapId(0), 0);
        f.store(Size::DW, out, 0, sum);
        f.store(Size::DW, out, 8, r);
        f.ret(3);
    });
    let code = program.assemble(&Options::default()).unwrap();
    println!("{}\n{}", program.dump(), code.dump());
    let map = match bpf::Map::create(bpf::MapType::Array, "out", 4, 16, 1) {
        Ok(map) => map,
        Err(e) => return println!("SKIP: {e}"),
    };
    let insns = code.relocate(|_| map.as_fd().as_raw_fd()).unwrap();
    let btf = bpf::load_btf(&code.btf).unwrap();
    let prog = bpf::Program::load(&bpf::Load {
        btf: Some(btf.as_fd()),
        func_info: &code.func_info_raw(),
        line_info: &code.line_info_raw(),
        ..bpf::Load::new("smoke", bpf::ProgType::RawTracepoint, &insns)
    })
    .unwrap_or_else(|e| panic!("{e}\n{e:?}"));
    let ctx = [100u8, 0, 0, 0, 0, 0, 0, 0];
    let out = prog.test_run(&bpf::TestRun { data: &[], ctx: &ctx, repeat: 0 }).unwrap();
    let value = map.lookup(&[0; 4]).unwrap().unwrap();
    println!("{out:?} {value:?}");
}
