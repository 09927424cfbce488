//! How programs are written: [`Program`] and [`Func`].

use crate::error::Error;
use crate::helpers::Helper;
use crate::ir::{
    Addr, Alu, Arg, Base, Callee, Cmp, FuncIr, Label, Likely, MapId, Node, Op, Operand, Order, Reg, Size,
    Slot, SlotInfo, Source, SubId, Width,
};
use std::collections::{HashMap, HashSet};

/// A program under construction: a main function and the subprograms it calls.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) name: String,
    pub(crate) file: String,
    pub(crate) main: Option<FuncIr>,
    pub(crate) subs: Vec<FuncIr>,
    pub(crate) sources: Sources,
    pub(crate) misuse: Option<Error>,
}

/// The source positions of a program, each once.
#[derive(Clone, Default, Debug)]
pub(crate) struct Sources {
    pub list: Vec<Source>,
    index: HashMap<Source, u32>,
}

impl Sources {
    fn intern(&mut self, source: Source) -> u32 {
        if let Some(n) = self.index.get(&source) {
            return *n;
        }
        let n = self.list.len() as u32;
        self.list.push(source.clone());
        self.index.insert(source, n);
        n
    }
}

impl Program {
    /// An empty program. `name` names its main function in BTF, `file` the file of all source positions.
    pub fn new(name: &str, file: &str) -> Program {
        Program {
            name: name.into(),
            file: file.into(),
            main: None,
            subs: Vec::new(),
            sources: Sources::default(),
            misuse: None,
        }
    }

    /// Writes the main function, whose only parameter is the context ([`Func::ctx`]). Falling off its end returns 0.
    pub fn main(&mut self, body: impl FnOnce(&mut Func<'_>)) {
        let ir = self.function(self.name.clone(), 0, 1, body);
        if self.main.replace(ir).is_some() {
            self.misuse("main", "main was written twice".into());
        }
    }

    /// Writes a subprogram of `nparams` 64-bit parameters, at most five, and gives its name for [`Func::call_sub`].
    /// Falling off its end returns 0.
    pub fn sub(&mut self, name: &str, nparams: usize, body: impl FnOnce(&mut Func<'_>)) -> SubId {
        let id = self.subs.len() as u32;
        if nparams > MAX_ARGS {
            self.misuse(name, format!("{nparams} parameters, {MAX_ARGS} allowed"));
        }
        let ir = self.function(name.into(), id + 1, nparams.min(MAX_ARGS), body);
        self.subs.push(ir);
        SubId(id)
    }

    fn misuse(&mut self, func: &str, what: String) {
        self.misuse.get_or_insert(Error::Misuse { func: func.into(), at: String::new(), what });
    }

    fn function(
        &mut self,
        name: String,
        id: u32,
        nparams: usize,
        body: impl FnOnce(&mut Func<'_>),
    ) -> FuncIr {
        let params: Vec<Reg> = (0..nparams as u32).map(|n| Reg { func: id, id: n }).collect();
        let sub_params = self.subs.iter().map(|s| s.params.len()).collect();
        let mut func = Func {
            ir: FuncIr {
                name,
                id,
                nregs: params.len() as u32,
                params,
                slots: Vec::new(),
                scopes: vec![0],
                body: Vec::new(),
            },
            out: vec![Node::Scope(0)],
            open: vec![0],
            loops: 0,
            labels: Vec::new(),
            nlabels: 0,
            indexes: HashSet::new(),
            sub_params,
            sources: &mut self.sources,
            misuse: &mut self.misuse,
            at: None,
        };
        body(&mut func);
        let mut ir = func.ir;
        ir.body = func.out;
        ir
    }

    /// Every function, main first.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &FuncIr> {
        self.main.iter().chain(&self.subs)
    }
}

/// Parameters a call can carry.
pub(crate) const MAX_ARGS: usize = 5;

/// Writes the statements of one function, in order. Control structures take closures that write their blocks.
///
/// Operations that give a [`Reg`] make a new one each time. A register assigned in one block may be read in
/// another as long as every path to the reading assigns it.
#[derive(Debug)]
pub struct Func<'a> {
    ir: FuncIr,
    /// The block being written.
    out: Vec<Node>,
    /// The scopes around it, innermost last.
    open: Vec<u32>,
    /// Loops around it.
    loops: u32,
    /// Labelled blocks around it, innermost last, each with the loops around it.
    labels: Vec<(u32, u32)>,
    /// Labels given.
    nlabels: u32,
    /// Registers that count loops.
    indexes: HashSet<u32>,
    sub_params: Vec<usize>,
    sources: &'a mut Sources,
    misuse: &'a mut Option<Error>,
    at: Option<u32>,
}

impl Func<'_> {
    fn wrong(&mut self, what: impl Into<String>) {
        if self.misuse.is_none() {
            let at = self.at.and_then(|n| self.sources.list.get(n as usize));
            let at = at.map_or(String::new(), |s| format!(" at {}:{} ({})", s.line, s.col, s.text));
            *self.misuse = Some(Error::Misuse { func: self.ir.name.clone(), at, what: what.into() });
        }
    }

    fn fresh(&mut self) -> Reg {
        let id = self.ir.nregs;
        self.ir.nregs += 1;
        Reg { func: self.ir.id, id }
    }

    /// A register of this function, whatever was given.
    fn own(&mut self, r: Reg) -> Reg {
        if r.func == self.ir.id && r.id < self.ir.nregs {
            return r;
        }
        self.wrong("a register of another function is used");
        self.fresh()
    }

    fn operand(&mut self, o: impl Into<Operand>) -> Operand {
        match o.into() {
            Operand::Reg(r) => Operand::Reg(self.own(r)),
            imm => imm,
        }
    }

    fn target(&mut self, r: Reg) -> Reg {
        let r = self.own(r);
        if self.indexes.contains(&r.id) {
            self.wrong("the index of a loop is assigned");
        }
        r
    }

    fn own_slot(&mut self, s: Slot) -> Slot {
        let ok = s.func == self.ir.id
            && self.ir.slots.get(s.id as usize).is_some_and(|info| self.open.contains(&info.scope));
        if ok {
            return s;
        }
        self.wrong("a stack slot is used outside the block it was made in");
        self.slot(8, 8)
    }

    /// Checks an access to a slot and aligns the slot for it.
    fn slot_access(&mut self, size: Size, s: Slot, off: i32) -> Slot {
        let s = self.own_slot(s);
        let bytes = size.bytes();
        let info = &mut self.ir.slots[s.id as usize];
        let wrong = match u32::try_from(off) {
            Ok(o) if o.checked_add(bytes).is_some_and(|end| end <= info.size) => {
                info.align = info.align.max(bytes);
                !o.is_multiple_of(bytes)
            }
            _ => true,
        };
        if wrong {
            let of = info.size;
            self.wrong(format!(
                "an access of {bytes} bytes at offset {off} of a stack slot of {of} is outside or not aligned"
            ));
        }
        s
    }

    fn slot_byte(&mut self, s: Slot, off: i32) -> Slot {
        let s = self.own_slot(s);
        let size = self.ir.slots[s.id as usize].size;
        if u32::try_from(off).map_or(true, |o| o > size) {
            self.wrong(format!("the address of byte {off} of a stack slot of {size}"));
        }
        s
    }

    fn op(&mut self, op: Op) {
        self.out.push(Node::Op(op));
    }

    /// The context argument of the main function.
    pub fn ctx(&mut self) -> Reg {
        if self.ir.id != 0 {
            self.wrong("a subprogram has no context of its own: pass it as an argument");
        }
        self.param(0)
    }

    /// Parameter `n`, counted from 0.
    pub fn param(&mut self, n: usize) -> Reg {
        match self.ir.params.get(n) {
            Some(r) => *r,
            None => {
                self.wrong(format!("there is no parameter {n}"));
                self.fresh()
            }
        }
    }

    /// A constant in a register. Constants given as operands need no register of their own: prefer that.
    pub fn imm(&mut self, v: i64) -> Reg {
        let dst = self.fresh();
        self.op(Op::Mov { dst, src: Operand::Imm(v) });
        dst
    }

    /// A variable, to be assigned before it is read.
    pub fn var(&mut self) -> Reg {
        self.fresh()
    }

    /// `dst = src`
    pub fn assign(&mut self, dst: Reg, src: impl Into<Operand>) {
        let (dst, src) = (self.target(dst), self.operand(src));
        self.op(Op::Mov { dst, src });
    }

    /// `a op b` in a new register.
    pub fn alu(&mut self, op: Alu, width: Width, a: impl Into<Operand>, b: impl Into<Operand>) -> Reg {
        let (a, b, dst) = (self.operand(a), self.operand(b), self.fresh());
        self.op(Op::Alu { op, width, dst, a, b });
        dst
    }

    /// `dst op= b`
    pub fn alu_to(&mut self, dst: Reg, op: Alu, width: Width, b: impl Into<Operand>) {
        let (dst, b) = (self.target(dst), self.operand(b));
        self.op(Op::Alu { op, width, dst, a: Operand::Reg(dst), b });
    }

    /// `-a`
    pub fn neg(&mut self, width: Width, a: Reg) -> Reg {
        let (a, dst) = (self.own(a), self.fresh());
        self.op(Op::Neg { width, dst, a });
        dst
    }

    /// `~a`
    pub fn not(&mut self, width: Width, a: Reg) -> Reg {
        self.alu(Alu::Xor, width, a, -1)
    }

    /// The low `from` bits of `a` as a signed number, in 64 bits.
    pub fn sext(&mut self, a: Reg, from: Size) -> Reg {
        let (a, dst) = (self.own(a), self.fresh());
        self.op(Op::Ext { signed: true, size: from, dst, a });
        dst
    }

    /// The low `from` bits of `a`, the rest zero.
    pub fn zext(&mut self, a: Reg, from: Size) -> Reg {
        let (a, dst) = (self.own(a), self.fresh());
        self.op(Op::Ext { signed: false, size: from, dst, a });
        dst
    }

    /// The low `size` bits of `a` from this machine's byte order to big endian, the rest zero. A single byte stays.
    pub fn to_be(&mut self, a: Reg, size: Size) -> Reg {
        let (a, dst) = (self.own(a), self.fresh());
        self.op(Op::Bytes { order: Order::Big, size, dst, a });
        dst
    }

    /// The low `size` bits of `a` with their bytes reversed, the rest zero.
    pub fn swap(&mut self, a: Reg, size: Size) -> Reg {
        let (a, dst) = (self.own(a), self.fresh());
        self.op(Op::Bytes { order: Order::Swap, size, dst, a });
        dst
    }

    /// The memory at `base + off`, zero-extended.
    pub fn load(&mut self, size: Size, base: Reg, off: i32) -> Reg {
        let (base, dst) = (Base::Reg(self.own(base)), self.fresh());
        self.op(Op::Load { signed: false, size, dst, base, off });
        dst
    }

    /// The memory at `base + off`, sign-extended.
    pub fn load_signed(&mut self, size: Size, base: Reg, off: i32) -> Reg {
        let (base, dst) = (Base::Reg(self.own(base)), self.fresh());
        self.op(Op::Load { signed: true, size, dst, base, off });
        dst
    }

    /// Stores the low `size` bits of `v` at `base + off`.
    pub fn store(&mut self, size: Size, base: Reg, off: i32, v: impl Into<Operand>) {
        let (base, src) = (Base::Reg(self.own(base)), self.operand(v));
        self.op(Op::Store { size, base, off, src });
    }

    /// A stack slot of `size` bytes, aligned to `align` (1, 2, 4 or 8). It belongs to the block being written: its
    /// contents are undefined when the block begins, and it cannot be used outside.
    pub fn slot(&mut self, size: u32, align: u32) -> Slot {
        let mut align = align;
        if !matches!(align, 1 | 2 | 4 | 8) {
            self.wrong(format!("a stack slot aligned to {align}"));
            align = 8;
        }
        if size == 0 {
            self.wrong("a stack slot of no bytes");
        }
        let scope = self.open.last().copied().unwrap_or(0);
        let id = self.ir.slots.len() as u32;
        self.ir.slots.push(SlotInfo { size, align, scope });
        Slot { func: self.ir.id, id }
    }

    /// The bytes at `off` of a slot, zero-extended.
    pub fn load_slot(&mut self, size: Size, slot: Slot, off: i32) -> Reg {
        let (base, dst) = (Base::Slot(self.slot_access(size, slot, off)), self.fresh());
        self.op(Op::Load { signed: false, size, dst, base, off });
        dst
    }

    /// The bytes at `off` of a slot, sign-extended.
    pub fn load_slot_signed(&mut self, size: Size, slot: Slot, off: i32) -> Reg {
        let (base, dst) = (Base::Slot(self.slot_access(size, slot, off)), self.fresh());
        self.op(Op::Load { signed: true, size, dst, base, off });
        dst
    }

    /// Stores the low `size` bits of `v` at `off` of a slot.
    pub fn store_slot(&mut self, size: Size, slot: Slot, off: i32, v: impl Into<Operand>) {
        let (base, src) = (Base::Slot(self.slot_access(size, slot, off)), self.operand(v));
        self.op(Op::Store { size, base, off, src });
    }

    /// The address of byte `off` of a slot.
    pub fn slot_addr(&mut self, slot: Slot, off: i32) -> Reg {
        let (slot, dst) = (self.slot_byte(slot, off), self.fresh());
        self.op(Op::Addr { dst, addr: Addr::Slot(slot, off) });
        dst
    }

    /// A map, as helpers take it.
    pub fn map(&mut self, map: MapId) -> Reg {
        let dst = self.fresh();
        self.op(Op::Addr { dst, addr: Addr::Map(map) });
        dst
    }

    /// The address of byte `off` in the value of a one-element array map.
    pub fn map_value(&mut self, map: MapId, off: u32) -> Reg {
        let dst = self.fresh();
        self.op(Op::Addr { dst, addr: Addr::MapValue(map, off) });
        dst
    }

    /// The address of a variable of the kernel, by the id of its `BTF_KIND_VAR` in vmlinux's BTF
    /// (`BPF_PSEUDO_BTF_ID`, Linux 5.10 and later). That of a per-CPU variable is for [`Helper::THIS_CPU_PTR`].
    pub fn btf_var(&mut self, btf_id: u32) -> Reg {
        let dst = self.fresh();
        self.op(Op::Addr { dst, addr: Addr::BtfVar(btf_id) });
        dst
    }

    /// Calls a helper and gives its result.
    pub fn call(&mut self, helper: Helper, args: &[Arg]) -> Reg {
        self.call_any(Callee::Helper(helper), args)
    }

    /// Calls a kernel function by its id in the kernel's BTF (`BPF_PSEUDO_KFUNC_CALL`).
    pub fn call_kfunc(&mut self, btf_id: u32, args: &[Arg]) -> Reg {
        self.call_any(Callee::Kfunc(btf_id), args)
    }

    /// Calls a subprogram, which must have been written before.
    pub fn call_sub(&mut self, sub: SubId, args: &[Arg]) -> Reg {
        match self.sub_params.get(sub.0 as usize) {
            Some(n) if *n == args.len() => {}
            Some(n) => {
                let n = *n;
                self.wrong(format!("{} arguments to a subprogram of {n} parameters", args.len()));
            }
            None => self.wrong("a subprogram is called that was not written before"),
        }
        self.call_any(Callee::Sub(sub), args)
    }

    fn call_any(&mut self, callee: Callee, args: &[Arg]) -> Reg {
        if args.len() > MAX_ARGS {
            self.wrong(format!("{} arguments, {MAX_ARGS} allowed", args.len()));
        }
        let args = args
            .iter()
            .take(MAX_ARGS)
            .map(|arg| match *arg {
                Arg::Ctx => Arg::Reg(self.ctx()),
                Arg::Reg(r) => Arg::Reg(self.own(r)),
                Arg::Offset(r, 0) => Arg::Reg(self.own(r)),
                Arg::Offset(r, off) => Arg::Offset(self.own(r), off),
                Arg::SlotAddr(s, off) => Arg::SlotAddr(self.slot_byte(s, off), off),
                Arg::Sub(sub) => {
                    if sub.0 as usize >= self.sub_params.len() {
                        self.wrong("the address of a subprogram that was not written before");
                    }
                    Arg::Sub(sub)
                }
                Arg::Imm(_) | Arg::Map(_) | Arg::MapValue(..) => *arg,
            })
            .collect();
        let dst = self.fresh();
        self.op(Op::Call { dst, callee, args });
        dst
    }

    /// Adds `v` atomically to the 4 or 8 bytes at `base + off`, without giving the old value.
    pub fn atomic_add(&mut self, size: Size, base: Reg, off: i32, v: impl Into<Operand>) {
        if !matches!(size, Size::W | Size::DW) {
            self.wrong(format!("an atomic addition to {} bytes", size.bytes()));
        }
        let (base, src) = (Base::Reg(self.own(base)), self.operand(v));
        self.op(Op::AtomicAdd { size, base, off, src });
    }

    /// Adds `v` atomically to the 4 or 8 bytes at `base + off` and gives the old value: Linux 5.12 and later.
    pub fn fetch_add(&mut self, size: Size, base: Reg, off: i32, v: impl Into<Operand>) -> Reg {
        if !matches!(size, Size::W | Size::DW) {
            self.wrong(format!("an atomic addition to {} bytes", size.bytes()));
        }
        let (base, src) = (Base::Reg(self.own(base)), self.operand(v));
        let dst = self.fresh();
        self.op(Op::FetchAdd { size, dst, base, off, src });
        dst
    }

    fn nested(&mut self, write: impl FnOnce(&mut Self)) -> Vec<Node> {
        let scope = self.ir.scopes.len() as u32;
        let parent = self.open.last().copied().unwrap_or(0);
        self.ir.scopes.push(parent);
        self.open.push(scope);
        let at = self.at;
        let outer = std::mem::replace(&mut self.out, vec![Node::Scope(scope)]);
        write(self);
        self.open.pop();
        // What follows the block comes from where the block came from, not from its last statement.
        self.at = at;
        std::mem::replace(&mut self.out, outer)
    }

    /// Runs `then` if the comparison holds. A block that always leaves (by [`Func::ret`], [`Func::break_`] or
    /// [`Func::continue_`]) is placed out of the way.
    pub fn if_(
        &mut self,
        cmp: Cmp,
        width: Width,
        a: Reg,
        b: impl Into<Operand>,
        then: impl FnOnce(&mut Self),
    ) {
        self.branch(cmp, width, a, b.into(), Likely::Unknown, then, |_| {});
    }

    /// As [`Func::if_`], for a comparison that rarely holds: `then` is placed out of the way.
    pub fn if_unlikely(
        &mut self,
        cmp: Cmp,
        width: Width,
        a: Reg,
        b: impl Into<Operand>,
        then: impl FnOnce(&mut Self),
    ) {
        self.branch(cmp, width, a, b.into(), Likely::No, then, |_| {});
    }

    /// Runs `then` if the comparison holds and `els` if not.
    pub fn if_else(
        &mut self,
        cmp: Cmp,
        width: Width,
        a: Reg,
        b: impl Into<Operand>,
        then: impl FnOnce(&mut Self),
        els: impl FnOnce(&mut Self),
    ) {
        self.branch(cmp, width, a, b.into(), Likely::Unknown, then, els);
    }

    #[allow(clippy::too_many_arguments)]
    fn branch(
        &mut self,
        cmp: Cmp,
        width: Width,
        a: Reg,
        b: Operand,
        likely: Likely,
        then: impl FnOnce(&mut Self),
        els: impl FnOnce(&mut Self),
    ) {
        let (a, b) = (self.own(a), self.operand(b));
        let at = self.at;
        let then = self.nested(then);
        let els = self.nested(els);
        self.out.push(Node::If { cmp, width, a, b, likely, then, els });
        if let Some(at) = at {
            self.out.push(Node::Line(at));
        }
    }

    /// Runs `body` `max` times, with an index counting from 0, unless it leaves earlier. The verifier walks every
    /// iteration (Linux 5.3 and later): keep `max` times the length of the body small.
    pub fn loop_(&mut self, max: u32, body: impl FnOnce(&mut Self, Reg)) {
        let index = self.fresh();
        self.indexes.insert(index.id);
        self.loops += 1;
        let at = self.at;
        let body = self.nested(|f| body(f, index));
        self.loops -= 1;
        self.out.push(Node::Loop { max, index, body });
        if let Some(at) = at {
            self.out.push(Node::Line(at));
        }
    }

    /// Runs `body`, which [`Func::leave`] with its label leaves from however many blocks further in.
    pub fn labelled(&mut self, body: impl FnOnce(&mut Self, Label)) {
        let id = self.nlabels;
        self.nlabels += 1;
        self.labels.push((id, self.loops));
        let at = self.at;
        let label = Label { func: self.ir.id, id };
        let body = self.nested(|f| body(f, label));
        self.labels.pop();
        self.out.push(Node::Block { label: id, body });
        if let Some(at) = at {
            self.out.push(Node::Line(at));
        }
    }

    /// Goes to the end of a labelled block around this place; out of no loop.
    pub fn leave(&mut self, label: Label) {
        let around = self.labels.iter().rev().find(|(id, _)| *id == label.id);
        match around {
            Some((_, loops)) if label.func == self.ir.id && *loops == self.loops => {
                self.out.push(Node::Leave(label.id));
            }
            Some((_, loops)) if *loops != self.loops => {
                self.wrong("a labelled block is left from within a loop in it")
            }
            _ => self.wrong("a labelled block is left that is not around this place"),
        }
    }

    /// Leaves the innermost loop.
    pub fn break_(&mut self) {
        if self.loops == 0 {
            self.wrong("break outside of a loop");
            return;
        }
        self.out.push(Node::Break);
    }

    /// Goes on with the next iteration of the innermost loop.
    pub fn continue_(&mut self) {
        if self.loops == 0 {
            self.wrong("continue outside of a loop");
            return;
        }
        self.out.push(Node::Continue);
    }

    /// Returns `v` from the function.
    pub fn ret(&mut self, v: impl Into<Operand>) {
        let v = self.operand(v);
        self.out.push(Node::Ret(v));
    }

    /// Says where in the user's text what follows comes from: `text` is what the user wrote, `line` and `col` count
    /// from 1 (`struct bpf_line_info`, include/uapi/linux/bpf.h). It holds until the next call or the block's end.
    ///
    /// Give each text its own line number: the verifier's log shows a text only where the number changes.
    pub fn line(&mut self, text: &str, line: u32, col: u32) {
        if line >= 1 << 22 || col >= 1 << 10 {
            self.wrong(format!("source position {line}:{col} does not fit line_info"));
            return;
        }
        let n = self.sources.intern(Source { text: text.replace('\0', " "), line, col });
        self.at = Some(n);
        self.out.push(Node::Line(n));
    }
}
