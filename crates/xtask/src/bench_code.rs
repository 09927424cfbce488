//! `cargo xtask bench`, the part about code: disassembly beside objdump, and source lines. All on the host, by CPU time, for the
//! machine may be busy with other things.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::bench::Line;
use crate::{apt, debuginfo, guest, workspace};

/// Copies of the functions in the tree that make 10 MB of code.
const COPIES: usize = 68;

/// Addresses whose source lines are looked up.
const ADDRESSES: usize = 2000;

/// Adds the lines. `debug_kernel`: the stock kernel whose debug information is looked into.
pub fn host(debug_kernel: Option<&str>, lines: &mut Vec<Line>) -> Result<()> {
    let btrace = guest::build(true)?.btrace.context("no btrace was built")?;
    if apt::is_root() {
        let output = Command::new(&btrace)
            .args(["selftest", "disasm-all"])
            .output()
            .context("btrace selftest disasm-all")?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "btrace selftest disasm-all: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let before = |unit: &str| {
            let words: Vec<&str> = said.split_ascii_whitespace().collect();
            let at =
                words.windows(2).find(|pair| pair.get(1).is_some_and(|w| w.trim_end_matches(',') == unit));
            at.and_then(|pair| pair.first()?.parse::<f64>().ok())
                .with_context(|| format!("{unit} in {said:?}"))
        };
        lines.push(Line {
            what: "disassembly: this kernel, annotated, 10 MB",
            ours: 10.0 / before("MB/s")?,
            bar: 1.0,
            unit: "CPU s",
            rivals: "objdump 5",
        });
        lines.push(Line {
            what: "disassembly: all of it, peak memory",
            ours: before("MiB")?,
            bar: f64::INFINITY,
            unit: "MiB",
            rivals: "",
        });
    } else {
        eprintln!("SKIP the disassembly of this kernel: its code is for root to read");
    }
    beside_objdump(lines)?;
    match debug_kernel {
        None => eprintln!(
            "SKIP source lines: --debuginfo 6.1 fetches a kernel's debug package (280 MB) and measures them"
        ),
        Some(kernel) => {
            let cost = debuginfo::cost(kernel, ADDRESSES)?;
            let [first, all, memory] = cost;
            lines.push(Line {
                what: "source lines: opened, the first address",
                ours: first,
                bar: f64::INFINITY,
                unit: "CPU ms",
                rivals: "",
            });
            lines.push(Line {
                what: "source lines: opened, 2,000 addresses",
                ours: all,
                bar: 1000.0,
                unit: "CPU ms",
                rivals: "",
            });
            lines.push(Line {
                what: "source lines: memory beside the file",
                ours: memory,
                bar: f64::INFINITY,
                unit: "MiB",
                rivals: "",
            });
        }
    }
    Ok(())
}

/// The library alone and objdump, on the same 10 MB.
fn beside_objdump(lines: &mut Vec<Line>) -> Result<()> {
    apt::ensure(&[("objdump", "binutils")])?;
    let root = workspace::root();
    let functions = root.join("crates/disasm/testdata/functions.bin");
    let bytes = std::fs::read(&functions).with_context(|| functions.display().to_string())?.repeat(COPIES);
    let file = tempfile::NamedTempFile::new().context("making a file")?;
    std::fs::write(file.path(), &bytes).context("writing a file")?;
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--release", "-p", "disasm", "--example", "speed", "--"])
        .arg(file.path())
        .current_dir(&root)
        .stderr(Stdio::inherit())
        .output()
        .context("the example `speed` of disasm")?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the example `speed` of disasm: {said}");
    let rate = |who: &str| {
        let line = said.lines().find(|l| l.starts_with(who)).with_context(|| format!("{who} in {said:?}"))?;
        let rate = line.split(" MB/s").next().unwrap_or_default().rsplit(' ').next().unwrap_or_default();
        rate.parse::<f64>().with_context(|| line.to_string())
    };
    let megabytes = bytes.len() as f64 / 1e6;
    for (what, who, bar) in [
        ("disassembly: 10 MB by the library", "disasm", 1.0),
        ("objdump: the same, without names", "objdump", f64::INFINITY),
    ] {
        lines.push(Line { what, ours: megabytes / rate(who)?, bar, unit: "CPU s", rivals: "" });
    }
    Ok(())
}
