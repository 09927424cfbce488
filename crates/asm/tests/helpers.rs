//! Helper numbers against the kernel's own.
#![allow(clippy::unwrap_used, missing_docs)]

use asm::Helper;
use std::path::Path;

#[test]
fn numbers_are_the_kernels() {
    let path = Path::new("/sys/kernel/btf/vmlinux");
    let kernel = match btf::Btf::open(path) {
        Ok(kernel) => kernel,
        Err(e) => return println!("SKIP: no {}: {e}", path.display()),
    };
    let names: Vec<String> = Helper::ALL.iter().map(|h| format!("BPF_FUNC_{}", h.name().unwrap())).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let found = kernel.find_enumerators(&names);
    let mut missing = Vec::new();
    for ((helper, name), found) in Helper::ALL.iter().zip(&names).zip(&found) {
        match found {
            Some((_, e)) => assert_eq!(i128::from(helper.0), e.value, "{name}"),
            None => missing.push(name),
        }
    }
    println!("{} helpers compared, not in this kernel: {missing:?}", names.len() - missing.len());
    assert!(names.len() - missing.len() > 40);
}
