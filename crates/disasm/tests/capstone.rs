//! arm64 is read as capstone reads it.
#![allow(clippy::unwrap_used)]

mod common;

use capstone::prelude::*;
use common::ours;
use disasm::{Arch, Syntax};
use std::collections::BTreeMap;

/// How many random words.
const WORDS: usize = 300_000;
const ADDRESS: u64 = 0xffff_8000_8000_0000;

/// Numbers are written alike, and so are branch targets.
fn normal(text: &str) -> String {
    let text = text.to_lowercase().replace('#', "").replace(", ", ",");
    let mut out = String::new();
    let mut word = String::new();
    let flush = |word: &mut String, out: &mut String| {
        let (sign, digits) = word.strip_prefix('-').map_or(("", word.as_str()), |rest| ("-", rest));
        let value = match digits.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => digits.parse().ok(),
        };
        match value {
            // Of negative numbers the lower half: some are written as unsigned, of 32 or 64 bits.
            Some(value) => {
                let value = if sign.is_empty() { value } else { value.wrapping_neg() };
                let value = if value >> 32 == 0xffff_ffff { value & 0xffff_ffff } else { value };
                out.push_str(&format!("{value:#x}"));
            }
            None => out.push_str(word),
        }
        word.clear();
    };
    for letter in text.chars() {
        if letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | '_') {
            word.push(letter);
        } else {
            flush(&mut word, &mut out);
            out.push(letter);
        }
    }
    flush(&mut word, &mut out);
    out.trim().to_owned()
}

/// Why a difference from capstone is known, if it is.
fn known(word: u32, theirs: &str, ours: &str) -> Option<&'static str> {
    let group = word >> 25 & 15;
    let their_mnemonic = theirs.split(' ').next().unwrap_or_default();
    if ours == "(bad)" {
        let later = [
            ("addg subg", "memory tags (MTE): not decoded by yaxpeax"),
            (
                "bfcvt bfcvtn bfcvtn2 bfdot bfmlalb bfmlalt bfmmla usdot sudot ummla smmla usmmla",
                "matrix products (BF16, I8MM): not decoded by yaxpeax",
            ),
            ("fmlal fmlal2 fmlsl fmlsl2", "half-precision products (FHM): not all decoded by yaxpeax"),
            ("st64b st64bv st64bv0 ld64b", "64-byte loads and stores (LS64): not decoded by yaxpeax"),
            (
                "frint32x frint32z frint64x frint64z",
                "rounding to integers of 32 and 64 bits (FRINTTS): not all decoded by yaxpeax",
            ),
            ("tstart tcommit tcancel ttest", "transactions (TME): not decoded by yaxpeax"),
            ("mrs msr", "op0 of 0 or 1, which are no registers: not decoded by yaxpeax"),
        ];
        return match () {
            () if group == 2 => Some("SVE: not decoded by yaxpeax"),
            () if group == 0 && word >> 31 == 1 => Some("SME: not decoded by yaxpeax"),
            () if theirs.starts_with("cpy") || theirs.starts_with("set") => {
                Some("memory copies (MOPS): not decoded by yaxpeax")
            }
            () => later
                .iter()
                .find(|(names, _)| names.split(' ').any(|name| name == their_mnemonic))
                .map(|known| known.1),
        };
    }
    if theirs.contains("s2_1_") || ours.contains("s2_1_") {
        return Some("registers of the trace unit: left out");
    }
    let index = |text: &str| text.replace(" 0x0]", "]");
    if theirs.starts_with("prf")
        && index(&theirs.replacen(" ,", &format!(" {:#x},", word & 31), 1)) == index(ours)
    {
        return Some("a prefetch without a name: capstone prints nothing for it");
    }
    if theirs.replace(",lsl 0x0", "") == ours || index(theirs) == index(ours) {
        return Some("an index shifted or extended by nothing: said or not");
    }
    if their_mnemonic == "msr" && theirs.starts_with("msr s3_") && ours.starts_with("msr ") {
        return Some("registers that cannot be written: named all the same");
    }
    if their_mnemonic == "sys" && ours == format!("{theirs},xzr") {
        return Some("sys without a register: xzr is said or not");
    }
    if their_mnemonic == "bfc"
        && ours.starts_with("bfxil ")
        && ours.contains(",xzr,") | ours.contains(",wzr,")
    {
        return Some("bits cleared from the lowest: bfc or bfxil of zeros");
    }
    if their_mnemonic == "dup" && ours == theirs.replacen("dup", "mov", 1) {
        return Some("dup of an element: mov is the manual's preferred name");
    }
    if theirs.starts_with("fmov") && ours.starts_with("fmov") {
        let value = |text: &str| text.rsplit(',').next().and_then(|number| number.parse::<f64>().ok());
        if value(theirs).is_some() && value(theirs) == value(ours) {
            return Some("a floating-point immediate: digits");
        }
    }
    if theirs.starts_with("fmlal") || theirs.starts_with("fmlsl") {
        return Some("half-precision products (FHM): yaxpeax prints another arrangement");
    }
    None
}

#[test]
fn words_read_as_capstone_reads_them() {
    let capstone = Capstone::new().arm64().mode(arch::arm64::ArchMode::Arm).build().unwrap();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let (mut same, mut unknown) = (0, Vec::new());
    let mut kinds = BTreeMap::<&str, usize>::new();
    for _ in 0..WORDS {
        // Knuth's, MMIX: the higher half is random enough.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let word = (state >> 32) as u32;
        let bytes = word.to_le_bytes();
        let theirs = capstone.disasm_count(&bytes, ADDRESS, 1).unwrap();
        let Some(theirs) = theirs.iter().next() else { continue };
        let theirs = normal(&format!("{} {}", theirs.mnemonic().unwrap(), theirs.op_str().unwrap()));
        let ours = ours(&bytes, ADDRESS, Arch::Arm64, Syntax::Att);
        let ours = normal(&ours[0].2);
        if ours == theirs {
            same += 1;
        } else if let Some(why) = known(word, &theirs, &ours) {
            *kinds.entry(why).or_default() += 1;
        } else {
            unknown.push(format!("{word:08x}: {theirs} | {ours}"));
        }
    }
    println!(
        "{same} of {WORDS} random words alike; {} that capstone decodes differ in a way that is not known",
        unknown.len()
    );
    for (why, count) in kinds {
        println!("{count:7}  {why}");
    }
    assert!(same > WORDS / 4, "most words are none, but {same} are too few");
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

/// Each register, operation and hint that has a name has capstone's.
#[test]
fn system_names_are_capstones() {
    let capstone = Capstone::new().arm64().mode(arch::arm64::ArchMode::Arm).build().unwrap();
    let mut named = 0;
    let registers = (0..0x8000).flat_map(|number| [0xd530_0000 | number << 5, 0xd510_0000 | number << 5]);
    let operations = (0..0x4000).map(|number| 0xd508_0000 | number << 5);
    let hints = (0..0x80).map(|number| 0xd503_201f | number << 5);
    for word in registers.chain(operations).chain(hints) {
        let bytes = u32::to_le_bytes(word);
        let theirs = capstone.disasm_count(&bytes, ADDRESS, 1).unwrap();
        let theirs = theirs.iter().next().unwrap();
        let theirs = normal(&format!("{} {}", theirs.mnemonic().unwrap(), theirs.op_str().unwrap()));
        let ours = normal(&ours(&bytes, ADDRESS, Arch::Arm64, Syntax::Att)[0].2);
        // Registers of one maker's CPUs and of the trace unit are left out here. Capstone does not name, when read, what can only be
        // written, and the other way round.
        let is_number = |text: &str| ["s0_", "s1_", "s2_", "s3_"].iter().any(|prefix| text.contains(prefix));
        if !is_number(&theirs) && !is_number(&ours) && !theirs.starts_with("hint ") {
            assert_eq!(ours, theirs, "{word:08x}");
            named += 1;
        }
    }
    assert!(named > 1_500, "{named}");
}
