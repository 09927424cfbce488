//! Writing BTF: the small blob a generated BPF program is loaded with.

use std::collections::HashMap;

use crate::format::{HEADER_LEN, MAGIC, VERSION};
use crate::open::Btf;
use crate::types::{Kind, TypeId};

/// Who sees a function or a variable: `BTF_FUNC_*`, `BTF_VAR_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Linkage {
    /// Its own object only; the verifier checks a static subprogram with each call.
    Static = 0,
    /// Everyone; the verifier checks a global subprogram by itself.
    Global = 1,
    /// Defined elsewhere.
    Extern = 2,
}

/// A member of a struct to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewMember<'a> {
    /// Its name; empty for an anonymous struct or union.
    pub name: &'a str,
    /// Its type.
    pub ty: TypeId,
    /// Bits from the beginning of the struct.
    pub bit_offset: u32,
    /// Width in bits of a bit-field, else 0.
    pub bitfield_size: u8,
}

impl<'a> NewMember<'a> {
    /// A member that is no bit-field, `offset` bytes from the beginning.
    pub fn at(name: &'a str, ty: TypeId, offset: u32) -> NewMember<'a> {
        NewMember { name, ty, bit_offset: offset.saturating_mul(8), bitfield_size: 0 }
    }
}

/// Writes BTF, a type at a time. Each method returns the new type's id; types may refer to ids not yet given.
///
/// Nothing is checked: [`Btf::from_bytes`] and the kernel do that. What does not fit a field of the format is cut to it.
#[derive(Debug)]
pub struct Builder {
    types: Vec<u8>,
    strings: Vec<u8>,
    offsets: HashMap<String, u32>,
    next_id: u32,
    first_string: u32,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// An empty one: the next id is 1, the empty string is at 0.
    pub fn new() -> Builder {
        Builder { types: Vec::new(), strings: vec![0], offsets: HashMap::new(), next_id: 1, first_string: 0 }
    }

    /// An empty one on top of `base`, for [`Btf::from_bytes_split`]: the next id is `base.len()`.
    pub fn split(base: &Btf) -> Builder {
        Builder {
            next_id: base.len(),
            first_string: base.string_end(),
            strings: Vec::new(),
            ..Builder::new()
        }
    }

    /// The offset of a string, which is added if it is new. A NUL inside ends it.
    pub fn string(&mut self, s: &str) -> u32 {
        let s = s.split('\0').next().unwrap_or_default();
        if s.is_empty() {
            return 0;
        }
        if let Some(at) = self.offsets.get(s) {
            return *at;
        }
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend_from_slice(s.as_bytes());
        self.strings.push(0);
        self.offsets.insert(s.to_owned(), at);
        at
    }

    /// An integer of `size` bytes.
    pub fn int(&mut self, name: &str, size: u32, signed: bool) -> TypeId {
        self.int_with(name, size, u32::from(signed))
    }

    /// A `_Bool` of one byte.
    pub fn bool(&mut self, name: &str) -> TypeId {
        self.int_with(name, 1, 4)
    }

    fn int_with(&mut self, name: &str, size: u32, encoding: u32) -> TypeId {
        let id = self.record(Kind::Int, name, 0, false, size);
        self.words(&[(encoding << 24) | ((size * 8) & 0xff)]);
        id
    }

    /// A floating-point number of `size` bytes.
    pub fn float(&mut self, name: &str, size: u32) -> TypeId {
        self.record(Kind::Float, name, 0, false, size)
    }

    /// A pointer to `target`.
    pub fn ptr(&mut self, target: TypeId) -> TypeId {
        self.record(Kind::Ptr, "", 0, false, target.0)
    }

    /// A typedef.
    pub fn typedef(&mut self, name: &str, target: TypeId) -> TypeId {
        self.record(Kind::Typedef, name, 0, false, target.0)
    }

    /// A qualified type: `kind` is [`Kind::Const`], [`Kind::Volatile`] or [`Kind::Restrict`].
    pub fn qualified(&mut self, kind: Kind, target: TypeId) -> TypeId {
        self.record(kind, "", 0, false, target.0)
    }

    /// A type tag, such as `user`.
    pub fn type_tag(&mut self, tag: &str, target: TypeId) -> TypeId {
        self.record(Kind::TypeTag, tag, 0, false, target.0)
    }

    /// A declaration tag on all of `target`, or on its parameter or member number `component`.
    pub fn decl_tag(&mut self, tag: &str, target: TypeId, component: Option<u32>) -> TypeId {
        let id = self.record(Kind::DeclTag, tag, 0, false, target.0);
        self.words(&[component.unwrap_or(u32::MAX)]);
        id
    }

    /// An array of `len` elements; `index` is the type of an index, some integer.
    pub fn array(&mut self, element: TypeId, index: TypeId, len: u32) -> TypeId {
        let id = self.record(Kind::Array, "", 0, false, 0);
        self.words(&[element.0, index.0, len]);
        id
    }

    /// A struct of `size` bytes; the name may be empty.
    pub fn strukt(&mut self, name: &str, size: u32, members: &[NewMember<'_>]) -> TypeId {
        self.composite(Kind::Struct, name, size, members)
    }

    /// A union of `size` bytes; the name may be empty.
    pub fn union(&mut self, name: &str, size: u32, members: &[NewMember<'_>]) -> TypeId {
        self.composite(Kind::Union, name, size, members)
    }

    fn composite(&mut self, kind: Kind, name: &str, size: u32, members: &[NewMember<'_>]) -> TypeId {
        let bitfields = members.iter().any(|m| m.bitfield_size != 0);
        let id = self.record(kind, name, members.len(), bitfields, size);
        for m in members {
            let offset = if bitfields {
                (u32::from(m.bitfield_size) << 24) | (m.bit_offset & 0x00ff_ffff)
            } else {
                m.bit_offset
            };
            let name = self.string(m.name);
            self.words(&[name, m.ty.0, offset]);
        }
        id
    }

    /// A struct or union that is declared only.
    pub fn fwd(&mut self, name: &str, is_union: bool) -> TypeId {
        self.record(Kind::Fwd, name, 0, is_union, 0)
    }

    /// An enum of `size` bytes (4, or less if packed). Values are cut to 32 bits.
    pub fn enumeration(&mut self, name: &str, size: u32, signed: bool, values: &[(&str, i64)]) -> TypeId {
        let id = self.record(Kind::Enum, name, values.len(), signed, size);
        for (name, value) in values {
            let name = self.string(name);
            self.words(&[name, *value as u32]);
        }
        id
    }

    /// An enum of eight bytes; an unsigned value is given as the `i64` of the same bits.
    pub fn enumeration64(&mut self, name: &str, signed: bool, values: &[(&str, i64)]) -> TypeId {
        let id = self.record(Kind::Enum64, name, values.len(), signed, 8);
        for (name, value) in values {
            let name = self.string(name);
            self.words(&[name, *value as u32, (*value >> 32) as u32]);
        }
        id
    }

    /// A prototype. A last parameter `("", TypeId(0))` stands for `...`.
    pub fn func_proto(&mut self, ret: TypeId, params: &[(&str, TypeId)]) -> TypeId {
        let id = self.record(Kind::FuncProto, "", params.len(), false, ret.0);
        for (name, ty) in params {
            let name = self.string(name);
            self.words(&[name, ty.0]);
        }
        id
    }

    /// A function with a prototype.
    pub fn func(&mut self, name: &str, proto: TypeId, linkage: Linkage) -> TypeId {
        self.record(Kind::Func, name, linkage as usize, false, proto.0)
    }

    /// A variable.
    pub fn var(&mut self, name: &str, ty: TypeId, linkage: Linkage) -> TypeId {
        let id = self.record(Kind::Var, name, 0, false, ty.0);
        self.words(&[linkage as u32]);
        id
    }

    /// A section of `size` bytes that holds variables, each with its offset and its size in bytes.
    pub fn datasec(&mut self, name: &str, size: u32, vars: &[(TypeId, u32, u32)]) -> TypeId {
        let id = self.record(Kind::Datasec, name, vars.len(), false, size);
        for (var, offset, size) in vars {
            self.words(&[var.0, *offset, *size]);
        }
        id
    }

    /// The blob: what `BPF_BTF_LOAD` takes.
    pub fn finish(self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        let mut out = Vec::with_capacity(HEADER_LEN as usize + self.types.len() + self.strings.len());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[VERSION, 0]);
        for word in [HEADER_LEN, 0, types, types, strings] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.types);
        out.extend_from_slice(&self.strings);
        out
    }

    fn record(&mut self, kind: Kind, name: &str, vlen: usize, kflag: bool, word: u32) -> TypeId {
        let name = self.string(name);
        let info = (u32::from(kflag) << 31) | ((kind as u32) << 24) | (vlen as u32 & 0x00ff_ffff);
        self.words(&[name, info, word]);
        let id = TypeId(self.next_id);
        self.next_id += 1;
        id
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
    }
}
