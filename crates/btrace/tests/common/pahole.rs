//! What `pahole` and `btrace types` say of structs and unions, held against each other: the same text but for blanks.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A struct or union: its size, where it is told (pahole tells no union's), and its members in print.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub size: Option<u64>,
    pub members: Vec<Member>,
}

/// A member, or the end of one that is written out: its name, offset, lowest bit of a bit-field, size.
pub type Member = (String, u64, Option<u64>, u64);

/// Layouts by `struct name`; C files may have unlike ones of a name.
pub type Layouts = BTreeMap<String, Vec<Layout>>;

/// Reads what either of them prints.
pub fn layouts(text: &str) -> Layouts {
    let mut layouts = Layouts::new();
    let mut current: Option<(&str, Layout)> = None;
    for line in text.lines() {
        let begins = line.strip_suffix(" {").filter(|l| l.starts_with("struct ") || l.starts_with("union "));
        if let Some(name) = begins.filter(|name| name.split(' ').count() == 2) {
            current = Some((name, Layout { size: None, members: Vec::new() }));
            continue;
        }
        if line.starts_with('}') {
            if let Some((name, layout)) = current.take() {
                layouts.entry(name.to_owned()).or_default().push(layout);
            }
            continue;
        }
        let Some((_, layout)) = &mut current else { continue };
        let outermost = line.starts_with("\t/* size: ") || line.starts_with("    /* size: ");
        let size = outermost.then(|| line.split("size: ").nth(1)?.split(',').next()?.parse().ok()).flatten();
        match size {
            Some(size) => layout.size = Some(size),
            None => layout.members.extend(member(line)),
        }
    }
    layouts
}

/// `u8 x:3; /* 126: 4  1 */`
fn member(line: &str) -> Option<Member> {
    let (declaration, comment) = line.rsplit_once("/*")?;
    let declaration = declaration.trim().strip_suffix(';')?;
    let place = comment.strip_suffix("*/")?.replace(':', " : ");
    let words: Vec<&str> = place.split_whitespace().collect();
    let (offset, bit, size) = match words.as_slice() {
        [offset, size] => (*offset, None, *size),
        [offset, ":", bit, size] => (*offset, Some(bit.parse().ok()?), *size),
        _ => return None,
    };
    Some((name(&without_attributes(declaration)).to_owned(), offset.parse().ok()?, bit, size.parse().ok()?))
}

/// pahole works out alignments, and writes them where they apply: `} __attribute__((__packed__)) x`.
fn without_attributes(declaration: &str) -> String {
    let mut parts = declaration.split("__attribute__");
    let mut left = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let mut open = 0_i32;
        let end = part.find(|c| {
            open += i32::from(c == '(') - i32::from(c == ')');
            open == 0 && c == ')'
        });
        left += end.and_then(|end| part.get(end + 1..)).unwrap_or_default();
    }
    left
}

/// The name that is declared: the types are spelled in two ways, and pahole leaves parts of some out.
fn name(declaration: &str) -> &str {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    if let Some((_, inner)) = declaration.split_once("(*") {
        let inner = inner.trim_start_matches('*').trim_start();
        let inner = inner.strip_prefix("const ").unwrap_or(inner);
        return inner.split(|c| !word(c)).next().unwrap_or_default();
    }
    let end = declaration.trim_end().split([':', '[']).next().unwrap_or(declaration).trim_end();
    end.rsplit(|c| !word(c)).next().unwrap_or_default()
}

/// How many of theirs are the same with us, and the others, each with what differs first.
pub fn compare(ours: &Layouts, theirs: &Layouts) -> (usize, Vec<String>) {
    let (mut same, mut wrong) = (0, Vec::new());
    let alike = |a: &Layout, b: &Layout| a.members == b.members && (b.size.is_none() || a.size == b.size);
    for (name, all) in theirs {
        let candidates = ours.get(name).map_or(&[][..], Vec::as_slice);
        for layout in all {
            match candidates.first() {
                _ if candidates.iter().any(|ours| alike(ours, layout)) => same += 1,
                None => wrong.push(format!("{name}: not with us")),
                Some(ours) => {
                    let first = ours.members.iter().zip(&layout.members).find(|(a, b)| a != b);
                    let sizes = (ours.size, layout.size, ours.members.len(), layout.members.len());
                    wrong.push(format!("{name}: ours, theirs: {first:?}, sizes and members {sizes:?}"));
                }
            }
        }
    }
    (same, wrong)
}

/// All structs and unions of a file of BTF as pahole prints them. It must be installed: nothing else says whether ours is right.
///
/// What pahole does not know (tags on declarations) it says on stderr, and goes on.
///
/// # Errors
/// It is not installed, or cannot read the file.
pub fn pahole(btf: &Path) -> Result<String, String> {
    let output = Command::new("pahole").arg(btf).output().map_err(|e| {
        format!("pahole: {e}: it is needed here; install the package of that name (cargo xtask test does)")
    })?;
    if !output.status.success() {
        return Err(format!("pahole: {}", String::from_utf8_lossy(&output.stderr)));
    }
    String::from_utf8(output.stdout).map_err(|e| format!("pahole: {e}"))
}
