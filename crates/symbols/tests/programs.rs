//! Lines of a program that is loaded here, as everybody's can be read.

use bpf::{Load, ProgType, Program, load_btf};
use btf::{Builder, Linkage};
use std::os::fd::AsFd;
use symbols::lines::program_lines;

#[test]
fn the_lines_and_texts_of_a_program_and_its_subprogram_are_read_back() {
    bpf::raise_limits();
    let mut types = Builder::new();
    let int = types.int("int", 4, true);
    let main = types.func_proto(int, &[]);
    let main = types.func("main", main, Linkage::Global);
    let sub = types.func_proto(int, &[("n", int)]);
    let sub = types.func("sub", sub, Linkage::Static);
    let file = types.string("/src/filter.bpf.c");
    let [call, text] = ["\treturn sub(7);", "\treturn n;"].map(|line| types.string(line));
    // r1 = 7; call +1; exit; r0 = r1; exit
    let insns = [0x0000_0007_0000_01b7, 0x0000_0001_0000_1085, 0x95, 0x10bf, 0x95];
    let func_info = [[0, main.0], [3, sub.0]];
    let line_info = [[0, file, call, 12 << 10 | 9], [2, file, call, 12 << 10 | 2], [3, file, text, 7 << 10]];
    let loaded = load_btf(&types.finish()).and_then(|btf| {
        Program::load(&Load {
            btf: Some(btf.as_fd()),
            func_info: &func_info,
            line_info: &line_info,
            ..Load::new("filter", ProgType::SocketFilter, &insns)
        })
    });
    let program = match loaded {
        Ok(program) => program,
        Err(error) if error.is_permission() => {
            return eprintln!("SKIP: this machine refuses to load BPF programs: {error}");
        }
        Err(error) => panic!("{error:?}"),
    };
    let id = program.info().expect("info").id;
    let jited = program.jited().expect("jited");
    let lines = program_lines(id).expect("lines").expect("there");
    if jited.functions.is_empty() {
        assert!(lines.is_empty(), "{lines:?}");
        return eprintln!("SKIP: this kernel does not compile programs, or hides their addresses");
    }
    let seen: Vec<_> =
        lines.iter().map(|l| (l.instruction, l.file.as_str(), l.line, l.column, l.text.as_str())).collect();
    let want = [
        (0, "/src/filter.bpf.c", 12, 9, "\treturn sub(7);"),
        (2, "/src/filter.bpf.c", 12, 2, "\treturn sub(7);"),
        (3, "/src/filter.bpf.c", 7, 0, "\treturn n;"),
    ];
    assert_eq!(seen, want);
    let within = |at: u64, (start, len): (u64, u32)| (start..start + u64::from(len)).contains(&at);
    assert_eq!(jited.functions.len(), 2);
    assert!(within(lines[0].address, jited.functions[0]) && within(lines[1].address, jited.functions[0]));
    assert!(lines[0].address < lines[1].address && within(lines[2].address, jited.functions[1]), "{lines:?}");
    assert_eq!(program_lines(u32::MAX).expect("no program"), None);
}
