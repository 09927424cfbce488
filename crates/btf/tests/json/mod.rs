//! Whether bytes are one JSON value (RFC 8259), for tests.

/// `Err` with the offset of the first byte that is out of place.
pub fn check(bytes: &[u8]) -> Result<(), usize> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.valid_up_to())?;
    let mut at = 0;
    value(text.as_bytes(), &mut at)?;
    if at == bytes.len() { Ok(()) } else { Err(at) }
}

fn value(b: &[u8], at: &mut usize) -> Result<(), usize> {
    match b.get(*at) {
        Some(b'"') => string(b, at),
        Some(b'{') => list(b, at, b'}', |b, at| {
            string(b, at)?;
            expect(b, at, b':')?;
            value(b, at)
        }),
        Some(b'[') => list(b, at, b']', value),
        Some(b'-' | b'0'..=b'9') => number(b, at),
        _ => {
            let word = ["null", "true", "false"].iter().find(|w| b[*at..].starts_with(w.as_bytes()));
            *at += word.ok_or(*at)?.len();
            Ok(())
        }
    }
}

fn list(
    b: &[u8],
    at: &mut usize,
    end: u8,
    item: impl Fn(&[u8], &mut usize) -> Result<(), usize>,
) -> Result<(), usize> {
    *at += 1;
    if b.get(*at) == Some(&end) {
        *at += 1;
        return Ok(());
    }
    loop {
        item(b, at)?;
        if b.get(*at) == Some(&end) {
            *at += 1;
            return Ok(());
        }
        expect(b, at, b',')?;
    }
}

fn string(b: &[u8], at: &mut usize) -> Result<(), usize> {
    expect(b, at, b'"')?;
    loop {
        match b.get(*at) {
            Some(b'"') => break,
            Some(b'\\') => match b.get(*at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => *at += 2,
                Some(b'u') if b[*at + 2..].iter().take(4).filter(|d| d.is_ascii_hexdigit()).count() == 4 => {
                    *at += 6
                }
                _ => return Err(*at),
            },
            Some(0x20..) => *at += 1,
            _ => return Err(*at),
        }
    }
    *at += 1;
    Ok(())
}

fn number(b: &[u8], at: &mut usize) -> Result<(), usize> {
    let len =
        b[*at..].iter().take_while(|c| matches!(c, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')).count();
    let text = std::str::from_utf8(&b[*at..*at + len]).map_err(|_| *at)?;
    let digits = text.trim_start_matches('-');
    let leading_zero =
        digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.") && !digits.starts_with("0e");
    if text.parse::<f64>().is_err() || leading_zero || digits.starts_with(['.', '+']) || digits.ends_with('.')
    {
        return Err(*at);
    }
    *at += len;
    Ok(())
}

fn expect(b: &[u8], at: &mut usize, want: u8) -> Result<(), usize> {
    if b.get(*at) != Some(&want) {
        return Err(*at);
    }
    *at += 1;
    Ok(())
}
