//! Expressions with their types: what the evaluator computes and the compiler lowers.
//!
//! Everything implicit is explicit here: promotions, conversions, decay of arrays, scaling of pointer arithmetic.

pub use crate::ast::BinaryOp;
use crate::error::Span;
use crate::types::{IntTy, Tid, Ty};

/// A value: one number in a register.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// How it is computed.
    pub kind: Kind,
    /// Its type: an integer, an enum or a pointer.
    pub ty: Ty,
    /// The type as it was declared, if it is that of a variable or member.
    pub spelled: Option<Tid>,
    /// Where it was written.
    pub span: Span,
}

/// How a value is computed. Operands have the types that the operator needs.
#[derive(Clone, PartialEq, Debug)]
pub enum Kind {
    /// A constant, wrapped to its type.
    Const(u64),
    /// What the probe brings.
    Root(Root),
    /// What lies in memory, or in a structure passed by value.
    Load(Box<Place>),
    /// Where something lies. Fails where what it is relative to is NULL.
    Address(Box<Place>),
    /// Brought to [`Expr::ty`]: wrapped, or for `_Bool` compared with 0.
    Convert(Box<Expr>),
    /// `-a`
    Neg(Box<Expr>),
    /// `~a`
    BitNot(Box<Expr>),
    /// An operator from [`BinaryOp::Mul`] to [`BinaryOp::Shr`], or a bitwise one. Both sides have the type of the result; of shifts
    /// the right one has its own, and counts modulo the width of the left.
    ///
    /// Overflow wraps. Division by zero gives 0, the remainder of it the left side; the smallest number by -1 is itself, its
    /// remainder 0.
    Binary(BinaryOp, Box<Expr>, Box<Expr>),
    /// Pointer plus index times size; subtracted where `minus`. The index has 64 bits.
    PtrAdd {
        /// The pointer.
        pointer: Box<Expr>,
        /// The index.
        index: Box<Expr>,
        /// Bytes of an element.
        size: u64,
        /// Subtracted.
        minus: bool,
    },
    /// The elements between two pointers.
    PtrDiff {
        /// From which.
        a: Box<Expr>,
        /// Subtracted.
        b: Box<Expr>,
        /// Bytes of an element.
        size: u64,
    },
    /// The lower `size` bytes (2, 4 or 8) from network order or to it.
    Swap(u8, Box<Expr>),
    /// 1 if the test holds, else 0.
    Test(Box<Test>),
    /// One value or the other.
    Cond(Box<Test>, Box<Expr>, Box<Expr>),
}

/// What holds or does not. A test of something that cannot be read, or has NULL on the way, does not hold.
#[derive(Clone, PartialEq, Debug)]
pub enum Test {
    /// A comparison of two numbers of one type, [`BinaryOp::Lt`] to [`BinaryOp::Ne`].
    Compare(BinaryOp, Expr, Expr),
    /// A value that is not 0.
    Truth(Expr),
    /// Whether a value is one of several, of its type.
    In(Expr, Vec<Expr>),
    /// Whether a text is one of several.
    Text {
        /// The text.
        text: Text,
        /// What it is compared with.
        any_of: Vec<Vec<u8>>,
        /// None of them; what cannot be read is neither.
        negated: bool,
    },
    /// Whether bytes in memory are these.
    Bytes {
        /// Where they lie.
        pointer: Expr,
        /// What they are compared with: at most 16.
        wanted: Vec<u8>,
        /// Not these; what cannot be read is neither.
        negated: bool,
    },
    /// The test inside does not hold.
    Not(Box<Test>),
    /// Both hold; the second is not made where the first does not.
    And(Box<Test>, Box<Test>),
    /// One of both holds; the second is not made where the first does.
    Or(Box<Test>, Box<Test>),
}

/// What the probe brings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Root {
    /// The argument of that number.
    Arg(u16),
    /// The return value.
    Retval,
    /// `$pid`: the process (thread group).
    Pid,
    /// `$tid`
    Tid,
    /// `$cpu`
    Cpu,
    /// `$cgroup`: the id of the current task's cgroup in the default hierarchy.
    Cgroup,
    /// `$ns`: the event's kernel time.
    Ns,
    /// `$duration`: of the call, ns. Fails where the entry was not seen.
    Duration,
    /// `$ctx`: 0 task, 1 softirq, 2 hardirq, 3 NMI.
    Context,
    /// `$task`: the current `struct task_struct *`.
    Task,
    /// The address of this CPU's copy of a per-CPU variable, by its id in the kernel's BTF.
    PerCpu(u32),
}

/// Where a value lies.
#[derive(Clone, PartialEq, Debug)]
pub struct Place {
    /// What it is relative to.
    pub base: Base,
    /// Bytes from there.
    pub offset: i64,
    /// Which bits, if it is a bit-field.
    pub bits: Option<Bits>,
    /// Its type; structs, unions and arrays included.
    pub ty: Ty,
    /// Its type as declared, if it was.
    pub spelled: Option<Tid>,
    /// Whether the verifier, walking the same types, comes to the same member: no union's later member, no cast on the way.
    pub plain: bool,
    /// Where it was written.
    pub span: Span,
}

/// What a place is relative to.
#[derive(Clone, PartialEq, Debug)]
pub enum Base {
    /// What a pointer points to.
    Memory(Box<Expr>),
    /// A structure that is passed by value.
    Value(Root),
}

/// The place of a bit-field relative to its [`Place::offset`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bits {
    /// Bits to skip from the lowest: 0 to 7.
    pub shift: u8,
    /// Width: 1 to 64.
    pub size: u8,
}

impl Bits {
    /// Bytes that hold it: at most 9.
    pub fn bytes(self) -> u8 {
        (self.shift + self.size).div_ceil(8)
    }
}

/// A text.
#[derive(Clone, PartialEq, Debug)]
pub enum Text {
    /// `$comm`: the name of the current thread.
    Comm,
    /// What a pointer points to, in the kernel or in user memory, up to the first zero byte; of an array of `char` no further than its
    /// end.
    Memory {
        /// Where it begins.
        pointer: Box<Expr>,
        /// Bytes of the array.
        most: Option<u32>,
    },
}

/// How a number is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// By its type.
    Plain,
    /// In hexadecimal.
    Hex,
    /// An IPv4 address in network order.
    Ip4,
    /// A symbol of the kernel.
    Symbol,
    /// One of `task`, `softirq`, `hardirq`, `nmi`.
    Context,
}

/// How bytes are shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BytesFormat {
    /// By their type.
    Plain,
    /// Hexadecimal digits.
    Hex,
    /// As a text with escapes, zeros and all.
    Buffer,
    /// An IPv6 address.
    Ip6,
    /// A MAC address.
    Mac,
}

/// What an event shows.
#[derive(Clone, PartialEq, Debug)]
pub enum Output {
    /// A number.
    Scalar(Expr, Format),
    /// That many bytes from a pointer on; their type, where [`BytesFormat::Plain`] needs one.
    Bytes {
        /// Where they lie.
        pointer: Expr,
        /// How many.
        len: u32,
        /// Their type.
        ty: Ty,
        /// As declared.
        spelled: Option<Tid>,
        /// How they are shown.
        format: BytesFormat,
    },
    /// As many bytes as a value says, up to a bound.
    Buffer {
        /// Where they lie.
        pointer: Expr,
        /// How many, unsigned.
        len: Expr,
        /// At most.
        most: u32,
        /// How they are shown.
        format: BytesFormat,
    },
    /// Part of a structure that is passed by value, or all of it.
    Value(Place),
    /// A text, of which at most that many bytes are shown; `None`: as of other texts.
    Text(Text, Option<u32>),
    /// The path of a `struct file`, `struct path` or `struct dentry`.
    Path(Expr, PathOf),
}

/// What a path is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathOf {
    /// `struct file *`
    File,
    /// `struct path *`
    Path,
    /// `struct dentry *`: from the root of its file system.
    Dentry,
}

/// What gathers many events.
#[derive(Clone, PartialEq, Debug)]
pub struct Aggregate {
    /// Which one.
    pub function: Function,
    /// What is gathered; none of `count()`. Of 64 bits, signed or not.
    pub value: Option<Expr>,
    /// For each value of these on its own.
    pub keys: Vec<Output>,
    /// Where each of them was written.
    pub key_spans: Vec<Span>,
    /// Where it was written.
    pub span: Span,
}

/// How events are gathered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Function {
    /// How many.
    Count,
    /// Their sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The mean.
    Avg,
    /// How many in each power of two.
    Hist,
    /// How many in each step from `low` to `high`.
    LHist {
        /// Lower bound of the first.
        low: i64,
        /// Upper bound of the last, not in it.
        high: i64,
        /// Width of each.
        step: i64,
    },
}

/// What an output is, or an aggregation.
#[derive(Clone, PartialEq, Debug)]
pub enum Statement {
    /// Shown in each event.
    Output(Output),
    /// Gathered.
    Aggregate(Aggregate),
}

impl Expr {
    /// A constant.
    pub(crate) fn constant(value: u64, ty: Ty, span: Span) -> Expr {
        let value = ty.word().map_or(value, |int| int.wrap(value));
        Expr { kind: Kind::Const(value), ty, spelled: None, span }
    }

    /// Its number's type in a register.
    pub fn word(&self) -> IntTy {
        self.ty.word().unwrap_or(IntTy::ULONG)
    }

    /// Calls `each` with everything that the probe has to bring.
    pub fn roots(&self, each: &mut dyn FnMut(Root)) {
        match &self.kind {
            Kind::Const(_) => {}
            Kind::Root(root) => each(*root),
            Kind::Load(place) | Kind::Address(place) => place.roots(each),
            Kind::Convert(a) | Kind::Neg(a) | Kind::BitNot(a) | Kind::Swap(_, a) => a.roots(each),
            Kind::Binary(_, a, b)
            | Kind::PtrAdd { pointer: a, index: b, .. }
            | Kind::PtrDiff { a, b, .. } => {
                a.roots(each);
                b.roots(each);
            }
            Kind::Test(test) => test.roots(each),
            Kind::Cond(test, a, b) => {
                test.roots(each);
                a.roots(each);
                b.roots(each);
            }
        }
    }
}

impl Place {
    fn roots(&self, each: &mut dyn FnMut(Root)) {
        match &self.base {
            Base::Memory(pointer) => pointer.roots(each),
            Base::Value(root) => each(*root),
        }
    }
}

impl Text {
    fn roots(&self, each: &mut dyn FnMut(Root)) {
        if let Text::Memory { pointer, .. } = self {
            pointer.roots(each);
        }
    }
}

impl Test {
    /// Calls `each` with everything that the probe has to bring.
    pub fn roots(&self, each: &mut dyn FnMut(Root)) {
        match self {
            Test::Compare(_, a, b) => {
                a.roots(each);
                b.roots(each);
            }
            Test::Truth(a) | Test::Bytes { pointer: a, .. } => a.roots(each),
            Test::In(a, list) => {
                a.roots(each);
                list.iter().for_each(|item| item.roots(each));
            }
            Test::Text { text, .. } => text.roots(each),
            Test::Not(a) => a.roots(each),
            Test::And(a, b) | Test::Or(a, b) => {
                a.roots(each);
                b.roots(each);
            }
        }
    }

    /// The tests that all must hold, in order.
    pub fn conjuncts(self) -> Vec<Test> {
        match self {
            Test::And(a, b) => {
                let mut all = a.conjuncts();
                all.extend(b.conjuncts());
                all
            }
            test => vec![test],
        }
    }
}

impl Output {
    /// Calls `each` with everything that the probe has to bring.
    pub fn roots(&self, each: &mut dyn FnMut(Root)) {
        match self {
            Output::Scalar(e, _) | Output::Path(e, _) | Output::Bytes { pointer: e, .. } => e.roots(each),
            Output::Buffer { pointer, len, .. } => {
                pointer.roots(each);
                len.roots(each);
            }
            Output::Value(place) => place.roots(each),
            Output::Text(text, _) => text.roots(each),
        }
    }
}

impl Statement {
    /// Calls `each` with everything that the probe has to bring.
    pub fn roots(&self, each: &mut dyn FnMut(Root)) {
        match self {
            Statement::Output(output) => output.roots(each),
            Statement::Aggregate(aggregate) => {
                if let Some(value) = &aggregate.value {
                    value.roots(each);
                }
                aggregate.keys.iter().for_each(|key| key.roots(each));
            }
        }
    }
}
