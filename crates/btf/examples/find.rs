//! Opens the running kernel's BTF and finds a few names: what every command does first.
//!
//! For counting its cost: `valgrind --tool=callgrind target/release/examples/find vfs_read tcp_connect`

use std::path::Path;

use btf::{Btf, Kind};

fn main() -> Result<(), btf::Error> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let btf = Btf::open(Path::new("/sys/kernel/btf/vmlinux"))?;
    let wanted: Vec<(Kind, &str)> = names.iter().map(|n| (Kind::Func, n.as_str())).collect();
    for (name, found) in names.iter().zip(btf.find_many(&wanted)) {
        match found {
            Some(id) => println!("{}", btf.func_decl(id)),
            None => println!("{name}: not in BTF"),
        }
    }
    Ok(())
}
