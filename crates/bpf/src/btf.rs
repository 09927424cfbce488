//! BTF objects: of our own programs (BPF_BTF_LOAD), and the kernel's of its modules.

use crate::error::{Error, Result};
use crate::sys::{self, BtfLoad, ById, GetInfo, addr, addr_mut, bpf, bpf_fd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A BTF object in the kernel, to be named by [`crate::Load::btf`].
#[derive(Debug)]
pub struct BtfObject(pub(crate) OwnedFd);

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

/// The BTF object of a loaded module, to be named by [`crate::AttachTo::Module`]; `None` when the kernel has none of that
/// name. It keeps the module's BTF, not the module.
///
/// Walks all BTF objects of the system, as libbpf does: the kernel offers no look-up by name.
pub fn module_btf(module: &str) -> Result<Option<BtfObject>> {
    let mut attr = ById::default();
    loop {
        match bpf(sys::BTF_GET_NEXT_ID, &mut attr) {
            Ok(_) => attr.id = attr.next_id,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(None),
            Err(source) => return Err(Error::Sys { action: "list the kernel's BTF objects".into(), source }),
        }
        let fd = match bpf_fd(sys::BTF_GET_FD_BY_ID, &mut ById { id: attr.id, ..Default::default() }) {
            Ok(fd) => fd,
            // Gone between the two calls.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(source) => return Err(Error::Sys { action: format!("open BTF object {}", attr.id), source }),
        };
        let object = BtfObject(fd);
        if object.is_of_module(module)? {
            return Ok(Some(object));
        }
    }
}

/// The blob of a BTF object: `struct bpf_btf_info`, first for its size, then for its bytes.
pub(crate) fn btf_bytes_of(fd: BorrowedFd<'_>) -> Result<Vec<u8>> {
    let mut info = [0u64; 4];
    let mut attr = GetInfo {
        bpf_fd: fd.as_raw_fd() as u32,
        info_len: size_of_val(&info) as u32,
        info: addr_mut(&mut info),
    };
    let failed = |source| Error::Sys { action: "read a BTF object".into(), source };
    bpf(sys::OBJ_GET_INFO_BY_FD, &mut attr).map_err(failed)?;
    let mut blob = vec![0u8; info[1] as u32 as usize];
    // btf; btf_size and id; name; name_len and kernel_btf.
    info = [addr_mut(&mut blob), blob.len() as u64, 0, 0];
    attr.info_len = size_of_val(&info) as u32;
    bpf(sys::OBJ_GET_INFO_BY_FD, &mut attr).map_err(failed)?;
    Ok(blob)
}

impl BtfObject {
    /// `struct bpf_btf_info`: btf, btf_size and id, name, name_len and kernel_btf.
    pub(crate) fn is_of_module(&self, module: &str) -> Result<bool> {
        // MODULE_NAME_LEN is 56; what is longer comes back cut, with ENOSPC.
        let mut name = [0u8; 128];
        let mut info = [0u64, 0, addr_mut(&mut name), name.len() as u64];
        let mut attr = GetInfo {
            bpf_fd: self.0.as_raw_fd() as u32,
            info_len: size_of_val(&info) as u32,
            info: addr_mut(&mut info),
        };
        bpf(sys::OBJ_GET_INFO_BY_FD, &mut attr)
            .map_err(|source| Error::Sys { action: "information on a BTF object".into(), source })?;
        let is_kernels = (info[3] >> 32) != 0;
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        Ok(is_kernels && name.get(..end) == Some(module.as_bytes()))
    }
}
