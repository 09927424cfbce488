//! Bytes as text: hexadecimal numbers, and what stands inside double quotes in C and in JSON.

/// Appends `0x` and the lower-case digits of `value`, without leading zeros.
pub fn fast_hex(value: u64, out: &mut Vec<u8>) {
    // How many digits: one for 0.
    let digits = (64 - (value | 1).leading_zeros()).div_ceil(4) as usize;
    // The digits from the left, so that all sixteen can be written and the rest cut off.
    let left = value << (64 - 4 * digits as u32);
    let mut buffer = [b'0', b'x', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let (_, sixteen) = buffer.split_at_mut(2);
    for (eight, half) in sixteen.chunks_exact_mut(8).zip([(left >> 32) as u32, left as u32]) {
        eight.copy_from_slice(&eight_digits(half));
    }
    let len = out.len() + 2 + digits;
    out.extend_from_slice(&buffer);
    out.truncate(len);
}

/// The eight digits of a word, the highest first: all at once, a digit in each byte of a `u64`.
fn eight_digits(word: u32) -> [u8; 8] {
    const LOW: u64 = 0x0f0f_0f0f_0f0f_0f0f;
    const ONES: u64 = 0x0101_0101_0101_0101;
    // Spread the nibbles: halves of four, of two, of one.
    let mut x = u64::from(word);
    x = ((x & 0xffff_0000) << 16) | (x & 0xffff);
    x = ((x & 0x0000_ff00_0000_ff00) << 8) | (x & 0x0000_00ff_0000_00ff);
    x = ((x << 4) & 0x0f00_0f00_0f00_0f00) | (x & 0x000f_000f_000f_000f);
    // One in each byte whose digit is a letter; a letter lies 39 beyond its place after '9'.
    let letters = ((x + 6 * ONES) >> 4) & ONES & LOW;
    (x + u64::from(b'0') * ONES + letters * 39).to_be_bytes()
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
            out.extend_from_slice(&two_digits(byte));
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
            out.extend_from_slice(&two_digits(byte));
        }
        _ => {
            out.extend_from_slice(b"\\\\x");
            out.extend_from_slice(&two_digits(byte));
        }
    });
}

/// Copies what needs no escape in runs, and hands the rest to `one`, a byte at a time.
fn escape(bytes: &[u8], out: &mut Vec<u8>, one: impl Fn(u8, &mut Vec<u8>) + Copy) {
    if bytes.is_ascii() {
        return escape_valid(bytes, out, one);
    }
    for chunk in bytes.utf8_chunks() {
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

fn two_digits(byte: u8) -> [u8; 2] {
    let [.., high, low] = eight_digits(byte.into());
    [high, low]
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
