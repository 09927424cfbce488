//! Random expressions over the types of `types.h`: well-typed by the way they are made.

use proptest::prelude::*;
use proptest::sample::select;

fn texts(all: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(all).prop_map(String::from)
}

/// Pointers to `struct outer` or `struct node`, and what is not there.
fn pointer() -> impl Strategy<Value = (String, bool)> {
    const OUTER: &[&str] =
        &["o", "o->self", "n->up", "o->self->self", "(&*o)", "((struct outer *)(void *)o)"];
    const NODE: &[&str] = &[
        "n",
        "o->head",
        "n->next",
        "n->next->next",
        "(*n->link)",
        "o->nodes[1]",
        "o->nodes[3]",
        "(*o->pp)",
        "o->pk.p",
        "pk->p",
        "((node_t *)n)",
        "(o->head + 1)",
        "(i > 0 ? n : o->head)",
        "container_of(&n->val, struct node, val)",
    ];
    const LOST: &[(&str, bool)] = &[
        ("null", true),
        ("bad", true),
        ("null->self", true),
        ("bad->self", true),
        ("far", false),
        ("o->nodes[2]", false),
        ("o->self->head", false),
        ("o->pp[1]", false),
        ("o->pp[3]", false),
        ("n->next->next->next->next", false),
        ("o->nodes[u & 3]", false),
        ("(b ? n : far)", false),
        ("(l < 0 ? o : null)", true),
    ];
    prop_oneof![
        6 => select(OUTER).prop_map(|text| (text.to_string(), true)),
        4 => select(NODE).prop_map(|text| (text.to_string(), false)),
        1 => select(LOST).prop_map(|(text, outer)| (text.to_string(), outer)),
    ]
}

const OUTER_MEMBERS: &[&str] = &[
    "c8",
    "b8",
    "s16_",
    "u16_",
    "i32",
    "u32_",
    "i64",
    "u64_",
    "flag",
    "ch",
    "in.s",
    "in.b",
    "in.c",
    "in.i",
    "arr[0].i",
    "arr[2].s",
    "grid[0][1]",
    "grid[1][2]",
    "anon_i",
    "lo",
    "hi",
    "un.i",
    "un.bytes[1]",
    "un.in.s",
    "un.w",
    "comm[2]",
    "mac[5]",
    "port",
    "addr",
    "addr6[15]",
    "color",
    "temp",
    "wide",
    "deep",
    "tiny",
    "over",
    "cv",
    "len",
    "flex[0]",
    "flex[2]",
    "bits.u1",
    "bits.u3",
    "bits.u7",
    "bits.u13",
    "bits.u8_",
    "bits.u31",
    "bits.u1b",
    "bits.u32_",
    "bits.s1",
    "bits.s2",
    "bits.s5",
    "bits.s17",
    "bits.s7",
    "bits.s31",
    "bits.s1b",
    "bits.s32_",
    "bits.l33",
    "bits.l31",
    "bits.sl40",
    "bits.sl24",
    "bits.l63",
    "bits.l1",
    "bits.l64",
    "bits.sl64",
    "bits.flag",
    "bits.lo",
    "bits.hi",
    "bits.w11",
    "bits.w5",
    "bits.col",
    "bits.tmp",
    "bits.last",
    "pb.a",
    "pb.b",
    "pb.c",
    "pb.d",
    "pb.e",
    "pb.f",
    "pb.g",
    "pb.h",
    "pb.i",
    "pk.a",
    "pk.b",
    "pk.c",
    "pk.d",
    "pk.e",
    "pk.f",
    "pk.g",
    "pk.in.s",
    "pk.in.i",
    "bytes[3]",
    "shorts[2]",
    "row[1][0]",
    "flags[0]",
    "flags[4]",
];

fn leaf() -> impl Strategy<Value = String> {
    let literal = prop_oneof![
        texts(&[
            "0",
            "1",
            "-1",
            "2",
            "7",
            "31",
            "32",
            "33",
            "63",
            "64",
            "127",
            "128",
            "255",
            "256",
            "0x7fffffff",
            "0x80000000",
            "0xffffffff",
            "2147483648",
            "(-2147483647 - 1)",
            "1u",
            "3u",
            "0xffffffffffffffff",
            "0x8000000000000000",
            "1l",
            "-1l",
            "5ul",
            "'a'",
            "'\\xff'",
            "GREEN",
            "COLD",
            "OVER",
            "W_BIG",
            "D_LOW",
            "TINY_B",
            "sizeof(struct outer)",
            "sizeof o->arr",
        ]),
        any::<i32>().prop_map(|n| format!("({n}L)")),
        any::<u64>().prop_map(|n| format!("{n:#x}")),
    ];
    let root = texts(&[
        "i",
        "u",
        "l",
        "ul",
        "c",
        "s",
        "b",
        "e",
        "t",
        "pair.a",
        "pair.b",
        "pair.c",
        "pair.d",
        "pair.e",
        "vals.lo",
        "vals.hi",
        "vals.in.s",
        "vals.in.i",
        "vals.tail[2]",
        "$retval",
        "$pid",
        "$duration",
        "$ctx",
        "$args[8]",
        "$ns",
    ]);
    let member =
        (pointer(), select(OUTER_MEMBERS), texts(&["val", "name[3]", "up->len", "next->val", "text[1]"]))
            .prop_map(
                |((at, outer), of_outer, of_node)| {
                    if outer { format!("{at}->{of_outer}") } else { format!("{at}->{of_node}") }
                },
            );
    let own = (
        select(BITS),
        texts(&["pk->a", "pk->d", "pk->g", "pb->b", "pb->g", "pb->i", "pb->d", "pb->h"]),
        any::<bool>(),
    )
        .prop_map(|(bits, packed, which)| if which { format!("bits->{bits}") } else { packed });
    let number_of_pointer = pointer().prop_map(|(at, _)| format!("(u64){at}"));
    prop_oneof![3 => literal, 4 => root, 8 => member, 2 => own, 1 => number_of_pointer]
}

const BITS: &[&str] = &[
    "u1", "u3", "u7", "u13", "u8_", "u31", "u1b", "u32_", "s1", "s2", "s5", "s17", "s7", "s31", "s1b",
    "s32_", "l33", "l31", "sl40", "sl24", "l63", "l1", "l64", "sl64", "flag", "lo", "hi", "w11", "w5", "col",
    "tmp", "last",
];

const TYPES: &[&str] = &[
    "char",
    "signed char",
    "unsigned char",
    "short",
    "unsigned short",
    "int",
    "unsigned",
    "long",
    "unsigned long",
    "_Bool",
    "u8",
    "s8",
    "u16",
    "s16",
    "u32",
    "s32",
    "u64",
    "s64",
    "enum color",
    "enum temp",
    "enum tiny",
    "enum wide",
];

/// A number.
pub fn number() -> BoxedStrategy<String> {
    leaf()
        .prop_recursive(5, 40, 3, |inner| {
            let arithmetic = (
                inner.clone(),
                texts(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "/", "%", "<<", ">>"]),
                inner.clone(),
            )
                .prop_map(|(a, op, b)| format!("({a} {op} {b})"));
            let comparison = (inner.clone(), texts(&["<", "<=", ">", ">=", "==", "!="]), inner.clone())
                .prop_map(|(a, op, b)| format!("({a} {op} {b})"));
            let logic = (inner.clone(), texts(&["&&", "||"]), inner.clone())
                .prop_map(|(a, op, b)| format!("({a} {op} {b})"));
            let unary = (texts(&["-", "~", "!", "+", "!!"]), inner.clone()).prop_map(|(op, a)| format!("({op} {a})"));
            let cast = (select(TYPES), inner.clone()).prop_map(|(ty, a)| format!("(({ty}){a})"));
            let cond = (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})"));
            let list = (inner.clone(), proptest::collection::vec(inner.clone(), 1..4))
                .prop_map(|(a, list)| format!("({a} in ({}))", list.join(", ")));
            let swap = (texts(&["ntohs", "ntohl", "ntohll", "htons", "htonl", "port"]), inner.clone())
                .prop_map(|(name, a)| format!("{name}({a})"));
            let element = (inner.clone(), select(&[
                "o->arr[({}) & 1].i",
                "o->grid[({}) & 1][2]",
                "o->bytes[({}) & 63]",
                "o->shorts[({}) & 31]",
                "o->nodes[({}) & 3]->val",
                "o->pp[({}) & 3]->val",
                "o->flex[({}) & 7]",
                "*(int *)(o->vp + (({}) & 63))",
                "*((u64 *)v + (({}) & 15))",
                "*(s16 *)((char *)o + (({}) & 127))",
                "((struct inner *)o->bytes)[({}) & 3].s",
                "((struct pbits *)o->vp)[({}) & 1].b",
                "((struct node *)(({}) & 4096))->val",
                "*(&o->in.i + (({}) & 3))",
                "(o->nodes + (({}) & 3))[0]->val",
                "((o->head + (({}) & 1)) - o->nodes[0])",
                "((s16 *)v - (({}) & 31) - o->shorts)",
                "(*(struct bits **)&o->vp)->s17",
            ][..]))
                .prop_map(|(a, form)| form.replace("{}", &a));
            let promoted = inner.clone().prop_map(|a| format!("sizeof({a} + 1)"));
            prop_oneof![
                8 => arithmetic, 3 => comparison, 2 => logic, 3 => unary, 5 => cast, 2 => cond, 1 => list, 1 => swap, 3 => element,
                1 => promoted,
            ]
        })
        .boxed()
}

/// What can be printed.
pub fn output() -> BoxedStrategy<String> {
    let whole = (
        pointer(),
        texts(&["in", "arr", "bits", "pb", "pk", "un", "grid", "arr[1]", "comm", "str", "mac", "self", "fn"]),
    )
        .prop_map(|((at, outer), member)| if outer { format!("{at}->{member}") } else { format!("*{at}") });
    let read = (pointer(), number(), texts(&["buf", "hex"]))
        .prop_map(|((at, _), n, name)| format!("{name}({at}, ({n}) & 127 | 1)"));
    let text = (
        pointer(),
        texts(&["str({})", "str({}, 9)", "hex({}, 24)", "buf({}, 5)", "ip6({})", "mac({})", "ksym({})"]),
    )
        .prop_map(|((at, _), form)| form.replace("{}", &at));
    let address = (pointer(), number()).prop_map(|((at, _), n)| format!("{at} + ({n})"));
    prop_oneof![
        12 => number(), 1 => whole, 1 => read, 1 => text, 1 => address,
        1 => texts(&["pair", "vals", "vals.in", "vals.tail", "$comm", "str", "n->name", "n->next->text", "hex(i)", "ip4(u)"]),
    ]
    .boxed()
}

/// What holds or does not.
pub fn test() -> BoxedStrategy<String> {
    let literal = || {
        texts(&[
            "eth0",
            "node0",
            "node1",
            "",
            "generated",
            "kworker/0:1",
            "sixteen bytes ok",
            "eth",
            "eth00",
            "lo",
        ])
    };
    let of = prop_oneof![
        texts(&[
            "str",
            "o->str",
            "o->comm",
            "n->text",
            "n->name",
            "$comm",
            "null->str",
            "bad->comm",
            "far->text",
            "str(v)"
        ]),
        pointer().prop_map(|(at, outer)| format!("{at}->{}", if outer { "comm" } else { "name" })),
        pointer().prop_map(|(at, outer)| format!("{at}->{}", if outer { "str" } else { "text" })),
    ];
    let text =
        (of, texts(&["==", "!="]), proptest::collection::vec(literal(), 1..4)).prop_map(|(of, op, list)| {
            // A name of a thread has 15 bytes at most: a longer one is refused.
            let most = if of == "$comm" { 15 } else { 16 };
            let list: Vec<&str> = list.iter().map(|text| text.get(..most).unwrap_or(text)).collect();
            match list.as_slice() {
                [one] => format!("{of} {op} \"{one}\""),
                list => format!("{of} in (\"{}\")", list.join("\", \"")),
            }
        });
    let address = (
        pointer(),
        texts(&[
            "ip6({}) == \"::1\"",
            "ip6({}) != \"::1\"",
            "ip4({}) == \"10.0.0.1\"",
            "ip4({}) != \"0.0.0.0\"",
            "mac({}) != \"00:11:22:aa:bb:cc\"",
            "mac({}) in (\"00:11:22:aa:bb:cc\", \"00:00:00:00:00:00\")",
            "{}",
            "!{}",
            "{} == 0",
            "{} != null",
            "{} in (n, o, null, o->head)",
        ]),
    )
        .prop_map(|((at, _), form)| form.replace("{}", &at));
    let comparison = (number(), texts(&["<", "<=", ">", ">=", "==", "!="]), number())
        .prop_map(|(a, op, b)| format!("{a} {op} {b}"));
    prop_oneof![3 => number(), 3 => comparison, 1 => text, 1 => address]
        .prop_recursive(3, 12, 2, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) && ({b})")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) || ({b})")),
                inner.clone().prop_map(|a| format!("!({a})")),
            ]
        })
        .boxed()
}
