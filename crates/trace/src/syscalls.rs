//! System calls: the arguments behind the one that a wrapper has.
//!
//! On x86-64 a system call's function is `long __x64_sys_openat(const struct pt_regs *regs)`, and what the program passed
//! lies in the registers that it had: di, si, dx, r10, r8, r9. A 32-bit program's call runs `__ia32_sys_openat`, or
//! `__ia32_compat_sys_openat` where it needs a translation, and has bx, cx, dx, si, di, bp, of which the lower halves
//! count (arch/x86/include/asm/syscall_wrapper.h). BTF knows nothing of it, so names and types come from a table, and the
//! types' sizes and shapes from the kernel.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::request::TargetKind;
use crate::target::Target;
use btf::{Btf, Kind, Limits, Shape, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

/// The table, which says of itself what it is.
const TABLE: &str = include_str!("syscalls.txt");

/// Functions of system calls, by the beginning of their names: whether the table's compat lines hold for them, and which
/// registers they take their arguments from. The x32 ones share the 64-bit registers.
const WRAPPERS: [(&str, bool, Registers); 4] = [
    ("__x64_sys_", false, Registers::Native),
    ("__ia32_sys_", false, Registers::Ia32),
    ("__ia32_compat_sys_", true, Registers::Ia32),
    ("__x64_compat_sys_", true, Registers::Native),
];

/// Where a program has a call's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registers {
    /// A 64-bit program's `syscall`.
    Native,
    /// A 32-bit program's `int $0x80`, or `sysenter`.
    Ia32,
}

impl Registers {
    /// Members of `struct pt_regs`, by argument.
    const fn names(self) -> &'static [&'static str; 6] {
        match self {
            Registers::Native => &["di", "si", "dx", "r10", "r8", "r9"],
            Registers::Ia32 => &["bx", "cx", "dx", "si", "di", "bp"],
        }
    }
}

/// A system call whose wrapper is a target.
#[derive(Clone, Debug)]
pub struct Syscall {
    /// The kernel's name of it, such as `openat`.
    pub name: String,
    /// Made by a 32-bit (or x32) program.
    pub compat: bool,
    /// Its arguments in order.
    pub params: Vec<Param>,
    /// Whether the table has it; if not, the arguments are the six registers.
    pub known: bool,
}

/// An argument of a system call.
#[derive(Clone, Debug)]
pub struct Param {
    /// Its name; of a call that is not in the table the register's.
    pub name: String,
    /// Its type in C, as in the table.
    pub type_name: String,
    /// How its bytes read.
    pub shape: Shape,
    /// Bytes of the value: 1 to 8.
    pub size: u32,
    /// Whether it points to a text in user memory.
    pub text: bool,
    /// Where it lies in `struct pt_regs`, in bytes.
    pub(crate) offset: u32,
    /// Whether the register's upper half counts for nothing.
    pub(crate) lower_half: bool,
}

impl Syscall {
    /// `openat(int dfd, const char *filename, int flags, umode_t mode)`.
    pub fn prototype(&self) -> String {
        let params: Vec<String> = self.params.iter().map(|p| declare(&p.type_name, &p.name)).collect();
        let compat = if self.compat { "compat " } else { "" };
        format!(
            "{compat}{}({})",
            self.name,
            if params.is_empty() { "void".into() } else { params.join(", ") }
        )
    }

    /// Whether the registers, once it has returned, may be another program's: a successful execve resets them, and
    /// sigreturn restores those of the interrupted code.
    pub(crate) fn overwrites_registers(&self) -> bool {
        matches!(self.name.as_str(), "execve" | "execveat" | "rt_sigreturn" | "sigreturn")
    }
}

fn declare(type_name: &str, name: &str) -> String {
    let space = if type_name.ends_with('*') { "" } else { " " };
    format!("{type_name}{space}{name}")
}

/// The name of the system call that a function is the wrapper of, by the function's name.
fn wrapped(function: &str) -> Option<(&str, bool, Registers)> {
    WRAPPERS
        .iter()
        .find_map(|(prefix, compat, registers)| Some((function.strip_prefix(prefix)?, *compat, *registers)))
}

/// Numbers by which programs make system calls.
const NUMBERS: &str = include_str!("syscall_numbers.txt");

/// The name of a system call by its number, as programs know it: `stat`, not `newstat`. A 32-bit program's numbers are others.
pub fn syscall_name(number: u64, compat: bool) -> Option<&'static str> {
    static PARSED: OnceLock<[HashMap<u64, &'static str>; 2]> = OnceLock::new();
    let [native, compats] = PARSED.get_or_init(|| {
        let (native, compats) = NUMBERS.split_once("compat\n").unwrap_or((NUMBERS, ""));
        [native, compats].map(|lines| {
            let line = |line: &'static str| {
                let (number, name) = line.split_once(' ')?;
                Some((number.parse().ok()?, name))
            };
            lines.lines().filter_map(line).collect()
        })
    });
    if compat { compats } else { native }.get(&number).copied()
}

/// What tells which system call a tracepoint of all of them (`raw_syscalls`) is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Offset of `orig_ax`, the number, in the `struct pt_regs` of the first argument.
    pub number: u32,
    /// Offset of the task's status.
    pub status: u32,
}

/// `TS_COMPAT` (arch/x86/include/asm/thread_info.h): a 32-bit program's system call is under way.
pub(crate) const TS_COMPAT: u32 = 2;

/// For the tracepoints `sys_enter` and `sys_exit`, where the kernel has what it takes.
pub(crate) fn told(kernel: &Kernel, target: &Target) -> Option<Told> {
    let all = matches!(target.name.as_str(), "sys_enter" | "sys_exit");
    if !all || target.kind != TargetKind::Tracepoint || target.module.is_some() {
        return None;
    }
    let btf = &kernel.btf;
    let found = btf.find_many(&[(Kind::Struct, "pt_regs"), (Kind::Struct, "task_struct")]);
    let at = |index: usize, path: &str| {
        let strukt = found.get(index).copied().flatten()?;
        btf.member(strukt, path).ok().map(|m| m.byte_offset())
    };
    Some(Told { number: at(0, "orig_ax")?, status: at(1, "thread_info.status")? })
}

/// The argument of a target that is the number of a system call, if one is: `id` of `sys_enter`.
pub(crate) fn number_argument(kernel: &Kernel, target: &Target) -> Option<u16> {
    told(kernel, target).filter(|_| target.name == "sys_enter")?;
    target.params.iter().position(|p| p.name == "id")?.try_into().ok()
}

/// Whether a function is a system call's, by its name.
pub(crate) fn is_wrapper(function: &str) -> bool {
    wrapped(function).is_some()
}

/// Functions of a system call that may be meant by `name`: `openat`, `sys_openat`.
pub(crate) fn meant(btf: &Btf, name: &str) -> Option<String> {
    let call = ["__do_sys_", "__se_sys_", "sys_", "SyS_"].iter().find_map(|prefix| name.strip_prefix(prefix));
    let function = format!("__x64_sys_{}", call.unwrap_or(name));
    btf.find(Kind::Func, &function).map(|_| function)
}

/// A line of the table: parameters as (type, name).
type Line = Vec<(&'static str, &'static str)>;

/// The table by compat and name; several lines of one name in their order.
fn table() -> &'static [HashMap<&'static str, Vec<Line>>; 2] {
    static PARSED: OnceLock<[HashMap<&'static str, Vec<Line>>; 2]> = OnceLock::new();
    PARSED.get_or_init(|| {
        let [mut native, mut compats] = [HashMap::new(), HashMap::<_, Vec<Line>>::new()];
        for (compat, name, line) in TABLE.lines().filter_map(parse) {
            let table = if compat { &mut compats } else { &mut native };
            table.entry(name).or_default().push(line);
        }
        [native, compats]
    })
}

/// `[compat ]name(type name, …)`; `None` for comments and blank lines.
fn parse(line: &'static str) -> Option<(bool, &'static str, Line)> {
    let (compat, line) = match line.strip_prefix("compat ") {
        Some(rest) => (true, rest),
        None => (false, line),
    };
    if line.starts_with('#') {
        return None;
    }
    let (name, params) = line.trim_end().strip_suffix(')')?.split_once('(')?;
    let param = |text: &'static str| {
        let at = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')? + 1;
        Some((text.get(..at)?.trim_end(), text.get(at..)?))
    };
    Some((compat, name, params.split(", ").filter(|p| !p.is_empty()).filter_map(param).collect()))
}

/// Unwraps those targets that are wrappers of system calls.
///
/// All at once: the types of five hundred calls are found in one walk over BTF.
pub(crate) fn unwrap<'a>(
    kernel: &Kernel,
    targets: impl Iterator<Item = &'a mut Target>,
) -> Result<(), Error> {
    let btf = &*kernel.btf;
    let wrappers: Vec<(&mut Target, bool, Registers)> = targets
        .filter_map(|target| {
            let (_, compat, registers) = wrapped(&target.name)?;
            // Of what only kallsyms knows, the name tells.
            let is_wrapper = target.address.is_some() || takes_registers(btf, target);
            (target.kind == TargetKind::Function && target.module.is_none() && is_wrapper)
                .then_some((target, compat, registers))
        })
        .collect();
    if wrappers.is_empty() {
        return Ok(());
    }
    let regs =
        btf.find(Kind::Struct, "pt_regs").ok_or_else(|| Error::Kernel { what: "struct pt_regs".into() })?;
    let mut offsets = BTreeMap::new();
    for register in Registers::Native.names().iter().chain(Registers::Ia32.names()) {
        offsets.insert(*register, btf.member(regs, register)?.byte_offset());
    }
    let mut types = Types::default();
    for (target, compat, _) in &wrappers {
        let Some((name, ..)) = wrapped(&target.name) else { continue };
        for (type_name, _) in lines(*compat, name).iter().flatten() {
            types.want(type_name);
        }
    }
    types.find(btf);
    let long = btf.find_many(&[(Kind::Int, "long int"), (Kind::Int, "long")]).into_iter().flatten().next();
    let mut unknown = Vec::new();
    for (target, compat, registers) in wrappers {
        let Some((name, ..)) = wrapped(&target.name) else { continue };
        let lines = lines(compat, name);
        // The first whose structures are there; the last, if none is.
        let line = lines
            .iter()
            .find(|line| line.iter().all(|(type_name, _)| types.has_structure(type_name)))
            .or(lines.last());
        let ia32 = registers == Registers::Ia32;
        let param = |(register, (type_name, name)): (&&str, (&str, &str))| {
            let (shape, size) = types.value(btf, type_name);
            Param {
                name: name.into(),
                type_name: type_name.into(),
                shape,
                size,
                text: is_text(type_name),
                offset: offsets.get(*register).copied().unwrap_or_default(),
                lower_half: ia32,
            }
        };
        let params = match line {
            Some(line) => registers.names().iter().zip(line.iter().copied()).map(param).collect(),
            None => registers.names().iter().map(|r| param((r, ("unsigned long", r)))).collect(),
        };
        if line.is_none() {
            unknown.push(target.name.clone());
        }
        let known = line.is_some();
        if let (true, Some(long)) = (target.address.is_some(), long) {
            target.ret = long;
        }
        target.syscall = Some(Syscall { name: name.into(), compat: compat || ia32, params, known });
    }
    match unknown.as_slice() {
        [] => {}
        [one] => {
            log::info!("{one} is not in the table of system calls: its arguments are shown as registers")
        }
        [first, rest @ ..] => log::info!(
            "{first} and {} more are not in the table of system calls: their arguments are shown as registers",
            rest.len()
        ),
    }
    Ok(())
}

fn lines(compat: bool, name: &str) -> &'static [Line] {
    let [native, compats] = table();
    if compat { compats } else { native }.get(name).map_or(&[], Vec::as_slice)
}

/// Whether the function takes a `struct pt_regs *` and nothing else. Where a call is optional (kernel/sys_ni.c) BTF may have
/// the structure as declared only.
fn takes_registers(btf: &Btf, target: &Target) -> bool {
    let [param] = target.params.as_slice() else { return false };
    let pointer = btf.get(btf.resolve(param.ty)).ok().filter(|t| t.kind() == Kind::Ptr);
    let object = pointer.and_then(|p| p.target()).and_then(|t| btf.get(btf.resolve(t)).ok());
    object.is_some_and(|o| matches!(o.kind(), Kind::Struct | Kind::Fwd) && o.name() == Some("pt_regs"))
}

/// `const char *` is a text; `char *` is far more often a buffer.
fn is_text(type_name: &str) -> bool {
    type_name == "const char *"
}

/// Kernel types by the table's spelling of them.
#[derive(Default)]
struct Types {
    found: BTreeMap<&'static str, Option<TypeId>>,
}

/// C's names of integers that BTF has by others: as gcc spells them in debug information.
const INTEGERS: [(&str, &str); 6] = [
    ("long", "long int"),
    ("unsigned long", "long unsigned int"),
    ("short", "short int"),
    ("unsigned short", "short unsigned int"),
    ("long long", "long long int"),
    ("unsigned long long", "long long unsigned int"),
];

/// What BTF calls it: of a pointer to a structure, the structure.
fn looked_for(type_name: &'static str) -> Option<(Kind, &'static str)> {
    let mut name = type_name.trim_start_matches("const ");
    let pointer = name.contains('*');
    name = name.split([' ', '*']).next().map_or(name, |first| match first {
        "struct" | "union" | "enum" => name,
        _ if pointer => "",
        _ => name,
    });
    let name = name.split(" *").next().unwrap_or(name).trim_end_matches(" const");
    Some(match name.split_once(' ') {
        Some(("struct", tag)) => (Kind::Struct, tag),
        Some(("union", tag)) => (Kind::Union, tag),
        Some(("enum", tag)) => (Kind::Enum, tag),
        _ if name.is_empty() => return None,
        _ => match INTEGERS.iter().find(|(c, _)| *c == name) {
            Some((_, gcc)) => (Kind::Int, gcc),
            None if matches!(name, "int" | "unsigned int" | "char") => (Kind::Int, name),
            None => (Kind::Typedef, name),
        },
    })
}

impl Types {
    fn want(&mut self, type_name: &'static str) {
        self.found.insert(type_name, None);
    }

    fn find(&mut self, btf: &Btf) {
        let wanted: Vec<(&str, (Kind, &str))> =
            self.found.keys().filter_map(|name| Some((*name, looked_for(name)?))).collect();
        let questions: Vec<(Kind, &str)> = wanted.iter().map(|(_, question)| *question).collect();
        for ((name, _), id) in wanted.iter().zip(btf.find_many(&questions)) {
            if let Some(slot) = self.found.get_mut(name) {
                *slot = id;
            }
        }
    }

    /// Whether this kernel has the structure that the type is, or points to; true of what is none.
    fn has_structure(&self, type_name: &'static str) -> bool {
        match looked_for(type_name) {
            Some((Kind::Struct | Kind::Union, _)) => self.found.get(type_name).is_some_and(Option::is_some),
            _ => true,
        }
    }

    /// Shape and size of an argument. What this kernel does not have is a whole register.
    fn value(&self, btf: &Btf, type_name: &str) -> (Shape, u32) {
        const WORD: (Shape, u32) = (Shape::Int { size: 8, signed: false }, 8);
        if type_name.contains('*') {
            return (Shape::Ptr { ty: type_name.into(), code: false }, 8);
        }
        let Some(id) = self.found.get(type_name).copied().flatten() else { return WORD };
        match btf.size_of(id) {
            Ok(size @ 1..=8) => (Shape::of(btf, id, &Limits::default()), size as u32),
            _ => WORD,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read_whole() {
        let lines: Vec<&str> = TABLE.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
        for line in &lines {
            let (compat, name, params) = parse(line).unwrap_or_else(|| panic!("{line}"));
            let again: Vec<String> = params.iter().map(|(ty, name)| declare(ty, name)).collect();
            let compat = if compat { "compat " } else { "" };
            assert_eq!(format!("{compat}{name}({})", again.join(", ")), *line);
            assert!(params.len() <= 6 && params.iter().all(|(ty, name)| !ty.is_empty() && !name.is_empty()));
        }
        let read = |table: &HashMap<_, Vec<Line>>| table.values().map(Vec::len).sum::<usize>();
        assert_eq!(table().iter().map(read).sum::<usize>(), lines.len());
        assert_eq!(super::lines(false, "openat")[0][1], ("const char *", "filename"));
        assert_eq!(super::lines(true, "openat").len(), 1);
    }

    #[test]
    fn types_are_looked_for_as_btf_has_them() {
        let of = looked_for;
        assert_eq!(of("unsigned long"), Some((Kind::Int, "long unsigned int")));
        assert_eq!(of("unsigned int"), Some((Kind::Int, "unsigned int")));
        assert_eq!(of("const size_t"), Some((Kind::Typedef, "size_t")));
        assert_eq!(of("const struct iovec *"), Some((Kind::Struct, "iovec")));
        assert_eq!(of("struct iocb **"), Some((Kind::Struct, "iocb")));
        assert_eq!(of("union bpf_attr *"), Some((Kind::Union, "bpf_attr")));
        assert_eq!(of("const enum landlock_rule_type"), Some((Kind::Enum, "landlock_rule_type")));
        assert_eq!(of("const char *const *"), None);
        assert_eq!(of("fd_set *"), None);
    }

    #[test]
    fn numbers_are_of_one_kind_of_program_or_the_other() {
        assert_eq!((syscall_name(3, false), syscall_name(3, true)), (Some("close"), Some("read")));
        assert_eq!((syscall_name(257, false), syscall_name(295, true)), (Some("openat"), Some("openat")));
        assert_eq!(syscall_name(u64::MAX, false), None);
    }

    #[test]
    fn wrappers_by_their_names() {
        let of = |name| wrapped(name).map(|(call, compat, registers)| (call, compat, registers.names()[3]));
        assert_eq!(of("__x64_sys_read"), Some(("read", false, "r10")));
        assert_eq!(of("__ia32_sys_read"), Some(("read", false, "si")));
        assert_eq!(of("__ia32_compat_sys_openat"), Some(("openat", true, "si")));
        assert_eq!(of("vfs_read"), None);
    }
}
