//! Programs in the kernel: what the verifier is told, and what it tells.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use asm::{Alu, Arg, Cmp, Helper, MapId, Options, Program, Size, Width};
use common::TestMap;
use std::ops::ControlFlow;
use std::path::Path;

const RING: MapId = MapId(0);
const COUNTERS: MapId = MapId(1);

macro_rules! skip_unless_loadable {
    () => {
        if let Some(why) = &common::kernel().refusal {
            println!("SKIP: this machine loads no BPF programs: {why}");
            return;
        }
    };
}

#[test]
fn loops_subprograms_and_spills() {
    let mut program = Program::new("smoke", "test");
    let less = program.sub("less", 2, |f| {
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
        let r = f.call_sub(less, &[sum.into(), vals[3].into()]);
        for v in vals {
            f.alu_to(sum, Alu::Add, Width::W64, v);
        }
        let out = f.map_value(MapId(0), 0);
        f.store(Size::DW, out, 0, sum);
        f.store(Size::DW, out, 8, r);
        f.ret(3);
    });
    let maps = [TestMap { value_size: 16, values: vec![0; 16] }];
    let ctx = 100u64.to_ne_bytes();
    let expected = common::evaluate(&program, &ctx, &maps).unwrap();
    let words = [21 + 9 * 100 + 36u64, 103 - 42].map(u64::to_ne_bytes).concat();
    assert_eq!((expected.retval, &expected.maps[0]), (3, &words));
    skip_unless_loadable!();
    for options in &common::kernel().options {
        let code = program.assemble(options).unwrap();
        assert_eq!(common::run(&code, &ctx, &maps).unwrap(), expected);
    }
}

/// A probe with every part it has in life, under a test run, into a real ring.
#[test]
fn probe_into_a_ring() {
    skip_unless_loadable!();
    let kernel = match btf::Btf::open(Path::new("/sys/kernel/btf/vmlinux")) {
        Ok(kernel) => kernel,
        Err(e) => return println!("SKIP: no kernel BTF: {e}"),
    };
    let task_struct = kernel.find(btf::Kind::Struct, "task_struct").unwrap();
    let member = |name: &str| kernel.member(task_struct, name).unwrap().byte_offset() as i32;
    let mut program = Program::new("probe", "test");
    program.main(|f| {
        f.line("any", 1, 1);
        let ctx = f.ctx();
        let task = f.call(Helper::GET_CURRENT_TASK_BTF, &[]);
        let tgid = f.load(Size::W, task, member("tgid"));
        f.if_(Cmp::Eq, Width::W32, tgid, 0, |f| f.ret(1));
        let event = f.call(Helper::RINGBUF_RESERVE, &[RING.into(), 64.into(), 0.into()]);
        f.if_(Cmp::Eq, Width::W64, event, 0, |f| {
            let lost = f.map_value(COUNTERS, 0);
            f.atomic_add(Size::DW, lost, 0, 1);
            f.ret(2);
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
            let comm = f.load(Size::DW, task, member("comm") + 8 * i);
            f.store(Size::DW, event, 48 + 8 * i, comm);
        }
        f.call(Helper::RINGBUF_SUBMIT, &[event.into(), 0.into()]);
        f.ret(0);
    });
    let code = program.assemble(&Options::default()).unwrap();
    let ring = bpf::Map::create(bpf::MapType::RingBuf, "ring", 0, 0, 4096).unwrap();
    let mut ring = bpf::RingBuf::new(ring).unwrap();
    let counters = bpf::Map::create(bpf::MapType::Array, "counters", 4, 8, 1).unwrap();
    let loaded = match common::load("probe", &code, &[&ring, &counters]) {
        Ok(loaded) => loaded,
        Err(e) if e.log().is_some_and(|log| log.contains("func unknown#158")) => {
            return println!("SKIP: this kernel has no bpf_get_current_task_btf (5.11 and later)");
        }
        Err(e) => panic!("{e:?}\n{}", code.dump()),
    };
    let args = [1u64, u64::MAX, 3, 1 << 63].map(u64::to_ne_bytes).concat();
    let mut runs = 0;
    // The ring of 4096 bytes holds 56 records of 72.
    while loaded.test_run(&bpf::TestRun { data: &[], ctx: &args, repeat: 0 }).unwrap().retval == 0 {
        runs += 1;
        assert!(runs < 100);
    }
    let lost = counters.lookup(&[0; 4]).unwrap().unwrap();
    assert_eq!((runs, lost), (56, 1u64.to_ne_bytes().to_vec()));
    let mut records = 0;
    let mut last = 0;
    ring.drain(|record| {
        let word = |at: usize| u64::from_ne_bytes(record[at..at + 8].try_into().unwrap());
        assert!(word(0) > last);
        last = word(0);
        assert_eq!(word(8), u64::from(std::process::id()) << 32 | 7);
        assert_eq!(record[16..48], args[..]);
        let comm = std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        assert!(record[48..].starts_with(comm.trim_end().as_bytes()));
        records += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(records, runs);
}

#[test]
fn kernel_functions_are_called_by_btf_id() {
    skip_unless_loadable!();
    let kernel = match btf::Btf::open(Path::new("/sys/kernel/btf/vmlinux")) {
        Ok(kernel) => kernel,
        Err(e) => return println!("SKIP: no kernel BTF: {e}"),
    };
    let Some(cast) = kernel.find(btf::Kind::Func, "bpf_rdonly_cast") else {
        return println!("SKIP: this kernel has no bpf_rdonly_cast (6.2 and later)");
    };
    let task_struct = kernel.find(btf::Kind::Struct, "task_struct").unwrap();
    let tgid = kernel.member(task_struct, "tgid").unwrap().byte_offset() as i32;
    let mut program = Program::new("cast", "test");
    program.main(|f| {
        let address = f.call(Helper::GET_CURRENT_TASK, &[]);
        let task = f.call_kfunc(cast.0, &[address.into(), Arg::Imm(task_struct.0.into())]);
        let tgid = f.load(Size::W, task, tgid);
        f.ret(tgid);
    });
    let code = program.assemble(&Options::default()).unwrap();
    let outcome = common::run(&code, &[0; 8], &[]).unwrap();
    assert_eq!(outcome.retval, std::process::id(), "{}", code.dump());
}

/// The verifier's log leads back to what the user wrote.
#[test]
fn a_refusal_names_the_users_text() {
    let mut program = Program::new("refused", "command line");
    program.main(|f| {
        f.line("count > 3", 1, 5);
        let ctx = f.ctx();
        let a = f.load(Size::DW, ctx, 0);
        f.if_(Cmp::Le, Width::W64, a, 3, |f| f.ret(0));
        f.line("name->len", 2, 20);
        let b = f.load(Size::DW, a, 8);
        f.line("rest", 3, 40);
        f.store(Size::DW, ctx, 0, b);
        f.ret(b);
    });
    let code = program.assemble(&Options::default()).unwrap();
    assert_eq!(code.line_info.len(), 3, "{}", code.dump());
    skip_unless_loadable!();
    let log = common::run(&code, &[0; 8], &[]).unwrap_err();
    // From 6.9 on with the file and line, and only where the line's number changes.
    assert!(log.contains("; name->len"), "{log}");
    // "2: (79) r0 = *(u64 *)(r1 +8)", then the reason.
    let at = log.lines().rev().find_map(|l| l.split_once(": (")?.0.parse::<usize>().ok()).unwrap();
    let position = code.position(at).unwrap();
    assert_eq!((position.text, position.line, position.col), ("name->len", 2, 20), "{log}");
}

/// Per-CPU variables of the kernel: here the count of preemptions.
#[test]
fn variables_of_the_kernel() {
    let program = |id: u32| {
        let mut program = Program::new("variable", "test");
        program.main(|f| {
            f.line("__preempt_count", 1, 1);
            let var = f.btf_var(id);
            let here = f.call(Helper::THIS_CPU_PTR, &[var.into()]);
            let value = f.load(Size::W, here, 0);
            let bits = f.alu(Alu::Rsh, Width::W32, value, 8);
            f.ret(bits);
        });
        program
    };
    let code = program(77).assemble(&Options::default()).unwrap();
    assert!(code.dump().contains("r1 = &var#77"), "{}", code.dump());
    assert_eq!((code.insns[0].src, code.insns[0].imm, code.insns[1].imm), (3, 77, 0));
    skip_unless_loadable!();
    let kernel = match btf::Btf::open(Path::new("/sys/kernel/btf/vmlinux")) {
        Ok(kernel) => kernel,
        Err(e) => return println!("SKIP: no kernel BTF: {e}"),
    };
    let Some(var) = kernel.find(btf::Kind::Var, "__preempt_count") else {
        return println!("SKIP: this kernel's BTF has no variable __preempt_count");
    };
    let code = program(var.0).assemble(&Options::default()).unwrap();
    let loaded = match common::load("variable", &code, &[]) {
        Ok(loaded) => loaded,
        Err(e) if e.log().is_some_and(|log| log.contains("failed to find the address")) => {
            return println!("SKIP: this kernel's kallsyms has no variables (CONFIG_KALLSYMS_ALL)");
        }
        Err(e) => panic!("{e:?}\n{}", code.dump()),
    };
    // A test run is a task's: no bit of an interrupt (0xffff00 of the count) is set.
    let retval = loaded.test_run(&bpf::TestRun::default()).unwrap().retval;
    assert_eq!(retval & 0xffff, 0, "{retval:#x}");
}
