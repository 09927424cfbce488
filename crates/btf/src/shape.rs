//! What the bytes of a type look like, told without the BTF it came from.

use crate::follow::{MAX_DEPTH, MAX_STEPS, POINTER, is_char};
use crate::open::Btf;
use crate::types::{Kind, Member, Type, TypeId};

/// How much of a value is shown. What is left out is said in the value itself: `… 12 more`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Structs and unions inside one another; deeper ones are `{…}`.
    pub depth: u32,
    /// Members in all, those of inner structs included.
    pub members: u32,
    /// Elements of each array. Text (`char[n]`) is always whole.
    pub elements: u32,
}

impl Default for Limits {
    /// 8 deep, 256 members, 32 elements.
    fn default() -> Limits {
        Limits { depth: 8, members: 256, elements: 32 }
    }
}

/// How the bytes of a value are read. Owns all it needs; made by [`Shape::of`], used by [`Shape::text`] and [`Shape::json`].
///
/// Values are little-endian, as in memory. Qualifiers and typedefs are gone; members of anonymous structs and unions are
/// members of the struct around them, as in C.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// No value: `void`.
    Void,
    /// An integer of `size` bytes (1 to 16).
    Int {
        /// Bytes.
        size: u8,
        /// Two's complement.
        signed: bool,
    },
    /// `_Bool` of `size` bytes; anything but 0 is true.
    Bool {
        /// Bytes.
        size: u8,
    },
    /// Plain `char`: `'a'`, or a number if it is not printable ASCII.
    Char {
        /// Whether that number is signed.
        signed: bool,
    },
    /// A pointer.
    Ptr {
        /// C spelling of the pointer's type, such as `struct dentry *`.
        ty: Box<str>,
        /// It points to a function.
        code: bool,
    },
    /// An enum of `size` bytes (1 to 8).
    Enum {
        /// Bytes.
        size: u8,
        /// Whether values are signed.
        signed: bool,
        /// Names by value.
        names: EnumNames,
    },
    /// A floating-point number of `size` bytes; 4 and 8 are read, others shown as hexadecimal digits.
    Float {
        /// Bytes.
        size: u8,
    },
    /// `char[len]`: text up to the first NUL or the array's end.
    Text {
        /// Bytes.
        len: u32,
    },
    /// An array of anything else.
    Array {
        /// An element.
        element: Box<Shape>,
        /// Bytes from one element to the next.
        stride: u32,
        /// Number of elements; 0 for a flexible array.
        len: u32,
        /// How many of them are shown at most.
        shown: u32,
    },
    /// A struct or union.
    Struct {
        /// Bytes.
        size: u32,
        /// Its members in order.
        fields: Box<[Field]>,
        /// Members that [`Limits::members`] left out.
        omitted: u32,
    },
    /// Something whose inside is not shown: too deep, or of a type that has no values.
    Opaque {
        /// Bytes.
        size: u32,
    },
}

/// A member of a [`Shape::Struct`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name, without control characters, quotes and backslashes.
    pub name: Box<str>,
    /// Bytes from the beginning of the struct.
    pub offset: u32,
    /// Which bits, if it is a bit-field.
    pub bits: Option<Bits>,
    /// What it is.
    pub shape: Shape,
}

/// The place of a bit-field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bits {
    /// Bits to skip from the lowest of the byte at [`Field::offset`]: 0 to 7.
    pub shift: u8,
    /// Width in bits: 1 to 64.
    pub size: u8,
}

/// The names of an enum, found by value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnumNames {
    /// Value (an unsigned one as the `i64` of the same bits), begin and end of its name in `text`; sorted by value.
    values: Box<[(i64, u32, u32)]>,
    text: Box<str>,
}

impl EnumNames {
    /// The names of `ty`, as far as the budget lasts; a value without a name shows as its number.
    fn of(ty: &Type<'_>, budget: &mut Budget) -> EnumNames {
        budget.steps = budget.steps.saturating_sub(ty.vlen());
        if budget.steps == 0 {
            return EnumNames::default();
        }
        let mut all: Vec<(i64, &str)> = ty.enumerators().map(|e| (e.value as i64, e.name)).collect();
        // The first name of a value is its own; later ones are usually marks such as `__FOO_MAX`.
        all.sort_by_key(|(value, _)| *value);
        all.dedup_by_key(|(value, _)| *value);
        let mut text = String::new();
        let mut values = Vec::with_capacity(all.len());
        for (value, name) in all.into_iter().filter(|(_, name)| !name.is_empty()) {
            let name = clean(name);
            let Some(left) = budget.names.checked_sub(name.len()) else { break };
            budget.names = left;
            let start = text.len() as u32;
            text.push_str(&name);
            values.push((value, start, text.len() as u32));
        }
        EnumNames { values: values.into(), text: text.into() }
    }

    /// The name of a value; an unsigned value beyond `i64::MAX` is given as the `i64` of the same bits.
    pub fn get(&self, value: i64) -> Option<&str> {
        let at = self.values.binary_search_by_key(&value, |(v, _, _)| *v).ok()?;
        let (_, start, end) = self.values.get(at)?;
        self.text.get(*start as usize..*end as usize)
    }
}

/// What is left of the limits, and of what no well-formed type uses up.
struct Budget {
    members: u32,
    elements: u32,
    steps: u32,
    /// Bytes of names of enums.
    names: usize,
}

/// Bytes of names of enums in a shape: a few times what the largest struct of a kernel has.
const MAX_NAMES: usize = 1 << 20;

impl Shape {
    /// The shape of values of a type.
    ///
    /// Never fails: a type without values (a function, a forward declaration, what malformed BTF has) is [`Shape::Opaque`].
    pub fn of(btf: &Btf, ty: TypeId, limits: &Limits) -> Shape {
        let mut budget =
            Budget { members: limits.members, elements: limits.elements, steps: MAX_STEPS, names: MAX_NAMES };
        shape_of(btf, ty, limits.depth.min(MAX_DEPTH), MAX_DEPTH, &mut budget)
    }

    /// Bytes of a whole value, as `sizeof`.
    pub fn size(&self) -> usize {
        match self {
            Shape::Void => 0,
            Shape::Int { size, .. }
            | Shape::Bool { size }
            | Shape::Enum { size, .. }
            | Shape::Float { size } => (*size).into(),
            Shape::Char { .. } => 1,
            Shape::Ptr { .. } => POINTER as usize,
            Shape::Text { len } => *len as usize,
            Shape::Array { stride, len, .. } => (*stride as usize).saturating_mul(*len as usize),
            Shape::Struct { size, .. } | Shape::Opaque { size } => *size as usize,
        }
    }

    /// Whether a value is, or has in it, a pointer to a function.
    pub fn has_code(&self) -> bool {
        match self {
            Shape::Ptr { code, .. } => *code,
            Shape::Array { element, .. } => element.has_code(),
            Shape::Struct { fields, .. } => fields.iter().any(|field| field.shape.has_code()),
            _ => false,
        }
    }

    /// Whether a value is one number: integer, bool, char, pointer, enum or float.
    pub fn is_scalar(&self) -> bool {
        matches!(
            self,
            Shape::Int { .. }
                | Shape::Bool { .. }
                | Shape::Char { .. }
                | Shape::Ptr { .. }
                | Shape::Enum { .. }
                | Shape::Float { .. }
        )
    }
}

/// `structs` counts the structs still allowed inside one another, `depth` types of any kind.
fn shape_of(btf: &Btf, id: TypeId, structs: u32, depth: u32, budget: &mut Budget) -> Shape {
    budget.steps = budget.steps.saturating_sub(1);
    let Ok(ty) = btf.resolved(id) else { return Shape::Opaque { size: 0 } };
    let size = ty.size().unwrap_or(0);
    let opaque = Shape::Opaque { size };
    let Some(depth) = depth.checked_sub(1).filter(|_| budget.steps > 0) else { return opaque };
    match ty.kind() {
        Kind::Void => Shape::Void,
        Kind::Int if is_char(&ty) => Shape::Char { signed: !btf.has_unsigned_char() },
        Kind::Int => match (ty.int(), u8::try_from(size)) {
            (Some(int), Ok(size @ 1..=16)) if int.bool => Shape::Bool { size },
            (Some(_), Ok(size @ 1..=16)) => Shape::Int { size, signed: ty.is_signed_int() },
            _ => opaque,
        },
        Kind::Ptr => {
            let to = ty.target().and_then(|to| btf.resolved(to).ok());
            let code = to.is_some_and(|to| to.kind() == Kind::FuncProto);
            Shape::Ptr { ty: clean(&btf.type_name(id)), code }
        }
        Kind::Enum | Kind::Enum64 => match u8::try_from(size) {
            Ok(size @ 1..=8) => {
                Shape::Enum { size, signed: ty.is_signed_enum(), names: EnumNames::of(&ty, budget) }
            }
            _ => opaque,
        },
        Kind::Float => match u8::try_from(size) {
            Ok(size @ 1..=16) => Shape::Float { size },
            _ => opaque,
        },
        Kind::Array => {
            let Some(array) = ty.array() else { return opaque };
            let element = shape_of(btf, array.element, structs, depth, budget);
            if matches!(element, Shape::Char { .. }) {
                return Shape::Text { len: array.len };
            }
            let Ok(stride) = u32::try_from(element.size()) else { return opaque };
            // Elements without bytes have nothing to show.
            let shown = if stride == 0 { 0 } else { array.len.min(budget.elements) };
            Shape::Array { element: Box::new(element), stride, len: array.len, shown }
        }
        Kind::Struct | Kind::Union => {
            let Some(structs) = structs.checked_sub(1) else { return opaque };
            let mut composite = Composite { btf, size, structs, fields: Vec::new(), omitted: 0 };
            composite.add(&ty, 0, depth, budget);
            Shape::Struct { size, fields: composite.fields.into(), omitted: composite.omitted }
        }
        Kind::Var => shape_of(btf, ty.target().unwrap_or_default(), structs, depth, budget),
        _ => opaque,
    }
}

/// A struct or union whose members are being gathered.
struct Composite<'a> {
    btf: &'a Btf,
    /// Bytes.
    size: u32,
    /// Structs still allowed inside.
    structs: u32,
    fields: Vec<Field>,
    omitted: u32,
}

impl Composite<'_> {
    /// Appends the members of `ty`, which begins `base` bits into the struct, and those of the anonymous ones inside it.
    fn add(&mut self, ty: &Type<'_>, base: u32, depth: u32, budget: &mut Budget) {
        let depth = depth.checked_sub(1);
        for member in ty.members() {
            budget.steps = budget.steps.saturating_sub(1);
            let bit_offset = base.saturating_add(member.bit_offset);
            let Some(depth) = depth.filter(|_| budget.steps > 0) else {
                self.omitted = self.omitted.saturating_add(1);
                continue;
            };
            let Some(name) = member.name else {
                // An anonymous struct or union; or an unnamed bit-field, which is padding.
                if let Ok(inner) = self.btf.resolved(member.ty)
                    && inner.kind().is_composite()
                {
                    self.add(&inner, bit_offset, depth, budget);
                }
                continue;
            };
            let Some(left) = budget.members.checked_sub(1) else {
                self.omitted = self.omitted.saturating_add(1);
                continue;
            };
            budget.members = left;
            let mut shape = shape_of(self.btf, member.ty, self.structs, depth, budget);
            let bits = bits_of(&member, bit_offset);
            if !self.holds(bit_offset, bits, &shape) {
                shape = Shape::Opaque { size: 0 };
            }
            self.fields.push(Field { name: clean(name), offset: bit_offset / 8, bits, shape });
        }
    }

    /// Whether a member lies inside. One that does not, as only malformed BTF has, would let a few bytes of BTF ask for any amount
    /// of output: arrays of structs that overlap themselves.
    fn holds(&self, bit_offset: u32, bits: Option<Bits>, shape: &Shape) -> bool {
        let size = match bits {
            Some(bits) if bits.size > 64 => return false,
            Some(bits) => u64::from(bits.size),
            None => (shape.size() as u64).saturating_mul(8),
        };
        u64::from(bit_offset).saturating_add(size) <= u64::from(self.size) * 8
    }
}

/// A bit-field's place.
fn bits_of(member: &Member<'_>, bit_offset: u32) -> Option<Bits> {
    (member.bitfield_size != 0).then_some(Bits { shift: (bit_offset % 8) as u8, size: member.bitfield_size })
}

/// A name with what would break out of quotes or reach the terminal replaced: BTF may come from anyone.
fn clean(name: &str) -> Box<str> {
    let replace = |c: char| if c.is_control() || c == '"' || c == '\\' { '?' } else { c };
    name.chars().map(replace).collect::<String>().into()
}
