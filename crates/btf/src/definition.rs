//! Types as C defines them, with offsets, sizes and holes as comments, in the manner of `pahole`.

use std::fmt::{self, Write};

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
    /// A struct's or union's members have their offset and size in bytes as a comment; anonymous structs, unions and enums are
    /// written out where they stand, with offsets from the beginning of the outermost. A bit-field has, as in `pahole`, the
    /// offset of the integer that holds it, its lowest bit in there, and that integer's size: `4: 3  4`. Holes and padding are said. An enum has
    /// its values, a function its declaration, a typedef what it stands for, a section its variables. It never fails: what the BTF
    /// does not tell is `?`.
    ///
    /// ```text
    /// struct list_head {
    ///     struct list_head *next;                     /*     0     8 */
    ///     struct list_head *prev;                     /*     8     8 */
    ///
    ///     /* size: 16, members: 2, alignment: 8 */
    /// };
    /// ```
    ///
    /// The alignment is that of the members: of a greater one that the source asks for, BTF does not tell.
    pub fn definition(&self, id: TypeId) -> String {
        self.definition_expanded(id, 0)
    }

    /// [`Btf::definition`] with members that are structs and unions with a name written out too, so many inside one another; and
    /// what a typedef stands for.
    pub fn definition_expanded(&self, id: TypeId, levels: u32) -> String {
        let mut out = Definition { btf: self, out: String::new() };
        out.top(id, levels);
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

/// Where something is written.
#[derive(Clone, Copy)]
struct At {
    /// Where the object lies in the outermost struct, in bits; `None` where that means nothing.
    base: Option<u32>,
    indent: usize,
    /// Types that may still be inside one another.
    depth: u32,
    /// Named ones of them that are written out.
    levels: u32,
}

/// A struct, union or enum whose body a declaration has in it: see [`Btf::written_out`].
#[derive(Debug, Clone, Copy)]
pub struct WrittenOut<'a> {
    /// It.
    pub ty: Type<'a>,
    /// Whether the object itself is of the type (or an array of it) rather than a pointer to it.
    pub direct: bool,
    /// The typedef that stands for it.
    pub alias: Option<&'a str>,
}

impl Btf {
    /// The type whose body [`Btf::definition_expanded`] writes out in a declaration of `id`: one without a name; or where
    /// `levels` are left a struct or union with a name or a typedef that the object itself is.
    pub fn written_out(&self, id: TypeId, levels: u32) -> Option<WrittenOut<'_>> {
        let (mut id, mut direct, mut alias) = (id, true, None);
        for _ in 0..MAX_DEPTH {
            let ty = self.get(id).ok()?;
            match ty.kind() {
                Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 => {
                    let named = ty.name().is_some() || alias.is_some();
                    let wanted = !named || (direct && levels > 0 && ty.kind().is_composite());
                    return wanted.then_some(WrittenOut { ty, direct, alias });
                }
                Kind::Ptr | Kind::FuncProto => direct = false,
                Kind::Array | Kind::Const | Kind::Volatile | Kind::Restrict | Kind::TypeTag => {}
                Kind::Typedef if alias.is_some() => {}
                Kind::Typedef => alias = Some(ty.name()?),
                _ => return None,
            }
            id = ty.target()?;
        }
        None
    }
}

impl WrittenOut<'_> {
    /// Whether it has a name of its own or a typedef: a level of [`Btf::definition_expanded`].
    pub fn is_named(&self) -> bool {
        self.alias.is_some() || self.ty.name().is_some()
    }
}

impl<'a> Definition<'a> {
    fn top(&mut self, id: TypeId, levels: u32) {
        let Ok(ty) = self.btf.get(id) else { return self.push("?;") };
        let at = At { base: Some(0), indent: 0, depth: MAX_DEPTH, levels };
        match ty.kind() {
            Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 => {
                self.push(&self.head(&ty));
                self.body(&ty, at);
                if ty.kind() == Kind::Struct && self.is_packed(&ty) {
                    self.push(" __attribute__((packed))");
                }
            }
            Kind::Typedef => {
                self.push("typedef ");
                self.declaration(ty.target().unwrap_or_default(), ty.name().unwrap_or("?"), at);
            }
            Kind::Func => self.push(&self.btf.func_decl(id)),
            Kind::Var => {
                let target = ty.target().unwrap_or_default();
                self.declaration(target, ty.name().unwrap_or("?"), At { base: None, ..at });
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

    /// What stands before the body: `struct file `, or `struct ` of one without a name.
    fn head(&self, ty: &Type<'_>) -> String {
        let name = self.btf.type_name(ty.id());
        format!("{} ", name.strip_suffix(BODY).unwrap_or(&name).trim_end())
    }

    /// A struct that its members' alignment does not fit.
    fn is_packed(&self, ty: &Type<'_>) -> bool {
        // What is too large to tell of is not asked about member by member.
        matches!(self.btf.align_of(ty.id()), Ok(1))
            && ty.members().any(|m| self.btf.align_of(m.ty).is_ok_and(|align| align > 1))
    }

    /// `struct {` … `} name`: a declaration in which the body of a type is written out.
    fn declaration(&mut self, id: TypeId, name: &str, at: At) {
        let declared = self.btf.declare(id, name);
        let Some(body) = self.btf.written_out(id, at.levels).filter(|_| at.depth > 0) else {
            return self.push(&declared);
        };
        let head = self.head(&body.ty);
        // How the declaration names it.
        let word = match (body.alias, body.ty.name()) {
            (Some(alias), _) => alias,
            (None, None) => BODY,
            (None, Some(_)) => head.trim_end(),
        };
        let Some((before, after)) = declared.split_once(word) else { return self.push(&declared) };
        self.push(before);
        match body.alias {
            Some(alias) => self.write(format_args!("/* {alias} */ {head}")),
            // The keyword stands before what stands for the body.
            None if body.ty.name().is_none() => {}
            None => self.push(&head),
        }
        let at = At {
            base: if body.direct { at.base } else { Some(0) },
            depth: at.depth - 1,
            levels: at.levels - u32::from(body.is_named()),
            ..at
        };
        self.body(&body.ty, at);
        self.push(after);
    }

    /// From `{` to `}`.
    fn body(&mut self, ty: &Type<'_>, at: At) {
        self.push("{\n");
        let inner = At { indent: at.indent + 1, ..at };
        if ty.kind().is_enum() {
            for e in ty.enumerators() {
                if self.is_full() {
                    break;
                }
                self.indent(inner.indent);
                self.write(format_args!("{} = {},\n", e.name, e.value));
            }
            if ty.size() != Some(4) {
                self.indent(inner.indent);
                self.write(format_args!("/* size: {} */\n", ty.size().unwrap_or(0)));
            }
        } else {
            self.members(ty, inner);
        }
        self.indent(at.indent);
        self.push("}");
    }

    fn members(&mut self, ty: &Type<'_>, at: At) {
        // Where the last member ended, in bits from the beginning of this struct.
        let mut end = 0_u64;
        let (mut holes, mut sum) = (0_u32, 0_u64);
        for member in ty.members() {
            if self.is_full() {
                return;
            }
            let start = u64::from(member.bit_offset);
            if ty.kind() == Kind::Struct && start > end {
                self.hole(start - end, "hole", at.indent);
                holes += 1;
                sum += start - end;
            }
            let bits = match member.bitfield_size {
                0 => self.btf.size_of(member.ty).unwrap_or(0).saturating_mul(8),
                bits => bits.into(),
            };
            end = end.max(start.saturating_add(bits));
            self.member(&member, at);
        }
        let size = u64::from(ty.size().unwrap_or(0));
        let padding = match ty.kind() {
            Kind::Struct if ty.vlen() > 0 => (size * 8).saturating_sub(end),
            _ => 0,
        };
        self.hole(padding, "padding", at.indent);
        // An inner one has its size behind its closing bracket.
        if at.indent == 1 {
            self.write(format_args!("\n    /* size: {size}, members: {}", ty.vlen()));
            if holes > 0 {
                self.write(format_args!(", holes: {holes} ({})", Bits(sum)));
            }
            if padding > 0 {
                self.write(format_args!(", padding: {}", Bits(padding)));
            }
            if let Ok(align) = self.btf.align_of(ty.id()) {
                self.write(format_args!(", alignment: {align}"));
            }
            self.push(" */\n");
        }
    }

    fn member(&mut self, member: &Member<'_>, at: At) {
        self.indent(at.indent);
        let start = self.out.len();
        let base = at.base.unwrap_or(0);
        let offset = base.saturating_add(member.bit_offset);
        self.declaration(member.ty, member.name.unwrap_or_default(), At { base: Some(offset), ..at });
        if member.bitfield_size != 0 {
            self.write(format_args!(":{}", member.bitfield_size));
        }
        self.push(";");
        // The comment goes behind the last line of a member that has several.
        let line = match self.out.get(start..).and_then(|s| s.rsplit_once('\n')) {
            Some((_, last)) => last.chars().count(),
            None => self.out.get(start..).map_or(0, |s| s.chars().count()) + at.indent * 4,
        };
        let pad = COLUMN.saturating_sub(line).max(1);
        let size = self.btf.size_of(member.ty).unwrap_or(0);
        if member.bitfield_size != 0 {
            // The integers that hold bit-fields follow one another from the beginning of the struct that they are members of, as
            // pahole has it (class__fixup_btf_bitfields).
            let unit = u32::try_from(size.saturating_mul(8)).unwrap_or(0).max(8);
            let bit = member.bit_offset % unit;
            let byte = (offset - bit.min(offset)) / 8;
            self.write(format_args!("{:pad$}/* {byte:>5}:{bit:>2} {size:>2} */\n", ""));
        } else {
            self.write(format_args!("{:pad$}/* {:>5} {size:>5} */\n", "", offset / 8));
        }
    }

    fn hole(&mut self, bits: u64, what: &str, indent: usize) {
        if bits > 0 {
            self.indent(indent);
            self.write(format_args!("/* {what}: {} */\n", Bits(bits)));
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

/// A number of bits: in bytes if they are whole.
struct Bits(u64);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, unit) = if self.0.is_multiple_of(8) { (self.0 / 8, "byte") } else { (self.0, "bit") };
        write!(f, "{count} {unit}{}", if count == 1 { "" } else { "s" })
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
