//! Where a function ends, when it is only known where the next one begins.

use crate::decoded::Class;
use crate::{Arch, Flow, arm64, x86};

/// A function's bytes without the padding behind it: breakpoints, no-ops and zeros up to the next symbol.
///
/// Bytes are decoded from their beginning, so that a constant that ends in `cc` stays whole. No-ops that the code before them
/// runs into are code (the kernel patches such); after a call they are not, since what is called may not return.
/// Where there is nothing but padding, all of it stays: someone asked for it.
pub fn trim_padding(bytes: &[u8], arch: Arch) -> &[u8] {
    let mut end = 0;
    let mut any_code = false;
    let mut flow = Flow::Next;
    let mut visit = |until: usize, class: Class, this: Flow| {
        let filler = matches!(class, Class::Filler | Class::Nop | Class::Zeros);
        let reached = flow.falls_through() && !matches!(flow, Flow::Call | Flow::IndirectCall);
        any_code |= !filler;
        if !filler || (reached && class != Class::Zeros) {
            end = until;
            flow = this;
        }
    };
    match arch {
        Arch::X86_64 => x86::walk(bytes, &mut visit),
        Arch::Arm64 => arm64::walk(bytes, &mut visit),
    }
    if any_code { bytes.get(..end).unwrap_or(bytes) } else { bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trimmed(bytes: &[u8]) -> usize {
        trim_padding(bytes, Arch::X86_64).len()
    }

    #[test]
    fn padding_goes_and_code_stays() {
        assert_eq!(trimmed(&[0xc3, 0xcc, 0xcc]), 1);
        assert_eq!(trimmed(&[0xc3, 0x66, 0x90, 0x0f, 0x1f, 0, 0xcc]), 1);
        assert_eq!(trimmed(&[0xeb, 0xfe, 0, 0, 0]), 2, "zeros, an odd number of them");
        // mov $0xcccccccc,%eax; ret
        assert_eq!(trimmed(&[0xb8, 0xcc, 0xcc, 0xcc, 0xcc, 0xc3, 0xcc]), 6);
        // A jump whose distance is zeros.
        assert_eq!(trimmed(&[0xe9, 0, 0, 0, 0, 0x90]), 5);
        // What is called may not return, and what comes after a trap is never run.
        assert_eq!(trimmed(&[0xe8, 1, 2, 3, 4, 0x90, 0x90]), 5);
        assert_eq!(trimmed(&[0x0f, 0x0b, 0xcc]), 2);
        // Code runs into them: they are code.
        assert_eq!(trimmed(&[0x0f, 0x01, 0xf8, 0x66, 0x90]), 5);
        // Code after padding.
        assert_eq!(trimmed(&[0xc3, 0xcc, 0x31, 0xc0, 0xc3, 0xcc]), 5);
        // Nothing else.
        assert_eq!(trimmed(&[0x90; 16]), 16);
        assert_eq!(trimmed(&[0xcc; 3]), 3);
        assert_eq!(trimmed(&[]), 0);
    }

    #[test]
    fn arm64_too() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let (ret, nop, brk) = (0xd65f_03c0, 0xd503_201f, 0xd420_0000);
        assert_eq!(trim_padding(&words(&[nop, ret, nop, brk, 0]), Arch::Arm64).len(), 8);
        assert_eq!(trim_padding(&words(&[ret, nop, ret]), Arch::Arm64).len(), 12);
        assert_eq!(trim_padding(&words(&[nop, nop]), Arch::Arm64).len(), 8);
        assert_eq!(trim_padding(&[0xc0, 0x03, 0x5f, 0xd6, 0, 0], Arch::Arm64).len(), 4);
    }
}
