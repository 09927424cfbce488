//! From a program to what the kernel loads.

use crate::alloc::allocate;
use crate::build::Program;
use crate::emit::{Emitted, emit};
use crate::encode::Insn;
use crate::error::Error;
use crate::frame::frame;
use crate::info;
use crate::ir::{FuncIr, MapId, Source};
use crate::legalize::legalize;
use crate::liveness::{drop_dead, liveness};
use crate::lower::lower;
use crate::simplify::simplify;

/// The instruction set to use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Cpu {
    /// 32-bit arithmetic and jumps, atomic addition without fetch: Linux 5.1 and later.
    #[default]
    V3,
    /// Sign-extending moves and loads too: Linux 6.6 and later.
    V4,
}

/// How to assemble.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Options {
    /// The instruction set.
    pub cpu: Cpu,
}

/// `struct bpf_func_info`: a function begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FuncInfo {
    /// Its first instruction.
    pub insn_off: u32,
    /// Its `BTF_KIND_FUNC` in [`Code::btf`].
    pub type_id: u32,
}

/// `struct bpf_line_info`: another source position begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LineInfo {
    /// The first instruction from there.
    pub insn_off: u32,
    /// The file's name in the strings of [`Code::btf`].
    pub file_name_off: u32,
    /// The line's text in the strings of [`Code::btf`].
    pub line_off: u32,
    /// `line << 10 | column`
    pub line_col: u32,
}

/// What a 64-bit load is waiting for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RelocKind {
    /// A map as helpers take it: the descriptor.
    Map,
    /// The address of that byte of the map's first value: the descriptor, and the offset in the second half.
    Value(u32),
}

/// An instruction that needs a map's file descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reloc {
    /// The first half of the 64-bit load.
    pub insn: usize,
    /// Which map.
    pub map: MapId,
    /// How it is used.
    pub kind: RelocKind,
}

/// Where an instruction comes from in the user's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position<'a> {
    /// What the user wrote.
    pub text: &'a str,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1.
    pub col: u32,
}

/// An assembled program.
#[derive(Clone, Debug)]
pub struct Code {
    /// The instructions, main first, then the subprograms that are called.
    pub insns: Vec<Insn>,
    /// What [`Code::relocate`] fills in.
    pub relocs: Vec<Reloc>,
    /// One for each function.
    pub func_info: Vec<FuncInfo>,
    /// In the order of instructions.
    pub line_info: Vec<LineInfo>,
    /// BTF with the functions and the texts, for `BPF_BTF_LOAD`.
    pub btf: Vec<u8>,
    /// Bytes of stack of the deepest chain of calls.
    pub stack_used: u32,
    /// The functions' names, as `func_info`.
    pub(crate) names: Vec<String>,
    pub(crate) file: String,
    pub(crate) sources: Vec<Source>,
    /// By instruction, an index into `sources`.
    pub(crate) lines: Vec<Option<u32>>,
}

impl Code {
    /// The instructions as `struct bpf_insn`, with map descriptors filled in.
    pub fn relocate(&self, fd: impl Fn(MapId) -> i32) -> Result<Vec<u64>, Error> {
        let mut insns = self.insns.clone();
        for reloc in &self.relocs {
            let fd = fd(reloc.map);
            match insns.get_mut(reloc.insn) {
                Some(insn) if fd >= 0 => insn.imm = fd,
                _ => return Err(Error::NoMap { map: reloc.map }),
            }
        }
        Ok(insns.into_iter().map(Insn::to_u64).collect())
    }

    /// `func_info` as the kernel takes it.
    pub fn func_info_raw(&self) -> Vec<[u32; 2]> {
        self.func_info.iter().map(|f| [f.insn_off, f.type_id]).collect()
    }

    /// `line_info` as the kernel takes it.
    pub fn line_info_raw(&self) -> Vec<[u32; 4]> {
        self.line_info.iter().map(|l| [l.insn_off, l.file_name_off, l.line_off, l.line_col]).collect()
    }

    /// Where an instruction comes from: the key from the verifier's log to the user's text.
    pub fn position(&self, insn: usize) -> Option<Position<'_>> {
        let source = self.sources.get((*self.lines.get(insn)?)? as usize)?;
        Some(Position { text: &source.text, line: source.line, col: source.col })
    }
}

/// One function, encoded.
pub(crate) struct Function<'a> {
    pub ir: &'a FuncIr,
    pub emitted: Emitted,
    pub stack: u32,
    /// Where it begins in the program.
    pub start: usize,
}

impl Program {
    /// Assembles the main function and the subprograms it reaches.
    pub fn assemble(&self, options: &Options) -> Result<Code, Error> {
        if let Some(misuse) = &self.misuse {
            return Err(misuse.clone());
        }
        let Some(main) = &self.main else {
            return Err(Error::NoMain { program: self.name.clone() });
        };
        let mut functions = vec![function(main, options)?];
        let mut wanted = vec![false; self.subs.len()];
        let mut built: Vec<Option<Function<'_>>> = self.subs.iter().map(|_| None).collect();
        want(&functions[0], &mut wanted);
        // A subprogram only calls those written before it.
        for n in (0..self.subs.len()).rev() {
            if wanted[n] {
                let sub = function(&self.subs[n], options)?;
                want(&sub, &mut wanted);
                built[n] = Some(sub);
            }
        }
        functions.extend(built.into_iter().flatten());
        let mut start = 0;
        for f in &mut functions {
            f.start = start;
            start += f.emitted.insns.len();
        }
        let stack_used = stack(&functions)?;
        self.link(functions, stack_used)
    }

    fn link(&self, functions: Vec<Function<'_>>, stack_used: u32) -> Result<Code, Error> {
        let described = info::describe(self, &functions);
        let mut code = Code {
            insns: Vec::new(),
            relocs: Vec::new(),
            func_info: described.func_info,
            line_info: described.line_info,
            btf: described.btf,
            stack_used,
            names: functions.iter().map(|f| f.ir.name.clone()).collect(),
            file: self.file.clone(),
            sources: self.sources.list.clone(),
            lines: Vec::new(),
        };
        for f in &functions {
            for reloc in &f.emitted.relocs {
                code.relocs.push(Reloc { insn: reloc.insn + f.start, ..*reloc });
            }
            code.insns.extend(&f.emitted.insns);
            code.lines.extend(&f.emitted.lines);
        }
        for f in &functions {
            for (at, sub) in &f.emitted.subs {
                let at = at + f.start;
                let target = functions.iter().find(|g| g.ir.id == sub.0 + 1).map(|g| g.start);
                let distance = target.and_then(|t| i32::try_from(t as i64 - at as i64 - 1).ok());
                let Some(distance) = distance else {
                    let what = "a subprogram that was not assembled".into();
                    return Err(Error::Internal { func: f.ir.name.clone(), what });
                };
                code.insns[at].imm = distance;
            }
        }
        Ok(code)
    }
}

fn function<'a>(ir: &'a FuncIr, options: &Options) -> Result<Function<'a>, Error> {
    let mut cfg = lower(ir);
    cfg.layout();
    if let Some(reg) = liveness(&cfg).unassigned.first() {
        return Err(Error::Unassigned { func: ir.name.clone(), reg: *reg });
    }
    simplify(&mut cfg);
    legalize(&mut cfg, options);
    drop_dead(&mut cfg);
    let place = allocate(&mut cfg)?;
    let frame = frame(&cfg);
    let emitted = emit(&cfg, &place, &frame)?;
    Ok(Function { ir, emitted, stack: frame.size, start: 0 })
}

fn want(f: &Function<'_>, wanted: &mut [bool]) {
    for (_, sub) in &f.emitted.subs {
        if let Some(w) = wanted.get_mut(sub.0 as usize) {
            *w = true;
        }
    }
}

/// `MAX_BPF_STACK` (include/linux/filter.h).
const MAX_STACK: u32 = 512;

/// Checks the stack of every chain of calls as `check_max_stack_depth` does (kernel/bpf/verifier.c: frames are rounded up
/// to 32 bytes there), and gives the bytes of the deepest.
fn stack(functions: &[Function<'_>]) -> Result<u32, Error> {
    // Callees are among those before, by subprogram number; main is last.
    let mut deepest: Vec<(u32, u32, String)> = vec![(0, 0, String::new()); functions.len()];
    for i in (1..functions.len()).chain([0]) {
        let f = &functions[i];
        let (mut used, mut counted, mut chain) = (0, 0, String::new());
        for (_, sub) in &f.emitted.subs {
            let callee = functions.iter().position(|g| g.ir.id == sub.0 + 1);
            if let Some((u, c, names)) = callee.map(|n| &deepest[n])
                && (*c > counted || chain.is_empty())
            {
                (used, counted, chain) = (*u, *c, format!(" → {names}"));
            }
        }
        used += f.stack;
        counted += f.stack.max(1).next_multiple_of(32);
        chain.insert_str(0, &f.ir.name);
        let alone = f.emitted.subs.is_empty();
        let need = if alone { f.stack } else { counted };
        if need > MAX_STACK {
            return Err(Error::Stack { chain, used: need, limit: MAX_STACK });
        }
        deepest[i] = (used, counted, chain);
    }
    Ok(deepest[0].0)
}
