//! Types of loaded modules: each module's BTF continues that of vmlinux, and is opened when it is first asked for.

use crate::error::Error;
use btf::Btf;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that is no module's.
const VMLINUX: &str = "vmlinux";

/// The modules that the kernel shows types of.
#[derive(Debug)]
pub struct Modules {
    /// `/sys/kernel/btf`: a file for each, named like it.
    folder: PathBuf,
    base: Arc<Btf>,
    opened: RefCell<BTreeMap<String, Arc<Btf>>>,
}

impl Modules {
    /// Those whose types are in `folder` (`/sys/kernel/btf`), on top of `base`, vmlinux's.
    pub fn new(folder: &Path, base: Arc<Btf>) -> Modules {
        Modules { folder: folder.into(), base, opened: RefCell::default() }
    }

    /// Their names, sorted. None before Linux 5.11, without CONFIG_DEBUG_INFO_BTF_MODULES, and without loaded modules.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect(),
            Err(error) => {
                log::debug!("modules: read {}: {error}", self.folder.display());
                return Vec::new();
            }
        };
        names.retain(|n| n != VMLINUX);
        names.sort_unstable();
        names
    }

    /// The types of one.
    pub fn types(&self, name: &str) -> Result<Arc<Btf>, Error> {
        if let Some(btf) = self.opened.borrow().get(name) {
            return Ok(Arc::clone(btf));
        }
        let btf = Arc::new(Btf::open_split(&self.folder.join(name), Arc::clone(&self.base))?);
        self.opened.borrow_mut().insert(name.into(), Arc::clone(&btf));
        Ok(btf)
    }

    /// Why no module of this name has types here, ready to end a sentence.
    pub fn absence(&self, name: &str) -> String {
        let folder = Path::new("/sys/module").join(name);
        if !folder.exists() {
            let names = self.names();
            let near = crate::suggest::near(name, names.iter().map(String::as_str));
            return format!("no module {name} is loaded{}", crate::suggest::hint(&near));
        }
        // Only what was loaded has a state.
        if !folder.join("initstate").exists() {
            return format!("{name} is built into this kernel, so what it has is named without it");
        }
        format!("{}: {name} is loaded, but its types are not known", self.poverty())
    }

    /// What is missing for functions of modules.
    pub(crate) fn poverty(&self) -> &'static str {
        if self.names().is_empty() {
            "this kernel shows no types of modules (Linux 5.11 and later do, with CONFIG_DEBUG_INFO_BTF_MODULES)"
        } else {
            "not every module was built with types"
        }
    }
}
