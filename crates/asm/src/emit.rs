//! Operations with registers → instructions.

use crate::alloc::NOWHERE;
use crate::cfg::{BlockId, Cfg, Term};
use crate::code::{Reloc, RelocKind};
use crate::encode::*;
use crate::error::Error;
use crate::frame::Frame;
use crate::ir::{Addr, Alu, Arg, Base, Callee, Op, Operand, Reg, Size, Slot, SubId, Width};

/// The instructions of one function; jumps are resolved, calls of other functions are not.
#[derive(Default)]
pub(crate) struct Emitted {
    pub insns: Vec<Insn>,
    /// By instruction: its source position.
    pub lines: Vec<Option<u32>>,
    pub relocs: Vec<Reloc>,
    /// Instructions that name another function.
    pub subs: Vec<(usize, SubId)>,
}

/// Encodes a function whose registers are placed.
pub(crate) fn emit(cfg: &Cfg, place: &[u8], frame: &Frame) -> Result<Emitted, Error> {
    let mut e = Emit { cfg, place, frame, out: Emitted::default(), line: None };
    let mut starts = vec![0usize; cfg.blocks.len()];
    let mut jumps: Vec<(usize, BlockId)> = Vec::new();
    e.entry()?;
    for (i, b) in cfg.order.iter().enumerate() {
        starts[*b] = e.out.insns.len();
        let block = &cfg.blocks[*b];
        for inst in &block.insts {
            e.line = inst.line;
            e.op(&inst.op)?;
        }
        e.line = block.line;
        let next = cfg.order.get(i + 1).copied();
        match block.term {
            Term::Ret(v) => {
                match v {
                    Operand::Imm(v) => e.mov_imm(0, v),
                    Operand::Reg(r) => e.mov(0, e.reg(r)),
                }
                e.push(EXIT, 0, 0, 0, 0);
            }
            Term::Jump(t) => {
                if next != Some(t) {
                    jumps.push((e.out.insns.len(), t));
                    e.push(JA, 0, 0, 0, 0);
                }
            }
            Term::Cond { cmp, width, a, b, yes, no, .. } => {
                let (cmp, to, otherwise) = match cmp.inverse() {
                    Some(inverse) if next == Some(yes) => (inverse, no, yes),
                    _ => (cmp, yes, no),
                };
                jumps.push((e.out.insns.len(), to));
                let code = jmp_class(width) | cmp_bits(cmp);
                match b {
                    Operand::Imm(v) => e.push(code | K, e.reg(a), 0, 0, v as i32),
                    Operand::Reg(b) => e.push(code | X, e.reg(a), e.reg(b), 0, 0),
                }
                if next != Some(otherwise) {
                    jumps.push((e.out.insns.len(), otherwise));
                    e.push(JA, 0, 0, 0, 0);
                }
            }
        }
    }
    if e.out.insns.iter().any(|insn| insn.dst > FP || insn.src > FP) {
        return e.internal("a value without a register");
    }
    let mut out = e.out;
    for (at, target) in jumps {
        let distance = starts[target] as i64 - at as i64 - 1;
        out.insns[at].off =
            i16::try_from(distance).map_err(|_| Error::JumpTooFar { func: cfg.name.clone(), distance })?;
    }
    Ok(out)
}

struct Emit<'a> {
    cfg: &'a Cfg,
    place: &'a [u8],
    frame: &'a Frame,
    out: Emitted,
    line: Option<u32>,
}

impl Emit<'_> {
    fn push(&mut self, code: u8, dst: u8, src: u8, off: i16, imm: i32) {
        self.out.insns.push(Insn { code, dst, src, off, imm });
        self.out.lines.push(self.line);
    }

    fn internal<T>(&self, what: &str) -> Result<T, Error> {
        Err(Error::Internal { func: self.cfg.name.clone(), what: what.into() })
    }

    fn reg(&self, r: Reg) -> u8 {
        self.place[r.id as usize]
    }

    fn slot(&self, slot: Slot, off: i32) -> i32 {
        self.frame.offsets[slot.id as usize].saturating_add(off)
    }

    fn base(&self, base: Base, off: i32) -> Result<(u8, i16), Error> {
        let (reg, off) = match base {
            Base::Reg(r) => (self.reg(r), off),
            Base::Slot(s) => (FP, self.slot(s, off)),
        };
        match i16::try_from(off) {
            Ok(off) => Ok((reg, off)),
            Err(_) => self.internal("an offset beyond 16 bits"),
        }
    }

    fn mov(&mut self, dst: u8, src: u8) {
        if dst != src {
            self.push(ALU64 | MOV | X, dst, src, 0, 0);
        }
    }

    fn mov_imm(&mut self, dst: u8, v: i64) {
        if let Ok(imm) = i32::try_from(v) {
            self.push(ALU64 | MOV | K, dst, 0, 0, imm);
        } else if let Ok(imm) = u32::try_from(v) {
            self.push(ALU | MOV | K, dst, 0, 0, imm.cast_signed());
        } else {
            self.wide(dst, 0, v as i32, (v >> 32) as i32);
        }
    }

    fn wide(&mut self, dst: u8, src: u8, low: i32, high: i32) {
        self.push(LD_IMM64, dst, src, 0, low);
        self.push(0, 0, 0, 0, high);
    }

    fn addr(&mut self, dst: u8, addr: Addr) {
        let at = self.out.insns.len();
        match addr {
            Addr::Slot(slot, off) => {
                self.mov(dst, FP);
                self.push(ALU64 | alu_bits(Alu::Add) | K, dst, 0, 0, self.slot(slot, off));
            }
            Addr::Map(map) => {
                self.out.relocs.push(Reloc { insn: at, map, kind: RelocKind::Map });
                self.wide(dst, PSEUDO_MAP_FD, 0, 0);
            }
            Addr::MapValue(map, off) => {
                self.out.relocs.push(Reloc { insn: at, map, kind: RelocKind::Value(off) });
                self.wide(dst, PSEUDO_MAP_VALUE, 0, off.cast_signed());
            }
            Addr::Sub(sub) => {
                self.out.subs.push((at, sub));
                self.wide(dst, PSEUDO_FUNC, 0, 0);
            }
            Addr::BtfVar(id) => self.wide(dst, PSEUDO_BTF_ID, id.cast_signed(), 0),
        }
    }

    /// Moves that happen at once, in an order that loses nothing. `spare` holds nothing that is read after the first moves.
    fn moves(
        &mut self,
        mut moves: Vec<(u8, u8)>,
        spare: impl Fn(&[(u8, u8)]) -> Option<u8>,
    ) -> Result<(), Error> {
        moves.retain(|(dst, src)| dst != src);
        while !moves.is_empty() {
            let ready = moves.iter().position(|(dst, _)| moves.iter().all(|(_, src)| src != dst));
            if let Some(i) = ready {
                let (dst, src) = moves.remove(i);
                self.mov(dst, src);
                continue;
            }
            // Only cycles are left: set one value aside.
            let Some(spare) = spare(&moves) else { return self.internal("no register to turn a cycle") };
            let aside = moves[0].1;
            self.mov(spare, aside);
            for (_, src) in &mut moves {
                if *src == aside {
                    *src = spare;
                }
            }
        }
        Ok(())
    }

    /// Takes the parameters from where the caller put them.
    fn entry(&mut self) -> Result<(), Error> {
        let moves: Vec<(u8, u8)> = (1..)
            .zip(&self.cfg.params)
            .map(|(n, p)| (self.reg(*p), n))
            .filter(|(place, _)| *place != NOWHERE)
            .collect();
        let used: Vec<u8> = moves.iter().flat_map(|(d, s)| [*d, *s]).collect();
        self.moves(moves, |_| (0..10).find(|r| !used.contains(r)))
    }

    fn op(&mut self, op: &Op) -> Result<(), Error> {
        match *op {
            Op::Mov { dst, src } => match src {
                Operand::Reg(src) => self.mov(self.reg(dst), self.reg(src)),
                Operand::Imm(v) => self.mov_imm(self.reg(dst), v),
            },
            Op::Alu { op, width, dst, a, b } => return self.alu(op, width, self.reg(dst), a, b),
            Op::Neg { width, dst, a } => {
                self.mov(self.reg(dst), self.reg(a));
                self.push(alu_class(width) | NEG, self.reg(dst), 0, 0, 0);
            }
            Op::Ext { signed: false, size: Size::W, dst, a } => {
                self.push(ALU | MOV | X, self.reg(dst), self.reg(a), 0, 0);
            }
            Op::Ext { signed: true, size: size @ (Size::B | Size::H | Size::W), dst, a } => {
                self.push(ALU64 | MOV | X, self.reg(dst), self.reg(a), size.bits() as i16, 0);
            }
            Op::Ext { .. } => return self.internal("an extension that is no instruction"),
            Op::Bytes { size, dst, a, .. } => {
                self.mov(self.reg(dst), self.reg(a));
                let away = if cfg!(target_endian = "little") { TO_BE } else { TO_LE };
                self.push(ALU | END | away, self.reg(dst), 0, 0, size.bits() as i32);
            }
            Op::Load { signed, size, dst, base, off } => {
                let (base, off) = self.base(base, off)?;
                let mode = if signed { MEMSX } else { MEM };
                self.push(LDX | mode | size_bits(size), self.reg(dst), base, off, 0);
            }
            Op::Store { size, base, off, src } => {
                let (base, off) = self.base(base, off)?;
                match src {
                    Operand::Reg(r) => self.push(STX | MEM | size_bits(size), base, self.reg(r), off, 0),
                    Operand::Imm(v) => {
                        self.push(ST | MEM | size_bits(size), base, 0, off, truncate(v, size));
                    }
                }
            }
            Op::AtomicAdd { size, base, off, src } => {
                let (base, off) = self.base(base, off)?;
                let Operand::Reg(src) = src else { return self.internal("a constant added atomically") };
                let imm = alu_bits(Alu::Add).into();
                self.push(STX | ATOMIC | size_bits(size), base, self.reg(src), off, imm);
            }
            Op::FetchAdd { size, dst, base, off, src } => {
                let (base, off) = self.base(base, off)?;
                let Operand::Reg(src) = src else { return self.internal("a constant added atomically") };
                let (dst, src) = (self.reg(dst), self.reg(src));
                let code = STX | ATOMIC | size_bits(size);
                let add = i32::from(alu_bits(Alu::Add));
                if dst == NOWHERE {
                    self.push(code, base, src, off, add);
                } else {
                    if dst == base {
                        return self.internal("an address overwritten before it is used");
                    }
                    self.mov(dst, src);
                    self.push(code, base, dst, off, add | FETCH);
                }
            }
            Op::Addr { dst, addr } => self.addr(self.reg(dst), addr),
            Op::Call { dst, callee, ref args } => {
                self.args(args)?;
                match callee {
                    Callee::Helper(h) => self.push(CALL, 0, 0, 0, h.0),
                    Callee::Kfunc(id) => self.push(CALL, 0, PSEUDO_KFUNC_CALL, 0, id.cast_signed()),
                    Callee::Sub(sub) => {
                        self.out.subs.push((self.out.insns.len(), sub));
                        self.push(CALL, 0, PSEUDO_CALL, 0, 0);
                    }
                }
                if self.reg(dst) != NOWHERE {
                    self.mov(self.reg(dst), 0);
                }
            }
        }
        Ok(())
    }

    fn alu(&mut self, op: Alu, width: Width, dst: u8, a: Operand, b: Operand) -> Result<(), Error> {
        let code = alu_class(width) | alu_bits(op);
        let Operand::Reg(a) = a else { return self.internal("a constant on the left") };
        let a = self.reg(a);
        match b {
            Operand::Imm(v) => {
                self.mov(dst, a);
                self.push(code | K, dst, 0, 0, v as i32);
            }
            Operand::Reg(b) => {
                let b = self.reg(b);
                if dst == b && dst != a {
                    if !op.commutes() {
                        return self.internal("an operand overwritten before it is read");
                    }
                    self.push(code | X, dst, a, 0, 0);
                } else {
                    self.mov(dst, a);
                    self.push(code | X, dst, b, 0, 0);
                }
            }
        }
        Ok(())
    }

    /// Puts arguments into r1-r5: first those that come from registers, then those that are made in place.
    fn args(&mut self, args: &[Arg]) -> Result<(), Error> {
        let numbered = || args.iter().enumerate().map(|(i, arg)| (i as u8 + 1, *arg));
        let moves = numbered()
            .filter_map(|(n, arg)| match arg {
                Arg::Reg(r) | Arg::Offset(r, _) => Some((n, self.reg(r))),
                _ => None,
            })
            .collect();
        // The call gives r0 a new value, and no argument lies in it any more when cycles alone are left.
        self.moves(moves, |_| Some(0))?;
        for (n, arg) in numbered() {
            match arg {
                Arg::Reg(_) => {}
                Arg::Offset(_, off) => self.push(ALU64 | alu_bits(Alu::Add) | K, n, 0, 0, off),
                Arg::Imm(v) => self.mov_imm(n, v),
                Arg::SlotAddr(slot, off) => self.addr(n, Addr::Slot(slot, off)),
                Arg::Map(map) => self.addr(n, Addr::Map(map)),
                Arg::MapValue(map, off) => self.addr(n, Addr::MapValue(map, off)),
                Arg::Sub(sub) => self.addr(n, Addr::Sub(sub)),
                Arg::Ctx => return self.internal("an unresolved context argument"),
            }
        }
        Ok(())
    }
}

/// The low bits of a constant to be stored, sign-extended.
fn truncate(v: i64, size: Size) -> i32 {
    match size {
        Size::B => i32::from(v as i8),
        Size::H => i32::from(v as i16),
        Size::W | Size::DW => v as i32,
    }
}
