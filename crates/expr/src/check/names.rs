//! What names stand for.

use super::{Checker, Item};
use crate::ast::{Node, NodeKind};
use crate::error::{Error, Span, nearest};
use crate::scope::{Symbol, Variable};
use crate::tree::{Base, Expr, Kind, Place, Root, Text};
use crate::types::{IntTy, Tid, Ty};

/// What begins with a dollar.
const SPECIALS: [&str; 11] =
    ["retval", "args", "pid", "tid", "comm", "cpu", "cgroup", "ns", "duration", "ctx", "task"];

/// Why an address is not told.
const HIDDEN: &str = "it is not in /proc/kallsyms, or hidden there (CONFIG_KALLSYMS_ALL, sysctl kernel.kptr_restrict, CAP_SYSLOG)";

impl Checker<'_> {
    /// An argument, an enumerator, or a variable of the kernel.
    pub(super) fn name(&self, name: &str, span: Span) -> Result<Item, Error> {
        let scope = self.scope;
        if let Some(at) = scope.args.iter().position(|arg| arg.name == name) {
            return self.arg(at, span);
        }
        if name == "NULL" {
            return Ok(Item::Value(Expr::constant(0, Ty::Void.pointer(), span)));
        }
        if let Some((tid, value)) = scope.types.enumerator(name) {
            return Ok(Item::Value(enumerator(self.scope.types.ty(tid).int(), value, span)));
        }
        if let Some((address, ty, spelled)) = self.variable(name, span)? {
            if ty == Ty::Void {
                let hint = "its type is not known: cast its address, as in *(int *)&";
                return Err(Error::new(span, format!("'{name}' is a variable of the kernel; {hint}{name}")));
            }
            return Ok(Item::Place(Place {
                base: Base::Memory(Box::new(address)),
                offset: 0,
                bits: None,
                ty,
                spelled,
                plain: false,
                span,
            }));
        }
        Err(self.unknown(name, span))
    }

    fn unknown(&self, name: &str, span: Span) -> Error {
        let args: Vec<&str> =
            self.scope.args.iter().map(|arg| arg.name.as_str()).filter(|n| !n.is_empty()).collect();
        let mut hint = nearest(name, args.iter().copied());
        if SPECIALS.contains(&name) {
            hint = format!("; did you mean '${name}'?");
        }
        if hint.is_empty() {
            let enumerators = self.scope.types.enumerators_like(name);
            hint = nearest(name, enumerators.iter().copied());
        }
        if hint.is_empty() {
            hint = match args.as_slice() {
                [] => "; it has no arguments".into(),
                args => format!("; its arguments are {}", args.join(", ")),
            };
        }
        // `AF_INET` and its like.
        let macros = !hint.contains("did you mean")
            && name.len() > 1
            && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
        if macros {
            hint += "; if it is a macro: those are in no BTF, write its value";
        }
        let message = format!("{} has no '{name}'{hint}", self.scope.target);
        Error { unknown: true, ..Error::new(span, message) }
    }

    pub(super) fn arg(&self, at: usize, span: Span) -> Result<Item, Error> {
        match (self.scope.args.get(at), u16::try_from(at)) {
            (Some(arg), Ok(number)) => Ok(self.root(Root::Arg(number), arg, span)),
            _ => {
                let count = self.scope.args.len();
                Err(Error::new(
                    span,
                    format!("{} has {count} arguments, the first $args[0]", self.scope.target),
                ))
            }
        }
    }

    /// A variable's value, or where it lies if it is a structure.
    fn root(&self, root: Root, variable: &Variable, span: Span) -> Item {
        let (ty, spelled) = (variable.ty.clone(), variable.spelled);
        if ty.is_scalar() {
            return Item::Value(Expr { kind: Kind::Root(root), ty, spelled, span });
        }
        let base = Base::Value(root);
        Item::Place(Place { base, offset: 0, bits: None, ty, spelled, plain: false, span })
    }

    /// Refuses what begins with a dollar and the kernel does not tell: a wrong value would look like any other.
    pub(super) fn told(&self, name: &str, span: Span) -> Result<(), Error> {
        match (self.scope.untold)(name) {
            Some(why) => Err(Error::new(span, format!("${name}: {why}"))),
            None => Ok(()),
        }
    }

    pub(super) fn special(&self, name: &str, span: Span) -> Result<Item, Error> {
        self.told(name, span)?;
        let number = |root, ty| Ok(Item::Value(Expr { kind: Kind::Root(root), ty, spelled: None, span }));
        match name {
            "retval" => match &self.scope.retval {
                Some(retval) => Ok(self.root(Root::Retval, retval, span)),
                None => Err(Error::new(span, format!("$retval: {}", self.scope.no_retval))),
            },
            "pid" => number(Root::Pid, Ty::INT),
            "tid" => number(Root::Tid, Ty::INT),
            "cpu" => number(Root::Cpu, Ty::INT),
            "cgroup" => number(Root::Cgroup, Ty::ULONG),
            "ns" => number(Root::Ns, Ty::ULONG),
            "duration" if self.scope.duration => number(Root::Duration, Ty::ULONG),
            "duration" => {
                Err(Error::new(span, "$duration is known at the return of a function only, with --mode exit"))
            }
            "ctx" => number(Root::Context, Ty::INT),
            "comm" => Ok(Item::Text(Text::Comm)),
            "task" => {
                let task = self.scope.types.kernel_struct("task_struct").map_or(Ty::Void, Ty::Composite);
                number(Root::Task, task.pointer())
            }
            "args" => Err(Error::new(span, "$args is to be followed by a number in brackets: $args[0]")),
            _ => {
                let hint = nearest(name, SPECIALS.iter().copied()).replace(" '", " '$");
                let hint =
                    if hint.is_empty() { format!("; there are ${}", SPECIALS.join(", $")) } else { hint };
                Err(Error::new(span, format!("there is no '${name}'{hint}")))
            }
        }
    }

    /// A variable of the kernel: its address, what it is (void if BTF does not say), as declared.
    fn variable(&self, name: &str, span: Span) -> Result<Option<(Expr, Ty, Option<Tid>)>, Error> {
        let types = &self.scope.types;
        let symbol = (self.scope.symbol)(name);
        let address = match symbol {
            Symbol::At(address) => Some(address),
            _ => None,
        };
        let declared = types.kernel_variable(name).and_then(|(var, per_cpu)| {
            let id = types.btf(var.space)?.get(var.id).ok()?.target()?;
            Some((var, Tid { space: var.space, id }, per_cpu))
        });
        let constant = |address, ty: &Ty| Expr::constant(address, ty.clone().pointer(), span);
        Ok(match (declared, address) {
            (Some((var, declared, true)), Some(_)) => {
                let ty = types.ty(declared);
                let kind = Kind::Root(Root::PerCpu(var.id.0));
                let address = Expr { kind, ty: ty.clone().pointer(), spelled: None, span };
                Some((address, ty, Some(declared)))
            }
            (Some((_, declared, false)), Some(address)) => {
                let ty = types.ty(declared);
                Some((constant(address, &ty), ty, Some(declared)))
            }
            // An offset into each CPU's own memory.
            (None, Some(address)) if address.cast_signed() >= 0 => {
                let message =
                    format!("of '{name}' each CPU has its own, and this kernel's BTF does not tell its type");
                return Err(Error::new(span, message));
            }
            (None, Some(address)) => Some((constant(address, &Ty::Void), Ty::Void, None)),
            (None, None) if symbol != Symbol::Hidden => None,
            (_, None) => {
                let message =
                    format!("'{name}' is a variable of the kernel whose address nobody is told: {HIDDEN}");
                return Err(Error::new(span, message));
            }
        })
    }

    /// `&e`
    pub(super) fn address_of(&self, of: &Node, span: Span) -> Result<Item, Error> {
        if let NodeKind::Name(name) = &of.kind
            && !self.scope.args.iter().any(|arg| arg.name == *name)
            && self.scope.types.enumerator(name).is_none()
        {
            let Some((mut address, ..)) = self.variable(name, span)? else {
                let mut error = self.unknown(name, of.span);
                // What has its address taken is a variable, if anything.
                if (self.scope.symbol)(name) == Symbol::Untold {
                    let variable =
                        format!("if it is a variable of the kernel, nobody is told its address: {HIDDEN}");
                    error.message = match error.message.contains("did you mean") {
                        true => format!("{} {variable}", error.message),
                        false => format!("{} has no '{name}'; {variable}", self.scope.target),
                    };
                }
                return Err(error);
            };
            address.span = span;
            return Ok(Item::Value(address));
        }
        match self.item(of)? {
            Item::Place(place) => {
                let ty = place.ty.clone().pointer();
                // `&*p` is p.
                Ok(Item::Value(self.address(place, ty, span)?))
            }
            _ => Err(Error::new(of.span, "it has no address: it is a value of the probe's own")),
        }
    }
}

/// An enumerator has type int where its value fits, as in C.
fn enumerator(of: Option<IntTy>, value: u64, span: Span) -> Expr {
    let of = of.unwrap_or(IntTy::INT);
    let value = of.wrap(value);
    let fits_int = i32::try_from(value.cast_signed()).is_ok() && (of.signed || value <= i32::MAX as u64);
    let ty = match (fits_int, of) {
        (true, _) => IntTy::INT,
        (false, IntTy { size: 8, signed }) => IntTy { size: 8, signed },
        (false, _) => IntTy::UINT,
    };
    Expr::constant(value, Ty::Int(ty), span)
}
