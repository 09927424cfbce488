//! Why a value could not be had, as a word in a record.

use crate::error::Span;

/// Why a value could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The part of the expression at fault: the pointer that is NULL, or what could not be read.
    pub span: Span,
    /// The error of the read; `None`: a pointer on the way is NULL.
    pub errno: Option<u16>,
}

/// Marks a failure, so that none is 0.
const FAILED: u64 = 1 << 63;
/// Bits of a place in the text; it is at most 4096.
const PLACE: u32 = 13;
/// Where the error begins.
const ERRNO: u32 = 32;

impl Failure {
    /// The word of a failure, without the error's number, which a program adds ([`Failure::ERRNO`] bits further up).
    pub(crate) fn word(span: Span) -> u64 {
        FAILED | u64::from(span.start) | u64::from(span.end) << PLACE
    }

    /// Bits that the error is shifted by.
    pub(crate) const ERRNO: u32 = ERRNO;

    /// What a record says; `None`: the value is there.
    pub fn of(word: u64) -> Option<Failure> {
        if word & FAILED == 0 {
            return None;
        }
        let place = |at: u32| (word >> at) as u32 & ((1 << PLACE) - 1);
        let errno = (word >> ERRNO) as u16 & 0xfff;
        Some(Failure {
            span: Span { start: place(0), end: place(PLACE) },
            errno: (errno != 0).then_some(errno),
        })
    }

    /// The word of this failure.
    pub fn to_word(self) -> u64 {
        Failure::word(self.span) | u64::from(self.errno.unwrap_or(0) & 0xfff) << ERRNO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_the_failure() {
        assert_eq!(Failure::of(0), None);
        for failure in [
            Failure { span: Span { start: 0, end: 0 }, errno: None },
            Failure { span: Span { start: 4095, end: 4096 }, errno: Some(14) },
            Failure { span: Span { start: 3, end: 9 }, errno: Some(4095) },
        ] {
            assert_eq!(Failure::of(failure.to_word()), Some(failure));
        }
    }
}
