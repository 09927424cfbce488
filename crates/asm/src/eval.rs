//! Programs interpreted as they were written.
//!
//! This is the oracle of the tests: it walks the structured statements, and shares nothing with what turns them into
//! instructions. Arithmetic follows `Documentation/bpf/standardization/instruction-set.rst`.

use crate::build::Program;
use crate::helpers::Helper;
use crate::ir::{
    Addr, Alu, Arg, Base, Callee, Cmp, FuncIr, MapId, Node, Op, Operand, Order, Reg, Size, Width,
};
use crate::memory::Memory;

/// What an evaluated program must not do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No such memory.
    #[error("access to {len} bytes at {addr:#x}: there is nothing")]
    Address {
        /// Where.
        addr: u64,
        /// Bytes.
        len: usize,
    },
    /// Memory that was never written.
    #[error("{len} bytes at {addr:#x} are read before they are written")]
    Undefined {
        /// Where.
        addr: u64,
        /// Bytes.
        len: usize,
    },
    /// A register that was never written.
    #[error("register %{0} is read before it is assigned")]
    Unassigned(u32),
    /// A helper or kernel function that the machine does not have.
    #[error("call of {0}, which the machine does not have")]
    NoFunction(String),
    /// No main function, or a map that the machine does not have.
    #[error("{0}")]
    Missing(String),
    /// The program does not end.
    #[error("more than {0} steps")]
    Steps(u64),
}

/// Answers calls of helpers: `None` leaves the call to the machine's own version.
pub type HelperFn<'a> = dyn FnMut(Helper, &[u64], &mut Memory) -> Result<Option<u64>, Fault> + 'a;

/// Answers calls of kernel functions, by BTF id.
pub type KfuncFn<'a> = dyn FnMut(u32, &[u64], &mut Memory) -> Result<u64, Fault> + 'a;

/// What a program is evaluated on.
#[derive(Default)]
pub struct Machine<'a> {
    /// The context's bytes.
    pub ctx: Vec<u8>,
    /// Maps, and whatever else pointers may lead to.
    pub memory: Memory,
    /// Helpers beyond (or instead of) those the machine has: `map_lookup_elem`, `map_update_elem` (arrays), `probe_read*`,
    /// `loop`, and the ring buffer's.
    pub helpers: Option<Box<HelperFn<'a>>>,
    /// Kernel functions.
    pub kfuncs: Option<Box<KfuncFn<'a>>>,
    /// The records submitted to ring buffers.
    pub records: Vec<(MapId, Vec<u8>)>,
    reserved: Vec<(u64, MapId, usize)>,
    steps: u64,
}

impl Machine<'_> {
    /// A machine with that context and nothing else.
    pub fn new(ctx: &[u8]) -> Self {
        Machine { ctx: ctx.to_vec(), ..Machine::default() }
    }
}

impl std::fmt::Debug for Machine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Machine")
            .field("ctx", &self.ctx)
            .field("memory", &self.memory)
            .field("records", &self.records)
            .finish_non_exhaustive()
    }
}

/// Statements run before an evaluation is given up.
const MAX_STEPS: u64 = 10_000_000;
/// What the address of a subprogram looks like in a register.
const SUB: u64 = 0xfc00_0000_0000_0000;

/// Addresses of kernel variables, their BTF id below; a machine's helper may know what they stand for.
const BTF_VAR: u64 = 0xfb00_0000_0000_0000;
const EFAULT: i64 = 14;
const ENOENT: i64 = 2;
const E2BIG: i64 = 7;

impl Program {
    /// Runs the program on a machine and gives the 64 bits it returns. Maps and records are found in the machine.
    pub fn evaluate(&self, machine: &mut Machine<'_>) -> Result<u64, Fault> {
        let main = self.main.as_ref().ok_or_else(|| Fault::Missing("no main function".into()))?;
        let ctx = machine.memory.add(&machine.ctx.clone());
        machine.steps = 0;
        Run { program: self, machine }.function(main, &[ctx])
    }
}

struct Run<'r, 'a> {
    program: &'r Program,
    machine: &'r mut Machine<'a>,
}

struct Activation<'r> {
    ir: &'r FuncIr,
    regs: Vec<Option<u64>>,
    /// Addresses of the slots.
    slots: Vec<u64>,
}

enum Flow {
    On,
    Break,
    Continue,
    Leave(u32),
    Return(u64),
}

impl Activation<'_> {
    fn get(&self, r: Reg) -> Result<u64, Fault> {
        self.regs.get(r.id as usize).copied().flatten().ok_or(Fault::Unassigned(r.id))
    }

    fn set(&mut self, r: Reg, v: u64) {
        if let Some(slot) = self.regs.get_mut(r.id as usize) {
            *slot = Some(v);
        }
    }

    fn operand(&self, o: Operand) -> Result<u64, Fault> {
        match o {
            Operand::Reg(r) => self.get(r),
            Operand::Imm(v) => Ok(v.cast_unsigned()),
        }
    }

    fn address(&self, base: Base, off: i32) -> Result<u64, Fault> {
        let base = match base {
            Base::Reg(r) => self.get(r)?,
            Base::Slot(s) => self.slots[s.id as usize],
        };
        Ok(base.wrapping_add_signed(off.into()))
    }
}

impl<'r> Run<'r, '_> {
    fn function(&mut self, ir: &'r FuncIr, args: &[u64]) -> Result<u64, Fault> {
        let slots = ir.slots.iter().map(|s| self.machine.memory.add_undefined(s.size as usize)).collect();
        let mut act = Activation { ir, regs: vec![None; ir.nregs as usize], slots };
        for (param, v) in ir.params.iter().zip(args) {
            act.set(*param, *v);
        }
        let flow = self.nodes(&ir.body, &mut act)?;
        for slot in &act.slots {
            self.machine.memory.remove(*slot);
        }
        Ok(if let Flow::Return(v) = flow { v } else { 0 })
    }

    fn sub(&mut self, n: u32, args: &[u64]) -> Result<u64, Fault> {
        let program: &'r Program = self.program;
        match program.subs.get(n as usize) {
            Some(ir) => self.function(ir, args),
            None => Err(Fault::Missing(format!("no subprogram {n}"))),
        }
    }

    fn nodes(&mut self, nodes: &'r [Node], act: &mut Activation<'r>) -> Result<Flow, Fault> {
        for node in nodes {
            self.machine.steps += 1;
            if self.machine.steps > MAX_STEPS {
                return Err(Fault::Steps(MAX_STEPS));
            }
            match node {
                Node::Line(_) => {}
                Node::Scope(scope) => {
                    for (n, slot) in act.ir.slots.iter().enumerate() {
                        if slot.scope == *scope {
                            self.machine.memory.undefine(act.slots[n]);
                        }
                    }
                }
                Node::Op(op) => self.op(op, act)?,
                Node::Break => return Ok(Flow::Break),
                Node::Continue => return Ok(Flow::Continue),
                Node::Leave(label) => return Ok(Flow::Leave(*label)),
                Node::Block { label, body } => match self.nodes(body, act)? {
                    Flow::On => {}
                    Flow::Leave(left) if left == *label => {}
                    flow => return Ok(flow),
                },
                Node::Ret(v) => return Ok(Flow::Return(act.operand(*v)?)),
                Node::Loop { max, index, body, .. } => {
                    for i in 0..*max {
                        act.set(*index, i.into());
                        match self.nodes(body, act)? {
                            Flow::On | Flow::Continue => {}
                            Flow::Break => break,
                            flow @ (Flow::Leave(_) | Flow::Return(_)) => return Ok(flow),
                        }
                    }
                }
                Node::If { cmp, width, a, b, then, els, .. } => {
                    let yes = compare(*cmp, *width, act.get(*a)?, act.operand(*b)?);
                    match self.nodes(if yes { then } else { els }, act)? {
                        Flow::On => {}
                        flow => return Ok(flow),
                    }
                }
            }
        }
        Ok(Flow::On)
    }

    fn op(&mut self, op: &Op, act: &mut Activation<'r>) -> Result<(), Fault> {
        match *op {
            Op::Mov { dst, src } => act.set(dst, act.operand(src)?),
            Op::Alu { op, width, dst, a, b } => {
                act.set(dst, arithmetic(op, width, act.operand(a)?, act.operand(b)?));
            }
            Op::Neg { width, dst, a } => {
                let v = !act.get(a)?;
                act.set(dst, cut(width, v.wrapping_add(1)));
            }
            Op::Ext { signed, size, dst, a } => act.set(dst, widen(act.get(a)?, size, signed)),
            Op::Bytes { order, size, dst, a } => {
                let v = act.get(a)?;
                let n = size.bytes() as usize;
                let reversed = order == Order::Swap || cfg!(target_endian = "little");
                let mut new = 0;
                for i in 0..n {
                    let byte = v >> (8 * i) & 0xff;
                    new |= byte << (8 * if reversed { n - 1 - i } else { i });
                }
                act.set(dst, new);
            }
            Op::Load { signed, size, dst, base, off } => {
                let v = self.machine.memory.load(size, act.address(base, off)?)?;
                act.set(dst, widen(v, size, signed));
            }
            Op::Store { size, base, off, src } => {
                self.machine.memory.store(size, act.address(base, off)?, act.operand(src)?)?;
            }
            Op::AtomicAdd { size, base, off, src } => {
                let addr = act.address(base, off)?;
                let old = self.machine.memory.load(size, addr)?;
                self.machine.memory.store(size, addr, old.wrapping_add(act.operand(src)?))?;
            }
            Op::FetchAdd { size, dst, base, off, src } => {
                let addr = act.address(base, off)?;
                let old = self.machine.memory.load(size, addr)?;
                self.machine.memory.store(size, addr, old.wrapping_add(act.operand(src)?))?;
                act.set(dst, old);
            }
            Op::Addr { dst, addr } => {
                let v = match addr {
                    Addr::Slot(s, off) => act.address(Base::Slot(s), off)?,
                    Addr::Map(map) => Memory::map_handle(map),
                    Addr::MapValue(map, off) => self.map_value(map, off)?,
                    Addr::Sub(sub) => SUB | u64::from(sub.0),
                    Addr::BtfVar(id) => BTF_VAR | u64::from(id),
                };
                act.set(dst, v);
            }
            Op::Call { dst, callee, ref args } => {
                let mut values = Vec::with_capacity(args.len());
                for arg in args {
                    values.push(self.arg(*arg, act)?);
                }
                let v = match callee {
                    Callee::Sub(sub) => self.sub(sub.0, &values)?,
                    Callee::Helper(helper) => self.helper(helper, &values)?,
                    Callee::Kfunc(id) => match &mut self.machine.kfuncs {
                        Some(f) => f(id, &values, &mut self.machine.memory)?,
                        None => return Err(Fault::NoFunction(format!("kfunc#{id}"))),
                    },
                };
                act.set(dst, v);
            }
        }
        Ok(())
    }

    fn map_value(&self, map: MapId, off: u32) -> Result<u64, Fault> {
        let addr = self.machine.memory.map_addr(map);
        addr.map(|a| a + u64::from(off)).ok_or_else(|| Fault::Missing(format!("no map {}", map.0)))
    }

    fn arg(&self, arg: Arg, act: &Activation<'_>) -> Result<u64, Fault> {
        Ok(match arg {
            Arg::Reg(r) => act.get(r)?,
            Arg::Imm(v) => v.cast_unsigned(),
            Arg::SlotAddr(s, off) => act.address(Base::Slot(s), off)?,
            Arg::Offset(r, off) => act.get(r)?.wrapping_add_signed(off.into()),
            Arg::Map(map) => Memory::map_handle(map),
            Arg::MapValue(map, off) => self.map_value(map, off)?,
            Arg::Sub(sub) => SUB | u64::from(sub.0),
            Arg::Ctx => return Err(Fault::Missing("the context is no argument here".into())),
        })
    }

    fn helper(&mut self, helper: Helper, args: &[u64]) -> Result<u64, Fault> {
        if let Some(f) = &mut self.machine.helpers
            && let Some(v) = f(helper, args, &mut self.machine.memory)?
        {
            return Ok(v);
        }
        let unknown = || Fault::NoFunction(helper.to_string());
        let memory = &mut self.machine.memory;
        Ok(match (helper, args) {
            (Helper::MAP_LOOKUP_ELEM, [map, key]) => {
                let index = memory.load(Size::W, *key)? as u32;
                memory.element(*map, index).map_or(0, |(addr, _)| addr)
            }
            (Helper::MAP_UPDATE_ELEM, [map, key, value, flags]) => {
                let index = memory.load(Size::W, *key)? as u32;
                match memory.element(*map, index) {
                    Some((addr, size)) if *flags == 0 => {
                        let bytes = memory.read(*value, size)?.to_vec();
                        memory.write(addr, &bytes)?;
                        0
                    }
                    Some(_) => return Err(unknown()),
                    None => errno(E2BIG),
                }
            }
            (Helper::PROBE_READ | Helper::PROBE_READ_KERNEL | Helper::PROBE_READ_USER, [to, size, from]) => {
                let size = *size as u32 as usize;
                match memory.read(*from, size).map(<[u8]>::to_vec) {
                    Ok(bytes) => {
                        memory.write(*to, &bytes)?;
                        0
                    }
                    // The kernel leaves no old bytes behind.
                    Err(_) => {
                        memory.write(*to, &vec![0; size])?;
                        errno(EFAULT)
                    }
                }
            }
            (
                Helper::PROBE_READ_STR | Helper::PROBE_READ_KERNEL_STR | Helper::PROBE_READ_USER_STR,
                [to, size, from],
            ) => {
                let size = *size as u32 as usize;
                let mut text = Vec::new();
                while text.last() != Some(&0) && text.len() < size {
                    match memory.load(Size::B, from.wrapping_add(text.len() as u64)) {
                        Ok(byte) => text.push(byte as u8),
                        Err(_) => {
                            memory.write(*to, &vec![0; size])?;
                            return Ok(errno(EFAULT));
                        }
                    }
                }
                // What does not fit is cut, and still ends in a zero.
                if let Some(last) = text.last_mut() {
                    *last = 0;
                }
                memory.write(*to, &text)?;
                text.len() as u64
            }
            (Helper::LOOP, [count, callback, ctx, 0]) => {
                if callback & !0xffff_ffff != SUB {
                    return Err(unknown());
                }
                let mut done = 0;
                while done < *count as u32 {
                    let stop = self.sub(*callback as u32, &[done.into(), *ctx])?;
                    done += 1;
                    if stop != 0 {
                        break;
                    }
                }
                done.into()
            }
            (Helper::RINGBUF_RESERVE, [map, size, _]) => {
                let map = Memory::map_of_handle(*map).ok_or_else(unknown)?;
                let size = *size as usize;
                let addr = memory.add_undefined(size);
                self.machine.reserved.push((addr, map, size));
                addr
            }
            (Helper::RINGBUF_SUBMIT | Helper::RINGBUF_DISCARD, [record, _]) => {
                let at = self.machine.reserved.iter().position(|r| r.0 == *record).ok_or_else(unknown)?;
                let (addr, map, size) = self.machine.reserved.remove(at);
                if helper == Helper::RINGBUF_SUBMIT {
                    let bytes = self.machine.memory.read(addr, size)?.to_vec();
                    self.machine.records.push((map, bytes));
                }
                self.machine.memory.remove(addr);
                0
            }
            (Helper::RINGBUF_OUTPUT, [map, data, size, _]) => {
                let map = Memory::map_of_handle(*map).ok_or_else(unknown)?;
                let bytes = memory.read(*data, *size as usize)?.to_vec();
                self.machine.records.push((map, bytes));
                0
            }
            (Helper::MAP_DELETE_ELEM, [_, _]) => errno(ENOENT),
            _ => return Err(unknown()),
        })
    }
}

fn errno(n: i64) -> u64 {
    (-n).cast_unsigned()
}

fn cut(width: Width, v: u64) -> u64 {
    match width {
        Width::W32 => v & 0xffff_ffff,
        Width::W64 => v,
    }
}

/// The low bits of `v` as a signed or unsigned number.
fn widen(v: u64, size: Size, signed: bool) -> u64 {
    match (size, signed) {
        (Size::B, false) => u64::from(v as u8),
        (Size::H, false) => u64::from(v as u16),
        (Size::W, false) => u64::from(v as u32),
        (Size::B, true) => i64::from(v as i8).cast_unsigned(),
        (Size::H, true) => i64::from(v as i16).cast_unsigned(),
        (Size::W, true) => i64::from(v as i32).cast_unsigned(),
        (Size::DW, _) => v,
    }
}

fn arithmetic(op: Alu, width: Width, a: u64, b: u64) -> u64 {
    let (a, b) = (cut(width, a), cut(width, b));
    let bits = match width {
        Width::W32 => 32,
        Width::W64 => 64,
    };
    let count = b % bits;
    let v = match op {
        Alu::Add => a.wrapping_add(b),
        Alu::Sub => a.wrapping_sub(b),
        Alu::Mul => a.wrapping_mul(b),
        Alu::Div if b == 0 => 0,
        Alu::Div => a / b,
        Alu::Mod if b == 0 => a,
        Alu::Mod => a % b,
        Alu::Or => a | b,
        Alu::And => a & b,
        Alu::Xor => a ^ b,
        Alu::Lsh => a << count,
        Alu::Rsh => a >> count,
        Alu::Arsh => {
            let negative = a >> (bits - 1) != 0;
            let entering = if negative { !(u64::MAX >> count) } else { 0 };
            match width {
                Width::W64 => a >> count | entering,
                Width::W32 => a >> count | entering >> 32,
            }
        }
    };
    cut(width, v)
}

fn compare(cmp: Cmp, width: Width, a: u64, b: u64) -> bool {
    let (a, b) = (cut(width, a), cut(width, b));
    let signed = |v: u64| match width {
        Width::W32 => i128::from(v as u32 as i32),
        Width::W64 => i128::from(v as i64),
    };
    match cmp {
        Cmp::Eq => a == b,
        Cmp::Ne => a != b,
        Cmp::Gt => a > b,
        Cmp::Ge => a >= b,
        Cmp::Lt => a < b,
        Cmp::Le => a <= b,
        Cmp::SGt => signed(a) > signed(b),
        Cmp::SGe => signed(a) >= signed(b),
        Cmp::SLt => signed(a) < signed(b),
        Cmp::SLe => signed(a) <= signed(b),
        Cmp::Set => a & b != 0,
    }
}
