//! The verifier accepts every expression that the compiler accepts: random ones over the types of the running kernel, in programs that are
//! loaded and never attached.
//!
//! `EXPR_PROGRAMS=n` sets how many are made (200 without it), `EXPR_SEED=n` from where on.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use asm::{Alu, Arg, Cpu, Func, Helper, MapId, Options, Program, Reg, Size, Width};
use btf::{Btf, Kind, TypeId};
use common::image::Random;
use common::walk::{Arguments, Walk};
use expr::tree::{Output, Root, Statement, Test};
use expr::{Compiler, Room, Scope, Source, Symbol, Tid, Ty, Types, Variable};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

const OUT: MapId = MapId(0);
const OUT_SIZE: u32 = 32 << 10;

/// A tracepoint's context: a slot for each argument.
struct Slots<'s> {
    ctx: Reg,
    args: &'s [Variable],
    typed: bool,
    /// The verifier is let know what `$task` is.
    typed_task: bool,
    task: (i32, i32),
}

impl Source for Slots<'_> {
    fn word(&self, f: &mut Func<'_>, root: Root, slot: u32) -> Reg {
        match root {
            Root::Arg(n) => {
                let at = (i32::from(n) + slot as i32) * 8;
                if !self.typed || !matches!(self.args[usize::from(n)].ty, Ty::Ptr(_)) {
                    return f.load(Size::DW, self.ctx, at);
                }
                let value = f.var();
                f.labelled(|f, _| {
                    let cell = f.slot(8, 8);
                    f.store_slot(Size::DW, cell, 0, 0);
                    let args = [Arg::SlotAddr(cell, 0), Arg::Imm(8), Arg::Offset(self.ctx, at)];
                    f.call(Helper::PROBE_READ_KERNEL, &args);
                    let word = f.load_slot(Size::DW, cell, 0);
                    f.assign(value, word);
                });
                value
            }
            Root::Pid | Root::Tid if !self.typed_task => {
                let both = f.call(Helper::GET_CURRENT_PID_TGID, &[]);
                if root == Root::Tid { f.zext(both, Size::W) } else { f.alu(Alu::Rsh, Width::W64, both, 32) }
            }
            Root::Pid | Root::Tid => {
                let task = f.call(Helper::GET_CURRENT_TASK_BTF, &[]);
                f.load(Size::W, task, if root == Root::Pid { self.task.0 } else { self.task.1 })
            }
            Root::Cpu => f.call(Helper::GET_SMP_PROCESSOR_ID, &[]),
            Root::Cgroup => f.call(Helper::GET_CURRENT_CGROUP_ID, &[]),
            Root::Task => f.call(Helper::GET_CURRENT_TASK, &[]),
            Root::PerCpu(id) => {
                let var = f.btf_var(id);
                f.call(Helper::THIS_CPU_PTR, &[Arg::Reg(var)])
            }
            Root::Retval | Root::Ns | Root::Duration | Root::Context => f.call(Helper::KTIME_GET_NS, &[]),
        }
    }

    fn typed(&self, root: Root) -> bool {
        self.typed_task && root == Root::Task || self.typed && matches!(root, Root::Arg(_))
    }

    fn pointer(&self, f: &mut Func<'_>, root: Root) -> Reg {
        match root {
            Root::Arg(n) => f.load(Size::DW, self.ctx, i32::from(n) * 8),
            _ => f.call(Helper::GET_CURRENT_TASK_BTF, &[]),
        }
    }

    fn cheap(&self, root: Root) -> bool {
        matches!(root, Root::Arg(_))
    }
}

/// Loads a tracing program that is told of one BTF and one map.
fn load(program: &Program, cpu: Cpu, attach: Option<TypeId>, out: &bpf::Map) -> Result<bpf::Program, String> {
    let code = program.assemble(&Options { cpu }).map_err(|e| format!("assembling: {e}"))?;
    let insns = code.relocate(|_| out.as_fd().as_raw_fd()).map_err(|e| e.to_string())?;
    let btf = bpf::load_btf(&code.btf).map_err(|e| e.to_string())?;
    let ty = if attach.is_some() { bpf::ProgType::Tracing } else { bpf::ProgType::RawTracepoint };
    let loaded = bpf::Program::load(&bpf::Load {
        btf: Some(btf.as_fd()),
        func_info: &code.func_info_raw(),
        line_info: &code.line_info_raw(),
        attach_type: if attach.is_some() { bpf::AttachType::TpBtf } else { bpf::AttachType::None },
        attach_btf_id: attach.map_or(0, |id| id.0),
        ..bpf::Load::new("expr", ty, &insns)
    });
    loaded.map_err(|e| {
        let log = e.log().unwrap_or_default();
        format!("{e}\n{}\n{} instructions", &log[log.len().saturating_sub(2500)..], insns.len())
    })
}

/// A tracepoint with something to follow.
struct Tracepoint {
    name: String,
    id: TypeId,
    args: Vec<Variable>,
}

fn tracepoints(btf: &Btf, types: &Types<'_>) -> Vec<Tracepoint> {
    let mut found = Vec::new();
    for (id, name) in btf.names_from(Kind::Typedef, "btf_trace_") {
        let Ok(proto) = btf.proto(btf.get(btf.resolve(id)).unwrap().target().unwrap()) else { continue };
        let args: Vec<Variable> = proto
            .params
            .iter()
            .skip(1)
            .map(|p| {
                let tid = Tid { space: 0, id: p.ty };
                Variable { name: p.name.clone(), ty: types.ty(tid), spelled: Some(tid) }
            })
            .collect();
        let structs = args.iter().any(|a| matches!(&a.ty, Ty::Ptr(to) if matches!(**to, Ty::Composite(_))));
        // The context of what takes a structure by value is another.
        if structs && args.iter().all(|a| a.ty.is_scalar()) {
            found.push(Tracepoint { name: name["btf_trace_".len()..].into(), id, args });
        }
    }
    found
}

struct Lab<'b> {
    types: Types<'b>,
    out: bpf::Map,
    task: (i32, i32),
    /// Linux 5.11 and later.
    task_btf: bool,
}

impl Lab<'_> {
    fn program(
        &self,
        args: &[Variable],
        typed: bool,
        outputs: &[(String, Output)],
        filter: Option<&(String, Test)>,
    ) -> Option<Program> {
        let mut end = 0;
        let mut rooms = Vec::new();
        for (_, output) in outputs {
            let len = match output {
                Output::Value(place) => self.types.size(&place.ty).unwrap_or(8) as u32,
                _ => 0,
            };
            let room = Room::of(output, end, 64, len);
            end += room.size;
            rooms.push(room);
        }
        if end > OUT_SIZE {
            return None;
        }
        let mut program = Program::new("expr", "test");
        program.main(|f| {
            let ctx = f.ctx();
            let source = Slots { ctx, args, typed, typed_task: self.task_btf, task: self.task };
            let mark = |f: &mut Func<'_>, text: &str| f.line(text, 1, 1);
            let mut compiler = Compiler::new(&source, &mark);
            let tests: Vec<Test> = filter.iter().flat_map(|(_, test)| test.clone().conjuncts()).collect();
            compiler.foresee(&tests, outputs.iter().map(|(_, output)| output));
            if let Some((text, _)) = filter {
                compiler.require(f, &tests, text, 0);
            }
            let record = f.map_value(OUT, 0);
            for ((text, output), room) in outputs.iter().zip(&rooms) {
                compiler.output(f, output, text, record, *room);
            }
        });
        Some(program)
    }
}

/// Where a task's `tgid` and `pid` lie.
fn ids(kernel: &Btf) -> (i32, i32) {
    let task = kernel.find(Kind::Struct, "task_struct").unwrap();
    let offset = |name: &str| kernel.member(task, name).unwrap().byte_offset() as i32;
    (offset("tgid"), offset("pid"))
}

fn has_current_task_btf(kernel: &Btf) -> bool {
    kernel.enum_has("bpf_func_id", "BPF_FUNC_get_current_task_btf").is_some()
}

#[derive(Debug, Default)]
struct Tally {
    programs: usize,
    expressions: usize,
    /// Made by the generator and refused by the checker, with its reason.
    refused: usize,
    /// Refused because programs have so much stack and no more.
    large: usize,
    reasons: std::collections::BTreeMap<String, usize>,
}

#[test]
fn every_expression_is_accepted() {
    if let Some(why) = common::run::refusal() {
        println!("SKIP: this machine loads no BPF programs: {why}");
        return;
    }
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |n| n.parse().unwrap());
    let (programs, first) = (number("EXPR_PROGRAMS", 200), number("EXPR_SEED", 1));
    let kernel = match Btf::open(Path::new("/sys/kernel/btf/vmlinux")) {
        Ok(kernel) => kernel,
        Err(e) => return println!("SKIP: no kernel BTF: {e}"),
    };
    let types = Types::new(vec![&kernel]);
    let out = bpf::Map::create(bpf::MapType::Array, "out", 4, OUT_SIZE, 1).unwrap();
    let task_btf = has_current_task_btf(&kernel);
    let lab = Lab { types: types.clone(), out, task: ids(&kernel), task_btf };
    let tracepoints = tracepoints(&kernel, &types);
    assert!(tracepoints.len() > 20, "{}", tracepoints.len());
    // Names that the expressions may have for variables: a kernel without CONFIG_KALLSYMS_ALL has none.
    let symbols: std::collections::HashSet<String> = std::fs::read_to_string("/proc/kallsyms")
        .unwrap_or_default()
        .lines()
        .filter_map(|line| Some(line.split_ascii_whitespace().nth(2)?.to_string()))
        .collect();
    let symbol = |name: &str| match symbols.contains(name) {
        true => Symbol::At(0xffff_ffff_8000_0000),
        false => Symbol::Unknown,
    };
    let walk = RefCell::new(Walk::new(&kernel, &types, &|name| symbols.contains(name)));
    let cpus = common::run::cpus();
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    for seed in first..first + programs {
        let mut random = Random(seed);
        let point = random.pick(&tracepoints);
        let typed = !random.one_in(4);
        let scope = Scope {
            target: point.name.clone(),
            types: types.clone(),
            args: point.args.clone(),
            retval: None,
            no_retval: "a tracepoint returns nothing".into(),
            duration: false,
            symbol: &symbol,
            untold: &|_| None,
        };
        let walk = &mut walk.borrow_mut();
        walk.begin(random, Arguments { args: &point.args });
        let (mut outputs, mut filter) = (Vec::new(), None);
        for _ in 0..1 + walk.random.below(3) {
            let text = walk.output();
            match expr::output(&text, &scope) {
                Ok(Statement::Output(output)) => outputs.push((text, output)),
                Ok(_) => {}
                Err(error) => {
                    tally.refused += 1;
                    let reason: String =
                        error.message.chars().filter(|c| !c.is_ascii_digit()).take(30).collect();
                    *tally.reasons.entry(reason).or_default() += 1;
                    if std::env::var("EXPR_REFUSED").is_ok() {
                        println!("{}\n{}", error.message, error.point(&text));
                    }
                }
            }
        }
        let text = walk.test();
        match expr::filter(&text, &scope) {
            Ok(test) => filter = Some((text, test)),
            Err(_) => tally.refused += 1,
        }
        let cpu = *walk.random.pick(&cpus);
        let attach = typed.then_some(point.id);
        tally.programs += 1;
        tally.expressions += outputs.len() + usize::from(filter.is_some());
        let Some(program) = lab.program(&point.args, typed, &outputs, filter.as_ref()) else { continue };
        let Err(error) = load(&program, cpu, attach, &lab.out) else { continue };
        // The least of it that is refused.
        let alone = |outputs: &[(String, Output)], filter: Option<&(String, Test)>| {
            let program = lab.program(&point.args, typed, outputs, filter)?;
            load(&program, cpu, attach, &lab.out).err()
        };
        let mut said = None;
        for output in &outputs {
            said = said.or_else(|| Some((output.0.clone(), alone(std::slice::from_ref(output), None)?)));
        }
        if let Some(filter) = &filter {
            said = said.or_else(|| Some((filter.0.clone(), alone(&[], Some(filter))?)));
        }
        let all = outputs.iter().map(|(t, _)| t).chain(filter.iter().map(|(t, _)| t));
        let (text, error) = said.unwrap_or_else(|| (all.cloned().collect::<Vec<_>>().join("\n"), error));
        if error.contains("assembling") {
            tally.large += 1;
            println!("seed {seed}: {error}: {text}");
            continue;
        }
        wrong.push(format!(
            "seed {seed}: {} {}: {text}\n{error}",
            if typed { "tp_btf" } else { "raw_tp" },
            point.name
        ));
        if wrong.len() >= 12 {
            break;
        }
    }
    println!("{} tracepoints; {tally:?}", tracepoints.len());
    assert!(wrong.is_empty(), "{} refused: {}", wrong.len(), wrong.join("\n"));
    assert!(tally.expressions as u64 >= programs, "{tally:?}");
}

/// What lies behind `$task` is the same by loads that the verifier checks and by probe reads.
#[test]
fn loads_and_probe_reads_agree() {
    if let Some(why) = common::run::refusal() {
        println!("SKIP: this machine loads no BPF programs: {why}");
        return;
    }
    let kernel = match Btf::open(Path::new("/sys/kernel/btf/vmlinux")) {
        Ok(kernel) => kernel,
        Err(e) => return println!("SKIP: no kernel BTF: {e}"),
    };
    if !has_current_task_btf(&kernel) {
        return println!("SKIP: this kernel has no bpf_get_current_task_btf (5.11 and later)");
    }
    let types = Types::new(vec![&kernel]);
    let out = bpf::Map::create(bpf::MapType::Array, "out", 4, OUT_SIZE, 1).unwrap();
    let scope = Scope {
        target: "probed".into(),
        types: types.clone(),
        args: Vec::new(),
        retval: None,
        no_retval: String::new(),
        duration: false,
        symbol: &|_| Symbol::Unknown,
        untold: &|_| None,
    };
    let mut walk = Walk::new(&kernel, &types, &|_| false);
    let (mut values, mut failures, mut wrong) = (0, 0, Vec::new());
    for seed in 1..400 {
        walk.begin(Random(seed), Arguments { args: &[] });
        let mut outputs = Vec::new();
        while outputs.len() < 6 {
            let text = walk.walk().0;
            // A probe read disables page faults while it reads how often that is done.
            if text.contains("pagefault_disabled") {
                continue;
            }
            if let Ok(Statement::Output(output)) = expr::output(&text, &scope)
                && Room::of(&output, 0, 64, 0).size < OUT_SIZE / 16
            {
                outputs.push((text, output));
            }
        }
        let mut end = 0;
        let mut rooms = Vec::new();
        let mut program = Program::new("agree", "test");
        program.main(|f| {
            let ctx = f.ctx();
            let mark = |f: &mut Func<'_>, text: &str| f.line(text, 1, 1);
            let record = f.map_value(OUT, 0);
            for (text, output) in &outputs {
                for typed_task in [true, false] {
                    let source = Slots { ctx, args: &[], typed: false, typed_task, task: ids(&kernel) };
                    let mut compiler = Compiler::new(&source, &mark);
                    let room = Room::of(output, end, 64, 0);
                    end += room.size;
                    rooms.push(room);
                    compiler.output(f, output, text, record, room);
                }
            }
        });
        let loaded = load(&program, Cpu::V3, None, &out).unwrap_or_else(|e| panic!("{outputs:?}\n{e}"));
        // What changes by itself does not do so each time between the two.
        let mut differ = outputs.clone();
        for _ in 0..8 {
            out.update(&[0; 4], &[0; OUT_SIZE as usize]).unwrap();
            assert_eq!(loaded.test_run(&bpf::TestRun::default()).unwrap().retval, 0);
            let bytes = out.lookup(&[0; 4]).unwrap().unwrap();
            let record = |room: &Room| {
                let record = &bytes[room.offset as usize..][..room.size as usize];
                let status = u64::from_le_bytes(record[..8].try_into().unwrap());
                match expr::Failure::of(status) {
                    Some(failure) => Err((failure.span, failure.errno.is_some())),
                    None => Ok(record[8..].to_vec()),
                }
            };
            let mut still = Vec::new();
            for ((text, output), rooms) in outputs.iter().zip(rooms.chunks(2)) {
                let (plain, probed) = (record(&rooms[0]), record(&rooms[1]));
                if plain != probed {
                    still.push((text.clone(), output.clone()));
                } else if differ.iter().any(|(t, _)| t == text) {
                    if plain.is_ok() { values += 1 } else { failures += 1 }
                }
            }
            differ.retain(|(text, _)| still.iter().any(|(t, _)| t == text));
            if differ.is_empty() {
                break;
            }
        }
        wrong.extend(differ.into_iter().map(|(text, _)| format!("seed {seed}: {text}")));
    }
    println!("{values} values and {failures} failures are the same");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(values > 500 && failures > 20);
}
