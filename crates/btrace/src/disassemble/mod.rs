//! `btrace -d`: live machine code of the kernel and of BPF programs.

mod all;
mod bytes;
mod lines;
mod listing;
mod names;
mod patched;
mod place;
mod program;
mod show;

pub use all::all;
pub use bytes::Bytes;
pub use lines::Finder;
pub use names::Names;
pub use patched::Tables;

use crate::output::WriteFailed;
use crate::run::Reported;
use crate::words::count;
use anyhow::{Context, bail};
use btrace::cli::Args;
use btrace::logging::say;
use bytes::Known;
use disasm::{Arch, Disassembler, Line, NoSymbols, Syntax};
use listing::Listing;
use place::{Code, Place};
use show::{Head, Show};
use std::rc::Rc;
use symbols::lines::Source;
use symbols::{Kallsyms, Table};

use trace::{Kernel, split_list};

/// Most bytes that are looked at where nothing tells where a symbol ends.
const MOST_UNBOUNDED: u64 = 64 << 10;

/// So many bytes of filler in a row end what nothing else ends: no code has them.
const FILLER: usize = 16;

/// Bytes of the longest instruction of any processor, and one more.
const LONGEST: u64 = 16;

/// What every listing takes.
struct Tools {
    code: Rc<Table>,
    data: Table,
    per_cpu: Table,
    patched: Tables,
    lines: Finder,
    arch: Arch,
    disassembler: Disassembler,
    show: Show,
}

/// Disassembles what was asked for, and prints it.
///
/// # Errors
/// [`Reported`] when a target could not be shown, which has been said; all others have been shown. What concerns them all.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let places = args
        .kfunc
        .iter()
        .flat_map(|list| split_list(list))
        .map(|text| Place::parse(text).context("-d -k"))
        .collect::<anyhow::Result<Vec<Place>>>()?;
    let programs = args.programs()?;
    if places.is_empty() && programs.is_empty() {
        bail!("nothing to disassemble: name a function with -k, or a BPF program with -p (btrace --help)");
    }
    let arch = host().context("btrace does not know this processor's machine code")?;
    let vmlinux = match args.vmlinux.as_deref().map(symbols::lines::open_vmlinux).transpose() {
        Err(error) if !matches!(error, symbols::lines::Error::NoLines { .. }) => {
            return Err(error).context("--vmlinux");
        }
        opened => opened,
    };
    let Known { tables: Kallsyms { code, data, per_cpu }, list, mut bytes } =
        Known::open(args.vmlinux.as_deref())?;
    let code = Rc::new(code);
    // All names first, so that a wrong one is said before anything is shown.
    let mut failed = false;
    let mut found = Vec::new();
    for place in &places {
        match place.find(&code, &list) {
            Ok(codes) => found.extend(codes),
            Err(error) => fail(&mut failed, &error),
        }
    }
    let kernel = if programs.is_empty() { None } else { Some(Kernel::running()?) };
    let mut of_programs = Vec::new();
    for spec in &programs {
        let Some(kernel) = &kernel else { continue };
        match trace::program_code(kernel, spec) {
            Ok(all) => of_programs.extend(all),
            Err(error) => fail(&mut failed, &error.into()),
        }
    }
    let lines = match vmlinux {
        Ok(vmlinux) => Finder::new(Source::new(Rc::clone(&code), vmlinux)),
        // It serves for its code.
        Err(_) if !bytes.is_live() => Finder::without(),
        Err(error) => return Err(error).context("--vmlinux"),
    };
    let syntax = if args.disasm_intel_syntax { Syntax::Intel } else { Syntax::Att };
    let mut out = Listing::open(args.output.as_deref())?;
    let show = Show::new(args, out.is_terminal);
    let mut tools = Tools {
        code,
        data,
        per_cpu,
        patched: Tables::default(),
        lines,
        arch,
        disassembler: Disassembler::new(arch, syntax),
        show,
    };
    if let Bytes::Live(live) = &bytes {
        log::info!("the bytes are live, from {live}");
    }
    for one in &found {
        if out.is_closed {
            return Ok(());
        }
        match kernel_code(args, &mut bytes, &mut tools, one, &mut out) {
            Err(error) if error.is::<WriteFailed>() => return Err(error),
            Err(error) => fail(&mut failed, &error),
            Ok(()) => {}
        }
    }
    for one in &of_programs {
        let Some(kernel) = &kernel else { continue };
        program::show(args, kernel, &mut tools, bytes.live(), one, &mut out)?;
    }
    if failed { Err(Reported.into()) } else { Ok(()) }
}

/// Says what is wrong with a target; the others are shown all the same.
fn fail(failed: &mut bool, error: &anyhow::Error) {
    *failed = true;
    crate::say_error(error);
}

/// The processor that btrace runs on, and so the kernel.
fn host() -> Option<Arch> {
    if cfg!(target_arch = "x86_64") {
        Some(Arch::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Arch::Arm64)
    } else {
        None
    }
}

/// Shows a function of the kernel, or other code of it.
fn kernel_code(
    args: &Args,
    live: &mut Bytes,
    tools: &mut Tools,
    one: &Code,
    out: &mut Listing,
) -> anyhow::Result<()> {
    if tools.code.init_text().is_some_and(|init| init.contains(&one.from)) {
        bail!("{}: it ran at boot alone (__init) and was freed then: none of its code is left", one.name);
    }
    let one = &at_an_instruction(live, tools, one)?;
    let asked = u64::from(args.disasm_bytes);
    let len = match (asked, one.end) {
        (0, Some(end)) => end - one.from,
        (0, None) => MOST_UNBOUNDED,
        // And the rest of the last instruction.
        (asked, _) => asked + LONGEST,
    };
    let bytes = live
        .read(one.module.as_deref(), one.from, usize::try_from(len)?)
        .with_context(|| format!("{}: read its code at {:#x}", one.name, one.from))?;
    if bytes.is_empty() {
        bail!(
            "{}: nothing can be read at {:#x}: it was freed after boot, or the kernel lets nobody read it",
            one.name,
            one.from
        );
    }
    let code = match asked {
        0 => {
            let alone = one.end.is_none() || one.module.as_deref() == Some("bpf");
            let own = if alone { before_filler(&bytes) } else { &bytes };
            disasm::trim_padding(own, tools.arch)
        }
        asked => whole(tools, &bytes, one.from, asked),
    };
    let mut text = Vec::new();
    let mut rest = code;
    let mut at = one.from;
    // What was asked for may go on into the next function.
    while !rest.is_empty() {
        let here = tools.code.extent(at).filter(|_| at != one.from);
        let (name, symbol) =
            here.as_ref().map_or((one.name.as_str(), one.symbol), |extent| (extent.name, extent.address));
        let end = tools.code.named_after(at);
        let len = end.map_or(rest.len(), |end| rest.len().min(end.saturating_sub(at).max(1) as usize));
        let (piece, others) = rest.split_at_checked(len).unwrap_or((rest, &[]));
        let name = if at == symbol { name.to_string() } else { format!("{name}+{:#x}", at - symbol) };
        let module = here.as_ref().map_or(one.module.as_deref(), |extent| extent.module);
        let known = tools.lines.of_code(&mut tools.disassembler, piece, at, module);
        let patched = tools.patched.of(module, &tools.code, live);
        let names = Names {
            code: &tools.code,
            data: &tools.data,
            per_cpu: &tools.per_cpu,
            patched: &patched,
            own: &[],
            lines: &known,
        };
        let head = Head { name: &name, module, prototype: None, program: None, address: at, bytes: piece };
        tools.show.function(&mut tools.disassembler, &names, &head, &[], &mut text);
        rest = others;
        at = at.saturating_add(piece.len() as u64);
    }
    if asked > bytes.len() as u64 {
        text.extend_from_slice(
            format!("; only {} of {asked} bytes can be read there\n\n", bytes.len()).as_bytes(),
        );
    }
    out.write(&text)
}

/// So many bytes, and the rest of the instruction that they end in.
fn whole<'a>(tools: &mut Tools, bytes: &'a [u8], address: u64, asked: u64) -> &'a [u8] {
    let mut lines = tools.disassembler.decode(bytes, address, &NoSymbols);
    let mut end = bytes.len();
    while let Some(line) = lines.next_line() {
        if let Line::Instruction(instruction) = line
            && instruction.address.wrapping_sub(address) >= asked
        {
            end = instruction.address.wrapping_sub(address) as usize;
            break;
        }
    }
    bytes.get(..end).unwrap_or(bytes)
}

/// The same code, beginning with the instruction that covers its first byte: decoded from amid one, the next would be wrong
/// too.
fn at_an_instruction(live: &mut Bytes, tools: &mut Tools, one: &Code) -> anyhow::Result<Code> {
    let mut one = one.clone();
    let into = usize::try_from(one.from - one.symbol)?;
    if into == 0 {
        return Ok(one);
    }
    let bytes = live.read(one.module.as_deref(), one.symbol, into + LONGEST as usize)?;
    let mut lines = tools.disassembler.decode(&bytes, one.symbol, &NoSymbols);
    let mut start = one.from;
    while let Some(line) = lines.next_line() {
        if let Line::Instruction(instruction) = line {
            if instruction.address > one.from {
                break;
            }
            start = instruction.address;
        }
    }
    if start != one.from {
        say(format_args!(
            "btrace: {}+{into:#x} lies in an instruction that begins {} before",
            one.name,
            count(one.from - start, "byte")
        ));
    }
    one.from = start;
    Ok(one)
}

/// The bytes before a long run of filler: BPF programs and trampolines share pages that are filled with it, and kallsyms
/// does not tell how far each of them reaches.
fn before_filler(bytes: &[u8]) -> &[u8] {
    let filler = |window: &[u8]| window.iter().all(|b| *b == 0xcc) || window.iter().all(|b| *b == 0);
    let end = bytes.windows(FILLER).position(filler).unwrap_or(bytes.len());
    bytes.get(..end.max(1)).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filler_ends_what_nothing_else_ends() {
        let mut code = vec![0x90; 40];
        code.extend([0xcc; 15]);
        assert_eq!(before_filler(&code).len(), 55, "too little of it to be sure");
        code.extend([0xcc; 40]);
        code.extend([0x55; 8]);
        assert_eq!(before_filler(&code).len(), 40);
        assert_eq!(before_filler(&[0; 64]).len(), 1, "never nothing");
        assert_eq!(before_filler(&[0x55, 0xc3]), [0x55, 0xc3]);
    }
}
