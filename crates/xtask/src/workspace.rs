//! Where things lie: the workspace and the lab's part of its `target` folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The root of the workspace, where `Cargo.lock` is.
pub fn root() -> PathBuf {
    // Cargo sets the variable for what it runs; the compile-time value serves a binary that is started by hand.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .filter(|folder| folder.ends_with("crates/xtask"))
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    manifest.ancestors().nth(2).map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// The lab's cache: kernels, package lists, guest binaries. It is under the workspace's own `target`, whatever
/// `CARGO_TARGET_DIR` says, so that every caller shares it.
pub fn lab() -> PathBuf {
    root().join("target/lab")
}

/// Takes the lock at `path`, waiting for whoever holds it: two runs at once must not fetch the same thing. It is
/// held until the file is dropped.
pub fn lock(path: &Path) -> Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let file = File::create(path).with_context(|| format!("making {}", path.display()))?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}
