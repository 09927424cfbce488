//! Numbers into text, without a formatter's detours.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Appends `0x` and the number in lower-case hexadecimal.
pub(crate) fn hex(out: &mut String, value: u64) {
    let mut room = [0u8; 18];
    let mut at = room.len();
    let mut rest = value;
    loop {
        at -= 1;
        room[at] = DIGITS[(rest & 15) as usize];
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    room[at - 1] = b'x';
    room[at - 2] = b'0';
    push(out, room.get(at - 2..).unwrap_or_default());
}

/// The same with a sign.
pub(crate) fn signed_hex(out: &mut String, value: i64) {
    if value < 0 {
        out.push('-');
    }
    hex(out, value.unsigned_abs());
}

/// Appends `bytes` as `0f 1f`, a blank between each two.
pub(crate) fn bytes(out: &mut String, bytes: &[u8]) {
    for some in bytes.chunks(16) {
        let mut room = [b' '; 48];
        for (at, byte) in room.chunks_exact_mut(3).zip(some) {
            at[0] = DIGITS[(byte >> 4) as usize];
            at[1] = DIGITS[(byte & 15) as usize];
        }
        if !std::ptr::eq(some.as_ptr(), bytes.as_ptr()) {
            out.push(' ');
        }
        push(out, room.get(..(some.len() * 3).saturating_sub(1)).unwrap_or_default());
    }
}

/// Appends blanks.
pub(crate) fn blanks(out: &mut String, mut count: usize) {
    const BLANKS: &str = "                                                                ";
    while count > 0 {
        let some = count.min(BLANKS.len());
        out.push_str(&BLANKS[..some]);
        count -= some;
    }
}

/// Appends a decimal number.
pub(crate) fn decimal(out: &mut String, value: u64) {
    out.push_str(itoa::Buffer::new().format(value));
}

fn push(out: &mut String, ascii: &[u8]) {
    out.push_str(std::str::from_utf8(ascii).unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let mut out = String::new();
        hex(&mut out, 0);
        out.push(' ');
        hex(&mut out, u64::MAX);
        out.push(' ');
        signed_hex(&mut out, i64::MIN);
        out.push(' ');
        signed_hex(&mut out, 31);
        assert_eq!(out, "0x0 0xffffffffffffffff -0x8000000000000000 0x1f");
        for length in 0..40usize {
            out.clear();
            let some: Vec<u8> = (0..length as u8).collect();
            bytes(&mut out, &some);
            let plain: Vec<String> = some.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(out, plain.join(" "));
        }
        out.clear();
        blanks(&mut out, 70);
        assert_eq!(out.len(), 70);
    }
}
