//! Text is objdump's, AT&T's and Intel's: same boundaries, mnemonics, operands.

mod common;

use common::{functions, objdump, ours};
use disasm::{Arch, Syntax};
use std::collections::BTreeMap;

/// Functions of a live kernel, chosen for the breadth of their instructions.
#[test]
fn kernel_functions_read_as_objdump_prints_them() {
    compare(Syntax::Att);
}

#[test]
fn and_in_intel_syntax() {
    compare(Syntax::Intel);
}

fn compare(syntax: Syntax) {
    let functions = functions();
    assert!(functions.len() >= 200, "{}", functions.len());
    let (mut instructions, mut wrong) = (0, Vec::new());
    for function in &functions {
        let (ours, theirs) = (
            ours(&function.bytes, function.address, Arch::X86_64, syntax),
            objdump(&function.bytes, function.address, syntax),
        );
        instructions += theirs.len();
        assert!(!theirs.is_empty(), "{}", function.name);
        if ours != theirs {
            let first = ours.iter().zip(&theirs).find(|(a, b)| a != b);
            wrong.push(format!("{}: {first:x?}", function.name));
        }
    }
    println!("{} functions, {instructions} instructions, {} functions differ", functions.len(), wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A whole text section, for development:
/// `DISASM_TEXT=FILE:ADDRESS [DISASM_INTEL=1] cargo test --release -p disasm --test objdump -- --ignored --nocapture`. Linear decoding gets out of step in data
/// among the code, and into step again; each kind of difference is printed with how often it occurred.
#[test]
#[ignore = "takes a file of machine code, raw, in DISASM_TEXT"]
fn whole_text() {
    let file = std::env::var("DISASM_TEXT").expect("DISASM_TEXT=FILE:ADDRESS");
    let syntax = if std::env::var_os("DISASM_INTEL").is_some() { Syntax::Intel } else { Syntax::Att };
    let (file, address) = file.rsplit_once(':').expect("DISASM_TEXT=FILE:ADDRESS");
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("an address");
    let bytes = std::fs::read(file).expect(file);
    let (mut same, mut out_of_step) = (0usize, 0usize);
    let mut kinds: BTreeMap<String, (usize, String)> = BTreeMap::new();
    // In parts, for objdump's output is twenty times its input; where they are cut, instructions are, and differ.
    const PART: usize = 4 << 20;
    for (n, part) in bytes.chunks(PART).enumerate() {
        let at = address + (n * PART) as u64;
        let ours = ours(part, at, Arch::X86_64, syntax);
        let mut ours = ours.iter().peekable();
        for (at, length, text) in objdump(part, at, syntax) {
            while ours.next_if(|our| our.0 < at).is_some() {}
            match ours.next_if(|our| our.0 == at) {
                None => out_of_step += 1,
                Some(our) if our.1 == length && our.2 == text => same += 1,
                Some(our) => {
                    let word = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
                    let example = format!("{at:x}+{length}: {text} | ours +{}: {}", our.1, our.2);
                    let kind = format!("{} | {}", word(&text), word(&our.2));
                    kinds.entry(kind).or_insert((0, example)).0 += 1;
                }
            }
        }
    }
    let differ: usize = kinds.values().map(|kind| kind.0).sum();
    println!("{file}: {same} alike, {differ} differ, {out_of_step} out of step");
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by_key(|(_, (count, _))| std::cmp::Reverse(*count));
    for (kind, (count, example)) in kinds.iter().take(200) {
        println!("{count:7}  {kind:30} {example}");
    }
}
