//! How fast machine code becomes annotated text, objdump beside it where it is installed:
//! `cargo run --release -p disasm --example speed -- FILE [ADDRESS]`; FILE is raw x86-64 code, by default the functions in testdata,
//! over and over until there are 10 MB.
//!
//! Time is what the thread, or objdump, spent on a CPU: the machine may be busy with other things.
//!
//! Every 256 bytes there is a symbol, found by binary search, as a caller's table would.
#![forbid(unsafe_code)]

use disasm::{Arch, Disassembler, Symbol, Symbols, Syntax, render};
use std::hint::black_box;
use std::process::{Command, Stdio};

struct Table {
    starts: Vec<u64>,
    end: u64,
}

impl Symbols for Table {
    fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        if address >= self.end {
            return None;
        }
        let place = self.starts.partition_point(|start| *start <= address).checked_sub(1)?;
        Some(Symbol {
            name: "a_function_of_usual_length",
            offset: address - self.starts.get(place)?,
            module: None,
        })
    }
}

/// Seconds this thread has been on a CPU (`schedstat`: nanoseconds first).
fn computed() -> Result<f64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_ascii_whitespace().next().ok_or("an empty schedstat")?.parse::<u64>()? as f64 / 1e9)
}

/// Seconds that ended children have been on CPUs (proc_pid_stat(5): fields 16 and 17, in ticks of 10 ms).
fn computed_by_children() -> Result<f64, Box<dyn std::error::Error>> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = text.rsplit_once(')').ok_or("no name in stat")?.1;
    let ticks = after_name.split_ascii_whitespace().skip(13).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next();
    let address = arguments
        .next()
        .map_or(Ok(0xffff_ffff_8100_0000), |text| u64::from_str_radix(text.trim_start_matches("0x"), 16))?;
    let bytes = match &file {
        Some(file) => std::fs::read(file)?,
        None => include_bytes!("../testdata/functions.bin").repeat(68),
    };
    let end = address + bytes.len() as u64;
    let symbols = Table { starts: (address..end).step_by(256).collect(), end };
    let mut disassembler = Disassembler::new(Arch::X86_64, Syntax::Att);
    let text = render::Text::<render::Plain>::new(render::Options::default());
    let mut out = Vec::new();
    let mut best = f64::MAX;
    let mut written = 0;
    for _ in 0..5 {
        let began = computed()?;
        written = 0;
        // As a caller does: one function, its text, the next.
        for (n, function) in bytes.chunks(256).enumerate() {
            out.clear();
            let mut lines = disassembler.decode(function, address + n as u64 * 256, &symbols);
            while let Some(line) = lines.next_line() {
                text.write(&line, &mut out);
            }
            written += black_box(&out).len();
        }
        best = best.min(computed()? - began);
    }
    let megabytes = bytes.len() as f64 / 1e6;
    println!(
        "disasm: {megabytes:.1} MB of code, {:.1} MB of text, {:.1} MB/s",
        written as f64 / 1e6,
        megabytes / best
    );
    let Some(file) = file else { return Ok(()) };
    // Cargo becomes this process, and the compilers were its children.
    let before = computed_by_children()?;
    let status = Command::new("objdump")
        .args(["-D", "-b", "binary", "-m", "i386:x86-64"])
        .arg(format!("--adjust-vma={address:#x}"))
        .arg(file)
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => {
            println!("objdump: {:.1} MB/s, without symbols", megabytes / (computed_by_children()? - before));
        }
        other => println!("objdump: not measured ({other:?})"),
    }
    Ok(())
}
