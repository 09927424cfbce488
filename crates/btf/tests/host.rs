//! The running kernel's own BTF: everything in it is read.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use btf::{Btf, Error, Kind, Limits, Lookup, Shape};

mod json;

/// The host's BTF. `None`, and a line that says so, only where the kernel offers none.
fn host() -> Option<Btf> {
    let path = Path::new("/sys/kernel/btf/vmlinux");
    if !path.exists() {
        eprintln!(
            "skipped: {} does not exist: this kernel is built without CONFIG_DEBUG_INFO_BTF",
            path.display()
        );
        return None;
    }
    Some(Btf::open(path).unwrap())
}

#[test]
fn vfs_read_is_declared_as_in_the_source() {
    let Some(btf) = host() else { return };
    let id = btf.find(Kind::Func, "vfs_read").unwrap();
    assert_eq!(
        btf.func_decl(id),
        "ssize_t vfs_read(struct file *file, char *buf, size_t count, loff_t *pos)"
    );
    let proto = btf.proto(id).unwrap();
    assert_eq!(proto.params.len(), 4);
    assert_eq!(btf.type_name(proto.params[0].ty), "struct file *");
    assert!(!btf.is_char_ptr(proto.params[1].ty).unwrap().is_const);
    assert_eq!(btf.size_of(proto.ret).unwrap(), 8);
}

#[test]
fn struct_file_has_its_path() {
    let Some(btf) = host() else { return };
    let file = btf.find(Kind::Struct, "file").unwrap();
    let path = btf.member(file, "f_path").unwrap();
    let dentry = btf.member(file, "f_path.dentry").unwrap();
    assert_eq!(dentry.bit_offset, path.bit_offset + 64);
    assert_eq!(btf.type_name(dentry.ty), "struct dentry *");
    let error = btf.member(file, "f_path.nothing").unwrap_err();
    assert_eq!(error.to_string(), "`struct path` has no member `nothing`");
    let error = btf.member(file, "f_op.read").unwrap_err().to_string();
    assert!(error.contains("`const struct file_operations *`") && error.contains("is a pointer"), "{error}");
}

#[test]
fn every_function_can_be_declared() {
    let Some(btf) = host() else { return };
    let mut count = 0;
    for (id, name) in btf.names(Kind::Func) {
        let decl = btf.func_decl(id);
        assert!(decl.contains(name) && decl.ends_with(')') && !decl.contains(['?', '…']), "{decl}");
        btf.proto(id).unwrap();
        count += 1;
    }
    assert!(count > 10_000, "{count}");
}

#[test]
fn many_names_are_found_in_one_walk() {
    let Some(btf) = host() else { return };
    let found = btf.find_many(&[
        (Kind::Func, "vfs_write"),
        (Kind::Struct, "task_struct"),
        (Kind::Func, "no such function"),
        (Kind::Typedef, "u8"),
    ]);
    assert_eq!(found[0], btf.find(Kind::Func, "vfs_write"));
    assert!(btf.size_of(found[1].unwrap()).unwrap() > 1000);
    assert_eq!(found[2], None);
    assert_eq!(btf.type_name(found[3].unwrap()), "u8");
    // The slow way finds the same.
    for (kind, name) in [(Kind::Func, "vfs_write"), (Kind::Struct, "task_struct"), (Kind::Typedef, "u8")] {
        let slow = btf.names(kind).find(|(_, n)| *n == name).map(|(id, _)| id);
        assert_eq!(btf.find(kind, name), slow);
    }
}

#[test]
fn enumerators_tell_features() {
    let Some(btf) = host() else { return };
    assert_eq!(btf.enumerator("BPF_FUNC_get_current_task"), Some(35));
    assert_eq!(btf.enumerator("BPF_FUNC_no_such_helper"), None);
    assert_eq!(btf.enum_has("bpf_prog_type", "BPF_PROG_TYPE_TRACING"), Some(26));
    assert_eq!(btf.enum_has("bpf_prog_type", "BPF_FUNC_get_current_task"), None);
    let found = btf.find_enumerators(&["BPF_FUNC_nothing", "BPF_FUNC_ringbuf_output"]);
    assert_eq!(found[0], None);
    assert_eq!(found[1].unwrap().1.value, 130);
    let closed = btf.find_enumerator("TCP_CLOSE").unwrap();
    assert_eq!((closed.value, closed.size), (7, 4));
}

#[test]
fn c_names_are_found() {
    let Some(btf) = host() else { return };
    let names = Lookup::new(&btf);
    for (name, size) in [
        ("u32", 4),
        ("unsigned long", 8),
        ("short", 2),
        ("bool", 1),
        ("size_t", 8),
        ("struct list_head", 16),
        ("enum pid_type", 4),
    ] {
        assert_eq!(btf.size_of(names.ty(name).unwrap()).unwrap(), size, "{name}");
    }
    assert_eq!(names.ty("struct u32"), None);
    // Each kernel of each architecture has it (kernel/sched/core.c).
    let runqueues = names.variable("runqueues").unwrap();
    assert!(runqueues.is_per_cpu() && btf.type_name(runqueues.ty) == "struct rq", "{runqueues:?}");
    assert_eq!(u64::from(runqueues.size), btf.size_of(runqueues.ty).unwrap());
}

/// Every type can be spelled, defined, measured and rendered, and nothing in it is unknown.
#[test]
fn every_type_can_be_shown() {
    let Some(btf) = host() else { return };
    let limits = Limits::default();
    let bytes: Vec<u8> = (0..=255).cycle().take(16 << 10).collect();
    let (mut text, mut json) = (Vec::new(), Vec::new());
    for id in btf.ids() {
        let ty = btf.get(id).unwrap();
        let name = btf.type_name(id);
        assert!(!name.contains(['?', '…']), "{ty:?}: {name}");
        let definition = btf.definition(id);
        assert!(!definition.contains(['?', '…']) && definition.ends_with([';', '/']), "{ty:?}: {definition}");
        let shape = Shape::of(&btf, id, &limits);
        match btf.size_of(id) {
            Ok(size) => assert_eq!(shape.size() as u64, size, "{ty:?}"),
            Err(e) => assert!(matches!(e, Error::NoSize { .. }), "{ty:?}: {e}"),
        }
        if btf.size_of(id).is_ok() && ty.kind() != Kind::Datasec {
            let align = btf.align_of(id).unwrap();
            assert!(align.is_power_of_two() && align <= 16, "{ty:?}: {align}");
        }
        if ty.kind().is_composite() {
            text.clear();
            json.clear();
            shape.text(&bytes, &mut text);
            shape.json(&bytes, &mut json);
            json::check(&json).unwrap_or_else(|at| panic!("{ty:?}: not JSON at {at}: {}", text_of(&json)));
            let text = text_of(&text);
            assert!(text.starts_with('{') && text.ends_with('}'), "{ty:?}: {text}");
            // A member by its name is where the shape has it.
            let Shape::Struct { fields, .. } = &shape else { panic!("{ty:?}: {shape:?}") };
            for field in fields {
                let member = btf.member(id, &field.name).unwrap();
                assert_eq!(member.byte_offset(), field.offset, "{ty:?}.{}", field.name);
            }
        }
    }
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A map costs no memory of ours. Kernels before 6.16 refuse it, and the file is read.
#[test]
fn the_kernels_btf_is_mapped_where_it_can_be() {
    let Some(btf) = host() else { return };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse::<u32>().ok());
    let version = (numbers.next().unwrap(), numbers.next().unwrap());
    if version >= (6, 16) {
        assert!(btf.is_mapped(), "{release}");
    } else {
        eprintln!("skipped: Linux {release} cannot map its BTF (6.16 can)");
    }
}

// Debian's 6.1 cannot map its BTF: reading it gives the same.
#[test]
fn a_copy_is_read_like_the_map() {
    let Some(btf) = host() else { return };
    let path = std::env::temp_dir().join(format!("btf-copy-{}", std::process::id()));
    std::fs::write(&path, btf.as_bytes()).unwrap();
    let copy = Btf::open(&path);
    std::fs::remove_file(&path).unwrap();
    let copy = copy.unwrap();
    assert!(!copy.is_mapped());
    assert_eq!(copy.len(), btf.len());
    assert_eq!(copy.find(Kind::Func, "vfs_read"), btf.find(Kind::Func, "vfs_read"));
}

#[test]
fn errors_name_the_file() {
    let error = Btf::open(Path::new("/no/such/btf")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot read BTF from /no/such/btf: No such file or directory (os error 2)"
    );
    let error = Btf::open(Path::new("/proc/self/exe")).unwrap_err().to_string();
    assert_eq!(error, "/proc/self/exe: not usable BTF: it does not begin with the magic number 0xeb9f");
}

// Case 7, against the real one.
#[test]
fn perf_event_attr_is_rendered_by_its_bits() {
    let Some(btf) = host() else { return };
    let id = btf.find(Kind::Struct, "perf_event_attr").unwrap();
    let shape = Shape::of(&btf, id, &Limits::default());
    let mut bytes = vec![0; btf.size_of(id).unwrap() as usize];
    let at = btf.member(id, "precise_ip").unwrap();
    assert_eq!((at.bitfield_size, at.bit_offset), (2, 40 * 8 + 15));
    bytes[41] = 0x80;
    bytes[42] = 0x03;
    let mut out = Vec::new();
    shape.text(&bytes, &mut out);
    let text = text_of(&out);
    assert!(text.contains("watermark=0, precise_ip=3, mmap_data=1, sample_id_all=0"), "{text}");
}
