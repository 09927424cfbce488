//! Text → words.

use crate::error::{Error, Span};
use crate::types::IntTy;

/// Longest text of an expression, in bytes.
pub const MOST_TEXT: usize = 4096;

/// A word of the language.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Token {
    /// An integer or a character, of its C type.
    Int(u64, IntTy),
    /// What stands between quotes, escapes undone.
    Str(Vec<u8>),
    /// A name.
    Name(String),
    /// `$name`, without the dollar.
    Special(String),
    /// An operator or a bracket.
    Sign(&'static str),
    /// The end of the text.
    End,
}

impl Token {
    /// What an error calls it.
    pub(crate) fn describe(&self) -> String {
        match self {
            Token::Int(value, _) => format!("{value}"),
            Token::Str(_) => "a text".into(),
            Token::Name(name) => format!("'{name}'"),
            Token::Special(name) => format!("'${name}'"),
            Token::Sign(sign) => format!("'{sign}'"),
            Token::End => "the end".into(),
        }
    }
}

/// Longest first, so that the first that fits is the right one. Those of assignment are known to be refused.
const SIGNS: [&str; 46] = [
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=",
    "/=", "%=", "&=", "|=", "^=", "(", ")", "[", "]", ".", ",", "?", ":", "+", "-", "*", "/", "%", "&", "|",
    "^", "~", "!", "<", ">", "=", "{", "}", ";",
];

/// Splits a text into words, the last of them [`Token::End`].
pub(crate) fn tokens(text: &str, unsigned_char: bool) -> Result<Vec<(Token, Span)>, Error> {
    if text.len() > MOST_TEXT {
        let end = (0..=MOST_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        let span = span(end, end);
        return Err(Error::new(span, format!("the expression is longer than {MOST_TEXT} bytes")));
    }
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let start = text.len() - rest.len();
        let Some(first) = rest.chars().next() else {
            tokens.push((Token::End, span(start, start)));
            return Ok(tokens);
        };
        let (token, len) = match first {
            '0'..='9' => number(rest, start)?,
            '\'' => character(rest, start, unsigned_char)?,
            '"' => string(rest, start)?,
            '$' => {
                let name = name(rest.get(1..).unwrap_or_default());
                if name.is_empty() {
                    return Err(Error::new(span(start, start + 1), "a name is to follow '$'"));
                }
                (Token::Special(name.into()), name.len() + 1)
            }
            'a'..='z' | 'A'..='Z' | '_' => (Token::Name(name(rest).into()), name(rest).len()),
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(sign), sign.len()),
                None => {
                    let end = start + first.len_utf8();
                    let what = format!("'{}' has no meaning here", first.escape_debug());
                    return Err(Error::new(span(start, end), what));
                }
            },
        };
        tokens.push((token, span(start, start + len)));
        rest = rest.get(len..).unwrap_or_default();
    }
}

fn span(start: usize, end: usize) -> Span {
    Span { start: start as u32, end: end as u32 }
}

/// The name that a text begins with.
fn name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

/// C11 6.4.4.1: the first type of the list in which the value fits. A decimal number beyond `long` is unsigned here.
fn number(text: &str, start: usize) -> Result<(Token, usize), Error> {
    let word = name(text);
    if let Some(fraction) = text.get(word.len()..).and_then(|rest| rest.strip_prefix('.'))
        && fraction.starts_with(|c: char| c.is_ascii_digit())
    {
        let end = start + word.len() + 1 + name(fraction).len();
        return Err(Error::new(span(start, end), "there are no floating-point numbers here"));
    }
    let wrong = |what: &str| Error::new(span(start, start + word.len()), format!("'{word}' {what}"));
    let lower = word.to_ascii_lowercase();
    let (digits, radix) = match (lower.strip_prefix("0x"), lower.strip_prefix("0b"), lower.strip_prefix('0'))
    {
        (Some(hex), ..) => (hex, 16),
        (_, Some(binary), _) => (binary, 2),
        (_, _, Some(octal)) if octal.starts_with(|c: char| c.is_ascii_digit()) => (octal, 8),
        _ => (lower.as_str(), 10),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, suffix) = digits.split_at(end);
    if digits.is_empty() {
        return Err(wrong("is no number"));
    }
    let (unsigned, long) = match suffix {
        "" => (false, false),
        "u" => (true, false),
        "l" | "ll" => (false, true),
        "ul" | "ull" | "lu" | "llu" => (true, true),
        _ => return Err(wrong("is no number")),
    };
    let value = u64::from_str_radix(digits, radix).map_err(|_| wrong("does not fit 64 bits"))?;
    let fits = |ty: &IntTy| value <= ty.max();
    let types = [IntTy::INT, IntTy::UINT, IntTy::LONG, IntTy::ULONG];
    let allowed = |ty: &IntTy| {
        (!long || ty.size == 8)
            && (!unsigned || !ty.signed)
            && (unsigned || radix != 10 || ty.signed || *ty == IntTy::ULONG)
    };
    let ty = types.into_iter().filter(allowed).find(fits).unwrap_or(IntTy::ULONG);
    Ok((Token::Int(value, ty), word.len()))
}

/// `'a'`, an int in C, of the value that a plain char has.
fn character(text: &str, start: usize, unsigned: bool) -> Result<(Token, usize), Error> {
    let (bytes, len) = quoted(text, '\'', start)?;
    match bytes.as_slice() {
        [one] if unsigned => Ok((Token::Int((*one).into(), IntTy::INT), len)),
        [one] => Ok((Token::Int(i64::from(one.cast_signed()) as u64, IntTy::INT), len)),
        _ => Err(Error::new(span(start, start + len), "a character constant is one character")),
    }
}

fn string(text: &str, start: usize) -> Result<(Token, usize), Error> {
    let (bytes, len) = quoted(text, '"', start)?;
    if bytes.contains(&0) {
        return Err(Error::new(span(start, start + len), "a text cannot hold a zero byte"));
    }
    Ok((Token::Str(bytes), len))
}

/// What stands between two quotes, C's escapes undone, and how long all of it is.
fn quoted(text: &str, quote: char, start: usize) -> Result<(Vec<u8>, usize), Error> {
    let mut bytes = Vec::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        let wrong = |end: usize, what: &str| Err(Error::new(span(start + at, start + end), what));
        if c == quote {
            return Ok((bytes, at + 1));
        }
        if c != '\\' {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let Some((at, escaped)) = chars.next() else { break };
        let mut digits = |radix: u32, most: usize, first: Option<char>| {
            let mut value = first.and_then(|c| c.to_digit(radix)).unwrap_or(0);
            let mut count = usize::from(first.is_some());
            while let Some(digit) = chars.peek().and_then(|(_, c)| c.to_digit(radix)).filter(|_| count < most)
            {
                value = value * radix + digit;
                count += 1;
                chars.next();
            }
            (count > 0).then(|| u8::try_from(value).ok()).flatten()
        };
        let byte = match escaped {
            'n' => Some(b'\n'),
            't' => Some(b'\t'),
            'r' => Some(b'\r'),
            'a' => Some(7),
            'b' => Some(8),
            'f' => Some(12),
            'v' => Some(11),
            'e' => Some(27),
            '\\' | '\'' | '"' | '?' => u8::try_from(escaped).ok(),
            'x' => digits(16, 2, None),
            '0'..='7' => digits(8, 3, Some(escaped)),
            _ => None,
        };
        match byte {
            Some(byte) => bytes.push(byte),
            None => return wrong(at + escaped.len_utf8(), "this escape has no meaning"),
        }
    }
    Err(Error::new(span(start, start + text.len()), format!("a closing {quote} is missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Token {
        tokens(text, false).expect(text).swap_remove(0).0
    }

    #[test]
    fn numbers_have_their_c_types() {
        let cases = [
            ("0", 0, IntTy::INT),
            ("2147483647", i32::MAX as u64, IntTy::INT),
            ("2147483648", 1 << 31, IntTy::LONG),
            ("0x7fffffff", i32::MAX as u64, IntTy::INT),
            ("0xffffffff", 0xffff_ffff, IntTy::UINT),
            ("0x100000000", 1 << 32, IntTy::LONG),
            ("0xffffffffffffffff", u64::MAX, IntTy::ULONG),
            ("18446744073709551615", u64::MAX, IntTy::ULONG),
            ("017", 15, IntTy::INT),
            ("0b101", 5, IntTy::INT),
            ("1u", 1, IntTy::UINT),
            ("1L", 1, IntTy::LONG),
            ("1uLL", 1, IntTy::ULONG),
            ("4294967296u", 1 << 32, IntTy::ULONG),
            ("'a'", 97, IntTy::INT),
            ("'\\n'", 10, IntTy::INT),
            ("'\\xff'", u64::MAX, IntTy::INT),
            ("'\\0'", 0, IntTy::INT),
        ];
        for (text, value, ty) in cases {
            assert_eq!(one(text), Token::Int(value, ty), "{text}");
        }
        assert_eq!(one(r#""a\tb\x41\101\\""#), Token::Str(b"a\tbAA\\".to_vec()));
    }

    #[test]
    fn what_is_no_word_is_an_error_at_its_place() {
        let cases = [
            ("1 + 0x", 4, 6),
            ("08", 0, 2),
            ("1lul", 0, 4),
            ("18446744073709551616", 0, 20),
            ("a @ b", 2, 3),
            ("a é", 2, 4),
            ("'ab'", 0, 4),
            ("\"abc", 0, 4),
            ("$ a", 0, 1),
            (r#""\q""#, 1, 3),
            (r#""\0""#, 0, 4),
        ];
        for (text, start, end) in cases {
            assert_eq!(tokens(text, false).expect_err(text).span, Span { start, end }, "{text}");
        }
        assert!(tokens(&"a".repeat(MOST_TEXT + 1), false).is_err());
    }

    #[test]
    fn signs_are_as_long_as_they_can_be() {
        let all = tokens("a->b>>c<=d&&e", false).expect("tokens");
        let signs: Vec<_> =
            all.iter().filter_map(|(t, _)| if let Token::Sign(s) = t { Some(*s) } else { None }).collect();
        assert_eq!(signs, ["->", ">>", "<=", "&&"]);
    }
}
