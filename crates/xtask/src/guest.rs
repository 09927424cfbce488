//! Builds what runs in the guest: `btrace` and the test workloads, as static binaries.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::{apt, workspace};

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The static binaries for the guest.
#[derive(Debug)]
pub struct Binaries {
    /// `btrace`, unless the caller has its own.
    pub btrace: Option<PathBuf>,
    /// The workloads, which are the guest's init as well.
    pub workloads: PathBuf,
}

/// Builds the binaries in release form, `+crt-static`, in a target folder of their own; cargo sees for itself what is
/// fresh. Says so on stderr when it takes a while, and is silent otherwise.
///
/// # Errors
/// The build failed: the error holds what cargo said.
pub fn build(with_btrace: bool) -> Result<Binaries> {
    // libc6-dev has the static libc.
    apt::ensure(&[("gcc", "gcc"), ("/usr/lib/x86_64-linux-gnu/libc.a", "libc6-dev")])?;
    let folder = workspace::lab().join("build");
    let mut packages = vec!["workloads"];
    if with_btrace {
        packages.push("btrace");
    }
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(workspace::root())
        .args(["build", "--quiet", "--release", "--target", TARGET])
        .arg("--target-dir")
        .arg(&folder)
        .args(packages.iter().flat_map(|package| ["--package", package]))
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let child = command.spawn().context("running cargo")?;
    let waiting = thread::spawn(move || child.wait_with_output());
    let start = Instant::now();
    let mut said = false;
    while !waiting.is_finished() {
        thread::sleep(Duration::from_millis(5));
        if !said && start.elapsed() > Duration::from_secs(2) {
            eprintln!("lab: building {} for the guest", packages.join(" and "));
            said = true;
        }
    }
    let Ok(output) = waiting.join() else { bail!("waiting for cargo") };
    let output = output.context("waiting for cargo")?;
    ensure!(
        output.status.success(),
        "building {} for the guest failed:\n{}",
        packages.join(" and "),
        String::from_utf8_lossy(&output.stderr)
    );
    let binary = |name: &str| folder.join(TARGET).join("release").join(name);
    Ok(Binaries { btrace: with_btrace.then(|| binary("btrace")), workloads: binary("workloads") })
}
