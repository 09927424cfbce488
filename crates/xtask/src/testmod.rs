//! What the lab's checks call: the module of `crates/xtask/testmod` and that of `crates/xtask/testmod_lbr`, built for each kernel, and a
//! 32-bit program.
//!
//! Modules are built by the kernel's own kbuild, out of Debian's headers, with whatever gcc is here: options that only a
//! newer one knows are switched off, and so is objtool, whose binaries may be linked for a newer system than ours. Its BTF
//! continues that of the kernel, read once out of a guest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::initramfs::Addition;
use crate::kernels::Stock;
use crate::vm::{self, VmOptions};
use crate::{apt, workspace};

/// A module: its name, the folder of its sources, and whether its types are wanted.
struct Module {
    name: &'static str,
    sources: &'static str,
    types: bool,
}

/// Functions of every shape.
const SHAPES: Module = Module { name: "btrace_shapes", sources: "testmod", types: true };

/// Branch records for machines that have none.
const LBR: Module = Module { name: "btrace_lbr", sources: "testmod_lbr", types: false };

/// Configuration switched off on make's command line.
const OFF: &[&str] = &[
    "CONFIG_CC_HAS_MIN_FUNCTION_ALIGNMENT=",
    "CONFIG_OBJTOOL=",
    "CONFIG_STACK_VALIDATION=",
    // Without objtool the kernel would not find the return thunks to patch, and warns when one runs.
    "CONFIG_MITIGATION_RETHUNK=",
    "CONFIG_RETHUNK=",
    "CONFIG_MITIGATION_RETPOLINE=",
    "CONFIG_RETPOLINE=",
];

/// The files for the guest: the modules as `/lab/btrace_shapes.ko` and `/lab/btrace_lbr.ko`, the 32-bit program as `/bin/compat32`.
pub fn additions(stock: &Stock) -> Result<Vec<Addition>> {
    apt::ensure(&[("gcc", "gcc"), ("make", "make"), ("pahole", "dwarves")])?;
    let mut files = vec![ready(stock, &SHAPES)?];
    // Kernels before 5.16 have no snapshots that it could feed, and none of its headers.
    if stock.label != WITHOUT_SNAPSHOTS {
        files.push(ready(stock, &LBR)?);
    }
    files.push(Addition { source: compat_program(stock)?, destination: "/bin/compat32".into() });
    Ok(files)
}

/// The stock kernel that is older than branch snapshots.
const WITHOUT_SNAPSHOTS: &str = "5.10";

fn ready(stock: &Stock, which: &Module) -> Result<Addition> {
    Ok(Addition { source: module(stock, which)?, destination: format!("/lab/{}.ko", which.name) })
}

fn sources(folder: &str) -> PathBuf {
    workspace::root().join("crates/xtask").join(folder)
}

/// The module for one kernel; built anew when a source is newer.
fn module(stock: &Stock, which: &Module) -> Result<PathBuf> {
    let Module { name, sources: from, types } = which;
    let (headers, release) = stock.headers()?;
    let folder = workspace::lab().join("testmod").join(stock.label);
    let _lock = workspace::lock(&folder.join("lock"))?;
    let built = folder.join(format!("{name}-{release}.ko"));
    if is_fresh(&built, from)? {
        return Ok(built);
    }
    eprintln!("lab: building the module {name} for kernel {}", stock.label);
    prepare(&headers, &release)?;
    let aside = tempfile::tempdir_in(&folder).context("making a folder to build in")?;
    for entry in fs::read_dir(sources(from)).context("listing the module's sources")? {
        let entry = entry.context("listing the module's sources")?;
        fs::copy(entry.path(), aside.path().join(entry.file_name())).context("copying a source")?;
    }
    let mut make = Command::new("make");
    make.arg("-C").arg(headers.join("usr/src").join(format!("linux-headers-{release}")));
    make.arg(format!("M={}", aside.path().display())).args(["CC=gcc", "KCFLAGS=-g -w"]).args(OFF);
    said(make.arg("modules"), "make")?;
    let object = aside.path().join(format!("{name}.ko"));
    if *types && module_types(&headers, &release)? {
        let base = base_types(stock, &folder, &release)?;
        said(Command::new("pahole").arg("-J").arg("--btf_base").arg(base).arg(&object), "pahole")?;
    }
    fs::rename(&object, &built).context("keeping the module")?;
    Ok(built)
}

/// Whether what was built is there, and newer than every source.
fn is_fresh(built: &Path, from: &str) -> Result<bool> {
    let Ok(when) = fs::metadata(built).and_then(|data| data.modified()) else { return Ok(false) };
    for entry in fs::read_dir(sources(from)).context("listing the module's sources")? {
        let changed = entry.and_then(|entry| entry.metadata()?.modified()).context("looking at a source")?;
        if changed > when {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes unpacked headers work where they lie: their makefile names `/usr/src`, and modpost is run with the C library that
/// it was linked against.
fn prepare(headers: &Path, release: &str) -> Result<()> {
    let makefile = headers.join("usr/src").join(format!("linux-headers-{release}/Makefile"));
    let text = fs::read_to_string(&makefile).with_context(|| format!("reading {}", makefile.display()))?;
    let here = format!("{}/usr/src/", headers.display());
    if !text.contains(&here) {
        fs::write(&makefile, text.replace("/usr/src/", &here)).context("writing the headers' makefile")?;
    }
    // With types of the kernel at hand kbuild would have its own resolve_btfids at the module.
    let vmlinux = makefile.with_file_name("vmlinux");
    if vmlinux.exists() {
        fs::remove_file(&vmlinux).context("removing the headers' vmlinux")?;
    }
    let library = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"]
        .map(|folder| headers.join(folder))
        .into_iter()
        .find(|folder| folder.join("libc.so.6").is_file())
        .context("the headers' C library was not unpacked")?;
    let modpost = makefile.with_file_name("scripts").join("mod/modpost");
    let script = format!(
        "#!/bin/sh\nexec {library}/ld-linux-x86-64.so.2 --library-path {library} {}.real-lsb-64 \"$@\"\n",
        modpost.display(),
        library = library.display(),
    );
    // Replaced, not written into: it may be another link of something else.
    if fs::read(&modpost).context("reading modpost")? != script.as_bytes() {
        fs::remove_file(&modpost).context("replacing modpost")?;
        fs::write(&modpost, script).context("replacing modpost")?;
        fs::set_permissions(&modpost, fs::Permissions::from_mode(0o755)).context("replacing modpost")?;
    }
    Ok(())
}

/// Whether the kernel was built to show its modules' types.
fn module_types(headers: &Path, release: &str) -> Result<bool> {
    let config = headers.join("usr/src").join(format!("linux-headers-{release}/.config"));
    let config = fs::read_to_string(&config).with_context(|| format!("reading {}", config.display()))?;
    Ok(config.lines().any(|line| line == "CONFIG_DEBUG_INFO_BTF_MODULES=y"))
}

/// The kernel's own BTF, out of a guest; kept.
fn base_types(stock: &Stock, folder: &Path, release: &str) -> Result<PathBuf> {
    let kept = folder.join(format!("vmlinux-{release}.btf"));
    if !kept.is_file() {
        let ran = vm::run(&VmOptions::new(stock.label, "cat /sys/kernel/btf/vmlinux"))?;
        ensure!(ran.status == 0 && ran.stdout.len() > 1 << 20, "the guest did not give its types");
        fs::write(&kept, ran.stdout).with_context(|| format!("writing {}", kept.display()))?;
    }
    Ok(kept)
}

/// The 32-bit program, linked without any library: this system may have none of 32 bits.
fn compat_program(stock: &Stock) -> Result<PathBuf> {
    let folder = workspace::lab().join("testmod").join(stock.label);
    let built = folder.join("compat32");
    let mut gcc = Command::new("gcc");
    gcc.args(["-m32", "-nostdlib", "-static", "-no-pie", "-o"]).arg(&built);
    said(gcc.arg(sources(SHAPES.sources).join("compat.S")), "gcc")?;
    Ok(built)
}

/// Runs it in silence; what it said is in the error if it fails.
fn said(command: &mut Command, name: &str) -> Result<()> {
    // Cargo's own make variables are not this make's.
    command.env_remove("MAKEFLAGS").env_remove("MFLAGS").env_remove("CARGO_MAKEFLAGS");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("running {name}"))?;
    if !output.status.success() {
        bail!(
            "{name} failed:\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
