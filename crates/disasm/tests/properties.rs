//! What holds for any bytes.

use disasm::bpf_jit::{Run, align};
use disasm::{
    Arch, Disassembler, Flow, Frame, Line, Site, StaticBranch, Symbol, Symbols, Syntax, render, trim_padding,
};
use proptest::prelude::*;

/// Answers every question, from the address alone.
struct Chatty;

impl Symbols for Chatty {
    fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        let name = ["f", "__x86_return_thunk", "__x86_indirect_thunk_rax", "bpf_trampoline_1"];
        let name = name[(address >> 4 & 3) as usize];
        (address & 7 != 7).then_some(Symbol { name, offset: address & 15, module: Some("m") })
    }

    fn source<'a>(&'a self, address: u64, chain: &mut Vec<Frame<'a>>) -> u64 {
        for depth in 0..address >> 3 & 3 {
            chain.push(Frame {
                function: "g",
                file: "a.c",
                line: (address >> 5) as u32,
                column: depth as u32,
            });
        }
        // Wrong on purpose, at times: not beyond the address.
        address.wrapping_add(address & 31).wrapping_sub(3)
    }

    fn location(&self, address: u64) -> Option<Frame<'_>> {
        (address & 1 == 0).then_some(Frame { function: "", file: "b.c", line: 7, column: 0 })
    }

    fn site(&self, address: u64, flow: Flow) -> Option<Site<'_>> {
        let branch = StaticBranch { key: self.symbol(address), is_on: flow == Flow::Jump, target: None };
        (address & 63 == 9).then_some(Site::StaticBranch(branch))
    }
}

/// Decodes, and checks what must hold.
fn check(bytes: &[u8], address: u64, arch: Arch, syntax: Syntax) {
    let mut disassembler = Disassembler::new(arch, syntax);
    let text = render::Text::<render::Colour>::new(render::Options::default());
    let mut out = Vec::new();
    let (mut covered, mut labels, mut last_was_label, mut first) = (Vec::new(), 0, false, true);
    let mut referred = Vec::new();
    let mut lines = disassembler.decode(bytes, address, &Chatty);
    while let Some(line) = lines.next_line() {
        text.write(&line, &mut out);
        let here = address.wrapping_add(covered.len() as u64);
        match line {
            Line::Source(source) => {
                assert_eq!(source.address, here);
                assert!(!last_was_label, "headers come before labels");
            }
            Line::Label { number, address } => {
                labels += 1;
                assert_eq!((number, address), (labels, here));
                last_was_label = true;
            }
            Line::Instruction(instruction) => {
                assert!(!first, "a header comes first");
                assert_eq!(instruction.address, here);
                assert!(!instruction.bytes.is_empty() && instruction.bytes.len() <= 15);
                assert_eq!(instruction.is_valid(), instruction.text != "(bad)", "{}", instruction.text);
                assert!(instruction.is_valid() || instruction.flow == Flow::Invalid);
                assert!(!instruction.mnemonic().is_empty(), "{:x?}", instruction.bytes);
                assert!(
                    !instruction.text.contains("  ") && !instruction.text.ends_with([' ', ',']),
                    "{}",
                    instruction.text
                );
                let whole = format!("{} {}", instruction.mnemonic(), instruction.operands());
                assert_eq!(whole.trim_end(), instruction.text);
                referred.extend(
                    instruction.targets.iter().filter_map(|target| Some((target.label?, target.address))),
                );
                covered.extend_from_slice(instruction.bytes);
                last_was_label = false;
            }
        }
        first = false;
    }
    assert_eq!(covered, bytes, "each byte once");
    assert!(std::str::from_utf8(&out).is_ok());
    assert_eq!(out.iter().filter(|byte| **byte == b'\n').count() > 0, !bytes.is_empty());
    referred.sort_unstable();
    referred.dedup();
    // Each label is someone's, and each reference has its label.
    let numbers: Vec<u32> = referred.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=labels).collect::<Vec<u32>>());
    let trimmed = trim_padding(bytes, arch);
    assert_eq!(trimmed, &bytes[..trimmed.len()]);
    assert_eq!(trimmed.is_empty(), bytes.is_empty());
}

fn everything(bytes: &[u8], address: u64) {
    check(bytes, address, Arch::X86_64, Syntax::Att);
    check(bytes, address, Arch::X86_64, Syntax::Intel);
    check(bytes, address, Arch::Arm64, Syntax::Att);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200), address in any::<u64>()) {
        everything(&bytes, address);
    }

    /// Prefixes before opcodes, so that more of it is instructions, and odd ones.
    #[test]
    fn prefixed(parts in prop::collection::vec(
        (prop::sample::subsequence(vec![0x66u8, 0xf2, 0xf3, 0x67, 0x2e, 0x3e, 0x65, 0xf0, 0x48, 0x4f, 0x41], 0..4),
         prop::sample::select(vec![vec![], vec![0x0f], vec![0x0f, 0x38], vec![0xc5], vec![0xc4], vec![0x62], vec![0x8f]]),
         prop::collection::vec(any::<u8>(), 1..9)), 1..20)) {
        let bytes: Vec<u8> = parts.into_iter().flat_map(|(a, b, c)| [a, b, c].concat()).collect();
        everything(&bytes, 0xffff_ffff_8100_0000);
    }

    /// A program and code that have nothing to do with each other, or a little.
    #[test]
    fn bpf_and_code(words in prop::collection::vec((prop::sample::select(vec![0xb7u8, 0xbf, 0x05, 0x15, 0x95, 0x85, 0x18, 0x79, 0x7b, 0x3f, 0x6f, 0xdb]),
         0u8..=255, -3i16..4, -2i32..3), 0..20),
        code in prop::collection::vec(prop::sample::select(vec![0x55u8, 0x48, 0x89, 0xe5, 0x31, 0xc0, 0xc9, 0xc3, 0xeb, 0x00, 0x90, 0x74, 0x85]), 0..60),
        runs in prop::collection::vec((0usize..24, 0usize..64), 0..5), address in any::<u64>()) {
        let insns: Vec<u64> = words.iter().map(|(code, registers, off, imm)| {
            u64::from(*code) | u64::from(*registers) << 8 | u64::from(off.cast_unsigned()) << 16 | u64::from(imm.cast_unsigned()) << 32
        }).collect();
        let runs: Vec<Run> = runs.iter().map(|(insn, offset)| Run { insn: *insn, offset: *offset }).collect();
        let places = align(Arch::X86_64, &insns, &code, address, &runs);
        prop_assert_eq!(places.len(), insns.len());
        prop_assert!(places.iter().flatten().all(|offset| *offset <= code.len()));
    }

    /// Where the address space ends.
    #[test]
    fn at_the_end_of_memory(bytes in prop::collection::vec(any::<u8>(), 0..64), before in 0u64..80) {
        everything(&bytes, 0u64.wrapping_sub(before));
    }

    /// Short jumps among no-ops, to all sorts of places.
    #[test]
    fn jumps(parts in prop::collection::vec((0u8..4, any::<u8>()), 0..60)) {
        let bytes: Vec<u8> = parts.iter().flat_map(|(kind, to)| match kind {
            0 => vec![0xeb, *to],
            1 => vec![0x74, *to],
            2 => vec![0xcc],
            _ => vec![0x90, 0x0f, 0x1f, 0x44, 0, 0],
        }).collect();
        everything(&bytes, 0x1000);
    }
}
