//! Source lines of a small "kernel" and a "module" that gcc makes here, in a file system of their own: what is found where,
//! what is refused, and that lines and inlined functions are right.

mod common;

use common::{ID, MODULE_ID, MOVED, RELEASE, System, bytes};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use symbols::BuildId;
use symbols::lines::{DebugFile, Error, Line, Source, lines_in};

/// Whether lines are found. If so they must be right, and if not that must be said.
fn finds(system: &System) -> bool {
    let mut source = system.source("");
    let found = chains(&mut source, system.address("dev_open"), 16);
    assert_eq!(found.is_empty(), source.remark().is_some(), "{found:?}");
    let inlined = "thing_get@include/linux/thing.h:4 < dev_get@net/core/dev.c:5 < dev_open@net/core/dev.c:9";
    assert!(found.is_empty() || found.contains(inlined), "{found:#?}");
    !found.is_empty()
}

fn id(text: &str) -> BuildId {
    BuildId::new(&bytes(text)).expect("id")
}

/// All that the code of a function is said to be made of: `function@file:line`, outward.
fn chains(source: &mut Source, from: u64, len: u64) -> BTreeSet<String> {
    let addresses: Vec<u64> = (from..from + len).collect();
    let part = |l: &Line| format!("{}@{}:{}", l.function.as_deref().unwrap_or("?"), l.file, l.line);
    let found = source.lines_of(&addresses);
    let chains = found.iter().map(|lines| lines.chain.iter().map(part).collect::<Vec<_>>().join(" < "));
    chains.filter(|text| !text.is_empty()).collect()
}

#[test]
fn every_place_of_the_distributions_is_looked_at() {
    let system = System::new();
    let vmlinux = system.vmlinux(ID, &["-g"]);
    assert!(!finds(&system), "nothing is there yet");
    for place in [
        format!("usr/lib/debug/.build-id/{}/{}.debug", &ID[..2], &ID[2..]),
        format!("usr/lib/debug/boot/vmlinux-{RELEASE}"),
        format!("usr/lib/debug/lib/modules/{RELEASE}/vmlinux"),
        format!("usr/lib/debug/usr/lib/modules/{RELEASE}/vmlinux.debug"),
        format!("boot/vmlinux-{RELEASE}"),
        format!("lib/modules/{RELEASE}/vmlinux"),
        format!("lib/modules/{RELEASE}/build/vmlinux"),
    ] {
        let file = system.put(&format!("root/{place}"), &vmlinux);
        assert!(finds(&system), "{place}");
        fs::remove_file(file).expect("remove");
    }
}

#[test]
fn a_stripped_file_leads_to_its_debug_file_by_its_link() {
    let system = System::new();
    system.vmlinux(ID, &["-g"]);
    let debug = system.objcopy(&["--only-keep-debug"], "vmlinux.dbg");
    let stripped = system.objcopy(&["-g", "--add-gnu-debuglink=vmlinux.dbg"], "stripped");
    system.put(&format!("root/boot/vmlinux-{RELEASE}"), &stripped);
    assert!(!finds(&system), "it has no lines itself");
    system.put("root/usr/lib/debug/boot/vmlinux.dbg", &debug);
    assert!(finds(&system));
}

#[test]
fn files_of_other_builds_and_without_lines_are_passed_over_and_refused_when_named() {
    let system = System::new();
    let other = system.vmlinux(MODULE_ID, &["-g"]);
    let path = system.put(&format!("root/usr/lib/debug/boot/vmlinux-{RELEASE}"), &other);
    assert!(!finds(&system));
    let said = DebugFile::open(&path, &id(ID)).expect_err("another build").to_string();
    assert!(said.contains(ID) && said.contains(MODULE_ID), "{said}");

    let bare = system.put("bare", &system.vmlinux(ID, &[]));
    assert!(matches!(DebugFile::open(&bare, &id(ID)), Err(Error::NoLines { .. })));
    let none = system.put("none", &system.objcopy(&["-R", ".note.gnu.build-id"], "noid"));
    assert!(matches!(DebugFile::open(&none, &id(ID)), Err(Error::NoId { .. })));
    let text = system.put("text", b"not an ELF file at all");
    assert!(matches!(DebugFile::open(&text, &id(ID)), Err(Error::NotElf { .. })));
    assert!(matches!(DebugFile::open(Path::new("/nowhere"), &id(ID)), Err(Error::Io { .. })));

    // The good one behind the bad one is found.
    system.put(&format!("root/lib/modules/{RELEASE}/vmlinux"), &system.vmlinux(ID, &["-g"]));
    assert!(finds(&system));
}

#[test]
fn dwarf_of_each_version_compressed_or_without_ranges_tells_the_same() {
    let system = System::new();
    let place = format!("root/usr/lib/debug/boot/vmlinux-{RELEASE}");
    for flags in [&["-g", "-gdwarf-4"][..], &["-g", "-gdwarf-5"], &["-g", "-gdwarf-5", "-ffunction-sections"]]
    {
        system.put(&place, &system.vmlinux(ID, flags));
        assert!(finds(&system), "{flags:?}");
        system.put(&place, &system.objcopy(&["-R", ".debug_aranges"], "ranges"));
        assert!(finds(&system), "{flags:?}, without .debug_aranges");
        for how in ["zlib", "zlib-gnu", "zstd"] {
            let flag = format!("--compress-debug-sections={how}");
            let made = system.tool("objcopy", &[&flag, "vmlinux", "small"]).output().expect("objcopy");
            if !made.status.success() {
                assert_eq!(how, "zstd", "{}", String::from_utf8_lossy(&made.stderr));
                eprintln!("SKIP {how}: this objcopy cannot write it");
                continue;
            }
            system.put(&place, &fs::read(system.at("tree/small")).expect("small"));
            assert!(finds(&system), "{flags:?}, {how}");
        }
    }
}

#[test]
fn a_modules_lines_are_found_in_each_of_its_sections() {
    let system = System::new();
    system.vmlinux(ID, &["-g"]);
    let module = system.module();
    let (text, cold) = (0xffffffffc0100000u64, 0xffffffffc0200000u64);
    system.put("root/sys/module/nf_thing/sections/.text", format!("{text:#x}\n").as_bytes());
    system.put("root/sys/module/nf_thing/sections/.text.unlikely", format!("{cold:#x}\n").as_bytes());
    let kallsyms = format!("{text:016x} t nf_hook\t[nf_thing]\n{cold:016x} t nf_cold\t[nf_thing]\n");
    let folder = format!("root/usr/lib/debug/lib/modules/{RELEASE}/kernel/net/thing");
    let by_id = format!("root/usr/lib/debug/.build-id/{}/{}.debug", &MODULE_ID[..2], &MODULE_ID[2..]);
    let hook = "thing_get@include/linux/thing.h:4 < nf_hook@net/thing/nf_thing.c:4";
    for (place, listed) in [
        (format!("{folder}/nf-thing.ko.debug"), true),
        (format!("{folder}/nf-thing.ko"), true),
        (format!("{folder}/nf_thing.ko"), false),
        (by_id.clone(), false),
    ] {
        let list = system.at(&format!("root/lib/modules/{RELEASE}/modules.dep"));
        if listed {
            let line = b"kernel/net/core/other.ko.xz:\nkernel/net/thing/nf-thing.ko.xz: kernel/net/core/other.ko.xz\n";
            system.put(&format!("root/lib/modules/{RELEASE}/modules.dep"), line);
        }
        let file = system.put(&place, &module);
        let mut source = system.source(&kallsyms);
        let found = chains(&mut source, text, 12);
        // By its id alone nothing tells where the tree begins.
        let right = |chain: &String| if place == by_id { chain.contains("nf_hook@") } else { chain == hook };
        assert!(found.iter().any(right), "{place}: {found:#?}");
        let found = chains(&mut source, cold, 3);
        assert!(found.iter().any(|c| c.ends_with("net/thing/nf_thing.c:8")), "{place}: {found:#?}");
        fs::remove_file(file).expect("remove");
        if listed {
            fs::remove_file(list).expect("remove");
        }
    }
}

#[test]
fn what_is_missing_is_said_once_with_the_package_that_has_it() {
    let system = System::new();
    system.vmlinux(ID, &[]);
    let mut source = system.source("");
    assert_eq!(source.remark(), None, "nothing was asked for yet");
    let address = system.address("dev_open");
    assert!(source.lines_at(address).chain.is_empty());
    let said = source.remark().expect("a remark");
    assert!(said.contains(&format!("linux-image-{RELEASE}-dbg")) && !said.contains('\n'), "{said}");
    assert!(source.lines_at(address + 1).chain.is_empty());
    assert_eq!(source.remark(), None);
}

#[test]
fn files_cut_short_are_errors_or_have_fewer_lines() {
    let system = System::new();
    let whole = system.vmlinux(ID, &["-g"]);
    let address = system.address("dev_open") - MOVED;
    assert!(!lines_in(&whole, &[address]).expect("whole")[0].chain.is_empty());
    let mut refused = 0;
    for len in (0..whole.len()).step_by(37) {
        refused += usize::from(lines_in(&whole[..len], &[address, 0, u64::MAX]).is_err());
    }
    assert!(refused > 0);
}
