//! Paths of source files as people know them: relative to the root of the kernel's source tree.
//!
//! What a debug file has depends on where and how the kernel was built: `/build/linux-6.1/debian/build/x/../../../net/core/dev.c`,
//! `debian/build/x/net/core/dev.c`, `./include/linux/fs.h`, `/usr/src/debug/kernel-6.12/linux-6.12/net/core/dev.c`.

/// How the compiler was told the root of the source tree, in one or more ways.
#[derive(Debug, Default)]
pub(crate) struct Roots(Vec<String>);

impl Roots {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Learns from a path of which is known that it has `part` right below the root: a file's end, or a folder with a `/`
    /// behind it.
    pub fn learn(&mut self, path: &str, part: &str) {
        let path = normal(path);
        let at = if part.ends_with('/') {
            path.find(&format!("/{part}")).map(|at| at + 1)
        } else {
            path.strip_suffix(part).map(str::len)
        };
        let Some(root) = at.filter(|at| *at > 0).and_then(|at| path.get(..at)) else { return };
        if root.ends_with('/') && !self.0.iter().any(|known| known == root) {
            self.0.push(root.into());
            // The longest first: one may lie in another.
            self.0.sort_by_key(|known| std::cmp::Reverse(known.len()));
        }
    }

    /// The path below the root that it is under; one that is under none as it is, but for `.` and `..`.
    pub fn shorten(&self, path: &str) -> String {
        let mut path = normal(path);
        if let Some(rest) = self.0.iter().find_map(|root| path.strip_prefix(root.as_str())) {
            path = rest.to_string();
        }
        path
    }
}

/// Without `.` and `..`, as far as `..` can be told from the text.
fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let absolute = path.starts_with('/');
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if absolute => {}
            _ => parts.push(part),
        }
    }
    format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lose_the_root_of_the_tree() {
        let mut roots = Roots::default();
        roots.learn("debian/build/build_amd64/init/main.c", "init/main.c");
        roots.learn(
            "/build/reproducible-path/linux-6.1.192/arch/x86/entry/entry_64.S",
            "arch/x86/entry/entry_64.S",
        );
        for (path, want) in [
            ("debian/build/build_amd64/net/core/dev.c", "net/core/dev.c"),
            ("debian/build/build_amd64/./include/linux/fs.h", "include/linux/fs.h"),
            ("/build/reproducible-path/linux-6.1.192/arch/x86/lib/memcpy_64.S", "arch/x86/lib/memcpy_64.S"),
            ("/build/reproducible-path/linux-6.1.192/debian/../fs/open.c", "fs/open.c"),
            ("/elsewhere/x.c", "/elsewhere/x.c"),
            ("../../../x.c", "../../../x.c"),
            ("", ""),
        ] {
            assert_eq!(roots.shorten(path), want, "{path}");
        }
    }

    #[test]
    fn a_modules_folder_tells_the_root_and_what_tells_nothing_is_not_learnt() {
        let mut roots = Roots::default();
        roots.learn("net/sched/sch_api.c", "net/sched/");
        roots.learn("init/main.c", "init/main.c");
        roots.learn("/x/other.c", "init/main.c");
        roots.learn("/x/noinit/main.c", "init/main.c");
        assert!(roots.is_empty(), "{roots:?}");
        roots.learn("/usr/src/debug/kernel-6.12/linux-6.12/net/sched/sch_api.c", "net/sched/");
        assert_eq!(roots.shorten("/usr/src/debug/kernel-6.12/linux-6.12/net/core/dev.c"), "net/core/dev.c");
    }
}
