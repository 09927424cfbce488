//! Each instruction of BPF gets its own machine code: of programs with all sorts of instructions, as the JITs of several kernels
//! compiled them (testdata/bpf_jit.txt), and as this kernel does.
#![allow(clippy::unwrap_used)]

use disasm::Arch;
use disasm::bpf_jit::{Run, align};

const ADDRESS: u64 = 0xffff_ffff_c000_0000;

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    u64::from(code)
        | u64::from(dst | src << 4) << 8
        | u64::from(off.cast_unsigned()) << 16
        | u64::from(imm.cast_unsigned()) << 32
}

/// Every register with a number in it.
fn registers() -> Vec<u64> {
    (0..10).map(|r| insn(0xb7, r, 0, 0, i32::from(r) + 7)).collect()
}

fn finish(mut program: Vec<u64>) -> Vec<u64> {
    program.extend([insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)]);
    program
}

/// Programs by name; those of newer instruction sets are refused by older kernels.
fn programs(map: i32) -> Vec<(&'static str, Vec<u64>)> {
    const PAIRS: [(u8, u8); 8] = [(0, 3), (3, 0), (4, 4), (4, 0), (0, 4), (6, 9), (3, 4), (5, 7)];
    let mut alu = registers();
    let mut signed = registers();
    for class in [7u8, 4] {
        for op in [0u8, 0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x90, 0xa0, 0xc0] {
            let is_shift = matches!(op, 0x60 | 0x70 | 0xc0);
            for (dst, src) in PAIRS {
                alu.push(insn(op | 8 | class, dst, src, 0, 0));
                alu.push(insn(
                    op | class,
                    dst,
                    0,
                    0,
                    if is_shift { i32::from(src) + 1 } else { i32::from(src) * 70_000 - 5 },
                ));
                if matches!(op, 0x30 | 0x90) {
                    signed.push(insn(op | 8 | class, dst, src, 1, 0));
                    signed.push(insn(op | class, dst, 0, 1, -3));
                }
            }
        }
        alu.push(insn(0x80 | class, 4, 0, 0, 0));
        alu.extend([16, 32, 64].map(|bits| insn(0xd4, 2, 0, 0, bits)));
        alu.extend([16, 32, 64].map(|bits| insn(0xdc, 9, 0, 0, bits)));
        for imm in [0, 5, -1, i32::MIN] {
            alu.push(insn(0xb0 | class, 8, 0, 0, imm));
        }
        alu.push(insn(0xb8 | class, 8, 5, 0, 0));
        for bits in [8, 16] {
            signed.push(insn(0xb8 | class, 8, 5, bits, 0));
        }
    }
    signed.push(insn(0xbf, 8, 5, 32, 0));
    signed.extend([16, 32, 64].map(|bits| insn(0xd7, 7, 0, 0, bits)));
    for (low, high) in [(5, 0), (-1, 0), (-5, -1), (0x1234_5678, 0x7abc_def0), (0, 0)] {
        alu.extend([insn(0x18, 1, 0, 0, low), insn(0, 0, 0, 0, high)]);
    }
    let mut memory = registers();
    for size in [0x18u8, 0, 8, 0x10] {
        memory.push(insn(0x62 | size, 10, 0, -8, -2));
        memory.push(insn(0x63 | size, 10, 1, -16, 0));
        memory.push(insn(0x63 | size, 10, 9, -8, 0));
        memory.push(insn(0x61 | size, 5, 10, -8, 0));
    }
    memory.push(insn(0x7b, 10, 1, -200, 0));
    let mut atomic = memory.clone();
    memory.push(insn(0xdb, 10, 2, -8, 0));
    memory.push(insn(0xc3, 10, 2, -8, 0));
    for size in [0x18u8, 0] {
        for imm in [0, 1, 0x40, 0x41, 0x50, 0x51, 0xa0, 0xa1, 0xe1, 0xf1] {
            atomic.push(insn(0x62 | size, 10, 0, -8, 3));
            atomic.push(insn(0xc3 | size, 10, 2, -8, imm));
        }
    }
    let mut extended = memory.clone();
    extended.extend([0x10u8, 8, 0].map(|size| insn(0x81 | size, 6, 10, -8, 0)));
    let mut jumps = registers();
    for class in [5u8, 6] {
        for op in [0x10u8, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0xa0, 0xb0, 0xc0, 0xd0] {
            // Of what something is known the verifier leaves out what cannot come.
            for to in [6, 7] {
                jumps.extend([insn(0x85, 0, 0, 0, 7), insn(0xbf, to, 0, 0, 0)]);
            }
            jumps.push(insn(op | 8 | class, 6, 7, 1, 0));
            jumps.push(insn(0x07, 8, 0, 0, 1));
            for imm in [if op == 0x40 { 8 } else { 0 }, 100, -100_000] {
                jumps.push(insn(op | class, 6, 0, 2, imm));
                jumps.push(insn(0x07, 8, 0, 0, 1));
                jumps.push(insn(0x05, 0, 0, 1, 0));
                jumps.push(insn(0x0f, 9, 8, 0, 0));
            }
            // Out of reach of a short jump, to another exit.
            jumps.extend([insn(op | class, 7, 0, 2, 9), insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)]);
        }
    }
    let far =
        |jump: u64| [vec![insn(0x85, 0, 0, 0, 7), jump], vec![insn(0x07, 0, 0, 0, 100_000); 100]].concat();
    let mut tail = vec![insn(0xbf, 6, 1, 0, 0)];
    tail.extend([insn(0x18, 2, 1, 0, map), 0, insn(0xb7, 3, 0, 0, 0), insn(0x85, 0, 0, 0, 12)]);
    tail.extend([insn(0x85, 0, 0, 0, 7), insn(0xbf, 3, 0, 0, 0), insn(0xbf, 1, 6, 0, 0)]);
    tail.extend([insn(0x18, 2, 1, 0, map), 0, insn(0x85, 0, 0, 0, 12)]);
    let calls = vec![
        insn(0xb7, 1, 0, 0, 5),
        insn(0x85, 0, 1, 0, 3),
        insn(0xbf, 6, 0, 0, 0),
        insn(0x85, 0, 0, 0, 5),
        insn(0x95, 0, 0, 0, 0),
        insn(0xbf, 7, 1, 0, 0),
        insn(0x85, 0, 0, 0, 7),
        insn(0x0f, 0, 7, 0, 0),
        insn(0x95, 0, 0, 0, 0),
    ];
    vec![
        ("alu", finish(alu)),
        ("signed", finish(signed)),
        ("memory", finish(memory)),
        ("atomic", finish(atomic)),
        ("extended", finish(extended)),
        ("jumps", finish(jumps)),
        ("far", finish(far(insn(0x15, 0, 0, 100, 9)))),
        ("tail", finish(tail)),
        ("calls", calls),
    ]
}

/// A function as a kernel compiled it.
struct Image {
    name: String,
    xlated: Vec<u64>,
    code: Vec<u8>,
}

/// What this kernel makes of the programs that it takes; nothing, and why, if it takes none.
fn compiled() -> Result<Vec<Image>, String> {
    use bpf::{Load, Map, MapType, ProgType, Program};
    use std::os::fd::{AsFd, AsRawFd};
    let map = Map::create(MapType::ProgArray, "targets", 4, 4, 2).map_err(|e| e.to_string())?;
    let mut images = Vec::new();
    for (name, insns) in programs(map.as_fd().as_raw_fd()) {
        let program = match Program::load(&Load::new(name, ProgType::SocketFilter, &insns)) {
            Ok(program) => program,
            Err(error) if name == "alu" => return Err(error.to_string()),
            Err(error) => {
                println!("not taken: {name}: {}", error.to_string().lines().last().unwrap_or_default());
                continue;
            }
        };
        let image = program.image().unwrap();
        if image.functions.is_empty() || image.xlated.is_empty() {
            return Err("the kernel shows no machine code".into());
        }
        // Of the program with a subprogram: where that begins.
        let split = if image.functions.len() > 1 { 5 } else { image.xlated.len() };
        let (main, sub) = image.xlated.split_at(split);
        for (at, (function, xlated)) in image.functions.iter().zip([main, sub]).enumerate() {
            images.push(Image {
                name: format!("{name}/{at}"),
                xlated: xlated.to_vec(),
                code: function.code.clone(),
            });
        }
    }
    Ok(images)
}

/// Those of testdata, their kernels before their names.
fn recorded() -> Vec<Image> {
    let bytes = |hex: &str| -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    };
    let image = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let xlated = bytes(words[1]).chunks(8).map(|w| u64::from_le_bytes(w.try_into().unwrap())).collect();
        Image { name: words[0].into(), xlated, code: bytes(words[2]) }
    };
    include_str!("../testdata/bpf_jit.txt").lines().map(image).collect()
}

fn is_wide(word: u64) -> bool {
    word as u8 == 0x18
}

/// How many instructions a program has, and how many of them have their own code.
fn share(image: &Image, runs: &[Run]) -> (usize, usize) {
    let places = align(Arch::X86_64, &image.xlated, &image.code, ADDRESS, runs);
    assert_eq!(places.len(), image.xlated.len());
    let known: Vec<usize> = places.iter().copied().flatten().collect();
    assert!(known.is_sorted() && known.iter().all(|at| *at <= image.code.len()), "{}", image.name);
    let wide = image.xlated.iter().filter(|word| is_wide(**word)).count();
    (image.xlated.len() - wide, known.len())
}

fn check(images: &[Image]) {
    let (mut all, mut own) = (0, 0);
    let mut wrong = Vec::new();
    for image in images {
        let (instructions, known) = share(image, &[]);
        println!("{}: {known} of {instructions}", image.name);
        (all, own) = (all + instructions, own + known);
        if known != instructions {
            wrong.push(format!(
                "{}: {known} of {instructions}; the first that fits nothing: {}",
                image.name,
                first_wrong(image)
            ));
        }
    }
    println!("{own} of {all} instructions of {} functions have their own machine code", images.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// For whoever mends it: the shortest beginning of the program that has no beginning of the code for itself.
fn first_wrong(image: &Image) -> String {
    let mut begins: Vec<usize> = Vec::new();
    let mut disassembler = disasm::Disassembler::new(Arch::X86_64, disasm::Syntax::Att);
    let mut texts = Vec::new();
    let mut lines = disassembler.decode(&image.code, ADDRESS, &disasm::NoSymbols);
    while let Some(line) = lines.next_line() {
        if let disasm::Line::Instruction(i) = line {
            begins.push((i.address - ADDRESS) as usize);
            texts.push(i.text.to_string());
        }
    }
    let mut last = 0;
    for n in 1..=image.xlated.len() {
        let fits = begins.iter().enumerate().rev().find(|(_, end)| {
            align(Arch::X86_64, &image.xlated[..n], &image.code[..**end], ADDRESS, &[])
                .iter()
                .any(Option::is_some)
        });
        match fits {
            Some((at, _)) => last = at,
            None if n < image.xlated.len() && is_wide(image.xlated[n - 1]) => {}
            None => {
                let word = image.xlated[n - 1];
                return format!(
                    "{}: {:02x?} at {:?}",
                    n - 1,
                    word.to_le_bytes(),
                    texts.get(last..(last + 8).min(texts.len()))
                );
            }
        }
    }
    "none alone".into()
}

#[test]
fn what_other_kernels_made_is_taken_apart() {
    let images = recorded();
    for kernel in ["5.10/", "6.1/", "6.12/", "7.2/"] {
        assert!(images.iter().filter(|i| i.name.starts_with(kernel)).count() >= 5, "{kernel}");
    }
    check(&images);
}

#[test]
fn what_this_kernel_makes_is_taken_apart() {
    match compiled() {
        Ok(images) => check(&images),
        Err(error) => println!("SKIP: {error}"),
    }
}

/// Of another program than the code's nothing is said, rather than something wrong.
#[test]
fn what_does_not_fit_is_left_whole() {
    for image in recorded().iter().filter(|i| i.name.contains("memory") || i.name.contains("jumps")) {
        for at in 0..image.xlated.len() {
            let mut other = image.xlated.clone();
            // A call's constant is its target, and what an exit has in it is nothing.
            if matches!(other[at] as u8, 0x85 | 0x95) {
                continue;
            }
            // Other registers; of what has none, another distance.
            other[at] ^=
                if other[at] as u8 & 7 == 5 && other[at] as u8 & 0xf0 == 0 { 0x2_0000 } else { 0x100 };
            let image = Image { name: image.name.clone(), xlated: other, code: image.code.clone() };
            assert_eq!(share(&image, &[]).1, 0, "{}: {at}", image.name);
        }
        // Only the line that does not fit.
        let places = align(Arch::X86_64, &image.xlated, &image.code, ADDRESS, &[]);
        let runs = [Run { insn: 4, offset: places[4].unwrap() }, Run { insn: 6, offset: places[6].unwrap() }];
        let mut other =
            Image { name: image.name.clone(), xlated: image.xlated.clone(), code: image.code.clone() };
        other.xlated[5] ^= 1 << 32;
        let places = align(Arch::X86_64, &other.xlated, &other.code, ADDRESS, &runs);
        assert_eq!((places[4], places[5]), (None, None));
        assert!(places[3].is_some() && places[6].is_some());
        assert!(align(Arch::Arm64, &image.xlated, &image.code, ADDRESS, &[]).iter().all(Option::is_none));
    }
}

/// For testdata: `RECORD=6.12 cargo test -p disasm --test bpf_jit -- --ignored --nocapture | grep ^6.12`, on the kernel that it is to
/// be of.
#[test]
#[ignore = "makes testdata, of the kernel that RECORD names"]
fn record() {
    let kernel = std::env::var("RECORD").unwrap();
    for image in compiled().unwrap() {
        let xlated: String =
            image.xlated.iter().flat_map(|w| w.to_le_bytes()).map(|b| format!("{b:02x}")).collect();
        let code: String = image.code.iter().map(|b| format!("{b:02x}")).collect();
        println!("\n{kernel}/{} {xlated} {code}", image.name);
    }
}
