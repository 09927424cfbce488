//! Counts what rendering costs: `valgrind --tool=callgrind cost WHAT N` for two N, and divide the difference.
//!
//! WHAT is `none` (the loop itself), `i32`, `u64`, `ptr`, `hex`, `text16`, `enum` or `struct` (`struct path`, of two pointers).

use std::hint::black_box;
use std::path::Path;

use btf::{Btf, Kind, Limits, Shape, TypeId, fast_hex};

fn main() -> Result<(), btf::Error> {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let times: u64 = args.next().and_then(|n| n.parse().ok()).unwrap_or(1000);
    let json = args.next().is_some();
    let btf = Btf::open(Path::new("/sys/kernel/btf/vmlinux"))?;
    let find = |kind, name| btf.find(kind, name).unwrap_or(TypeId::VOID);
    let task = find(Kind::Struct, "task_struct");
    let id = match what.as_str() {
        "i32" => find(Kind::Int, "int"),
        "u64" => find(Kind::Int, "long unsigned int"),
        "ptr" | "hex" => btf.member(task, "real_parent")?.ty,
        "text16" => btf.member(task, "comm")?.ty,
        "enum" => find(Kind::Enum, "pid_type"),
        _ => find(Kind::Struct, "path"),
    };
    let shape = Shape::of(&btf, id, &Limits::default());
    let mut out = Vec::with_capacity(4096);
    let bytes = match what.as_str() {
        "text16" => *b"kworker/0:1H\0\0\0\0",
        "enum" => [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        _ => 0xffff_8881_0123_4567_ffff_8881_0123_4567_u128.to_le_bytes(),
    };
    let bytes = black_box(&bytes);
    let mode = match (what.as_str(), json) {
        ("none", _) => 0,
        ("hex", _) => 1,
        (_, false) => 2,
        _ => 3,
    };
    for _ in 0..times {
        out.clear();
        match black_box(mode) {
            0 => {}
            1 => fast_hex(black_box(0xffff_8881_0123_4567), &mut out),
            2 => shape.text(bytes, &mut out),
            _ => shape.json(bytes, &mut out),
        }
        black_box(&mut out);
    }
    println!("{}", String::from_utf8_lossy(&out));
    Ok(())
}
