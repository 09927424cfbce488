//! C types as expressions have them: BTF's, without names and qualifiers, and those that operators make.

use crate::ast::BaseType;
use btf::{Btf, Kind, TypeId};

/// An integer type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IntTy {
    /// Bytes: 1, 2, 4 or 8.
    pub size: u8,
    /// Two's complement.
    pub signed: bool,
}

impl IntTy {
    /// `int`
    pub const INT: IntTy = IntTy { size: 4, signed: true };
    /// `unsigned int`
    pub const UINT: IntTy = IntTy { size: 4, signed: false };
    /// `long`, and `long long`
    pub const LONG: IntTy = IntTy { size: 8, signed: true };
    /// `unsigned long`
    pub const ULONG: IntTy = IntTy { size: 8, signed: false };

    /// The largest value.
    pub(crate) fn max(self) -> u64 {
        let bits = u32::from(self.size.min(8)) * 8;
        u64::MAX >> (64 - bits) >> u32::from(self.signed)
    }

    /// A value brought to this type: its lower bits, extended to 64 by their sign or by zeros.
    pub fn wrap(self, value: u64) -> u64 {
        let shift = 64 - u32::from(self.size.clamp(1, 8)) * 8;
        if self.signed {
            ((value << shift).cast_signed() >> shift).cast_unsigned()
        } else {
            value << shift >> shift
        }
    }

    /// C's integer promotions.
    pub fn promoted(self) -> IntTy {
        if self.size < 4 { IntTy::INT } else { self }
    }

    /// The type that C's usual arithmetic conversions bring two promoted ones to.
    pub fn common(self, other: IntTy) -> IntTy {
        let (a, b) = (self.promoted(), other.promoted());
        let size = a.size.max(b.size);
        // The wider one's sign; of equally wide ones unsigned prevails.
        let signed = [a, b].into_iter().filter(|t| t.size == size).all(|t| t.signed);
        IntTy { size, signed }
    }

    /// Its plain name in C.
    pub fn name(self) -> &'static str {
        match (self.size, self.signed) {
            (1, true) => "signed char",
            (1, false) => "unsigned char",
            (2, true) => "short",
            (2, false) => "unsigned short",
            (4, true) => "int",
            (4, false) => "unsigned int",
            (_, true) => "long",
            (_, false) => "unsigned long",
        }
    }
}

/// A type of one of several BTFs: a BPF program's functions have types of their own beside the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tid {
    /// Which BTF, by its place in [`Types`].
    pub space: u8,
    /// The type there.
    pub id: TypeId,
}

/// A type without qualifiers and typedefs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Ty {
    /// No value.
    Void,
    /// `_Bool`, one byte.
    Bool,
    /// Plain `char`, signed or not as its BTF's code was compiled.
    Char {
        /// Its sign.
        signed: bool,
    },
    /// An integer.
    Int(IntTy),
    /// An enum, with the integer that it is.
    Enum(Tid, IntTy),
    /// A pointer.
    Ptr(Box<Ty>),
    /// An array of that many; 0 for a flexible one.
    Array(Box<Ty>, u32),
    /// A struct or union.
    Composite(Tid),
    /// A struct or union that BTF only names.
    Incomplete(Tid),
    /// A function.
    Func(Tid),
    /// What no operator takes: floating-point numbers, integers of 16 bytes.
    Other(Tid),
}

impl Ty {
    /// `int`
    pub const INT: Ty = Ty::Int(IntTy::INT);
    /// `unsigned long`
    pub const ULONG: Ty = Ty::Int(IntTy::ULONG);

    /// A pointer to it.
    pub fn pointer(self) -> Ty {
        Ty::Ptr(Box::new(self))
    }

    /// The integer that its values are, if they are integers: `_Bool`, `char` and enums included.
    pub fn int(&self) -> Option<IntTy> {
        match self {
            Ty::Bool => Some(IntTy { size: 1, signed: false }),
            Ty::Char { signed } => Some(IntTy { size: 1, signed: *signed }),
            Ty::Int(int) | Ty::Enum(_, int) => Some(*int),
            _ => None,
        }
    }

    /// The integer that holds its value, if it is a number: of pointers `unsigned long`.
    pub fn word(&self) -> Option<IntTy> {
        if matches!(self, Ty::Ptr(_)) { Some(IntTy::ULONG) } else { self.int() }
    }

    /// Whether it is plain `char`.
    pub fn is_char(&self) -> bool {
        matches!(self, Ty::Char { .. })
    }

    /// Whether it is a number in a register: an integer or a pointer.
    pub fn is_scalar(&self) -> bool {
        self.word().is_some()
    }
}

/// The BTFs that an expression's types come from; names are looked for in their order.
#[derive(Clone, Debug)]
pub struct Types<'a> {
    spaces: Vec<&'a Btf>,
}

/// Pointers, arrays and names around a type that are followed.
const DEPTH: u32 = 32;

impl<'a> Types<'a> {
    /// The target's own first, then the kernel's if that is another.
    pub fn new(spaces: Vec<&'a Btf>) -> Types<'a> {
        Types { spaces }
    }

    /// The BTF of a type.
    pub fn btf(&self, space: u8) -> Option<&'a Btf> {
        self.spaces.get(space as usize).copied()
    }

    /// The number of the last one, the kernel's.
    pub fn kernel(&self) -> u8 {
        self.spaces.len().saturating_sub(1) as u8
    }

    /// Whether plain `char` is unsigned in the kernel.
    pub(crate) fn has_unsigned_char(&self) -> bool {
        self.btf(self.kernel()).is_some_and(Btf::has_unsigned_char)
    }

    /// Plain `char`, as the kernel has it.
    pub fn char(&self) -> Ty {
        Ty::Char { signed: !self.has_unsigned_char() }
    }

    /// Whether a type is `const unsigned char *`, by that very name.
    pub(crate) fn points_to_const_bytes(&self, tid: Tid) -> bool {
        let Some(btf) = self.btf(tid.space) else { return false };
        let Ok(pointer) = btf.get(btf.resolve(tid.id)) else { return false };
        let (mut next, mut is_const) = (pointer.target().filter(|_| pointer.kind() == Kind::Ptr), false);
        for _ in 0..DEPTH {
            let Some(ty) = next.and_then(|id| btf.get(id).ok()) else { return false };
            match ty.kind() {
                Kind::Const => is_const = true,
                Kind::Volatile | Kind::Restrict | Kind::TypeTag => {}
                _ => return is_const && ty.name() == Some("unsigned char"),
            }
            next = ty.target();
        }
        false
    }

    /// What a type is.
    pub fn ty(&self, tid: Tid) -> Ty {
        self.ty_within(tid, DEPTH)
    }

    fn ty_within(&self, tid: Tid, depth: u32) -> Ty {
        let (Some(depth), Some(btf)) = (depth.checked_sub(1), self.btf(tid.space)) else { return Ty::Void };
        let id = btf.resolve(tid.id);
        let here = Tid { space: tid.space, id };
        let Ok(ty) = btf.get(id) else { return Ty::Void };
        let target = || {
            let target = Tid { space: tid.space, id: ty.target().unwrap_or_default() };
            Box::new(self.ty_within(target, depth))
        };
        match ty.kind() {
            Kind::Int => match ty.int() {
                Some(int) if int.bool => Ty::Bool,
                Some(_) if ty.size() == Some(1) && ty.name() == Some("char") => {
                    Ty::Char { signed: !btf.has_unsigned_char() }
                }
                Some(_) => match ty.size() {
                    Some(size @ (1 | 2 | 4 | 8)) => {
                        Ty::Int(IntTy { size: size as u8, signed: ty.is_signed_int() })
                    }
                    _ => Ty::Other(here),
                },
                None => Ty::Other(here),
            },
            Kind::Enum | Kind::Enum64 => match ty.size() {
                Some(size @ (1 | 2 | 4 | 8)) => {
                    Ty::Enum(here, IntTy { size: size as u8, signed: ty.is_signed_enum() })
                }
                _ => Ty::Other(here),
            },
            Kind::Ptr => Ty::Ptr(target()),
            Kind::Array => match ty.array() {
                Some(array) => {
                    let element = Tid { space: tid.space, id: array.element };
                    Ty::Array(Box::new(self.ty_within(element, depth)), array.len)
                }
                None => Ty::Other(here),
            },
            Kind::Struct | Kind::Union => Ty::Composite(here),
            Kind::Fwd => self.whole(here, ty.name(), ty.is_union_fwd()),
            Kind::Func | Kind::FuncProto => Ty::Func(here),
            Kind::Void => Ty::Void,
            _ => Ty::Other(here),
        }
    }

    /// A struct that is only named here may be whole in another BTF.
    fn whole(&self, here: Tid, name: Option<&str>, union: bool) -> Ty {
        let kind = if union { Kind::Union } else { Kind::Struct };
        let found = name.and_then(|name| self.find(&[kind], name));
        found.map_or(Ty::Incomplete(here), Ty::Composite)
    }

    /// The first type of these kinds and that name.
    pub fn find(&self, kinds: &[Kind], name: &str) -> Option<Tid> {
        let in_space = |(space, btf): (usize, &&Btf)| {
            let wanted: Vec<(Kind, &str)> = kinds.iter().map(|kind| (*kind, name)).collect();
            let id = btf.find_many(&wanted).into_iter().flatten().next()?;
            Some(Tid { space: space as u8, id })
        };
        self.spaces.iter().enumerate().find_map(in_space)
    }

    /// A struct of the kernel's own.
    pub(crate) fn kernel_struct(&self, name: &str) -> Option<Tid> {
        let space = self.kernel();
        let id = self.btf(space)?.find(Kind::Struct, name)?;
        Some(Tid { space, id })
    }

    /// A variable of the kernel, and whether every CPU has one.
    pub(crate) fn kernel_variable(&self, name: &str) -> Option<(Tid, bool)> {
        let space = self.kernel();
        let btf = self.btf(space)?;
        let id = btf.find(Kind::Var, name)?;
        let per_cpu =
            btf.names(Kind::Datasec).filter(|(_, section)| section.contains("percpu")).any(|(section, _)| {
                btf.get(section).is_ok_and(|section| section.section_vars().any(|var| var.var == id))
            });
        Some((Tid { space, id }, per_cpu))
    }

    /// Enumerators that begin as this name does; for suggestions.
    pub(crate) fn enumerators_like(&self, name: &str) -> Vec<&'a str> {
        let prefix: String = name.chars().take(4).collect();
        let mut found = Vec::new();
        if prefix.len() < 4 {
            return found;
        }
        for (btf, kind) in self.spaces.iter().flat_map(|btf| [(btf, Kind::Enum), (btf, Kind::Enum64)]) {
            for ty in btf.ids_of(kind).filter_map(|id| btf.get(id).ok()) {
                found.extend(ty.enumerators().map(|e| e.name).filter(|n| n.starts_with(&prefix)));
            }
        }
        found
    }

    /// Names of these kinds that begin as this one does; for suggestions.
    pub(crate) fn names(&self, kinds: &[Kind], name: &str) -> Vec<&'a str> {
        let prefix: String = name.chars().take(2).collect();
        let mut found = Vec::new();
        for (btf, kind) in self.spaces.iter().flat_map(|btf| kinds.iter().map(move |kind| (btf, kind))) {
            found.extend(btf.names(*kind).map(|(_, n)| n).filter(|n| n.starts_with(&prefix)));
        }
        found
    }

    /// An enumerator's value and its enum.
    pub(crate) fn enumerator(&self, name: &str) -> Option<(Tid, u64)> {
        self.spaces.iter().enumerate().find_map(|(space, btf)| {
            let (id, enumerator) = btf.find_enumerators(&[name]).into_iter().next().flatten()?;
            Some((Tid { space: space as u8, id }, enumerator.value as u64))
        })
    }

    /// What a typedef stands for. Some that everybody knows are there whatever BTF has.
    pub(crate) fn typedef(&self, name: &str) -> Option<Ty> {
        let int = |size, signed| Some(Ty::Int(IntTy { size, signed }));
        match name {
            "u8" | "__u8" | "uint8_t" => int(1, false),
            "s8" | "__s8" | "int8_t" => int(1, true),
            "u16" | "__u16" | "uint16_t" | "__be16" | "__le16" => int(2, false),
            "s16" | "__s16" | "int16_t" => int(2, true),
            "u32" | "__u32" | "uint32_t" | "__be32" | "__le32" => int(4, false),
            "s32" | "__s32" | "int32_t" => int(4, true),
            "u64" | "__u64" | "uint64_t" | "__be64" | "__le64" | "size_t" | "uintptr_t" => int(8, false),
            "s64" | "__s64" | "int64_t" | "ssize_t" => int(8, true),
            "bool" => Some(Ty::Bool),
            _ => self.find(&[Kind::Typedef], name).map(|tid| self.ty(tid)),
        }
    }

    /// The type that a name without its pointers is.
    pub(crate) fn base(&self, base: &BaseType) -> Option<Ty> {
        let found = |kind: &[Kind], name: &str| self.find(kind, name).map(|tid| self.ty(tid));
        match base {
            BaseType::Struct(name) => found(&[Kind::Struct], name),
            BaseType::Union(name) => found(&[Kind::Union], name),
            BaseType::Enum(name) => found(&[Kind::Enum, Kind::Enum64], name),
            BaseType::Typedef(name) => self.typedef(name),
            BaseType::Void => Some(Ty::Void),
            BaseType::Bool => Some(Ty::Bool),
            BaseType::Char => Some(self.char()),
            BaseType::Int(int) => Some(Ty::Int(*int)),
        }
    }

    /// `sizeof`; `None` of what has no size.
    pub fn size(&self, ty: &Ty) -> Option<u64> {
        match ty {
            Ty::Ptr(_) => Some(8),
            Ty::Array(element, len) => self.size(element)?.checked_mul(u64::from(*len)),
            Ty::Composite(tid) | Ty::Other(tid) => self.btf(tid.space)?.size_of(tid.id).ok(),
            Ty::Void | Ty::Incomplete(_) | Ty::Func(_) => None,
            _ => ty.int().map(|int| int.size.into()),
        }
    }

    /// Its spelling in C.
    pub fn name(&self, ty: &Ty) -> String {
        self.declare(ty, String::new())
    }

    fn declare(&self, ty: &Ty, inner: String) -> String {
        let plain = |name: &str| if inner.is_empty() { name.to_string() } else { format!("{name} {inner}") };
        match ty {
            Ty::Void => plain("void"),
            Ty::Bool => plain("_Bool"),
            Ty::Char { .. } => plain("char"),
            Ty::Int(int) => plain(int.name()),
            Ty::Ptr(to) => match &**to {
                Ty::Array(..) => self.declare(to, format!("(*{inner})")),
                Ty::Func(tid) => self.btf(tid.space).map_or_else(
                    || plain("void *"),
                    |btf| {
                        let name = btf.type_name(tid.id);
                        match name.split_once('(') {
                            Some((ret, params)) => format!("{}(*{inner})({params}", ret),
                            None => format!("{name} (*{inner})"),
                        }
                    },
                ),
                _ => self.declare(to, format!("*{inner}")),
            },
            Ty::Array(element, len) => self.declare(element, format!("{inner}[{len}]")),
            Ty::Enum(tid, _) | Ty::Composite(tid) | Ty::Incomplete(tid) | Ty::Func(tid) | Ty::Other(tid) => {
                plain(&self.btf(tid.space).map_or_else(|| "?".into(), |btf| btf.type_name(tid.id)))
            }
        }
    }

    /// The members of a struct or union, anonymous ones looked into, as far as names go; for suggestions.
    pub(crate) fn member_names(&self, tid: Tid) -> Vec<String> {
        let mut names = Vec::new();
        self.collect_members(tid, 8, &mut names);
        names
    }

    fn collect_members(&self, tid: Tid, depth: u32, names: &mut Vec<String>) {
        /// More than any struct of a kernel has.
        const MOST: usize = 4096;
        let (Some(depth), Some(btf)) = (depth.checked_sub(1), self.btf(tid.space)) else { return };
        let Ok(ty) = btf.get(btf.resolve(tid.id)) else { return };
        for member in ty.members() {
            match member.name {
                _ if names.len() >= MOST => return,
                Some(name) => names.push(name.to_string()),
                None => self.collect_members(Tid { space: tid.space, id: member.ty }, depth, names),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_c_s() {
        let (int, uint, long, ulong) = (IntTy::INT, IntTy::UINT, IntTy::LONG, IntTy::ULONG);
        let short = IntTy { size: 2, signed: false };
        assert_eq!(short.promoted(), int);
        assert_eq!(short.common(short), int);
        assert_eq!(int.common(uint), uint);
        assert_eq!(uint.common(long), long);
        assert_eq!(ulong.common(long), ulong);
        assert_eq!(ulong.common(int), ulong);
        assert_eq!(long.common(short), long);
    }

    #[test]
    fn values_are_wrapped_to_their_type() {
        let byte = IntTy { size: 1, signed: true };
        assert_eq!(byte.wrap(0x180), (-128i64) as u64);
        assert_eq!(IntTy { size: 1, signed: false }.wrap(0x1ff), 0xff);
        assert_eq!(IntTy::UINT.wrap(u64::MAX), 0xffff_ffff);
        assert_eq!(IntTy::INT.wrap(0xffff_ffff), u64::MAX);
        assert_eq!(IntTy::LONG.wrap(5), 5);
        assert_eq!((IntTy::INT.max(), IntTy::ULONG.max(), byte.max()), (i32::MAX as u64, u64::MAX, 127));
    }
}
