//! The words of a program before it has registers: values, operations and structured control.
//!
//! [`crate::Func`] writes them, [`crate::Machine`] interprets them as they stand, and the back end turns them
//! into instructions. Nothing here knows an opcode number or a physical register.

use crate::helpers::Helper;

/// A virtual register: one 64-bit value of one function. There is no limit on their number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Reg {
    pub(crate) func: u32,
    pub(crate) id: u32,
}

/// A value an operation reads: a register or a constant.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// The value of a register.
    Reg(Reg),
    /// A constant, sign-extended to 64 bits. 32-bit operations use its low half.
    Imm(i64),
}

impl From<Reg> for Operand {
    fn from(r: Reg) -> Self {
        Operand::Reg(r)
    }
}

impl From<i32> for Operand {
    fn from(v: i32) -> Self {
        Operand::Imm(v.into())
    }
}

impl From<u32> for Operand {
    fn from(v: u32) -> Self {
        Operand::Imm(v.into())
    }
}

impl From<i64> for Operand {
    fn from(v: i64) -> Self {
        Operand::Imm(v)
    }
}

impl From<u64> for Operand {
    /// The same 64 bits.
    fn from(v: u64) -> Self {
        Operand::Imm(v.cast_signed())
    }
}

/// The size of a memory access (`BPF_B`, `BPF_H`, `BPF_W`, `BPF_DW`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Size {
    /// One byte.
    B,
    /// Two bytes.
    H,
    /// Four bytes.
    W,
    /// Eight bytes.
    DW,
}

impl Size {
    /// Bytes accessed.
    pub const fn bytes(self) -> u32 {
        match self {
            Size::B => 1,
            Size::H => 2,
            Size::W => 4,
            Size::DW => 8,
        }
    }

    /// Bits accessed.
    pub const fn bits(self) -> u32 {
        self.bytes() * 8
    }

    /// The size of that many bytes, if there is one.
    pub const fn of_bytes(bytes: u32) -> Option<Size> {
        match bytes {
            1 => Some(Size::B),
            2 => Some(Size::H),
            4 => Some(Size::W),
            8 => Some(Size::DW),
            _ => None,
        }
    }
}

/// Whether an operation is done on 32 bits (the upper half of the result is zero) or on 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Width {
    /// `BPF_ALU`, `BPF_JMP32`.
    W32,
    /// `BPF_ALU64`, `BPF_JMP`.
    W64,
}

/// A comparison, as the conditional jumps make it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cmp {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Unsigned greater.
    Gt,
    /// Unsigned greater or equal.
    Ge,
    /// Unsigned less.
    Lt,
    /// Unsigned less or equal.
    Le,
    /// Signed greater.
    SGt,
    /// Signed greater or equal.
    SGe,
    /// Signed less.
    SLt,
    /// Signed less or equal.
    SLe,
    /// `a & b` is not zero.
    Set,
}

impl Cmp {
    /// The comparison that holds exactly when this one does not. `Set` has none.
    pub(crate) const fn inverse(self) -> Option<Cmp> {
        Some(match self {
            Cmp::Eq => Cmp::Ne,
            Cmp::Ne => Cmp::Eq,
            Cmp::Gt => Cmp::Le,
            Cmp::Le => Cmp::Gt,
            Cmp::Ge => Cmp::Lt,
            Cmp::Lt => Cmp::Ge,
            Cmp::SGt => Cmp::SLe,
            Cmp::SLe => Cmp::SGt,
            Cmp::SGe => Cmp::SLt,
            Cmp::SLt => Cmp::SGe,
            Cmp::Set => return None,
        })
    }

    /// The comparison that holds for `b, a` exactly when this one holds for `a, b`.
    pub(crate) const fn mirror(self) -> Cmp {
        match self {
            Cmp::Gt => Cmp::Lt,
            Cmp::Lt => Cmp::Gt,
            Cmp::Ge => Cmp::Le,
            Cmp::Le => Cmp::Ge,
            Cmp::SGt => Cmp::SLt,
            Cmp::SLt => Cmp::SGt,
            Cmp::SGe => Cmp::SLe,
            Cmp::SLe => Cmp::SGe,
            same => same,
        }
    }
}

/// A two-operand arithmetic operation. Semantics are BPF's: unsigned division by zero gives 0, modulo zero
/// leaves the dividend, and shift counts are taken modulo the width.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Alu {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// Unsigned `a / b`; 0 if `b` is 0.
    Div,
    /// Unsigned `a % b`; `a` if `b` is 0.
    Mod,
    /// `a | b`
    Or,
    /// `a & b`
    And,
    /// `a ^ b`
    Xor,
    /// `a << b`
    Lsh,
    /// `a >> b`, zeros enter.
    Rsh,
    /// `a >> b`, copies of the sign enter.
    Arsh,
}

impl Alu {
    pub(crate) const fn commutes(self) -> bool {
        matches!(self, Alu::Add | Alu::Mul | Alu::Or | Alu::And | Alu::Xor)
    }

    pub(crate) const fn is_shift(self) -> bool {
        matches!(self, Alu::Lsh | Alu::Rsh | Alu::Arsh)
    }
}

/// A place on the stack, of a size given by its maker. It lives as long as the block it was made in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot {
    pub(crate) func: u32,
    pub(crate) id: u32,
}

/// A block of [`crate::Func::labelled`], for [`crate::Func::leave`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Label {
    pub(crate) func: u32,
    pub(crate) id: u32,
}

/// A map by its number in the program; the descriptor is filled in by [`crate::Code::relocate`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MapId(pub u32);

/// A subprogram of the same [`crate::Program`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubId(pub(crate) u32);

/// An argument of a call. Constants and addresses are made directly in the argument's register.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Arg {
    /// The value of a register.
    Reg(Reg),
    /// A constant.
    Imm(i64),
    /// The address of a byte in a stack slot.
    SlotAddr(Slot, i32),
    /// A register plus a constant.
    Offset(Reg, i32),
    /// A map (`BPF_PSEUDO_MAP_FD`).
    Map(MapId),
    /// The address of a byte in the value of a one-element array map (`BPF_PSEUDO_MAP_VALUE`).
    MapValue(MapId, u32),
    /// The address of a subprogram, for callbacks such as `bpf_loop`'s (`BPF_PSEUDO_FUNC`).
    Sub(SubId),
    /// The context the program was started with.
    Ctx,
}

impl From<Reg> for Arg {
    fn from(r: Reg) -> Self {
        Arg::Reg(r)
    }
}

impl From<i32> for Arg {
    fn from(v: i32) -> Self {
        Arg::Imm(v.into())
    }
}

impl From<u32> for Arg {
    fn from(v: u32) -> Self {
        Arg::Imm(v.into())
    }
}

impl From<i64> for Arg {
    fn from(v: i64) -> Self {
        Arg::Imm(v)
    }
}

impl From<Slot> for Arg {
    /// The address of the slot's first byte.
    fn from(s: Slot) -> Self {
        Arg::SlotAddr(s, 0)
    }
}

impl From<MapId> for Arg {
    fn from(m: MapId) -> Self {
        Arg::Map(m)
    }
}

impl From<Operand> for Arg {
    fn from(o: Operand) -> Self {
        match o {
            Operand::Reg(r) => Arg::Reg(r),
            Operand::Imm(v) => Arg::Imm(v),
        }
    }
}

/// What a load, store or atomic operation is relative to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Base {
    Reg(Reg),
    Slot(Slot),
}

/// An address (or map handle) known when the program is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Addr {
    Slot(Slot, i32),
    Map(MapId),
    MapValue(MapId, u32),
    Sub(SubId),
    /// A variable of the kernel by its id in the kernel's BTF.
    BtfVar(u32),
}

/// Who is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Callee {
    Helper(Helper),
    Kfunc(u32),
    Sub(SubId),
}

/// How bytes are reordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// From this machine's order to big endian (or back).
    Big,
    /// Always reversed.
    Swap,
}

/// A straight-line operation.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Op {
    Mov {
        dst: Reg,
        src: Operand,
    },
    Alu {
        op: Alu,
        width: Width,
        dst: Reg,
        a: Operand,
        b: Operand,
    },
    Neg {
        width: Width,
        dst: Reg,
        a: Reg,
    },
    /// The low `size` bits of `a`, extended to 64.
    Ext {
        signed: bool,
        size: Size,
        dst: Reg,
        a: Reg,
    },
    /// The low `size` bits of `a`, reordered, zero-extended to 64.
    Bytes {
        order: Order,
        size: Size,
        dst: Reg,
        a: Reg,
    },
    Load {
        signed: bool,
        size: Size,
        dst: Reg,
        base: Base,
        off: i32,
    },
    Store {
        size: Size,
        base: Base,
        off: i32,
        src: Operand,
    },
    AtomicAdd {
        size: Size,
        base: Base,
        off: i32,
        src: Operand,
    },
    /// The same, and gives the value that was there.
    FetchAdd {
        size: Size,
        dst: Reg,
        base: Base,
        off: i32,
        src: Operand,
    },
    Addr {
        dst: Reg,
        addr: Addr,
    },
    Call {
        dst: Reg,
        callee: Callee,
        args: Vec<Arg>,
    },
}

impl Op {
    /// The register written.
    pub(crate) fn def(&self) -> Option<Reg> {
        match *self {
            Op::Mov { dst, .. }
            | Op::Alu { dst, .. }
            | Op::Neg { dst, .. }
            | Op::Ext { dst, .. }
            | Op::Bytes { dst, .. }
            | Op::Load { dst, .. }
            | Op::FetchAdd { dst, .. }
            | Op::Addr { dst, .. }
            | Op::Call { dst, .. } => Some(dst),
            Op::Store { .. } | Op::AtomicAdd { .. } => None,
        }
    }

    /// The register written, to be replaced.
    pub(crate) fn def_mut(&mut self) -> Option<&mut Reg> {
        match self {
            Op::Mov { dst, .. }
            | Op::Alu { dst, .. }
            | Op::Neg { dst, .. }
            | Op::Ext { dst, .. }
            | Op::Bytes { dst, .. }
            | Op::Load { dst, .. }
            | Op::FetchAdd { dst, .. }
            | Op::Addr { dst, .. }
            | Op::Call { dst, .. } => Some(dst),
            Op::Store { .. } | Op::AtomicAdd { .. } => None,
        }
    }

    /// Calls `f` with every register read.
    pub(crate) fn uses(&self, mut f: impl FnMut(Reg)) {
        let mut operand = |o: &Operand| {
            if let Operand::Reg(r) = o {
                f(*r);
            }
        };
        match self {
            Op::Mov { src, .. } => operand(src),
            Op::Alu { a, b, .. } => {
                operand(a);
                operand(b);
            }
            Op::Neg { a, .. } | Op::Ext { a, .. } | Op::Bytes { a, .. } => f(*a),
            Op::Load { base, .. } => {
                if let Base::Reg(r) = base {
                    f(*r);
                }
            }
            Op::Store { base, src, .. }
            | Op::AtomicAdd { base, src, .. }
            | Op::FetchAdd { base, src, .. } => {
                operand(src);
                if let Base::Reg(r) = base {
                    f(*r);
                }
            }
            Op::Addr { .. } => {}
            Op::Call { args, .. } => {
                for arg in args {
                    if let Arg::Reg(r) | Arg::Offset(r, _) = arg {
                        f(*r);
                    }
                }
            }
        }
    }

    /// Replaces every register read by what `f` gives for it.
    pub(crate) fn rename_uses(&mut self, mut f: impl FnMut(Reg) -> Reg) {
        let mut operand = |o: &mut Operand| {
            if let Operand::Reg(r) = o {
                *r = f(*r);
            }
        };
        match self {
            Op::Mov { src, .. } => operand(src),
            Op::Alu { a, b, .. } => {
                operand(a);
                operand(b);
            }
            Op::Neg { a, .. } | Op::Ext { a, .. } | Op::Bytes { a, .. } => *a = f(*a),
            Op::Load { base, .. } => {
                if let Base::Reg(r) = base {
                    *r = f(*r);
                }
            }
            Op::Store { base, src, .. }
            | Op::AtomicAdd { base, src, .. }
            | Op::FetchAdd { base, src, .. } => {
                operand(src);
                if let Base::Reg(r) = base {
                    *r = f(*r);
                }
            }
            Op::Addr { .. } => {}
            Op::Call { args, .. } => {
                for arg in args {
                    if let Arg::Reg(r) | Arg::Offset(r, _) = arg {
                        *r = f(*r);
                    }
                }
            }
        }
    }

    /// Whether the operation may be dropped when its result is not read.
    pub(crate) fn is_pure(&self) -> bool {
        !matches!(self, Op::Store { .. } | Op::AtomicAdd { .. } | Op::FetchAdd { .. } | Op::Call { .. })
    }
}

/// Which way a branch is expected to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Likely {
    Unknown,
    No,
}

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Node {
    Op(Op),
    If {
        cmp: Cmp,
        width: Width,
        a: Reg,
        b: Operand,
        likely: Likely,
        then: Vec<Node>,
        els: Vec<Node>,
    },
    Loop {
        max: u32,
        index: Reg,
        body: Vec<Node>,
    },
    Break,
    Continue,
    /// A block that [`Node::Leave`] leaves.
    Block {
        label: u32,
        body: Vec<Node>,
    },
    /// Goes to the end of the block of this label.
    Leave(u32),
    Ret(Operand),
    /// What follows comes from this entry of the program's source positions.
    Line(u32),
    /// A block that owns stack slots begins: their contents are undefined from here.
    Scope(u32),
}

/// A stack slot as declared.
#[derive(Clone, Debug)]
pub(crate) struct SlotInfo {
    pub size: u32,
    pub align: u32,
    /// The block it belongs to.
    pub scope: u32,
}

/// A function as written.
#[derive(Clone, Debug)]
pub(crate) struct FuncIr {
    pub name: String,
    /// Its number: 0 is the program, subprogram `n` is `n + 1`.
    pub id: u32,
    pub params: Vec<Reg>,
    pub nregs: u32,
    pub slots: Vec<SlotInfo>,
    /// Parent of each scope; scope 0 is the function's body and its own parent.
    pub scopes: Vec<u32>,
    pub body: Vec<Node>,
}

/// A source position.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Source {
    pub text: String,
    pub line: u32,
    pub col: u32,
}
