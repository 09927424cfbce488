//! Prints the definitions of types of the running kernel: `define task_struct sockptr_t`.

use std::path::Path;

use btf::{Btf, Kind};

fn main() -> Result<(), btf::Error> {
    let btf = Btf::open(Path::new("/sys/kernel/btf/vmlinux"))?;
    for name in std::env::args().skip(1) {
        for kind in
            [Kind::Struct, Kind::Union, Kind::Enum, Kind::Enum64, Kind::Typedef, Kind::Func, Kind::Datasec]
        {
            for id in btf.find_all(kind, &name) {
                println!("{}", btf.definition(id));
            }
        }
    }
    Ok(())
}
