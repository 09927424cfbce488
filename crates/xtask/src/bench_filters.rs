//! `cargo xtask bench`, the part about filters on arguments: what a call costs that one rejects, beside the same test written by
//! hand in C and compiled by clang.
//!
//! clang and LLVM are for this alone; they are fetched through apt. The C program has no types of its own: members are read at offsets
//! that the guest's BTF tells.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bench::{Line, PRELUDE, per_call};
use crate::frames;
use crate::initramfs::Addition;
use crate::vm::{self, VmOptions};
use crate::{apt, workspace};

/// A filter at `vfs_read`, and the same in C: `CTX(n)` is the n-th argument, `AT(type, pointer, struct, member)` reads a member.
struct Filter {
    expression: &'static str,
    c: &'static str,
    /// What its rows are called.
    ours: &'static str,
    by_hand: &'static str,
}

const FILTERS: [Filter; 3] = [
    Filter {
        expression: "count == 12345",
        c: "CTX(2) == 12345",
        ours: "rejected: count == 12345",
        by_hand: "  the same in C, by clang",
    },
    Filter {
        expression: "file->f_inode->i_ino == 12345",
        c: "AT(u64, AT(void *, CTX(0), file, f_inode), inode, i_ino) == 12345",
        ours: "rejected: file->f_inode->i_ino == 12345",
        by_hand: "  the same in C, by clang",
    },
    Filter {
        expression: "count > 4096 && file->f_inode->i_size > 100 || file->f_flags & 1",
        c: "(CTX(2) > 4096 && AT(s64, AT(void *, CTX(0), file, f_inode), inode, i_size) > 100) || (AT(u32, CTX(0), file, f_flags) & 1)",
        ours: "rejected: three tests, && and ||",
        by_hand: "  the same in C, by clang",
    },
];

/// How much dearer than by hand a rejected call may be.
const FACTOR: f64 = 1.3;

/// The members that the filters read.
const MEMBERS: [(&str, &str); 4] =
    [("file", "f_inode"), ("file", "f_flags"), ("inode", "i_ino"), ("inode", "i_size")];

/// Adds the rows. `bare`: ns of a call that is not traced.
pub fn lab(kernel: &str, lines: &mut Vec<Line>) -> Result<()> {
    apt::ensure(&[("clang", "clang"), ("llvm-objcopy", "llvm")])?;
    let offsets = offsets(kernel)?;
    let folder = tempfile::tempdir_in(workspace::lab()).context("making a folder to build in")?;
    let (mut additions, mut bodies) = (Vec::new(), vec!["loops".to_string()]);
    for (number, filter) in FILTERS.iter().enumerate() {
        let source = compile(folder.path(), number, filter, &offsets)?;
        additions.push(Addition { source, destination: format!("/lab/filter{number}.bin") });
        bodies.push(format!(
            "traced -k vfs_read --mode entry --filter-arg '{}' -o /dev/null; loops; done_with",
            filter.expression
        ));
        bodies.push(format!(
            "workloads fentry vfs_read /lab/filter{number}.bin >/tmp/up & b=$!; until grep -q attached /tmp/up; do sleep 0.1; done; loops; kill $b"
        ));
    }
    let outputs = "--output-arg count --output-arg 'file->f_inode->i_ino' --output-arg '$task->pid'";
    for options in ["", outputs, "--output-arg 'count()'", "--output-arg 'hist(count) by ($pid)'"] {
        bodies.push(format!(
            "traced -k vfs_read --mode entry --no-pointees --filter-arg 'count == 512' {options} -o /dev/null; kill -STOP $b; loops; kill -CONT $b; done_with"
        ));
    }
    let scripts: Vec<String> = bodies.iter().map(|body| format!("{PRELUDE}\n{body}")).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    eprintln!("bench: filters on {kernel} under icount");
    let options = VmOptions {
        icount: true,
        additions,
        timeout: Duration::from_secs(600),
        ..VmOptions::new(kernel, "")
    };
    let ran = frames::run(&options, &scripts)?;
    let (bare, rest) = ran.split_first().context("no answers")?;
    let bare = per_call(bare)?;
    let (filters, taken) = rest.split_at(2 * FILTERS.len());
    for (pair, filter) in filters.chunks(2).zip(&FILTERS) {
        let [ours, by_hand] = pair else { bail!("a filter without its yardstick") };
        ensure!(
            ours.stderr.contains("btrace: 0 events printed, 0 lost"),
            "{}: {}",
            filter.expression,
            ours.stderr
        );
        let (ours, by_hand) = (per_call(ours)? - bare, per_call(by_hand)? - bare);
        let row = |what, ours, bar, rivals| Line { what, ours, bar, unit: "insns", rivals };
        lines.push(row(filter.ours, ours, f64::min(150.0, by_hand * FACTOR), "bpftrace 150, bpfsnoop 527"));
        lines.push(row(filter.by_hand, by_hand, f64::INFINITY, ""));
    }
    let names = [
        "taken: entry, a filter, no output",
        "taken: the same with three outputs",
        "gathered: count()",
        "gathered: hist(count) by ($pid)",
    ];
    for (ran, what) in taken.iter().zip(names) {
        ensure!(ran.stderr.contains(" 0 lost"), "{what}: {}", ran.stderr);
        lines.push(Line { what, ours: per_call(ran)? - bare, bar: f64::INFINITY, unit: "insns", rivals: "" });
    }
    Ok(())
}

/// Where the members lie in the guest's structures, as `#define OFFSET_struct_member bytes`.
fn offsets(kernel: &str) -> Result<String> {
    let ran = vm::run(&VmOptions::new(
        kernel,
        "btrace types --json 'struct file,struct inode' || for s in file inode; do btrace types --json \"struct $s\"; done",
    ))?;
    let mut text = String::new();
    let output = String::from_utf8_lossy(&ran.stdout).into_owned();
    let types: Vec<Value> = output.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for (of, member) in MEMBERS {
        let ty = types.iter().find(|t| t["name"] == of).with_context(|| format!("struct {of}"))?;
        let bits = find(&ty["members"], member).with_context(|| format!("{member} in struct {of}"))?;
        text += &format!("#define OFFSET_{of}_{member} {}\n", bits / 8);
    }
    Ok(text)
}

/// The offset in bits of a member, those without a name looked into.
fn find(members: &Value, name: &str) -> Option<u64> {
    members.as_array()?.iter().find_map(|member| match &member["name"] {
        Value::Null => find(&member["members"], name),
        own if own == name => member["bit_offset"].as_u64(),
        _ => None,
    })
}

/// Compiles a filter to the instructions of an fentry program.
fn compile(folder: &Path, number: usize, filter: &Filter, offsets: &str) -> Result<std::path::PathBuf> {
    let [source, object, code] = ["c", "o", "bin"].map(|end| folder.join(format!("filter{number}.{end}")));
    // What an accepted call does, a helper by its number (ktime_get_ns), is never run here; it keeps the test from being dropped.
    let text = format!(
        "{offsets}typedef unsigned long long u64; typedef long long s64; typedef unsigned int u32;\n\
         #define CTX(n) (ctx[n])\n\
         #define AT(type, p, of, member) (*(type *)((char *)(p) + OFFSET_##of##_##member))\n\
         static u64 (*const ktime)(void) = (void *)5;\n\
         __attribute__((section(\"fentry\"), used)) int filter(u64 *ctx)\n\
         {{\n\tif (!({}))\n\t\treturn 0;\n\tktime();\n\treturn 0;\n}}\n",
        filter.c
    );
    std::fs::write(&source, text).context("writing a C program")?;
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-mcpu=v3", "-O2", "-c"]).arg(&source).arg("-o").arg(&object);
    let mut objcopy = Command::new("llvm-objcopy");
    objcopy.args(["-O", "binary", "--only-section=fentry"]).arg(&object).arg(&code);
    for command in [&mut clang, &mut objcopy] {
        let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {command:?}"))?;
        ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(code)
}
