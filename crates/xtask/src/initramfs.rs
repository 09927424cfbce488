//! The guest's file system, made anew for every run: busybox, btrace, the workloads, what the caller adds.
//!
//! `/init` is the workloads binary, which acts as init under that name (`crates/workloads/src/init.rs`); what it needs
//! to know lies in `/lab`: the command, the milliseconds to wait before it, and modules to load in the order of their names.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::apt;
use crate::cpio::Archive;
use crate::guest::Binaries;
use crate::modules::Module;

/// A file or folder of the host that the guest shall have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// On the host. A folder is taken with all it holds.
    pub source: PathBuf,
    /// In the guest, absolute.
    pub destination: String,
}

impl FromStr for Addition {
    type Err = String;

    /// `FILE`, which goes to `/NAME`; or `FILE:PATH`, which goes to `PATH`, or into it when it ends in `/`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (source, path) = match text.rsplit_once(':') {
            // A name may have a colon of its own.
            Some((source, path)) if !Path::new(text).exists() => (source, path),
            _ => (text, "/"),
        };
        let source = PathBuf::from(source);
        let mut destination = format!("/{}", path.trim_start_matches('/'));
        if destination.ends_with('/') {
            let whole = source.canonicalize().map_err(|error| format!("{}: {error}", source.display()))?;
            let name = source.file_name().or(whole.file_name()).ok_or("a folder without a name")?;
            destination.push_str(name.to_str().ok_or("the name is not UTF-8")?);
        }
        Ok(Addition { source, destination })
    }
}

/// What goes into the guest.
#[derive(Debug)]
pub struct Contents<'a> {
    /// Our own programs.
    pub binaries: &'a Binaries,
    /// Loaded before the command runs, in this order.
    pub modules: &'a [Module],
    /// The caller's files.
    pub additions: &'a [Addition],
    /// Run under `sh -c`.
    pub command: &'a str,
    /// How long to idle before it, so that the kernel's own work of the boot is over.
    pub settle: Duration,
}

/// Writes the archive into a file that has no name, and so never outlives us.
///
/// # Errors
/// A file of the host cannot be read.
pub fn build(contents: &Contents<'_>) -> Result<File> {
    let file = tempfile::tempfile().context("making a temporary file")?;
    let mut archive = Archive::new(BufWriter::with_capacity(1 << 20, file));
    write(&mut archive, contents).context("making the initramfs")?;
    let file = archive.finish().context("writing the initramfs")?;
    file.into_inner().context("writing the initramfs")
}

fn write<W: Write>(archive: &mut Archive<W>, contents: &Contents<'_>) -> Result<()> {
    archive.character_device("/dev/console", 5, 1)?;
    for folder in ["/proc", "/sys", "/tmp", "/run", "/root", "/etc", "/usr", "/var", "/lab/modules"] {
        archive.directory(folder)?;
    }
    // Scripts start with #!/usr/bin/env, programs look for /usr/bin/NAME.
    for (link, target) in
        [("/usr/bin", "../bin"), ("/sbin", "bin"), ("/usr/sbin", "../bin"), ("/var/run", "../run")]
    {
        archive.symlink(link, target)?;
    }
    archive.file(
        "/etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n",
    )?;
    archive.file("/etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n")?;
    archive.file("/etc/hosts", 0o644, b"127.0.0.1 localhost lab\n::1 localhost\n")?;

    let busybox = apt::find_program("busybox").context("busybox is not installed")?;
    add_file(archive, &busybox, "/bin/busybox")?;
    for applet in applets(&busybox)? {
        archive.symlink(&format!("/bin/{applet}"), "busybox")?;
    }
    add_file(archive, &contents.binaries.workloads, "/bin/workloads")?;
    archive.symlink("/init", "/bin/workloads")?;
    if let Some(btrace) = &contents.binaries.btrace {
        add_file(archive, btrace, "/bin/btrace")?;
    }

    archive.file("/lab/command", 0o644, contents.command.as_bytes())?;
    archive.file("/lab/settle", 0o644, contents.settle.as_millis().to_string().as_bytes())?;
    for (order, module) in contents.modules.iter().enumerate() {
        archive.file(&format!("/lab/modules/{order:03}-{}.ko", module.name), 0o644, &module.object)?;
    }
    for addition in contents.additions {
        add(archive, &addition.source, &addition.destination)?;
    }
    Ok(())
}

/// The names busybox answers to, but for its own.
fn applets(busybox: &Path) -> Result<Vec<String>> {
    let output = Command::new(busybox).arg("--list").output().context("running busybox --list")?;
    ensure!(output.status.success(), "busybox --list failed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter(|name| !name.is_empty() && *name != "busybox").map(str::to_owned).collect())
}

fn add_file<W: Write>(archive: &mut Archive<W>, source: &Path, destination: &str) -> Result<()> {
    let data = fs::read(source).with_context(|| format!("reading {}", source.display()))?;
    let mode =
        fs::metadata(source).with_context(|| format!("reading {}", source.display()))?.permissions().mode();
    archive.file(destination, mode, &data)?;
    Ok(())
}

/// A file, or a folder with all in it; links inside are kept as links.
fn add<W: Write>(archive: &mut Archive<W>, source: &Path, destination: &str) -> Result<()> {
    if !source.is_dir() {
        return add_file(archive, source, destination);
    }
    archive.directory(destination)?;
    let mut entries = Vec::new();
    for entry in fs::read_dir(source).with_context(|| format!("listing {}", source.display()))? {
        entries.push(entry.with_context(|| format!("listing {}", source.display()))?);
    }
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name();
        let name = name.to_str().with_context(|| format!("{} is not UTF-8", entry.path().display()))?;
        let destination = format!("{}/{name}", destination.trim_end_matches('/'));
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            let target =
                fs::read_link(entry.path()).with_context(|| format!("reading {}", entry.path().display()))?;
            archive.symlink(&destination, &target.to_string_lossy())?;
        } else {
            add(archive, &entry.path(), &destination)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_as_written_on_the_command_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a:b");
        fs::write(&file, "x").unwrap();
        let file = file.to_str().unwrap();
        let parse = |text: &str| text.parse::<Addition>().map(|addition| addition.destination);
        assert_eq!(parse(file).unwrap(), "/a:b");
        assert_eq!(parse(&format!("{file}:/etc/x")).unwrap(), "/etc/x");
        assert_eq!(parse(&format!("{file}:etc/x")).unwrap(), "/etc/x");
        assert_eq!(parse(&format!("{file}:/opt/")).unwrap(), "/opt/a:b");
        assert!(parse("/no/such/file").is_err());
    }

    #[test]
    fn a_folder_is_taken_whole() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("inner")).unwrap();
        fs::write(folder.path().join("inner/file"), "data").unwrap();
        std::os::unix::fs::symlink("inner/file", folder.path().join("link")).unwrap();
        let mut archive = Archive::new(Vec::new());
        add(&mut archive, folder.path(), "/opt").unwrap();
        let bytes = archive.finish().unwrap();
        for name in ["opt", "opt/inner", "opt/inner/file", "opt/link"] {
            let needle = format!("{name}\0");
            assert!(bytes.windows(needle.len()).any(|window| window == needle.as_bytes()), "{name}");
        }
    }
}
