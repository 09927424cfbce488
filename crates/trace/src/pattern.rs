//! Names and globs, as they are written after `-k` and `-t`.

use crate::error::Error;
use std::fmt;

/// A name, or a glob of `*`, `?`, `[…]` and `{a,b}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    glob: bool,
}

/// A list of alternatives has its bound.
const LONGEST: usize = 4096;

/// No kernel symbol is longer (`KSYM_NAME_LEN`, include/linux/kallsyms.h).
const LONGEST_NAME: usize = 511;

/// Characters of a pattern that an error repeats.
const SHOWN: usize = 60;

/// Names that the braces of a pattern stand for, at most: matching tries them all.
const MOST_ALTERNATIVES: usize = 1000;

/// An upper bound of the ways to read a pattern's braces: groups multiply, whether nested or in a row.
fn alternatives(text: &str) -> usize {
    let (mut ways, mut open) = (1usize, Vec::new());
    for c in text.chars() {
        match c {
            '{' => open.push(1usize),
            ',' => {
                if let Some(count) = open.last_mut() {
                    *count += 1;
                }
            }
            '}' => ways = ways.saturating_mul(open.pop().unwrap_or(1)),
            _ => {}
        }
    }
    ways
}

impl Pattern {
    /// Reads one pattern.
    pub fn new(text: &str) -> Result<Pattern, Error> {
        let shown: String =
            text.chars().take(SHOWN).chain((text.chars().count() > SHOWN).then_some('…')).collect();
        let bad = |reason: &str| Err(Error::Pattern { pattern: shown.clone(), reason: reason.into() });
        if text.is_empty() {
            return bad("an empty name");
        }
        if text.len() > LONGEST {
            return bad("longer than 4096 characters");
        }
        let (mut braces, mut brackets) = (0i32, false);
        for c in text.chars() {
            match c {
                '[' if !brackets => brackets = true,
                ']' if brackets => brackets = false,
                '{' if !brackets => braces += 1,
                '}' if !brackets => braces -= 1,
                c if c.is_whitespace() || c.is_control() => return bad("white space in a name"),
                _ => {}
            }
            if braces < 0 {
                return bad("a } without its {");
            }
            if braces > 8 {
                return bad("braces nested more than 8 deep");
            }
        }
        if brackets {
            return bad("a [ without its ]");
        }
        if braces > 0 {
            return bad("a { without its }");
        }
        if text.starts_with('!') {
            return bad("a leading ! (there are no negated patterns)");
        }
        if alternatives(text) > MOST_ALTERNATIVES {
            return bad("more than 1000 alternatives in its braces");
        }
        let glob = text.contains(['*', '?', '[', '{']);
        if !glob && text.len() > LONGEST_NAME {
            return bad("longer than any kernel symbol");
        }
        Ok(Pattern { text: text.into(), glob })
    }

    /// Whether it can match more than one name.
    pub fn is_glob(&self) -> bool {
        self.glob
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches `name`, whole.
    pub fn matches(&self, name: &str) -> bool {
        if self.glob { fast_glob::glob_match(&self.text, name) } else { self.text == name }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Splits `a,b{c,d},e` at the commas outside braces and brackets. Empty parts stay, for [`Pattern::new`] to refuse.
pub fn split_list(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0i32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth <= 0 => {
                parts.extend(text.get(from..at));
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.extend(text.get(from..));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_split_outside_braces() {
        assert_eq!(split_list("a"), ["a"]);
        assert_eq!(split_list("a,b"), ["a", "b"]);
        assert_eq!(split_list("vfs_{read,write},tcp_*"), ["vfs_{read,write}", "tcp_*"]);
        assert_eq!(split_list("a,,b,"), ["a", "", "b", ""]);
    }

    #[test]
    fn globs_match_whole_names() {
        let p = |s| Pattern::new(s).expect("pattern");
        assert!(p("vfs_read").matches("vfs_read") && !p("vfs_read").matches("vfs_readv"));
        assert!(p("vfs_*").matches("vfs_read") && !p("vfs_*").matches("do_vfs_read"));
        assert!(p("vfs_{read,write}").matches("vfs_write") && !p("vfs_{read,write}").matches("vfs_writev"));
        assert!(p("tcp_[sr]*").matches("tcp_sendmsg") && !p("tcp_[sr]*").matches("tcp_connect"));
        assert!(p("tcp_?ack").matches("tcp_rack") && !p("vfs_read").is_glob());
    }

    #[test]
    fn unreadable_patterns_are_refused() {
        for bad in ["", "a b", "a{b", "a}b", "a[b", "{{{{{{{{{x}}}}}}}}}", "a\tb", "!a*"] {
            assert!(Pattern::new(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn patterns_that_would_take_for_ever_are_refused() {
        assert!(Pattern::new(&format!("{}Z", "*{a,b,_,e}".repeat(30))).is_err());
        assert!(Pattern::new("vfs_{read,write,open,{f,}sync}").is_ok());
        assert!(Pattern::new(&"x".repeat(512)).is_err_and(|e| e.to_string().len() < 200));
    }

    proptest! {
        #[test]
        fn no_input_panics(text in "\\PC{0,40}", name in "[a-z_0-9]{0,20}") {
            for part in split_list(&text) {
                if let Ok(pattern) = Pattern::new(part) {
                    let _ = pattern.matches(&name);
                }
            }
        }
    }
}
