//! A function of testdata, annotated with the names that are there: `cargo run -p disasm --example list -- vfs_read`.
#![forbid(unsafe_code)]

use disasm::{Arch, Disassembler, Symbol, Symbols, Syntax, render};
use std::io::{IsTerminal, Write};

struct Names(Vec<(u64, u64, &'static str)>);

impl Symbols for Names {
    fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        let place = self.0.partition_point(|name| name.0 <= address).checked_sub(1)?;
        let (start, size, name) = *self.0.get(place)?;
        let offset = address - start;
        (offset < size).then_some(Symbol { name, offset, module: None })
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted = std::env::args().nth(1).unwrap_or_else(|| "vfs_read".into());
    let mut rest: &[u8] = include_bytes!("../testdata/functions.bin");
    let mut names = Names(Vec::new());
    let mut function = None;
    for line in include_str!("../testdata/functions.txt").lines() {
        let mut words = line.split(' ');
        let mut word = || words.next().ok_or("a short line");
        let (address, size, name) = (u64::from_str_radix(word()?, 16)?, word()?.parse::<usize>()?, word()?);
        let (bytes, after) = rest.split_at_checked(size).ok_or("too few bytes")?;
        rest = after;
        names.0.push((address, size as u64, name));
        if name == wanted {
            function = Some((bytes, address));
        }
    }
    let (bytes, address) = function.ok_or("it is not in testdata")?;
    let mut disassembler = Disassembler::new(Arch::X86_64, Syntax::Att);
    let mut lines = disassembler.decode(disasm::trim_padding(bytes, Arch::X86_64), address, &names);
    let mut out = Vec::new();
    let (plain, colour) = (
        render::Text::<render::Plain>::new(render::Options::default()),
        render::Text::<render::Colour>::new(render::Options::default()),
    );
    let terminal = std::io::stdout().is_terminal();
    while let Some(line) = lines.next_line() {
        if terminal { colour.write(&line, &mut out) } else { plain.write(&line, &mut out) }
    }
    std::io::stdout().write_all(&out)?;
    Ok(())
}
