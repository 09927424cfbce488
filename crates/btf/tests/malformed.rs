//! BTF is untrusted: whatever the bytes, every question gets an answer or an error, soon.
#![allow(clippy::unwrap_used)]

use btf::{Btf, Builder, Kind, Limits, Linkage, Lookup, NewMember, Shape, TypeId};
use proptest::prelude::*;

mod json;

/// Asks everything there is to ask.
fn ask_all(btf: &Btf) {
    let limits = Limits::default();
    let bytes = [0xa5; 256];
    // Ids that exist, and some that do not.
    for id in btf.ids().take(300).chain([0, btf.len(), u32::MAX].map(TypeId)) {
        if let Ok(ty) = btf.get(id) {
            let _ = format!("{ty:?} {:?} {:?}", ty.size(), ty.target());
            let _ = (ty.int(), ty.array(), ty.linkage(), ty.component(), ty.is_union_fwd());
            ty.members().for_each(drop);
            ty.params().for_each(drop);
            ty.enumerators().for_each(drop);
            ty.section_vars().for_each(drop);
        }
        let _ = (btf.resolve(id), btf.size_of(id), btf.align_of(id), btf.proto(id));
        let _ = (btf.is_char_ptr(id), btf.is_user_ptr(id), btf.member(id, "a.b"), btf.member(id, "a"));
        let expanded = btf.definition_expanded(id, 3);
        for text in
            [btf.type_name(id), btf.declare(id, "name"), btf.func_decl(id), btf.definition(id), expanded]
        {
            assert!(text.len() < 16 << 20);
            assert!(!text.contains(|c: char| c.is_ascii_control() && c != '\n'));
        }
        let shape = Shape::of(btf, id, &limits);
        for len in [0, 1, 9, 256] {
            let (mut text, mut json) = (Vec::new(), Vec::new());
            shape.text(&bytes[..len], &mut text);
            shape.json(&bytes[..len], &mut json);
            assert!(std::str::from_utf8(&text).is_ok());
            json::check(&json).unwrap_or_else(|at| panic!("at {at}: {}", String::from_utf8_lossy(&json)));
            assert!(text.len() < 4 << 20 && json.len() < 4 << 20);
        }
    }
    for kind in [Kind::Void, Kind::Struct, Kind::Func, Kind::Enum, Kind::Unknown] {
        btf.names(kind).for_each(drop);
        btf.find(kind, "a");
        btf.find_all(kind, "b");
    }
    btf.find_many(&[(Kind::Func, "a"), (Kind::Typedef, "b"), (Kind::Func, "")]);
    btf.find_enumerators(&["a", "b", ""]);
    btf.enumerators_named("a");
    btf.find_variable("a");
    let names = Lookup::new(btf);
    for name in ["struct a", "enum a", "unsigned long", "a", ""] {
        names.ty(name);
    }
    btf.enum_has("a", "b");
}

/// One call of the builder: which, and numbers for it to use as ids, sizes and offsets.
type Step = (u8, u32, u32, u32);

/// A well-formed blob of types that refer to each other at random: loops, types that hold themselves, ids that do not exist.
fn tangle(steps: &[Step]) -> Vec<u8> {
    let mut b = Builder::new();
    let names = ["", "a", "b", "char", "user", "evil\x1b[2J\"\\"];
    for &(what, x, y, z) in steps {
        let (tx, ty) = (TypeId(x % 40), TypeId(y % 40));
        let name = names[(z % 6) as usize];
        let members = [
            NewMember { name, ty: tx, bit_offset: y, bitfield_size: 0 },
            NewMember { name: "", ty, bit_offset: x, bitfield_size: if z & 64 == 0 { 0 } else { z as u8 } },
            NewMember { name: "a", ty: tx, bit_offset: 8, bitfield_size: 0 },
        ];
        match what % 16 {
            0 => b.int(name, x % 40, z & 1 == 0),
            1 => b.ptr(tx),
            2 => b.array(tx, ty, z),
            3 => b.strukt(name, z % 64, &members),
            4 => b.union(name, z, &members),
            5 => b.enumeration(name, x % 10, z & 1 == 0, &[("a", y.into()), ("b", -1), ("\x07", 9)]),
            6 => b.fwd(name, z & 1 == 0),
            7 => b.typedef(name, tx),
            8 => b.qualified([Kind::Const, Kind::Volatile, Kind::Restrict][(z % 3) as usize], tx),
            9 => b.func(name, tx, Linkage::Global),
            10 => b.func_proto(tx, &[(name, ty), ("b", tx), ("", TypeId(z % 40))]),
            11 => b.var(name, tx, Linkage::Static),
            12 => b.datasec(name, x, &[(tx, y, z), (ty, z, y)]),
            13 => b.float(name, z % 20),
            14 => b.type_tag(name, tx),
            _ => b.enumeration64(name, z & 1 == 0, &[("a", i64::MIN), ("b", y.into())]),
        };
    }
    b.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(btf) = Btf::from_bytes(bytes) {
            ask_all(&btf);
        }
    }

    /// A right header, and anything behind it.
    #[test]
    fn any_types(types in proptest::collection::vec(any::<u32>(), 0..100), kinds in proptest::collection::vec(1..20_u32, 100)) {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        for word in [24, 0, types.len() as u32 * 4, types.len() as u32 * 4, 8] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for (i, word) in types.iter().enumerate() {
            // Most words are small, as ids and offsets are; every third looks like the info of a record.
            let word = match (i % 3, word % 4) {
                (1, 0..3) => (kinds[i] << 24) | ((word >> 4) % 5),
                (_, 0) => *word,
                (_, _) => word % 12,
            };
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(b"\0a\0b\0ch\0");
        if let Ok(btf) = Btf::from_bytes(bytes) {
            ask_all(&btf);
        }
    }

    #[test]
    fn tangled_types(steps in proptest::collection::vec(any::<Step>(), 1..40)) {
        ask_all(&Btf::from_bytes(tangle(&steps)).unwrap());
    }

    /// A well-formed blob with some words of it changed.
    #[test]
    fn changed_words(
        steps in proptest::collection::vec(any::<Step>(), 1..40),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u32>(), 0..33_u32), 1..6),
    ) {
        let mut bytes = tangle(&steps);
        for (at, value, cut) in changes {
            let at = at.index(bytes.len() - 3);
            let value = value.checked_shr(cut).unwrap_or(0);
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        if let Ok(btf) = Btf::from_bytes(bytes) {
            ask_all(&btf);
        }
    }
}

// Types whose spelling, size or members would grow without end, each made on purpose.

/// A prototype that is its own parameter, twice; and as many parameters as fit.
#[test]
fn prototypes_of_themselves() {
    let mut b = Builder::new();
    b.func_proto(TypeId(1), &[("a", TypeId(1)), ("b", TypeId(1))]);
    let params = vec![("p", TypeId(2)); 20_000];
    b.func_proto(TypeId(2), &params);
    ask_all(&Btf::from_bytes(b.finish()).unwrap());
}

/// Structs of anonymous pairs of the next, 24 deep: 2^24 members.
#[test]
fn pairs_of_pairs() {
    let mut b = Builder::new();
    for i in 0..24 {
        let next = TypeId(i + 2);
        b.strukt("", 8, &[NewMember::at("", next, 0), NewMember::at("", next, 0)]);
    }
    ask_all(&Btf::from_bytes(b.finish()).unwrap());
}

/// Each way to refer to oneself.
#[test]
fn loops() {
    let mut b = Builder::new();
    b.typedef("a", TypeId(1));
    b.ptr(TypeId(2));
    b.array(TypeId(3), TypeId(3), 9);
    b.qualified(Kind::Const, TypeId(4));
    b.strukt("a", 1, &[NewMember::at("a", TypeId(5), 0), NewMember::at("", TypeId(5), 0)]);
    b.var("a", TypeId(6), Linkage::Global);
    b.func("a", TypeId(7), Linkage::Global);
    b.type_tag("user", TypeId(8));
    b.decl_tag("a", TypeId(9), Some(1));
    b.func_proto(TypeId(10), &[]);
    ask_all(&Btf::from_bytes(b.finish()).unwrap());
}

/// One long name, used by many.
#[test]
fn long_names() {
    for (len, count) in [(500, 10_000), (1 << 16, 500)] {
        let long = "x".repeat(len);
        let mut b = Builder::new();
        let int = b.int(&long, 4, true);
        let values: Vec<(&str, i64)> = (0..count).map(|i| (long.as_str(), i)).collect();
        let many = b.enumeration(&long, 4, true, &values);
        let members: Vec<_> = (0..count).map(|i| NewMember::at(&long, many, 4 * i as u32)).collect();
        b.strukt(&long, 4 * count as u32, &members);
        let params = vec![(long.as_str(), int); count as usize];
        b.func_proto(int, &params);
        ask_all(&Btf::from_bytes(b.finish()).unwrap());
    }
}
