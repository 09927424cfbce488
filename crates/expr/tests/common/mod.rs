//! A small world of types to name in expressions: those of `types.h`, laid out as gcc lays them out on x86-64.
#![allow(clippy::unwrap_used, missing_docs, dead_code)]

pub mod generate;
pub mod image;
pub mod run;
pub mod table;
pub mod walk;

use btf::{Btf, Builder, Kind, Linkage, NewMember, TypeId};
use expr::{IntTy, Scope, Symbol, Tid, Ty, Types, Variable};

/// The same types in C, for those who have a compiler.
pub const TYPES: &str = include_str!("types.h");

/// What `&variable` gives for a variable that BTF does not have.
pub const SYMBOL: u64 = 0xffff_ffff_8123_4560;

/// Where `jiffies_like` lies.
pub const JIFFIES: u64 = 0xffff_ffff_8200_0000;

/// Types, and the arguments in the order that [`World::scope`] gives them.
pub struct World {
    pub btf: Btf,
    pub args: Vec<(&'static str, TypeId)>,
}

fn bit(name: &str, ty: TypeId, at: u32, size: u8) -> NewMember<'_> {
    NewMember { name, ty, bit_offset: at, bitfield_size: size }
}

pub fn world() -> World {
    let at = NewMember::at;
    let mut b = Builder::new();
    let void = TypeId(0);
    let char_ = b.int("char", 1, true);
    let s8 = b.int("signed char", 1, true);
    let u8_ = b.int("unsigned char", 1, false);
    let s16 = b.int("short", 2, true);
    let u16_ = b.int("unsigned short", 2, false);
    let int = b.int("int", 4, true);
    let uint = b.int("unsigned int", 4, false);
    let long = b.int("long", 8, true);
    let ulong = b.int("unsigned long", 8, false);
    let bool_ = b.bool("_Bool");
    let bool_t = b.typedef("bool", bool_);
    let float = b.float("float", 4);
    let huge = b.int("__int128", 16, true);
    // `u32`, `u64` and others are known whatever BTF has; these are its own.
    let my_u32 = b.typedef("my_u32", uint);
    let be16 = b.typedef("__be16", u16_);
    let be32 = b.typedef("__be32", uint);
    let color = b.enumeration("color", 4, false, &[("RED", 0), ("GREEN", 5), ("BLUE", 6)]);
    let temp = b.enumeration("temp", 4, true, &[("COLD", -5), ("MILD", 0), ("HOT", 40)]);
    let wide = b.enumeration64("wide", false, &[("W_SMALL", 1), ("W_BIG", 1 << 32)]);
    let deep = b.enumeration64("deep", true, &[("D_LOW", -3), ("D_HIGH", i64::MAX)]);
    let tiny = b.enumeration("tiny", 1, false, &[("TINY_A", 0), ("TINY_B", 200)]);
    let over = b.enumeration("over", 4, false, &[("OVER", 0x8000_0000)]);
    let unknown = b.fwd("unknown", false);
    let inner = b.strukt("inner", 8, &[at("s", s16, 0), at("b", u8_, 2), at("c", s8, 3), at("i", int, 4)]);
    let array = |b: &mut Builder, of, len| b.array(of, uint, len);
    let name16 = array(&mut b, char_, 16);
    let const_char = b.qualified(Kind::Const, char_);
    let text = b.ptr(const_char);
    let opaque = b.ptr(void);
    let proto = b.func_proto(int, &[("", int)]);
    let fn_ = b.ptr(proto);
    // Three forward ids: node, node *, node **; outer and outer *.
    let next = fn_.0;
    let (node, node_p, node_pp) = (TypeId(next + 1), TypeId(next + 2), TypeId(next + 3));
    let (node_t, outer_p) = (TypeId(next + 4), TypeId(next + 5));
    let outer = TypeId(next + 6);
    let made = b.strukt(
        "node",
        72,
        &[
            at("next", node_p, 0),
            at("link", node_pp, 8),
            at("val", int, 16),
            at("name", name16, 20),
            at("text", text, 40),
            at("opaque", opaque, 48),
            at("up", outer_p, 56),
            at("fn", fn_, 64),
        ],
    );
    assert_eq!(made, node);
    assert_eq!((b.ptr(node), b.ptr(node_p)), (node_p, node_pp));
    assert_eq!((b.typedef("node_t", node), b.ptr(outer)), (node_t, outer_p));
    // Everything that `struct outer` needs comes behind it.
    let next = outer.0;
    let later = |n: u32| TypeId(next + n);
    let ids: Vec<TypeId> = (1..40).map(later).collect();
    let [arr3, grid3, grid2, nodes4, halves, anon, either, node_t_p, node_t_pp, mac6, addr16, volatile_int] =
        ids[..12]
    else {
        panic!()
    };
    let [cv, unknown_p, bits, pbits, packed, bool_p, u8_p, s16_p, row_p, flex, bytes4, pair, values] =
        ids[12..25]
    else {
        panic!()
    };
    let made = b.strukt(
        "outer",
        528,
        &[
            at("c8", s8, 0),
            at("b8", u8_, 1),
            at("s16_", s16, 2),
            at("u16_", u16_, 4),
            at("i32", int, 8),
            at("u32_", my_u32, 12),
            at("i64", long, 16),
            at("u64_", ulong, 24),
            at("flag", bool_t, 32),
            at("ch", char_, 33),
            at("real", float, 36),
            at("huge", huge, 48),
            at("in", inner, 64),
            at("arr", arr3, 72),
            at("grid", grid2, 96),
            at("nodes", nodes4, 120),
            at("", anon, 152),
            at("un", either, 160),
            at("head", node_p, 168),
            at("pp", node_t_pp, 176),
            at("vp", opaque, 184),
            at("str", text, 192),
            at("comm", name16, 200),
            at("mac", mac6, 216),
            at("port", be16, 222),
            at("addr", be32, 224),
            at("addr6", addr16, 228),
            at("color", color, 244),
            at("temp", temp, 248),
            at("wide", wide, 256),
            at("deep", deep, 264),
            at("tiny", tiny, 272),
            at("over", over, 276),
            at("cv", cv, 280),
            at("fn", fn_, 288),
            at("hidden", unknown_p, 296),
            at("bits", bits, 304),
            at("pb", pbits, 376),
            at("pk", packed, 424),
            at("flags", bool_p, 472),
            at("bytes", u8_p, 480),
            at("shorts", s16_p, 488),
            at("row", row_p, 496),
            at("self", outer_p, 504),
            at("len", int, 512),
            at("flex", flex, 516),
        ],
    );
    assert_eq!(made, outer);
    let made = [
        array(&mut b, inner, 3),
        array(&mut b, int, 3),
        b.array(grid3, uint, 2),
        array(&mut b, node_p, 4),
        b.strukt("", 4, &[at("lo", s16, 0), at("hi", u16_, 2)]),
        b.union("", 4, &[at("anon_i", int, 0), at("", halves, 0)]),
        b.union(
            "either",
            8,
            &[at("i", int, 0), at("bytes", bytes4, 0), at("in", inner, 0), at("w", ulong, 0)],
        ),
        b.ptr(node_t),
        b.ptr(node_t_p),
        array(&mut b, u8_, 6),
        array(&mut b, u8_, 16),
        b.qualified(Kind::Volatile, int),
        b.qualified(Kind::Const, volatile_int),
        b.ptr(unknown),
        b.strukt(
            "bits",
            72,
            &[
                bit("u1", uint, 0, 1),
                bit("u3", my_u32, 1, 3),
                bit("u7", uint, 4, 7),
                bit("u13", uint, 11, 13),
                bit("u8_", uint, 24, 8),
                bit("u31", uint, 32, 31),
                bit("u1b", uint, 63, 1),
                bit("u32_", uint, 64, 32),
                bit("s1", int, 96, 1),
                bit("s2", int, 97, 2),
                bit("s5", int, 99, 5),
                bit("s17", int, 104, 17),
                bit("s7", int, 121, 7),
                bit("s31", int, 128, 31),
                bit("s1b", int, 159, 1),
                bit("s32_", int, 160, 32),
                bit("l33", ulong, 192, 33),
                bit("l31", ulong, 225, 31),
                bit("sl40", long, 256, 40),
                bit("sl24", long, 296, 24),
                bit("l63", ulong, 320, 63),
                bit("l1", ulong, 383, 1),
                bit("l64", ulong, 384, 64),
                bit("sl64", long, 448, 64),
                bit("flag", bool_t, 512, 1),
                bit("lo", u8_, 513, 3),
                bit("hi", u8_, 516, 4),
                bit("w11", u16_, 528, 11),
                bit("w5", s16, 539, 5),
                bit("col", color, 544, 4),
                bit("tmp", temp, 548, 7),
                bit("last", u8_, 560, 8),
            ],
        ),
        b.strukt(
            "pbits",
            48,
            &[
                bit("a", ulong, 0, 3),
                bit("b", ulong, 3, 64),
                bit("c", uint, 67, 29),
                bit("d", long, 96, 61),
                bit("e", u8_, 157, 8),
                bit("f", int, 165, 32),
                bit("g", long, 197, 64),
                bit("h", ulong, 261, 57),
                bit("i", long, 318, 63),
            ],
        ),
        b.strukt(
            "packed",
            45,
            &[
                at("a", u8_, 0),
                at("b", u16_, 1),
                at("c", uint, 3),
                at("d", ulong, 7),
                at("e", s16, 15),
                at("f", int, 17),
                at("g", long, 21),
                at("p", node_p, 29),
                at("in", inner, 37),
            ],
        ),
        b.ptr(bool_t),
        b.ptr(u8_),
        b.ptr(s16),
        b.ptr(grid3),
        array(&mut b, int, 0),
        array(&mut b, u8_, 4),
        b.strukt(
            "pair",
            16,
            &[at("a", long, 0), at("b", int, 8), at("c", s16, 12), at("d", s8, 14), at("e", u8_, 15)],
        ),
        b.strukt(
            "values",
            16,
            &[
                bit("lo", uint, 0, 20),
                bit("hi", uint, 20, 12),
                bit("in", inner, 32, 0),
                bit("tail", bytes4, 96, 0),
            ],
        ),
    ];
    assert_eq!(made[..], ids[..25]);
    let percpu = b.var("percpu_like", int, Linkage::Global);
    let jiffies = b.var("jiffies_like", ulong, Linkage::Global);
    let hidden = b.var("hidden_like", int, Linkage::Global);
    b.datasec(".data..percpu", 64, &[(percpu, 16, 4), (hidden, 20, 4)]);
    b.datasec(".data", 64, &[(jiffies, 0, 8)]);
    let (bits_p, pbits_p, packed_p) = (b.ptr(bits), b.ptr(pbits), b.ptr(packed));
    let args = vec![
        ("o", outer_p),
        ("n", node_p),
        ("bits", bits_p),
        ("pb", pbits_p),
        ("pk", packed_p),
        ("pair", pair),
        ("vals", values),
        ("i", int),
        ("u", uint),
        ("l", long),
        ("ul", ulong),
        ("c", char_),
        ("s", s16),
        ("b", bool_t),
        ("e", color),
        ("t", temp),
        ("str", text),
        ("v", opaque),
        ("null", outer_p),
        ("bad", outer_p),
        ("far", node_p),
        ("real", float),
    ];
    World { btf: Btf::from_bytes(b.finish()).unwrap(), args }
}

/// The world as code sees it whose plain `char` is signed, and as the kernel's from 6.2 on.
pub fn worlds() -> [World; 2] {
    let unsigned = world();
    [world(), World { btf: unsigned.btf.with_unsigned_char(true), ..unsigned }]
}

fn symbol(name: &str) -> Symbol {
    match name {
        "jiffies_like" => Symbol::At(JIFFIES),
        "untyped_like" | "percpu_like" => Symbol::At(SYMBOL),
        "secret_like" => Symbol::Hidden,
        "untold_like" | "zzzz" => Symbol::Untold,
        _ => Symbol::Unknown,
    }
}

impl World {
    pub fn scope(&self) -> Scope<'_> {
        let types = Types::new(vec![&self.btf]);
        let args = self
            .args
            .iter()
            .map(|(name, id)| {
                let tid = Tid { space: 0, id: *id };
                Variable { name: (*name).into(), ty: types.ty(tid), spelled: Some(tid) }
            })
            .collect();
        Scope {
            target: "probed()".into(),
            types,
            args,
            retval: Some(Variable { name: String::new(), ty: Ty::Int(IntTy::LONG), spelled: None }),
            no_retval: String::new(),
            duration: true,
            symbol: &symbol,
            untold: &|_| None,
        }
    }
}
