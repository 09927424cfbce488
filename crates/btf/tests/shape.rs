//! Values as text and as JSON, on types written by hand.
#![allow(clippy::unwrap_used)]

use btf::{Btf, Builder, Kind, Limits, NewMember, Shape, TypeId};

/// The bit-field member of a struct.
fn bits<'a>(name: &'a str, ty: TypeId, bit_offset: u32, bitfield_size: u8) -> NewMember<'a> {
    NewMember { name, ty, bit_offset, bitfield_size }
}

fn text(shape: &Shape, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    shape.text(bytes, &mut out);
    String::from_utf8(out).unwrap()
}

fn json(shape: &Shape, bytes: &[u8]) -> String {
    let mut out = Vec::new();
    shape.json(bytes, &mut out);
    String::from_utf8(out).unwrap()
}

/// Builds a type and gives its shape with the default limits.
fn shape(build: impl FnOnce(&mut Builder) -> TypeId) -> Shape {
    shape_within(Limits::default(), build)
}

fn shape_within(limits: Limits, build: impl FnOnce(&mut Builder) -> TypeId) -> Shape {
    let mut b = Builder::new();
    let id = build(&mut b);
    Shape::of(&Btf::from_bytes(b.finish()).unwrap(), id, &limits)
}

// Case 8: signedness and width kept.
#[test]
fn integers_keep_their_sign_and_width() {
    for (size, signed, value, want) in [
        (1, true, -1_i128, "-1"),
        (1, false, 255, "255"),
        (2, true, -32768, "-32768"),
        (2, false, 65535, "65535"),
        (3, true, -2, "-2"),
        (4, true, -11, "-11"),
        (4, false, 4_294_967_285, "4294967285"),
        (8, true, i64::MIN.into(), "-9223372036854775808"),
        (8, false, u64::MAX.into(), "18446744073709551615"),
        (16, true, -5, "-5"),
        (16, true, i128::MIN, "-170141183460469231731687303715884105728"),
    ] {
        let shape = shape(|b| {
            let int = b.int("int", size, signed);
            b.typedef("alias", int)
        });
        let bytes = value.to_le_bytes();
        assert_eq!(text(&shape, &bytes), want);
        assert_eq!(json(&shape, &bytes), want);
        assert_eq!(text(&shape, &bytes[..size as usize - 1]), "?");
        assert_eq!(json(&shape, &bytes[..size as usize - 1]), "null");
        assert_eq!(shape.size(), size as usize);
    }
}

#[test]
fn pointers_bools_chars_and_floats() {
    let ptr = shape(|b| {
        let s = b.fwd("file", false);
        b.ptr(s)
    });
    assert_eq!(ptr, Shape::Ptr { ty: "struct file *".into(), code: false });
    assert_eq!(text(&ptr, &0xffff_8881_0000_0000_u64.to_le_bytes()), "0xffff888100000000");
    assert_eq!(json(&ptr, &0xffff_8881_0000_0000_u64.to_le_bytes()), "\"0xffff888100000000\"");
    assert_eq!(text(&ptr, &[0; 8]), "0x0");
    // Case 22: an error in a pointer.
    assert_eq!(text(&ptr, &(-2_i64).to_le_bytes()), "ERR_PTR(-2 ENOENT)");
    assert_eq!(text(&ptr, &(-4095_i64).to_le_bytes()), "ERR_PTR(-4095)");
    assert_eq!(text(&ptr, &(-4096_i64).to_le_bytes()), "0xfffffffffffff000");
    assert_eq!(json(&ptr, &(-2_i64).to_le_bytes()), "\"0xfffffffffffffffe\"");

    let bool = shape(|b| b.bool("_Bool"));
    assert_eq!(
        (text(&bool, &[0]), text(&bool, &[1]), json(&bool, &[1])),
        ("false".into(), "true".into(), "true".into())
    );

    let char = shape(|b| b.int("char", 1, true));
    let chars: Vec<String> = [b'a', b'\'', 0, 0xff].iter().map(|c| text(&char, &[*c])).collect();
    assert_eq!(chars, ["'a'", "'\\''", "0", "-1"]);
    assert_eq!(json(&char, b"a"), "97");
    // 5.10's encoding does not tell.
    let s8 = shape(|b| b.int("signed char", 1, false));
    assert_eq!(text(&s8, &[0xff]), "-1");
    // The kernel's from 6.2 on.
    let char = Shape::Char { signed: false };
    assert_eq!(
        (text(&char, &[0xff]), json(&char, &[0xff]), text(&char, b"a")),
        ("255".into(), "255".into(), "'a'".into())
    );

    let float = shape(|b| b.float("double", 8));
    assert_eq!(text(&float, &1.5_f64.to_le_bytes()), "1.5");
    assert_eq!(json(&float, &f64::INFINITY.to_le_bytes()), "\"inf\"");
    let float = shape(|b| b.float("float", 4));
    assert_eq!(json(&float, &0.1_f32.to_le_bytes()), "0.1");
}

#[test]
fn enums_are_named() {
    let state =
        shape(|b| b.enumeration("state", 4, true, &[("ON", 1), ("OFF", 0), ("BAD", -1), ("LAST", 1)]));
    let of = |v: i32| (text(&state, &v.to_le_bytes()), json(&state, &v.to_le_bytes()));
    assert_eq!(of(1), ("ON".into(), r#"{"value":1,"name":"ON"}"#.into()));
    assert_eq!(of(-1), ("BAD".into(), r#"{"value":-1,"name":"BAD"}"#.into()));
    assert_eq!(of(7), ("7".into(), r#"{"value":7,"name":null}"#.into()));

    let wide = shape(|b| b.enumeration64("wide", false, &[("TOP", -1), ("BIT40", 1 << 40)]));
    assert_eq!(text(&wide, &u64::MAX.to_le_bytes()), "TOP");
    assert_eq!(text(&wide, &(1_u64 << 40).to_le_bytes()), "BIT40");
    assert_eq!(json(&wide, &(u64::MAX - 1).to_le_bytes()), r#"{"value":18446744073709551614,"name":null}"#);

    let packed = shape(|b| b.enumeration("packed", 1, false, &[("HIGH", 0xff)]));
    assert_eq!(text(&packed, &[0xff, 9]), "HIGH");
}

// Case 9: a char array without a terminator, and text cut off by a short read.
#[test]
fn char_arrays_end_where_they_end() {
    let comm = shape(|b| {
        let (char, int) = (b.int("char", 1, true), b.int("int", 4, true));
        let constant = b.qualified(Kind::Const, char);
        b.array(constant, int, 4)
    });
    assert_eq!(comm, Shape::Text { len: 4 });
    assert_eq!(text(&comm, b"bashNOT MINE"), "\"bash\"");
    assert_eq!(text(&comm, b"sh\0x"), "\"sh\"");
    assert_eq!(text(&comm, b"\0\0\0\0"), "\"\"");
    assert_eq!(text(&comm, b"ba"), "\"ba\"…");
    assert_eq!(text(&comm, b""), "?");
    assert_eq!(json(&comm, b"a\"\n\xff"), r#""a\"\n\\xff""#);
    assert_eq!(json(&comm, b""), "null");
}

// Case 7: bit-fields as in struct perf_event_attr: a u64 of single bits and wider ones.
#[test]
fn bit_fields_are_read_where_they_lie() {
    let attr = shape(|b| {
        let (u64, int) = (b.int("__u64", 8, false), b.int("int", 4, true));
        let mode = b.enumeration("mode", 4, false, &[("FAST", 5)]);
        b.strukt(
            "attr",
            16,
            &[
                bits("disabled", u64, 0, 1),
                bits("inherit", u64, 1, 1),
                bits("precise_ip", u64, 15, 2),
                bits("mode", mode, 17, 3),
                bits("delta", int, 20, 4),
                bits("", u64, 24, 2),
                bits("wide", u64, 26, 38),
                bits("rest", u64, 64, 64),
            ],
        )
    });
    let word: u64 = 1 | (2 << 15) | (5 << 17) | (0b1011 << 20) | (3 << 24) | (0x2a_aaaa_aaaa << 26);
    let mut bytes = word.to_le_bytes().to_vec();
    bytes.extend_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(
        text(&attr, &bytes),
        "{disabled=1, inherit=0, precise_ip=2, mode=FAST, delta=-5, wide=183251937962, rest=18446744073709551615}"
    );
    assert_eq!(
        json(&attr, &bytes),
        r#"{"disabled":1,"inherit":0,"precise_ip":2,"mode":{"value":5,"name":"FAST"},"delta":-5,"wide":183251937962,"rest":18446744073709551615}"#
    );
    // A bit-field of which only the first bytes are there.
    assert_eq!(
        text(&attr, &bytes[..4]),
        "{disabled=1, inherit=0, precise_ip=2, mode=FAST, delta=-5, wide=?, … 1 more}"
    );
}

// A bit-field that straddles eight bytes, as packed structs have.
#[test]
fn a_bit_field_may_take_nine_bytes() {
    let packed = shape(|b| {
        let u64 = b.int("u64", 8, false);
        b.strukt("packed", 9, &[bits("low", u64, 0, 5), bits("high", u64, 5, 64)])
    });
    let value = (0x8123_4567_89ab_cdef_u128 << 5) | 3;
    assert_eq!(
        text(&packed, &value.to_le_bytes()[..9]),
        format!("{{low=3, high={}}}", 0x8123_4567_89ab_cdef_u64)
    );
    assert_eq!(text(&packed, &value.to_le_bytes()[..8]), "{low=3, high=?}");
}

// Case 7: anonymous unions and structs, atomic_long_t[], a flexible array member.
#[test]
fn structs_nest() {
    let outer = shape(|b| {
        let (int, long) = (b.int("int", 4, true), b.int("long", 8, true));
        let counter = b.strukt("", 8, &[NewMember::at("counter", long, 0)]);
        let atomic = b.typedef("atomic_long_t", counter);
        let atomics = b.array(atomic, int, 2);
        let inner = b.strukt("", 8, &[NewMember::at("x", int, 0), NewMember::at("y", int, 4)]);
        let either = b.union("", 8, &[NewMember::at("both", long, 0), NewMember::at("", inner, 0)]);
        let flexible = b.array(int, int, 0);
        b.strukt(
            "outer",
            28,
            &[
                NewMember::at("a", int, 0),
                NewMember::at("", either, 4),
                NewMember::at("stats", atomics, 12),
                NewMember::at("tail", flexible, 28),
            ],
        )
    });
    let mut bytes = vec![1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0];
    bytes.extend_from_slice(&(-4_i64).to_le_bytes());
    bytes.extend_from_slice(&5_i64.to_le_bytes());
    assert_eq!(
        text(&outer, &bytes),
        "{a=1, both=12884901890, x=2, y=3, stats=[{counter=-4}, {counter=5}], tail=[]}"
    );
    assert_eq!(
        json(&outer, &bytes),
        r#"{"a":1,"both":12884901890,"x":2,"y":3,"stats":[{"counter":-4},{"counter":5}],"tail":[]}"#
    );
    assert_eq!(
        text(&outer, &bytes[..14]),
        "{a=1, both=12884901890, x=2, y=3, stats=[{counter=?}, ?], tail=[]}"
    );
    assert_eq!(text(&outer, &[]), "?");
    assert_eq!(json(&outer, &bytes[..4]), r#"{"a":1,"tail":[],"…":4}"#);
}

// Case 5: sockptr_t, sixteen bytes by value.
#[test]
fn sockptr_t_is_a_struct_of_sixteen_bytes() {
    let mut b = Builder::new();
    let bool = b.bool("bool");
    let kernel = b.ptr(TypeId::VOID);
    let user = b.ptr(TypeId::VOID);
    let either = b.union("", 8, &[NewMember::at("kernel", kernel, 0), NewMember::at("user", user, 0)]);
    let body = b.strukt("", 16, &[NewMember::at("", either, 0), bits("is_kernel", bool, 64, 1)]);
    let sockptr = b.typedef("sockptr_t", body);
    let proto = b.func_proto(TypeId::VOID, &[("optval", sockptr)]);
    let btf = Btf::from_bytes(b.finish()).unwrap();
    assert_eq!(btf.size_of(btf.proto(proto).unwrap().params[0].ty).unwrap(), 16);
    assert_eq!(btf.type_name(sockptr), "sockptr_t");
    let shape = Shape::of(&btf, sockptr, &Limits::default());
    let mut bytes = [0; 16];
    bytes[0] = 0x10;
    bytes[8] = 0xff;
    assert_eq!(text(&shape, &bytes), "{kernel=0x10, user=0x10, is_kernel=true}");
}

#[test]
fn limits_are_kept_and_said() {
    let limits = Limits { depth: 2, members: 4, elements: 2 };
    let shape = shape_within(limits, |b| {
        let u8 = b.int("u8", 1, false);
        let list = b.array(u8, u8, 5);
        let deepest = b.strukt("deepest", 1, &[NewMember::at("z", u8, 0)]);
        let deep = b.strukt("deep", 1, &[NewMember::at("deepest", deepest, 0)]);
        let members: Vec<_> =
            (0..4).map(|i| NewMember::at(["a", "b", "c", "d"][i], u8, 6 + i as u32)).collect();
        b.strukt(
            "s",
            10,
            &[&[NewMember::at("list", list, 0), NewMember::at("deep", deep, 5)], &members[..]].concat(),
        )
    });
    let bytes: Vec<u8> = (1..=10).collect();
    assert_eq!(text(&shape, &bytes), "{list=[1, 2, … 3 more], deep={deepest={…}}, a=7, … 3 more}");
    assert_eq!(json(&shape, &bytes), r#"{"list":[1,2,"… 3 more"],"deep":{"deepest":"…"},"a":7,"…":3}"#);
}

#[test]
fn a_struct_that_holds_itself_ends() {
    let mut b = Builder::new();
    let u8 = b.int("u8", 1, false);
    // Eight structs of one byte that claim to hold 32 of the next each: 32^8 elements, were they believed.
    for i in 0..16 {
        let id = TypeId(2 + 2 * i);
        b.array(TypeId(id.0 + 3), u8, 32);
        b.strukt("liar", 1, &[NewMember::at("next", id, 0), NewMember::at("self", TypeId(id.0 + 1), 0)]);
    }
    let btf = Btf::from_bytes(b.finish()).unwrap();
    for id in btf.ids() {
        let shape = Shape::of(&btf, id, &Limits::default());
        assert!(text(&shape, &[1; 4096]).len() < 100_000);
        btf.size_of(id).ok();
        btf.align_of(id).ok();
        btf.member(id, "nothing").ok();
    }
}
