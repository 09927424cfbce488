//! What is wrong with an expression, and where.

use std::fmt;

/// Part of an expression's text, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Span {
    /// Its first byte.
    pub start: u32,
    /// The byte after its last.
    pub end: u32,
}

impl Span {
    /// From the beginning of one to the end of another.
    pub fn to(self, last: Span) -> Span {
        Span { start: self.start, end: last.end }
    }

    /// That part of the text; empty where it is none.
    pub fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// An expression that means nothing: one line, and the place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// Where.
    pub span: Span,
    /// What is wrong, and what may have been meant.
    pub message: String,
    /// The place names what this target does not have, and another may.
    pub unknown: bool,
}

impl Error {
    pub(crate) fn new(span: Span, message: impl Into<String>) -> Error {
        Error { span, message: message.into(), unknown: false }
    }

    /// What may have been meant: `; did you mean 'len'?`, or nothing.
    pub fn meant(&self) -> &str {
        self.message.find("; did you mean ").and_then(|at| self.message.get(at..)).unwrap_or_default()
    }

    /// What is said of a name in `text` that none of several targets has.
    pub fn of_none(self, targets: usize, text: &str) -> Error {
        let message = format!("none of the {targets} targets has '{}'{}", self.span.of(text), self.meant());
        Error { message, ..self }
    }

    /// The text with a caret under the place, two lines without a newline at the end. Of a long text the part around it.
    pub fn point(&self, text: &str) -> String {
        /// Characters shown before the place, and in all.
        const BEFORE: usize = 50;
        const WIDTH: usize = 100;
        let shown: Vec<char> = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let column = |byte: u32| text.char_indices().take_while(|(at, _)| *at < byte as usize).count();
        let (start, end) = (column(self.span.start), column(self.span.end));
        let from = start.saturating_sub(BEFORE);
        let line: String = shown.iter().skip(from).take(WIDTH).collect();
        let (before, after) =
            (if from > 0 { "…" } else { "" }, if shown.len() > from + WIDTH { "…" } else { "" });
        let caret = "~".repeat((end.min(from + WIDTH)).saturating_sub(start + 1));
        format!("  {before}{line}{after}\n  {}^{caret}", " ".repeat(start - from + before.chars().count()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// The nearest of some names to one that there is not: `; did you mean 'len'?`, or nothing.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    /// Names suggested, and how alike they must be.
    const MOST: usize = 3;
    const ALIKE: f64 = 0.75;
    let mut near: Vec<(f64, &str)> = names
        .filter(|candidate| !candidate.is_empty())
        .map(|candidate| (strsim::jaro_winkler(name, candidate), candidate))
        .filter(|(score, candidate)| *score >= ALIKE || (name.len() > 2 && candidate.contains(name)))
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    near.dedup_by_key(|(_, candidate)| *candidate);
    let near: Vec<String> = near.iter().take(MOST).map(|(_, candidate)| format!("'{candidate}'")).collect();
    match near.split_last() {
        None => String::new(),
        Some((one, [])) => format!("; did you mean {one}?"),
        Some((last, rest)) => format!("; did you mean {} or {last}?", rest.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caret_stands_under_the_place() {
        let error = Error::new(Span { start: 5, end: 9 }, "no such member");
        assert_eq!(error.point("skb->lenn > 100"), "  skb->lenn > 100\n       ^~~~");
        let end = Error::new(Span { start: 3, end: 3 }, "the end");
        assert_eq!(end.point("a +"), "  a +\n     ^");
        // Characters, not bytes; nothing that moves the cursor.
        let wide = Error::new(Span { start: 3, end: 5 }, "x");
        assert_eq!(wide.point("é\té$"), "  é é$\n    ^");
    }

    #[test]
    fn of_a_long_text_the_part_around_is_shown() {
        let text = format!("{}+{}", "a".repeat(300), "b".repeat(300));
        let pointed = Error::new(Span { start: 300, end: 301 }, "x").point(&text);
        let (line, caret) = pointed.split_once('\n').expect("two lines");
        assert_eq!(line.chars().nth(caret.chars().count() - 1), Some('+'));
        assert!(line.chars().count() < 110);
    }

    #[test]
    fn names_that_are_near_are_suggested() {
        let names = ["len", "data_len", "mac_len", "dev"];
        assert_eq!(nearest("lenn", names.into_iter()), "; did you mean 'len'?");
        assert_eq!(nearest("zzz", names.into_iter()), "");
    }
}
