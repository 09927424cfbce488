//! `cargo xtask debuginfo`: source lines of a real kernel, held against binutils' addr2line, and where its file is another
//! against elfutils'.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::frames::{self, Ran};
use crate::initramfs::Addition;
use crate::vm::VmOptions;
use crate::{Failure, apt, bench, guest, kernels};

/// Hold source lines and inlined functions against addr2line: of addresses spread over a stock kernel, and of the stacks that
/// btrace shows in it.
///
/// Debian's debug package of the kernel (280 MB) is fetched into target/lab/kernels on first use.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// 5.10, 6.1, 6.12 or 7.2
    #[arg(long, value_name = "VERSION", default_value = "6.1")]
    kernel: String,

    /// Addresses to compare
    #[arg(long, value_name = "N", default_value_t = 500)]
    addresses: usize,

    /// Only the comparison of addresses: boot nothing
    #[arg(long)]
    no_boot: bool,
}

/// A module with a stack that reaches into it: `lo_ioctl` calls `loop_configure`.
const MODULE: &str = "drivers/block/loop.ko";

/// Where the kernel's text begins (__START_KERNEL_map).
const TEXT: u64 = 0xffff_ffff_8000_0000;

/// Where modules and BPF programs begin (MODULES_VADDR, arch/x86/include/asm/pgtable_64_types.h).
const MODULES: u64 = 0xffff_ffff_c000_0000;

/// Runs it; gives back the exit status.
pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    compare(arguments).map(|()| 0).map_err(|error| Failure::new(1, error))
}

fn compare(arguments: &Arguments) -> Result<()> {
    apt::ensure(&[
        ("addr2line", "binutils"),
        ("nm", "binutils"),
        ("objcopy", "binutils"),
        ("eu-addr2line", "elfutils"),
    ])?;
    let stock = kernels::STOCK.iter().find(|stock| stock.label == arguments.kernel);
    let stock = stock.with_context(|| format!("no stock kernel {}", arguments.kernel))?;
    let (folder, release) = stock.debug(&[MODULE])?;
    let vmlinux = folder.join("usr/lib/debug/boot").join(format!("vmlinux-{release}"));
    spread(&vmlinux, arguments.addresses)?;
    if !arguments.no_boot {
        booted(arguments, &folder, &release, &vmlinux)?;
    }
    Ok(())
}

/// Functions inlined into one another, innermost first, each with its place: `file:line`.
type Chain = Vec<(String, String)>;

/// What source lines of a stock kernel cost: CPU ms to open its debug file and look one address up, the same for `count` of
/// them, and MiB of memory beside the file.
pub fn cost(label: &str, count: usize) -> Result<[f64; 3]> {
    apt::ensure(&[("nm", "binutils")])?;
    let stock = kernels::STOCK.iter().find(|stock| stock.label == label);
    let (folder, release) = stock.with_context(|| format!("no stock kernel {label}"))?.debug(&[MODULE])?;
    let vmlinux = folder.join("usr/lib/debug/boot").join(format!("vmlinux-{release}"));
    let (_, said) = looked_up(&vmlinux, &addresses(&vmlinux, count)?)?;
    costs(&said, count).with_context(|| format!("no cost in {said:?}"))
}

/// What `btrace selftest lines` says that it cost: ms for the first, ms for all of `count`, MiB.
fn costs(said: &str, count: usize) -> Option<[f64; 3]> {
    let spaced = said.replace([',', ';', ':'], " ");
    let numbers: Vec<f64> = bench::numbers(&spaced).collect();
    match numbers.as_slice() {
        // The number of addresses stands among them, and tells that the sentence is the one that is meant.
        [first, asked, all, memory, ..] if *asked == count as f64 => Some([*first, *all, *memory]),
        _ => None,
    }
}

/// The lines of these addresses as btrace has them, and what it says of the cost.
fn looked_up(vmlinux: &Path, addresses: &[u64]) -> Result<(String, String)> {
    let btrace = guest::build(true)?.btrace.context("no btrace was built")?;
    fed(Command::new(&btrace).args(["selftest", "lines"]).arg(vmlinux), &as_lines(addresses))
}

fn as_lines(addresses: &[u64]) -> String {
    addresses.iter().fold(String::new(), |mut text, address| {
        let _ = writeln!(text, "{address:#x}");
        text
    })
}

/// Addresses spread over the text, in the midst of functions.
fn addresses(vmlinux: &Path, count: usize) -> Result<Vec<u64>> {
    let symbols =
        output(Command::new("nm").args(["--numeric-sort", "--print-size", "--defined-only"]).arg(vmlinux))?;
    let functions: Vec<(u64, u64)> = symbols
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let size = u64::from_str_radix(words.next()?, 16).ok()?;
            let text = matches!(words.next()?, "t" | "T") && address >= TEXT && size > 0;
            // Padding before functions, where nothing runs.
            let padding = words.next()?.starts_with("__pfx_");
            (text && !padding).then_some((address, size))
        })
        .collect();
    ensure!(functions.len() >= count && count > 0, "{} functions in {}", functions.len(), vmlinux.display());
    // Anywhere in a function, but the same at every run.
    let within = |(index, (address, size)): (usize, &(u64, u64))| {
        address + (index as u64).wrapping_mul(0x9e37_79b9) % size
    };
    let every = functions.len() / count;
    Ok(functions.iter().step_by(every).take(count).enumerate().map(within).collect())
}

/// Our lines of addresses spread over the text, held against addr2line's.
fn spread(vmlinux: &Path, count: usize) -> Result<()> {
    let addresses = addresses(vmlinux, count)?;
    let (ours, said) = looked_up(vmlinux, &addresses)?;
    let ours = parse(&ours)?;
    let ours: Vec<(u64, Chain)> = addresses
        .iter()
        .map(|at| Ok((*at, ours.get(at).with_context(|| format!("{at:#x}: no answer of ours"))?.clone())))
        .collect::<Result<_>>()?;
    let judged = judge(&ours, &["-e", &vmlinux.to_string_lossy()])?;
    ensure!(
        judged.inlined * 10 > addresses.len(),
        "only {} of the addresses are in inlined functions",
        judged.inlined
    );
    println!("{}", said.trim());
    println!("{} addresses: {judged}", addresses.len());
    Ok(())
}

/// How many answers were found right.
#[derive(Debug, Default)]
struct Judged {
    /// As addr2line has them.
    by_binutils: usize,
    /// Of another file than addr2line has, and as eu-addr2line has them.
    by_elfutils: usize,
    /// Those of both in inlined functions.
    inlined: usize,
}

impl Judged {
    fn all(&self) -> usize {
        self.by_binutils + self.by_elfutils
    }
}

impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} right, {} of them as addr2line has them, {} of another file, as eu-addr2line has them; {} in inlined functions",
            self.all(),
            self.by_binutils,
            self.by_elfutils,
            self.inlined
        )
    }
}

/// Holds answers against those of others for a file (and section), all of which must be right.
///
/// Functions, lines and their number must be addr2line's. Where it has another file, elfutils decides, which shares no code with it:
/// binutils 2.40 names the source file itself for what comes from the first header in the file table of a unit of DWARF 5,
/// where elfutils and LLVM name the header.
fn judge(ours: &[(u64, Chain)], file: &[&str]) -> Result<Judged> {
    let addresses: Vec<u64> = ours.iter().map(|(at, _)| *at).collect();
    let theirs = addr2line("addr2line", file, &addresses)?;
    let mut judged = Judged::default();
    let mut disputed = Vec::new();
    for (at, chain) in ours {
        let theirs = theirs.get(at).with_context(|| format!("{at:#x}: no answer of addr2line"))?;
        judged.inlined += usize::from(theirs.len() > 1);
        match agree(chain, theirs) {
            Agreement::Whole => judged.by_binutils += 1,
            Agreement::ButFile => disputed.push((*at, chain, theirs)),
            Agreement::None => bail!("{at:#x}: ours {chain:?}, addr2line {theirs:?}"),
        }
    }
    if disputed.is_empty() {
        return Ok(judged);
    }
    let addresses: Vec<u64> = disputed.iter().map(|(at, ..)| *at).collect();
    let third = addr2line("eu-addr2line", file, &addresses)?;
    for (at, chain, theirs) in disputed {
        let third = third.get(&at).with_context(|| format!("{at:#x}: no answer of eu-addr2line"))?;
        ensure!(
            agree(chain, third) == Agreement::Whole,
            "{at:#x}: ours {chain:?}, addr2line {theirs:?}, eu-addr2line {third:?}"
        );
        judged.by_elfutils += 1;
    }
    Ok(judged)
}

/// How two answers compare.
#[derive(Debug, PartialEq, Eq)]
enum Agreement {
    Whole,
    /// Functions and lines are the same, a file is not.
    ButFile,
    None,
}

fn agree(ours: &Chain, theirs: &Chain) -> Agreement {
    // It tells unknown places so; and the symbol for a function that has no name in DWARF.
    let unknown =
        |chain: &Chain| chain.iter().all(|(_, place)| place.starts_with("??:") || place.ends_with(":?"));
    if ours.is_empty() || unknown(ours) {
        return if unknown(theirs) { Agreement::Whole } else { Agreement::None };
    }
    let mut agreement = if ours.len() == theirs.len() { Agreement::Whole } else { Agreement::None };
    for ((function, place), (their_function, their_place)) in ours.iter().zip(theirs) {
        let (file, line) = place.rsplit_once(':').unwrap_or((place, ""));
        let (their_file, their_line) = their_place.rsplit_once(':').unwrap_or((their_place, ""));
        // Code that belongs to no line.
        let their_line = if their_line == "?" { "0" } else { their_line };
        let line = if line == "?" { "0" } else { line };
        let their_file = normal(their_file);
        let same_file = their_file == file || their_file.ends_with(&format!("/{file}"));
        // Rust's names are demangled, which addr2line does otherwise.
        let same_function =
            function == their_function || function == "??" || their_function.starts_with("_R");
        if !same_function || line != their_line {
            return Agreement::None;
        }
        if !same_file && agreement == Agreement::Whole {
            agreement = Agreement::ButFile;
        }
    }
    agreement
}

/// Without `.`, `..` and empty parts.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "." => {}
            "" if !parts.is_empty() => {}
            ".." if parts.last().is_some_and(|last| *last != ".." && !last.is_empty()) => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// What a program of this name, or like it, says of addresses.
fn addr2line(program: &str, file: &[&str], addresses: &[u64]) -> Result<BTreeMap<u64, Chain>> {
    let (text, _) = fed(Command::new(program).args(["-a", "-i", "-f"]).args(file), &as_lines(addresses))?;
    parse(&text)
}

/// What `addr2line -a -i -f` prints, `btrace selftest lines` in its manner, and `eu-addr2line -a -i -f`: an address, then pairs of
/// lines.
fn parse(text: &str) -> Result<BTreeMap<u64, Chain>> {
    let mut answers = BTreeMap::new();
    let mut chain: Option<&mut Chain> = None;
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(address) = line.strip_prefix("0x") {
            // One that is asked for twice is answered twice.
            let answer: &mut Chain = answers.entry(u64::from_str_radix(address, 16)?).or_default();
            answer.clear();
            chain = Some(answer);
            continue;
        }
        // elfutils says where, which the next pair says again.
        let function = line.split(" inlined at ").next().unwrap_or(line);
        let place = lines.next().context("a function without its place")?;
        let place = place.split(" (discriminator").next().unwrap_or(place);
        let chain = chain.as_mut().context("a function without its address")?;
        chain.push((function.to_owned(), without_column(place).to_owned()));
    }
    Ok(answers)
}

/// `file:line` of `file:line:column`, as elfutils has it.
fn without_column(place: &str) -> &str {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match place.rsplit_once(':') {
        Some((rest, column))
            if number(column) && rest.rsplit_once(':').is_some_and(|(_, line)| number(line)) =>
        {
            rest
        }
        _ => place,
    }
}

/// In the guest: stacks with lines, each frame as addr2line has it; a module's too.
fn booted(arguments: &Arguments, folder: &Path, release: &str, vmlinux: &Path) -> Result<()> {
    // What lines are read from, and no more: the guest's memory holds it.
    let aside = tempfile::tempdir().context("making a folder")?;
    let small = aside.path().join("vmlinux");
    let sections = [".rela*", ".debug_loc*", ".debug_frame"].map(|name| format!("--remove-section={name}"));
    output(Command::new("objcopy").arg("--only-keep-debug").args(sections).arg(vmlinux).arg(&small))?;
    let module = Path::new("usr/lib/debug/lib/modules").join(release).join("kernel").join(MODULE);
    let size = |path: &Path| fs::metadata(path).map_or(0, |data| data.len() >> 20);
    let options = VmOptions {
        memory_mib: 1024 + 3 * u32::try_from(size(&small)).unwrap_or(1024),
        additions: vec![
            Addition { source: small, destination: format!("/usr/lib/debug/boot/vmlinux-{release}") },
            Addition { source: folder.join(&module), destination: format!("/{}", module.display()) },
        ],
        modules: vec!["loop".to_owned()],
        ..VmOptions::new(&arguments.kernel, "")
    };
    let ran = frames::run(
        &options,
        &[
            "btrace -v -k vfs_read --output-stack --limit-events 3 -c 'workloads read-zero 5 512'; \
             btrace -v -k tcp_v4_rcv --output-stack --limit-events 3 -c 'workloads connect-loopback 5'",
            "dd if=/dev/zero of=/tmp/i bs=512 count=100 2>/dev/null
            btrace -v -k loop:loop_configure --mode entry --output-stack --limit-events 1 -c 'losetup -f /tmp/i'
            cat /sys/module/loop/sections/.text >&2",
            &format!(
                "btrace -k vfs_read --json --output-stack --limit-events 1 --vmlinux /usr/lib/debug/boot/vmlinux-{release} \
                 -c 'workloads read-zero 5 512'"
            ),
            "btrace -d -k __tcf_qdisc_find,do_trace_netlink_extack,perf_trace_run_bpf_submit --json",
        ],
    )?;
    let [kernel, of_module, json, code] = ran.as_slice() else { bail!("four answers") };
    let moved = kernel.stderr.split(", moved by 0x").nth(1).and_then(|rest| rest.lines().next());
    let moved = u64::from_str_radix(moved.with_context(|| format!("no offset: {}", kernel.stderr))?, 16)?;
    let frames =
        stacks_agree(kernel, |address| address < MODULES, moved, &["-e", &vmlinux.to_string_lossy()])?;
    ensure!(frames.all() > 30 && frames.inlined > 0, "few frames: {}", kernel.stdout);
    let text =
        of_module.stderr.lines().last().and_then(|l| u64::from_str_radix(l.strip_prefix("0x")?, 16).ok());
    let text = text.with_context(|| format!("no address: {}", of_module.stderr))?;
    let object = folder.join(&module);
    let object = ["-j", ".text", "-e", &object.to_string_lossy()];
    let in_module = |address| (text..text + (1 << 20)).contains(&address);
    let of_module = stacks_agree(of_module, in_module, text, &object)?;
    ensure!(of_module.all() >= 2, "{} frames of the module", of_module.all());
    let event = json.stdout.lines().find(|line| line.starts_with('{'));
    let event = event.with_context(|| format!("no event: {}", json.stderr))?;
    let value: serde_json::Value = serde_json::from_str(event).context("JSON")?;
    schema::Schema::event().and_then(|schema| schema.check(&value)).map_err(|e| anyhow!("{e}: {event}"))?;
    ensure!(
        event.contains("\"file\":\"fs/read_write.c\",\"line\":") && event.contains("\"inlined\":["),
        "{event}"
    );
    println!(
        "in the guest, places in the listings of the article's functions: {}",
        listing_agrees(code, moved, vmlinux)?
    );
    println!("in the guest, frames of the kernel: {frames}");
    println!("in the guest, frames of a module: {of_module}; lines as JSON too");
    Ok(())
}

/// Holds the source lines of listings (`btrace -d --json`) against addr2line, for each run of instructions.
fn listing_agrees(ran: &Ran, moved: u64, vmlinux: &Path) -> Result<Judged> {
    let mut chains: Vec<(u64, Chain)> = Vec::new();
    for line in ran.stdout.lines() {
        let function: serde_json::Value = serde_json::from_str(line).context("JSON")?;
        let instructions = function["instructions"].as_array().context("instructions")?;
        for instruction in instructions {
            let Some(source) = instruction["source"].as_array() else { continue };
            let address = instruction["address"].as_str().and_then(|a| a.strip_prefix("0x"));
            let address = u64::from_str_radix(address.context("address")?, 16)?;
            let chain = source.iter().map(|frame| {
                let name = frame["function"].as_str().unwrap_or("??").to_owned();
                (name, format!("{}:{}", frame["file"].as_str().unwrap_or("??"), frame["line"]))
            });
            chains.push((address.wrapping_sub(moved), chain.collect()));
        }
    }
    ensure!(chains.len() > 60, "{} places: {}", chains.len(), ran.stderr);
    judge(&chains, &["-e", &vmlinux.to_string_lossy()])
}

/// Holds frames against addr2line of a file.
fn stacks_agree(ran: &Ran, of_file: impl Fn(u64) -> bool, moved: u64, file: &[&str]) -> Result<Judged> {
    let mut chains: Vec<(u64, Chain)> = Vec::new();
    for line in ran.stdout.lines().filter(|l| l.starts_with("0x")) {
        let (address, rest) = line.split_once(':').context("a frame")?;
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
        if !of_file(address) {
            continue;
        }
        let (name, place) = rest.split_once(" ; ").with_context(|| format!("no source line: {line}"))?;
        let inlined = name.strip_suffix(" [inline]");
        // The call, which ends before the address that it returns to.
        let at = address.wrapping_sub(moved).wrapping_sub(1);
        let name = inlined.map_or_else(|| "??".to_owned(), str::to_owned);
        match chains
            .last_mut()
            .filter(|(last, chain)| *last == at && chain.last().is_some_and(|l| l.0 != "??"))
        {
            Some((_, chain)) => chain.push((name, place.to_owned())),
            None => chains.push((at, vec![(name, place.to_owned())])),
        }
    }
    judge(&chains, file)
}

/// What a command prints.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a command prints, and says, when it is fed a text.
fn fed(command: &mut Command, text: &str) -> Result<(String, String)> {
    let mut input = tempfile::tempfile().context("making a file")?;
    input.write_all(text.as_bytes()).context("writing a file")?;
    std::io::Seek::rewind(&mut input).context("reading a file")?;
    let output =
        command.stdin(Stdio::from(input)).output().with_context(|| format!("running {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), said))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_read_from_the_sentence() {
        let said = "opened, and one of the addresses: 6 ms; opened again, and all 500: 310 ms on the CPU; 20 MiB of memory, 162 MiB of \
                    the file touched\n";
        assert_eq!(costs(said, 500), Some([6.0, 310.0, 20.0]));
        assert_eq!(costs(said, 2000), None);
        assert_eq!(costs("", 0), None);
    }

    #[test]
    fn elfutils_is_read_like_binutils() {
        let text = "0x0010\nf inlined at /b/k/y.c:7:2 in g\n/b/k/x.h:3:19\ng\n/b/k/y.c:7:2\n0x20\nh\n??:0\n";
        let answers = parse(text).unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(answers[&0x10], [pair("f", "/b/k/x.h:3"), pair("g", "/b/k/y.c:7")]);
        assert_eq!(answers[&0x20], [pair("h", "??:0")]);
    }

    #[test]
    fn answers_are_read_and_compared() {
        let theirs =
            parse("0x0010\nf\n/b/./k/x.h:3 (discriminator 2)\ng\n/b/k/y.c:7\n0x20\nh\n??:?\n").unwrap();
        let ours = parse("0x10\nf\nk/x.h:3\n??\nk/y.c:7\n0x20\n??\n??:?\n").unwrap();
        assert_eq!(agree(&ours[&0x10], &theirs[&0x10]), Agreement::Whole);
        assert_eq!(agree(&ours[&0x20], &theirs[&0x20]), Agreement::Whole);
        for (text, want) in [
            ("0x10\nf\nz.h:3\n??\nk/y.c:7\n", Agreement::ButFile),
            ("0x10\nf\nk/x.h:4\n??\nk/y.c:7\n", Agreement::None),
            ("0x10\ne\nk/x.h:3\n??\nk/y.c:7\n", Agreement::None),
            ("0x10\nf\nk/x.h:3\n", Agreement::None),
            ("0x10\n??\n??:?\n", Agreement::None),
        ] {
            assert_eq!(agree(&parse(text).unwrap()[&0x10], &theirs[&0x10]), want, "{text}");
        }
    }
}
