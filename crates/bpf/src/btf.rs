//! BTF objects of our own programs (BPF_BTF_LOAD).

use crate::error::{Error, Result};
use crate::sys::{self, BtfLoad, addr, addr_mut, bpf_fd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A BTF object in the kernel, to be named by [`crate::Load::btf`].
#[derive(Debug)]
pub struct BtfObject(OwnedFd);

impl AsFd for BtfObject {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Loads a BTF blob. On refusal the error carries the kernel's BTF log.
pub fn load_btf(blob: &[u8]) -> Result<BtfObject> {
    let size = u32::try_from(blob.len()).map_err(|_| Error::Protocol("BTF blob over 4 GiB".into()))?;
    let mut attr = BtfLoad { btf: addr(blob), btf_size: size, ..Default::default() };
    match bpf_fd(sys::BTF_LOAD, &mut attr) {
        Ok(fd) => Ok(BtfObject(fd)),
        // Any other answer is not about the blob: permission, memory, descriptors.
        Err(source) if source.raw_os_error() != Some(libc::EINVAL) => {
            Err(Error::Sys { action: "load BTF of the program".into(), source })
        }
        Err(source) => {
            let mut log = vec![0u8; 64 << 10];
            attr.btf_log_buf = addr_mut(&mut log);
            attr.btf_log_size = log.len() as u32;
            attr.btf_log_level = 1;
            match bpf_fd(sys::BTF_LOAD, &mut attr) {
                Ok(fd) => Ok(BtfObject(fd)),
                Err(_) => Err(Error::Load { name: "BTF".into(), source, log: crate::prog::log_text(&log) }),
            }
        }
    }
}
