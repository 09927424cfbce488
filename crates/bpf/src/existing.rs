//! Programs that are in the kernel already, whoever loaded them: walked by id, found behind a pin or in a process, and
//! told of in full.

use crate::btf::{BtfObject, btf_bytes_of};
use crate::error::{Error, Result};
use crate::map::MapType;
use crate::prog::Program;
use crate::sys::{self, ById, GetInfo, MapElem, PathAndFd, ProgInfoRaw, addr, addr_mut, bpf, bpf_fd};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What the kernel knows of a program (`struct bpf_prog_info`), as far as it takes to trace it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgDetails {
    /// As bpftool shows it.
    pub id: u32,
    /// `enum bpf_prog_type`.
    pub ty: u32,
    /// The name that it was loaded by, at most 15 bytes; may be empty.
    pub name: String,
    /// Hash of its instructions.
    pub tag: [u8; 8],
    /// Bytes of machine code; 0 when it is interpreted.
    pub jited_len: u32,
    /// Its BTF object; 0 when it was loaded without.
    pub btf_id: u32,
    /// Its functions, the main one first: first instruction, and id of the FUNC in its BTF. Empty when it was loaded
    /// without func_info, and to those who lack CAP_BPF.
    pub func_info: Vec<(u32, u32)>,
    /// Where the machine code of each of them begins, in the same order. Empty where the kernel hides addresses
    /// (kernel.kptr_restrict).
    pub addresses: Vec<u64>,
    /// Of tracing programs, what they are attached to, if that is a function or a tracepoint of the kernel itself: the id of
    /// the FUNC or typedef in vmlinux's BTF. Since 6.0.
    pub attached_to: Option<u32>,
}

/// Most functions of a program (`BPF_MAX_SUBPROGS`, include/linux/bpf_verifier.h, and room to spare).
const MOST_FUNCTIONS: u32 = 4096;

/// Bytes of a func_info record that this crate reads.
const FUNC_INFO: u32 = 8;

/// The ids of all programs there are, ascending (BPF_PROG_GET_NEXT_ID). Takes CAP_SYS_ADMIN.
pub fn program_ids() -> Result<Vec<u32>> {
    ids(sys::PROG_GET_NEXT_ID, "list the BPF programs")
}

/// The ids of all maps there are, ascending (BPF_MAP_GET_NEXT_ID). Takes CAP_SYS_ADMIN.
pub fn map_ids() -> Result<Vec<u32>> {
    ids(sys::MAP_GET_NEXT_ID, "list the BPF maps")
}

/// The ids of all links there are, ascending (BPF_LINK_GET_NEXT_ID). Takes CAP_SYS_ADMIN.
pub fn link_ids() -> Result<Vec<u32>> {
    ids(sys::LINK_GET_NEXT_ID, "list the BPF links")
}

fn ids(command: u32, action: &str) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    let mut attr = ById::default();
    loop {
        match bpf(command, &mut attr) {
            Ok(_) => attr.id = attr.next_id,
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => return Ok(ids),
            Err(source) => return Err(Error::Sys { action: action.into(), source }),
        }
        ids.push(attr.id);
    }
}

impl Program {
    /// The program with this id (BPF_PROG_GET_FD_BY_ID); `None` when there is none. Takes CAP_SYS_ADMIN. It lives at
    /// least as long as what is returned.
    pub fn by_id(id: u32) -> Result<Option<Program>> {
        match bpf_fd(sys::PROG_GET_FD_BY_ID, &mut ById { id, ..Default::default() }) {
            Ok(fd) => Ok(Some(Program::of(fd, id.to_string()))),
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(source) => Err(Error::Sys { action: format!("open BPF program {id}"), source }),
        }
    }

    /// All that [`ProgDetails`] has room for (BPF_OBJ_GET_INFO_BY_FD).
    pub fn details(&self) -> Result<ProgDetails> {
        let mut raw = ProgInfoRaw::default();
        self.fill(&mut raw)?;
        let (count, size) = (raw.nr_func_info, raw.func_info_rec_size);
        let (mut func_info, mut addresses) = (Vec::new(), Vec::new());
        if count > 0 && count <= MOST_FUNCTIONS && (FUNC_INFO..=1024).contains(&size) {
            let mut records = vec![0u8; count as usize * size as usize];
            let mut code = vec![0u64; count as usize];
            let mut again = ProgInfoRaw {
                jited_ksyms: addr_mut(&mut code),
                nr_jited_ksyms: count,
                func_info: addr_mut(&mut records),
                nr_func_info: count,
                func_info_rec_size: size,
                ..Default::default()
            };
            self.fill(&mut again)?;
            // The kernel takes the buffer's address back when it writes nothing to it.
            if again.jited_ksyms != 0 && again.nr_jited_ksyms >= count {
                addresses = code;
            }
            let word = |record: &[u8], at: usize| {
                record.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
            };
            func_info = records.chunks_exact(size as usize).map(|r| (word(r, 0), word(r, 4))).collect();
        }
        let name: Vec<u8> = raw.name.iter().copied().take_while(|b| *b != 0).collect();
        Ok(ProgDetails {
            id: raw.id,
            ty: raw.ty,
            name: String::from_utf8_lossy(&name).into_owned(),
            tag: raw.tag,
            jited_len: raw.jited_prog_len,
            btf_id: raw.btf_id,
            func_info,
            addresses,
            attached_to: (raw.attach_btf_id != 0 && is_vmlinux(raw.attach_btf_obj_id)?)
                .then_some(raw.attach_btf_id),
        })
    }

    /// Pins it at a path of a BPF file system (BPF_OBJ_PIN), where it stays until that is removed.
    pub fn pin(&self, path: &Path) -> Result<()> {
        let name = c_path(path)?;
        let mut attr = PathAndFd {
            pathname: name.as_ptr() as u64,
            bpf_fd: self.as_fd().as_raw_fd() as u32,
            ..Default::default()
        };
        bpf(sys::OBJ_PIN, &mut attr).map(drop).map_err(|source| Error::Sys {
            action: format!("pin program {} at {}", self.name(), path.display()),
            source,
        })
    }

    pub(crate) fn fill(&self, raw: &mut ProgInfoRaw) -> Result<()> {
        let info = std::slice::from_mut(raw);
        let mut attr = GetInfo {
            bpf_fd: self.as_fd().as_raw_fd() as u32,
            info_len: size_of::<ProgInfoRaw>() as u32,
            info: addr_mut(info),
        };
        bpf(sys::OBJ_GET_INFO_BY_FD, &mut attr).map(drop).map_err(|source| Error::Sys {
            action: format!("information on program {}", self.name()),
            source,
        })
    }
}

/// Entries of a map of tail calls that are looked at: each takes a call.
const MOST_JUMPS: u32 = 4096;

/// The programs that a tail call can lead to: the id of each, and the name of the map that it is in
/// (BPF_MAP_TYPE_PROG_ARRAY). Of maps with more than 4096 entries only the first are looked at. Takes CAP_SYS_ADMIN.
pub fn tail_called_programs() -> Result<Vec<(u32, String)>> {
    let mut found = Vec::new();
    for id in map_ids()? {
        let map = match bpf_fd(sys::MAP_GET_FD_BY_ID, &mut ById { id, ..Default::default() }) {
            Ok(fd) => fd,
            // Gone between the two calls.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => continue,
            Err(source) => return Err(Error::Sys { action: format!("open BPF map {id}"), source }),
        };
        // struct bpf_map_info: type, id; key_size, value_size; max_entries, map_flags; name.
        let mut info = [0u64; 16];
        let mut attr = GetInfo {
            bpf_fd: map.as_raw_fd() as u32,
            info_len: size_of_val(&info) as u32,
            info: addr_mut(&mut info),
        };
        bpf(sys::OBJ_GET_INFO_BY_FD, &mut attr)
            .map_err(|source| Error::Sys { action: format!("information on BPF map {id}"), source })?;
        if info[0] as u32 != MapType::ProgArray as u32 {
            continue;
        }
        let name: Vec<u8> =
            [info[3], info[4]].iter().flat_map(|w| w.to_ne_bytes()).take_while(|b| *b != 0).collect();
        let name = String::from_utf8_lossy(&name).into_owned();
        for index in 0..(info[2] as u32).min(MOST_JUMPS) {
            let (key, mut value) = ([index], [0u32]);
            let mut attr = MapElem {
                map_fd: map.as_raw_fd() as u32,
                key: addr(&key),
                value: addr_mut(&mut value),
                ..Default::default()
            };
            match bpf(sys::MAP_LOOKUP_ELEM, &mut attr) {
                Ok(_) => found.push((value[0], name.clone())),
                // No program there.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
                Err(source) => return Err(Error::Sys { action: format!("read BPF map {id}"), source }),
            }
        }
    }
    Ok(found)
}

/// The BTF blob with this id, as it was loaded; `None` when there is none. Takes CAP_SYS_ADMIN.
pub fn btf_bytes(id: u32) -> Result<Option<Vec<u8>>> {
    match bpf_fd(sys::BTF_GET_FD_BY_ID, &mut ById { id, ..Default::default() }) {
        Ok(fd) => btf_bytes_of(fd.as_fd()).map(Some),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(source) => Err(Error::Sys { action: format!("open BTF object {id}"), source }),
    }
}

/// Whether this is the id of the kernel's own BTF.
fn is_vmlinux(id: u32) -> Result<bool> {
    match bpf_fd(sys::BTF_GET_FD_BY_ID, &mut ById { id, ..Default::default() }) {
        Ok(fd) => BtfObject(fd).is_of_module("vmlinux"),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
        Err(source) => Err(Error::Sys { action: format!("open BTF object {id}"), source }),
    }
}

/// The id of the program that is pinned at a path of a BPF file system (BPF_OBJ_GET), or that a link pinned there runs;
/// `None` when what is pinned there is something else.
pub fn pinned_program_id(path: &Path) -> Result<Option<u32>> {
    let action = || format!("open the pin {}", path.display());
    let name = c_path(path)?;
    let mut attr = PathAndFd { pathname: name.as_ptr() as u64, ..Default::default() };
    let fd: OwnedFd =
        bpf_fd(sys::OBJ_GET, &mut attr).map_err(|source| Error::Sys { action: action(), source })?;
    // One interface for programs and links, where BPF_OBJ_GET_INFO_BY_FD would have to be told which it is.
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))
        .map_err(|source| Error::Sys { action: action(), source })?;
    Ok(program_of_fdinfo(&text))
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::Protocol(format!("{}: a zero byte in a path", path.display())))
}

/// The ids of the programs that a process holds descriptors of, by themselves or in links; ascending, each once
/// (/proc/PID/fdinfo). A process that is not there is [`io::ErrorKind::NotFound`].
pub fn program_ids_of_process(pid: u32) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        match entry.and_then(|e| std::fs::read_to_string(e.path())) {
            Ok(text) => ids.extend(program_of_fdinfo(&text)),
            // Closed meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// `prog_id:` of a descriptor of a program or a link (`bpf_prog_show_fdinfo`, `bpf_link_show_fdinfo`, kernel/bpf/syscall.c).
fn program_of_fdinfo(text: &str) -> Option<u32> {
    let id = text.lines().find_map(|l| l.strip_prefix("prog_id:"))?;
    id.trim().parse().ok().filter(|id| *id != 0)
}

#[cfg(test)]
mod tests {
    use super::program_of_fdinfo;

    #[test]
    fn programs_and_links_name_the_program_and_nothing_else_does() {
        let program =
            "pos:\t0\nflags:\t02000002\nprog_type:\t17\nprog_jited:\t1\nprog_tag:\t5f\nprog_id:\t42\n";
        let link =
            "pos:\t0\nlink_type:\traw_tracepoint\nlink_id:\t7\nprog_tag:\t5f\nprog_id:\t43\ntp_name:\tx\n";
        assert_eq!(program_of_fdinfo(program), Some(42));
        assert_eq!(program_of_fdinfo(link), Some(43));
        for none in ["", "pos:\t0\nmap_id:\t3\n", "prog_id:\t0\n", "prog_id:\tx\n", "xprog_id:\t3\n"] {
            assert_eq!(program_of_fdinfo(none), None, "{none:?}");
        }
    }
}
