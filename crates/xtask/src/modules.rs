//! Kernel modules for the guest: finds them by name, with what they depend on, in the order to load them.
//!
//! Debian's packages hold no `modules.dep` (it is made on installation), so the dependencies are read where depmod
//! reads them: in the `.modinfo` section of each module.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// The modules of one kernel, by name.
#[derive(Debug, Default)]
pub struct Modules {
    files: BTreeMap<String, PathBuf>,
    built_in: Vec<String>,
}

/// One module, ready to be loaded.
#[derive(Debug)]
pub struct Module {
    /// Name, with underscores.
    pub name: String,
    /// The uncompressed object.
    pub object: Vec<u8>,
}

impl Modules {
    /// Lists the modules under `folder` (`…/lib/modules/RELEASE`).
    pub fn list(folder: &Path) -> Result<Modules> {
        let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        let built_in = built_in.lines().filter_map(|line| name_of(Path::new(line))).collect();
        let mut modules = Modules { files: BTreeMap::new(), built_in };
        modules.walk(folder)?;
        Ok(modules)
    }

    fn walk(&mut self, folder: &Path) -> Result<()> {
        for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
            let entry = entry.context("listing modules")?;
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.walk(&path)?;
            } else if let Some(name) = name_of(&path) {
                self.files.insert(name, path);
            }
        }
        Ok(())
    }

    /// Whether `name` is a module here, rather than built in or unknown.
    pub fn has(&self, name: &str) -> bool {
        self.files.contains_key(&name.replace('-', "_"))
    }

    /// The module and all it depends on, each after what it needs. Nothing when it is built into the kernel.
    ///
    /// # Errors
    /// There is no such module.
    pub fn with_dependencies(&self, name: &str) -> Result<Vec<Module>> {
        let mut loaded = Vec::new();
        self.collect(&name.replace('-', "_"), &mut loaded)?;
        Ok(loaded)
    }

    fn collect(&self, name: &str, loaded: &mut Vec<Module>) -> Result<()> {
        if loaded.iter().any(|module| module.name == name)
            || self.built_in.iter().any(|built_in| built_in == name)
        {
            return Ok(());
        }
        let Some(path) = self.files.get(name) else { bail!("the kernel has no module {name}") };
        let object = read(path)?;
        for dependency in depends(&object) {
            self.collect(&dependency, loaded)?;
        }
        loaded.push(Module { name: name.to_owned(), object });
        Ok(())
    }
}

/// `…/virtio-rng.ko.xz` → `virtio_rng`; nothing for other files.
fn name_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (name, rest) = name.split_once(".ko")?;
    ["", ".xz", ".zst", ".gz"].contains(&rest).then(|| name.replace('-', "_"))
}

/// The module's bytes, decompressed by the tool of its suffix.
fn read(path: &Path) -> Result<Vec<u8>> {
    let tool = match path.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => ("xz", "xz-utils"),
        Some("zst") => ("zstd", "zstd"),
        Some("gz") => ("gzip", "gzip"),
        _ => return fs::read(path).with_context(|| format!("reading {}", path.display())),
    };
    crate::apt::ensure(&[tool])?;
    let output =
        Command::new(tool.0).arg("-dc").arg(path).output().with_context(|| format!("running {}", tool.0))?;
    ensure!(output.status.success(), "{} could not decompress {}", tool.0, path.display());
    Ok(output.stdout)
}

/// The names after `depends=`, one of the NUL-terminated texts of `.modinfo`.
fn depends(object: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(at) = object.windows(KEY.len()).position(|window| window == KEY) else { return Vec::new() };
    let value = &object[at + KEY.len()..];
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    let value = String::from_utf8_lossy(&value[..end]).into_owned();
    value.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files() {
        let name = |path: &str| name_of(Path::new(path));
        assert_eq!(name("kernel/drivers/char/hw_random/virtio-rng.ko.xz").as_deref(), Some("virtio_rng"));
        assert_eq!(name("a.ko").as_deref(), Some("a"));
        assert_eq!(name("modules.order"), None);
        assert_eq!(name("a.kong"), None);
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let folder = tempfile::tempdir().unwrap();
        let module = |name: &str, depends: &str| {
            let object = format!("\x7fELF\0license=GPL\0depends={depends}\0retpoline=Y\0");
            fs::write(folder.path().join(name), object).unwrap();
        };
        module("virtio-console.ko", "virtio,virtio_ring");
        module("virtio.ko", "virtio-ring");
        module("virtio_ring.ko", "core");
        fs::write(folder.path().join("modules.builtin"), "kernel/drivers/core.ko\n").unwrap();
        let modules = Modules::list(folder.path()).unwrap();
        let order = modules.with_dependencies("virtio-console").unwrap();
        let names: Vec<&str> = order.iter().map(|module| module.name.as_str()).collect();
        assert_eq!(names, ["virtio_ring", "virtio", "virtio_console"]);
        assert!(modules.with_dependencies("core").unwrap().is_empty());
        assert!(modules.with_dependencies("absent").is_err());
    }
}
