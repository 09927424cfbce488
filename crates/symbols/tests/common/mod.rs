//! A small "kernel" and a "module" that gcc makes here, in a file system of their own.
// Each test uses a part of it.
#![allow(dead_code)]

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;
use symbols::Table;
use symbols::lines::Source;

pub const RELEASE: &str = "6.1.0-test";
pub const ID: &str = "00112233445566778899aabbccddeeff00112233";
pub const MODULE_ID: &str = "ffeeddccbbaa99887766554433221100ffeeddcc";
/// How far the kernel is moved from where it was linked for.
pub const MOVED: u64 = 0x1a00_0000;

pub const MAIN: &str = "extern int dev_open(int);
int start_kernel(int n)
{
	return dev_open(n) + 1;
}
";
pub const THING: &str = "extern volatile int counter;
static inline __attribute__((always_inline)) int thing_get(int n)
{
	counter += n;
	return counter;
}
";
pub const DEV: &str = "#include <linux/thing.h>
volatile int counter;
static inline __attribute__((always_inline)) int dev_get(int n)
{
	return thing_get(n) * 3;
}
int __attribute__((noinline)) dev_open(int n)
{
	int r = dev_get(n);
	return r + 7;
}
";
pub const MODULE: &str = "#include <linux/thing.h>
int nf_hook(int n)
{
	return thing_get(n) + 1;
}
int __attribute__((section(\".text.unlikely\"))) nf_cold(int n)
{
	return n * 5;
}
";

pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("run");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A file system with a running kernel in it, and beside it the tree that it was made from.
pub struct System {
    folder: tempfile::TempDir,
}

impl System {
    pub fn new() -> System {
        let system = System { folder: tempfile::tempdir().expect("folder") };
        system.put("root/proc/sys/kernel/osrelease", format!("{RELEASE}\n").as_bytes());
        system.put("root/etc/os-release", b"ID=debian\n");
        system.put("root/sys/kernel/notes", &note(ID));
        system.put("root/sys/module/nf_thing/notes/.note.gnu.build-id", &note(MODULE_ID));
        system.put("tree/init/main.c", MAIN.as_bytes());
        system.put("tree/include/linux/thing.h", THING.as_bytes());
        system.put("tree/net/core/dev.c", DEV.as_bytes());
        system.put("tree/net/thing/nf_thing.c", MODULE.as_bytes());
        system
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    pub fn put(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("folder");
        fs::write(&path, bytes).expect("write");
        path
    }

    /// A program that works in the tree.
    pub fn tool(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(name);
        command.current_dir(self.at("tree")).args(arguments);
        command
    }

    pub fn compile(&self, source: &str, object: &str, flags: &[&str]) {
        let mut gcc = self.tool("gcc", &["-c", "-O2", "-ffreestanding", "-fno-pic", "-mcmodel=kernel"]);
        gcc.args(["-fno-stack-protector", "-fcf-protection=none", "-Iinclude"]).args(flags);
        run(gcc.args([source, "-o", object]));
    }

    /// The kernel, linked for the kernel's own addresses.
    pub fn vmlinux(&self, id: &str, flags: &[&str]) -> Vec<u8> {
        self.compile("init/main.c", "main.o", flags);
        self.compile("net/core/dev.c", "dev.o", flags);
        let mut ld = self.tool("ld", &["-static", "-e", "start_kernel", "-Ttext=0xffffffff81000000"]);
        ld.args(["--defsym=_stext=0xffffffff81000000", "-z", "noexecstack", &format!("--build-id=0x{id}")]);
        run(ld.args(["main.o", "dev.o", "-o", "vmlinux"]));
        fs::read(self.at("tree/vmlinux")).expect("vmlinux")
    }

    pub fn module(&self) -> Vec<u8> {
        self.compile("net/thing/nf_thing.c", "nf_thing.o", &["-g"]);
        run(&mut self.tool("ld", &["-r", &format!("--build-id=0x{MODULE_ID}"), "nf_thing.o", "-o", "nf.ko"]));
        fs::read(self.at("tree/nf.ko")).expect("module")
    }

    pub fn objcopy(&self, flags: &[&str], to: &str) -> Vec<u8> {
        run(self.tool("objcopy", flags).args(["vmlinux", to]));
        fs::read(self.at("tree").join(to)).expect("copy")
    }

    /// Functions of the kernel: name, address as linked.
    pub fn functions(&self) -> Vec<(String, u64)> {
        let text = run(&mut self.tool("nm", &["vmlinux"]));
        let function = |line: &str| {
            let mut words = line.split_whitespace();
            let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
            let code = kind == "T" || name == "_stext";
            Some((name.to_string(), u64::from_str_radix(address, 16).ok()?)).filter(|_| code)
        };
        text.lines().filter_map(function).collect()
    }

    /// Where a function of the kernel is as it runs.
    pub fn address(&self, name: &str) -> u64 {
        let functions = self.functions();
        functions.into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1 + MOVED
    }

    /// The kernel as it runs, with more lines of kallsyms.
    pub fn source(&self, more: &str) -> Source {
        Source::below(&self.at("root"), Rc::new(self.table(more)), None)
    }

    /// Its kallsyms, with more lines.
    pub fn table(&self, more: &str) -> Table {
        let symbols =
            self.functions().into_iter().map(|(name, at)| format!("{:016x} T {name}\n", at + MOVED));
        let text: String = symbols.chain([more.to_string()]).collect();
        Table::load_from(&self.put("root/proc/kallsyms", text.as_bytes())).expect("kallsyms")
    }
}

/// An ELF note with a build-id.
pub fn note(id: &str) -> Vec<u8> {
    let mut note = Vec::new();
    for word in [4u32, (id.len() / 2) as u32, 3] {
        note.extend(word.to_ne_bytes());
    }
    note.extend(b"GNU\0");
    note.extend(bytes(id));
    note
}

pub fn bytes(id: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&id[at..at + 2], 16).expect("hexadecimal");
    (0..id.len()).step_by(2).map(byte).collect()
}
