//! Random expressions over the types of a kernel: from what is at hand through members wherever they lead.

use super::image::Random;
use btf::{Btf, Kind};
use expr::{Tid, Ty, Types, Variable};

/// What a tracepoint is given.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    pub args: &'a [Variable],
}

#[derive(Debug)]
pub struct Walk<'b> {
    types: Types<'b>,
    btf: &'b Btf,
    pub random: Random,
    roots: Vec<(String, Ty)>,
    structs: Vec<&'b str>,
    per_cpu: Vec<(String, Ty)>,
    /// Structures that others hang in by a `struct list_head`, `hlist_node` or `rb_node`.
    containers: Vec<(String, String, String)>,
    enumerators: Vec<String>,
}

impl<'b> Walk<'b> {
    /// `known`: whether kallsyms has a variable.
    pub fn new(btf: &'b Btf, types: &Types<'b>, known: &dyn Fn(&str) -> bool) -> Walk<'b> {
        let structs: Vec<&str> = btf.names(Kind::Struct).map(|(_, name)| name).collect();
        let mut containers = Vec::new();
        for (id, name) in btf.names(Kind::Struct) {
            for member in btf.get(id).unwrap().members() {
                let of = btf.type_name(btf.resolve(member.ty));
                if matches!(of.as_str(), "struct list_head" | "struct hlist_node" | "struct rb_node")
                    && let Some(member) = member.name
                {
                    containers.push((of, name.to_string(), member.to_string()));
                }
            }
        }
        let mut per_cpu = Vec::new();
        for (id, _) in btf.names(Kind::Datasec).filter(|(_, name)| name.contains("percpu")) {
            for var in btf.get(id).unwrap().section_vars() {
                let var = btf.get(var.var).unwrap();
                let ty = types.ty(Tid { space: 0, id: var.target().unwrap() });
                if let Some(name) = var.name().filter(|name| known(name)) {
                    per_cpu.push((name.to_string(), ty));
                }
            }
        }
        let enumerators = btf
            .names(Kind::Enum)
            .step_by(9)
            .filter_map(|(id, _)| Some(btf.get(id).ok()?.enumerators().next()?.name.to_string()))
            .collect();
        let (types, random) = (types.clone(), Random(0));
        Walk { types, btf, random, roots: Vec::new(), structs, per_cpu, containers, enumerators }
    }

    pub fn begin(&mut self, random: Random, with: Arguments<'_>) {
        self.random = random;
        self.roots = with
            .args
            .iter()
            .enumerate()
            .map(|(n, arg)| {
                let name = if arg.name.is_empty() { format!("$args[{n}]") } else { arg.name.clone() };
                (name, arg.ty.clone())
            })
            .collect();
        let task = self.btf.find(Kind::Struct, "task_struct").unwrap();
        self.roots.push(("$task".into(), Ty::Composite(Tid { space: 0, id: task }).pointer()));
    }

    fn root(&mut self) -> (String, Ty) {
        if !self.per_cpu.is_empty() && self.random.one_in(12) {
            return self.random.pick(&self.per_cpu).clone();
        }
        let pointers: Vec<(String, Ty)> =
            self.roots.iter().filter(|(_, ty)| matches!(ty, Ty::Ptr(_))).cloned().collect();
        if self.random.one_in(6) {
            self.random.pick(&self.roots).clone()
        } else {
            self.random.pick(&pointers).clone()
        }
    }

    fn strukt(&mut self) -> (String, Ty) {
        loop {
            let name = self.random.pick(&self.structs).to_string();
            let Some(id) = self.btf.find(Kind::Struct, &name) else { continue };
            return (name, Ty::Composite(Tid { space: 0, id }));
        }
    }

    /// The named members of a structure, those of anonymous ones in it too.
    fn members(&self, tid: Tid, depth: u32, into: &mut Vec<(String, Tid)>) {
        let Ok(ty) = self.btf.get(self.btf.resolve(tid.id)) else { return };
        for member in ty.members() {
            let of = Tid { space: 0, id: member.ty };
            match member.name {
                Some(name) => into.push((name.to_string(), of)),
                None if depth > 0 => self.members(of, depth - 1, into),
                None => {}
            }
        }
    }

    fn index(&mut self, len: u32) -> String {
        match self.random.below(4) {
            0 if len > 1 => {
                let number = self.number(0);
                format!("({number}) % {len}")
            }
            1 if len > 1 => {
                let (number, mask) = (self.number(0), (1u32 << len.ilog2()) - 1);
                format!("({number}) & {mask}")
            }
            _ => self.random.below(len.clamp(1, 8) as usize).to_string(),
        }
    }

    /// Follows members, and gives what they lead to.
    pub fn walk(&mut self) -> (String, Ty) {
        let (mut text, mut ty) = self.root();
        for _ in 0..2 + self.random.below(9) {
            (text, ty) = match ty.clone() {
                Ty::Composite(tid) => {
                    let mut members = Vec::new();
                    self.members(tid, 4, &mut members);
                    if members.is_empty() {
                        return (text, Ty::Composite(tid));
                    }
                    let (name, of) = self.random.pick(&members).clone();
                    // `(*p).a` is written `p->a`, mostly.
                    let text = match text.strip_prefix("(*").and_then(|t| t.strip_suffix(')')) {
                        Some(pointer) if !self.random.one_in(16) => format!("{pointer}->{name}"),
                        _ => format!("{text}.{name}"),
                    };
                    (text, self.types.ty(of))
                }
                Ty::Ptr(to) => {
                    if self.random.one_in(10) {
                        return (text, Ty::Ptr(to));
                    }
                    match *to {
                        Ty::Composite(tid) => {
                            let name = self.types.name(&Ty::Composite(tid));
                            let fitting: Vec<_> =
                                self.containers.iter().filter(|(of, ..)| *of == name).cloned().collect();
                            if !fitting.is_empty() && self.random.one_in(2) {
                                let (_, of, member) = self.random.pick(&fitting).clone();
                                let Some(id) = self.btf.find(Kind::Struct, &of) else { continue };
                                let of_ty = Ty::Composite(Tid { space: 0, id });
                                (format!("container_of({text}, struct {of}, {member})"), of_ty.pointer())
                            } else {
                                match self.random.below(24) {
                                    0 => {
                                        let index = self.index(4);
                                        (format!("{text}[{index}]"), Ty::Composite(tid))
                                    }
                                    1 => {
                                        let n = self.number(0);
                                        (format!("(*({text} + (({n}) & 3)))"), Ty::Composite(tid))
                                    }
                                    2 => {
                                        let (name, ty) = self.strukt();
                                        (format!("((struct {name} *){text})"), ty.pointer())
                                    }
                                    3 => {
                                        let (name, ty) = self.strukt();
                                        let by = self.random.below(200);
                                        (format!("((struct {name} *)((char *){text} + {by}))"), ty.pointer())
                                    }
                                    _ => (format!("(*{text})"), Ty::Composite(tid)),
                                }
                            }
                        }
                        Ty::Void | Ty::Incomplete(_) => {
                            let (name, ty) = self.strukt();
                            (format!("((struct {name} *){text})"), ty.pointer())
                        }
                        Ty::Func(_) | Ty::Other(_) => return (text, Ty::Ptr(to)),
                        other => {
                            if self.random.one_in(2) {
                                (format!("(*{text})"), other)
                            } else {
                                let index = self.index(16);
                                (format!("{text}[{index}]"), other)
                            }
                        }
                    }
                }
                Ty::Array(of, len) => {
                    if self.random.one_in(6) {
                        return (text, Ty::Array(of, len));
                    }
                    let index = self.index(len);
                    (format!("{text}[{index}]"), *of)
                }
                ty => return (text, ty),
            };
        }
        (text, ty)
    }

    /// A number.
    pub fn number(&mut self, depth: u32) -> String {
        if depth == 0 {
            for _ in 0..4 {
                if self.random.one_in(4) {
                    break;
                }
                let (text, ty) = self.walk_short();
                if ty.is_scalar() {
                    return if matches!(ty, Ty::Ptr(_)) { format!("(u64){text}") } else { text };
                }
            }
            return match self.random.below(6) {
                0 => "$pid".into(),
                1 => "$cpu".into(),
                2 => "$cgroup".into(),
                3 => self.random.pick(&self.enumerators).clone(),
                4 => format!("{:#x}", self.random.next()),
                _ => (self.random.below(200) as i64 - 100).to_string(),
            };
        }
        let a = self.number(depth - 1);
        match self.random.below(12) {
            0 => format!("-({a})"),
            1 => format!("~({a})"),
            2 => {
                let ty = *self
                    .random
                    .pick(&["u8", "s16", "int", "u64", "s8", "_Bool", "unsigned", "long", "char"]);
                format!("({ty})({a})")
            }
            3 => {
                let (b, c) = (self.number(depth - 1), self.test());
                format!("(({c}) ? {a} : {b})")
            }
            4 => format!("ntohs({a})"),
            5 => format!("({})", self.test()),
            _ => {
                let op = *self.random.pick(&["+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>"]);
                let b = self.number(depth - 1);
                format!("(({a}) {op} ({b}))")
            }
        }
    }

    /// Not within an index of itself for ever.
    fn walk_short(&mut self) -> (String, Ty) {
        let (root, ty) = self.root();
        let Ty::Ptr(to) = &ty else { return (root, ty) };
        let Ty::Composite(tid) = **to else { return (root, ty) };
        let mut members = Vec::new();
        self.members(tid, 4, &mut members);
        if members.is_empty() {
            return (root, ty);
        }
        let (name, of) = self.random.pick(&members).clone();
        (format!("{root}->{name}"), self.types.ty(of))
    }

    /// What holds or does not.
    pub fn test(&mut self) -> String {
        match self.random.below(10) {
            0 | 1 => {
                let (text, ty) = self.walk();
                match ty {
                    Ty::Ptr(to) if to.is_char() => format!("{text} == \"eth0\""),
                    Ty::Array(of, _) if of.is_char() => format!("{text} != \"kworker\""),
                    Ty::Ptr(_) => match self.random.below(4) {
                        0 => format!("!{text}"),
                        1 => format!("{text} == 0"),
                        2 => format!("str({text}) in (\"a\", \"bcd\")"),
                        _ => text,
                    },
                    ty if ty.is_scalar() => format!("{text} > 3"),
                    Ty::Composite(_) => format!("ip6(&{text}) == \"::1\""),
                    _ => "$comm == \"bash\"".into(),
                }
            }
            2 => {
                let (a, b) = (self.number(0), self.number(0));
                format!("{a} in (1, 2, {b})")
            }
            3 => {
                let (a, b) = (self.number(0), self.number(0));
                format!("{a} && {b} < 100")
            }
            4 => {
                let (a, b) = (self.number(0), self.number(0));
                format!("{a} == 1 || !({b} > 5)")
            }
            _ => {
                let op = *self.random.pick(&["<", "<=", ">", ">=", "==", "!="]);
                let (text, ty) = self.walk();
                let a = if ty.is_scalar() { text } else { self.number(0) };
                let b = if matches!(ty, Ty::Ptr(_)) { "0".into() } else { self.number(0) };
                format!("{a} {op} {b}")
            }
        }
    }

    /// What can be printed.
    pub fn output(&mut self) -> String {
        match self.random.below(10) {
            0 => {
                let depth = 1 + self.random.below(3) as u32;
                self.number(depth)
            }
            1 => {
                let test = self.test();
                format!("({test}) + 1")
            }
            2 => {
                let (text, ty) = self.walk();
                match ty {
                    Ty::Ptr(_) => match self.random.below(6) {
                        0 => format!("str({text})"),
                        1 => format!("hex({text}, 24)"),
                        2 => {
                            let n = self.number(0);
                            format!("buf({text}, {n})")
                        }
                        3 => format!("{text} + 3"),
                        4 => format!("ksym({text})"),
                        _ => format!("({text} ? 1 : 2)"),
                    },
                    Ty::Array(..) => format!("hex({text})"),
                    Ty::Composite(_) => format!("&{text}"),
                    _ => format!("-{text}"),
                }
            }
            _ => self.walk().0,
        }
    }
}
