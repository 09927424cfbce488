//! BPF programs to be traced: loaded, held, and run a known number of times.
//!
//! ```text
//! weigh_every_packet_twice(struct __sk_buff *skb)      a socket filter; run by BPF_PROG_TEST_RUN
//!     weigh(skb, -3, 1 << 40, RIGHT) = 97              a global subprogram
//!     add_pair({2, 3}) = 5                             a static one, whose prototype no verifier confirms
//!     tail call →
//! finish_after_the_jump(struct __sk_buff *skb) = 42    another socket filter
//!     settle(skb, 97) = 42                             its subprogram
//! seen_through_a_link(unsigned long long *ctx) = 0     at the tracepoint oom_score_adj_update; only its link is held
//! untyped                                              loaded without BTF
//! ```

use std::fmt::Display;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use asm::{Alu, Arg, Code, Helper, MapId, Options, Size, Width};
use bpf::{Link, Load, Map, MapType, ProgType, Program, TestRun};
use btf::{Builder, Linkage, NewMember, TypeId};

/// What the tail-called program returns, and so the first one, too.
const RETURNED: u32 = 42;

/// The programs, loaded.
pub struct Programs {
    weigh: Program,
    _finish: Program,
    _untyped: Program,
    _link: Link,
    _jumps: Map,
    pin: Option<PathBuf>,
}

impl Drop for Programs {
    fn drop(&mut self) {
        if let Some(pin) = &self.pin
            && let Err(error) = std::fs::remove_file(pin)
        {
            eprintln!("workloads: remove {}: {error}", pin.display());
        }
    }
}

impl Programs {
    /// Loads all of them; `pin` is where the first one is pinned for as long as they live.
    pub fn load(pin: Option<&str>) -> Result<Programs, String> {
        bpf::raise_limits();
        let jumps = Map::create(MapType::ProgArray, "jumps", 4, 4, 2).map_err(said)?;
        let weigh = weigh(&jumps)?;
        let finish = finish()?;
        jumps.update(&0u32.to_ne_bytes(), &finish.as_fd().as_raw_fd().to_ne_bytes()).map_err(said)?;
        let linked = linked()?;
        let link = bpf::open_raw_tracepoint(&linked, "oom_score_adj_update").map_err(said)?;
        // `r0 = 0; exit`.
        let untyped =
            Program::load(&Load::new("untyped", ProgType::SocketFilter, &[0xb7, 0x95])).map_err(said)?;
        if let Some(pin) = pin {
            weigh.pin(Path::new(pin)).map_err(said)?;
        }
        let pin = pin.map(PathBuf::from);
        Ok(Programs { weigh, _finish: finish, _untyped: untyped, _link: link, _jumps: jumps, pin })
    }

    /// Runs the first so many times, and with it what it calls.
    pub fn run(&self, count: u32) -> Result<(), String> {
        if count == 0 {
            return Ok(());
        }
        let run = TestRun { data: &[0; 64], repeat: count, ..Default::default() };
        match self.weigh.test_run(&run).map_err(said)?.retval {
            RETURNED => Ok(()),
            other => Err(format!("the program returned {other}, not {RETURNED}: was its tail call refused?")),
        }
    }
}

fn said(error: impl Display) -> String {
    error.to_string()
}

/// The types that the programs' functions have.
struct Types {
    btf: Builder,
    int: TypeId,
    u32: TypeId,
    u64: TypeId,
    side: TypeId,
    skb: TypeId,
}

impl Types {
    fn new() -> Types {
        let mut btf = Builder::new();
        let int = btf.int("int", 4, true);
        let u32 = btf.int("unsigned int", 4, false);
        let long = btf.int("unsigned long long", 8, false);
        let u64 = btf.typedef("__u64", long);
        let side = btf.enumeration("side", 4, false, &[("LEFT", 0), ("RIGHT", 1)]);
        // The verifier goes by the name alone.
        let skb = btf.strukt("__sk_buff", 4, &[NewMember::at("len", u32, 0)]);
        let skb = btf.ptr(skb);
        Types { btf, int, u32, u64, side, skb }
    }

    fn function(&mut self, name: &str, linkage: Linkage, params: &[(&str, TypeId)]) -> TypeId {
        let proto = self.btf.func_proto(self.int, params);
        self.btf.func(name, proto, linkage)
    }
}

/// Loads a program whose functions, in the order of its code, are of these types.
fn load(
    name: &str,
    ty: ProgType,
    code: &Code,
    types: Types,
    functions: &[TypeId],
    jumps: i32,
) -> Result<Program, String> {
    let insns = code.relocate(|_| jumps).map_err(said)?;
    let func_info: Vec<[u32; 2]> =
        code.func_info.iter().zip(functions).map(|(info, ty)| [info.insn_off, ty.0]).collect();
    if func_info.len() != code.func_info.len() {
        return Err(format!("{name}: {} functions, types for {}", code.func_info.len(), func_info.len()));
    }
    // A source line for each function, as if it had been compiled from a file.
    let mut types = types;
    let (file, text) = (types.btf.string(&format!("{name}.bpf.c")), types.btf.string("\t/* the function */"));
    let line = |(at, [insn, _]): (usize, &[u32; 2])| [*insn, file, text, (10 * (at as u32 + 1)) << 10 | 2];
    let line_info: Vec<[u32; 4]> = func_info.iter().enumerate().map(line).collect();
    let btf = bpf::load_btf(&types.btf.finish()).map_err(said)?;
    let load = Load {
        btf: Some(btf.as_fd()),
        func_info: &func_info,
        line_info: &line_info,
        ..Load::new(name, ty, &insns)
    };
    Program::load(&load).map_err(|e| format!("{e}: {}", e.log().unwrap_or_default()))
}

fn weigh(jumps: &Map) -> Result<Program, String> {
    const JUMPS: MapId = MapId(0);
    const NAME: &str = "weigh_every_packet_twice";
    let mut program = asm::Program::new(NAME, "programs");
    let weigh = program.sub("weigh", 4, |f| {
        let delta = f.param(1);
        let weight = f.alu(Alu::Add, Width::W32, delta, 100);
        f.ret(weight);
    });
    let add_pair = program.sub("add_pair", 1, |f| {
        let pair = f.param(0);
        let (a, b) = (f.load(Size::W, pair, 0), f.load(Size::W, pair, 4));
        let sum = f.alu(Alu::Add, Width::W64, a, b);
        f.ret(sum);
    });
    program.main(|f| {
        let weight = f.call_sub(weigh, &[Arg::Ctx, Arg::Imm(-3), Arg::Imm(1 << 40), Arg::Imm(1)]);
        let pair = f.slot(8, 8);
        f.store_slot(Size::W, pair, 0, 2);
        f.store_slot(Size::W, pair, 4, 3);
        let sum = f.call_sub(add_pair, &[Arg::SlotAddr(pair, 0)]);
        f.call(Helper::TAIL_CALL, &[Arg::Ctx, Arg::Map(JUMPS), Arg::Imm(0)]);
        let all = f.alu(Alu::Add, Width::W64, weight, sum);
        f.ret(all);
    });
    let code = program.assemble(&Options::default()).map_err(said)?;
    let mut t = Types::new();
    let (int, u64, side, skb) = (t.int, t.u64, t.side, t.skb);
    let pair = t.btf.ptr(t.u32);
    let functions = [
        t.function(NAME, Linkage::Global, &[("skb", skb)]),
        t.function(
            "weigh",
            Linkage::Global,
            &[("skb", skb), ("delta", int), ("factor", u64), ("side", side)],
        ),
        t.function("add_pair", Linkage::Static, &[("pair", pair)]),
    ];
    load(NAME, ProgType::SocketFilter, &code, t, &functions, jumps.as_fd().as_raw_fd())
}

fn finish() -> Result<Program, String> {
    const NAME: &str = "finish_after_the_jump";
    let mut program = asm::Program::new(NAME, "programs");
    let settle = program.sub("settle", 2, |f| {
        let weight = f.param(1);
        let left = f.alu(Alu::Sub, Width::W64, weight, 55);
        f.ret(left);
    });
    program.main(|f| {
        let settled = f.call_sub(settle, &[Arg::Ctx, Arg::Imm(97)]);
        f.ret(settled);
    });
    let code = program.assemble(&Options::default()).map_err(said)?;
    let mut t = Types::new();
    let (u32, skb) = (t.u32, t.skb);
    let functions = [
        t.function(NAME, Linkage::Global, &[("skb", skb)]),
        t.function("settle", Linkage::Static, &[("skb", skb), ("weight", u32)]),
    ];
    load(NAME, ProgType::SocketFilter, &code, t, &functions, -1)
}

fn linked() -> Result<Program, String> {
    const NAME: &str = "seen_through_a_link";
    let mut program = asm::Program::new(NAME, "programs");
    program.main(|f| f.ret(0));
    let code = program.assemble(&Options::default()).map_err(said)?;
    let mut t = Types::new();
    let ctx = t.btf.ptr(t.u64);
    let functions = [t.function(NAME, Linkage::Global, &[("ctx", ctx)])];
    load(NAME, ProgType::RawTracepoint, &code, t, &functions, -1)
}
