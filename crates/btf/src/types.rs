//! One type record, read in place.

use std::ffi::CStr;
use std::fmt;

use crate::format::{self, TYPE_LEN, words};
use crate::open::Btf;

/// Longest name in bytes, its terminator included: `KSYM_NAME_LEN`, which `btf_name_valid_identifier` of `kernel/bpf/btf.c` goes
/// by.
const MAX_NAME: usize = 512;

/// A type's number within a BTF and its base. 0 is `void`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TypeId(pub u32);

impl TypeId {
    /// `void`.
    pub const VOID: TypeId = TypeId(0);
}

impl fmt::Display for TypeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What a type is: `BTF_KIND_*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Type 0.
    Void = 0,
    /// An integer, `char` and `_Bool` included.
    Int = 1,
    /// A pointer.
    Ptr = 2,
    /// An array.
    Array = 3,
    /// A struct.
    Struct = 4,
    /// A union.
    Union = 5,
    /// An enum of up to 32 bits.
    Enum = 6,
    /// A struct or union that is declared and not defined.
    Fwd = 7,
    /// A typedef.
    Typedef = 8,
    /// `volatile`.
    Volatile = 9,
    /// `const`.
    Const = 10,
    /// `restrict`.
    Restrict = 11,
    /// A function by name; its prototype is another type.
    Func = 12,
    /// A function's parameters and return type.
    FuncProto = 13,
    /// A variable.
    Var = 14,
    /// A section of variables.
    Datasec = 15,
    /// A floating-point number.
    Float = 16,
    /// `__attribute__((btf_decl_tag("…")))` on a declaration.
    DeclTag = 17,
    /// `__attribute__((btf_type_tag("…")))` on a type, such as `user` and `rcu`.
    TypeTag = 18,
    /// An enum of up to 64 bits.
    Enum64 = 19,
    /// A kind newer than this crate, skipped by means of the layout section.
    Unknown = 31,
}

impl Kind {
    pub(crate) const fn from_number(number: u32) -> Kind {
        match number {
            0 => Kind::Void,
            1 => Kind::Int,
            2 => Kind::Ptr,
            3 => Kind::Array,
            4 => Kind::Struct,
            5 => Kind::Union,
            6 => Kind::Enum,
            7 => Kind::Fwd,
            8 => Kind::Typedef,
            9 => Kind::Volatile,
            10 => Kind::Const,
            11 => Kind::Restrict,
            12 => Kind::Func,
            13 => Kind::FuncProto,
            14 => Kind::Var,
            15 => Kind::Datasec,
            16 => Kind::Float,
            17 => Kind::DeclTag,
            18 => Kind::TypeTag,
            19 => Kind::Enum64,
            _ => Kind::Unknown,
        }
    }

    /// Whether it only qualifies or renames another type: typedef, const, volatile, restrict, type tag.
    pub const fn is_modifier(self) -> bool {
        matches!(self, Kind::Typedef | Kind::Volatile | Kind::Const | Kind::Restrict | Kind::TypeTag)
    }

    /// Struct or union.
    pub const fn is_composite(self) -> bool {
        matches!(self, Kind::Struct | Kind::Union)
    }

    /// Enum of either width.
    pub const fn is_enum(self) -> bool {
        matches!(self, Kind::Enum | Kind::Enum64)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Void => "void",
            Kind::Int => "integer",
            Kind::Ptr => "pointer",
            Kind::Array => "array",
            Kind::Struct => "struct",
            Kind::Union => "union",
            Kind::Enum | Kind::Enum64 => "enum",
            Kind::Fwd => "forward declaration",
            Kind::Typedef => "typedef",
            Kind::Volatile => "volatile type",
            Kind::Const => "const type",
            Kind::Restrict => "restrict type",
            Kind::Func => "function",
            Kind::FuncProto => "function prototype",
            Kind::Var => "variable",
            Kind::Datasec => "section",
            Kind::Float => "floating-point type",
            Kind::DeclTag => "declaration tag",
            Kind::TypeTag => "type tag",
            Kind::Unknown => "type of an unknown kind",
        })
    }
}

/// A type, borrowed from its BTF: `struct btf_type` and what follows it.
#[derive(Clone, Copy)]
pub struct Type<'a> {
    btf: &'a Btf,
    id: TypeId,
    kind: Kind,
    name_off: u32,
    info: u32,
    /// Size in bytes or the type referred to, by kind.
    word: u32,
    tail: &'a [u8],
}

impl fmt::Debug for Type<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}] {:?} {}", self.id, self.kind, self.name().unwrap_or("(anon)"))
    }
}

/// What an integer's bytes mean: the word that follows a `BTF_KIND_INT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IntEncoding {
    /// `BTF_INT_SIGNED`.
    pub signed: bool,
    /// `BTF_INT_CHAR`. (Compilers do not set it for `char`: go by the name.)
    pub char: bool,
    /// `BTF_INT_BOOL`.
    pub bool: bool,
    /// Bits of the value; less than 8 times the size in a bit-field of old BTF.
    pub bits: u8,
    /// Bits to skip before the value; 0 but in a bit-field of old BTF.
    pub offset: u8,
}

/// `struct btf_array`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Array {
    /// Type of an element.
    pub element: TypeId,
    /// Type of the index, an integer.
    pub index: TypeId,
    /// Number of elements; 0 for a flexible array.
    pub len: u32,
}

/// `struct btf_member`: a member of a struct or union.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its name; `None` for an anonymous struct or union (and an unnamed bit-field).
    pub name: Option<&'a str>,
    /// Its type.
    pub ty: TypeId,
    /// Where it begins, in bits from the beginning of the struct.
    pub bit_offset: u32,
    /// Its width in bits if it is a bit-field, else 0.
    pub bitfield_size: u8,
}

/// `struct btf_param`: a parameter of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParamRef<'a> {
    /// Its name, if it has one.
    pub name: Option<&'a str>,
    /// Its type. A last parameter without a name of type `void` stands for `...`.
    pub ty: TypeId,
}

/// `struct btf_enum` or `struct btf_enum64`: a name of an enum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enumerator<'a> {
    /// The name; empty only in malformed BTF.
    pub name: &'a str,
    /// The value, signed or unsigned as the enum is.
    pub value: i128,
}

/// `struct btf_var_secinfo`: a variable in a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecVar {
    /// The variable: a type of kind [`Kind::Var`].
    pub var: TypeId,
    /// Its offset in the section, in bytes.
    pub offset: u32,
    /// Its size in bytes.
    pub size: u32,
}

impl<'a> Type<'a> {
    /// Type 0.
    pub(crate) fn void(btf: &'a Btf) -> Type<'a> {
        Type { btf, id: TypeId::VOID, kind: Kind::Void, name_off: 0, info: 0, word: 0, tail: &[] }
    }

    /// The record at `at`. `None` if it does not lie within `types`; opening has made sure it does.
    pub(crate) fn read(btf: &'a Btf, id: TypeId, types: &'a [u8], at: usize) -> Option<Type<'a>> {
        let (head, rest) = types.get(at..)?.split_first_chunk::<TYPE_LEN>()?;
        let [name_off, info, word] = words(head);
        let kind = Kind::from_number(format::info_kind(info));
        let (once, each) = format::tail_of(kind);
        let len = once as usize + each as usize * format::info_vlen(info) as usize;
        Some(Type { btf, id, kind, name_off, info, word, tail: rest.get(..len)? })
    }

    /// Its number.
    pub fn id(&self) -> TypeId {
        self.id
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Its name; `None` if it has none (anonymous, a pointer, an array, …), or one that the kernel would not load: of 512 bytes or
    /// more, or not UTF-8.
    pub fn name(&self) -> Option<&'a str> {
        self.btf.name_at(self.name_off)
    }

    /// Size in bytes as written in the record: integers, structs, unions, enums, floats and sections; `None` for the others
    /// ([`Btf::size_of`] follows them).
    pub fn size(&self) -> Option<u32> {
        matches!(
            self.kind,
            Kind::Int | Kind::Struct | Kind::Union | Kind::Enum | Kind::Enum64 | Kind::Float | Kind::Datasec
        )
        .then_some(self.word)
    }

    /// The type it refers to: pointee, aliased or qualified type, a function's prototype, a prototype's return type, a variable's
    /// type, what a tag is on, an array's element. `None` for the others.
    pub fn target(&self) -> Option<TypeId> {
        match self.kind {
            Kind::Ptr
            | Kind::Typedef
            | Kind::Volatile
            | Kind::Const
            | Kind::Restrict
            | Kind::Func
            | Kind::FuncProto
            | Kind::Var
            | Kind::DeclTag
            | Kind::TypeTag => Some(TypeId(self.word)),
            Kind::Array => self.array().map(|a| a.element),
            _ => None,
        }
    }

    /// The number of members, enumerators, parameters or variables.
    pub fn vlen(&self) -> u32 {
        format::info_vlen(self.info)
    }

    /// An integer's encoding.
    pub fn int(&self) -> Option<IntEncoding> {
        if self.kind != Kind::Int {
            return None;
        }
        let [word] = words(self.tail);
        let encoding = (word >> 24) & 0xf;
        Some(IntEncoding {
            signed: encoding & 1 != 0,
            char: encoding & 2 != 0,
            bool: encoding & 4 != 0,
            bits: word as u8,
            offset: (word >> 16) as u8,
        })
    }

    /// Whether an integer is signed. Of `signed char` the name says so where the encoding does not, as in kernels before 6.1.
    pub fn is_signed_int(&self) -> bool {
        let by_name = || self.size() == Some(1) && self.name() == Some("signed char");
        self.int().is_some_and(|int| int.signed || by_name())
    }

    /// An array's element, index and length.
    pub fn array(&self) -> Option<Array> {
        if self.kind != Kind::Array {
            return None;
        }
        let [element, index, len] = words(self.tail);
        Some(Array { element: TypeId(element), index: TypeId(index), len })
    }

    /// The members of a struct or union, in order; nothing for other kinds.
    ///
    /// Bit-fields of old BTF, whose width lies in their integer type, come out like those of new.
    pub fn members(&self) -> impl ExactSizeIterator<Item = Member<'a>> + use<'a> {
        let tail = if self.kind.is_composite() { self.tail } else { &[] };
        let (btf, kflag) = (self.btf, format::info_kflag(self.info));
        tail.chunks_exact(12).map(move |record| {
            let [name, ty, offset] = words(record);
            let (name, ty) = (btf.name_at(name), TypeId(ty));
            if kflag {
                // BTF_MEMBER_BIT_OFFSET and BTF_MEMBER_BITFIELD_SIZE.
                let (bit_offset, bitfield_size) = (offset & 0x00ff_ffff, (offset >> 24) as u8);
                return Member { name, ty, bit_offset, bitfield_size };
            }
            let (skip, bitfield_size) = btf.old_bitfield(ty).unwrap_or((0, 0));
            Member { name, ty, bit_offset: offset.saturating_add(skip), bitfield_size }
        })
    }

    /// The parameters of a prototype, a `...` included as a last one without name and type; nothing for other kinds.
    pub fn params(&self) -> impl ExactSizeIterator<Item = ParamRef<'a>> + use<'a> {
        let tail = if self.kind == Kind::FuncProto { self.tail } else { &[] };
        let btf = self.btf;
        tail.chunks_exact(8).map(move |record| {
            let [name, ty] = words(record);
            ParamRef { name: btf.name_at(name), ty: TypeId(ty) }
        })
    }

    /// The names of an enum of either width; nothing for other kinds.
    pub fn enumerators(&self) -> impl ExactSizeIterator<Item = Enumerator<'a>> + use<'a> {
        let (btf, signed) = (self.btf, self.is_signed_enum());
        let (tail, step) = self.enumerator_records();
        tail.chunks_exact(step).map(move |record| {
            let [name, low, high] = words(record);
            let value = match (step, signed) {
                (8, true) => i128::from(low as i32),
                (8, false) => i128::from(low),
                (_, true) => i128::from(((u64::from(high) << 32) | u64::from(low)) as i64),
                (_, false) => i128::from((u64::from(high) << 32) | u64::from(low)),
            };
            Enumerator { name: btf.name_at(name).unwrap_or(""), value }
        })
    }

    /// The bytes of an enum's records and the length of each.
    pub(crate) fn enumerator_records(&self) -> (&'a [u8], usize) {
        match self.kind {
            Kind::Enum => (self.tail, 8),
            Kind::Enum64 => (self.tail, 12),
            _ => (&[], 8),
        }
    }

    /// Whether an enum has signed values: `kind_flag`. (Before 6.0 it was not written, and read as unsigned; a value of -1
    /// then shows as 4294967295.)
    pub fn is_signed_enum(&self) -> bool {
        self.kind.is_enum() && format::info_kflag(self.info)
    }

    /// Whether a forward declaration is of a union: `kind_flag`.
    pub fn is_union_fwd(&self) -> bool {
        self.kind == Kind::Fwd && format::info_kflag(self.info)
    }

    /// The variables of a section; nothing for other kinds.
    pub fn section_vars(&self) -> impl ExactSizeIterator<Item = SecVar> + use<'a> {
        let tail = if self.kind == Kind::Datasec { self.tail } else { &[] };
        tail.chunks_exact(12).map(|record| {
            let [var, offset, size] = words(record);
            SecVar { var: TypeId(var), offset, size }
        })
    }

    /// A function's or variable's linkage: `BTF_FUNC_STATIC` (0), `BTF_FUNC_GLOBAL` (1), `BTF_FUNC_EXTERN` (2).
    pub fn linkage(&self) -> Option<u32> {
        match self.kind {
            Kind::Func => Some(self.vlen()),
            Kind::Var => {
                let [linkage] = words(self.tail);
                Some(linkage)
            }
            _ => None,
        }
    }

    /// Which parameter or member a declaration tag is on; `None` for the whole declaration.
    pub fn component(&self) -> Option<u32> {
        let [index] = words(self.tail);
        (self.kind == Kind::DeclTag && index != u32::MAX).then_some(index)
    }
}

impl Btf {
    /// A name of a type, member, parameter or enumerator.
    ///
    /// It is looked at no further than names are long: a million enumerators may share one string of a megabyte.
    pub(crate) fn name_at(&self, offset: u32) -> Option<&str> {
        if offset == 0 {
            return None;
        }
        let tail = self.string_tail(offset)?;
        let name = CStr::from_bytes_until_nul(tail.get(..MAX_NAME).unwrap_or(tail)).ok()?;
        name.to_str().ok().filter(|n| !n.is_empty())
    }

    /// What an integer narrower than its bytes says of the bit-field it types: bits to skip, and width.
    fn old_bitfield(&self, ty: TypeId) -> Option<(u32, u8)> {
        let ty = self.get(self.resolve(ty)).ok()?;
        let int = ty.int()?;
        let whole = u64::from(ty.size()?) * 8 == u64::from(int.bits) && int.offset == 0;
        (!whole && int.bits != 0).then_some((u32::from(int.offset), int.bits))
    }
}
