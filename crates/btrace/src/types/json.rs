//! `btrace types --json`: one object a type, docs/json.md and docs/types.schema.json.

use super::find::Found;
use btf::{Btf, Kind, Member, Type, TypeId};
use serde_json::{Map, Value, json};

/// Structs within structs: as deep as a definition goes.
const DEPTH: u32 = 64;

/// Bytes of names and types in one object, several times what the largest type of a kernel has, all written out. Malformed BTF may
/// have any number.
const MOST: usize = 16 << 20;

/// Bytes that a member takes besides.
const MEMBER: usize = 64;

/// The object for a type. `levels`: named structs written out inside one another.
pub fn object(found: &Found, levels: u32) -> Value {
    let mut writer = Writer { btf: &found.btf, left: MOST };
    let mut object = Map::new();
    let Ok(ty) = found.btf.get(found.id) else { return Value::Null };
    object.insert("kind".into(), kind(ty.kind()).into());
    object.insert("name".into(), ty.name().map(clean).into());
    object.insert("module".into(), found.module.clone().into());
    if let Ok(size) = found.btf.size_of(found.id) {
        object.insert("size".into(), size.into());
    }
    match ty.kind() {
        Kind::Struct | Kind::Union => {
            if let Ok(align) = found.btf.align_of(found.id) {
                object.insert("alignment".into(), align.into());
            }
            writer.body(&ty, Inside { base: 0, levels, depth: DEPTH }, &mut object);
        }
        Kind::Enum | Kind::Enum64 => writer.body(&ty, Inside { base: 0, levels, depth: DEPTH }, &mut object),
        Kind::Int => {
            object.insert("signed".into(), ty.int().is_some_and(|int| int.signed).into());
        }
        Kind::Typedef => {
            let target = ty.target().unwrap_or_default();
            writer.typed(target, Inside { base: 0, levels, depth: DEPTH }, &mut object);
        }
        Kind::Func => {
            let Ok(proto) = found.btf.proto(found.id) else { return Value::Object(object) };
            object.insert("prototype".into(), found.btf.func_decl(found.id).into());
            object.insert("returns".into(), found.btf.type_name(proto.ret).into());
            let params = proto.params.iter();
            let params: Vec<Value> =
                params.map(|p| json!({"name": clean(&p.name), "type": found.btf.type_name(p.ty)})).collect();
            object.insert("params".into(), params.into());
            object.insert("variadic".into(), proto.variadic.into());
        }
        Kind::Var => {
            let Some(variable) = found.btf.variable(found.id) else { return Value::Object(object) };
            object.insert("type".into(), found.btf.type_name(variable.ty).into());
            object.insert("per_cpu".into(), variable.is_per_cpu().into());
            object.insert("section".into(), variable.section.as_deref().map(clean).into());
        }
        Kind::Datasec => {
            let variables = ty.section_vars().map(|var| {
                let of = found.btf.get(var.var).ok();
                let name = of.and_then(|of| of.name()).map(clean);
                let of = of.and_then(|of| of.target()).map(|id| found.btf.type_name(id));
                json!({"name": name, "type": of, "offset": var.offset, "size": var.size})
            });
            object.insert("variables".into(), variables.collect::<Vec<_>>().into());
        }
        _ => {}
    }
    if writer.left == 0 {
        object.insert("truncated".into(), true.into());
    }
    Value::Object(object)
}

/// What a type is called in JSON.
fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Struct => "struct",
        Kind::Union => "union",
        Kind::Enum | Kind::Enum64 => "enum",
        Kind::Typedef => "typedef",
        Kind::Func => "function",
        Kind::Var => "variable",
        Kind::Datasec => "section",
        Kind::Int => "integer",
        Kind::Float => "float",
        Kind::Fwd => "declaration",
        _ => "other",
    }
}

/// A name without control characters: BTF may come from anyone.
fn clean(name: &str) -> String {
    name.replace(|c: char| c.is_control(), "?")
}

/// Where members are.
#[derive(Clone, Copy)]
struct Inside {
    /// Of the struct that has them, in bits from the beginning of the outermost.
    base: u64,
    levels: u32,
    depth: u32,
}

struct Writer<'a> {
    btf: &'a Btf,
    /// Of [`MOST`].
    left: usize,
}

impl Writer<'_> {
    /// The members or enumerators of a type.
    fn body(&mut self, ty: &Type<'_>, at: Inside, object: &mut Map<String, Value>) {
        if ty.kind().is_enum() {
            object.insert("signed".into(), ty.is_signed_enum().into());
            let mut all = Vec::new();
            for e in ty.enumerators() {
                if !self.may(e.name.len()) {
                    break;
                }
                let value = i64::try_from(e.value).map_or_else(|_| json!(e.value as u64), |v| json!(v));
                all.push(json!({"name": clean(e.name), "value": value}));
            }
            object.insert("enumerators".into(), all.into());
            return;
        }
        let mut all = Vec::new();
        for member in ty.members() {
            if !self.may(member.name.map_or(0, str::len)) {
                break;
            }
            all.push(self.member(&member, at));
        }
        object.insert("members".into(), all.into());
    }

    fn member(&mut self, member: &Member<'_>, at: Inside) -> Value {
        let offset = at.base.saturating_add(member.bit_offset.into());
        let bits = match member.bitfield_size {
            0 => self.btf.size_of(member.ty).unwrap_or(0).saturating_mul(8),
            bits => bits.into(),
        };
        let mut object = Map::new();
        object.insert("name".into(), member.name.map(clean).into());
        object.insert("bit_offset".into(), offset.into());
        object.insert("bit_size".into(), bits.into());
        if member.bitfield_size != 0 {
            object.insert("bitfield".into(), true.into());
        }
        self.typed(member.ty, Inside { base: offset, ..at }, &mut object);
        Value::Object(object)
    }

    /// The name of a type, and the body of one that has none.
    fn typed(&mut self, id: TypeId, at: Inside, object: &mut Map<String, Value>) {
        let name = self.btf.type_name(id);
        self.left = self.left.saturating_sub(name.len());
        object.insert("type".into(), name.into());
        let Some(depth) = at.depth.checked_sub(1) else { return };
        let Some(body) = self.btf.written_out(id, at.levels) else { return };
        let base = if body.direct { at.base } else { 0 };
        let levels = at.levels - u32::from(body.is_named());
        self.body(&body.ty, Inside { base, levels, depth }, object);
    }

    /// Whether there is room for one more, with a name so long.
    fn may(&mut self, name: usize) -> bool {
        self.left = self.left.saturating_sub(MEMBER + name);
        self.left > 0
    }
}
