//! What the tests of the command have in common.
#![allow(dead_code, reason = "each test takes what it needs")]

use std::process::{Command, Output, Stdio};

/// Runs the command to its end.
pub fn btrace(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_btrace")).args(args).stdin(Stdio::null()).output().expect("run btrace")
}

/// What was written.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What was said on stderr.
pub fn stderr(output: &Output) -> String {
    text(&output.stderr)
}

/// Whether the kernel shows its types; if not that is said, so that a skip is seen.
pub fn has_types() -> bool {
    let has = std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    if !has {
        eprintln!("SKIP: this kernel shows no types (/sys/kernel/btf/vmlinux)");
    }
    has
}
