//! Programs as text: as written ([`Program::dump`]) and as assembled ([`Code::dump`]).

use crate::build::Program;
use crate::code::{Code, RelocKind};
use crate::encode::{self as e, Insn};
use crate::helpers::Helper;
use crate::ir::{Addr, Alu, Arg, Base, Callee, Cmp, FuncIr, Likely, Node, Op, Operand, Order, Size, Width};
use std::fmt::{self, Display, Formatter, Write};

impl Program {
    /// The program as it was written, before any simplification: registers are `%n`, stack slots `$n`.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        for f in self.functions() {
            // Writing to a string does not fail.
            let _ = self.dump_function(f, &mut out);
        }
        out
    }

    fn dump_function(&self, f: &FuncIr, out: &mut String) -> fmt::Result {
        let params: Vec<String> = f.params.iter().map(|p| format!("%{}", p.id)).collect();
        writeln!(out, "{}({}):", f.name, params.join(", "))?;
        for (n, slot) in f.slots.iter().enumerate() {
            writeln!(out, "  ${n}: {} bytes, aligned to {}", slot.size, slot.align)?;
        }
        self.dump_nodes(&f.body, 1, out)
    }

    fn dump_nodes(&self, nodes: &[Node], depth: usize, out: &mut String) -> fmt::Result {
        let pad = "  ".repeat(depth);
        for node in nodes {
            match node {
                Node::Scope(_) => {}
                Node::Line(n) => {
                    if let Some(s) = self.sources.list.get(*n as usize) {
                        writeln!(out, "{pad}; {} @ {}:{}:{}", s.text, self.file, s.line, s.col)?;
                    }
                }
                Node::Op(op) => writeln!(out, "{pad}{op}")?,
                Node::Break => writeln!(out, "{pad}break")?,
                Node::Continue => writeln!(out, "{pad}continue")?,
                Node::Leave(label) => writeln!(out, "{pad}leave {label}")?,
                Node::Block { label, body } => {
                    writeln!(out, "{pad}block {label} {{")?;
                    self.dump_nodes(body, depth + 1, out)?;
                    writeln!(out, "{pad}}}")?;
                }
                Node::Ret(v) => writeln!(out, "{pad}return {v}")?,
                Node::Loop { max, index, body, .. } => {
                    writeln!(out, "{pad}for %{} in 0..{max} {{", index.id)?;
                    self.dump_nodes(body, depth + 1, out)?;
                    writeln!(out, "{pad}}}")?;
                }
                Node::If { cmp, width, a, b, likely, then, els } => {
                    let rarely = if *likely == Likely::No { "rarely " } else { "" };
                    let w = suffix(*width);
                    writeln!(out, "{pad}if {rarely}%{}{w} {} {b} {{", a.id, cmp_sign(*cmp))?;
                    self.dump_nodes(then, depth + 1, out)?;
                    if els.iter().any(|n| !matches!(n, Node::Scope(_))) {
                        writeln!(out, "{pad}}} else {{")?;
                        self.dump_nodes(els, depth + 1, out)?;
                    }
                    writeln!(out, "{pad}}}")?;
                }
            }
        }
        Ok(())
    }
}

const fn suffix(width: Width) -> &'static str {
    match width {
        Width::W32 => ".32",
        Width::W64 => "",
    }
}

impl Display for Operand {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Reg(r) => write!(f, "%{}", r.id),
            Operand::Imm(v) => write!(f, "{v}"),
        }
    }
}

struct At(Base, i32);

impl Display for At {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Base::Reg(r) => write!(f, "[%{}{:+}]", r.id, self.1),
            Base::Slot(s) => write!(f, "[${}{:+}]", s.id, self.1),
        }
    }
}

impl Display for Arg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Reg(r) => write!(f, "%{}", r.id),
            Arg::Imm(v) => write!(f, "{v}"),
            Arg::SlotAddr(s, off) => write!(f, "&${}{off:+}", s.id),
            Arg::Offset(r, off) => write!(f, "%{}{off:+}", r.id),
            Arg::Map(m) => write!(f, "map{}", m.0),
            Arg::MapValue(m, off) => write!(f, "&map{}{off:+}", m.0),
            Arg::Sub(s) => write!(f, "&sub{}", s.0),
            Arg::Ctx => write!(f, "ctx"),
        }
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(dst) = self.def() {
            write!(f, "%{} = ", dst.id)?;
        }
        let bits = |size: Size| size.bits();
        match self {
            Op::Mov { src, .. } => write!(f, "{src}"),
            Op::Alu { op, width, a, b, .. } => write!(f, "{a} {}{} {b}", alu_sign(*op), suffix(*width)),
            Op::Neg { width, a, .. } => write!(f, "-{}%{}", suffix(*width), a.id),
            Op::Ext { signed, size, a, .. } => {
                write!(f, "{}{} %{}", if *signed { "s" } else { "u" }, bits(*size), a.id)
            }
            Op::Bytes { order, size, a, .. } => {
                let name = if *order == Order::Big { "be" } else { "swap" };
                write!(f, "{name}{} %{}", bits(*size), a.id)
            }
            Op::Load { signed, size, base, off, .. } => {
                write!(f, "{}{} {}", if *signed { "s" } else { "u" }, bits(*size), At(*base, *off))
            }
            Op::Store { size, base, off, src } => write!(f, "u{} {} = {src}", bits(*size), At(*base, *off)),
            Op::AtomicAdd { size, base, off, src } => {
                write!(f, "lock u{} {} += {src}", bits(*size), At(*base, *off))
            }
            Op::FetchAdd { size, base, off, src, .. } => {
                write!(f, "lock fetch u{} {} += {src}", bits(*size), At(*base, *off))
            }
            Op::Addr { addr, .. } => match *addr {
                Addr::Slot(s, off) => Arg::SlotAddr(s, off).fmt(f),
                Addr::Map(m) => Arg::Map(m).fmt(f),
                Addr::MapValue(m, off) => Arg::MapValue(m, off).fmt(f),
                Addr::Sub(s) => Arg::Sub(s).fmt(f),
                Addr::BtfVar(id) => write!(f, "&var#{id}"),
            },
            Op::Call { callee, args, .. } => {
                match callee {
                    Callee::Helper(h) => write!(f, "{h}")?,
                    Callee::Kfunc(id) => write!(f, "kfunc#{id}")?,
                    Callee::Sub(s) => write!(f, "sub{}", s.0)?,
                }
                let args: Vec<String> = args.iter().map(Arg::to_string).collect();
                write!(f, "({})", args.join(", "))
            }
        }
    }
}

const fn alu_sign(op: Alu) -> &'static str {
    match op {
        Alu::Add => "+",
        Alu::Sub => "-",
        Alu::Mul => "*",
        Alu::Div => "/",
        Alu::Mod => "%",
        Alu::Or => "|",
        Alu::And => "&",
        Alu::Xor => "^",
        Alu::Lsh => "<<",
        Alu::Rsh => ">>",
        Alu::Arsh => "s>>",
    }
}

const fn cmp_sign(cmp: Cmp) -> &'static str {
    match cmp {
        Cmp::Eq => "==",
        Cmp::Ne => "!=",
        Cmp::Gt => ">",
        Cmp::Ge => ">=",
        Cmp::Lt => "<",
        Cmp::Le => "<=",
        Cmp::SGt => "s>",
        Cmp::SGe => "s>=",
        Cmp::SLt => "s<",
        Cmp::SLe => "s<=",
        Cmp::Set => "&",
    }
}

impl Code {
    /// The instructions as the verifier's log and `bpftool prog dump xlated` write them (`kernel/bpf/disasm.c`), each new
    /// source position before them.
    pub fn dump(&self) -> String {
        let mut out = String::new();
        let mut skip = false;
        for (i, insn) in self.insns.iter().enumerate() {
            if std::mem::take(&mut skip) {
                continue;
            }
            skip = insn.is_wide();
            let _ = self.dump_insn(i, *insn, &mut out);
        }
        out
    }

    fn dump_insn(&self, i: usize, insn: Insn, out: &mut String) -> fmt::Result {
        let begins = self.func_info.iter().position(|f| f.insn_off as usize == i);
        if let Some(name) = begins.and_then(|n| self.names.get(n)) {
            writeln!(out, "{name}:")?;
        }
        if self.line_info.binary_search_by_key(&i, |l| l.insn_off as usize).is_ok()
            && let Some(p) = self.position(i)
        {
            writeln!(out, "; {} @ {}:{}:{}", p.text, self.file, p.line, p.col)?;
        }
        write!(out, "{i:4}: ")?;
        if insn.is_wide() {
            let reloc = self.relocs.binary_search_by_key(&i, |r| r.insn).ok().map(|n| self.relocs[n]);
            return match reloc.map(|r| (r.map.0, r.kind)) {
                Some((map, RelocKind::Map)) => writeln!(out, "r{} = map[{map}]", insn.dst),
                Some((map, RelocKind::Value(off))) => writeln!(out, "r{} = map[{map}][0]+{off}", insn.dst),
                None if insn.src == e::PSEUDO_FUNC => {
                    writeln!(out, "r{} = subprog[{:+}]", insn.dst, insn.imm)
                }
                None if insn.src == e::PSEUDO_BTF_ID => writeln!(out, "r{} = &var#{}", insn.dst, insn.imm),
                None => {
                    let high = self.insns.get(i + 1).map_or(0, |second| second.imm);
                    let v = u64::from(high.cast_unsigned()) << 32 | u64::from(insn.imm.cast_unsigned());
                    writeln!(out, "r{} = {v:#x}", insn.dst)
                }
            };
        }
        writeln!(out, "{insn}")
    }
}

impl Display for Insn {
    /// As `kernel/bpf/disasm.c` writes it.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Insn { code, dst, src, off, imm } = *self;
        let size = match code & 0x18 {
            0x00 => "32",
            0x08 => "16",
            0x10 => "8",
            _ => "64",
        };
        match code & 7 {
            class @ (e::ALU | e::ALU64) => {
                let r = if class == e::ALU { 'w' } else { 'r' };
                match code & 0xf0 {
                    e::NEG => write!(f, "{r}{dst} = -{r}{dst}"),
                    e::END => {
                        let order = if code & 8 == e::TO_BE { "be" } else { "le" };
                        write!(f, "r{dst} = {order}{imm} r{dst}")
                    }
                    // As kernel/bpf/disasm.c has it: this CPU's instance (BPF_ADDR_PERCPU).
                    e::MOV if code & e::X != 0 && off == -1 => {
                        write!(f, "{r}{dst} = &(void __percpu *)({r}{src})")
                    }
                    e::MOV if code & e::X != 0 && off != 0 => write!(f, "{r}{dst} = (s{off}){r}{src}"),
                    op => {
                        let sign = match op {
                            0x00 => "+=",
                            0x10 => "-=",
                            0x20 => "*=",
                            0x30 => "/=",
                            0x40 => "|=",
                            0x50 => "&=",
                            0x60 => "<<=",
                            0x70 => ">>=",
                            0x90 => "%=",
                            0xa0 => "^=",
                            0xc0 => "s>>=",
                            _ => "=",
                        };
                        if code & e::X != 0 {
                            write!(f, "{r}{dst} {sign} {r}{src}")
                        } else {
                            write!(f, "{r}{dst} {sign} {imm}")
                        }
                    }
                }
            }
            e::LDX => {
                let sign = if code & 0xe0 == e::MEMSX { 's' } else { 'u' };
                write!(f, "r{dst} = *({sign}{size} *)(r{src} {off:+})")
            }
            e::STX if code & 0xe0 == e::ATOMIC => {
                let place = format_args!("*(u{size} *)(r{dst} {off:+})");
                let fetch = imm & e::FETCH != 0;
                let sign = match imm & !e::FETCH {
                    0x00 => "+=",
                    0x40 => "|=",
                    0x50 => "&=",
                    0xa0 => "^=",
                    0xe0 => return write!(f, "r{src} = lock xchg {place}, r{src}"),
                    0xf0 => return write!(f, "r0 = lock cmpxchg {place}, r0, r{src}"),
                    0x100 if !fetch => {
                        return write!(f, "r{dst} = load_acquire((u{size} *)(r{src} {off:+}))");
                    }
                    0x110 if !fetch => {
                        return write!(f, "store_release((u{size} *)(r{dst} {off:+}), r{src})");
                    }
                    _ => return write!(f, "lock {place} ? r{src} ({imm:#x})"),
                };
                if fetch {
                    write!(f, "r{src} = lock fetch {place} {sign} r{src}")
                } else {
                    write!(f, "lock {place} {sign} r{src}")
                }
            }
            e::STX => write!(f, "*(u{size} *)(r{dst} {off:+}) = r{src}"),
            e::ST => write!(f, "*(u{size} *)(r{dst} {off:+}) = {imm}"),
            class @ (e::JMP | e::JMP32) => match code {
                e::JA => write!(f, "goto pc{off:+}"),
                // A distance of 32 bits (6.6), and a jump that ends a loop at some time (6.9).
                0x06 => write!(f, "goto pc{imm:+}"),
                0xe5 => write!(f, "may_goto pc{off:+}"),
                e::EXIT => f.write_str("exit"),
                e::CALL => match src {
                    e::PSEUDO_CALL => write!(f, "call pc{imm:+}"),
                    e::PSEUDO_KFUNC_CALL => write!(f, "call kernel-function#{imm}"),
                    _ => match Helper(imm).name() {
                        Some(name) => write!(f, "call bpf_{name}#{imm}"),
                        None => write!(f, "call unknown#{imm}"),
                    },
                },
                _ => {
                    let r = if class == e::JMP32 { 'w' } else { 'r' };
                    let sign = match code & 0xf0 {
                        0x10 => "==",
                        0x20 => ">",
                        0x30 => ">=",
                        0x40 => "&",
                        0x50 => "!=",
                        0x60 => "s>",
                        0x70 => "s>=",
                        0xa0 => "<",
                        0xb0 => "<=",
                        0xc0 => "s<",
                        0xd0 => "s<=",
                        _ => return write!(f, "unknown {code:#04x} r{dst} r{src} {off:+} {imm:#x}"),
                    };
                    if code & e::X != 0 {
                        write!(f, "if {r}{dst} {sign} {r}{src} goto pc{off:+}")
                    } else {
                        write!(f, "if {r}{dst} {sign} {imm:#x} goto pc{off:+}")
                    }
                }
            },
            // Of packets: what is left of the first BPF.
            e::LD if code & 0xe0 == 0x20 => write!(f, "r0 = *(u{size} *)skb[{imm}]"),
            e::LD if code & 0xe0 == 0x40 => write!(f, "r0 = *(u{size} *)skb[r{src} + {imm}]"),
            _ => write!(f, "r{dst} = {imm:#x}"),
        }
    }
}
