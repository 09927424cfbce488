//! The kernels of the lab: Debian's own for virtual machines, or any image by path.
//!
//! A stock kernel is found through its meta-package (so it is always the newest of its suite), unpacked under
//! `target/lab/kernels/LABEL/root`, and from then on used without asking anyone; delete that folder to take the
//! newest again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::apt::{Archive, Suite};
use crate::workspace;

/// A stock kernel: what `--kernel` calls it, and where Debian has it.
#[derive(Debug)]
pub struct Stock {
    /// The series, such as `6.12`.
    pub label: &'static str,
    suite: Suite,
    meta_package: &'static str,
}

/// The stock kernels, oldest first.
///
/// `7.2` is the newest kernel of sid, whatever it has grown to.
pub const STOCK: &[Stock] = &[
    Stock {
        label: "5.10",
        suite: Suite { name: "bullseye", security: true, ended: true },
        meta_package: "linux-image-cloud-amd64",
    },
    Stock {
        label: "6.1",
        suite: Suite { name: "bookworm", security: true, ended: false },
        meta_package: "linux-image-cloud-amd64",
    },
    Stock {
        label: "6.12",
        suite: Suite { name: "bookworm", security: true, ended: false },
        meta_package: "linux-image-6.12-cloud-amd64",
    },
    Stock {
        label: "7.2",
        suite: Suite { name: "sid", security: false, ended: false },
        meta_package: "linux-image-cloud-amd64",
    },
];

/// A kernel that can be booted.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// The compressed image (bzImage), as `qemu -kernel` takes it.
    pub image: PathBuf,
    /// What `uname -r` will say.
    pub release: String,
    /// Its modules: `…/lib/modules/RELEASE`, when they are there.
    pub modules: Option<PathBuf>,
}

impl Kernel {
    /// A kernel by what the user wrote: one of the [`STOCK`] labels, or the path of an image.
    ///
    /// # Errors
    /// Neither; or the stock kernel is not in the cache and cannot be fetched.
    pub fn named(name: &str) -> Result<Kernel> {
        if let Some(stock) = STOCK.iter().find(|stock| stock.label == name) {
            return stock.kernel();
        }
        let path = Path::new(name);
        let labels: Vec<&str> = STOCK.iter().map(|stock| stock.label).collect();
        ensure!(
            path.is_file(),
            "no kernel {name}: there is no such file, and the stock ones are {}",
            labels.join(", ")
        );
        Kernel::at(path)
    }

    /// The kernel whose image lies at `image`, with modules where Debian's packages, or a `make modules_install`
    /// beside it, would put them.
    fn at(image: &Path) -> Result<Kernel> {
        let bytes = fs::read(image).with_context(|| format!("reading {}", image.display()))?;
        let release = release_of(&bytes)
            .with_context(|| format!("{} is not an x86 kernel image (bzImage, vmlinuz)", image.display()))?;
        let folder = image.parent().unwrap_or(Path::new("."));
        let beside = [folder.to_owned(), folder.join(".."), folder.join("../..")];
        let modules = beside
            .iter()
            .flat_map(|folder| ["lib/modules", "usr/lib/modules", "modules"].map(|part| folder.join(part)))
            .map(|folder| folder.join(&release))
            .chain([folder.to_owned()])
            .find(|folder| folder.join("kernel").is_dir());
        Ok(Kernel { image: image.to_owned(), release, modules })
    }
}

impl Stock {
    /// The kernel from the cache, fetched on first use.
    fn kernel(&self) -> Result<Kernel> {
        let folder = workspace::lab().join("kernels").join(self.label);
        let root = folder.join("root");
        if !root.is_dir() {
            let _lock = workspace::lock(&folder.join("lock"))?;
            // Another run may have fetched it while we waited.
            if !root.is_dir() {
                self.fetch(&folder, &root).with_context(|| format!("fetching kernel {}", self.label))?;
            }
        }
        Kernel::at(&find_image(&root).with_context(|| format!("no kernel image under {}", root.display()))?)
    }

    /// What modules are built with: the headers of this very release, the programs of its kbuild, and the C library that
    /// those are linked against, unpacked under `kernels/LABEL/headers`; and the release.
    pub fn headers(&self) -> Result<(PathBuf, String)> {
        let release = self.kernel()?.release;
        let folder = workspace::lab().join("kernels").join(self.label);
        let headers = folder.join("headers");
        let _lock = workspace::lock(&folder.join("lock"))?;
        if !headers.join("usr/src").join(format!("linux-headers-{release}")).is_dir() {
            self.fetch_headers(&folder, &headers, &release)
                .with_context(|| format!("fetching the headers of kernel {}", self.label))?;
        }
        Ok((headers, release))
    }

    /// The kernel's debug information, and that of some of its modules (paths below `kernel/`), unpacked under
    /// `kernels/LABEL/debug`; and the release.
    pub fn debug(&self, modules: &[&str]) -> Result<(PathBuf, String)> {
        let release = self.kernel()?.release;
        let folder = workspace::lab().join("kernels").join(self.label);
        let debug = folder.join("debug");
        let _lock = workspace::lock(&folder.join("lock"))?;
        // One of them is a link to the other, and not always the same one.
        let vmlinux = [
            format!("usr/lib/debug/boot/vmlinux-{release}"),
            format!("usr/lib/debug/lib/modules/{release}/vmlinux"),
        ];
        let modules =
            modules.iter().map(|module| format!("usr/lib/debug/lib/modules/{release}/kernel/{module}"));
        let files: Vec<String> = vmlinux.into_iter().chain(modules).collect();
        if files.iter().all(|file| debug.join(file).is_file()) {
            return Ok((debug, release));
        }
        eprintln!("lab: fetching the debug information of kernel {} ({release})", self.label);
        let archive = Archive::open(&workspace::lab().join("apt").join(self.suite.name), self.suite)?;
        let package = format!("linux-image-{release}-dbg");
        let aside = tempfile::tempdir_in(&folder).context("making a folder to unpack in")?;
        archive.unpack_files(&package, &files, aside.path()).with_context(|| {
            format!(
                "fetching {package} (if the mirror has moved on from {release}, remove {} to take the newest kernel)",
                folder.display()
            )
        })?;
        if debug.exists() {
            fs::remove_dir_all(&debug).context("removing the debug information of an older release")?;
        }
        fs::rename(aside.keep(), &debug).context("keeping the debug information")?;
        Ok((debug, release))
    }

    fn fetch_headers(&self, folder: &Path, headers: &Path, release: &str) -> Result<()> {
        eprintln!("lab: fetching the headers of kernel {} ({release})", self.label);
        let archive = Archive::open(&workspace::lab().join("apt").join(self.suite.name), self.suite)?;
        let package = format!("linux-headers-{release}");
        let depends = archive.depends(&package).with_context(|| {
            format!(
                "the mirror has moved on from {release}: remove {} to take the newest kernel",
                folder.display()
            )
        })?;
        let parts = depends
            .into_iter()
            .filter(|name| name.starts_with("linux-kbuild-") || name.starts_with("linux-headers-"));
        let packages: Vec<String> = [package, "libc6".to_string()].into_iter().chain(parts).collect();
        let aside = tempfile::tempdir_in(folder).context("making a folder to unpack in")?;
        archive.unpack(&packages, aside.path())?;
        if headers.exists() {
            fs::remove_dir_all(headers).context("removing the headers of an older release")?;
        }
        fs::rename(aside.keep(), headers).context("keeping the headers")
    }

    fn fetch(&self, folder: &Path, root: &Path) -> Result<()> {
        eprintln!(
            "lab: fetching kernel {} ({} of Debian {})",
            self.label, self.meta_package, self.suite.name
        );
        let archive = Archive::open(&workspace::lab().join("apt").join(self.suite.name), self.suite)?;
        let packages = self.packages(&archive)?;
        // Unpacked aside and renamed when whole: a run that is cut short leaves no half a kernel.
        let aside = tempfile::tempdir_in(folder).context("making a folder to unpack in")?;
        let files = archive.unpack(&packages, aside.path())?;
        ensure!(find_image(aside.path()).is_some(), "{files:?} hold no kernel image");
        fs::write(folder.join("packages"), files.join("\n") + "\n").context("noting the packages")?;
        fs::rename(aside.keep(), root).context("keeping the kernel")?;
        eprintln!("lab: kernel {} is {}", self.label, files.join(", "));
        Ok(())
    }

    /// The image that the meta-package stands for, and the packages its parts lie in (since 7.x Debian splits the
    /// image from the modules).
    fn packages(&self, archive: &Archive) -> Result<Vec<String>> {
        let depends = archive.depends(self.meta_package)?;
        let versioned = |name: &&String| {
            name.strip_prefix("linux-image-")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        let Some(image) = depends.iter().find(versioned) else {
            bail!("{} depends on no kernel image, only on {depends:?}", self.meta_package);
        };
        let release = image.trim_start_matches("linux-image-");
        let parts = archive.depends(image)?;
        let parts = parts.into_iter().filter(|name| name.starts_with("linux-") && name.ends_with(release));
        Ok([image.clone()].into_iter().chain(parts).collect())
    }
}

/// The image in an unpacked package: `boot/vmlinuz-RELEASE`, or `usr/lib/modules/RELEASE/vmlinuz`.
fn find_image(root: &Path) -> Option<PathBuf> {
    let entries = |folder: &str| {
        let found = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        found.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let named =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"));
    let in_modules =
        ["usr/lib/modules", "lib/modules"].into_iter().flat_map(entries).map(|folder| folder.join("vmlinuz"));
    entries("boot").into_iter().filter(named).chain(in_modules).find(|path| path.is_file())
}

/// The release in an image's setup header, by the kernel's `Documentation/arch/x86/boot.rst`: the magic `HdrS` at
/// 0x202, and at 0x20e the offset, less 0x200, of a text whose first word it is.
fn release_of(image: &[u8]) -> Option<String> {
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let offset = u16::from_le_bytes(image.get(0x20e..0x210)?.try_into().ok()?);
    let text = image.get(usize::from(offset) + 0x200..)?;
    let end = text.iter().position(|byte| *byte == 0 || byte.is_ascii_whitespace())?;
    std::str::from_utf8(&text[..end]).ok().filter(|release| !release.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(release: &str) -> Vec<u8> {
        let mut bytes = vec![0; 0x400];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        bytes[0x300..0x300 + release.len()].copy_from_slice(release.as_bytes());
        bytes[0x300 + release.len()..][..10].copy_from_slice(b" (a@b) #1\0");
        bytes
    }

    #[test]
    fn the_release_is_read_from_the_header() {
        assert_eq!(
            release_of(&image("6.12.1+deb12-cloud-amd64")).as_deref(),
            Some("6.12.1+deb12-cloud-amd64")
        );
        assert_eq!(release_of(b"\x7fELF"), None);
        assert_eq!(release_of(&[0; 0x400]), None);
    }

    #[test]
    fn both_layouts_of_debian_and_their_modules() {
        for (path, modules) in [
            ("boot/vmlinuz-6.1.0-x", "lib/modules/6.1.0-x"),
            ("usr/lib/modules/6.1.0-x/vmlinuz", "usr/lib/modules/6.1.0-x"),
        ] {
            let root = tempfile::tempdir().unwrap();
            let file = root.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::create_dir_all(root.path().join(modules).join("kernel")).unwrap();
            fs::write(&file, image("6.1.0-x")).unwrap();
            let kernel = Kernel::at(&find_image(root.path()).unwrap()).unwrap();
            assert_eq!(kernel.release, "6.1.0-x");
            let found = kernel.modules.unwrap().canonicalize().unwrap();
            assert_eq!(found, root.path().join(modules).canonicalize().unwrap());
        }
    }

    #[test]
    fn a_kernel_without_modules_is_a_kernel() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("bzImage"), image("7.0-own")).unwrap();
        let kernel = Kernel::named(&root.path().join("bzImage").to_string_lossy()).unwrap();
        assert_eq!((kernel.release.as_str(), kernel.modules), ("7.0-own", None));
        let error = Kernel::named("9.9").unwrap_err().to_string();
        assert!(error.contains("5.10, 6.1, 6.12, 7.2"), "{error}");
    }
}
