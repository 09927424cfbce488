//! Members, elements, and what pointers point to.

use super::{Checker, Item};
use crate::ast::{Node, NodeKind, TypeName};
use crate::error::{Error, Span, nearest};
use crate::tree::{Base, Bits, Expr, Kind, Place};
use crate::types::{Tid, Ty};
use btf::{Btf, Kind as BtfKind, TypeId};

impl Checker<'_> {
    pub(super) fn member(
        &self,
        of: &Node,
        arrow: bool,
        name: &str,
        at: Span,
        span: Span,
    ) -> Result<Item, Error> {
        let item = self.item(of)?;
        let place = match item {
            Item::Place(place) if !arrow && !matches!(place.ty, Ty::Ptr(_)) => place,
            Item::Place(Place { ty: Ty::Composite(_), .. }) => {
                return Err(Error::new(at, format!("this is a structure, not a pointer: use '.{name}'")));
            }
            item => {
                let value = self.value_of(item, of.span)?;
                match (&value.ty, arrow) {
                    (Ty::Ptr(to), true) if matches!(**to, Ty::Ptr(_)) => {
                        let what = self.a(to);
                        let message = format!(
                            "this points to {what}, which has no members: write (*…)->{name} or …[0]->{name}"
                        );
                        return Err(Error::new(of.span, message));
                    }
                    (Ty::Ptr(to), true) if to.is_scalar() => {
                        let message = format!("this points to {}, which has no members", self.a(to));
                        return Err(Error::new(of.span, message));
                    }
                    (Ty::Ptr(_), true) => self.pointed_to(value)?,
                    (Ty::Ptr(_), false) => {
                        return Err(Error::new(at, format!("this is a pointer: use '->{name}'")));
                    }
                    (ty, _) => return Err(self.no_members(ty, of.span)),
                }
            }
        };
        let Ty::Composite(strukt) = place.ty else { return Err(self.no_members(&place.ty, of.span)) };
        self.member_at(place, strukt, name, at, span).map(Item::Place)
    }

    fn no_members(&self, ty: &Ty, span: Span) -> Error {
        Error::new(
            span,
            match ty {
                Ty::Incomplete(_) => format!("BTF does not tell what is in {}", self.name_of(ty)),
                Ty::Void => "this is a void *: cast it to a pointer to what it points to".into(),
                _ => format!("this is {}, which has no members", self.a(ty)),
            },
        )
    }

    /// The member `name` (or `a.b.c`) of the structure at a place.
    fn member_at(&self, place: Place, strukt: Tid, name: &str, at: Span, span: Span) -> Result<Place, Error> {
        let types = &self.scope.types;
        let Some(btf) = types.btf(strukt.space) else {
            return Err(Error::new(at, "its types are not at hand"));
        };
        let member = btf.member(strukt.id, name).map_err(|error| match error {
            btf::Error::NoMember { member, strukt: of } => {
                let inner = btf.type_name(strukt.id);
                let names = if of == inner { types.member_names(strukt) } else { Vec::new() };
                let hint = nearest(&member, names.iter().map(String::as_str));
                Error::new(at, format!("{of} has no member '{member}'{hint}"))
            }
            error => Error::new(at, error.to_string()),
        })?;
        let bits = (member.bitfield_size > 0)
            .then_some(Bits { shift: (member.bit_offset % 8) as u8, size: member.bitfield_size });
        let spelled = Tid { space: strukt.space, id: member.ty };
        let plain = place.plain && walks_alike(btf, strukt.id, member.bit_offset, name);
        Ok(Place {
            base: place.base,
            offset: place.offset + i64::from(member.bit_offset / 8),
            bits,
            ty: types.ty(spelled),
            spelled: Some(spelled),
            plain,
            span,
        })
    }

    /// What a pointer points to.
    fn pointed_to(&self, pointer: Expr) -> Result<Place, Error> {
        let span = pointer.span;
        let Ty::Ptr(to) = &pointer.ty else {
            let what = self.a(&pointer.ty);
            return Err(Error::new(span, format!("this is {what}, not a pointer")));
        };
        let ty = (**to).clone();
        // `*&e` is e.
        if let Kind::Address(place) = pointer.kind {
            return Ok(if place.ty == ty {
                *place
            } else {
                // Of an array its first element; anything else has been cast.
                let element = matches!(&place.ty, Ty::Array(element, _) if **element == ty);
                let plain = place.plain && element;
                Place { ty, spelled: None, bits: None, plain, ..*place }
            });
        }
        let spelled = pointer.spelled.and_then(|tid| {
            let btf = self.scope.types.btf(tid.space)?;
            let id = btf.get(btf.resolve(tid.id)).ok()?.target()?;
            Some(Tid { space: tid.space, id })
        });
        Ok(Place {
            base: Base::Memory(Box::new(pointer)),
            offset: 0,
            bits: None,
            ty,
            spelled,
            plain: true,
            span,
        })
    }

    pub(super) fn deref(&self, of: &Node, span: Span) -> Result<Item, Error> {
        let place = self.pointed_to(self.value(of)?)?;
        Ok(Item::Place(Place { span, ..place }))
    }

    pub(super) fn index(&self, of: &Node, index: &Node, span: Span) -> Result<Item, Error> {
        if let NodeKind::Special(name) = &of.kind
            && name == "args"
        {
            return match self.value(index)?.kind {
                Kind::Const(n) => self.arg(usize::try_from(n).unwrap_or(usize::MAX), span),
                _ => Err(Error::new(index.span, "which argument is to be a constant")),
            };
        }
        let of_item = self.item(of)?;
        let index = self.integer(index)?;
        if let Item::Place(place) = of_item {
            if let Ty::Array(element, len) = place.ty.clone() {
                return self.element(place, *element, len, index, span).map(Item::Place);
            }
            let value = self.value_of(Item::Place(place), of.span)?;
            return self.beyond(value, index, span);
        }
        let value = self.value_of(of_item, of.span)?;
        self.beyond(value, index, span)
    }

    /// `p[i]`
    fn beyond(&self, pointer: Expr, index: Expr, span: Span) -> Result<Item, Error> {
        if !matches!(pointer.ty, Ty::Ptr(_)) {
            let what = self.a(&pointer.ty);
            return Err(Error::new(pointer.span, format!("this is {what}, neither an array nor a pointer")));
        }
        let size = match &pointer.ty {
            Ty::Ptr(to) => self.scope.types.size(to),
            _ => None,
        };
        if let (Kind::Const(n), Some(size)) = (&index.kind, size) {
            let by = self.constant_offset(*n, size, index.span)?;
            let place = self.pointed_to(pointer)?;
            return Ok(Item::Place(Place { offset: place.offset + by, plain: false, span, ..place }));
        }
        let moved = self.offset(pointer, index, false, span)?;
        let place = self.pointed_to(moved)?;
        Ok(Item::Place(Place { span, ..place }))
    }

    /// `a[i]` of an array at a place.
    fn element(&self, place: Place, element: Ty, len: u32, index: Expr, span: Span) -> Result<Place, Error> {
        let Some(size) = self.scope.types.size(&element) else {
            return Err(Error::new(span, format!("{} has no size", self.name_of(&element))));
        };
        let spelled = place.spelled.and_then(|tid| {
            let btf = self.scope.types.btf(tid.space)?;
            let array = btf.get(btf.resolve(tid.id)).ok()?.array()?;
            Some(Tid { space: tid.space, id: array.element })
        });
        if let Kind::Const(n) = index.kind {
            // Arrays of one or none at a structure's end stand for what follows it.
            let bounded = len > 1 || matches!(place.base, Base::Value(_));
            if bounded && n >= u64::from(len) {
                let n = index.word().wrap(n).cast_signed();
                return Err(Error::new(
                    index.span,
                    format!("the array has {len} elements; there is no [{n}]"),
                ));
            }
            let by = self.constant_offset(n, size, index.span)?;
            let plain = place.plain && n < u64::from(len);
            return Ok(Place { offset: place.offset + by, ty: element, spelled, plain, span, ..place });
        }
        if matches!(place.base, Base::Value(_)) {
            return Err(Error::new(
                index.span,
                "of an array in a structure that is passed by value the index is a constant",
            ));
        }
        let array = self.address(place, element.pointer(), span)?;
        let moved = self.offset(array, index, false, span)?;
        let place = self.pointed_to(moved)?;
        Ok(Place { spelled, span, ..place })
    }

    fn constant_offset(&self, n: u64, size: u64, span: Span) -> Result<i64, Error> {
        /// Offsets that instructions hold are of 16 bits, and no object of the kernel is larger than this.
        const MOST: i64 = 1 << 28;
        let by = n.cast_signed().checked_mul(size.cast_signed()).filter(|by| (-MOST..=MOST).contains(by));
        by.ok_or_else(|| Error::new(span, "this element is too far away"))
    }

    pub(super) fn container_of(
        &self,
        pointer: &Node,
        name: &TypeName,
        member: &str,
        at: Span,
        span: Span,
    ) -> Result<Item, Error> {
        let ty = self.type_of(name)?;
        let Ty::Composite(strukt) = ty else {
            return Err(Error::new(name.span, format!("'{}' has no members", self.name_of(&ty))));
        };
        let pointer = self.value(pointer)?;
        let Ty::Ptr(of) = &pointer.ty else {
            return Err(Error::new(pointer.span, "the first of container_of() is a pointer"));
        };
        let nowhere = Expr::constant(0, ty.clone().pointer(), span);
        let whole = self.pointed_to(nowhere)?;
        let inner = self.member_at(whole, strukt, member, at, span)?;
        if inner.bits.is_some() {
            return Err(Error::new(at, "a bit-field has no address"));
        }
        if **of != Ty::Void && **of != inner.ty && !of.is_char() {
            let (is, wanted) = (self.a(of), self.a(&inner.ty));
            let message = format!("this points to {is}; '{member}' is {wanted}");
            return Err(Error::new(pointer.span, message));
        }
        // Relative to where the member lies, so that a NULL on the way is seen.
        let place = Place {
            base: Base::Memory(Box::new(pointer)),
            offset: -inner.offset,
            bits: None,
            ty: ty.clone(),
            spelled: None,
            plain: false,
            span,
        };
        Ok(Item::Value(self.address(place, ty.pointer(), span)?))
    }
}

/// Whether the verifier, which takes the first member of a union that reaches as far (`btf_struct_walk`, kernel/bpf/btf.c), comes to
/// the member that was named.
fn walks_alike(btf: &Btf, strukt: TypeId, bit_offset: u32, path: &str) -> bool {
    /// Structures inside one another.
    const DEPTH: u32 = 16;
    let mut steps = 4096;
    let mut at = strukt;
    let mut offset = 0;
    for name in path.split('.') {
        match descend(btf, at, bit_offset, offset, name, DEPTH, &mut steps) {
            Some((next, begins)) => (at, offset) = (next, begins),
            None => return false,
        }
    }
    true
}

/// The type of a member and where it begins, if the way to it is through first members of unions only.
fn descend(
    btf: &Btf,
    strukt: TypeId,
    target: u32,
    base: u32,
    name: &str,
    depth: u32,
    steps: &mut u32,
) -> Option<(TypeId, u32)> {
    let depth = depth.checked_sub(1)?;
    let ty = btf.get(btf.resolve(strukt)).ok()?;
    let is_union = ty.kind() == BtfKind::Union;
    for member in ty.members() {
        *steps = steps.checked_sub(1)?;
        let begins = base.checked_add(member.bit_offset)?;
        let found = match member.name {
            Some(n) => (n == name).then_some((member.ty, begins)),
            None => {
                let inner = btf.get(btf.resolve(member.ty)).ok()?;
                if inner.kind().is_composite() {
                    descend(btf, member.ty, target, begins, name, depth, steps)
                } else {
                    None
                }
            }
        };
        if found.is_some() {
            return found;
        }
        if is_union {
            let bytes = btf.size_of(member.ty).ok()?;
            let bits = if member.bitfield_size > 0 { u64::from(member.bitfield_size) } else { bytes * 8 };
            if u64::from(begins) + bits > u64::from(target) {
                return None;
            }
        }
    }
    None
}
