//! What an expression can name.

use crate::parse::Words;
use crate::types::{Tid, Ty, Types};

/// An argument, or what a function returned.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Its name; empty where it has none.
    pub name: String,
    /// Its type.
    pub ty: Ty,
    /// As declared.
    pub spelled: Option<Tid>,
}

/// What an expression can name at one place.
pub struct Scope<'a> {
    /// The target, as errors call it.
    pub target: String,
    /// The types.
    pub types: Types<'a>,
    /// The arguments in order.
    pub args: Vec<Variable>,
    /// `$retval`.
    pub retval: Option<Variable>,
    /// Why there is none, to follow `$retval: `.
    pub no_retval: String,
    /// Whether `$duration` is known.
    pub duration: bool,
    /// What is known of a kernel variable's address.
    pub symbol: &'a dyn Fn(&str) -> Symbol,
    /// Why this kernel does not tell what begins with a dollar (`ctx`), if so: to follow `$ctx: `.
    pub untold: &'a dyn Fn(&str) -> Option<String>,
}

/// What is known of the address of a kernel variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// It is there.
    At(u64),
    /// There is such a variable, and its address is hidden.
    Hidden,
    /// Of no variable is the address told, so that there may be one of that name.
    Untold,
    /// There is none.
    Unknown,
}

impl std::fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope")
            .field("target", &self.target)
            .field("args", &self.args)
            .finish_non_exhaustive()
    }
}

impl Scope<'_> {
    /// What the meaning of words depends on.
    pub(crate) fn words<'w>(&self, is_type: &'w dyn Fn(&str) -> bool) -> Words<'w> {
        Words { is_type, unsigned_char: self.types.has_unsigned_char() }
    }

    /// Whether a name is that of a type rather than of something that the probe brings.
    pub(crate) fn is_type(&self, name: &str) -> bool {
        !self.args.iter().any(|arg| arg.name == name) && self.types.typedef(name).is_some()
    }
}

/// The type that a text such as `struct sk_buff *` or `u32` spells; `None` if there is no such type.
pub fn spelled(types: &Types<'_>, text: &str) -> Option<Ty> {
    let is_type = |name: &str| types.typedef(name).is_some();
    let words = Words { is_type: &is_type, unsigned_char: types.has_unsigned_char() };
    let name = crate::parse::type_name(text, &words).ok()?;
    let base = types.base(&name.base)?;
    Some((0..name.pointers).fold(base, |ty, _| ty.pointer()))
}
