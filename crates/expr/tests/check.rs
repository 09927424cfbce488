//! What expressions mean by their types, and what is said of those that mean nothing.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use common::image::{Image, root_at};
use common::table::VALUES;
use expr::eval;
use expr::tree::Root;

#[test]
fn types_are_those_that_gcc_gives() {
    let world = common::world();
    let scope = world.scope();
    let mut wrong = Vec::new();
    for (text, wanted) in VALUES {
        let got = match expr::value(text, &scope) {
            Ok(value) => scope.types.name(&value.ty),
            Err(error) => format!("! {error}"),
        };
        if got != *wanted && !(*wanted == "!" && got.starts_with('!')) {
            wrong.push(format!("{text}: {got}, not {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Values and types of a real compiler, of the same bytes at the same address.
#[test]
#[ignore = "takes gcc: it checks the table above, by which the other tests go"]
fn gcc_agrees() {
    for (world, flag) in common::worlds().into_iter().zip(["-fsigned-char", "-funsigned-char"]) {
        gcc_agrees_with(&world, flag);
    }
}

fn gcc_agrees_with(world: &common::World, flag: &str) {
    use std::fmt::Write as _;
    use std::process::Command;
    const BASE: u64 = 0x2000_0000_0000;
    let scope = world.scope();
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut compared = 0;
    for seed in 0..4 {
        let image = Image::new(world, BASE, seed, true);
        let mut c = format!(
            "{}\n#include <stdio.h>\n#include <string.h>\n#include <sys/mman.h>\nstatic unsigned char image[] = {{ {} }};\n",
            common::TYPES,
            image.bytes.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
        );
        let mut main = String::new();
        for (n, (name, id)) in world.args.iter().enumerate() {
            writeln!(c, "{};", world.btf.declare(*id, name)).unwrap();
            let at = root_at(Root::Arg(n as u16), 0);
            writeln!(main, "memcpy(&{name}, (void *){:#x}, sizeof {name});", BASE + at as u64).unwrap();
        }
        let mut wanted = Vec::new();
        for (n, (text, ty)) in VALUES.iter().enumerate() {
            let Ok(value) = expr::value(text, &scope) else { continue };
            let Ok(number) = eval::value(&value, &image) else { continue };
            assert!(!image.unknown.replace(false), "{text}");
            wanted.push((n, number));
            writeln!(c, "static void e{n}(void) {{ __auto_type v = ({text}); printf(\"{n} %lx %d\\n\", (unsigned long)v, __builtin_types_compatible_p(__typeof__(v), {ty}) || __builtin_types_compatible_p(__typeof__(v), const {ty})); }}").unwrap();
            writeln!(main, "e{n}();").unwrap();
        }
        writeln!(c, "int main(void) {{ void *p = mmap((void *){BASE:#x}, sizeof image, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS|MAP_FIXED, -1, 0); if (p == MAP_FAILED) return 1; memcpy(p, image, sizeof image); {main} return 0; }}").unwrap();
        let (source, program) = (dir.join("agree.c"), dir.join("agree"));
        std::fs::write(&source, c).unwrap();
        let mut gcc = Command::new("gcc");
        gcc.args([flag, "-w", "-std=gnu11", "-fwrapv", "-fno-strict-aliasing", "-o"])
            .arg(&program)
            .arg(&source);
        assert!(gcc.status().unwrap().success());
        let output = Command::new(&program).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let output = String::from_utf8(output.stdout).unwrap();
        let mut wrong = Vec::new();
        for (line, (n, number)) in output.lines().zip(&wanted) {
            let (text, ty) = VALUES[*n];
            if line != format!("{n} {number:x} 1") {
                wrong.push(format!("{text}: {number:x} of type {ty}; gcc: {line}"));
            }
            compared += 1;
        }
        assert_eq!(output.lines().count(), wanted.len());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
    println!("{compared} values compared");
}

/// Every line of `errors.txt`: the place, and what is said.
#[test]
fn errors_point_at_their_place() {
    let world = common::world();
    let scope = world.scope();
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in include_str!("errors.txt").lines().filter(|line| !line.starts_with('#')) {
        let (kind, rest) = line.split_once('|').unwrap();
        let (marked, message) = rest.rsplit_once("»").unwrap();
        let (before, place) = marked.split_once('«').unwrap();
        // What is said may have a bar in it, what was written too.
        let (after, message) = message.split_once('|').unwrap();
        let text = format!("{before}{place}{after}");
        let error = match kind {
            "f" => expr::filter(&text, &scope).err(),
            "o" => expr::output(&text, &scope).err(),
            _ => expr::value(&text, &scope).err(),
        };
        let wanted = (before.len() as u32, (before.len() + place.len()) as u32, message);
        match &error {
            Some(e) if (e.span.start, e.span.end, e.message.as_str()) == wanted => {}
            other => wrong.push(format!("{line}\n  {other:?}")),
        }
        count += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 200);
}

/// What takes long to type if each level is typed more than once, and what is too much altogether.
#[test]
fn what_the_kernel_does_not_tell_is_refused_wherever_it_stands() {
    let world = common::world();
    let scope = expr::Scope { untold: &|name| (name == "ctx").then(|| "not here".into()), ..world.scope() };
    let said = |result: Result<(), expr::Error>, text: &str| {
        let error = result.expect_err(text);
        assert_eq!(error.message, "$ctx: not here", "{text}");
        assert_eq!(error.span.of(text), "$ctx", "{text}");
    };
    for text in
        ["$ctx == \"nmi\"", "\"nmi\" != $ctx", "$ctx in (\"task\", \"nmi\")", "$ctx > 0", "i == 1 || $ctx"]
    {
        said(expr::filter(text, &scope).map(drop), text);
    }
    for text in ["$ctx", "hex($ctx)", "$ctx + 1", "count() by ($ctx)", "count() by (i, $ctx)", "hist($ctx)"] {
        said(expr::output(text, &scope).map(drop), text);
    }
    expr::filter("$pid == 1", &scope).expect("it is told");
}

#[test]
fn deep_and_wide_expressions_are_typed_or_refused_at_once() {
    let world = common::world();
    let scope = world.scope();
    let long = format!("i{}", " + i".repeat(95));
    assert!(expr::value(&long, &scope).is_ok());
    let pointers = format!("o{}", " + 1".repeat(95));
    assert!(expr::value(&pointers, &scope).is_ok());
    let list = format!("i in (0{})", ", i + 1".repeat(500));
    assert!(expr::filter(&list, &scope).is_ok());
    let mut nested = String::from("o->addr6");
    for _ in 0..12 {
        nested = format!("v + (ip6({nested}) in (\"::1\", \"::2\", \"::3\", \"::4\", \"::5\"))");
    }
    let error = expr::value(&nested, &scope).unwrap_err();
    assert_eq!(error.message, "the expression is too large");
    for text in [
        format!("i{}", "+i".repeat(4000)),
        format!("{}i", "- ".repeat(1500)),
        format!("{}i{}", "(".repeat(1500), ")".repeat(1500)),
        format!("o{}->len", "->self".repeat(600)),
        format!("{}v", "(struct outer *)".repeat(250)),
        format!("{}i", "sizeof ".repeat(500)),
        format!("{}1", "i?1:".repeat(1000)),
        format!("{}str{}", "str(".repeat(900), ")".repeat(900)),
        format!("hist({}i{})", "hex(".repeat(900), ")".repeat(900)),
    ] {
        let error = expr::output(&text, &scope).unwrap_err();
        assert!(
            ["nested deeper than 100", "at most 99, all together"]
                .iter()
                .any(|part| error.message.contains(part))
                || error.message.contains("longer than 4096"),
            "{}",
            error.message
        );
    }
}

#[test]
fn what_is_known_of_aggregates() {
    use expr::tree::{Function, Output, Statement, Text};
    let world = common::world();
    let scope = world.scope();
    let aggregate = |text: &str| match expr::output(text, &scope) {
        Ok(Statement::Aggregate(aggregate)) => aggregate,
        other => panic!("{text}: {other:?}"),
    };
    let name = |text: &str| scope.types.name(&aggregate(text).value.unwrap().ty);
    assert_eq!(name("sum(c)"), "long");
    assert_eq!(name("max(o->u32_)"), "unsigned long");
    assert_eq!(name("hist($duration)"), "unsigned long");
    assert_eq!(name("avg(bits->u7)"), "unsigned long");
    let lhist = aggregate("lhist(i, -10, 10, 5)");
    assert_eq!(lhist.function, Function::LHist { low: -10, high: 10, step: 5 });
    let keys = aggregate("count() by (str(str), $comm)");
    let spans: Vec<_> = keys.key_spans.iter().map(|s| s.of("count() by (str(str), $comm)")).collect();
    assert_eq!(spans, ["str(str)", "$comm"]);
    let keyed = aggregate("count() by ($comm, i, n->name, str(str, 200), str(str))");
    assert!(keyed.value.is_none());
    assert_eq!(keyed.keys.len(), 5);
    assert!(matches!(keyed.keys[0], Output::Text(Text::Comm, Some(16))));
    assert!(matches!(keyed.keys[2], Output::Text(Text::Memory { most: Some(16), .. }, Some(16))));
    assert!(matches!(keyed.keys[3], Output::Text(Text::Memory { .. }, Some(200))));
    assert!(matches!(keyed.keys[4], Output::Text(Text::Memory { .. }, Some(62))));
}

#[test]
fn where_a_text_lies_may_be_compared() {
    let world = common::world();
    let scope = world.scope();
    for text in [
        "str == 0",
        "str != NULL",
        "NULL == o->str",
        "o->comm == str",
        "str in (0, 0xffffffff81000000)",
        "str == -14",
        "o->comm == ul",
        "(long)o->comm == 3",
        "o == 3",
    ] {
        assert!(expr::filter(text, &scope).is_ok(), "{text}: {:?}", expr::filter(text, &scope));
    }
}
