//! The outline of an encoding: which prefixes it has, in their order, and where opcode and ModRM lie.
//!
//! The decoder tells what an instruction means; what is printed of it also depends on what its bytes have beyond that
//! (prefixes without effect, an index that is none). Intel's manual, volume 2, chapter 2.

/// How the opcode is introduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Prefixes, REX, and up to three bytes of opcode.
    Legacy,
    /// `c4`, `c5`, `62` or `8f`: prefixes are part of it.
    Vector,
}

/// The outline of one instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Legacy prefixes, and REX prefixes that do not count: the first so many bytes.
    pub prefixes: usize,
    /// The REX prefix that counts, 0 for none; it follows the prefixes.
    pub rex: u8,
    /// How the opcode is introduced.
    pub encoding: Encoding,
    /// Where ModRM lies, if the instruction has one: the byte after the opcode.
    pub modrm_at: usize,
}

/// Whether it is a legacy prefix (group 1 to 4).
fn is_prefix(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

pub(super) fn is_rex(byte: u8) -> bool {
    byte & 0xf0 == 0x40
}

impl Shape {
    /// Of the bytes of one instruction, which the decoder accepted.
    pub fn of(bytes: &[u8]) -> Shape {
        let at = |n: usize| bytes.get(n).copied().unwrap_or(0);
        let opcode = bytes.iter().take_while(|byte| is_prefix(**byte) || is_rex(**byte)).count();
        // REX counts only right before the opcode.
        let last = opcode.checked_sub(1).map_or(0, at);
        let (prefixes, rex) = if is_rex(last) { (opcode - 1, last) } else { (opcode, 0) };
        let (encoding, modrm_at) = match (at(opcode), at(opcode + 1)) {
            (0x0f, 0x38 | 0x3a) => (Encoding::Legacy, opcode + 3),
            (0x0f, _) => (Encoding::Legacy, opcode + 2),
            (0xc5, _) => (Encoding::Vector, opcode + 3),
            (0xc4, _) => (Encoding::Vector, opcode + 4),
            (0x62, _) => (Encoding::Vector, opcode + 5),
            // XOP has map 8 or more where `pop` has a zero.
            (0x8f, map) if map & 0x38 != 0 => (Encoding::Vector, opcode + 4),
            _ => (Encoding::Legacy, opcode + 1),
        };
        Shape { prefixes, rex, encoding, modrm_at }
    }

    /// The SIB byte, of an instruction with a memory operand.
    pub fn sib(&self, bytes: &[u8]) -> Option<u8> {
        let modrm = *bytes.get(self.modrm_at)?;
        if modrm >> 6 != 3 && modrm & 7 == 4 { bytes.get(self.modrm_at + 1).copied() } else { None }
    }

    /// The opcode's last byte.
    pub fn opcode(&self, bytes: &[u8]) -> u8 {
        self.modrm_at.checked_sub(1).and_then(|at| bytes.get(at)).copied().unwrap_or(0)
    }

    /// The mod field of ModRM.
    pub fn mode(&self, bytes: &[u8]) -> u8 {
        bytes.get(self.modrm_at).map_or(3, |modrm| modrm >> 6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outlines() {
        let nop = [0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
        let shape = Shape::of(&nop);
        assert_eq!((shape.prefixes, shape.rex, shape.modrm_at), (3, 0, 5));
        assert_eq!((shape.sib(&nop), shape.mode(&nop)), (Some(0), 2));
        let mov = [0x48, 0x89, 0xe5];
        let shape = Shape::of(&mov);
        assert_eq!((shape.prefixes, shape.rex, shape.modrm_at, shape.sib(&mov)), (0, 0x48, 2, None));
        assert_eq!(Shape::of(&[0xc5, 0xf8, 0x77]).encoding, Encoding::Vector);
        assert_eq!(Shape::of(&[0x8f, 0xc0]).encoding, Encoding::Legacy);
        Shape::of(&[]);
    }
}
