//! What a program became: machine code, function by function, and the instructions as the verifier left them.

use crate::error::{Error, Result};
use crate::prog::Program;
use crate::sys::{ProgInfoRaw, addr_mut};

/// Machine code of one function of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFunction {
    /// Where it lies.
    pub address: u64,
    /// Its bytes, as the compiler left them: a site that was patched afterwards (an fentry of this program) is not in them.
    pub code: Vec<u8>,
}

/// `bpftool prog dump jited` and `xlated`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgImage {
    /// Its functions, the main one first; none when the program is interpreted, or the kernel hides addresses
    /// (kernel.kptr_restrict, net.core.bpf_jit_harden).
    pub functions: Vec<ImageFunction>,
    /// Its instructions after verification, 8 bytes each (`struct bpf_insn`); none where the kernel does not show them.
    pub xlated: Vec<u64>,
    /// Ids of the maps that it names.
    pub maps: Vec<u32>,
}

/// Most bytes of machine code that are asked for: the kernel's own limit is a million instructions.
const MOST_CODE: u32 = 64 << 20;

/// Most functions and maps of a program, with room to spare (`BPF_MAX_SUBPROGS`, `MAX_USED_MAPS`).
const MOST: u32 = 4096;

impl Program {
    /// Its code (BPF_OBJ_GET_INFO_BY_FD). Takes CAP_SYS_ADMIN, or CAP_PERFMON with CAP_BPF.
    pub fn image(&self) -> Result<ProgImage> {
        let mut sizes = ProgInfoRaw::default();
        self.fill(&mut sizes)?;
        let too_much = sizes.jited_prog_len > MOST_CODE
            || sizes.xlated_prog_len > MOST_CODE
            || sizes.nr_jited_ksyms > MOST
            || sizes.nr_jited_func_lens > MOST
            || sizes.nr_map_ids > MOST;
        if too_much {
            return Err(Error::Protocol(format!("program {}: sizes that no program has", self.name())));
        }
        let mut code = vec![0u8; sizes.jited_prog_len as usize];
        let mut xlated = vec![0u64; sizes.xlated_prog_len as usize / 8];
        let mut addresses = vec![0u64; sizes.nr_jited_ksyms as usize];
        let mut lens = vec![0u32; sizes.nr_jited_func_lens as usize];
        let mut maps = vec![0u32; sizes.nr_map_ids as usize];
        let mut raw = ProgInfoRaw {
            jited_prog_insns: addr_mut(&mut code),
            jited_prog_len: code.len() as u32,
            xlated_prog_insns: addr_mut(&mut xlated),
            xlated_prog_len: xlated.len() as u32 * 8,
            jited_ksyms: addr_mut(&mut addresses),
            nr_jited_ksyms: addresses.len() as u32,
            jited_func_lens: addr_mut(&mut lens),
            nr_jited_func_lens: lens.len() as u32,
            map_ids: addr_mut(&mut maps),
            nr_map_ids: maps.len() as u32,
            ..Default::default()
        };
        self.fill(&mut raw)?;
        // The kernel takes a buffer's address back when it writes nothing to it.
        let shown = raw.jited_prog_insns != 0 && raw.jited_ksyms != 0;
        if raw.xlated_prog_insns == 0 {
            xlated.clear();
        }
        let mut functions = Vec::new();
        let mut rest = code.as_slice();
        for (address, len) in addresses.iter().zip(&lens).filter(|_| shown) {
            let Some((own, others)) = rest.split_at_checked(*len as usize) else { break };
            functions.push(ImageFunction { address: *address, code: own.to_vec() });
            rest = others;
        }
        Ok(ProgImage { functions, xlated, maps })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Load, ProgType, Program};

    #[test]
    fn a_programs_code_is_shown() {
        // r0 = 7; exit
        let load = Load::new("seven", ProgType::SocketFilter, &[0x7_0000_00b7, 0x95]);
        let program = match Program::load(&load) {
            Ok(program) => program,
            Err(error) => return println!("SKIP: {error}"),
        };
        let image = program.image().expect("image");
        assert!(image.maps.is_empty());
        if image.xlated.is_empty() {
            return println!("SKIP: the kernel shows no instructions");
        }
        assert_eq!(image.xlated, [0x7_0000_00b7, 0x95]);
        match image.functions.as_slice() {
            [] => println!("SKIP: the kernel shows no machine code"),
            [main] => {
                assert!(main.address != 0 && main.code.len() > 4, "{main:x?}");
                // mov $7, %eax
                #[cfg(target_arch = "x86_64")]
                assert!(main.code.windows(5).any(|w| w == [0xb8, 7, 0, 0, 0]), "{main:x?}");
            }
            more => panic!("{} functions", more.len()),
        }
    }
}
