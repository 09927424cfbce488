//! Following types: through typedefs and qualifiers, to sizes, members and prototypes.

use crate::error::Error;
use crate::open::Btf;
use crate::types::{Kind, Type, TypeId};

/// No chain of typedefs, qualifiers, pointers, arrays and nested structs that a compiler writes is longer
/// (the kernel's verifier allows 32: `MAX_RESOLVE_DEPTH`).
pub(crate) const MAX_DEPTH: u32 = 64;

/// No question looks at more members than this.
pub(crate) const MAX_STEPS: u32 = 1 << 18;

/// Size of a pointer in bytes: the kernels this is for are 64-bit.
pub(crate) const POINTER: u64 = 8;

/// A function's parameters and result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proto {
    /// The parameters in order, a `...` not among them.
    pub params: Vec<Param>,
    /// What it returns; 0 for `void`.
    pub ret: TypeId,
    /// Whether the parameters end in `...`.
    pub variadic: bool,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name; empty if it has none.
    pub name: String,
    /// Its type.
    pub ty: TypeId,
}

/// Where a member lies in a struct, and what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberRef {
    /// Bits from the beginning of the outermost struct.
    pub bit_offset: u32,
    /// Width in bits if it is a bit-field, else 0.
    pub bitfield_size: u8,
    /// Its type.
    pub ty: TypeId,
}

impl MemberRef {
    /// Whole bytes from the beginning of the outermost struct; a bit-field begins `bit_offset % 8` bits later.
    pub fn byte_offset(&self) -> u32 {
        self.bit_offset / 8
    }
}

/// What a pointer to `char` is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CharPtr {
    /// The characters are `const`: more likely text than a buffer.
    pub is_const: bool,
    /// The pointer is tagged `__user` (kernels built by a compiler that writes type tags).
    pub is_user: bool,
}

impl Btf {
    /// The type behind typedefs, const, volatile, restrict and type tags.
    ///
    /// A chain longer than 64, which only malformed BTF has, ends where it is; so does one that leads to no type.
    pub fn resolve(&self, id: TypeId) -> TypeId {
        let mut id = id;
        for _ in 0..MAX_DEPTH {
            match self.get(id) {
                Ok(ty) if ty.kind().is_modifier() => id = ty.target().unwrap_or_default(),
                _ => break,
            }
        }
        id
    }

    /// [`Btf::resolve`], and the type itself.
    pub(crate) fn resolved(&self, id: TypeId) -> Result<Type<'_>, Error> {
        let ty = self.get(self.resolve(id))?;
        if ty.kind().is_modifier() {
            return Err(Error::TooDeep(id.0));
        }
        Ok(ty)
    }

    /// Size in bytes, as `sizeof`.
    ///
    /// # Errors
    /// [`Error::NoSize`] for `void`, functions and forward declarations; [`Error::TooDeep`] and [`Error::TooLarge`] for what only
    /// malformed BTF has.
    pub fn size_of(&self, id: TypeId) -> Result<u64, Error> {
        let (mut ty, mut times) = (self.resolved(id)?, 1_u64);
        for _ in 0..MAX_DEPTH {
            let size = match ty.kind() {
                Kind::Ptr => POINTER,
                Kind::Array => {
                    let array = ty.array().ok_or(Error::NoType(id.0))?;
                    times = times.checked_mul(array.len.into()).ok_or(Error::TooLarge(id.0))?;
                    ty = self.resolved(array.element)?;
                    continue;
                }
                Kind::Var => {
                    ty = self.resolved(ty.target().unwrap_or_default())?;
                    continue;
                }
                _ => match ty.size() {
                    Some(size) => size.into(),
                    None => return Err(Error::NoSize { name: self.type_name(id) }),
                },
            };
            return size.checked_mul(times).ok_or(Error::TooLarge(id.0));
        }
        Err(Error::TooDeep(id.0))
    }

    /// Alignment in bytes, as `_Alignof`. BTF does not write it down: it is worked out from the scalars inside, and is 1 for a
    /// struct that their alignment does not fit, which is a packed one.
    ///
    /// # Errors
    /// As [`Btf::size_of`].
    pub fn align_of(&self, id: TypeId) -> Result<u64, Error> {
        self.align(id, MAX_DEPTH, &mut MAX_STEPS.clone())
    }

    fn align(&self, id: TypeId, depth: u32, steps: &mut u32) -> Result<u64, Error> {
        let depth = depth.checked_sub(1).ok_or(Error::TooDeep(id.0))?;
        let ty = self.resolved(id)?;
        match ty.kind() {
            Kind::Ptr => Ok(POINTER),
            Kind::Array | Kind::Var => self.align(ty.target().unwrap_or_default(), depth, steps),
            Kind::Struct | Kind::Union => {
                let mut most = 1;
                let mut packed = false;
                for member in ty.members() {
                    *steps = steps.checked_sub(1).ok_or(Error::TooDeep(id.0))?;
                    let align = self.align(member.ty, depth, steps)?;
                    most = most.max(align);
                    packed |=
                        member.bitfield_size == 0 && !u64::from(member.bit_offset).is_multiple_of(align * 8);
                }
                packed |= !u64::from(ty.size().unwrap_or(0)).is_multiple_of(most);
                Ok(if packed { 1 } else { most })
            }
            _ => match ty.size() {
                Some(size) => Ok(u64::from(size).next_power_of_two().clamp(1, 16)),
                None => Err(Error::NoSize { name: self.type_name(id) }),
            },
        }
    }

    /// The prototype of a function ([`Kind::Func`]), of a prototype itself, or of what a function pointer points to.
    ///
    /// # Errors
    /// [`Error::WrongKind`] for anything else, [`Error::NoType`] if it leads nowhere.
    pub fn proto(&self, func_or_proto: TypeId) -> Result<Proto, Error> {
        let ty = self.proto_type(func_or_proto)?;
        let mut params: Vec<Param> =
            ty.params().map(|p| Param { name: p.name.unwrap_or_default().to_owned(), ty: p.ty }).collect();
        let variadic = params.last().is_some_and(|p| p.ty == TypeId::VOID && p.name.is_empty());
        if variadic {
            params.pop();
        }
        Ok(Proto { params, ret: ty.target().unwrap_or_default(), variadic })
    }

    fn proto_type(&self, id: TypeId) -> Result<Type<'_>, Error> {
        let mut ty = self.resolved(id)?;
        if matches!(ty.kind(), Kind::Func | Kind::Ptr) {
            ty = self.resolved(ty.target().unwrap_or_default())?;
        }
        if ty.kind() == Kind::FuncProto { Ok(ty) } else { Err(self.wrong_kind(id, "function")) }
    }

    /// An error that says what `id` is instead of what is wanted.
    pub(crate) fn wrong_kind(&self, id: TypeId, wanted: &'static str) -> Error {
        let found = self.get(self.resolve(id)).map_or(Kind::Unknown, |t| t.kind());
        Error::WrongKind { id: id.0, name: self.type_name(id), found, wanted }
    }

    /// The member `path` names in a struct or union: `"f_path.dentry"`. A `.` stays within the object; members of anonymous
    /// structs and unions are the outer one's, as in C.
    ///
    /// # Errors
    /// [`Error::NoMember`] if there is none of that name, [`Error::WrongKind`] if what stands before a `.` is not a struct or
    /// union (a pointer, say).
    pub fn member(&self, strukt: TypeId, path: &str) -> Result<MemberRef, Error> {
        let mut at = MemberRef { bit_offset: 0, bitfield_size: 0, ty: strukt };
        for name in path.split('.') {
            let ty = self.resolved(at.ty)?;
            if !ty.kind().is_composite() {
                return Err(self.wrong_kind(at.ty, "struct or union"));
            }
            let found = self.member_of(ty, name, MAX_DEPTH, &mut MAX_STEPS.clone())?;
            let Some(found) = found.filter(|_| !name.is_empty()) else {
                // Without qualifiers; but a typedef's name rather than `struct {...}`.
                let spelled = if ty.name().is_some() { ty.id() } else { at.ty };
                return Err(Error::NoMember { strukt: self.type_name(spelled), member: name.to_owned() });
            };
            let bit_offset = at.bit_offset.checked_add(found.bit_offset).ok_or(Error::TooLarge(at.ty.0))?;
            at = MemberRef { bit_offset, ..found };
        }
        Ok(at)
    }

    fn member_of(
        &self,
        strukt: Type<'_>,
        name: &str,
        depth: u32,
        steps: &mut u32,
    ) -> Result<Option<MemberRef>, Error> {
        let too_deep = || Error::TooDeep(strukt.id().0);
        let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
        for member in strukt.members() {
            *steps = steps.checked_sub(1).ok_or_else(too_deep)?;
            let here = MemberRef {
                bit_offset: member.bit_offset,
                bitfield_size: member.bitfield_size,
                ty: member.ty,
            };
            if member.name == Some(name) {
                return Ok(Some(here));
            }
            if member.name.is_some() {
                continue;
            }
            let inner = self.resolved(member.ty)?;
            if inner.kind().is_composite()
                && let Some(found) = self.member_of(inner, name, depth, steps)?
            {
                let bit_offset =
                    here.bit_offset.checked_add(found.bit_offset).ok_or(Error::TooLarge(strukt.id().0))?;
                return Ok(Some(MemberRef { bit_offset, ..found }));
            }
        }
        Ok(None)
    }

    /// Whether the type is a pointer to `char`, through typedefs on either side: likely text.
    ///
    /// `unsigned char *` and `signed char *` are bytes, not text.
    pub fn is_char_ptr(&self, id: TypeId) -> Option<CharPtr> {
        let ptr = self.resolved(id).ok().filter(|t| t.kind() == Kind::Ptr)?;
        let mut found = CharPtr { is_const: false, is_user: false };
        let mut ty = self.get(ptr.target()?).ok()?;
        for _ in 0..MAX_DEPTH {
            match ty.kind() {
                Kind::Const => found.is_const = true,
                Kind::TypeTag => found.is_user |= ty.name() == Some("user"),
                kind if kind.is_modifier() => {}
                _ => break,
            }
            ty = self.get(ty.target()?).ok()?;
        }
        is_char(&ty).then_some(found)
    }

    /// Whether the type is a pointer tagged `__user`. Kernels built by gcc before 16 do not write the tag.
    pub fn is_user_ptr(&self, id: TypeId) -> bool {
        let Some(ptr) = self.resolved(id).ok().filter(|t| t.kind() == Kind::Ptr) else { return false };
        let mut next = ptr.target();
        for _ in 0..MAX_DEPTH {
            let Some(ty) = next.and_then(|id| self.get(id).ok()) else { return false };
            match ty.kind() {
                Kind::TypeTag if ty.name() == Some("user") => return true,
                kind if kind.is_modifier() => next = ty.target(),
                _ => return false,
            }
        }
        false
    }
}

/// Whether the type is plain `char`: by its name, as compilers give it the encoding of a signed or unsigned integer.
pub(crate) fn is_char(ty: &Type<'_>) -> bool {
    ty.kind() == Kind::Int && ty.size() == Some(1) && ty.name() == Some("char")
}
