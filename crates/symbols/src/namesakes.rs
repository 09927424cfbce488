//! Names that more than one function has: static functions of different files, or of modules.

use crate::kallsyms::{Error, Symbol};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// For each name the code symbols that are called so, and the copies that the compiler made of them (`name.isra.0`), in the
/// order of kallsyms: in one pass, however many names.
///
/// Costs what reading `/proc/kallsyms` costs, tens of milliseconds, nearly all of it the kernel's.
pub fn namesakes(names: &[&str]) -> Result<Vec<Vec<Symbol>>, Error> {
    namesakes_in(Path::new("/proc/kallsyms"), names)
}

/// The same in a file of that format.
pub fn namesakes_in(path: &Path, names: &[&str]) -> Result<Vec<Vec<Symbol>>, Error> {
    let failed = |source: io::Error| Error::Io { path: path.into(), source };
    let wanted: HashMap<&[u8], usize> = names.iter().enumerate().map(|(at, n)| (n.as_bytes(), at)).collect();
    let mut found = vec![Vec::new(); names.len()];
    let mut reader = BufReader::with_capacity(64 << 10, std::fs::File::open(path).map_err(failed)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            return Ok(found);
        }
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|f| !f.is_empty());
        let (Some(address), Some(kind), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let base = name.split(|b| *b == b'.').next().unwrap_or(name);
        let Some(slot) = wanted.get(base).and_then(|at| found.get_mut(*at)) else { continue };
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let symbol = Symbol {
            address: u64::from_str_radix(&text(address), 16).unwrap_or(0),
            kind: kind.first().map_or('?', |b| char::from(*b)),
            name: text(name),
            module: fields.next().map(|m| text(m).trim_matches(['[', ']']).to_string()),
        };
        // One function may be listed twice; addresses that are hidden tell nothing apart.
        let again = slot.iter().any(|s: &Symbol| s.address != 0 && s.address == symbol.address);
        if symbol.is_text() && !again {
            slot.push(symbol);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn all_of_a_name_are_found_with_its_copies_and_nothing_else() {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        file.write_all(
            b"ffffffff81000100 t s_next\nffffffff81000200 t s_next\nffffffff81000200 t s_next\nffffffff81000280 d s_next\n\
            ffffffff81000300 t s_next.cold\nffffffff81000400 T vfs_read\nrubbish\n\nffffffffc0000000 t s_next\t[nf_tables]\n",
        )
        .expect("write");
        let found = namesakes_in(file.path(), &["vfs_read", "absent", "s_next"]).expect("read");
        let counts: Vec<usize> = found.iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 0, 4]);
        assert_eq!(found[2][2].name, "s_next.cold");
        let modules: Vec<Option<&str>> = found[2].iter().map(|s| s.module.as_deref()).collect();
        assert_eq!(modules, [None, None, None, Some("nf_tables")]);
    }

    #[test]
    fn hidden_addresses_still_count() {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        file.write_all(b"0000000000000000 t a\n0000000000000000 t a\n").expect("write");
        assert_eq!(namesakes_in(file.path(), &["a"]).expect("read")[0].len(), 2);
    }
}
