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
    use std::fmt::Write as _;
    use std::process::Command;
    const BASE: u64 = 0x2000_0000_0000;
    let world = common::world();
    let scope = world.scope();
    let dir = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut compared = 0;
    for seed in 0..4 {
        let image = Image::new(&world, BASE, seed, true);
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
        gcc.args(["-w", "-std=gnu11", "-fwrapv", "-fno-strict-aliasing", "-o"]).arg(&program).arg(&source);
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
