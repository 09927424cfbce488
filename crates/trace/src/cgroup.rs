//! Cgroups (of version 2) as the kernel's programs know them: by id and level.
//!
//! A task is in a cgroup or below it when its ancestor at the cgroup's level has the cgroup's id. The id is the inode number of
//! the cgroup's folder; the level counts from the hierarchy's true root, of which a cgroup namespace shows a part only.
//!
//! The ancestor's id comes from `bpf_get_current_ancestor_cgroup_id`, which programs for tracing may use since Linux 5.15; before,
//! `struct cgroup` has a list of its ancestors' ids that can be read.

use crate::error::Error;
use crate::kernel::Kernel;
use asm::{Alu, Arg, Cmp, Func, Helper, Program, Reg, Size, Width};
use bpf::{Load, ProgType, TestRun};
use btf::{Btf, Kind};
use std::os::unix::fs::MetadataExt;

/// A cgroup: tasks in it or in any below it are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Inode number of its folder.
    pub(crate) id: u64,
    /// Steps from the root of the hierarchy.
    pub(crate) level: u32,
    /// How programs ask.
    pub(crate) ancestry: Ancestry,
}

/// How a program learns the id of an ancestor of its task's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ancestry {
    /// By the helper.
    Helper,
    /// By the list of ids in `struct cgroup`, at this offset.
    List(OwnCgroup, u32),
}

/// Offsets on the way from a task to its cgroup: `task->cgroups->dfl_cgrp->level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnCgroup {
    cgroups: u32,
    dfl_cgrp: u32,
    level: u32,
}

impl OwnCgroup {
    fn of(btf: &Btf) -> Option<OwnCgroup> {
        Some(OwnCgroup {
            cgroups: offset(btf, "task_struct", "cgroups")?,
            dfl_cgrp: offset(btf, "css_set", "dfl_cgrp")?,
            level: offset(btf, "cgroup", "level")?,
        })
    }

    /// Address of the current task's cgroup, and its level. Reads that fail give 0.
    fn read(self, f: &mut Func<'_>) -> (Reg, Reg) {
        let task = f.call(Helper::GET_CURRENT_TASK, &[]);
        let set = peek(f, task, self.cgroups, Size::DW);
        let cgroup = peek(f, set, self.dfl_cgrp, Size::DW);
        (cgroup, peek(f, cgroup, self.level, Size::W))
    }
}

impl Ancestry {
    /// Asks the kernel; `None` where programs cannot tell.
    pub(crate) fn of(btf: &Btf) -> Option<Ancestry> {
        if helper_is_granted() {
            return Some(Ancestry::Helper);
        }
        Some(Ancestry::List(OwnCgroup::of(btf)?, offset(btf, "cgroup", "ancestor_ids")?))
    }

    /// The id of the current task's ancestor at a level; 0 when there is none.
    pub(crate) fn id(self, f: &mut Func<'_>, level: u32) -> Reg {
        match self {
            Ancestry::Helper => f.call(Helper::GET_CURRENT_ANCESTOR_CGROUP_ID, &[Arg::Imm(i64::from(level))]),
            Ancestry::List(own, ids) => {
                let (cgroup, deepest) = own.read(f);
                let id = f.var();
                f.assign(id, 0);
                // The list ends with the cgroup's own.
                f.if_(Cmp::Ge, Width::W32, deepest, i64::from(level), |f| {
                    let there = peek(f, cgroup, ids + 8 * level, Size::DW);
                    f.assign(id, there);
                });
                id
            }
        }
    }
}

/// Offset of a member, in bytes.
fn offset(btf: &Btf, strukt: &str, member: &str) -> Option<u32> {
    Some(btf.member(btf.find(Kind::Struct, strukt)?, member).ok()?.bit_offset / 8)
}

/// Reads kernel memory; 0 where it cannot be read.
fn peek(f: &mut Func<'_>, base: Reg, at: u32, size: Size) -> Reg {
    let cell = f.slot(8, 8);
    f.store_slot(Size::DW, cell, 0, 0);
    let from = f.alu(Alu::Add, Width::W64, base, i64::from(at));
    let bytes = if size == Size::W { 4 } else { 8 };
    f.call(Helper::PROBE_READ_KERNEL, &[Arg::SlotAddr(cell, 0), Arg::Imm(bytes), Arg::Reg(from)]);
    f.load_slot(size, cell, 0)
}

/// Whether a tracing program may call the helper: the kernel may have it and keep it for others.
fn helper_is_granted() -> bool {
    let mut program = Program::new("own_cgroup", "own");
    program.main(|f| {
        f.line("root of the cgroups", 1, 1);
        let id = f.call(Helper::GET_CURRENT_ANCESTOR_CGROUP_ID, &[Arg::Imm(0)]);
        f.ret(id);
    });
    match load(&program) {
        Ok(_) => true,
        Err(error) => {
            log::debug!("no cgroup ids by the helper: {error}");
            false
        }
    }
}

fn load(program: &Program) -> Result<bpf::Program, Error> {
    let unassembled = |source| Error::Assemble { target: "own_cgroup".into(), source };
    let code = program.assemble(&asm::Options::default()).map_err(unassembled)?;
    let insns = code.relocate(|_| -1).map_err(unassembled)?;
    bpf::Program::load(&Load::new("own_cgroup", ProgType::RawTracepoint, &insns))
        .map_err(|e| if e.is_permission() { Error::Permission(e) } else { Error::Sys(e) })
}

/// No hierarchy is deeper that we could look through (`cgroup.max.depth` is unlimited; real ones have ten at most).
const DEEPEST: u32 = 64;

/// The inode of the machine's first cgroup namespace (`PROC_CGROUP_INIT_INO`, include/linux/proc_ns.h).
const FIRST_NAMESPACE: &str = "cgroup:[4026531835]";

/// A mounted cgroup2 hierarchy, or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    /// The cgroup that is its root, as our namespace numbers it: `/`, or `/..` and the like for what lies above.
    root: String,
    /// Where.
    point: String,
}

impl Cgroup {
    /// Finds a cgroup by its path: the one that `/proc/PID/cgroup` shows, with or without its `0::`, or the folder's
    /// (`/sys/fs/cgroup/…`).
    ///
    /// In a cgroup namespace of our own this asks the kernel, by a small program run once, how deep that is.
    pub fn find(kernel: &Kernel, path: &str) -> Result<Cgroup, Error> {
        let read = |file: &str| {
            std::fs::read_to_string(file)
                .map_err(|source| bpf::Error::Sys { action: format!("read {file}"), source })
        };
        let mounts = mounts(&read("/proc/self/mountinfo")?);
        let wrong = |reason: String| Error::Cgroup { path: path.into(), reason };
        let (folder, depth) = place(path, &mounts).map_err(wrong)?;
        let found = std::fs::metadata(&folder).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => wrong(format!("there is no such cgroup ({folder})")),
            _ => wrong(format!("{folder}: {error}")),
        })?;
        if !found.is_dir() {
            return Err(wrong(format!("{folder} is not a cgroup, but a file of one")));
        }
        let first =
            std::fs::read_link("/proc/self/ns/cgroup").is_ok_and(|l| l.as_os_str() == FIRST_NAMESPACE);
        let root = match first {
            true => 0,
            false => namespace_level(&read("/proc/self/cgroup")?, own_level(kernel)?),
        };
        let level = u32::try_from(root + depth).ok().filter(|level| *level < DEEPEST).ok_or_else(|| {
            wrong(format!("its depth, {}, is not one that a cgroup can have", root + depth))
        })?;
        let ancestry = Ancestry::of(&kernel.btf)
            .ok_or_else(|| wrong("this kernel's programs cannot tell the cgroup of a task".into()))?;
        Ok(Cgroup { id: found.ino(), level, ancestry })
    }
}

/// The cgroup2 mounts of a mountinfo (proc_pid_mountinfo(5)).
fn mounts(mountinfo: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let mut fields = before.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (after.split(' ').next()? == "cgroup2")
            .then(|| Mount { root: unescaped(root), point: unescaped(point) })
    };
    mountinfo.lines().filter_map(mount).collect()
}

/// `\040` and the like, by which mountinfo writes white space and backslashes.
fn unescaped(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        match (first, tail.split_first_chunk::<3>().and_then(|(digits, tail)| Some((octal(digits)?, tail)))) {
            (b'\\', Some((byte, tail))) => {
                out.push(byte);
                rest = tail;
            }
            (byte, _) => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A byte in octal digits.
fn octal(digits: &[u8; 3]) -> Option<u8> {
    digits.iter().try_fold(0u8, |value, digit| {
        let digit = Some(*digit).filter(|d| (b'0'..=b'7').contains(d))? - b'0';
        value.checked_mul(8)?.checked_add(digit)
    })
}

/// The folder of a cgroup, and how many steps it lies below our namespace's root.
fn place(path: &str, mounts: &[Mount]) -> Result<(String, i64), String> {
    let path = path.strip_prefix("0::").unwrap_or(path);
    if !path.starts_with('/') {
        return Err("a cgroup's path begins with / (as in /proc/PID/cgroup, after 0::)".into());
    }
    if path.split('/').any(|step| step == "..") {
        return Err("a path without .. is wanted; what lies outside of our cgroup namespace has none".into());
    }
    if mounts.is_empty() {
        return Err("no cgroup2 file system is mounted (mount -t cgroup2 none /sys/fs/cgroup)".into());
    }
    // A folder below the innermost mount that holds it.
    let below = |mount: &Mount| Some((mount.clone(), under(path, &mount.point)?.to_string()));
    let folder = mounts.iter().filter_map(below).max_by_key(|(mount, _)| mount.point.len());
    // Else a cgroup's own path, which a mount shows if its root is at or above it.
    let shows = |mount: &Mount| Some((mount.clone(), under(path, &mount.root)?.to_string()));
    let (mount, rest) = folder.or_else(|| mounts.iter().find_map(shows)).ok_or_else(|| {
        let points: Vec<&str> = mounts.iter().map(|m| m.point.as_str()).collect();
        format!("it cannot be told where it is mounted; name its folder, below {}", points.join(" or "))
    })?;
    let folder = format!("{}/{}", mount.point.trim_end_matches('/'), rest.trim_start_matches('/'));
    Ok((folder.trim_end_matches('/').to_string(), depth(&mount.root) + depth(&rest)))
}

/// What of `path` lies below `folder`; `None` when it lies elsewhere.
fn under<'a>(path: &'a str, folder: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(folder.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

/// Steps down a path; each `..` is one up.
fn depth(path: &str) -> i64 {
    let step = |step: &str| match step {
        "" | "." => 0,
        ".." => -1,
        _ => 1,
    };
    path.split('/').map(step).sum()
}

/// The true level of our cgroup namespace's root: that of our own cgroup, less the steps that the namespace shows.
fn namespace_level(own: &str, level: u32) -> i64 {
    let path = own.lines().find_map(|l| l.strip_prefix("0::")).unwrap_or("/");
    // A removed cgroup is marked so.
    i64::from(level) - depth(path.strip_suffix(" (deleted)").unwrap_or(path))
}

/// The level of the cgroup that we are in.
fn own_level(kernel: &Kernel) -> Result<u32, Error> {
    let own = OwnCgroup::of(&kernel.btf).ok_or_else(|| Error::Kernel { what: "cgroups".into() })?;
    let mut program = Program::new("own_cgroup", "own");
    program.main(|f| {
        f.line("level of our own cgroup", 1, 1);
        let (_, level) = own.read(f);
        f.ret(level);
    });
    Ok(load(&program)?.test_run(&TestRun::default())?.retval)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n\
        42 31 0:38 /a\\040b /mnt/part\\134 rw - cgroup2 none rw\n";

    fn placed(path: &str, mounts: &[Mount]) -> Option<(String, i64)> {
        place(path, mounts).ok()
    }

    #[test]
    fn mounts_are_read_with_their_escapes() {
        let found = mounts(INFO);
        let of = |root: &str, point: &str| Mount { root: root.into(), point: point.into() };
        assert_eq!(found, [of("/", "/sys/fs/cgroup/unified"), of("/a b", "/mnt/part\\")]);
        assert_eq!(unescaped("\\04"), "\\04");
        assert_eq!(unescaped("\\777\\1"), "\\777\\1");
    }

    #[test]
    fn a_cgroup_is_found_by_its_own_path_and_by_its_folders() {
        let all = mounts(INFO);
        let unified = |rest: &str, depth| Some((format!("/sys/fs/cgroup/unified{rest}"), depth));
        assert_eq!(placed("/x/y", &all), unified("/x/y", 2));
        assert_eq!(placed("0::/x/y", &all), unified("/x/y", 2));
        assert_eq!(placed("/sys/fs/cgroup/unified/x/", &all), unified("/x", 1));
        assert_eq!(placed("/", &all), unified("", 0));
        assert_eq!(placed("/sys/fs/cgroup/unified", &all), unified("", 0));
        assert_eq!(placed("/mnt/part\\/c", &all), Some(("/mnt/part\\/c".into(), 2)));
        assert_eq!(placed("/sys/fs/cgroup/unifiedx", &all), unified("/sys/fs/cgroup/unifiedx", 4));
    }

    #[test]
    fn above_a_namespace_levels_go_down() {
        let above = mounts("1 2 0:3 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        assert_eq!(placed("/sys/fs/cgroup/a/b/c", &above), Some(("/sys/fs/cgroup/a/b/c".into(), 1)));
        assert!(place("/c", &above).is_err_and(|e| e.contains("name its folder, below /sys/fs/cgroup")));
    }

    #[test]
    fn a_namespaces_root_is_as_deep_as_our_cgroup_less_what_it_shows() {
        assert_eq!(namespace_level("9:cpu:/\n0::/\n", 3), 3);
        assert_eq!(namespace_level("0::/x/y\n", 3), 1);
        assert_eq!(namespace_level("0::/../../z (deleted)\n", 3), 4);
    }

    #[test]
    fn what_is_no_path_of_a_cgroup_is_refused() {
        let all = mounts(INFO);
        assert!(place("x", &all).is_err_and(|e| e.contains("begins with /")));
        assert!(place("", &all).is_err());
        assert!(place("/x/../y", &all).is_err());
        assert!(place("/x", &[]).is_err_and(|e| e.contains("no cgroup2 file system is mounted")));
    }
}
