//! Types as C defines them, with offsets, sizes and holes as comments, in the manner of `pahole`.

use std::fmt::Write;

use crate::follow::MAX_DEPTH;
use crate::open::Btf;
use crate::types::{Kind, Member, Type, TypeId};

/// Longest definition; what exceeds it, as only malformed BTF does, is cut off with `…`.
const MAX_LEN: usize = 1 << 20;

/// Columns of a member before its comment.
const COLUMN: usize = 48;

/// What [`Btf::declare`] writes for a struct without a name.
const BODY: &str = "{...}";

impl Btf {
    /// The definition of a type as C, ending in `;` and without a last newline.
    ///
    /// A struct's or union's members have their offset and size in bytes as a comment (`4:3` is the fourth bit of byte 4, a
    /// bit-field), holes are said, anonymous structs, unions and enums are written out where they stand. An enum has its values, a
    /// function its declaration, a typedef what it stands for, a section its variables. It never fails: what the BTF does not
    /// tell is `?`.
    ///
    /// ```text
    /// struct list_head {
    ///     struct list_head *next;                     /*     0     8 */
    ///     struct list_head *prev;                     /*     8     8 */
    ///
    ///     /* size: 16, members: 2 */
    /// };
    /// ```
    pub fn definition(&self, id: TypeId) -> String {
        let mut out = Definition { btf: self, out: String::new() };
        out.top(id);
        let mut out = out.out;
        if out.bytes().any(|b| b.is_ascii_control() && b != b'\n') {
            // Names go to the terminal, and BTF may come from anyone.
            out = out.replace(|c: char| c.is_ascii_control() && c != '\n', "?");
        }
        out
    }
}

/// A definition being written.
struct Definition<'a> {
    btf: &'a Btf,
    out: String,
}

impl<'a> Definition<'a> {
    fn top(&mut self, id: TypeId) {
        let Ok(ty) = self.btf.get(id) else { return self.push("?;") };
        match ty.kind() {
            Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 => {
                let name = self.btf.type_name(id);
                self.push(name.strip_suffix(BODY).map_or(name.as_str(), str::trim_end));
                self.push(" ");
                self.body(&ty, Some(0), 0, MAX_DEPTH);
            }
            Kind::Typedef => {
                self.push("typedef ");
                let target = ty.target().unwrap_or_default();
                self.declaration(target, ty.name().unwrap_or("?"), Some(0), 0, MAX_DEPTH);
            }
            Kind::Func => self.push(&self.btf.func_decl(id)),
            Kind::Var => {
                self.declaration(
                    ty.target().unwrap_or_default(),
                    ty.name().unwrap_or("?"),
                    None,
                    0,
                    MAX_DEPTH,
                );
            }
            Kind::Datasec => self.section(&ty),
            Kind::Int | Kind::Float => {
                let sign = match ty.int() {
                    Some(int) if int.bool => ", bool",
                    Some(int) if int.signed => ", signed",
                    Some(_) => ", unsigned",
                    None => ", floating point",
                };
                let name = self.btf.type_name(id);
                self.write(format_args!("{name}; /* size: {}{sign} */", ty.size().unwrap_or(0)));
                return;
            }
            Kind::DeclTag => {
                let on = self.btf.get(ty.target().unwrap_or_default()).ok();
                let on = on.and_then(|t| t.name()).unwrap_or("?");
                self.write(format_args!("/* on {on} */ __attribute__((btf_decl_tag(\""));
                self.write(format_args!("{}\")))", ty.name().unwrap_or("?")));
            }
            _ => self.push(&self.btf.type_name(id)),
        }
        self.push(";");
    }

    /// `struct {` … `} name`: a declaration in which the body of an anonymous type is written out.
    ///
    /// `base` is where the object lies in the struct around it, in bits; `None` where that means nothing.
    fn declaration(&mut self, id: TypeId, name: &str, base: Option<u32>, indent: usize, depth: u32) {
        let declared = self.btf.declare(id, name);
        match (self.anonymous(id), declared.split_once(BODY)) {
            (Some((inner, direct)), Some((before, after))) if depth > 0 => {
                self.push(before);
                let base = if direct { base } else { Some(0) };
                self.body(&inner, base, indent, depth - 1);
                self.push(after);
            }
            _ => self.push(&declared),
        }
    }

    /// The anonymous type that a declaration of `id` would begin with, and whether the object itself is one (or an array of them)
    /// rather than a pointer to it.
    fn anonymous(&self, id: TypeId) -> Option<(Type<'a>, bool)> {
        let (mut id, mut direct) = (id, true);
        for _ in 0..MAX_DEPTH {
            let ty = self.btf.get(id).ok()?;
            match ty.kind() {
                Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 => {
                    return ty.name().is_none().then_some((ty, direct));
                }
                Kind::Ptr | Kind::FuncProto => direct = false,
                Kind::Array | Kind::Const | Kind::Volatile | Kind::Restrict | Kind::TypeTag => {}
                _ => return None,
            }
            id = ty.target()?;
        }
        None
    }

    /// From `{` to `}`.
    fn body(&mut self, ty: &Type<'_>, base: Option<u32>, indent: usize, depth: u32) {
        self.push("{\n");
        if ty.kind().is_enum() {
            for e in ty.enumerators() {
                if self.is_full() {
                    break;
                }
                self.indent(indent + 1);
                self.write(format_args!("{} = {},\n", e.name, e.value));
            }
            if ty.size() != Some(4) {
                self.indent(indent + 1);
                self.write(format_args!("/* size: {} */\n", ty.size().unwrap_or(0)));
            }
        } else {
            self.members(ty, base.unwrap_or(0), indent + 1, depth);
        }
        self.indent(indent);
        self.push("}");
    }

    fn members(&mut self, ty: &Type<'_>, base: u32, indent: usize, depth: u32) {
        // Where the last member ended, in bits from the beginning of this struct.
        let mut end = 0_u64;
        for member in ty.members() {
            if self.is_full() {
                return;
            }
            if ty.kind() == Kind::Struct {
                self.hole(u64::from(member.bit_offset).saturating_sub(end), "hole", indent);
            }
            let bits = match member.bitfield_size {
                0 => self.btf.size_of(member.ty).unwrap_or(0).saturating_mul(8),
                bits => bits.into(),
            };
            end = end.max(u64::from(member.bit_offset).saturating_add(bits));
            self.member(&member, base, indent, depth);
        }
        let size = u64::from(ty.size().unwrap_or(0));
        if ty.kind() == Kind::Struct && ty.vlen() > 0 {
            self.hole((size * 8).saturating_sub(end), "padding", indent);
        }
        // An inner one has its size behind its closing bracket.
        if indent == 1 {
            self.write(format_args!("\n    /* size: {size}, members: {} */\n", ty.vlen()));
        }
    }

    fn member(&mut self, member: &Member<'_>, base: u32, indent: usize, depth: u32) {
        self.indent(indent);
        let start = self.out.len();
        let at = base.saturating_add(member.bit_offset);
        self.declaration(member.ty, member.name.unwrap_or_default(), Some(at), indent, depth);
        if member.bitfield_size != 0 {
            self.write(format_args!(":{}", member.bitfield_size));
        }
        self.push(";");
        // The comment goes behind the last line of a member that has several.
        let line = match self.out.get(start..).and_then(|s| s.rsplit_once('\n')) {
            Some((_, last)) => last.chars().count(),
            None => self.out.get(start..).map_or(0, |s| s.chars().count()) + indent * 4,
        };
        let pad = COLUMN.saturating_sub(line).max(1);
        let byte = at / 8;
        if member.bitfield_size != 0 {
            self.write(format_args!("{:pad$}/* {byte:>5}:{:<5}*/\n", "", at % 8));
        } else {
            let size = self.btf.size_of(member.ty).unwrap_or(0);
            self.write(format_args!("{:pad$}/* {byte:>5} {size:>5} */\n", ""));
        }
    }

    fn hole(&mut self, bits: u64, what: &str, indent: usize) {
        if bits > 0 {
            self.indent(indent);
            match bits % 8 {
                0 => self.write(format_args!("/* {what}: {} bytes */\n", bits / 8)),
                _ => self.write(format_args!("/* {what}: {bits} bits */\n")),
            }
        }
    }

    fn section(&mut self, ty: &Type<'_>) {
        self.write(format_args!("{} {{\n", ty.name().unwrap_or("?")));
        for var in ty.section_vars() {
            if self.is_full() {
                break;
            }
            let line = format!("{};", self.btf.definition_line(var.var));
            self.write(format_args!("    {line:<44}/* {:>5} {:>5} */\n", var.offset, var.size));
        }
        self.write(format_args!(
            "\n    /* size: {}, variables: {} */\n}}",
            ty.size().unwrap_or(0),
            ty.vlen()
        ));
    }

    fn indent(&mut self, indent: usize) {
        for _ in 0..indent {
            self.push("    ");
        }
    }

    fn is_full(&self) -> bool {
        self.out.len() > MAX_LEN
    }

    fn push(&mut self, s: &str) {
        if !self.is_full() {
            self.out.push_str(s);
            if self.is_full() {
                self.out.push('…');
            }
        }
    }

    fn write(&mut self, args: std::fmt::Arguments<'_>) {
        if !self.is_full() {
            // Writing to a string does not fail.
            let _ = self.out.write_fmt(args);
            if self.is_full() {
                self.out.push('…');
            }
        }
    }
}

impl Btf {
    /// A variable (or whatever a section lists) on one line.
    fn definition_line(&self, id: TypeId) -> String {
        match self.get(id) {
            Ok(ty) => self.declare(id, ty.name().unwrap_or_default()),
            Err(_) => "?".to_owned(),
        }
    }
}
