//! Texts, and what is compared with them.

use super::calls::MOST_BYTES;
use super::{Checker, Item};
use crate::ast::{BinaryOp, Node, NodeKind};
use crate::error::{Error, Span};
use crate::tree::{Expr, Kind, Place, Root, Test, Text};
use crate::types::Ty;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Longest text that something can be compared with: it is read into the program's stack.
pub const MOST_COMPARED: usize = 127;

/// Most bytes of a thread's name: `TASK_COMM_LEN` without the terminator.
const COMM: usize = 15;

/// What `$ctx` can be, in order.
pub const CONTEXTS: [&str; 4] = ["task", "softirq", "hardirq", "nmi"];

impl Checker<'_> {
    /// A comparison with a text that was written, if it is one.
    pub(super) fn text_comparison(
        &self,
        op: BinaryOp,
        a: &Node,
        b: &Node,
        span: Span,
    ) -> Result<Option<Test>, Error> {
        let (other, literal) = match (&a.kind, &b.kind) {
            (NodeKind::Str(_), NodeKind::Str(_)) => {
                return Err(Error::new(span, "two texts that were written are compared"));
            }
            (_, NodeKind::Str(_)) => (a, b),
            (NodeKind::Str(_), _) => (b, a),
            _ => {
                // Not a text that was written, but of those of the probe each is compared with one.
                for side in [a, b] {
                    if matches!(&side.kind, NodeKind::Special(name) if name == "comm") {
                        return Err(Error::new(side.span, "a text is compared with one in quotes"));
                    }
                }
                return Ok(None);
            }
        };
        let negated = match op {
            BinaryOp::Eq => false,
            BinaryOp::Ne => true,
            _ => return Err(Error::new(span, "texts are compared by == and != and in")),
        };
        self.text_test(other, &[literal], negated).map(Some)
    }

    /// `text in ("a", "b")`, if it is that.
    pub(super) fn text_in_list(&self, value: &Node, list: &[Node]) -> Result<Option<Test>, Error> {
        if !list.iter().any(|item| matches!(item.kind, NodeKind::Str(_))) {
            return Ok(None);
        }
        let literals: Vec<&Node> = list.iter().collect();
        self.text_test(value, &literals, false).map(Some)
    }

    fn text_test(&self, of: &Node, literals: &[&Node], negated: bool) -> Result<Test, Error> {
        let mut texts = Vec::with_capacity(literals.len());
        for literal in literals {
            let NodeKind::Str(text) = &literal.kind else {
                return Err(Error::new(literal.span, "a text in quotes is expected, as the others are"));
            };
            texts.push((text.as_slice(), literal.span));
        }
        if let NodeKind::Call { name, args, .. } = &of.kind
            && let ("ip4" | "ip6" | "mac", [arg]) = (name.as_str(), args.as_slice())
        {
            return self.address_test(name, arg, &texts, negated);
        }
        if matches!(&of.kind, NodeKind::Special(name) if name == "ctx") {
            return self.context_test(of.span, &texts, negated);
        }
        let text = self.text(of)?;
        let (what, room) = match &text {
            Text::Comm => ("$comm", COMM),
            Text::Memory { most, .. } => {
                ("what it is compared with", most.map_or(MOST_COMPARED, |n| n as usize))
            }
        };
        for (text, span) in &texts {
            let len = text.len();
            if len > room.min(MOST_COMPARED) {
                let message = match room {
                    MOST_COMPARED.. => format!("at most {MOST_COMPARED} bytes can be compared"),
                    _ => format!("this has {len} bytes, {what} at most {room}: they are never the same"),
                };
                return Err(Error::new(*span, message));
            }
        }
        let any_of = texts.iter().map(|(text, _)| text.to_vec()).collect();
        Ok(Test::Text { text, any_of, negated })
    }

    /// The text that a part of an expression is: `$comm`, a pointer to bytes, an array of them, `str()` of either.
    pub(super) fn text(&self, node: &Node) -> Result<Text, Error> {
        if let NodeKind::Call { name, args, .. } = &node.kind
            && name == "str"
        {
            return match args.as_slice() {
                [of] => self.text_at(of, true),
                [of, n] => {
                    let text = self.text_at(of, true)?;
                    let most = self.constant(n, MOST_BYTES, "at most how many bytes are read")?;
                    Ok(match text {
                        Text::Comm => Text::Comm,
                        Text::Memory { pointer, most: array } => {
                            Text::Memory { pointer, most: Some(array.map_or(most, |array| most.min(array))) }
                        }
                    })
                }
                _ => Err(Error::new(node.span, "str() takes a pointer, and how many bytes are read at most")),
            };
        }
        self.text_at(node, false)
    }

    /// Whether a pointer is one to a text: to `char`, or to `const unsigned char`, as names in the kernel are (`struct qstr`).
    /// `unsigned char *`, `u8 *` and what they are called besides are bytes of any kind.
    pub(super) fn is_text(&self, pointer: &Expr) -> bool {
        let Ty::Ptr(to) = &pointer.ty else { return false };
        to.is_char() || pointer.spelled.is_some_and(|tid| self.scope.types.points_to_const_bytes(tid))
    }

    /// `any`: whatever it points to; else only characters are a text.
    pub(super) fn text_at(&self, node: &Node, any: bool) -> Result<Text, Error> {
        let item = self.item(node)?;
        // An array of characters is what it was declared as, whatever its address would be.
        let array = match &item {
            Item::Place(Place { ty: Ty::Array(..), spelled, .. }) => *spelled,
            _ => None,
        };
        let most = match &item {
            Item::Text(_) => None,
            Item::Place(Place { ty: Ty::Array(element, len), .. }) if *len > 0 => {
                let size = self.scope.types.size(element).unwrap_or(1);
                u32::try_from(size * u64::from(*len)).ok()
            }
            _ => None,
        };
        if let Item::Text(text) = item {
            return Ok(text);
        }
        let mut pointer = self.value_of(item, node.span)?;
        if !matches!(pointer.ty, Ty::Ptr(_)) {
            let what = self.a(&pointer.ty);
            return Err(Error::new(node.span, format!("this is {what}, not a text")));
        }
        if !any && !self.is_text(&pointer) {
            let what = self.a(&pointer.ty);
            return Err(Error::new(node.span, format!("this is {what}, not a text: str() reads it as one")));
        }
        pointer.spelled = array.or(pointer.spelled);
        Ok(Text::Memory { pointer: Box::new(pointer), most })
    }

    /// `ip4(e) == "10.0.0.1"`
    fn address_test(
        &self,
        name: &str,
        arg: &Node,
        texts: &[(&[u8], Span)],
        negated: bool,
    ) -> Result<Test, Error> {
        let mut tests = Vec::with_capacity(texts.len());
        for (text, span) in texts {
            let text = std::str::from_utf8(text).unwrap_or_default();
            let wanted = match name {
                "ip4" => text.parse::<Ipv4Addr>().ok().map(|ip| ip.octets().to_vec()),
                "ip6" => text.parse::<Ipv6Addr>().ok().map(|ip| ip.octets().to_vec()),
                _ => mac(text),
            };
            let Some(wanted) = wanted else {
                let shown: String = text.escape_debug().take(64).collect();
                return Err(Error::new(*span, format!("'{shown}' is no address such as {name}() shows")));
            };
            tests.push(match (name, self.ip4_word(arg)?) {
                ("ip4", Some(word)) => {
                    let number = wanted.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
                    let number = Expr::constant(number, word.ty.clone(), *span);
                    Test::Compare(if negated { BinaryOp::Ne } else { BinaryOp::Eq }, word, number)
                }
                _ => Test::Bytes { pointer: self.bytes_at(arg, name)?, wanted, negated },
            });
        }
        let join = |a: Test, b: Test| Test::Or(Box::new(a), Box::new(b));
        tests.into_iter().reduce(join).ok_or_else(|| Error::new(arg.span, "an empty list"))
    }

    fn context_test(&self, span: Span, texts: &[(&[u8], Span)], negated: bool) -> Result<Test, Error> {
        self.told("ctx", span)?;
        let context = Expr { kind: Kind::Root(Root::Context), ty: Ty::INT, spelled: None, span };
        let mut wanted = Vec::with_capacity(texts.len());
        for (text, at) in texts {
            let Some(number) = CONTEXTS.iter().position(|name| name.as_bytes().eq_ignore_ascii_case(text))
            else {
                return Err(Error::new(*at, format!("$ctx is one of {}", CONTEXTS.join(", "))));
            };
            wanted.push(Expr::constant(number as u64, Ty::INT, *at));
        }
        Ok(match (wanted.as_slice(), negated) {
            ([one], _) => {
                Test::Compare(if negated { BinaryOp::Ne } else { BinaryOp::Eq }, context, one.clone())
            }
            _ => Test::In(context, wanted),
        })
    }
}

/// `00:11:22:aa:bb:cc`
fn mac(text: &str) -> Option<Vec<u8>> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|part| (part.len() == 2).then(|| u8::from_str_radix(part, 16).ok()).flatten())
        .collect();
    bytes.filter(|bytes| bytes.len() == 6)
}
