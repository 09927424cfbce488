//! What a person wants to know of the object behind a pointer, beside its address.
//!
//! A table: to show more, add a line. Paths are followed through the running kernel's own BTF, so that offsets are
//! never written down; a line whose members this kernel does not have is left out on it.

/// Members worth showing of one structure.
pub struct Pointee {
    /// The structure's tag.
    pub strukt: &'static str,
    /// Label, and path of members from the object: `.` inside an object, `->` through a pointer.
    pub show: &'static [(&'static str, &'static str)],
}

/// The table.
pub const POINTEES: &[Pointee] = &[
    Pointee { strukt: "linux_binprm", show: &[("filename", "filename")] },
    Pointee { strukt: "filename", show: &[("name", "name")] },
    Pointee { strukt: "task_struct", show: &[("pid", "tgid"), ("tid", "pid"), ("comm", "comm")] },
];

/// The line for a structure, if it has one.
pub fn of(strukt: &str) -> Option<&'static Pointee> {
    POINTEES.iter().find(|p| p.strukt == strukt)
}
