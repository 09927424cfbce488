//! `cargo xtask bench --cost`: what each way of tracing a place costs, in instructions.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::frames;
use crate::vm::VmOptions;

/// Prints `btrace cost` of a function and of a tracepoint, counted under icount.
pub fn lab(kernel: &str) -> Result<()> {
    eprintln!("bench: counting instructions on {kernel} under icount");
    let scripts = [
        "btrace cost vfs_read --exact --rounds 3",
        "btrace cost tcp_connect --exact --rounds 3",
        "if grep -q netlink_extack /sys/kernel/tracing/available_events; then btrace cost netlink_extack --exact --rounds 3; else btrace cost sys_enter --exact --rounds 3; fi",
    ];
    let options =
        VmOptions { icount: true, timeout: Duration::from_secs(1200), ..VmOptions::new(kernel, "") };
    for ran in frames::run(&options, &scripts)? {
        ensure!(ran.status == 0, "status {}: {}", ran.status, ran.stderr);
        println!("{}", ran.stdout);
    }
    Ok(())
}
