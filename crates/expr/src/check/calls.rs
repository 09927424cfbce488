//! Functions: those that give a number, and those that say how something is shown.

use super::operators::convert;
use super::{Checker, Item};
use crate::ast::{Node, NodeKind};
use crate::error::{Error, Span, nearest};
use crate::parse::AGGREGATES;
use crate::tree::Text;
use crate::tree::{Base, BytesFormat, Expr, Format, Kind, Output, PathOf, Place};
use crate::types::{IntTy, Ty};

/// All functions but those that gather.
const FUNCTIONS: [&str; 15] = [
    "str",
    "buf",
    "hex",
    "ip4",
    "ip6",
    "mac",
    "port",
    "ksym",
    "path",
    "ntohs",
    "ntohl",
    "htons",
    "htonl",
    "ntohll",
    "container_of",
];

/// Most bytes that one text or buffer can have.
pub const MOST_BYTES: u32 = 4096;

/// Most bytes of a buffer whose length is not a constant.
pub const MOST_VARIABLE: u32 = 256;

impl Checker<'_> {
    /// A function in an expression: it gives a number.
    pub(super) fn call(&self, name: &str, at: Span, args: &[Node], span: Span) -> Result<Item, Error> {
        let one = || match args {
            [arg] => Ok(arg),
            _ => Err(Error::new(span, format!("{name}() takes one value"))),
        };
        let swap = |size: u8| {
            let ty = Ty::Int(IntTy { size, signed: false });
            let value = convert(self.integer(one()?)?, ty.clone());
            if let Kind::Const(n) = value.kind {
                let swapped = n.swap_bytes() >> (64 - u32::from(size) * 8);
                return Ok(Item::Value(Expr::constant(swapped, ty, span)));
            }
            Ok(Item::Value(Expr { kind: Kind::Swap(size, Box::new(value)), ty, spelled: None, span }))
        };
        match name {
            "ntohs" | "htons" | "port" => swap(2),
            "ntohl" | "htonl" => swap(4),
            "ntohll" => swap(8),
            "hex" if args.len() == 1 => Ok(Item::Value(self.value(one()?)?)),
            "str" => Ok(Item::Text(self.text(&Node {
                kind: NodeKind::Call { name: name.into(), at, args: args.to_vec() },
                span,
                height: 1,
            })?)),
            "ip4" | "ip6" | "mac" => Err(Error::new(
                span,
                format!(
                    "{name}() shows an address: print it alone, or compare it with one in quotes, by == and != and in"
                ),
            )),
            "buf" | "hex" | "path" | "ksym" => {
                Err(Error::new(span, format!("{name}() says how something is printed: it stands alone")))
            }
            _ if AGGREGATES.contains(&name) => Err(Error::new(
                span,
                format!("{name}() gathers many events: it stands alone, in --output-arg"),
            )),
            _ => Err(self.no_function(name, at)),
        }
    }

    fn no_function(&self, name: &str, at: Span) -> Error {
        let hint = nearest(name, FUNCTIONS.into_iter().chain(AGGREGATES));
        let hint = if hint.is_empty() { format!("; there are {}", FUNCTIONS.join(", ")) } else { hint };
        Error::new(at, format!("there is no function {name}(){hint}"))
    }

    /// What an event shows.
    pub(crate) fn output(&self, node: &Node) -> Result<Output, Error> {
        let span = node.span;
        let NodeKind::Call { name, args, .. } = &node.kind else { return self.plain(node) };
        let wrong = |what: &str| Err(Error::new(span, format!("{name}() takes {what}")));
        match (name.as_str(), args.as_slice()) {
            ("str", [of]) => Ok(Output::Text(self.text_at(of, true)?, None)),
            ("str", [of, n]) => {
                let most = self.constant(n, MOST_BYTES, "at most how many bytes are read")?;
                Ok(Output::Text(self.text_at(of, true)?, Some(most)))
            }
            ("str", _) => wrong("a pointer, and how many bytes are read at most"),
            ("hex", [of]) => Ok(match self.output(of)? {
                Output::Scalar(value, _) => Output::Scalar(value, Format::Hex),
                Output::Bytes { pointer, len, ty, spelled, .. } => {
                    Output::Bytes { pointer, len, ty, spelled, format: BytesFormat::Hex }
                }
                Output::Text(Text::Memory { pointer, most: Some(len) }, _) => {
                    self.fixed(*pointer, len.min(MOST_BYTES), BytesFormat::Hex)
                }
                _ => return wrong("a number, an array, or a pointer and how many bytes are read"),
            }),
            ("hex", [of, n]) => self.buffer(of, n, BytesFormat::Hex),
            ("hex", _) => wrong("a number, or a pointer and how many bytes are read"),
            ("buf", [of, n]) => self.buffer(of, n, BytesFormat::Buffer),
            ("buf", [of]) => match self.output(of)? {
                Output::Text(Text::Memory { pointer, most: Some(len) }, _) => {
                    Ok(self.fixed(*pointer, len.min(MOST_BYTES), BytesFormat::Buffer))
                }
                Output::Bytes { pointer, len, ty, spelled, .. } => {
                    Ok(Output::Bytes { pointer, len, ty, spelled, format: BytesFormat::Buffer })
                }
                _ => wrong("an array, or a pointer and how many bytes are read"),
            },
            ("buf", _) => wrong("a pointer and how many bytes are read"),
            ("ip4", [of]) => match self.ip4_word(of)? {
                Some(word) => Ok(Output::Scalar(word, Format::Ip4)),
                None => {
                    // Four bytes in memory, in network order as all of them are.
                    let ty = Ty::Int(IntTy::UINT);
                    let pointer = self.bytes_at(of, name)?;
                    let place = Place {
                        span,
                        base: Base::Memory(Box::new(pointer)),
                        offset: 0,
                        bits: None,
                        ty: ty.clone(),
                        spelled: None,
                        plain: false,
                    };
                    let load = Expr { kind: Kind::Load(Box::new(place)), ty, spelled: None, span };
                    Ok(Output::Scalar(load, Format::Ip4))
                }
            },
            ("ip6", [of]) => Ok(self.fixed(self.bytes_at(of, name)?, 16, BytesFormat::Ip6)),
            ("mac", [of]) => Ok(self.fixed(self.bytes_at(of, name)?, 6, BytesFormat::Mac)),
            ("ip4" | "ip6" | "mac", _) => wrong("one value"),
            ("ksym", [of]) => Ok(Output::Scalar(convert(self.value(of)?, Ty::ULONG), Format::Symbol)),
            ("ksym", _) => wrong("an address"),
            ("path", [of]) => self.path(of),
            ("path", _) => wrong("a struct file *, struct path * or struct dentry *"),
            _ => self.plain(node),
        }
    }

    /// What is shown by its type.
    fn plain(&self, node: &Node) -> Result<Output, Error> {
        let span = node.span;
        let whole = |place: Place| {
            if matches!(place.base, Base::Value(_)) {
                return Ok(Output::Value(Place { span, ..place }));
            }
            let len =
                self.scope.types.size(&place.ty).filter(|len| *len > 0 && *len <= u64::from(MOST_BYTES));
            let Some(len) = len else {
                let what = self.name_of(&place.ty);
                return Err(Error::new(
                    span,
                    match self.scope.types.size(&place.ty) {
                        Some(0) if matches!(place.ty, Ty::Composite(_)) => format!("'{what}' is empty"),
                        Some(0) => {
                            format!(
                                "this is {} of no known length: buf(…, n) and str(…) read it",
                                self.a(&place.ty)
                            )
                        }
                        Some(len) => format!(
                            "'{what}' has {len} bytes, at most {MOST_BYTES} can be shown: name a member"
                        ),
                        None => format!("BTF does not tell what is in '{what}'"),
                    },
                ));
            };
            let (ty, spelled) = (place.ty.clone(), place.spelled);
            let pointer = self.address(place, ty.clone().pointer(), span)?;
            Ok(Output::Bytes { pointer, len: len as u32, ty, spelled, format: BytesFormat::Plain })
        };
        match self.item(node)? {
            Item::Place(place) => match &place.ty {
                Ty::Array(element, len)
                    if element.is_char() && *len > 0 && !matches!(place.base, Base::Value(_)) =>
                {
                    let most = *len;
                    let ty = (**element).clone().pointer();
                    let declared = place.spelled;
                    let mut pointer = self.address(place, ty, span)?;
                    // It is an array, whatever it is read by.
                    pointer.spelled = declared.or(pointer.spelled);
                    let pointer = Box::new(pointer);
                    let text = crate::tree::Text::Memory { pointer, most: Some(most) };
                    Ok(Output::Text(text, Some(most.min(MOST_BYTES))))
                }
                Ty::Array(..) | Ty::Composite(_) | Ty::Other(_) => whole(place),
                _ => Ok(self.scalar(self.load(place, span)?)),
            },
            Item::Value(value) => Ok(self.scalar(value)),
            Item::Text(text) => Ok(Output::Text(text, None)),
            Item::Literal(_) => Err(Error::new(span, "this is a text that was written: nothing is read")),
        }
    }

    /// A number by its type; a pointer to characters with the text.
    fn scalar(&self, value: Expr) -> Output {
        match (&value.kind, &value.ty) {
            (Kind::Root(crate::tree::Root::Context), _) => Output::Scalar(value, Format::Context),
            (_, Ty::Ptr(_)) if self.is_text(&value) => {
                let pointer = Box::new(value);
                Output::Text(crate::tree::Text::Memory { pointer, most: None }, None)
            }
            (_, Ty::Ptr(to)) if matches!(**to, Ty::Func(_)) => Output::Scalar(value, Format::Symbol),
            _ => Output::Scalar(value, Format::Plain),
        }
    }

    fn fixed(&self, pointer: Expr, len: u32, format: BytesFormat) -> Output {
        let ty = Ty::Array(Box::new(Ty::Int(IntTy { size: 1, signed: false })), len);
        Output::Bytes { pointer, len, ty, spelled: None, format }
    }

    fn buffer(&self, of: &Node, n: &Node, format: BytesFormat) -> Result<Output, Error> {
        let pointer = self.bytes_at(of, "buf")?;
        let len = self.integer(n)?;
        if let Kind::Const(_) = len.kind {
            let len = self.constant(n, MOST_BYTES, "how many bytes are read")?;
            return Ok(self.fixed(pointer, len, format));
        }
        let len = convert(len, Ty::ULONG);
        Ok(Output::Buffer { pointer, len, most: MOST_VARIABLE, format })
    }

    pub(super) fn constant(&self, node: &Node, most: u32, what: &str) -> Result<u32, Error> {
        match self.integer(node)?.kind {
            Kind::Const(n) if n > 0 && n <= u64::from(most) => Ok(n as u32),
            Kind::Const(_) => Err(Error::new(node.span, format!("{what}: 1 to {most}"))),
            _ => Err(Error::new(node.span, format!("{what} is a constant"))),
        }
    }

    /// An IPv4 address that is a number already; `None`: it lies in memory.
    pub(super) fn ip4_word(&self, node: &Node) -> Result<Option<Expr>, Error> {
        match self.item(node)? {
            Item::Place(place) if matches!(place.ty, Ty::Array(..) | Ty::Composite(_)) => Ok(None),
            item => {
                let value = self.value_of(item, node.span)?;
                match value.ty.int() {
                    Some(int) if int.size == 4 => Ok(Some(convert(value, Ty::Int(IntTy::UINT)))),
                    Some(_) => {
                        let what = self.a(&value.ty);
                        Err(Error::new(node.span, format!("an IPv4 address has 4 bytes; this is {what}")))
                    }
                    None => Ok(None),
                }
            }
        }
    }

    /// Where the bytes lie that something is or points to.
    pub(super) fn bytes_at(&self, node: &Node, function: &str) -> Result<Expr, Error> {
        match self.item(node)? {
            Item::Place(place) if matches!(place.ty, Ty::Array(..) | Ty::Composite(_)) => {
                let ty = place.ty.clone().pointer();
                self.address(place, ty, node.span)
            }
            item => {
                let value = self.value_of(item, node.span)?;
                if !matches!(value.ty, Ty::Ptr(_)) {
                    let what = self.a(&value.ty);
                    let message =
                        format!("{function}() reads memory: it takes an array or a pointer, this is {what}");
                    return Err(Error::new(node.span, message));
                }
                Ok(value)
            }
        }
    }

    fn path(&self, node: &Node) -> Result<Output, Error> {
        let pointer = self.bytes_at(node, "path")?;
        let name = match &pointer.ty {
            Ty::Ptr(to) => match &**to {
                Ty::Composite(tid) => {
                    let btf = self.scope.types.btf(tid.space);
                    btf.and_then(|btf| btf.get(tid.id).ok()?.name()).unwrap_or_default()
                }
                _ => "",
            },
            _ => "",
        };
        let of = match name {
            "file" => PathOf::File,
            "path" => PathOf::Path,
            "dentry" => PathOf::Dentry,
            _ => {
                let what = self.a(&pointer.ty);
                let message =
                    format!("path() takes a struct file *, struct path * or struct dentry *; this is {what}");
                return Err(Error::new(node.span, message));
            }
        };
        Ok(Output::Path(pointer, of))
    }
}
