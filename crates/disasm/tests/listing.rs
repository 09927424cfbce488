//! What is said of instructions: headers, labels, targets, patched sites, colour.
#![allow(clippy::unwrap_used)]

use disasm::{
    Arch, BranchTarget, Disassembler, Flow, Frame, Line, NoSymbols, Site, StaticBranch, Symbol, Symbols,
    Syntax, TargetKind, render,
};

const AT: u64 = 0xffff_ffff_8100_0000;

/// A function of 0x1000 bytes, and what it calls.
struct Kernel;

impl Symbols for Kernel {
    fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        let named = |name, offset| Some(Symbol { name, offset, module: None });
        match address {
            AT..=0xffff_ffff_8100_0fff => named("function", address - AT),
            0xffff_ffff_8100_1000 => named("__fentry__", 0),
            0xffff_ffff_8100_1100 => named("__x86_indirect_thunk_rax", 0),
            0xffff_ffff_8100_1200 => named("__x86_return_thunk", 0),
            0xffff_ffff_8100_1300 => named("__SCT__might_resched", 0),
            0xffff_ffff_8200_0000..=0xffff_ffff_8200_00ff => named("table", address & 0xff),
            0xffff_ffff_c000_0000 => Some(Symbol { name: "handler", offset: 0, module: Some("bpf") }),
            0x1f000 => named("current_task", 0),
            _ => None,
        }
    }
}

/// The text of some bytes at [`AT`].
fn text<P: render::Paint>(
    bytes: &[u8],
    arch: Arch,
    syntax: Syntax,
    symbols: &impl Symbols,
    shown: bool,
) -> String {
    let mut disassembler = Disassembler::new(arch, syntax);
    let writer = render::Text::<P>::new(render::Options { bytes: shown, ..Default::default() });
    let mut out = Vec::new();
    let mut lines = disassembler.decode(bytes, AT, symbols);
    while let Some(line) = lines.next_line() {
        writer.write(&line, &mut out);
    }
    String::from_utf8(out).unwrap()
}

fn plain(bytes: &[u8]) -> String {
    text::<render::Plain>(bytes, Arch::X86_64, Syntax::Att, &Kernel, false)
}

/// `call` or `jmp` from an offset to an offset.
fn near(opcode: u8, from: u32, to: u32) -> [u8; 5] {
    let [a, b, c, d] = to.wrapping_sub(from + 5).to_le_bytes();
    [opcode, a, b, c, d]
}

#[test]
fn sites_are_named_by_bytes_and_names() {
    let mut code = near(0xe8, 0, 0x1000).to_vec();
    code.extend([0x48, 0x89, 0xf8]); // 5: mov
    code.extend([0x0f, 0x1f, 0x44, 0, 0]); // 8: a no-op that may be anything
    code.push(0x2e); // d: as retpolines are called
    code.extend(near(0xe8, 0xe, 0x1100));
    code.extend(near(0xe8, 0x13, 0x1300));
    code.extend(near(0xe9, 0x18, 0x1d)); // 18: longer than it need be
    code.extend([0x66, 0x90]); // 1d
    code.extend(near(0xe9, 0x1f, 0x1200));
    code.extend([0xcc, 0x66, 0x90, 0x0f, 0x1f, 0]); // 24: nothing comes here
    assert_eq!(
        plain(&code),
        "\
; function+0x0
0xffffffff81000000: call   0xffffffff81001000  ; __fentry__+0x0 (fentry call)
0xffffffff81000005: mov    %rdi,%rax
0xffffffff81000008: nopl   0x0(%rax,%rax,1)  ; static branch, alternative or filler
0xffffffff8100000d: cs call 0xffffffff81001100  ; __x86_indirect_thunk_rax+0x0 (retpoline)
0xffffffff81000013: call   0xffffffff81001300  ; __SCT__might_resched+0x0 (static call)
0xffffffff81000018: jmp    0xffffffff8100001d  ; L1 function+0x1d (patched at run time)
L1:
0xffffffff8100001d: xchg   %ax,%ax  ; static branch, alternative or filler
0xffffffff8100001f: jmp    0xffffffff81001200  ; __x86_return_thunk+0x0 (return thunk)
0xffffffff81000024: int3  ; padding
0xffffffff81000025: xchg   %ax,%ax  ; padding
0xffffffff81000027: nopl   (%rax)  ; padding
"
    );
}

#[test]
fn the_entry_is_known_behind_its_landing_mark_only_at_a_functions_beginning() {
    let nop = [0x0f, 0x1f, 0x44, 0, 0];
    let marks: [&[u8]; 3] = [&[0xf3, 0x0f, 0x1e, 0xfa], &[0x66, 0x0f, 0x1f, 0], &[0x0f, 0x1f, 0x40, 0xd6]];
    for mark in marks {
        let code = [mark, &nop].concat();
        assert!(plain(&code).ends_with("; fentry\n"), "{}", plain(&code));
    }
    // Without a symbol that begins there, it may be anywhere.
    let anywhere = text::<render::Plain>(&nop, Arch::X86_64, Syntax::Att, &NoSymbols, false);
    assert!(anywhere.contains("static branch, alternative or filler"), "{anywhere}");
}

#[test]
fn data_is_named_where_a_symbol_covers_it() {
    let code = [
        0x48, 0x8b, 0x05, 0xf9, 0xff, 0xff, 0x00, // mov 0xfffff9(%rip),%rax
        0x48, 0xc7, 0xc7, 0x10, 0x00, 0x00, 0x82, // mov $table+0x10,%rdi
        0x48, 0x8b, 0x04, 0xc5, 0x20, 0x00, 0x00, 0x82, // mov table+0x20(,%rax,8),%rax
        0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, // mov $-1,%rax
        0x65, 0x48, 0x8b, 0x04, 0x25, 0x00, 0xf0, 0x01, 0x00, // mov %gs:0x1f000,%rax
        0x48, 0xbf, 0x00, 0x00, 0x00, 0xc0, 0xff, 0xff, 0xff, 0xff, // movabs $handler,%rdi
        0xc7, 0x05, 0x06, 0x00, 0x00, 0x01, 0x01, 0x00, 0x00,
        0x00, // movl $1,0x1000006(%rip): nothing there
    ];
    assert_eq!(
        plain(&code),
        "\
; function+0x0
0xffffffff81000000: mov    0xfffff9(%rip),%rax  ; table+0x0
0xffffffff81000007: mov    $0xffffffff82000010,%rdi  ; table+0x10
0xffffffff8100000e: mov    -0x7dffffe0(,%rax,8),%rax  ; table+0x20
0xffffffff81000016: mov    $0xffffffffffffffff,%rax
0xffffffff8100001d: mov    %gs:0x1f000,%rax  ; per-CPU current_task+0x0
0xffffffff81000026: movabs $0xffffffffc0000000,%rdi  ; handler+0x0 [bpf]
0xffffffff81000030: movl   $0x1,0x1000006(%rip)  ; table+0x40
"
    );
    let mut disassembler = Disassembler::new(Arch::X86_64, Syntax::Att);
    let mut lines = disassembler.decode(&code, AT, &Kernel);
    let mut kinds = Vec::new();
    while let Some(line) = lines.next_line() {
        if let Line::Instruction(instruction) = line {
            kinds.extend(instruction.targets.iter().map(|target| target.kind));
        }
    }
    use TargetKind::{Data, Immediate, PerCpu};
    assert_eq!(kinds, [Data, Immediate, Immediate, PerCpu, Immediate, Data]);
}

#[test]
fn loops_can_be_followed() {
    // 0: dec; 3: jne 0; 5: jmp 7 (into the midst of the next: no label); 7: mov $..,%eax; c: je 3
    let code = [0x48, 0xff, 0xce, 0x75, 0xfb, 0xeb, 0x01, 0xb8, 1, 2, 3, 4, 0x74, 0xf5];
    assert_eq!(
        plain(&code),
        "\
; function+0x0
L1:
0xffffffff81000000: dec    %rsi
L2:
0xffffffff81000003: jne    0xffffffff81000000  ; L1 function+0x0
0xffffffff81000005: jmp    0xffffffff81000008  ; function+0x8
0xffffffff81000007: mov    $0x4030201,%eax
0xffffffff8100000c: je     0xffffffff81000003  ; L2 function+0x3
"
    );
}

/// Source lines, as debug information has them.
struct Sources;

impl Symbols for Sources {
    fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        Kernel.symbol(address).map(|symbol| Symbol { name: "function", offset: symbol.offset, module: None })
    }

    fn source<'a>(&'a self, address: u64, chain: &mut Vec<Frame<'a>>) -> u64 {
        let outer = Frame { function: "function", file: "kernel/a.c", line: 7, column: 3 };
        match address - AT {
            0..2 => chain.push(outer),
            2..4 => {
                chain.push(Frame { function: "inner", file: "include/b.h", line: 1, column: 0 });
                chain.push(outer);
            }
            // The same line again, another column: no header of its own.
            4..6 => chain.push(outer),
            _ => chain.push(Frame { column: 9, ..outer }),
        }
        address / 2 * 2 + 2
    }

    fn location(&self, _: u64) -> Option<Frame<'_>> {
        Some(Frame { function: "function", file: "kernel/a.c", line: 7, column: 3 })
    }
}

#[test]
fn a_source_line_heads_each_run() {
    let code = [0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xf7];
    assert_eq!(
        text::<render::Plain>(&code, Arch::X86_64, Syntax::Att, &Sources, true),
        "\
; function+0x0 kernel/a.c:7
L1:
0xffffffff81000000: 90                             nop
0xffffffff81000001: 90                             nop
; function+0x2 include/b.h:1 (inner in function kernel/a.c:7)
0xffffffff81000002: 90                             nop
0xffffffff81000003: 90                             nop
; function+0x4 kernel/a.c:7
0xffffffff81000004: 90                             nop
0xffffffff81000005: 90                             nop
0xffffffff81000006: 90                             nop
0xffffffff81000007: eb f7                          jmp    0xffffffff81000000  ; L1 function+0x0 kernel/a.c:7
"
    );
}

#[test]
fn what_is_no_instruction_is_passed_byte_by_byte() {
    assert_eq!(
        text::<render::Plain>(
            &[0x06, 0x0f, 0x04, 0xc3, 0xe8, 1],
            Arch::X86_64,
            Syntax::Att,
            &NoSymbols,
            true
        ),
        "\
; 0xffffffff81000000
0xffffffff81000000: 06                             (bad)
0xffffffff81000001: 0f                             (bad)
0xffffffff81000002: 04 c3                          add    $0xc3,%al
0xffffffff81000004: e8                             (bad)
0xffffffff81000005: 01                             (bad)
"
    );
}

#[test]
fn intels_syntax_and_colour() {
    let code = [0x48, 0x8b, 0x05, 0xf9, 0xff, 0xff, 0x00, 0xeb, 0xf7];
    assert_eq!(
        text::<render::Plain>(&code, Arch::X86_64, Syntax::Intel, &Kernel, false),
        "\
; function+0x0
L1:
0xffffffff81000000: mov    rax,QWORD PTR [rip+0xfffff9]  ; table+0x0
0xffffffff81000007: jmp    0xffffffff81000000  ; L1 function+0x0
"
    );
    let coloured = text::<render::Colour>(&code, Arch::X86_64, Syntax::Att, &Kernel, true);
    let mut bare = String::new();
    for (n, part) in coloured.split('\x1b').enumerate() {
        bare.push_str(if n == 0 { part } else { part.split_once('m').unwrap().1 });
    }
    assert_ne!(bare, coloured);
    assert_eq!(bare, text::<render::Plain>(&code, Arch::X86_64, Syntax::Att, &Kernel, true));
    for line in coloured.lines() {
        assert!(line.matches('\x1b').count() % 2 == 0 && !line.ends_with("\x1b[2m"), "{line:?}");
    }
}

#[test]
fn the_caller_knows_better_what_is_patched() {
    struct Jumps;
    impl Symbols for Jumps {
        fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
            (address == AT + 8).then_some(Symbol { name: "f", offset: 8, module: None })
        }
        fn site(&self, address: u64, flow: Flow) -> Option<Site<'_>> {
            let key = Symbol { name: "a_key", offset: 0, module: None };
            let target = BranchTarget { address: AT + 8, symbol: self.symbol(AT + 8) };
            let is_on = flow == Flow::Jump;
            match address - AT {
                1 | 6 => Some(Site::StaticBranch(StaticBranch {
                    key: Some(key),
                    is_on,
                    target: (!is_on).then_some(target),
                })),
                8 => Some(Site::StaticCall(Some("cond_resched"))),
                _ => None,
            }
        }
    }
    let code = [0x90, 0x0f, 0x1f, 0x44, 0, 0, 0xeb, 0, 0xe8, 0, 0, 0, 0];
    let text = text::<render::Plain>(&code, Arch::X86_64, Syntax::Att, &Jumps, false);
    for part in [
        "nopl   0x0(%rax,%rax,1)  ; static branch, key a_key (off), to f+0x8\n",
        "jmp    0xffffffff81000008  ; L1 f+0x8 (static branch, key a_key (on))\n",
        "call   0xffffffff8100000d  ; static call cond_resched\n",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn programs_have_the_names_that_their_authors_gave_them() {
    struct Programs;
    impl Symbols for Programs {
        fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
            let name = match address - AT {
                0x1000 => "bpf_prog_6deef7357e7b4530_drop_it",
                0x2000 => "bpf_prog_6deef7357e7b4530",
                _ => "bpf_trampoline_6442456111",
            };
            Some(Symbol { name, offset: 0, module: Some("bpf") })
        }
        fn location(&self, address: u64) -> Option<Frame<'_>> {
            (address == AT + 0x1000).then_some(Frame { function: "", file: "drop_it", line: 0, column: 0 })
        }
    }
    let code = [near(0xe8, 0, 0x1000), near(0xe8, 5, 0x2000)].concat();
    let text = text::<render::Plain>(&code, Arch::X86_64, Syntax::Att, &Programs, false);
    for part in [
        "  ; drop_it+0x0 [bpf 6deef7357e7b4530]\n",
        "  ; bpf_prog_6deef7357e7b4530+0x0 [bpf]\n",
        "; bpf_trampoline_6442456111+0x0 [bpf]\n",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
}

#[test]
fn arm64_names_pages_system_registers_and_labels() {
    let words: [u32; 10] = [
        0xd503_245f, // bti c
        0xd503_201f, // nop, room for ftrace
        0xd503_233f, // paciasp
        0x9000_8000, // adrp x0, 0xffffffff82000000
        0x9100_4000, // add x0, x0, #0x10
        0xd538_4102, // mrs x2, sp_el0
        0xf100_0421, // subs x1, x1, #1
        0x54ff_ffe1, // b.ne -4
        0x9400_03f8, // bl AT + 0x1000
        0xd65f_03c0, // ret
    ];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    assert_eq!(
        text::<render::Plain>(&bytes, Arch::Arm64, Syntax::Att, &Kernel, false),
        "\
; function+0x0
0xffffffff81000000: bti    c
0xffffffff81000004: nop  ; fentry
0xffffffff81000008: paciasp
0xffffffff8100000c: adrp   x0, 0xffffffff82000000
0xffffffff81000010: add    x0, x0, #0x10  ; table+0x10
0xffffffff81000014: mrs    x2, sp_el0
L1:
0xffffffff81000018: subs   x1, x1, #0x1
0xffffffff8100001c: b.ne   0xffffffff81000018  ; L1 function+0x18
0xffffffff81000020: bl     0xffffffff81001000  ; __fentry__+0x0
0xffffffff81000024: ret
"
    );
}
