//! What is written after `-p`: which BPF programs, and which of their functions.

use crate::error::Error;
use crate::pattern::Pattern;
use std::fmt;
use std::path::PathBuf;

/// Which programs are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramSelector {
    /// The one with this id.
    Id(u32),
    /// All of that name: the whole one, or as much of it as the kernel keeps.
    Name(Pattern),
    /// All with this tag, a hash of their instructions.
    Tag([u8; 8]),
    /// The one pinned at this path, or that the link pinned there runs.
    Pinned(PathBuf),
    /// All that this process holds descriptors of, by themselves or in links.
    Process(u32),
    /// Every program there is.
    All,
}

/// One target of `-p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramSpec {
    /// As written.
    pub text: String,
    /// Which programs.
    pub selector: ProgramSelector,
    /// Which of their functions; `None` for the main one.
    pub function: Option<Pattern>,
}

/// The forms, for those who wrote none of them.
const FORMS: &str = "a program is named by its id, n:NAME, t:TAG, p:PATH, pid:PID, or * for all, each with :FUNCTION if one of its subprograms is meant";

/// Bytes of a tag (`BPF_TAG_SIZE`, include/uapi/linux/bpf.h).
const TAG_SIZE: usize = 8;

impl ProgramSpec {
    /// Reads `ID`, `i:ID`, `n:NAME`, `t:TAG`, `p:PATH`, `pid:PID` or `*`, with or without `:FUNCTION`; `id:`, `name:`,
    /// `tag:` and `pinned:` are the same in full.
    ///
    /// # Errors
    /// [`Error::Pattern`] with what is wrong.
    pub fn new(text: &str) -> Result<ProgramSpec, Error> {
        let bad = |reason: String| Error::Pattern { pattern: shown(text), reason };
        if text.is_empty() {
            return Err(bad(format!("an empty name; {FORMS}")));
        }
        let (head, rest) = match text.split_once(':') {
            Some((head, rest)) => (head, Some(rest)),
            None => (text, None),
        };
        // `what:function`, where the first part has no colon of its own.
        let split = |rest: &str| match rest.split_once(':') {
            Some((what, function)) => (what.to_string(), Some(function.to_string())),
            None => (rest.to_string(), None),
        };
        let number = |digits: &str, what: &str| match digits.parse::<u32>() {
            Ok(n) if (1..=i32::MAX as u32).contains(&n) && digits.bytes().all(|b| b.is_ascii_digit()) => {
                Ok(n)
            }
            _ => Err(bad(format!("{:?} is no {what}", shown(digits)))),
        };
        let (selector, function) = match (head, rest) {
            ("*", rest) => (ProgramSelector::All, rest.map(str::to_string)),
            ("i" | "id", Some(rest)) => {
                let (id, function) = split(rest);
                (ProgramSelector::Id(number(&id, "program id")?), function)
            }
            ("n" | "name", Some(rest)) => {
                let (name, function) = split(rest);
                (ProgramSelector::Name(Pattern::new(&name)?), function)
            }
            ("t" | "tag", Some(rest)) => {
                let (tag, function) = split(rest);
                let tag = tag_bytes(&tag).ok_or_else(|| {
                    bad(format!("{:?} is no tag: a tag has 16 hexadecimal digits", shown(&tag)))
                })?;
                (ProgramSelector::Tag(tag), function)
            }
            ("p" | "pinned", Some(rest)) => {
                let (path, function) = path_and_function(rest);
                if path.is_empty() {
                    return Err(bad("an empty path".into()));
                }
                (ProgramSelector::Pinned(path.into()), function.map(str::to_string))
            }
            ("pid", Some(rest)) => {
                let (pid, function) = split(rest);
                (ProgramSelector::Process(number(&pid, "process id")?), function)
            }
            (id, rest) if id.starts_with(|c: char| c.is_ascii_digit()) => {
                (ProgramSelector::Id(number(id, "program id")?), rest.map(str::to_string))
            }
            (name, None) => {
                return Err(bad(format!(
                    "not a program id; n:{} means programs of that name, * all",
                    shown(name)
                )));
            }
            _ => return Err(bad(FORMS.into())),
        };
        let function = function.map(|f| Pattern::new(&f)).transpose()?;
        Ok(ProgramSpec { text: text.into(), selector, function })
    }

    /// Whether it can mean more than one program.
    pub(crate) fn is_plural(&self) -> bool {
        !matches!(self.selector, ProgramSelector::Id(_) | ProgramSelector::Pinned(_))
    }
}

impl fmt::Display for ProgramSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.text))
    }
}

/// Characters of a target that an error repeats: a path may be long.
const SHOWN: usize = 200;

/// A text as an error can repeat it: nothing that a terminal would act on, and not too much of it.
pub(crate) fn shown(text: &str) -> String {
    let mut chars = text.chars();
    let mut shown: String = chars
        .by_ref()
        .take(SHOWN)
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if chars.next().is_some() {
        shown.push('…');
    }
    shown
}

/// A pinned path, and the function after its last colon. A name has no slash in it, so a colon in a folder's name is none.
fn path_and_function(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((path, function)) if !function.contains('/') => (path, Some(function)),
        _ => (text, None),
    }
}

fn tag_bytes(text: &str) -> Option<[u8; TAG_SIZE]> {
    if text.len() != 2 * TAG_SIZE || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let number = u64::from_str_radix(text, 16).ok()?;
    Some(number.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec(text: &str) -> (ProgramSelector, Option<String>) {
        let spec = ProgramSpec::new(text).expect(text);
        (spec.selector, spec.function.map(|f| f.to_string()))
    }

    #[test]
    fn every_form_with_and_without_a_function() {
        let name = |n: &str| ProgramSelector::Name(Pattern::new(n).expect("pattern"));
        let pinned = |p: &str| ProgramSelector::Pinned(p.into());
        let tag = ProgramSelector::Tag([0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
        for (text, selector, function) in [
            ("183", ProgramSelector::Id(183), None),
            ("183:sub", ProgramSelector::Id(183), Some("sub")),
            ("i:7", ProgramSelector::Id(7), None),
            ("id:7:s*", ProgramSelector::Id(7), Some("s*")),
            ("n:a_name", name("a_name"), None),
            ("name:a_*:f", name("a_*"), Some("f")),
            ("t:0123456789abcdef", tag.clone(), None),
            ("tag:0123456789ABCDEF:f", tag, Some("f")),
            ("p:/sys/fs/bpf/x", pinned("/sys/fs/bpf/x"), None),
            ("pinned:/sys/fs/bpf/x:f", pinned("/sys/fs/bpf/x"), Some("f")),
            ("p:/a:b/c", pinned("/a:b/c"), None),
            ("p:/a:b/c:d:f", pinned("/a:b/c:d"), Some("f")),
            ("pid:1", ProgramSelector::Process(1), None),
            ("pid:1:*", ProgramSelector::Process(1), Some("*")),
            ("*", ProgramSelector::All, None),
            ("*:f", ProgramSelector::All, Some("f")),
        ] {
            assert_eq!(spec(text), (selector, function.map(str::to_string)), "{text}");
        }
    }

    #[test]
    fn what_is_none_of_them_is_refused_with_the_way_out() {
        for (text, why) in [
            ("", "an empty name"),
            ("foo", "n:foo means programs of that name"),
            ("x:foo", "a program is named by its id"),
            ("0", "no program id"),
            ("i:", "no program id"),
            ("-1", "n:-1"),
            ("+1", "n:+1"),
            ("12x", "no program id"),
            ("99999999999", "no program id"),
            ("t:abc", "16 hexadecimal digits"),
            ("t:+123456789abcdef", "16 hexadecimal digits"),
            ("p:", "an empty path"),
            ("n:", "an empty name"),
            ("n:a:", "an empty name"),
            ("5:", "an empty name"),
            ("pid:0", "no process id"),
            ("pid:me", "no process id"),
        ] {
            let error = ProgramSpec::new(text).expect_err(text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_input_panics(text in "(|i:|n:|t:|p:|pid:|\\*)\\PC{0,40}") {
            let said = match ProgramSpec::new(&text) {
                Ok(spec) => spec.to_string(),
                Err(error) => error.to_string(),
            };
            prop_assert!(!said.chars().any(char::is_control) && said.len() < 2000, "{said:?}");
        }
    }
}
