//! `cargo xtask dist`: what is handed out. One static binary, completions, the manual page.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{Failure, guest, workspace};

/// Make the static binary, shell completions and the manual page, in dist/.
#[derive(Debug, clap::Args)]
pub struct Arguments {}

/// The binary stays below this.
const LARGEST: u64 = 6 << 20;

/// Makes everything; gives back the exit status.
pub fn run(_: &Arguments) -> Result<u8, Failure> {
    make().map(|()| 0).map_err(|error| Failure::new(1, error))
}

fn make() -> Result<()> {
    let dist = workspace::root().join("dist");
    fs::create_dir_all(&dist).with_context(|| format!("making {}", dist.display()))?;
    let built = guest::build(true)?.btrace.context("no btrace was built")?;
    let binary = dist.join("btrace");
    fs::copy(&built, &binary).with_context(|| format!("copying {}", built.display()))?;
    let size = fs::metadata(&binary)?.len();
    ensure!(size < LARGEST, "{} bytes, and it must stay below {LARGEST}", size);
    let interpreter = Command::new("readelf").arg("-l").arg(&binary).output();
    if let Ok(output) = interpreter {
        ensure!(!String::from_utf8_lossy(&output.stdout).contains("INTERP"), "the binary is not static");
    }
    for (what, name) in
        [("bash", "btrace.bash"), ("zsh", "_btrace"), ("fish", "btrace.fish"), ("man", "btrace.8")]
    {
        generate(&binary, what, &dist.join(name))?;
    }
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        fs::copy(workspace::root().join(licence), dist.join(licence)).with_context(|| licence.to_string())?;
    }
    println!(
        "dist/: btrace ({:.2} MB, static), completions for bash, zsh and fish, btrace.8",
        size as f64 / 1e6
    );
    Ok(())
}

fn generate(binary: &Path, what: &str, to: &Path) -> Result<()> {
    let output = Command::new(binary).args(["--generate", what]).stdin(Stdio::null()).output()?;
    ensure!(output.status.success() && !output.stdout.is_empty(), "btrace --generate {what} failed");
    fs::write(to, output.stdout).with_context(|| format!("writing {}", to.display()))
}
