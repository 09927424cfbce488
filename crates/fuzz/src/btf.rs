//! BTF: whatever the bytes, every question gets an answer or an error, soon; and so does a plan made of it.

use crate::Fuzz;
use crate::random::Random;
use btf::{Btf, Builder, Kind, Limits, Linkage, NewMember, Shape, TypeId};
use std::path::Path;
use std::sync::Arc;
use trace::{Filter, Kernel, Mode, Plan, Request, TargetKind, TargetSpec};

/// Types of the real thing that a seed is cut of.
const CUT: usize = 400;

/// Good BTF, to be spoilt.
pub struct BtfFuzz {
    seeds: Vec<Vec<u8>>,
}

impl BtfFuzz {
    /// Small ones of every kind, a kernel of a few functions, and pieces of the running kernel's.
    pub fn new() -> BtfFuzz {
        let mut seeds = vec![every_kind(), kernel()];
        match std::fs::read(Kernel::BTF_PATH) {
            Ok(real) => {
                for from in [0, 20_000, 60_000, 100_000] {
                    seeds.extend(cut(&real, from));
                }
            }
            Err(error) => eprintln!("fuzz: SKIP the running kernel's BTF: {error}"),
        }
        BtfFuzz { seeds }
    }
}

impl Fuzz for BtfFuzz {
    fn run(&mut self, random: &mut Random) -> Result<(), String> {
        let mut bytes = random.pick(&self.seeds).cloned().unwrap_or_default();
        if !random.one_in(64) {
            random.mutate(&mut bytes);
        }
        let Ok(btf) = Btf::from_bytes(bytes.clone()) else { return Ok(()) };
        ask(&btf, random)?;
        let base = Arc::new(btf);
        if random.one_in(4) {
            let mut more = random.pick(&self.seeds).cloned().unwrap_or_default();
            random.mutate(&mut more);
            if let Ok(split) = Btf::from_bytes_split(more, Arc::clone(&base)) {
                ask(&split, random)?;
            }
        }
        let Ok(btf) = Btf::from_bytes(bytes) else { return Err("read once, and not again".into()) };
        let Ok(kernel) = Kernel::new(btf, Path::new("/nowhere")) else { return Ok(()) };
        plan(&kernel, random);
        Ok(())
    }
}

/// Asks everything there is to ask.
fn ask(btf: &Btf, random: &mut Random) -> Result<(), String> {
    let limits = Limits::default();
    let bytes: Vec<u8> = (0..random.below(80)).map(|_| random.next() as u8).collect();
    let beyond = [btf.len(), u32::MAX, random.next() as u32].map(TypeId);
    let first = random.below(btf.len() as usize);
    for id in btf.ids().skip(first).take(60).chain(beyond) {
        if let Ok(ty) = btf.get(id) {
            let _ = format!("{ty:?} {:?} {:?} {:?}", ty.size(), ty.target(), ty.name());
            let _ = (ty.int(), ty.array(), ty.linkage(), ty.component(), ty.is_union_fwd());
            ty.members().take(2000).for_each(drop);
            ty.params().take(2000).for_each(drop);
            ty.enumerators().take(2000).for_each(drop);
            ty.section_vars().take(2000).for_each(drop);
        }
        let _ = (btf.resolve(id), btf.size_of(id), btf.align_of(id), btf.proto(id));
        let _ = (btf.is_char_ptr(id), btf.is_user_ptr(id), btf.member(id, "a.b"), btf.member(id, "pid"));
        let expanded = btf.definition_expanded(id, 3);
        for text in
            [btf.type_name(id), btf.declare(id, "name"), btf.func_decl(id), btf.definition(id), expanded]
        {
            if text.len() > 16 << 20 {
                return Err(format!("type {} is spelt in {} bytes", id.0, text.len()));
            }
            if text.contains(|c: char| c.is_ascii_control() && c != '\n') {
                return Err(format!("type {} is spelt with control characters", id.0));
            }
        }
        let shape = Shape::of(btf, id, &limits);
        let (mut text, mut json) = (Vec::new(), Vec::new());
        shape.text(&bytes, &mut text);
        shape.json(&bytes, &mut json);
        if std::str::from_utf8(&text).is_err() {
            return Err(format!("type {}: the text of a value is not UTF-8", id.0));
        }
        if let Err(error) = serde_json::from_slice::<serde_json::Value>(&json) {
            return Err(format!("type {}: {error}: {}", id.0, String::from_utf8_lossy(&json)));
        }
    }
    for kind in [Kind::Void, Kind::Struct, Kind::Func, Kind::Enum, Kind::Unknown] {
        btf.names(kind).for_each(drop);
        let _ = (btf.find(kind, "a"), btf.find_all(kind, "b"));
    }
    btf.names_from(Kind::Typedef, "btf_trace_").for_each(drop);
    btf.find_many(&[(Kind::Func, "vfs_read"), (Kind::Typedef, "b"), (Kind::Func, "")]);
    btf.find_enumerators(&["a", "BPF_FUNC_ringbuf_reserve", ""]);
    btf.enumerators_named("BPF_FUNC_ringbuf_reserve");
    btf.find_variable("runqueues");
    let names = btf::Lookup::new(btf);
    for name in ["struct a", "enum bpf_func_id", "unsigned long", "u32"] {
        names.ty(name);
    }
    let _ = btf.enum_has("bpf_func_id", "BPF_FUNC_ringbuf_reserve");
    Ok(())
}

/// Plans a trace of all that is there.
fn plan(kernel: &Kernel, random: &mut Random) {
    for kind in [TargetKind::Function, TargetKind::Tracepoint] {
        let Ok(spec) = TargetSpec::new(kind, "*", false) else { continue };
        let _ = trace::list(kernel, &spec);
        let mode = random.pick(&[Mode::Entry, Mode::Exit, Mode::Both]).copied().unwrap_or_default();
        let request = Request {
            programs: Vec::new(),
            pointees: true,
            targets: vec![spec],
            mode,
            filter: Filter { errors: random.one_in(4), ..Filter::default() },
            expressions: Default::default(),
            force: true,
            path: None,
            stack: random.one_in(2),
            branches: random.one_in(2),
            string_size: 64,
            ring_size: 1 << 16,
        };
        let _ = Plan::new(kernel, &request);
    }
}

/// One type of every kind, and such as refer to themselves.
fn every_kind() -> Vec<u8> {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let char = b.int("char", 1, true);
    let wide = b.int("unsigned __int128", 16, false);
    let bool = b.bool("bool");
    let float = b.float("double", 8);
    let text = b.qualified(Kind::Const, char);
    let text = b.ptr(text);
    let array = b.array(char, int, 16);
    let rows = b.array(array, int, 3);
    let colour = b.enumeration("colour", 4, false, &[("RED", 0), ("GREEN", 7)]);
    let big = b.enumeration64("big", true, &[("LOW", i64::MIN), ("HIGH", i64::MAX)]);
    let list = TypeId(int.0 + 100);
    let tagged = b.type_tag("user", list);
    let bits = [
        NewMember { name: "one", ty: int, bit_offset: 0, bitfield_size: 1 },
        NewMember { name: "many", ty: int, bit_offset: 1, bitfield_size: 31 },
    ];
    let bits = b.strukt("bits", 4, &bits);
    let both = b.union("", 16, &[NewMember::at("w", wide, 0), NewMember::at("t", text, 0)]);
    let members = [
        NewMember::at("a", bits, 0),
        NewMember::at("", both, 16),
        NewMember::at("rows", rows, 32),
        NewMember::at("next", tagged, 80),
        NewMember::at("c", colour, 88),
        NewMember::at("b", big, 96),
        NewMember::at("f", float, 104),
        NewMember::at("ok", bool, 112),
    ];
    let all = b.strukt("all", 120, &members);
    let name = b.typedef("all_t", all);
    let volatile = b.qualified(Kind::Volatile, name);
    let restrict = b.qualified(Kind::Restrict, text);
    let callback = b.func_proto(int, &[("", name), ("more", restrict)]);
    let callback = b.ptr(callback);
    let proto = b.func_proto(volatile, &[("a", all), ("cb", callback), ("", TypeId::VOID)]);
    let func = b.func("work", proto, Linkage::Global);
    b.decl_tag("kfunc", func, None);
    b.decl_tag("arg", func, Some(1));
    let var = b.var("counter", int, Linkage::Static);
    b.datasec(".data", 4, &[(var, 0, 4)]);
    b.fwd("opaque", true);
    b.finish()
}

/// What a kernel must have at least, and functions and tracepoints that trampolines like and such as they do not.
pub fn kernel() -> Vec<u8> {
    let mut b = Builder::new();
    let int = b.int("int", 4, true);
    let long = b.int("long", 8, true);
    let char = b.int("char", 1, true);
    let comm = b.array(char, int, 16);
    let task = [NewMember::at("pid", int, 0), NewMember::at("tgid", int, 4), NewMember::at("comm", comm, 8)];
    let task = b.strukt("task_struct", 24, &task);
    let task = b.ptr(task);
    b.enumeration(
        "bpf_func_id",
        4,
        false,
        &[
            ("BPF_FUNC_ringbuf_reserve", 131),
            ("BPF_FUNC_get_current_task_btf", 158),
            ("BPF_FUNC_get_branch_snapshot", 176),
        ],
    );
    let text = b.qualified(Kind::Const, char);
    let text = b.ptr(text);
    let file = b.strukt("file", 8, &[NewMember::at("f_inode", task, 0)]);
    let file = b.ptr(file);
    let pair = b.strukt("pair", 16, &[NewMember::at("a", long, 0), NewMember::at("b", file, 8)]);
    let data = b.ptr(TypeId::VOID);
    for (name, ret, params) in [
        ("vfs_read", long, &[("file", file), ("buf", text), ("count", long)][..]),
        ("vfs_write", long, &[("file", file), ("buf", data)]),
        ("by_value", int, &[("p", pair), ("q", pair)]),
        ("nothing", TypeId::VOID, &[]),
        ("returns", pair, &[("n", int)]),
        ("variadic", int, &[("format", text), ("", TypeId::VOID)]),
    ] {
        let proto = b.func_proto(ret, params);
        b.func(name, proto, Linkage::Static);
    }
    for name in ["sched_switch", "sched_wakeup", "sys_enter"] {
        let proto = b.func_proto(TypeId::VOID, &[("", data), ("", task), ("", text)]);
        let pointer = b.ptr(proto);
        b.typedef(&format!("btf_trace_{name}"), pointer);
        let named = b.func_proto(int, &[("data", data), ("task", task), ("text", text)]);
        b.func(&format!("__traceiter_{name}"), named, Linkage::Global);
    }
    b.finish()
}

/// A piece of real BTF: `CUT` types from one on, with their names; what they refer to is elsewhere.
fn cut(real: &[u8], from: usize) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u32::from_le_bytes(real.get(at..at + 4)?.try_into().ok()?));
    // struct btf_header: hdr_len, type_off, type_len, str_off, str_len from byte 4 on.
    let (header, types, types_len) = (word(4)? as usize, word(8)? as usize, word(12)? as usize);
    let (strings, strings_len) = (word(16)? as usize, word(20)? as usize);
    let types = real.get(header + types..header + types + types_len)?;
    let strings = real.get(header + strings..header + strings + strings_len)?;
    let mut at = 0;
    for _ in 0..from {
        at += record_len(types, at)?;
    }
    let start = at;
    for _ in 0..CUT {
        at += record_len(types, at)?;
    }
    let types = types.get(start..at)?;
    // Names lie anywhere: a piece of the strings as large as the types, and offsets into it.
    let kept = strings.get(..strings.len().min(16 << 10))?;
    let mut types = types.to_vec();
    let mut at = 0;
    while let Some(len) = record_len(&types, at) {
        let name = types.get_mut(at..at + 4)?;
        let offset = u32::from_le_bytes(name.try_into().ok()?) as usize % kept.len();
        name.copy_from_slice(&(offset as u32).to_le_bytes());
        at += len;
    }
    let mut out = Vec::new();
    out.extend(real.get(..4)?);
    for word in [24, 0, types.len(), types.len(), kept.len()] {
        out.extend((word as u32).to_le_bytes());
    }
    out.extend(types);
    out.extend(kept);
    // The last string must end.
    if let Some(last) = out.last_mut() {
        *last = 0;
    }
    Some(out)
}

/// Bytes of a type's record: `struct btf_type`, and what follows it by its kind.
fn record_len(types: &[u8], at: usize) -> Option<usize> {
    let info = u32::from_le_bytes(types.get(at + 4..at + 8)?.try_into().ok()?);
    let (kind, vlen) = (info >> 24 & 31, (info & 0xffff) as usize);
    Some(
        12 + match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            4 | 5 | 15 | 19 => 12 * vlen,
            6 | 13 => 8 * vlen,
            _ => 0,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_are_good_and_have_something_in_them() {
        for seed in BtfFuzz::new().seeds {
            let btf = Btf::from_bytes(seed).expect("a good seed");
            assert!(btf.len() > 20, "{} types", btf.len());
        }
    }
}
