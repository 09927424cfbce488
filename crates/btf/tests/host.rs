//! The running kernel's own BTF: everything in it is read.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use btf::{Btf, Kind};

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
}
