//! Functions that a name means besides the one that the kernel attaches a tracing program to: static functions of the same
//! name, and copies that the compiler made (`name.isra.0`, `name.constprop.0`, `name.part.0`).
//!
//! Only kallsyms knows them, and reading it takes longer than everything else at the start. So a trace begins without, looks
//! for them at leisure, and attaches to them then.

use crate::error::Error;
use crate::plan::Method;
use crate::sites::{self, Site};
use std::fmt;
use symbols::Symbol;

/// A function that is traced by its name.
#[derive(Clone, Debug)]
pub struct Function {
    /// Index of its probe in the plan; of the exit's where both ends are taken.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its module.
    pub module: Option<String>,
    /// The function of that very name is traced already.
    pub attached: bool,
}

/// Further places of a function.
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// The function.
    pub function: Function,
    /// What else it means. Never empty.
    pub symbols: Vec<Symbol>,
    /// Functions of the very name, all told; 0 when there are only copies.
    pub namesakes: usize,
}

impl Elsewhere {
    /// One line on it, once it is attached.
    pub(crate) fn attached_by(&self, method: Method) -> Remark {
        self.said(&format!("are traced too, by {method}, from now on"))
    }

    /// One line on it, when attaching it failed.
    pub(crate) fn failed(&self, error: &Error) -> Remark {
        self.said(&format!("are not traced: {error}"))
    }

    /// One line on it, when it cannot be attached.
    pub(crate) fn hidden(&self) -> Remark {
        let hidden = symbols::Hidden::here();
        self.said(&format!(
            "are not traced: the kernel hides where they are ({}): {}",
            hidden.cause(),
            hidden.remedy()
        ))
    }

    /// One line on it, when the trace has ended before it could be attached.
    pub fn too_late(&self) -> Remark {
        self.said("were not traced: the trace ended before they were found")
    }

    /// Whether the kernel hides where it is.
    pub(crate) fn is_hidden(&self) -> bool {
        self.symbols.iter().any(|s| s.address == 0)
    }

    fn said(&self, fate: &str) -> Remark {
        let name = &self.function.name;
        let (same, copies): (Vec<&Symbol>, Vec<&Symbol>) = self.symbols.iter().partition(|s| &s.name == name);
        let copies: Vec<&str> = copies.iter().map(|s| s.name.as_str()).collect();
        let mut said = Vec::new();
        if !same.is_empty() {
            said.push(format!("{} functions have this name", self.namesakes));
        }
        if !copies.is_empty() {
            said.push(format!(
                "the compiler made {} of it, where arguments may be left out or differ from the prototype",
                copies.join(", ")
            ));
        }
        Remark {
            name: name.clone(),
            what: said.join("; "),
            others: if same.is_empty() { "these" } else { "the others" },
            fate: fate.into(),
        }
    }
}

/// What became of the further places of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The function.
    name: String,
    /// What the places are.
    what: String,
    /// How they are referred to.
    others: &'static str,
    /// What became of them.
    fate: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {} {}", self.name, self.what, self.others, self.fate)
    }
}

impl Remark {
    /// A line for all remarks on functions whose further places met the same fate, in the order of the first of each.
    pub fn together(remarks: &[Remark]) -> Vec<String> {
        /// At most so many functions are named in a line.
        const NAMED: usize = 3;
        let mut fates: Vec<(&str, Vec<&Remark>)> = Vec::new();
        for remark in remarks {
            match fates.iter_mut().find(|(fate, _)| *fate == remark.fate) {
                Some((_, alike)) => alike.push(remark),
                None => fates.push((&remark.fate, vec![remark])),
            }
        }
        let line = |(fate, alike): (&str, Vec<&Remark>)| match alike.as_slice() {
            [one] => one.to_string(),
            all => {
                let mut names: Vec<String> = all.iter().take(NAMED).map(|r| r.name.clone()).collect();
                let more = all.len().saturating_sub(NAMED);
                if more > 0 {
                    names.push(format!("{more} more, which -v names"));
                }
                format!(
                    "of {} functions there are others of the name, or copies that the compiler made ({}); these {fate}",
                    all.len(),
                    names.join(", ")
                )
            }
        };
        fates.into_iter().map(line).collect()
    }
}

/// Looks for further places of these functions. Takes as long as reading kallsyms does.
///
/// # Errors
/// kallsyms cannot be read.
pub fn elsewhere(functions: &[Function]) -> Result<Vec<Elsewhere>, Error> {
    let names: Vec<&str> = functions.iter().map(|f| f.name.as_str()).collect();
    let unknown = |reason: String| Error::Target { target: "functions of the same name".into(), reason };
    let found = symbols::namesakes(&names).map_err(|e| unknown(e.to_string()))?;
    let candidates: Vec<(&Function, Vec<Symbol>)> = functions
        .iter()
        .zip(found)
        .map(|(function, mut symbols)| {
            // What is jumped to is no function, and a return probe there would corrupt the stack.
            symbols.retain(|s| s.module == function.module && !s.name.contains(".cold"));
            (function, symbols)
        })
        .filter(|(function, symbols)| {
            symbols.iter().filter(|s| s.name == function.name).count() != symbols.len() || symbols.len() > 1
        })
        .collect();
    let names: Vec<&str> = candidates.iter().map(|(f, _)| f.name.as_str()).collect();
    // Older kernels, which cannot be asked, take the first.
    let attached = sites::sites(&names).unwrap_or_default();
    let further = candidates.into_iter().enumerate().map(|(at, (function, mut symbols))| {
        let namesakes = symbols.iter().filter(|s| s.name == function.name).count();
        let by_name = match attached.get(at) {
            Some(Site::Patchable(address) | Site::Fixed(address)) => Some(*address),
            Some(Site::Absent) => None,
            None => symbols.iter().find(|s| s.name == function.name).map(|s| s.address),
        };
        if symbols.iter().all(|s| s.address == 0) {
            // Which is which cannot be told; one of them is traced.
            if let Some(at) = symbols.iter().position(|s| s.name == function.name) {
                symbols.remove(at);
            }
        } else {
            symbols.retain(|s| Some(s.address) != by_name);
        }
        Elsewhere { function: function.clone(), symbols, namesakes }
    });
    Ok(further.filter(|e| !e.symbols.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(name: &str, address: u64) -> Symbol {
        Symbol { address, kind: 't', name: name.into(), module: None }
    }

    #[test]
    fn what_else_is_traced_is_said() {
        let function = Function { index: 0, name: "s_next".into(), module: None, attached: true };
        let mut one =
            Elsewhere { function, symbols: vec![symbol("s_next", 2), symbol("s_next", 3)], namesakes: 3 };
        assert_eq!(
            one.attached_by(Method::Kprobe).to_string(),
            "s_next: 3 functions have this name; the others are traced too, by kprobe, from now on"
        );
        one.symbols = vec![symbol("s_next.isra.0", 4)];
        let said = one.attached_by(Method::KprobeMulti).to_string();
        assert!(said.starts_with("s_next: the compiler made s_next.isra.0 of it"), "{said}");
        assert!(said.ends_with("; these are traced too, by kprobe_multi, from now on"), "{said}");
    }

    #[test]
    fn what_is_true_of_several_functions_is_one_line() {
        let of = |name: &str| Elsewhere {
            function: Function { index: 0, name: name.into(), module: None, attached: true },
            symbols: vec![symbol(&format!("{name}.part.0"), 1)],
            namesakes: 0,
        };
        let late: Vec<Remark> = ["a", "b", "c", "d", "e"].iter().map(|name| of(name).too_late()).collect();
        let traced = of("f").attached_by(Method::Kprobe);
        let all: Vec<Remark> = [&late[..2], std::slice::from_ref(&traced), &late[2..]].concat();
        let lines = Remark::together(&all);
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(
            lines[0],
            "of 5 functions there are others of the name, or copies that the compiler made (a, b, c, 2 more, which -v names); \
             these were not traced: the trace ended before they were found"
        );
        assert_eq!(lines[1], traced.to_string());
        let two = Remark::together(&late[..2]);
        assert!(two.len() == 1 && two[0].contains("(a, b);"), "{two:?}");
    }
}
