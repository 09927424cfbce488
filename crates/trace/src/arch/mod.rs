//! What depends on the processor: where a call's arguments and its result are in the registers that a kprobe sees.

mod x86_64;

pub(crate) use x86_64::{
    FLAGS, FRAME_TO_RETURN, INSTRUCTION_POINTER, OVERFLOW, PROBED, REGISTER_NAMES, REGISTERS, RESULT, SIGN,
    STACK_ARGUMENTS, STACK_POINTER, condition,
};

/// Where a kprobe finds an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In registers, the first of them this one of [`REGISTERS`].
    Register(usize),
    /// On the stack, so many bytes behind the first argument there.
    Stack(u32),
}

/// Places the arguments of a call, by their sizes in bytes.
///
/// An argument that does not fit the registers that are left lies on the stack whole, and later, smaller ones may still
/// take registers (System V ABI, AMD64 supplement, 3.2.3). The kernel passes nothing in floating-point registers.
pub(crate) fn places(sizes: impl Iterator<Item = u32>) -> Vec<Place> {
    let (mut register, mut stack) = (0, 0);
    sizes
        .map(|size| {
            let words = size.div_ceil(8).max(1) as usize;
            if words <= 2 && register + words <= REGISTERS.len() {
                register += words;
                Place::Register(register - words)
            } else {
                stack += words as u32 * 8;
                Place::Stack(stack - words as u32 * 8)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_lie_where_the_abi_says() {
        use Place::{Register, Stack};
        assert_eq!(places([8, 4, 1].into_iter()), [Register(0), Register(1), Register(2)]);
        let seven = [8; 8];
        assert_eq!(places(seven.into_iter())[5..], [Register(5), Stack(0), Stack(8)]);
        // A structure of two words with one register left: on the stack, and the next argument takes the register.
        assert_eq!(places([8, 8, 8, 8, 8, 16, 8].into_iter())[5..], [Stack(0), Register(5)]);
        assert_eq!(places([8, 16, 8].into_iter()), [Register(0), Register(1), Register(3)]);
        // Larger than two words: always on the stack.
        assert_eq!(places([24, 8].into_iter()), [Stack(0), Register(0)]);
    }
}
