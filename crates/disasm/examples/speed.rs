//! How fast machine code becomes annotated text, objdump beside it where it is installed:
//! `cargo run --release -p disasm --example speed -- FILE [ADDRESS]`; FILE is raw x86-64 code, by default the functions in testdata,
//! over and over until there are 10 MB.
//!
//! Every 256 bytes there is a symbol, found by binary search, as a caller's table would.
#![forbid(unsafe_code)]

use disasm::{Arch, Disassembler, Symbol, Symbols, Syntax, render};
use std::hint::black_box;
use std::process::{Command, Stdio};
use std::time::Instant;

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
    let mut out = String::new();
    let mut best = f64::MAX;
    let mut written = 0;
    for _ in 0..5 {
        let began = Instant::now();
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
        best = best.min(began.elapsed().as_secs_f64());
    }
    let megabytes = bytes.len() as f64 / 1e6;
    println!(
        "disasm: {megabytes:.1} MB of code, {:.1} MB of text, {:.1} MB/s",
        written as f64 / 1e6,
        megabytes / best
    );
    let Some(file) = file else { return Ok(()) };
    let began = Instant::now();
    let status = Command::new("objdump")
        .args(["-D", "-b", "binary", "-m", "i386:x86-64"])
        .arg(format!("--adjust-vma={address:#x}"))
        .arg(file)
        .stdout(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => {
            println!("objdump: {:.1} MB/s, without symbols", megabytes / began.elapsed().as_secs_f64());
        }
        other => println!("objdump: not measured ({other:?})"),
    }
    Ok(())
}
