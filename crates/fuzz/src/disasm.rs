//! Machine code: mutations of a kernel's, at any address.

use crate::Fuzz;
use crate::random::Random;
use disasm::{Arch, Disassembler, Line, Symbol, Symbols, Syntax, render, trim_padding};

/// Real functions, one after the other.
const CODE: &[u8] = include_bytes!("../../disasm/testdata/functions.bin");

/// Finds something at most addresses.
struct Names;

impl Symbols for Names {
    fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        let name = if address & 0x40 == 0 { "function" } else { "__x86_return_thunk" };
        (address & 3 != 3).then_some(Symbol { name, offset: address & 0x3f, module: None })
    }
}

/// Both architectures, kept from one execution to the next as callers do.
pub struct DisasmFuzz {
    all: [(Arch, Disassembler); 3],
}

impl DisasmFuzz {
    /// Makes it.
    pub fn new() -> DisasmFuzz {
        let one = |arch, syntax| (arch, Disassembler::new(arch, syntax));
        DisasmFuzz {
            all: [
                one(Arch::X86_64, Syntax::Att),
                one(Arch::X86_64, Syntax::Intel),
                one(Arch::Arm64, Syntax::Att),
            ],
        }
    }
}

impl Fuzz for DisasmFuzz {
    fn run(&mut self, random: &mut Random) -> Result<(), String> {
        let from = random.below(CODE.len());
        let mut bytes: Vec<u8> = CODE.iter().copied().skip(from).take(random.below(300)).collect();
        random.mutate(&mut bytes);
        let address = random.number();
        for (arch, disassembler) in &mut self.all {
            let (arch, bytes) = (*arch, trim_padding(&bytes, *arch));
            check(arch, disassembler, bytes, address)?;
        }
        Ok(())
    }
}

/// Each byte once, in their order; labels numbered, text for every line.
fn check(arch: Arch, disassembler: &mut Disassembler, bytes: &[u8], address: u64) -> Result<(), String> {
    let writer = render::Text::<render::Plain>::new(render::Options::default());
    let (mut covered, mut labels, mut written) = (0usize, 0u32, Vec::new());
    let mut lines = disassembler.decode(bytes, address, &Names);
    while let Some(line) = lines.next_line() {
        writer.write(&line, &mut written);
        let here = address.wrapping_add(covered as u64);
        match line {
            Line::Source(source) if source.address == here => {}
            Line::Label { number, address } if number == labels + 1 && address == here => labels = number,
            Line::Instruction(instruction)
                if instruction.address == here
                    && !instruction.bytes.is_empty()
                    && bytes.get(covered..).is_some_and(|rest| rest.starts_with(instruction.bytes)) =>
            {
                covered += instruction.bytes.len();
            }
            line => return Err(format!("{arch:?}: at {here:#x} of {address:#x}: {line:x?}; {bytes:02x?}")),
        }
    }
    if covered != bytes.len() {
        return Err(format!("{arch:?}: {covered} bytes of {}: {bytes:02x?}", bytes.len()));
    }
    match std::str::from_utf8(&written) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("{arch:?}: {error}: {bytes:02x?}")),
    }
}
