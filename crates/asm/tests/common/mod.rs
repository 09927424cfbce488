//! Runs a program in the kernel and in the evaluator.
#![allow(clippy::unwrap_used, missing_docs, dead_code)]

use asm::{Arg, Code, Cpu, Helper, Machine, MapId, Options, Program, Size};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::OnceLock;

/// An array map of a test: its number is its place in the list.
#[derive(Clone, Debug)]
pub struct TestMap {
    pub value_size: u32,
    pub values: Vec<u8>,
}

/// What a run leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub retval: u32,
    pub maps: Vec<Vec<u8>>,
}

/// What the running kernel can be given.
#[derive(Debug)]
pub struct Kernel {
    /// Why this machine loads no programs at all, if it does not. They are then assembled and evaluated only.
    pub refusal: Option<String>,
    /// The instruction sets it takes: version 4 from Linux 6.6.
    pub options: Vec<Options>,
    /// Whether it has `bpf_loop` (Linux 5.17).
    pub loops: bool,
}

pub fn kernel() -> &'static Kernel {
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    KERNEL.get_or_init(|| {
        // Before 5.11 BPF memory counts against it.
        bpf::raise_limits();
        let all = vec![Options { cpu: Cpu::V3 }, Options { cpu: Cpu::V4 }];
        let smallest = program(|f| f.ret(0));
        match load("smallest", &smallest.assemble(&all[0]).unwrap(), &[]) {
            Ok(_) => {}
            Err(e) if e.is_permission() => {
                return Kernel { refusal: Some(e.to_string()), options: all, loops: true };
            }
            Err(e) => panic!("the smallest program is refused, and not for want of permission: {e:?}"),
        }
        let signs = program(|f| {
            let time = f.call(Helper::KTIME_GET_NS, &[]);
            let low = f.sext(time, Size::B);
            f.ret(low);
        });
        let mut looping = Program::new("loop", "common");
        let body = looping.sub("body", 2, |f| f.ret(0));
        looping.main(|f| {
            let done = f.call(Helper::LOOP, &[1.into(), Arg::Sub(body), 0.into(), 0.into()]);
            f.ret(done);
        });
        let takes = |program: &Program, options: &Options| {
            load("try", &program.assemble(options).unwrap(), &[]).is_ok()
        };
        let options: Vec<Options> = all.into_iter().filter(|o| takes(&signs, o)).collect();
        assert!(!options.is_empty());
        let kernel = Kernel { refusal: None, loops: takes(&looping, &options[0]), options };
        println!("this kernel: {kernel:?}");
        kernel
    })
}

fn program(body: impl FnOnce(&mut asm::Func<'_>)) -> Program {
    let mut program = Program::new("try", "common");
    program.main(body);
    program
}

/// Loads with func_info, line_info and BTF.
pub fn load(name: &str, code: &Code, maps: &[&dyn AsFd]) -> bpf::Result<bpf::Program> {
    let insns = code.relocate(|m| maps[m.0 as usize].as_fd().as_raw_fd()).unwrap();
    let btf = bpf::load_btf(&code.btf)?;
    bpf::Program::load(&bpf::Load {
        btf: Some(btf.as_fd()),
        func_info: &code.func_info_raw(),
        line_info: &code.line_info_raw(),
        ..bpf::Load::new(name, bpf::ProgType::RawTracepoint, &insns)
    })
}

pub fn evaluate(program: &Program, ctx: &[u8], maps: &[TestMap]) -> Result<Outcome, asm::Fault> {
    let mut machine = Machine::new(ctx);
    for (n, map) in maps.iter().enumerate() {
        machine.memory.add_map(MapId(n as u32), map.value_size as usize, &map.values);
    }
    machine.helpers = Some(Box::new(|helper, _, _| {
        Ok(match helper {
            asm::Helper::KTIME_GET_NS => Some(0x1234_5678_9abc_def0),
            asm::Helper::GET_SMP_PROCESSOR_ID => Some(1),
            _ => None,
        })
    }));
    let retval = program.evaluate(&mut machine)? as u32;
    let maps = (0..maps.len()).map(|n| machine.memory.map(MapId(n as u32)).unwrap().to_vec()).collect();
    Ok(Outcome { retval, maps })
}

/// Loads and runs once.
pub fn run(code: &Code, ctx: &[u8], maps: &[TestMap]) -> Result<Outcome, String> {
    let created: Vec<bpf::Map> = maps
        .iter()
        .map(|m| {
            let entries = m.values.len() as u32 / m.value_size;
            let map = bpf::Map::create(bpf::MapType::Array, "test", 4, m.value_size, entries).unwrap();
            for (i, value) in m.values.chunks_exact(m.value_size as usize).enumerate() {
                map.update(&(i as u32).to_ne_bytes(), value).unwrap();
            }
            map
        })
        .collect();
    let fds: Vec<&dyn AsFd> = created.iter().map(|map| map as &dyn AsFd).collect();
    let program = load("random", code, &fds).map_err(|e| match e {
        bpf::Error::Load { name, source, log } => {
            let from = log.len().saturating_sub(3000);
            format!("load {name}: {source}\n{}", String::from_utf8_lossy(&log.as_bytes()[from..]))
        }
        e => e.to_string(),
    })?;
    let out = program
        .test_run(&bpf::TestRun { data: &[], ctx, repeat: 0 })
        .map_err(|e| format!("test run: {e}"))?;
    let maps = created
        .iter()
        .zip(maps)
        .map(|(map, m)| {
            let entries = m.values.len() as u32 / m.value_size;
            (0..entries).flat_map(|i| map.lookup(&i.to_ne_bytes()).unwrap().unwrap()).collect()
        })
        .collect();
    Ok(Outcome { retval: out.retval, maps })
}
