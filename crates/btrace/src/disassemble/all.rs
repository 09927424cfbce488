//! Everything disassembled, for `btrace selftest disasm-all`: what cannot be decoded is a defect, unless it is known to be no code.

use super::bytes::Bytes;
use super::host;
use super::lines::Known;
use super::names::Names;
use super::patched::Tables;
use super::show::{Head, Show};
use anyhow::{Context, bail};
use btrace::logging::say;
use disasm::{Arch, Disassembler, Line, NoSymbols, Syntax};
use symbols::{Kallsyms, Live, Table};

/// Functions named whose bytes cannot be decoded; the rest are counted.
const NAMED: usize = 50;

/// UDB, which is undefined for good: what should never run is filled with it (Intel, 2025; binutils before 2.45 call it bad).
const UDB: u8 = 0xd6;

/// A function's code, as far as it is to be decoded.
struct Function<'a> {
    head: Head<'a>,
    code: Vec<u8>,
}

/// Disassembles every symbol of code in /proc/kallsyms, annotated as `btrace -d` does, and prints the tally.
///
/// # Errors
/// There are undecodable bytes in code.
pub fn all() -> anyhow::Result<()> {
    let arch = host().context("btrace does not know this processor's machine code")?;
    let Kallsyms { code, data, per_cpu } = Table::load_all()?;
    let mut bytes = Bytes::Live(Live::open()?);
    let patched = Tables::default().of(None, &code, &mut bytes);
    let Some(live) = bytes.live() else { bail!("nothing live can be read") };
    let (mut unreadable, mut freed) = (0, 0);
    let mut functions = Vec::new();
    for extent in code.extents() {
        // The last symbol of a range: nothing tells where it ends.
        let Some(end) = extent.end else { continue };
        if code.init_text().is_some_and(|init| init.contains(&extent.address)) {
            freed += 1;
            continue;
        }
        let mut own = live.read(extent.address, usize::try_from(end - extent.address)?)?;
        if own.is_empty() {
            unreadable += 1;
            continue;
        }
        if extent.module == Some("bpf") {
            own.truncate(super::before_filler(&own).len());
        }
        own.truncate(disasm::trim_padding(&own, arch).len());
        let head = Head {
            name: extent.name,
            module: extent.module,
            prototype: None,
            program: None,
            address: extent.address,
            bytes: &[],
        };
        functions.push(Function { head, code: own });
    }
    let mut disassembler = Disassembler::new(arch, Syntax::Att);
    let mut tally = Tally::default();
    for function in &functions {
        tally.count(&mut disassembler, arch, live, function)?;
    }
    let names = Names {
        code: &code,
        data: &data,
        per_cpu: &per_cpu,
        patched: &patched,
        own: &[],
        lines: &Known::new(),
    };
    let show = Show::plain();
    let (mut text, mut written) = (Vec::new(), 0);
    let before = cpu_ns()?;
    for Function { head, code } in &functions {
        text.clear();
        show.function(&mut disassembler, &names, &Head { bytes: code, ..*head }, &[], &mut text);
        written += text.len();
    }
    let seconds = (cpu_ns()? - before).max(1) as f64 / 1e9;
    for (name, wrong) in tally.bad.iter().take(NAMED) {
        say(format_args!("btrace: {name}: {wrong} bytes cannot be decoded"));
    }
    let undecodable: u64 = tally.bad.iter().map(|(_, wrong)| wrong).sum();
    println!(
        "{} functions, {} bytes, {} instructions from {live}; {unreadable} symbols unreadable, {freed} freed after boot; {undecodable} undecodable bytes \
         (beside {} of UDB, {} of instructions that the next symbol cuts); {:.1} MB/s annotated, by CPU time, into {:.1} MB; {} MiB at most",
        functions.len(),
        tally.bytes,
        tally.instructions,
        tally.udb,
        tally.cut,
        tally.bytes as f64 / 1e6 / seconds,
        written as f64 / 1e6,
        peak_mib(),
    );
    if undecodable > 0 {
        bail!("{undecodable} bytes of code could not be decoded");
    }
    Ok(())
}

#[derive(Default)]
struct Tally {
    bytes: usize,
    instructions: u64,
    udb: u64,
    cut: u64,
    bad: Vec<(String, u64)>,
}

impl Tally {
    fn count(
        &mut self,
        disassembler: &mut Disassembler,
        arch: Arch,
        live: &Live,
        function: &Function<'_>,
    ) -> anyhow::Result<()> {
        self.bytes += function.code.len();
        let mut wrong = Vec::new();
        let mut lines = disassembler.decode(&function.code, function.head.address, &NoSymbols);
        while let Some(line) = lines.next_line() {
            if let Line::Instruction(instruction) = line {
                self.instructions += 1;
                if !instruction.is_valid() {
                    wrong.push((instruction.address, instruction.bytes.to_vec()));
                }
            }
        }
        let mut bad = 0;
        for (address, bytes) in wrong {
            if arch == Arch::X86_64 && bytes == [UDB] {
                self.udb += 1;
            } else if cut(disassembler, live, address)? {
                self.cut += 1;
            } else {
                bad += bytes.len() as u64;
            }
        }
        if bad > 0 {
            self.bad.push((function.head.name.to_string(), bad));
        }
        Ok(())
    }
}

/// Whether it is an instruction when what follows the symbol is taken with it: some functions begin amid another's
/// instruction on purpose (`srso_untrain_ret`).
fn cut(disassembler: &mut Disassembler, live: &Live, address: u64) -> anyhow::Result<bool> {
    let bytes = live.read(address, super::LONGEST as usize)?;
    let mut lines = disassembler.decode(&bytes, address, &NoSymbols);
    while let Some(line) = lines.next_line() {
        if let Line::Instruction(instruction) = line {
            return Ok(instruction.is_valid());
        }
    }
    Ok(false)
}

/// The most memory that this process has had, MiB; 0 where the system does not tell.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    peak.and_then(|l| l.split_ascii_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) >> 10
}

/// What this thread has run, in ns: other load on the machine does not count.
fn cpu_ns() -> anyhow::Result<u64> {
    const PATH: &str = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(PATH).with_context(|| format!("read {PATH}"))?;
    text.split_ascii_whitespace()
        .next()
        .and_then(|n| n.parse().ok())
        .with_context(|| format!("{PATH}: {text:?}"))
}
