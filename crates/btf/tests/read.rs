//! Reading what [`Builder`] wrote, and what it cannot write.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use btf::{Btf, Builder, CharPtr, Error, Kind, Linkage, Lookup, NewMember, TypeId};

/// Every kind there is, in the order of ids from 1.
fn all_kinds() -> Vec<u8> {
    let mut b = Builder::new();
    let int = b.int("int", 4, true); // 1
    let char = b.int("char", 1, true); // 2
    let ptr = b.ptr(char); // 3
    let array = b.array(char, int, 16); // 4
    let strukt = b.strukt("task", 32, &[NewMember::at("comm", array, 0), NewMember::at("name", ptr, 16)]); // 5
    b.union("u", 8, &[NewMember::at("i", int, 0), NewMember::at("p", ptr, 0)]); // 6
    b.enumeration("color", 4, false, &[("RED", 0), ("GREEN", 1)]); // 7
    b.fwd("later", false); // 8
    let alias = b.typedef("task_t", strukt); // 9
    b.qualified(Kind::Volatile, int); // 10
    let constant = b.qualified(Kind::Const, alias); // 11
    b.qualified(Kind::Restrict, ptr); // 12
    let proto = b.func_proto(int, &[("t", constant), ("", TypeId::VOID)]); // 13
    let func = b.func("run", proto, Linkage::Static); // 14
    let var = b.var("counter", int, Linkage::Global); // 15
    b.datasec(".data", 4, &[(var, 0, 4)]); // 16
    b.float("double", 8); // 17
    b.decl_tag("kfunc", func, None); // 18
    b.type_tag("user", char); // 19
    b.enumeration64("mask", false, &[("TOP", i64::MIN)]); // 20
    b.finish()
}

#[test]
fn every_kind_comes_back() {
    let btf = Btf::from_bytes(all_kinds()).unwrap();
    let kinds: Vec<Kind> = btf.ids().map(|id| btf.get(id).unwrap().kind()).collect();
    use Kind::*;
    #[rustfmt::skip]
    assert_eq!(kinds, [
        Int, Int, Ptr, Array, Struct, Union, Enum, Fwd, Typedef, Volatile, Const, Restrict, FuncProto, Func, Var, Datasec,
        Float, DeclTag, TypeTag, Enum64,
    ]);
    assert_eq!(btf.len(), 21);
    let ty = |id| btf.get(TypeId(id)).unwrap();
    assert!(ty(1).int().unwrap().signed);
    assert_eq!(ty(1).name(), Some("int"));
    assert_eq!(ty(3).target(), Some(TypeId(2)));
    assert_eq!(ty(3).name(), None);
    assert_eq!(ty(4).array(), Some(btf::Array { element: TypeId(2), index: TypeId(1), len: 16 }));
    let members: Vec<_> = ty(5).members().map(|m| (m.name.unwrap(), m.ty, m.bit_offset)).collect();
    assert_eq!(members, [("comm", TypeId(4), 0), ("name", TypeId(3), 128)]);
    assert_eq!(ty(7).enumerators().map(|e| e.value).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(ty(13).params().len(), 2);
    assert_eq!((ty(14).linkage(), ty(15).linkage()), (Some(0), Some(1)));
    assert_eq!(ty(16).section_vars().next().unwrap().var, TypeId(15));
    assert_eq!(ty(18).component(), None);
    assert_eq!(ty(20).enumerators().next().unwrap().value, 1 << 63);
    // Nothing comes out of the wrong kind.
    assert_eq!(ty(1).members().len() + ty(5).params().len() + ty(5).enumerators().len(), 0);
    assert_eq!((ty(5).int(), ty(5).array(), ty(3).size(), ty(5).linkage()), (None, None, None, None));
    assert_eq!(btf.get(TypeId(0)).unwrap().kind(), Void);
    assert!(matches!(btf.get(TypeId(21)), Err(Error::NoType(21))));
}

#[test]
fn sizes_and_alignments() {
    let btf = Btf::from_bytes(all_kinds()).unwrap();
    let sizes: Vec<Option<u64>> = btf.ids().map(|id| btf.size_of(id).ok()).collect();
    #[rustfmt::skip]
    assert_eq!(sizes, [
        Some(4), Some(1), Some(8), Some(16), Some(32), Some(8), Some(4), None, Some(32), Some(4), Some(32), Some(8), None, None,
        Some(4), Some(4), Some(8), None, Some(1), Some(8),
    ]);
    assert_eq!(btf.size_of(TypeId(8)).unwrap_err().to_string(), "`struct later` has no size");
    assert_eq!(btf.align_of(TypeId(5)).unwrap(), 8);
    assert_eq!(btf.align_of(TypeId(4)).unwrap(), 1);

    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let packed = b.strukt("packed", 5, &[NewMember::at("i", int, 1)]);
    let huge = b.array(packed, int, u32::MAX);
    let huger = b.array(huge, int, u32::MAX);
    let huge_int = b.int("__int128", 16, true);
    let btf = Btf::from_bytes(b.finish()).unwrap();
    assert_eq!(btf.align_of(packed).unwrap(), 1);
    assert_eq!(btf.size_of(huge).unwrap(), 5 * u64::from(u32::MAX));
    assert!(matches!(btf.size_of(huger), Err(Error::TooLarge(_))));
    assert_eq!(btf.align_of(huge_int).unwrap(), 16);
}

#[test]
fn c_is_spelled_as_c() {
    let mut b = Builder::new();
    let char = b.int("char", 1, true);
    let int = b.int("int", 4, true);
    let const_char = b.qualified(Kind::Const, char);
    let text = b.ptr(const_char);
    let const_text = b.qualified(Kind::Const, text);
    let restrict_text = b.qualified(Kind::Restrict, text);
    let row = b.array(int, int, 3);
    let table = b.array(row, int, 2);
    let row_ptr = b.ptr(row);
    let proto = b.func_proto(int, &[("", text), ("", TypeId::VOID)]);
    let fn_ptr = b.ptr(proto);
    let fn_table = b.array(fn_ptr, int, 4);
    let returns_fn = b.func_proto(fn_ptr, &[("sig", int)]);
    let signal = b.func("signal", returns_fn, Linkage::Global);
    let anonymous = b.strukt("", 4, &[NewMember::at("x", int, 0)]);
    let anonymous_ptr = b.ptr(anonymous);
    let nothing = b.func_proto(TypeId::VOID, &[]);
    let run = b.func("run", nothing, Linkage::Global);
    let fwd = b.fwd("hidden", true);
    let flexible = b.array(fwd, int, 0);
    let volatile_int = b.qualified(Kind::Volatile, int);
    let const_volatile = b.qualified(Kind::Const, volatile_int);
    let user_char = b.type_tag("user", const_char);
    let user = b.ptr(user_char);
    let btf = Btf::from_bytes(b.finish()).unwrap();

    for (id, name, cast, declaration) in [
        (char, "c", "char", "char c"),
        (text, "s", "const char *", "const char *s"),
        (const_text, "s", "const char *const", "const char *const s"),
        (restrict_text, "s", "const char *restrict", "const char *restrict s"),
        (table, "t", "int[2][3]", "int t[2][3]"),
        (row_ptr, "r", "int (*)[3]", "int (*r)[3]"),
        (proto, "f", "int (const char *, ...)", "int f(const char *, ...)"),
        (fn_ptr, "f", "int (*)(const char *, ...)", "int (*f)(const char *, ...)"),
        (fn_table, "f", "int (*[4])(const char *, ...)", "int (*f[4])(const char *, ...)"),
        (anonymous_ptr, "p", "struct {...} *", "struct {...} *p"),
        (flexible, "h", "union hidden[]", "union hidden h[]"),
        (const_volatile, "i", "const volatile int", "const volatile int i"),
        (TypeId::VOID, "v", "void", "void v"),
        (user, "s", "const char *", "const char *s"),
        (TypeId(999), "v", "?", "? v"),
    ] {
        assert_eq!(btf.type_name(id), cast);
        assert_eq!(btf.declare(id, name), declaration);
    }
    assert_eq!(btf.func_decl(signal), "int (*signal(int sig))(const char *, ...)");
    assert_eq!(btf.func_decl(run), "void run(void)");
    assert_eq!(btf.func_decl(text), "const char *");

    assert_eq!(btf.is_char_ptr(text), Some(CharPtr { is_const: true, is_user: false }));
    assert_eq!(btf.is_char_ptr(user), Some(CharPtr { is_const: true, is_user: true }));
    assert_eq!(btf.is_char_ptr(row_ptr), None);
    assert!(btf.is_user_ptr(user) && !btf.is_user_ptr(text));
    let proto = btf.proto(fn_ptr).unwrap();
    assert!(proto.variadic && proto.params.len() == 1 && proto.ret == int);
    assert_eq!(
        btf.proto(int).unwrap_err().to_string(),
        format!("`int` (type {int}) is an integer, not a function")
    );
}

#[test]
fn members_are_found_through_anonymous_ones() {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let inner = b.strukt("", 8, &[NewMember::at("x", int, 0), NewMember::at("y", int, 4)]);
    let either = b.union("", 8, &[NewMember::at("", inner, 0)]);
    let middle = b.strukt("middle", 12, &[NewMember::at("a", int, 0), NewMember::at("", either, 4)]);
    let alias = b.typedef("middle_t", middle);
    let outer =
        b.strukt("outer", 24, &[NewMember::at("first", alias, 0), NewMember::at("second", alias, 12)]);
    let ptr = b.ptr(outer);
    let btf = Btf::from_bytes(b.finish()).unwrap();
    let at = btf.member(outer, "second.y").unwrap();
    assert_eq!((at.bit_offset, at.bitfield_size, at.ty, at.byte_offset()), (20 * 8, 0, int, 20));
    for path in ["", ".", "second.", "second..y", "third", "second.z"] {
        assert!(matches!(btf.member(outer, path), Err(Error::NoMember { .. })), "{path:?}");
    }
    assert_eq!(
        btf.member(outer, "second.y.z").unwrap_err().to_string(),
        "`int` (type 1) is an integer, not a struct or union"
    );
    assert!(matches!(btf.member(ptr, "first"), Err(Error::WrongKind { found: Kind::Ptr, .. })));
}

#[test]
fn definitions_show_offsets_and_holes() {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let char = b.int("char", 1, true);
    let mode = b.enumeration("", 4, true, &[("OFF", 0), ("BAD", -1)]);
    let pair = b.strukt("", 8, &[NewMember::at("x", int, 0), NewMember::at("y", int, 4)]);
    let pairs = b.array(pair, int, 2);
    let s = b.strukt(
        "s",
        40,
        &[
            NewMember::at("c", char, 0),
            NewMember { name: "low", ty: int, bit_offset: 32, bitfield_size: 3 },
            NewMember { name: "high", ty: int, bit_offset: 36, bitfield_size: 4 },
            NewMember::at("pairs", pairs, 8),
            NewMember::at("", pair, 24),
            NewMember::at("mode", mode, 32),
        ],
    );
    let alias = b.typedef("mode_t", mode);
    let var = b.var("v", int, Linkage::Static);
    let data = b.datasec(".bss", 4, &[(var, 0, 4)]);
    let btf = Btf::from_bytes(b.finish()).unwrap();
    assert_eq!(
        btf.definition(s),
        "\
struct s {
    char c;                                     /*     0     1 */
    /* hole: 3 bytes */
    int low:3;                                  /*     4: 0  4 */
    /* hole: 1 bit */
    int high:4;                                 /*     4: 4  4 */
    /* hole: 3 bytes */
    struct {
        int x;                                  /*     8     4 */
        int y;                                  /*    12     4 */
    } pairs[2];                                 /*     8    16 */
    struct {
        int x;                                  /*    24     4 */
        int y;                                  /*    28     4 */
    };                                          /*    24     8 */
    enum {
        OFF = 0,
        BAD = -1,
    } mode;                                     /*    32     4 */
    /* padding: 4 bytes */

    /* size: 40, members: 6, holes: 3 (49 bits), padding: 4 bytes, alignment: 4 */
};"
    );
    assert_eq!(btf.definition(alias), "typedef enum {\n    OFF = 0,\n    BAD = -1,\n} mode_t;");
    assert_eq!(btf.definition(int), "int; /* size: 4, signed */");
    assert_eq!(
        btf.definition(data),
        "\
.bss {
    int v;                                      /*     0     4 */

    /* size: 4, variables: 1 */
};"
    );
    assert_eq!(btf.definition(TypeId(99)), "?;");
}

#[test]
fn structs_with_a_name_are_written_out_on_demand() {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let inner = b.strukt("inner", 8, &[NewMember::at("a", int, 0), NewMember::at("b", int, 4)]);
    let inner_t = b.typedef("inner_t", inner);
    let pair = b.array(inner_t, int, 2);
    let constant = b.qualified(Kind::Const, inner);
    let pointer = b.ptr(inner);
    let odd = b.int("long int", 8, true);
    let outer = b.strukt(
        "outer",
        36,
        &[
            NewMember::at("first", constant, 0),
            NewMember::at("pair", pair, 8),
            NewMember::at("link", pointer, 24),
            // Eight bytes at 28: it is packed.
            NewMember::at("odd", odd, 28),
        ],
    );
    let outer_t = b.typedef("outer_t", outer);
    let btf = Btf::from_bytes(b.finish()).unwrap();
    let plain = btf.definition(outer);
    assert!(plain.contains("    const struct inner first;                   /*     0     8 */\n"), "{plain}");
    assert!(plain.ends_with("alignment: 1 */\n} __attribute__((packed));"), "{plain}");
    let expanded = btf.definition_expanded(outer, 1);
    let start = "\
struct outer {
    const struct inner {
        int a;                                  /*     0     4 */
        int b;                                  /*     4     4 */
    } first;                                    /*     0     8 */
    /* inner_t */ struct inner {
        int a;                                  /*     8     4 */
        int b;                                  /*    12     4 */
    } pair[2];                                  /*     8    16 */
    struct inner *link;                         /*    24     8 */
";
    assert!(expanded.starts_with(start), "{expanded}");
    assert_eq!(btf.definition(outer_t), "typedef struct outer outer_t;");
    let one = btf.definition_expanded(outer_t, 1);
    assert!(one.starts_with("typedef struct outer {\n    const struct inner first; "), "{one}");
    assert!(one.ends_with("} outer_t;"), "{one}");
    let two = btf.definition_expanded(outer_t, 2);
    assert!(two.contains("    const struct inner {\n"), "{two}");
}

// Case 10: a type that lives in a module's BTF only.
#[test]
fn split_btf_continues_its_base() {
    let base = Arc::new(Btf::from_bytes(all_kinds()).unwrap());
    let mut b = Builder::split(&base);
    let ptr = b.ptr(TypeId(5));
    let own = b.strukt("module_only", 8, &[NewMember::at("task", ptr, 0)]);
    let proto = b.func_proto(TypeId(1), &[("m", ptr)]);
    let run = b.func("run", proto, Linkage::Static);
    let bytes = b.finish();
    assert_eq!(ptr, TypeId(21));

    let btf = Btf::from_bytes_split(bytes, base.clone()).unwrap();
    assert_eq!((btf.len(), btf.own_ids().count()), (25, 4));
    assert_eq!(btf.find(Kind::Struct, "module_only"), Some(own));
    assert_eq!(base.find(Kind::Struct, "module_only"), None);
    assert_eq!(btf.find(Kind::Struct, "task"), Some(TypeId(5)));
    assert_eq!(btf.find_all(Kind::Func, "run"), [TypeId(14), run]);
    let names: Vec<_> = btf.names(Kind::Func).collect();
    assert_eq!(names, [(TypeId(14), "run"), (run, "run")]);
    assert_eq!(btf.func_decl(run), "int run(struct task *m)");
    assert_eq!(btf.enumerator("GREEN"), Some(1));
    assert_eq!(btf.ids_of(Kind::Ptr).collect::<Vec<_>>(), [TypeId(3), ptr]);
    let member = btf.member(own, "task").unwrap();
    assert_eq!(btf.type_name(member.ty), "struct task *");
}

#[test]
fn names_are_compared_whole() {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    // Alike in their first eight bytes; shorter than eight; one the beginning of another.
    let names = ["vfs_read", "vfs_readv", "vfs_readlink", "a", "ab", "abcdefgh", "abcdefg"];
    let ids: Vec<TypeId> = names.iter().map(|n| b.typedef(n, int)).collect();
    let btf = Btf::from_bytes(b.finish()).unwrap();
    for (name, id) in names.iter().zip(&ids) {
        assert_eq!(btf.find(Kind::Typedef, name), Some(*id), "{name}");
        assert_eq!(btf.find(Kind::Struct, name), None);
    }
    for name in ["", "vfs_rea", "b", "abc", "abcdefghi", "a\0", "\0"] {
        assert_eq!(btf.find(Kind::Typedef, name), None, "{name:?}");
    }
    let from = |prefix| btf.names_from(Kind::Typedef, prefix).map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(from("vfs_readl"), ["vfs_readlink"]);
    assert_eq!(from("vfs_"), ["vfs_read", "vfs_readv", "vfs_readlink"]);
    assert_eq!(from("abcdefgh"), ["abcdefgh"]);
    assert_eq!(from("a"), ["a", "ab", "abcdefgh", "abcdefg"]);
    assert_eq!(from("a\0"), [""; 0]);
    assert_eq!(from(""), names);
    // Asked for twice, answered twice.
    let twice = btf.find_many(&[(Kind::Typedef, "a"), (Kind::Int, "int"), (Kind::Typedef, "a")]);
    assert_eq!(twice, [Some(ids[3]), Some(int), Some(ids[3])]);
    assert!(btf.find_many(&[]).is_empty());
}

/// Overwrites the little-endian word at `at`.
fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
}

#[test]
fn headers_are_checked() {
    let good = all_kinds();
    let reason = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        Btf::from_bytes(bytes).unwrap_err().to_string()
    };
    assert!(reason(&|b| b.truncate(7)).contains("shorter than its header"));
    assert!(reason(&|b| b.truncate(20)).contains("shorter than its header"));
    assert!(reason(&|b| b.swap(0, 1)).contains("other endianness"));
    assert!(reason(&|b| b[0] = 0).contains("magic"));
    assert!(reason(&|b| b[2] = 2).contains("version"));
    assert!(reason(&|b| put(b, 4, 8)).contains("header is shorter"));
    assert!(reason(&|b| put(b, 4, u32::MAX)).contains("shorter than its header"));
    assert!(reason(&|b| put(b, 12, u32::MAX)).contains("type section"));
    assert!(reason(&|b| put(b, 16, u32::MAX)).contains("string section"));
    assert!(reason(&|b| *b.last_mut().unwrap() = b'x').contains("has no end"));
    assert!(reason(&|b| put(b, 24 + 4, 0)).contains("type 1: its kind is 0"));
    assert!(reason(&|b| put(b, 24 + 4, 20 << 24)).contains("type 1 is of kind 20"));
    assert!(reason(&|b| put(b, 24 + 4, (4 << 24) | 0xffff)).contains("type 1: its record reaches beyond"));
}

// Since 7.1 a layout section may tell the length of records of new kinds; since 7.2 a kind has seven bits and a vlen
// twenty-four.
#[test]
fn new_kinds_are_skipped_by_the_layout_section() {
    let mut types = Vec::new();
    let mut words = |words: &[u32]| words.iter().for_each(|w| types.extend_from_slice(&w.to_le_bytes()));
    words(&[1, 1 << 24, 4, (1 << 24) | 32]); // int
    words(&[0, (0x45 << 24) | 3, 0, 7, 8, 9, 10]); // kind 69: one word, and one for each of three
    words(&[0, 2 << 24, 1]); // a pointer to int
    let strings = b"\0int\0\0\0\0";
    let mut layout = vec![0_u8; 0x46 * 4];
    layout[0x45 * 4..].copy_from_slice(&[4, 4, 0, 0]);
    let (t, s, l) = (types.len() as u32, strings.len() as u32, layout.len() as u32);
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    for word in [32, 0, t, t, s, t + s, l] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    let blob = [&bytes[..], &types, strings, &layout].concat();

    let btf = Btf::from_bytes(blob.clone()).unwrap();
    assert_eq!(btf.len(), 4);
    assert_eq!(btf.get(TypeId(2)).unwrap().kind(), Kind::Unknown);
    assert_eq!(btf.type_name(TypeId(3)), "int *");
    assert_eq!(btf.find(Kind::Int, "int"), Some(TypeId(1)));

    // Without the layout's help it is said what is missing.
    let mut without = blob;
    put(&mut without, 28, 0);
    let error = Btf::from_bytes(without).unwrap_err();
    assert!(matches!(error, Error::UnknownKind { id: 2, kind: 0x45 }), "{error}");
}

#[test]
fn more_than_65535_members() {
    let mut b = Builder::new();
    let char = b.int("char", 1, true);
    let members: Vec<_> = (0..70_000).map(|i| NewMember::at("m", char, i)).collect();
    let wide = b.strukt("wide", 70_000, &members);
    let btf = Btf::from_bytes(b.finish()).unwrap();
    assert_eq!(btf.get(wide).unwrap().members().len(), 70_000);
    assert_eq!(btf.len(), 3);
}

// Before kind_flag (5.0, pahole 1.12) the width of a bit-field lay in its integer type.
#[test]
fn old_bit_fields_read_like_new_ones() {
    let mut b = Builder::new();
    let int = b.int("unsigned int", 4, false);
    let strukt = b.strukt("old", 4, &[NewMember::at("a", int, 0), NewMember::at("b", int, 0)]);
    let mut bytes = b.finish();
    // Three bits, five into the word.
    put(&mut bytes, 24 + 12, (5 << 16) | 3);
    let btf = Btf::from_bytes(bytes).unwrap();
    let at = btf.member(strukt, "b").unwrap();
    assert_eq!((at.bit_offset, at.bitfield_size), (5, 3));
}

#[test]
fn names_are_looked_up_as_c_does() {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let ulong = b.int("long unsigned int", 8, false);
    let file = b.strukt("file", 4, &[NewMember::at("f", int, 0)]);
    let other_file = b.typedef("file", ulong);
    b.fwd("later", false);
    let first = b.enumeration("", 4, false, &[("OPEN", 1), ("SHUT", 7)]);
    let second = b.enumeration("", 1, true, &[("SHUT", -1)]);
    let wide = b.enumeration64("wide", false, &[("TOP", -1)]);
    let var = b.var("count", ulong, Linkage::Static);
    let alone = b.var("alone", int, Linkage::Global);
    b.datasec(".data..percpu", 64, &[(var, 16, 8)]);
    let base = Arc::new(Btf::from_bytes(b.finish()).unwrap());
    let mut b = Builder::split(&base);
    let own = b.strukt("own", 8, &[NewMember::at("n", ulong, 0)]);
    let own_var = b.var("own_count", own, Linkage::Static);
    b.datasec(".data..percpu", 8, &[(own_var, 0, 8)]);
    let split = Btf::from_bytes_split(b.finish(), Arc::clone(&base)).unwrap();

    let names = Lookup::new(&split);
    // Twice: found, then remembered.
    for _ in 0..2 {
        assert_eq!((names.ty("struct file"), names.ty("file")), (Some(file), Some(other_file)));
        assert_eq!((names.ty("unsigned long"), names.ty("struct own")), (Some(ulong), Some(own)));
        assert_eq!((names.ty("enum wide"), names.ty("void")), (Some(wide), Some(TypeId::VOID)));
        assert_eq!((names.ty("struct later"), names.ty("own"), names.ty("")), (None, None, None));
        let shut = names.enumerator("SHUT").unwrap();
        assert_eq!((shut.of, shut.value, shut.signed, shut.size), (first, 7, false, 4));
        assert_eq!(names.enumerator("TOP").map(|e| e.value), Some(u64::MAX.into()));
        assert_eq!(names.enumerator("CLOSED"), None);
        let count = names.variable("count").unwrap();
        assert_eq!((count.id, count.ty, count.offset, count.size), (var, ulong, 16, 8));
        assert!(count.is_per_cpu());
        let own_count = names.variable("own_count").unwrap();
        assert!(own_count.id == own_var && own_count.is_per_cpu());
        let alone_found = names.variable("alone").unwrap();
        assert!(alone_found.id == alone && alone_found.section.is_none() && !alone_found.is_per_cpu());
        assert_eq!(names.variable("counter"), None);
    }
    let all = split.enumerators_named("SHUT");
    assert_eq!(all.iter().map(|e| (e.of, e.value)).collect::<Vec<_>>(), [(first, 7), (second, -1)]);
    assert_eq!(split.enumerator_names().collect::<Vec<_>>(), ["OPEN", "SHUT", "SHUT", "TOP"]);
}
