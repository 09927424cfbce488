//! Whose events are taken. Tested first in every program, before anything is read or reserved.

use crate::cgroup::Cgroup;

/// Tests on the current task and on what it returns; all must hold. A list holds when one of it does; empty, always.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Process (thread group) ids.
    pub tgids: Vec<u32>,
    /// Thread ids.
    pub tids: Vec<u32>,
    /// The pid namespace that numbers those ids; `None`: the machine's first, whose numbers are the kernel's own.
    pub pid_namespace: Option<PidNamespace>,
    /// Whole names of threads.
    pub comms: Vec<Comm>,
    /// CPUs.
    pub cpus: Vec<u32>,
    /// Cgroups, each with all below it.
    pub cgroups: Vec<Cgroup>,
    /// Only calls that returned an error: a negative number down to -4095, or an error in a pointer.
    pub errors: bool,
    /// Never this process: our own, lest a trace of writes trace its own output.
    pub not_tgid: Option<u32>,
    /// Only tasks in the tracker's map: the command's and those of its descendants.
    pub followed: bool,
}

impl Filter {
    /// Whether all that it asks of the task is not to be ourselves.
    pub(crate) fn is_of_anybody(&self) -> bool {
        let Filter { tgids, tids, comms, cgroups, followed, .. } = self;
        tgids.is_empty() && tids.is_empty() && comms.is_empty() && cgroups.is_empty() && !followed
    }

    /// Whether it can admit a task at the entry of a call and not at its return, or the other way round.
    pub(crate) fn may_change(&self) -> bool {
        !self.comms.is_empty() || !self.cgroups.is_empty()
    }
}

/// A pid namespace as `bpf_get_ns_current_pid_tgid` knows it: device and inode of its file (`/proc/self/ns/pid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidNamespace {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub ino: u64,
}

/// A thread's whole name as the kernel keeps it: 15 bytes at most, then zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comm([u8; 16]);

impl Comm {
    /// `None` for a name that no thread can have: empty, longer than 15 bytes, or with a zero in it.
    pub fn new(name: &str) -> Option<Comm> {
        let mut comm = [0; 16];
        let fits = !name.is_empty() && name.len() < comm.len() && !name.bytes().any(|b| b == 0);
        fits.then(|| {
            comm.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
            Comm(comm)
        })
    }

    /// Its bytes as two words, in the order in which they lie in memory.
    pub(crate) fn halves(&self) -> [i64; 2] {
        let word = |at| {
            let half = self.0.get(at..at + 8).and_then(|h| h.try_into().ok()).unwrap_or_default();
            i64::from_ne_bytes(half)
        };
        [word(0), word(8)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole() {
        assert!(
            Comm::new("").is_none() && Comm::new("sixteen_letters_").is_none() && Comm::new("a\0b").is_none()
        );
        let halves = Comm::new("fifteen_letters").map(|c| c.halves());
        assert_eq!(halves, Some([i64::from_ne_bytes(*b"fifteen_"), i64::from_ne_bytes(*b"letters\0")]));
    }
}
