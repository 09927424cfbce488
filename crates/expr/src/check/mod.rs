//! Parts → values with types: names resolved, C's conversions made, everything that means nothing refused.

mod aggregate;
mod calls;
pub(crate) mod fold;
mod members;
mod names;
mod operators;
mod texts;

use crate::ast::{self, BaseType, Node, NodeKind, TypeName, UnaryOp};
use crate::error::{Error, Span, nearest};
use crate::parse;
use crate::scope::Scope;
use crate::tree::{Base, Expr, Kind, Place, Statement, Test, Text};
use crate::types::Ty;
use btf::Kind as BtfKind;
use std::cell::Cell;

/// Reads a filter: what has to hold of an event.
///
/// # Errors
/// What is wrong with it, and where.
pub fn filter(text: &str, scope: &Scope<'_>) -> Result<Test, Error> {
    let node = parse::expression(text, &scope.words(&|name| scope.is_type(name)))?;
    Checker::new(scope).test(&node)
}

/// Reads an output: a value, a text, or an aggregation.
///
/// # Errors
/// What is wrong with it, and where.
pub fn output(text: &str, scope: &Scope<'_>) -> Result<Statement, Error> {
    let checker = Checker::new(scope);
    match parse::statement(text, &scope.words(&|name| scope.is_type(name)))? {
        ast::Statement::Value(node) => Ok(Statement::Output(checker.output(&node)?)),
        ast::Statement::Aggregate(node) => Ok(Statement::Aggregate(checker.aggregate(&node)?)),
    }
}

/// Reads a value: one number.
///
/// # Errors
/// What is wrong with it, and where.
pub fn value(text: &str, scope: &Scope<'_>) -> Result<Expr, Error> {
    let node = parse::expression(text, &scope.words(&|name| scope.is_type(name)))?;
    Checker::new(scope).value(&node)
}

/// Most parts of an expression, those counted again that are looked at again.
const MOST_PARTS: u32 = 20_000;

pub(crate) struct Checker<'s> {
    pub(crate) scope: &'s Scope<'s>,
    /// Parts that may yet be looked at.
    left: Cell<u32>,
}

/// What a part of an expression comes to.
pub(crate) enum Item {
    /// A number.
    Value(Expr),
    /// Where something lies.
    Place(Place),
    /// A text that was written.
    Literal(Vec<u8>),
    /// A text that the probe brings.
    Text(Text),
}

impl<'s> Checker<'s> {
    fn new(scope: &'s Scope<'s>) -> Checker<'s> {
        Checker { scope, left: Cell::new(MOST_PARTS) }
    }
}

impl Checker<'_> {
    fn name_of(&self, ty: &Ty) -> String {
        self.scope.types.name(ty)
    }

    /// `a 'long'`, `an 'int'`
    fn a(&self, ty: &Ty) -> String {
        let name = self.name_of(ty);
        let an = name.starts_with(['a', 'e', 'i', 'o']) || name.starts_with("unsigned");
        format!("{} '{name}'", if an { "an" } else { "a" })
    }

    /// One number.
    pub(crate) fn value(&self, node: &Node) -> Result<Expr, Error> {
        let item = self.item(node)?;
        self.value_of(item, node.span)
    }

    fn value_of(&self, item: Item, span: Span) -> Result<Expr, Error> {
        match item {
            Item::Value(mut value) => {
                value.span = span;
                Ok(value)
            }
            Item::Place(place) => self.load(place, span),
            Item::Literal(_) => Err(Error::new(span, "a text can only be compared, by == and != and in")),
            Item::Text(_) => {
                Err(Error::new(span, "this is a text: it can be compared with one, by == and != and in"))
            }
        }
    }

    /// The value of what lies at a place: arrays and functions are where they lie.
    fn load(&self, place: Place, span: Span) -> Result<Expr, Error> {
        let (ty, spelled) = (place.ty.clone(), place.spelled);
        match ty {
            Ty::Array(element, _) => self.address(place, element.pointer(), span),
            Ty::Func(_) => {
                let ty = ty.pointer();
                self.address(place, ty, span)
            }
            Ty::Composite(_) => {
                Err(Error::new(span, format!("this is {}, not one number: name a member", self.a(&ty))))
            }
            Ty::Incomplete(_) => {
                Err(Error::new(span, format!("BTF does not tell what is in {}", self.name_of(&ty))))
            }
            Ty::Void => Err(Error::new(span, "this is void: cast the pointer to what it points to")),
            Ty::Other(_) => Err(Error::new(span, format!("this is {}: no operator takes it", self.a(&ty)))),
            _ => Ok(Expr { kind: Kind::Load(Box::new(place)), ty, spelled, span }),
        }
    }

    /// `&place`, as a pointer of that type.
    fn address(&self, place: Place, ty: Ty, span: Span) -> Result<Expr, Error> {
        if place.bits.is_some() {
            return Err(Error::new(span, "a bit-field has no address"));
        }
        if matches!(place.base, Base::Value(_)) {
            return Err(Error::new(span, "it is passed by value and has no address"));
        }
        Ok(Expr { kind: Kind::Address(Box::new(place)), ty, spelled: None, span })
    }

    /// Something that holds or does not.
    pub(crate) fn test(&self, node: &Node) -> Result<Test, Error> {
        use ast::BinaryOp::{Eq, Ge, Gt, Le, LogicalAnd, LogicalOr, Lt, Ne};
        match &node.kind {
            NodeKind::Binary(LogicalAnd, a, b) => {
                Ok(Test::And(Box::new(self.test(a)?), Box::new(self.test(b)?)))
            }
            NodeKind::Binary(LogicalOr, a, b) => {
                Ok(Test::Or(Box::new(self.test(a)?), Box::new(self.test(b)?)))
            }
            NodeKind::Binary(op @ (Eq | Ne | Lt | Le | Gt | Ge), a, b) => {
                self.comparison(*op, a, b, node.span)
            }
            NodeKind::In(value, list) => self.in_list(value, list),
            NodeKind::Unary(UnaryOp::Not, of) => match self.test(of)? {
                // `!e` is `e == 0`: of what cannot be read it does not hold either.
                Test::Truth(value) => {
                    let zero = Expr::constant(0, value.ty.clone(), node.span);
                    Ok(Test::Compare(Eq, value, zero))
                }
                test => Ok(Test::Not(Box::new(test))),
            },
            _ => {
                let value = self.value(node)?;
                match value.kind {
                    Kind::Test(test) => Ok(*test),
                    _ => Ok(Test::Truth(value)),
                }
            }
        }
    }

    /// A test as a number.
    fn tested(&self, test: Test, span: Span) -> Item {
        Item::Value(Expr { kind: Kind::Test(Box::new(test)), ty: Ty::INT, spelled: None, span })
    }

    pub(crate) fn item(&self, node: &Node) -> Result<Item, Error> {
        use ast::BinaryOp::{Eq, Ge, Gt, Le, LogicalAnd, LogicalOr, Lt, Ne};
        let span = node.span;
        // What stands in a list of addresses is looked at for each of them, and such lists may stand in one another.
        let Some(left) = self.left.get().checked_sub(1) else {
            return Err(Error::new(span, "the expression is too large"));
        };
        self.left.set(left);
        match &node.kind {
            NodeKind::Int(value, int) => Ok(Item::Value(Expr::constant(*value, Ty::Int(*int), span))),
            NodeKind::Str(text) => Ok(Item::Literal(text.clone())),
            NodeKind::Name(name) => self.name(name, span),
            NodeKind::Special(name) => self.special(name, span),
            NodeKind::Member { of, arrow, name, at } => self.member(of, *arrow, name, *at, span),
            NodeKind::Index(of, index) => self.index(of, index, span),
            NodeKind::Unary(UnaryOp::Deref, of) => self.deref(of, span),
            NodeKind::Unary(UnaryOp::Address, of) => self.address_of(of, span),
            NodeKind::Unary(UnaryOp::Not, _)
            | NodeKind::Binary(Eq | Ne | Lt | Le | Gt | Ge | LogicalAnd | LogicalOr, ..)
            | NodeKind::In(..) => Ok(self.tested(self.test(node)?, span)),
            NodeKind::Unary(op, of) => self.unary(*op, of, span),
            NodeKind::Binary(op, a, b) => self.binary(*op, a, b, span),
            NodeKind::Cond(test, a, b) => self.cond(test, a, b, span),
            NodeKind::Cast(ty, of) => self.cast(ty, of, span),
            NodeKind::SizeofType(ty) => {
                let spelled = self.type_of(ty)?;
                self.size_of(&spelled, span)
            }
            NodeKind::SizeofValue(of) => {
                let ty = match self.item(of)? {
                    Item::Place(place) if place.bits.is_some() => {
                        return Err(Error::new(of.span, "a bit-field has no size in bytes"));
                    }
                    Item::Place(place) => place.ty,
                    Item::Value(value) => value.ty,
                    Item::Literal(text) => {
                        Ty::Array(Box::new(self.scope.types.char()), text.len() as u32 + 1)
                    }
                    Item::Text(_) => Ty::Array(Box::new(self.scope.types.char()), 16),
                };
                self.size_of(&ty, span)
            }
            NodeKind::Call { name, at, args } => self.call(name, *at, args, span),
            NodeKind::ContainerOf { pointer, ty, member, at } => {
                self.container_of(pointer, ty, member, *at, span)
            }
        }
    }

    fn size_of(&self, ty: &Ty, span: Span) -> Result<Item, Error> {
        match self.scope.types.size(ty) {
            Some(size) => Ok(Item::Value(Expr::constant(size, Ty::ULONG, span))),
            None => Err(Error::new(span, format!("{} has no size", self.name_of(ty)))),
        }
    }

    /// The type that was named.
    fn type_of(&self, name: &TypeName) -> Result<Ty, Error> {
        let types = &self.scope.types;
        let base = types.base(&name.base).ok_or_else(|| {
            let (what, kinds, tag): (_, &[BtfKind], _) = match &name.base {
                BaseType::Struct(tag) => ("struct ", &[BtfKind::Struct], tag.as_str()),
                BaseType::Union(tag) => ("union ", &[BtfKind::Union], tag.as_str()),
                BaseType::Enum(tag) => ("enum ", &[BtfKind::Enum, BtfKind::Enum64], tag.as_str()),
                BaseType::Typedef(tag) => ("type ", &[BtfKind::Typedef], tag.as_str()),
                _ => ("", &[], ""),
            };
            let mut hint = String::new();
            if let BaseType::Typedef(tag) = &name.base
                && types.find(&[BtfKind::Struct, BtfKind::Union, BtfKind::Enum], tag).is_some()
            {
                hint = format!("; did you mean 'struct {tag}'?");
            }
            if hint.is_empty() {
                hint = nearest(tag, types.names(kinds, tag).into_iter());
            }
            Error::new(name.span, format!("there is no {what}{tag}{hint}"))
        })?;
        Ok((0..name.pointers).fold(base, |ty, _| ty.pointer()))
    }
}
