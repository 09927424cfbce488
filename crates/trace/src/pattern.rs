//! Names and globs, as they are written after `-k` and `-t`.

use crate::error::Error;
use std::fmt;

/// A name, or a glob of `*`, `?`, `[…]` and `{a,b}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    glob: bool,
}

/// No kernel symbol is longer (`KSYM_NAME_LEN`, include/linux/kallsyms.h), and a list of alternatives has its bound
/// too.
const LONGEST: usize = 4096;

impl Pattern {
    /// Reads one pattern.
    pub fn new(text: &str) -> Result<Pattern, Error> {
        let bad = |reason: &str| Err(Error::Pattern { pattern: text.into(), reason: reason.into() });
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
        let glob = text.contains(['*', '?', '[', '{']);
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
        for bad in ["", "a b", "a{b", "a}b", "a[b", "{{{{{{{{{x}}}}}}}}}", "a\tb"] {
            assert!(Pattern::new(bad).is_err(), "{bad:?}");
        }
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
