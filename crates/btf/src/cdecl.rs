//! Spelling types as C does.
//!
//! A C declaration is read from the name outwards, so it is written that way: the declarator grows around the name, `*` before,
//! `[n]` and `(…)` behind, until the type at the far end is reached and set before it all.

use crate::open::Btf;
use crate::types::{Kind, Type, TypeId};

/// Longest spelling; what exceeds it, as only malformed BTF does, is cut off with `…`.
const MAX_LEN: usize = 1 << 16;

/// Most types a spelling goes through, parameters of parameters included.
const MAX_STEPS: u32 = 1 << 12;

/// How deep function types nest in parameters of function types.
const MAX_NESTING: u32 = 16;

impl Btf {
    /// The type as it stands in a cast: `const struct file *`, `int (*)(void *)`, `struct list_head[4]`.
    ///
    /// An anonymous struct, union or enum is `struct {...}`. What the BTF does not tell is `?`; it never fails.
    pub fn type_name(&self, id: TypeId) -> String {
        self.declare(id, "")
    }

    /// A declaration of `name`: `char comm[16]`, `int (*fn)(void *)`.
    pub fn declare(&self, id: TypeId, name: &str) -> String {
        let mut out = String::new();
        self.spell(&mut out, id, name, &mut MAX_STEPS.clone(), MAX_NESTING);
        if out.bytes().any(|b| b.is_ascii_control()) {
            // Names go to the terminal, and BTF may come from anyone.
            out = out.replace(|c: char| c.is_ascii_control(), "?");
        }
        out
    }

    /// A function's declaration, without the semicolon: `ssize_t vfs_read(struct file *file, char *buf, size_t count, loff_t *pos)`.
    ///
    /// For a type that is no function, its [`Btf::type_name`].
    pub fn func_decl(&self, func: TypeId) -> String {
        match self.get(func) {
            Ok(ty) if ty.kind() == Kind::Func => {
                self.declare(ty.target().unwrap_or_default(), ty.name().unwrap_or("?"))
            }
            _ => self.type_name(func),
        }
    }

    fn spell(&self, out: &mut String, id: TypeId, name: &str, steps: &mut u32, nesting: u32) {
        let mut qualifiers = Qualifiers::default();
        let mut inner = name.to_owned();
        // Whether `inner` begins with `*`, so that `[n]` and `(…)` would bind to the name instead.
        let mut pointer = false;
        let mut id = id;
        loop {
            *steps = steps.saturating_sub(1);
            if *steps == 0 || inner.len() > MAX_LEN || out.len() > MAX_LEN {
                out.push('…');
                return;
            }
            let Ok(ty) = self.get(id) else {
                return qualifiers.finish(out, &["?"], &inner);
            };
            let target = ty.target().unwrap_or_default();
            match ty.kind() {
                Kind::Ptr => {
                    qualifiers.apply_to_pointer(&mut inner);
                    inner.insert(0, '*');
                    pointer = true;
                }
                Kind::Const => qualifiers.is_const = true,
                Kind::Volatile => qualifiers.is_volatile = true,
                Kind::Restrict => qualifiers.is_restrict = true,
                Kind::TypeTag | Kind::Func | Kind::Var | Kind::DeclTag => {}
                Kind::Array => {
                    enclose(&mut inner, &mut pointer);
                    match ty.array().map_or(0, |a| a.len) {
                        0 => inner.push_str("[]"),
                        n => {
                            inner.push('[');
                            inner.push_str(itoa::Buffer::new().format(n));
                            inner.push(']');
                        }
                    }
                }
                Kind::FuncProto => {
                    enclose(&mut inner, &mut pointer);
                    self.spell_params(&mut inner, &ty, steps, nesting);
                    // A function type has no qualifiers in C.
                    qualifiers = Qualifiers::default();
                }
                Kind::Void => return qualifiers.finish(out, &["void"], &inner),
                Kind::Struct => return qualifiers.finish(out, &["struct ", or_body(&ty)], &inner),
                Kind::Union => return qualifiers.finish(out, &["union ", or_body(&ty)], &inner),
                Kind::Enum | Kind::Enum64 => return qualifiers.finish(out, &["enum ", or_body(&ty)], &inner),
                Kind::Fwd => {
                    let key = if ty.is_union_fwd() { "union " } else { "struct " };
                    return qualifiers.finish(out, &[key, or_body(&ty)], &inner);
                }
                Kind::Int | Kind::Float | Kind::Typedef | Kind::Datasec | Kind::Unknown => {
                    return qualifiers.finish(out, &[ty.name().unwrap_or("?")], &inner);
                }
            }
            id = target;
        }
    }

    /// Appends `(struct file *file, ...)`.
    fn spell_params(&self, inner: &mut String, proto: &Type<'_>, steps: &mut u32, nesting: u32) {
        let count = proto.params().len();
        if count == 0 {
            inner.push_str("(void)");
            return;
        }
        let Some(nesting) = nesting.checked_sub(1) else {
            inner.push_str("(…)");
            return;
        };
        inner.push('(');
        for (i, param) in proto.params().enumerate() {
            if i > 0 {
                inner.push_str(", ");
            }
            if i + 1 == count && param.ty == TypeId::VOID && param.name.is_none() {
                inner.push_str("...");
                break;
            }
            let mut one = String::new();
            self.spell(&mut one, param.ty, param.name.unwrap_or_default(), steps, nesting);
            inner.push_str(&one);
            if *steps == 0 || inner.len() > MAX_LEN {
                break;
            }
        }
        inner.push(')');
    }
}

/// Qualifiers met and not yet written: they belong to the pointer or the type that comes next.
#[derive(Default)]
struct Qualifiers {
    is_const: bool,
    is_volatile: bool,
    is_restrict: bool,
}

impl Qualifiers {
    /// `*const name`: qualifiers of a pointer stand behind its star.
    fn apply_to_pointer(&mut self, inner: &mut String) {
        let mut words = String::new();
        for (set, word) in
            [(self.is_const, "const"), (self.is_volatile, "volatile"), (self.is_restrict, "restrict")]
        {
            if set {
                if !words.is_empty() {
                    words.push(' ');
                }
                words.push_str(word);
            }
        }
        if !words.is_empty() {
            if !inner.is_empty() {
                words.push(' ');
            }
            inner.insert_str(0, &words);
        }
        *self = Qualifiers::default();
    }

    /// `const base inner`.
    fn finish(&self, out: &mut String, base: &[&str], inner: &str) {
        if self.is_const {
            out.push_str("const ");
        }
        if self.is_volatile {
            out.push_str("volatile ");
        }
        for part in base {
            out.push_str(part);
        }
        if !inner.is_empty() {
            if !inner.starts_with('[') {
                out.push(' ');
            }
            out.push_str(inner);
        }
    }
}

/// Brackets around a pointer's declarator, before `[n]` or `(…)` follow it.
fn enclose(inner: &mut String, pointer: &mut bool) {
    if std::mem::take(pointer) {
        inner.insert(0, '(');
        inner.push(')');
    }
}

/// The tag of a struct, union or enum, or what stands for the body of one without.
fn or_body<'a>(ty: &Type<'a>) -> &'a str {
    ty.name().unwrap_or("{...}")
}
