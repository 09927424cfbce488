//! What may stand after `btrace types`: names and globs, with the keyword that C has before them, and with a module.

use anyhow::Context;
use btf::Kind;
use trace::{Pattern, Scope, split_list};

/// What a pattern is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keyword {
    Struct,
    Union,
    Enum,
    Typedef,
    Func,
    Var,
}

impl Keyword {
    fn read(word: &str) -> Option<Keyword> {
        Some(match word {
            "struct" => Keyword::Struct,
            "union" => Keyword::Union,
            "enum" => Keyword::Enum,
            "typedef" => Keyword::Typedef,
            "func" => Keyword::Func,
            "var" => Keyword::Var,
            _ => return None,
        })
    }

    /// In words.
    pub fn noun(self) -> &'static str {
        match self {
            Keyword::Struct => "struct",
            Keyword::Union => "union",
            Keyword::Enum => "enum",
            Keyword::Typedef => "typedef",
            Keyword::Func => "function",
            Keyword::Var => "variable",
        }
    }

    /// What BTF has for it.
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Keyword::Struct => &[Kind::Struct],
            Keyword::Union => &[Kind::Union],
            Keyword::Enum => &[Kind::Enum, Kind::Enum64],
            Keyword::Typedef => &[Kind::Typedef],
            Keyword::Func => &[Kind::Func],
            Keyword::Var => &[Kind::Var],
        }
    }
}

/// What a name without a keyword may be; of a glob the first five.
const ANY: &[Kind] = &[
    Kind::Struct,
    Kind::Union,
    Kind::Enum,
    Kind::Enum64,
    Kind::Typedef,
    Kind::Int,
    Kind::Float,
    Kind::Func,
    Kind::Var,
    Kind::Datasec,
];

/// One pattern.
#[derive(Clone, Debug)]
pub struct Query {
    /// The keyword before it.
    pub keyword: Option<Keyword>,
    /// Name or glob.
    pub name: Name,
    /// Where it is looked for.
    pub scope: Scope,
}

/// What is looked for.
#[derive(Clone, Debug)]
pub enum Name {
    /// A name or glob.
    Pattern(Pattern),
    /// A type of the language in several words: `unsigned long`.
    Words(String),
}

impl Query {
    /// The kinds that it can be.
    pub fn kinds(&self) -> &'static [Kind] {
        match (self.keyword, self.is_glob()) {
            (Some(keyword), _) => keyword.kinds(),
            // A glob that is about functions says so: there are too many.
            (None, true) => ANY.get(..5).unwrap_or(ANY),
            (None, false) => ANY,
        }
    }

    pub fn is_glob(&self) -> bool {
        matches!(&self.name, Name::Pattern(pattern) if pattern.is_glob())
    }

    /// The name as written, without keyword and module.
    pub fn as_str(&self) -> &str {
        match &self.name {
            Name::Pattern(pattern) => pattern.as_str(),
            Name::Words(words) => words,
        }
    }
}

/// Reads the arguments: lists separated by commas. A keyword that is an argument of its own is for the next one.
pub fn parse(arguments: &[String]) -> anyhow::Result<Vec<Query>> {
    let (mut queries, mut before) = (Vec::new(), None);
    for argument in arguments {
        let whole = match before.take() {
            Some(keyword) => format!("{keyword} {argument}"),
            None => argument.clone(),
        };
        if Keyword::read(whole.trim()).is_some() {
            before = Some(whole);
            continue;
        }
        for part in split_list(&whole) {
            queries.push(one(part).with_context(|| format!("types {part:?}"))?);
        }
    }
    match before {
        // No name is one of C's own words.
        Some(word)
            if word.ends_with(' ') || matches!(word.trim(), "struct" | "union" | "enum" | "typedef") =>
        {
            anyhow::bail!("types: a name is missing after {}", word.trim())
        }
        // `btrace types var`: what else could it be than a name?
        Some(word) => queries.push(one(&word)?),
        None if queries.is_empty() => anyhow::bail!("types: no name was given"),
        None => {}
    }
    Ok(queries)
}

fn one(text: &str) -> anyhow::Result<Query> {
    let text = text.trim();
    if let Some(pointed_at) = text.strip_suffix('*').map(|t| t.trim_end_matches(['*', ' ']))
        && pointed_at.contains(char::is_whitespace)
        && text.contains(" *")
    {
        anyhow::bail!("a pointer has no layout of its own: leave out the *, {pointed_at:?}");
    }
    let (mut keyword, rest) = keyword(text);
    let (scope, rest) = match rest.split_once(':') {
        Some((module, rest)) => {
            // The kernel's names of modules have underscores where their files may have dashes.
            (Scope::Module(Pattern::new(&module.trim().replace('-', "_"))?), rest)
        }
        None => (Scope::Kernel, rest),
    };
    // Behind the module it may stand too.
    let (second, name) = self::keyword(rest);
    keyword = keyword.or(second);
    let words = keyword.is_none() && name.split_whitespace().count() > 1;
    let name = match words {
        true => Name::Words(name.to_owned()),
        false => Name::Pattern(Pattern::new(name)?),
    };
    Ok(Query { keyword, name, scope })
}

/// The keyword that a text begins with, and the rest.
fn keyword(text: &str) -> (Option<Keyword>, &str) {
    let text = text.trim();
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) if Keyword::read(word).is_some() => (Keyword::read(word), rest.trim_start()),
        _ => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str]) -> Vec<Query> {
        parse(&arguments.iter().map(ToString::to_string).collect::<Vec<_>>()).expect("queries")
    }

    #[test]
    fn keywords_modules_and_lists() {
        let queries =
            read(&["struct sk_buff, sock_*", "union", "x", "m-y:struct z", "func m:f", "unsigned long"]);
        let short: Vec<_> = queries.iter().map(|q| (q.keyword, q.as_str(), q.is_glob())).collect();
        assert_eq!(
            short,
            [
                (Some(Keyword::Struct), "sk_buff", false),
                (None, "sock_*", true),
                (Some(Keyword::Union), "x", false),
                (Some(Keyword::Struct), "z", false),
                (Some(Keyword::Func), "f", false),
                (None, "unsigned long", false),
            ]
        );
        assert!(matches!(&queries[3].scope, Scope::Module(m) if m.as_str() == "m_y"));
        assert!(matches!(&queries[4].scope, Scope::Module(m) if m.as_str() == "m"));
        assert!(matches!(queries[5].name, Name::Words(_)));
        assert_eq!(read(&["var"])[0].keyword, None);
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        for bad in [
            &[""][..],
            &["a,,b"],
            &["struct a b"],
            &["a{b"],
            &["struct"],
            &["struct "],
            &["struct a *"],
            &["m:"],
            &[":m"],
            &[],
        ] {
            let bad: Vec<String> = bad.iter().map(ToString::to_string).collect();
            assert!(parse(&bad).is_err(), "{bad:?}");
        }
    }
}
