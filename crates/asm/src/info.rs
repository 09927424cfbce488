//! func_info, line_info and the BTF they refer to.
//!
//! The kernel's rules (`check_btf_func`, `check_btf_line` in `kernel/bpf/verifier.c`): a func_info for each function, the
//! first at instruction 0; offsets strictly increase; a line_info at the first instruction of each function, and none in
//! the second half of a 64-bit load. Functions and their parameters have C identifiers for names.

use crate::build::Program;
use crate::code::{FuncInfo, Function, LineInfo};
use btf::{Builder, Linkage, TypeId};

pub(crate) struct Described {
    pub func_info: Vec<FuncInfo>,
    pub line_info: Vec<LineInfo>,
    pub btf: Vec<u8>,
}

/// Describes the functions of a program.
pub(crate) fn describe(program: &Program, functions: &[Function<'_>]) -> Described {
    let mut btf = Builder::new();
    let int = btf.int("int", 4, true);
    let u64_type = btf.int("unsigned long long", 8, false);
    // As libbpf's BPF_PROG declares it; of a `void *` newer verifiers remark that they cannot tell its size.
    let pointer = btf.ptr(u64_type);
    let file_name_off = btf.string(&program.file.replace('\0', " "));
    let (mut func_info, mut line_info) = (Vec::new(), Vec::new());
    for f in functions {
        let main = f.ir.id == 0;
        let names: Vec<String> = (0..f.ir.params.len()).map(|n| format!("a{n}")).collect();
        let params: Vec<(&str, TypeId)> = if main {
            vec![("ctx", pointer)]
        } else {
            names.iter().map(|name| (name.as_str(), u64_type)).collect()
        };
        let proto = btf.func_proto(if main { int } else { u64_type }, &params);
        let linkage = if main { Linkage::Global } else { Linkage::Static };
        let name = identifier(&f.ir.name);
        let type_id = btf.func(&name, proto, linkage).0;
        func_info.push(FuncInfo { insn_off: f.start as u32, type_id });

        let mut last = None;
        for (i, line) in f.emitted.lines.iter().enumerate() {
            let source = line.and_then(|n| program.sources.list.get(n as usize));
            let (text, line_col) = match source {
                Some(source) if *line != last => (source.text.as_str(), source.line << 10 | source.col),
                // The function's own beginning has no position in the user's text.
                None if i == 0 => (name.as_str(), 0),
                _ => continue,
            };
            last = *line;
            let line_off = btf.string(text);
            line_info.push(LineInfo { insn_off: (f.start + i) as u32, file_name_off, line_off, line_col });
        }
    }
    Described { func_info, line_info, btf: btf.finish() }
}

/// The name as a C identifier, which BTF wants for functions.
fn identifier(name: &str) -> String {
    let mut id: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).take(127).collect();
    if id.starts_with(|c: char| c.is_ascii_digit()) || id.is_empty() {
        id.insert(0, '_');
    }
    id
}
