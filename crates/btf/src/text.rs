//! Bytes as text: hexadecimal numbers, and what stands inside double quotes in C and in JSON.

const ONES: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte.
const HIGH: u64 = ONES << 7;

/// Appends `0x` and the lower-case digits of `value`, without leading zeros.
#[inline]
pub fn fast_hex(value: u64, out: &mut Vec<u8>) {
    // How many digits: one for 0.
    let digits = (67 - (value | 1).leading_zeros()) / 4;
    // The digits from the left, so that all sixteen can be written and the rest cut off.
    let left = value << (64 - 4 * digits);
    let mut text = [b'0', b'x', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (_, pairs) = text.split_at_mut(2);
    for (pair, byte) in pairs.chunks_exact_mut(2).zip(left.to_be_bytes()) {
        pair.copy_from_slice(&PAIRS[byte as usize]);
    }
    let len = out.len() + 2 + digits as usize;
    out.extend_from_slice(&text);
    out.truncate(len);
}

/// The two hexadecimal digits of each byte.
static PAIRS: [[u8; 2]; 256] = {
    let digits = b"0123456789abcdef";
    let mut pairs = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    pairs
};

/// Appends `value` in decimal.
#[inline]
pub fn fast_dec(value: u64, out: &mut Vec<u8>) {
    if value < EIGHT { leading_digits(value as u32, out) } else { many_digits(value, out) }
}

/// Appends `value` in decimal, with `-` before a negative one.
#[inline]
pub fn fast_dec_signed(value: i64, out: &mut Vec<u8>) {
    if value < 0 {
        out.push(b'-');
    }
    fast_dec(value.unsigned_abs(), out);
}

/// The first number of more than eight decimal digits.
const EIGHT: u64 = 100_000_000;

/// Appends a number of more than eight digits. (Not inlined: most numbers are smaller, and cost less for it.)
#[inline(never)]
fn many_digits(value: u64, out: &mut Vec<u8>) {
    let (front, eight) = (value / EIGHT, value % EIGHT);
    // Up to 2^64 / 10^8 < 10^12.
    if front < EIGHT {
        leading_digits(front as u32, out);
    } else {
        leading_digits((front / EIGHT) as u32, out);
        out.extend_from_slice(&decimal_digits((front % EIGHT) as u32).to_le_bytes());
    }
    out.extend_from_slice(&decimal_digits(eight as u32).to_le_bytes());
}

/// Appends a number below 10^8 without leading zeros.
#[inline]
fn leading_digits(value: u32, out: &mut Vec<u8>) {
    let digits = decimal_digits(value);
    // The first digit is in the lowest byte. A zero digit is 0x30; all zero leaves the last one.
    let zeros = ((digits ^ (u64::from(b'0') * ONES)) | 1 << 56).trailing_zeros() / 8;
    let len = out.len() + 8 - zeros as usize;
    out.extend_from_slice(&(digits >> (8 * zeros)).to_le_bytes());
    out.truncate(len);
}

/// The eight decimal digits of a number below 10^8 as ASCII, the first in the lowest byte: all at once, by splitting into halves
/// of four digits, pairs, and single ones, each half in its own lane and divided by a multiplication.
#[inline]
fn decimal_digits(value: u32) -> u64 {
    let value = u64::from(value);
    let x = (value / 10_000) | ((value % 10_000) << 32);
    // x / 100 for x < 10^4.
    let q = ((x * 10_486) >> 20) & 0x0000_007f_0000_007f;
    let x = q | ((x - q * 100) << 16);
    // x / 10 for x < 100.
    let q = ((x * 103) >> 10) & 0x000f_000f_000f_000f;
    let x = q | ((x - q * 10) << 8);
    x + u64::from(b'0') * ONES
}

/// Appends `bytes` as they stand inside the double quotes of a C string, the quotes not included.
///
/// `\n`, `\t`, `\r`, `\"` and `\\` have their letters, other control characters (C1 ones too: some terminals obey them) and
/// bytes that are not UTF-8 come as `\xNN`; UTF-8 is kept.
pub fn escape_text(bytes: &[u8], out: &mut Vec<u8>) {
    escape(bytes, out, |byte, out| match byte {
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        _ => {
            out.extend_from_slice(b"\\x");
            out.extend_from_slice(&PAIRS[byte as usize]);
        }
    });
}

/// Appends `bytes` as they stand inside the double quotes of a JSON string, the quotes not included.
///
/// Always valid JSON: a byte that is not UTF-8 comes as the four characters `\xNN` (JSON `\\xNN`), as [`escape_text`] has it.
pub fn escape_json(bytes: &[u8], out: &mut Vec<u8>) {
    escape(bytes, out, |byte, out| match byte {
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\t' => out.extend_from_slice(b"\\t"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
        0..0x80 => {
            out.extend_from_slice(b"\\u00");
            out.extend_from_slice(&PAIRS[byte as usize]);
        }
        _ => {
            out.extend_from_slice(b"\\\\x");
            out.extend_from_slice(&PAIRS[byte as usize]);
        }
    });
}

/// How many bytes from the first on stand for themselves in any quotes: printable ASCII but `"` and `\\`.
pub(crate) fn plain_len(bytes: &[u8]) -> usize {
    let mut len = 0;
    let mut rest = bytes;
    while let Some((eight, after)) = rest.split_first_chunk::<8>() {
        let w = u64::from_le_bytes(*eight);
        // The highest bit of each byte that is not plain. A carry may set more, but only above one rightly set.
        let zero = |x: u64| x.wrapping_sub(ONES) & !x;
        let control = w.wrapping_sub(0x20 * ONES) & !w;
        let beyond = w.wrapping_add(ONES) | w;
        let quote = zero(w ^ (u64::from(b'"') * ONES));
        let backslash = zero(w ^ (u64::from(b'\\') * ONES));
        let special = (control | beyond | quote | backslash) & HIGH;
        if special != 0 {
            return len + special.trailing_zeros() as usize / 8;
        }
        (len, rest) = (len + 8, after);
    }
    let plain = |b: &u8| matches!(b, b' '..=b'~') && !matches!(b, b'"' | b'\\');
    len + rest.iter().take_while(|b| plain(b)).count()
}

/// Copies what needs no escape in runs, and hands the rest to `one`, a byte at a time.
fn escape(bytes: &[u8], out: &mut Vec<u8>, one: impl Fn(u8, &mut Vec<u8>) + Copy) {
    let (plain, rest) = bytes.split_at_checked(plain_len(bytes)).unwrap_or((bytes, &[]));
    out.extend_from_slice(plain);
    for chunk in rest.utf8_chunks() {
        escape_valid(chunk.valid().as_bytes(), out, one);
        for byte in chunk.invalid() {
            one(*byte, out);
        }
    }
}

/// The same for bytes that are UTF-8.
fn escape_valid(bytes: &[u8], out: &mut Vec<u8>, one: impl Fn(u8, &mut Vec<u8>)) {
    let mut rest = bytes;
    while let Some(at) = rest.iter().position(|b| !plain(*b)) {
        let (run, after) = rest.split_at(at);
        out.extend_from_slice(run);
        rest = match after {
            // U+0080 to U+009F, the C1 control characters.
            [0xc2, c1 @ 0x80..0xa0, tail @ ..] => {
                one(0xc2, out);
                one(*c1, out);
                tail
            }
            [0xc2, tail @ ..] => {
                out.push(0xc2);
                tail
            }
            [byte, tail @ ..] => {
                one(*byte, out);
                tail
            }
            [] => after,
        };
    }
    out.extend_from_slice(rest);
}

/// Whether a byte of UTF-8 stands for itself. (0xc2 may begin a C1 control character.)
fn plain(byte: u8) -> bool {
    !matches!(byte, 0..0x20 | b'"' | b'\\' | 0x7f | 0xc2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(value: u64) -> String {
        let mut out = Vec::new();
        fast_hex(value, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn text(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        escape_text(bytes, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    fn json(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        escape_json(bytes, &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn hexadecimal_is_what_format_gives() {
        let mut value = 1_u64;
        for i in 0..64 {
            for v in [value, value - 1, value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> i] {
                assert_eq!(hex(v), format!("{v:#x}"));
            }
            value <<= 1;
            value = value.max(1);
        }
        assert_eq!(hex(0), "0x0");
        assert_eq!(hex(u64::MAX), "0xffffffffffffffff");
    }

    #[test]
    fn decimal_is_what_format_gives() {
        let dec = |value: i64| {
            let mut out = Vec::new();
            fast_dec_signed(value, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        let mut power = 1_u64;
        for i in 0..20 {
            let scattered = power.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> i;
            for v in [power - 1, power, power + 1, power.saturating_mul(9), scattered] {
                let mut out = Vec::new();
                fast_dec(v, &mut out);
                assert_eq!(String::from_utf8_lossy(&out), v.to_string());
                assert_eq!(dec(v as i64), (v as i64).to_string());
                assert_eq!(dec((v as i64).wrapping_neg()), (v as i64).wrapping_neg().to_string());
            }
            power = power.saturating_mul(10);
        }
        assert_eq!(dec(i64::MIN), i64::MIN.to_string());
        // Every group of four digits, in both halves of eight.
        for four in 0..10_000_u32 {
            let both = four * 10_000 + (9_999 - four);
            assert_eq!(decimal_digits(both).to_le_bytes(), format!("{both:08}").as_bytes());
        }
    }

    #[test]
    fn plain_bytes_are_counted_up_to_the_first_special_one() {
        for byte in 0..=255_u8 {
            let special = !(0x20..0x7f).contains(&byte) || byte == b'"' || byte == b'\\';
            for at in 0..19 {
                let mut bytes = *b"plain ~ text! ~ [x]";
                bytes[at] = byte;
                assert_eq!(plain_len(&bytes), if special { at } else { 19 }, "{byte:#x} at {at}");
                // What follows it does not matter.
                bytes[at..].fill(byte);
                assert_eq!(plain_len(&bytes), if special { at } else { 19 }, "{byte:#x} from {at}");
            }
        }
    }

    #[test]
    fn text_is_escaped_as_in_c() {
        assert_eq!(text(b"a \"b\" \\ \n\x1b[0m\x7f"), r#"a \"b\" \\ \n\x1b[0m\x7f"#);
        assert_eq!(text("grün ☂".as_bytes()), "grün ☂");
        assert_eq!(text(b"gr\xfcn"), r"gr\xfcn");
        // A C1 control character and its harmless neighbour.
        assert_eq!(text("\u{9b}31m\u{a9}".as_bytes()), r"\xc2\x9b31m©");
        // UTF-8 cut off in the middle.
        assert_eq!(text(b"\xe2\x98"), r"\xe2\x98");
    }

    #[test]
    fn json_strings_are_valid() {
        assert_eq!(json(b"a \"b\" \\ \n\x01\x7f"), r#"a \"b\" \\ \n\u0001\u007f"#);
        assert_eq!(json("grün ☂".as_bytes()), "grün ☂");
        assert_eq!(json(b"gr\xfcn"), r"gr\\xfcn");
    }
}
