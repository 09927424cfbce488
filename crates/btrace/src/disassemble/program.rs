//! BPF programs: machine code with the program's own names, its maps among them.

use super::Tools;
use super::lines::Known;
use super::listing::Listing;
use super::names::{Names, Own};
use super::patched::Patched;
use super::show::{Before, Head};
use asm::Insn;
use btf::Kind;
use btrace::cli::Args;
use disasm::bpf_jit::{self, Run};
use disasm::{Arch, Disassembler, Line, NoSymbols};
use std::collections::BTreeSet;
use std::ops::Range;
use symbols::lines::ProgramLine;
use symbols::{Live, Table};
use trace::{FunctionCode, Kernel, ProgramCode};

/// `BPF_PSEUDO_MAP_FD` and `BPF_PSEUDO_MAP_VALUE` (include/uapi/linux/bpf.h): what a 64-bit load loads.
const MAP: u8 = 1;
const MAP_VALUE: u8 = 2;

/// `BPF_JMP | BPF_CALL`, and `BPF_PSEUDO_CALL`.
const CALL: u8 = 0x85;
const SUBPROGRAM: u8 = 1;

/// `BPF_LD | BPF_IMM | BPF_DW`.
const LOAD_64: u8 = 0x18;

/// Shows every function of a program.
pub fn show(
    args: &Args,
    kernel: &Kernel,
    tools: &mut Tools,
    live: Option<&Live>,
    program: &ProgramCode,
    out: &mut Listing,
) -> anyhow::Result<()> {
    let mut own: Vec<Own> = Vec::new();
    for function in &program.functions {
        own.push(Own {
            address: function.address,
            size: function.code.len() as u64,
            name: function.name.clone().unwrap_or_else(|| program.name.clone()),
            kind: "bpf".into(),
        });
    }
    if let Some(live) = live {
        own.extend(maps(kernel, &mut tools.disassembler, live, program));
    }
    own.sort_by_key(|own| own.address);
    let patched: Vec<Vec<u8>> = program.functions.iter().map(|f| now(live, f)).collect();
    let lines = symbols::lines::program_lines(program.id)?.unwrap_or_default();
    let names = Names {
        code: &tools.code,
        data: &tools.data,
        per_cpu: &tools.per_cpu,
        patched: &Patched::default(),
        own: &own,
        lines: &Known::new(),
    };
    let translation = match args.xlated {
        true => Some(Translation { program, code: &tools.code, call_base: call_base()? }),
        false => None,
    };
    let mut text = Vec::new();
    for (function, code) in program.functions.iter().zip(&patched) {
        let before = before(function, &lines, translation.as_ref(), tools.arch);
        let head = Head {
            name: function.name.as_deref().unwrap_or(&program.name),
            module: Some("bpf"),
            prototype: function.prototype.as_deref(),
            program: Some(program.id),
            address: function.address,
            bytes: disasm::trim_padding(code, tools.arch),
        };
        tools.show.function(&mut tools.disassembler, &names, &head, &before, &mut text);
    }
    out.write(&text)
}

/// What precedes machine code: each source line, and with `xlated` the instructions of BPF, each where its own code begins if that can
/// be told, else where its line's does.
fn before(
    function: &FunctionCode,
    lines: &[ProgramLine],
    xlated: Option<&Translation<'_>>,
    arch: Arch,
) -> Vec<Before> {
    let end = function.address.saturating_add(function.code.len() as u64);
    let own: Vec<&ProgramLine> =
        lines.iter().filter(|line| (function.address..end).contains(&line.address)).collect();
    let places = match xlated {
        Some(translation) => own_code(function, translation.program, &own, arch),
        None => Vec::new(),
    };
    let mut before = Vec::new();
    let translated = |from: usize, to: usize, address: u64, before: &mut Vec<Before>| {
        let Some(translation) = xlated else { return };
        let mut address = address;
        for (at, text) in translation.instructions(from..to) {
            let place = at.checked_sub(function.insns.start).and_then(|at| places.get(at).copied().flatten());
            address = place.map_or(address, |offset| function.address.saturating_add(offset as u64));
            before.push(Before { address, text });
        }
    };
    // What is before the first line, or all where there is none.
    let first = own.first().map_or(function.insns.end, |line| line.instruction as usize);
    translated(function.insns.start, first.min(function.insns.end), function.address, &mut before);
    for (at, line) in own.iter().enumerate() {
        let place = match line.column {
            0 => format!("{}:{}", line.file, line.line),
            column => format!("{}:{}:{column}", line.file, line.line),
        };
        before.push(Before { address: line.address, text: format!("{place}  {}", line.text.trim()) });
        let next = own.get(at + 1).map_or(function.insns.end, |next| next.instruction as usize);
        translated(line.instruction as usize, next, line.address, &mut before);
    }
    before
}

/// Where each of a function's instructions of BPF has its own machine code.
fn own_code(
    function: &FunctionCode,
    program: &ProgramCode,
    lines: &[&ProgramLine],
    arch: Arch,
) -> Vec<Option<usize>> {
    let insns = program.xlated.get(function.insns.clone()).unwrap_or_default();
    let run = |line: &&ProgramLine| {
        Some(Run {
            insn: (line.instruction as usize).checked_sub(function.insns.start)?,
            offset: usize::try_from(line.address.checked_sub(function.address)?).ok()?,
        })
    };
    let runs: Vec<Run> = lines.iter().filter_map(run).collect();
    let places = bpf_jit::align(arch, insns, &function.code, function.address, &runs);
    let wide = insns.iter().filter(|word| Insn::from_u64(**word).is_wide()).count();
    log::debug!(
        "{}: {} of {} instructions of BPF stand before their own machine code, the others before their line's",
        function.name.as_deref().unwrap_or(&program.name),
        places.iter().flatten().count(),
        insns.len() - wide.min(insns.len())
    );
    places
}

/// What the instructions of BPF refer to, by name.
struct Translation<'a> {
    program: &'a ProgramCode,
    code: &'a Table,
    /// What a call's constant is relative to.
    call_base: Option<u64>,
}

/// The address of `__bpf_call_base` (kernel/bpf/core.c), if the kernel tells.
fn call_base() -> anyhow::Result<Option<u64>> {
    let found = symbols::find("__bpf_call_base")?;
    Ok(found.iter().find(|s| s.name == "__bpf_call_base" && s.address != 0).map(|s| s.address))
}

impl Translation<'_> {
    /// Instructions as `kernel/bpf/disasm.c` writes them, by their numbers; maps, helpers and subprograms by name.
    fn instructions(&self, range: Range<usize>) -> Vec<(usize, String)> {
        let mut texts = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let Some(insn) = self.program.xlated.get(at).map(|word| Insn::from_u64(*word)) else { break };
            let text = if insn.is_wide() {
                let second = self.program.xlated.get(at + 1).map_or(0, |word| Insn::from_u64(*word).imm);
                self.wide(insn, second)
            } else {
                self.call(at, insn).unwrap_or_else(|| insn.to_string())
            };
            texts.push((at, format!("  {at:4}: {text}")));
            at += if insn.is_wide() { 2 } else { 1 };
        }
        texts
    }

    /// A call: of a helper or kernel function by its address, of a subprogram by how far it is.
    fn call(&self, at: usize, insn: Insn) -> Option<String> {
        if insn.code != CALL {
            return None;
        }
        if insn.src == SUBPROGRAM {
            // Once the program is compiled the constant is the subprogram's number, and the distance lies beside it
            // (`jit_subprogs`, kernel/bpf/verifier.c).
            let target = at.checked_add_signed(isize::from(insn.off))?.checked_add(1)?;
            let function = self.program.functions.iter().find(|f| f.insns.start == target)?;
            return Some(format!("call {}", function.name.as_deref()?));
        }
        let address = self.call_base?.checked_add_signed(i64::from(insn.imm))?;
        let symbol = self.code.resolve(address).filter(|s| s.offset == 0)?;
        Some(format!("call {}", symbol.name))
    }

    /// A load of 64 bits.
    fn wide(&self, insn: Insn, second: i32) -> String {
        let id = insn.imm.cast_unsigned();
        let name = || self.program.maps.iter().find(|m| m.id == id).map_or("?", |m| m.name.as_str());
        match insn.src {
            MAP => format!("r{} = map[{id}] {}", insn.dst, name()),
            MAP_VALUE => format!("r{} = map[{id}][0]+{second} {}", insn.dst, name()),
            _ => {
                let value = u64::from(second.cast_unsigned()) << 32 | u64::from(id);
                format!("r{} = {value:#x}", insn.dst)
            }
        }
    }
}

/// A function's code as it is now: with the call to a trampoline, if one is attached.
fn now(live: Option<&Live>, function: &FunctionCode) -> Vec<u8> {
    let read = live.and_then(|live| live.read(function.address, function.code.len()).ok());
    read.filter(|bytes| bytes.len() == function.code.len()).unwrap_or_else(|| function.code.clone())
}

/// Where the program's maps, and what it uses of their values, lie: the kernel tells no addresses of maps, but the program's
/// code has them, and a map tells its id.
fn maps(kernel: &Kernel, disassembler: &mut Disassembler, live: &Live, program: &ProgramCode) -> Vec<Own> {
    let offset = |strukt: &str, member: &str| {
        let id = kernel.btf.find(Kind::Struct, strukt)?;
        Some(u64::from(kernel.btf.member(id, member).ok()?.bit_offset / 8))
    };
    let (Some(id_at), Some(value_at)) = (offset("bpf_map", "id"), offset("bpf_array", "value")) else {
        return Vec::new();
    };
    let id_of = |address: u64| -> Option<u32> {
        let bytes = live.read(address.checked_add(id_at)?, 4).ok()?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let mut found = Vec::new();
    let loads = map_loads(&program.xlated);
    for address in constants(disassembler, program) {
        for (what, map, off) in &loads {
            let Some(info) = program.maps.iter().find(|m| m.id == *map) else { continue };
            let (start, size) = match *what {
                MAP => (Some(address), 1),
                _ => (
                    address.checked_sub(value_at + u64::from(*off)),
                    u64::from(info.value_size) * u64::from(info.max_entries),
                ),
            };
            if start.and_then(id_of) == Some(*map) {
                let own = Own {
                    address: if *what == MAP { address } else { address - u64::from(*off) },
                    size,
                    name: info.name.clone(),
                    kind: if *what == MAP { format!("map {map}") } else { format!("value of map {map}") },
                };
                if !found.contains(&own) {
                    found.push(own);
                }
            }
        }
    }
    found
}

/// The 64-bit loads of maps: of what, which map by id, and how far into its value.
fn map_loads(xlated: &[u64]) -> BTreeSet<(u8, u32, u32)> {
    let mut loads = BTreeSet::new();
    for pair in xlated.windows(2) {
        let [first, second] = pair else { continue };
        let source = (first >> 12) as u8 & 0xf;
        if *first as u8 == LOAD_64 && matches!(source, MAP | MAP_VALUE) {
            let off = if source == MAP { 0 } else { (second >> 32) as u32 };
            loads.insert((source, (first >> 32) as u32, off));
        }
    }
    loads
}

/// The 64-bit constants in a program's machine code (x86: `movabs`).
fn constants(disassembler: &mut Disassembler, program: &ProgramCode) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for function in &program.functions {
        let mut lines = disassembler.decode(&function.code, function.address, &NoSymbols);
        while let Some(line) = lines.next_line() {
            if let Line::Instruction(instruction) = line
                && let [0x48 | 0x49, 0xb8..=0xbf, constant @ ..] = instruction.bytes
                && let Ok(constant) = <[u8; 8]>::try_from(constant)
            {
                found.insert(u64::from_le_bytes(constant));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_of_maps_are_found_among_others() {
        // r1 = map 7; r2 = value of map 9 at 16; r3 = 5 (64 bits); r0 = 0
        let xlated = [0x7_0000_1118, 0, 0x9_0000_2218, 0x10_0000_0000, 0x5_0000_0318, 0, 0xb7];
        let loads: Vec<_> = map_loads(&xlated).into_iter().collect();
        assert_eq!(loads, [(MAP, 7, 0), (MAP_VALUE, 9, 16)]);
        assert!(map_loads(&[]).is_empty() && map_loads(&[0x7_0000_1118]).is_empty());
    }
}
