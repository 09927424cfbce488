//! Which package has the running kernel's debug information.

/// What to do about debug information that is not there, from the text of os-release(5) and the kernel's release.
pub(super) fn remedy(os_release: &str, release: &str) -> String {
    let field = |name: &str| {
        let value = os_release.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_default().trim_matches(['"', '\'']).to_ascii_lowercase()
    };
    let ids = format!("{} {}", field("ID"), field("ID_LIKE"));
    let flavour = release.rsplit_once('-').map_or("default", |(_, flavour)| flavour);
    // The first that fits: Ubuntu is like Debian, and says so.
    for id in ids.split_ascii_whitespace() {
        let package = match id {
            "ubuntu" => format!("linux-image-{release}-dbgsym (from the ddebs archive)"),
            "debian" => format!("linux-image-{release}-dbg"),
            "fedora" | "rhel" | "centos" | "rocky" | "almalinux" | "ol" => {
                format!("kernel-debuginfo-{release}")
            }
            "opensuse" | "opensuse-tumbleweed" | "opensuse-leap" | "suse" | "sles" => {
                format!("kernel-{flavour}-debuginfo")
            }
            "arch" => {
                return "Arch has it by debuginfod (debuginfod-find debuginfo BUILD-ID); or name the file with --vmlinux".into();
            }
            _ => continue,
        };
        return format!(
            "package {package} has it, if this kernel is the distribution's; or name the file with --vmlinux"
        );
    }
    format!("the distribution's debug package of kernel {release} has it; or name the file with --vmlinux")
}

#[cfg(test)]
mod tests {
    use super::remedy;

    #[test]
    fn each_distribution_has_its_package() {
        for (os, release, want) in [
            ("ID=debian\n", "6.1.0-57-cloud-amd64", "linux-image-6.1.0-57-cloud-amd64-dbg has"),
            (
                "NAME=\"x\"\nID=ubuntu\nID_LIKE=debian\n",
                "6.8.0-31-generic",
                "linux-image-6.8.0-31-generic-dbgsym",
            ),
            (
                "ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n",
                "6.8.0-31-generic",
                "linux-image-6.8.0-31-generic-dbgsym",
            ),
            ("ID=fedora\n", "6.12.4-200.fc41.x86_64", "kernel-debuginfo-6.12.4-200.fc41.x86_64"),
            (
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                "5.14.0-427.el9.x86_64",
                "kernel-debuginfo-5.14.0-427.el9.x86_64",
            ),
            (
                "ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n",
                "6.12.1-1-default",
                "kernel-default-debuginfo",
            ),
            ("ID=arch\n", "6.12.1-arch1-1", "debuginfod-find"),
            ("", "6.18.0", "the distribution's debug package of kernel 6.18.0"),
        ] {
            let said = remedy(os, release);
            assert!(said.contains(want) && said.contains("--vmlinux"), "{os:?}: {said}");
            assert!(!said.contains('\n'));
        }
    }
}
