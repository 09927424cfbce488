//! Numbers into text, without a formatter's detours.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The two digits of each byte.
const PAIRS: [[u8; 2]; 256] = {
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [DIGITS[byte >> 4], DIGITS[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Writes `0x` and the number in lower-case hexadecimal at the end of a room; gives back where it begins.
#[inline]
fn put_hex(room: &mut [u8; 18], value: u64) -> usize {
    for (place, byte) in room.chunks_exact_mut(2).skip(1).zip(value.to_be_bytes()) {
        place.copy_from_slice(&PAIRS[usize::from(byte)]);
    }
    let digits = (16 - value.leading_zeros() as usize / 4).max(1);
    let begin = 16 - digits;
    for (place, byte) in room.iter_mut().skip(begin).zip(*b"0x") {
        *place = byte;
    }
    begin
}

/// Appends `0x` and the number in lower-case hexadecimal.
#[inline]
pub(crate) fn hex(out: &mut Vec<u8>, value: u64) {
    let mut room = [0u8; 18];
    let begin = put_hex(&mut room, value);
    out.extend_from_slice(room.get(begin..).unwrap_or_default());
}

/// The same with a sign.
#[inline]
pub(crate) fn signed_hex(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    hex(out, value.unsigned_abs());
}

/// Appends `bytes` as `0f 1f`, a blank between each two, and blanks to make it at least `width` characters.
pub(crate) fn bytes(out: &mut Vec<u8>, bytes: &[u8], width: usize) {
    const AT_ONCE: usize = 16;
    let begin = out.len();
    for (n, some) in bytes.chunks(AT_ONCE).enumerate() {
        let mut room = [b' '; 3 * AT_ONCE];
        for (at, byte) in room.chunks_exact_mut(3).zip(some) {
            if let [high, low, _] = at {
                [*high, *low] = PAIRS[usize::from(*byte)];
            }
        }
        if n != 0 {
            out.push(b' ');
        }
        let used = some.len() * 3 - 1;
        let whole = if bytes.len() <= AT_ONCE { used.max(width.min(room.len())) } else { used };
        out.extend_from_slice(room.get(..whole).unwrap_or(&room));
    }
    blanks(out, (begin + width).saturating_sub(out.len()));
}

/// Appends blanks.
#[inline]
pub(crate) fn blanks(out: &mut Vec<u8>, mut count: usize) {
    const BLANKS: [u8; 64] = [b' '; 64];
    while count > 0 {
        let some = count.min(BLANKS.len());
        out.extend_from_slice(BLANKS.get(..some).unwrap_or(&BLANKS));
        count -= some;
    }
}

/// Appends a decimal number.
pub(crate) fn decimal(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a text.
#[inline]
pub(crate) fn push(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let mut out = Vec::new();
        for value in [0, 9, 0x10, 0xfff, u64::MAX, 1 << 63, 0xffff_ffff_8100_0000] {
            out.clear();
            hex(&mut out, value);
            assert_eq!(String::from_utf8_lossy(&out), format!("{value:#x}"));
        }
        out.clear();
        signed_hex(&mut out, i64::MIN);
        signed_hex(&mut out, 31);
        signed_hex(&mut out, -1);
        assert_eq!(out, b"-0x80000000000000000x1f-0x1");
        for length in 0..40usize {
            for width in [0, 1, 29, 47, 60, 200] {
                out.clear();
                let some: Vec<u8> = (0..length as u8).collect();
                bytes(&mut out, &some, width);
                let plain: Vec<String> = some.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(String::from_utf8_lossy(&out), format!("{:width$}", plain.join(" ")));
            }
        }
        out.clear();
        blanks(&mut out, 70);
        assert_eq!(out.len(), 70);
    }
}
