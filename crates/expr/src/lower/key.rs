//! When two expressions are the same, wherever they were written.

use crate::tree::{Base, Expr, Kind, Output, Place, Root, Test, Text};
use std::fmt::Write;

/// Equal for expressions that compute the same.
pub(super) fn of(e: &Expr) -> String {
    let mut key = String::new();
    expr(e, &mut key);
    key
}

/// Of what is loaded from there.
pub(super) fn of_load(p: &Place) -> String {
    let mut key = String::from("L");
    place(p, &mut key);
    key
}

pub(super) fn of_root(root: Root) -> String {
    format!("{root:?}")
}

fn expr(e: &Expr, key: &mut String) {
    let int = e.word();
    match &e.kind {
        Kind::Const(n) => drop(write!(key, "#{n}")),
        Kind::Root(root) => drop(write!(key, "{root:?}")),
        Kind::Load(p) => {
            key.push('L');
            place(p, key);
        }
        Kind::Address(p) => {
            key.push('&');
            place(p, key);
        }
        Kind::Convert(a) => one(key, &format!("C{}{}", int.size, int.signed), &[a]),
        Kind::Neg(a) => one(key, "-", &[a]),
        Kind::BitNot(a) => one(key, "~", &[a]),
        Kind::Binary(op, a, b) => one(key, &format!("{op:?}{}{}", int.size, int.signed), &[a, b]),
        Kind::PtrAdd { pointer, index, size, minus } => {
            one(key, &format!("P{size}{minus}"), &[pointer, index])
        }
        Kind::PtrDiff { a, b, size } => one(key, &format!("D{size}"), &[a, b]),
        Kind::Swap(size, a) => one(key, &format!("S{size}"), &[a]),
        // Not worth sharing: what they read is.
        Kind::Test(_) | Kind::Cond(..) => drop(write!(key, "{e:?}")),
    }
}

fn one(key: &mut String, name: &str, parts: &[&Expr]) {
    key.push_str(name);
    key.push('(');
    for part in parts {
        expr(part, key);
        key.push(',');
    }
    key.push(')');
}

fn place(p: &Place, key: &mut String) {
    key.push('[');
    match &p.base {
        Base::Memory(pointer) => expr(pointer, key),
        Base::Value(root) => drop(write!(key, "={root:?}")),
    }
    let int = p.ty.word();
    let (size, signed) = int.map_or((0, false), |int| (int.size, int.signed));
    let _ = write!(key, "+{}:{size}{signed}", p.offset);
    if let Some(bits) = p.bits {
        let _ = write!(key, ".{}.{}", bits.shift, bits.size);
    }
    key.push(']');
}

/// Calls `each` with everything that will be loaded from memory, and the pointer that it is relative to.
pub(super) fn loads(e: &Expr, each: &mut dyn FnMut(&Expr, &Place)) {
    match &e.kind {
        Kind::Const(_) | Kind::Root(_) => {}
        Kind::Load(p) => {
            if let Base::Memory(pointer) = &p.base {
                each(pointer, p);
                loads(pointer, each);
            }
        }
        Kind::Address(p) => {
            if let Base::Memory(pointer) = &p.base {
                loads(pointer, each);
            }
        }
        Kind::Convert(a) | Kind::Neg(a) | Kind::BitNot(a) | Kind::Swap(_, a) => loads(a, each),
        Kind::Binary(_, a, b) | Kind::PtrAdd { pointer: a, index: b, .. } | Kind::PtrDiff { a, b, .. } => {
            loads(a, each);
            loads(b, each);
        }
        Kind::Test(test) => loads_of_test(test, each),
        Kind::Cond(test, a, b) => {
            loads_of_test(test, each);
            loads(a, each);
            loads(b, each);
        }
    }
}

pub(super) fn loads_of_test(test: &Test, each: &mut dyn FnMut(&Expr, &Place)) {
    match test {
        Test::Compare(_, a, b) => {
            loads(a, each);
            loads(b, each);
        }
        Test::Truth(a) | Test::Bytes { pointer: a, .. } => loads(a, each),
        Test::In(a, list) => {
            loads(a, each);
            list.iter().for_each(|item| loads(item, each));
        }
        Test::Text { text, .. } => loads_of_text(text, each),
        Test::Not(a) => loads_of_test(a, each),
        Test::And(a, b) | Test::Or(a, b) => {
            loads_of_test(a, each);
            loads_of_test(b, each);
        }
    }
}

fn loads_of_text(text: &Text, each: &mut dyn FnMut(&Expr, &Place)) {
    if let Text::Memory { pointer, .. } = text {
        loads(pointer, each);
    }
}

pub(super) fn loads_of_output(output: &Output, each: &mut dyn FnMut(&Expr, &Place)) {
    match output {
        Output::Scalar(e, _) | Output::Path(e, _) | Output::Bytes { pointer: e, .. } => loads(e, each),
        Output::Buffer { pointer, len, .. } => {
            loads(pointer, each);
            loads(len, each);
        }
        Output::Value(_) => {}
        Output::Text(text, _) => loads_of_text(text, each),
    }
}
