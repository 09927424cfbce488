//! What tests share: the functions in testdata, and objdump.
// Each test uses a part of it.
#![allow(clippy::unwrap_used, dead_code)]

use disasm::{Arch, Disassembler, Line, NoSymbols, Syntax};
use std::io::Write;
use std::process::Command;

/// A function of testdata.
pub struct Function {
    pub address: u64,
    pub name: String,
    pub bytes: Vec<u8>,
}

/// All of them.
pub fn functions() -> Vec<Function> {
    let mut rest: &[u8] = include_bytes!("../../testdata/functions.bin");
    let mut functions = Vec::new();
    for line in include_str!("../../testdata/functions.txt").lines() {
        let mut words = line.split(' ');
        let address = u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        let (bytes, after) = rest.split_at(words.next().unwrap().parse().unwrap());
        rest = after;
        functions.push(Function { address, name: words.next().unwrap().into(), bytes: bytes.into() });
    }
    assert!(rest.is_empty());
    functions
}

/// An instruction in print: address, length, text with single blanks.
pub type Printed = (u64, usize, String);

/// Ours.
pub fn ours(bytes: &[u8], address: u64, arch: Arch, syntax: Syntax) -> Vec<Printed> {
    let mut disassembler = Disassembler::new(arch, syntax);
    let mut lines = disassembler.decode(bytes, address, &NoSymbols);
    let mut printed = Vec::new();
    while let Some(line) = lines.next_line() {
        if let Line::Instruction(instruction) = line {
            printed.push((instruction.address, instruction.bytes.len(), instruction.text.to_owned()));
        }
    }
    printed
}

/// Objdump's (binutils), which must be installed: nothing else says whether ours is right.
pub fn objdump(bytes: &[u8], address: u64, syntax: Syntax) -> Vec<Printed> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(bytes).unwrap();
    let output = Command::new("objdump")
        .args(["-D", "-w", "-z", "-b", "binary", "-m", "i386:x86-64"])
        .args(if syntax == Syntax::Intel { &["-M", "intel"][..] } else { &[] })
        .arg(format!("--adjust-vma={address:#x}"))
        .arg(file.path())
        .output()
        .expect("objdump is needed here: install binutils (cargo xtask test does)");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Printed> {
    let mut parts = line.splitn(3, '\t');
    let address = u64::from_str_radix(parts.next()?.trim().strip_suffix(':')?, 16).ok()?;
    let length = parts.next()?.split_ascii_whitespace().count();
    // What follows `#` is objdump's remark.
    let text = parts.next()?.split('#').next()?;
    Some((address, length, text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")))
}
