//! Runs a program in the kernel and in the evaluator.
#![allow(clippy::unwrap_used, missing_docs, dead_code)]

use asm::{Code, Cpu, Machine, MapId, Options, Program};
use std::os::fd::{AsFd, AsRawFd};

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

/// Why this machine cannot load programs, if it cannot.
pub fn refusal() -> Option<String> {
    let insns = [0x0000_0000_0000_00b7u64, 0x0000_0000_0000_0095];
    match bpf::Program::load(&bpf::Load::new("probe", bpf::ProgType::RawTracepoint, &insns)) {
        Ok(_) => None,
        Err(e) if e.is_permission() => Some(e.to_string()),
        Err(e) => panic!("the smallest program is refused, and not for want of permission: {e:?}"),
    }
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

/// Loads with func_info, line_info and BTF, and runs once.
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
    let insns = code.relocate(|m| created[m.0 as usize].as_fd().as_raw_fd()).map_err(|e| e.to_string())?;
    let btf = bpf::load_btf(&code.btf).map_err(|e| format!("BTF: {e:?}"))?;
    let load = bpf::Load {
        btf: Some(btf.as_fd()),
        func_info: &code.func_info_raw(),
        line_info: &code.line_info_raw(),
        ..bpf::Load::new("random", bpf::ProgType::RawTracepoint, &insns)
    };
    let program = bpf::Program::load(&load).map_err(|e| match e {
        bpf::Error::Load { source, log, .. } => {
            let from = log.len().saturating_sub(3000);
            format!("load: {source}\n{}", String::from_utf8_lossy(&log.as_bytes()[from..]))
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

pub const CPUS: [Options; 2] = [Options { cpu: Cpu::V3 }, Options { cpu: Cpu::V4 }];
