//! Code from files, of a small "kernel" and a "module" that gcc makes here: it is what the linker would have made of them at the
//! addresses where they run.

mod common;

use common::{ID, MODULE_ID, MOVED, RELEASE, System};
use std::fs;
use std::process::Command;
use symbols::{CodeFiles, Table};

/// The section `.text` of a file of the tree.
fn text(system: &System, file: &str) -> Vec<u8> {
    common::run(
        system
            .tool("objcopy", &["-O", "binary", "-j", ".text", file, "text.bin"])
            .arg("--set-section-flags=.bss=alloc"),
    );
    fs::read(system.at("tree/text.bin")).expect("text")
}

fn link(system: &System, at: u64, flags: &[&str]) -> Vec<u8> {
    let mut ld: Command = system.tool("ld", &["-static", "-e", "start_kernel", &format!("-Ttext={at:#x}")]);
    ld.args([&format!("--defsym=_stext={at:#x}"), "-z", "noexecstack", &format!("--build-id=0x{ID}")]);
    common::run(ld.args(flags).args(["main.o", "dev.o", "-o", "vmlinux"]));
    fs::read(system.at("tree/vmlinux")).expect("vmlinux")
}

const LINKED: u64 = 0xffff_ffff_8100_0000;

/// A kernel whose code has absolute addresses in it.
fn compile(system: &System) {
    system.put(
        "tree/net/core/dev.c",
        b"char table[64]; char *dev_open(int n) { return n > 3 ? table + 4 : table + n; }\n",
    );
    system.put(
        "tree/init/main.c",
        b"extern char *dev_open(int); long start_kernel(int n) { return (long) dev_open(n + 1) + 1; }\n",
    );
    system.compile("init/main.c", "main.o", &["-g"]);
    system.compile("net/core/dev.c", "dev.o", &["-g"]);
}

#[test]
fn the_kernels_code_is_as_linked_for_where_it_lies() {
    let system = System::new();
    compile(&system);
    link(&system, LINKED + MOVED, &[]);
    let want = text(&system, "vmlinux");
    let vmlinux = link(&system, LINKED, &["--emit-relocs"]);
    assert_ne!(want, text(&system, "vmlinux"), "there are absolute addresses in it");
    let table = system.table("");
    let mut files = CodeFiles::below(&system.at("root"), &table, None);
    let said = files.read(None, LINKED + MOVED, 10).expect_err("no file is there");
    assert_eq!(said, "no file of this kernel with its code was found");
    let place = format!("root/boot/vmlinux-{RELEASE}");
    system.put(&place, &vmlinux);
    let mut files = CodeFiles::below(&system.at("root"), &table, None);
    assert!(files.remarks().is_empty(), "nothing is opened yet");
    // In one piece, and in pieces that cut every number in two somewhere.
    assert_eq!(files.read(None, LINKED + MOVED, want.len()).expect("read"), want);
    for at in 0..want.len() {
        let got = files.read(None, LINKED + MOVED + at as u64, 3).expect("read");
        assert_eq!(got, want[at..want.len().min(at + 3)], "at {at}");
    }
    let remarks = files.remarks();
    assert!(
        matches!(remarks.as_slice(), [one] if one.contains("as it was built") && !one.contains("KASLR")),
        "{remarks:?}"
    );
    assert!(files.read(None, LINKED, 8).expect("read").is_empty(), "nothing lies where it was linked for");

    // Without the linker's relocations that is said.
    system.put(&place, &link(&system, LINKED, &[]));
    let mut files = CodeFiles::below(&system.at("root"), &table, None);
    assert_eq!(files.read(None, LINKED + MOVED, 4).expect("read"), want[..4]);
    let remarks = files.remarks().concat();
    assert!(remarks.contains("0x1a000000 below where the kernel lies (KASLR)"), "{remarks}");
    let given = system.at("tree/vmlinux");
    let mut files = CodeFiles::below(&system.at("root"), &table, Some(&given));
    assert!(files.read(None, LINKED + MOVED, 4).is_ok() && files.remarks().concat().contains("tree/vmlinux"));
}

#[test]
fn files_that_do_not_serve_are_said_why() {
    let system = System::new();
    let place = format!("root/boot/vmlinux-{RELEASE}");
    system.vmlinux(ID, &["-g"]);
    let table = system.table("");
    let read = || CodeFiles::below(&system.at("root"), &table, None).read(None, LINKED + MOVED, 4);
    system.put(&place, &system.objcopy(&["--only-keep-debug"], "debug"));
    assert!(read().expect_err("debug information").contains("has debug information alone, no code"));
    system.put(&place, b"\xfd7zXZ\0\0\0\0");
    assert!(read().expect_err("packed").contains("it is compressed (xz)"));
    let vmlinux = system.vmlinux(ID, &["-g"]);
    for len in (1..vmlinux.len()).step_by(53) {
        system.put(&place, &vmlinux[..len]);
        // An error, or the bytes that are there: no panic.
        let _ = read().map_err(|error| assert!(!error.contains('\n'), "{error}"));
    }
    system.put(&place, &system.vmlinux(MODULE_ID, &["-g"]));
    let said = read().expect_err("another build");
    assert!(said.contains(ID) && said.contains(MODULE_ID), "{said}");
}

#[test]
fn a_kernel_that_hides_its_addresses_is_shown_as_linked() {
    let system = System::new();
    let vmlinux = system.vmlinux(ID, &["-g"]);
    let want = text(&system, "vmlinux");
    assert!(CodeFiles::as_linked_below(&system.at("root"), None).is_err());
    system.put(&format!("root/boot/vmlinux-{RELEASE}"), &vmlinux);
    let (mut files, symbols) = CodeFiles::as_linked_below(&system.at("root"), None).expect("a file");
    assert_eq!(files.remarks().len(), 1);
    let found = symbols.all.iter().find(|s| s.name == "dev_open").expect("dev_open");
    assert_eq!((found.kind, found.address), ('T', system.address("dev_open") - MOVED));
    assert_eq!(
        symbols.tables.code.resolve(found.address + 1).map(|s| (s.name, s.offset)),
        Some(("dev_open", 1))
    );
    assert_eq!(files.read(None, LINKED, want.len()).expect("read"), want);
}

#[test]
fn a_modules_code_is_linked_to_what_it_names() {
    let system = System::new();
    system.vmlinux(ID, &["-g"]);
    let module = system.module();
    let (at, counter) = (0xffff_ffff_c010_0000u64, 0xffff_ffff_8223_4560u64);
    // The section alone: ld puts others of the like before it.
    let alone = ["-g", "-R", ".eh_frame", "-R", ".text.unlikely", "nf_thing.o", "alone.o"];
    common::run(&mut system.tool("objcopy", &alone));
    common::run(&mut system.tool(
        "ld",
        &[
            "-e",
            "0",
            &format!("-Ttext={at:#x}"),
            &format!("--defsym=counter={counter:#x}"),
            "alone.o",
            "-o",
            "linked",
        ],
    ));
    let want = text(&system, "linked");
    system.put("root/sys/module/nf_thing/sections/.text", format!("{at:#x}\n").as_bytes());
    let file = format!("root/lib/modules/{RELEASE}/kernel/net/thing/nf-thing.ko");
    let own = format!("{at:016x} t nf_hook\t[nf_thing]\n");
    let known = format!("{own}{counter:016x} B counter\n");
    let read = |table: &Table| {
        let mut files = CodeFiles::below(&system.at("root"), table, None);
        files.read(Some("nf_thing"), at, want.len()).map(|bytes| (bytes, files.remarks().concat()))
    };
    assert!(read(&system.table(&known)).is_err(), "no file is there");
    for packed in [false, true] {
        match packed {
            false => system.put(&file, &module),
            true => {
                fs::remove_file(system.at(&file)).expect("remove");
                let list = format!("root/lib/modules/{RELEASE}/modules.dep");
                system.put(&list, b"kernel/net/thing/nf-thing.ko.gz:\n");
                let path = system.at(&format!("{file}.gz"));
                let mut gz = flate2::write::GzEncoder::new(
                    fs::File::create(&path).expect("file"),
                    flate2::Compression::fast(),
                );
                std::io::Write::write_all(&mut gz, &module).expect("write");
                gz.finish().expect("finish");
                path
            }
        };
        let (code, said) = read(&system.table(&known)).expect("a file");
        assert_eq!(code, want, "packed: {packed}");
        assert!(said.contains("nf-thing.ko") && !said.contains("not linked"), "{said}");
        let (code, said) = read(&system.table(&own)).expect("a file");
        assert_ne!(code, want);
        assert!(said.contains("are not linked") && said.contains("(counter"), "{said}");
    }
    let two = format!("{known}{:016x} D counter\n", counter + 64);
    assert!(read(&system.table(&two)).expect("a file").1.contains("(counter"), "whose is it?");
}
