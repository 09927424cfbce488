//! `cargo xtask debuginfo`: source lines of a real kernel, held against binutils' addr2line.

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
use crate::{Failure, apt, bench_code, guest, kernels};

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

/// Of a hundred addresses, those whose file alone may differ, line and function being the same: addr2line of binutils 2.40
/// names the source file itself where DWARF 5's line table begins with the first header it includes.
const FILES_MISTAKEN: usize = 2;

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
    apt::ensure(&[("addr2line", "binutils"), ("nm", "binutils"), ("objcopy", "binutils")])?;
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
    match bench_code::all_numbers(&said).as_slice() {
        [first, _, all, memory, ..] => Ok([*first, *all, *memory]),
        _ => bail!("no cost in {said:?}"),
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
    let theirs = addr2line(&["-e", &vmlinux.to_string_lossy()], &as_lines(&addresses))?;
    let (mut same, mut inlined, mut mistaken) = (0, 0, 0);
    for address in &addresses {
        let (ours, theirs) = (ours.get(address).context("ours")?, theirs.get(address).context("theirs")?);
        inlined += usize::from(theirs.len() > 1);
        match agree(ours, theirs) {
            Agreement::Whole => same += 1,
            Agreement::ButFile => {
                mistaken += 1;
                println!("{address:#x}: ours {ours:?}, addr2line {theirs:?}");
            }
            Agreement::None => bail!("{address:#x}: ours {ours:?}, addr2line {theirs:?}"),
        }
    }
    ensure!(mistaken * 100 <= addresses.len() * FILES_MISTAKEN, "{mistaken} files differ");
    ensure!(inlined * 10 > addresses.len(), "only {inlined} of the addresses are in inlined functions");
    println!("{}", said.trim());
    println!(
        "{same} of {} addresses as addr2line has them, {inlined} of them in inlined functions; {mistaken} differ in the file alone",
        addresses.len()
    );
    Ok(())
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

fn addr2line(file: &[&str], addresses: &str) -> Result<BTreeMap<u64, Chain>> {
    let (text, _) = fed(Command::new("addr2line").args(["-a", "-i", "-f"]).args(file), addresses)?;
    parse(&text)
}

/// What `addr2line -a -i -f` prints, and `btrace selftest lines` in its manner: an address, then pairs of lines.
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
        let place = lines.next().context("a function without its place")?;
        let place = place.split(" (discriminator").next().unwrap_or(place);
        let chain = chain.as_mut().context("a function without its address")?;
        chain.push((line.to_owned(), place.to_owned()));
    }
    Ok(answers)
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
    ensure!(frames.0 > 30 && frames.1 > 0, "few frames: {}", kernel.stdout);
    let text =
        of_module.stderr.lines().last().and_then(|l| u64::from_str_radix(l.strip_prefix("0x")?, 16).ok());
    let text = text.with_context(|| format!("no address: {}", of_module.stderr))?;
    let object = folder.join(&module);
    let object = ["-j", ".text", "-e", &object.to_string_lossy()];
    let in_module = |address| (text..text + (1 << 20)).contains(&address);
    let of_module = stacks_agree(of_module, in_module, text, &object)?;
    ensure!(of_module.0 >= 2, "{} frames of the module", of_module.0);
    let event = json.stdout.lines().find(|line| line.starts_with('{'));
    let event = event.with_context(|| format!("no event: {}", json.stderr))?;
    let value: serde_json::Value = serde_json::from_str(event).context("JSON")?;
    schema::Schema::event().and_then(|schema| schema.check(&value)).map_err(|e| anyhow!("{e}: {event}"))?;
    ensure!(
        event.contains("\"file\":\"fs/read_write.c\",\"line\":") && event.contains("\"inlined\":["),
        "{event}"
    );
    let (listed, chains) = listing_agrees(code, moved, vmlinux)?;
    println!(
        "in the guest: {listed} places in the listings of the article's functions as addr2line has them, {chains} inlined"
    );
    println!(
        "in the guest: {} frames of the kernel and {} of a module as addr2line has them, {} with inlined functions; lines as JSON",
        frames.0,
        of_module.0,
        frames.1 + of_module.1
    );
    Ok(())
}

/// Holds the source lines of listings (`btrace -d --json`) against addr2line; gives back how many runs of instructions
/// there were, and how many of them in inlined functions.
fn listing_agrees(ran: &Ran, moved: u64, vmlinux: &Path) -> Result<(usize, usize)> {
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
    let addresses: Vec<u64> = chains.iter().map(|(at, _)| *at).collect();
    let theirs = addr2line(&["-e", &vmlinux.to_string_lossy()], &as_lines(&addresses))?;
    let mut mistaken = 0;
    for (at, chain) in &chains {
        let theirs = theirs.get(at).context("addr2line")?;
        match agree(chain, theirs) {
            Agreement::Whole => {}
            Agreement::ButFile => mistaken += 1,
            Agreement::None => bail!("{at:#x}: ours {chain:?}, addr2line {theirs:?}"),
        }
    }
    ensure!(mistaken * 100 <= chains.len() * FILES_MISTAKEN, "{mistaken} files of {} differ", chains.len());
    Ok((chains.len(), chains.iter().filter(|(_, chain)| chain.len() > 1).count()))
}

/// Holds frames against addr2line of a file; gives back how many there were, and how many of them with inlined functions.
fn stacks_agree(
    ran: &Ran,
    of_file: impl Fn(u64) -> bool,
    moved: u64,
    file: &[&str],
) -> Result<(usize, usize)> {
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
    let input: String = chains.iter().map(|(at, _)| format!("{at:#x}\n")).collect();
    let theirs = addr2line(file, &input)?;
    for (at, chain) in &chains {
        let theirs = theirs.get(at).context("addr2line")?;
        ensure!(agree(chain, theirs) == Agreement::Whole, "{at:#x}: ours {chain:?}, addr2line {theirs:?}");
    }
    Ok((chains.len(), chains.iter().filter(|(_, chain)| chain.len() > 1).count()))
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
