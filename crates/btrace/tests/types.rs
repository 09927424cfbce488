//! `btrace types` on the running kernel.

mod common;
#[path = "common/pahole.rs"]
mod pahole;

use common::{btrace, has_types, stderr, text};
use serde_json::Value;
use std::path::Path;

/// Structs and unions that must be compared: a kernel has ten thousand.
const LEAST: usize = 300;

#[test]
fn structs_lie_as_pahole_has_them() {
    if !has_types() {
        return;
    }
    let output = btrace(&["types", "struct *,union *"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let ours = pahole::layouts(&text(&output.stdout));
    let theirs = pahole::pahole(Path::new("/sys/kernel/btf/vmlinux")).expect("pahole's");
    let theirs = pahole::layouts(&theirs);
    let (same, wrong) = pahole::compare(&ours, &theirs);
    println!("{same} structs and unions as pahole has them, {} not", wrong.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), same + wrong.len(), wrong.join("\n"));
    assert!(same >= LEAST, "{same}");
    let members: usize = theirs.values().flatten().map(|layout| layout.members.len()).sum();
    let bits = theirs.values().flatten().flat_map(|l| &l.members).filter(|m| m.2.is_some()).count();
    assert!(members > 10 * same / 2 && bits > LEAST, "{members} members, {bits} bit-fields");
}

#[test]
fn json_says_the_same_as_the_text() {
    if !has_types() {
        return;
    }
    let schema = schema::Schema::types().expect("schema");
    let patterns = "struct *,union *,enum *,typedef *,func tcp_*,var *";
    let output = btrace(&["types", "--json", patterns, "int", "unsigned long"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let (mut kinds, mut file) = (std::collections::BTreeMap::new(), None);
    for line in text(&output.stdout).lines() {
        let value: Value = serde_json::from_str(line).expect(line);
        schema.check(&value).unwrap_or_else(|e| panic!("{e}: {line}"));
        *kinds.entry(value["kind"].as_str().expect(line).to_owned()).or_insert(0) += 1;
        if value["kind"] == "struct" && value["name"] == "file" {
            file = Some(value);
        }
    }
    for kind in ["struct", "union", "enum", "typedef", "function", "variable", "integer"] {
        assert!(kinds.get(kind).is_some_and(|n| *n > 0), "{kind}: {kinds:?}");
    }
    // Offsets of members of what is written out are the outermost's, as in the text.
    let file = file.expect("struct file");
    let definition = text(&btrace(&["types", "struct file"]).stdout);
    let ours = pahole::layouts(&definition);
    let layout = &ours["struct file"][0];
    let mut flat = Vec::new();
    flatten(&file, &mut flat);
    let printed: Vec<(String, u64)> =
        layout.members.iter().filter(|m| !m.0.is_empty()).map(|m| (m.0.clone(), m.1 * 8)).collect();
    assert_eq!(flat, printed);
    assert_eq!(file["size"].as_u64(), layout.size);
}

/// Names and offsets of members that are no bit-fields, those of anonymous ones inside them; an object's own after its members.
fn flatten(object: &Value, flat: &mut Vec<(String, u64)>) {
    for member in object["members"].as_array().expect("members") {
        if member["members"].is_array() {
            flatten(member, flat);
        }
        if let Some(name) = member["name"].as_str() {
            flat.push((name.to_owned(), member["bit_offset"].as_u64().expect("offset")));
        }
    }
}

#[test]
fn c_as_people_look_for_it() {
    if !has_types() {
        return;
    }
    for (args, part) in [
        (&["list_head"][..], "struct list_head {\n    struct list_head *next; "),
        (&["struct", "list_head"], "    /* size: 16, members: 2, alignment: 8 */\n};\n"),
        (&["u32"], "typedef __u32 u32; /* unsigned int, size: 4 */\n"),
        (&["unsigned long"], "long unsigned int; /* size: 8, unsigned */\n"),
        (&["vfs_read"], "ssize_t vfs_read(struct file *file, char *buf, size_t count, loff_t *pos);\n"),
        (&["func vfs_*"], "vfs_write("),
        (&["enum pid_type"], "    PIDTYPE_TGID = 1,\n"),
        // By one of its names.
        (&["TCP_CLOSE"], "    TCP_LISTEN = 10,\n"),
        (&["var runqueues"], ", per-CPU */\n"),
        (&["vmlinux:hlist_node"], "struct hlist_node {\n"),
        (&["--expand", "1", "struct hlist_bl_head,file"], "    struct path {\n"),
    ] {
        let args: Vec<&str> = ["types"].iter().chain(args).copied().collect();
        let output = btrace(&args);
        let out = text(&output.stdout);
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {}", stderr(&output));
        assert!(out.contains(part), "{args:?}: no {part:?} in {out}");
    }
}

#[test]
fn what_is_not_there_is_said_in_one_line() {
    if !has_types() {
        return;
    }
    for (args, why) in [
        (&["struct sk_bufff"][..], "no struct is named sk_bufff; did you mean sk_buff"),
        (&["struct vfs_read"], "there is a function of that name"),
        (&["no_such_thing_*"], "no type matches no_such_thing_*"),
        (&["no_such_module:x"], "no module no_such_module is loaded"),
        (&["--btf", "/no/such/file", "x"], "/no/such/file"),
        (&["--btf", "/proc/self/exe", "x"], "not usable BTF"),
        (&["a,,b"], "an empty name"),
        (&["TCP_CLOS"], "did you mean TCP_CLOSE"),
        (&["enum TCP_CLOS"], "did you mean TCP_CLOSE"),
        (&["struct task_struct *"], "leave out the *"),
        (&["struct "], "a name is missing after struct"),
        (&["enum"], "a name is missing after enum"),
        (&["--expand", "17", "x"], "17"),
        (&[], "required arguments were not provided: <PATTERN>"),
    ] {
        let args: Vec<&str> = ["types"].iter().chain(args).copied().collect();
        let output = btrace(&args);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(why) && said.lines().count() == 1, "{args:?}: {said}");
        assert!(output.stdout.is_empty());
    }
    // What there is is shown all the same.
    let output = btrace(&["types", "no_such_thing", "list_head"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stdout).starts_with("struct list_head {"), "{}", stderr(&output));
}
