//! What was written, before anything has a type.

use crate::error::Span;
use crate::types::IntTy;

/// A part of an expression.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Node {
    pub kind: NodeKind,
    pub span: Span,
    /// Parts on the longest way down, this one included.
    pub height: u32,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum NodeKind {
    Int(u64, IntTy),
    Str(Vec<u8>),
    Name(String),
    Special(String),
    /// `of.name` or `of->name`; the span is that of the name.
    Member {
        of: Box<Node>,
        arrow: bool,
        name: String,
        at: Span,
    },
    Index(Box<Node>, Box<Node>),
    Unary(UnaryOp, Box<Node>),
    Binary(BinaryOp, Box<Node>, Box<Node>),
    Cond(Box<Node>, Box<Node>, Box<Node>),
    Cast(TypeName, Box<Node>),
    SizeofType(TypeName),
    SizeofValue(Box<Node>),
    In(Box<Node>, Vec<Node>),
    Call {
        name: String,
        at: Span,
        args: Vec<Node>,
    },
    ContainerOf {
        pointer: Box<Node>,
        ty: TypeName,
        /// `a.b.c`
        member: String,
        at: Span,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnaryOp {
    Plus,
    Neg,
    BitNot,
    Not,
    Deref,
    Address,
}

/// Operators of two sides, of numbers and of tests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BinaryOp {
    /// `a * b`
    Mul,
    /// `a / b`
    Div,
    /// `a % b`
    Mod,
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a << b`
    Shl,
    /// `a >> b`
    Shr,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
    /// `a == b`
    Eq,
    /// `a != b`
    Ne,
    /// `a & b`
    And,
    /// `a ^ b`
    Xor,
    /// `a | b`
    Or,
    /// `a && b`
    LogicalAnd,
    /// `a || b`
    LogicalOr,
}

/// `struct sk_buff **`
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct TypeName {
    pub base: BaseType,
    pub pointers: u32,
    pub span: Span,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum BaseType {
    Struct(String),
    Union(String),
    Enum(String),
    Typedef(String),
    Void,
    Bool,
    Char,
    Int(IntTy),
}

/// One of `count()`, `hist(e)` and so on, with `by (…)`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct AggregateNode {
    pub name: String,
    pub at: Span,
    pub args: Vec<Node>,
    pub by: Vec<Node>,
    pub span: Span,
}

/// What an output says.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Statement {
    Value(Node),
    Aggregate(AggregateNode),
}
