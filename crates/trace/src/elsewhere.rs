//! Functions that a name means besides the one that the kernel attaches a tracing program to: static functions of the same
//! name, and copies that the compiler made (`name.isra.0`, `name.constprop.0`, `name.part.0`).
//!
//! Only kallsyms knows them, and reading it takes longer than everything else at the start. So a trace begins without, looks
//! for them at leisure, and attaches to them then.

use crate::error::Error;
use crate::plan::Method;
use crate::sites::{self, Site};
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
    pub(crate) fn attached_by(&self, method: Method) -> String {
        self.said(&format!("are traced too, by {method}, from now on"))
    }

    /// One line on it, when attaching it failed.
    pub(crate) fn failed(&self, error: &Error) -> String {
        self.said(&format!("are not traced: {error}"))
    }

    /// One line on it, when it cannot be attached.
    pub(crate) fn hidden(&self) -> String {
        let hidden = symbols::Hidden::here();
        self.said(&format!(
            "are not traced: the kernel hides where they are ({}): {}",
            hidden.cause(),
            hidden.remedy()
        ))
    }

    /// One line on it, when the trace has ended before it could be attached.
    pub fn too_late(&self) -> String {
        self.said("were not traced: the trace ended before they were found")
    }

    /// Whether the kernel hides where it is.
    pub(crate) fn is_hidden(&self) -> bool {
        self.symbols.iter().any(|s| s.address == 0)
    }

    fn said(&self, fate: &str) -> String {
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
        let others = if same.is_empty() { "these" } else { "the others" };
        format!("{name}: {}; {others} {fate}", said.join("; "))
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
            one.attached_by(Method::Kprobe),
            "s_next: 3 functions have this name; the others are traced too, by kprobe, from now on"
        );
        one.symbols = vec![symbol("s_next.isra.0", 4)];
        let said = one.attached_by(Method::KprobeMulti);
        assert!(said.starts_with("s_next: the compiler made s_next.isra.0 of it"), "{said}");
        assert!(said.ends_with("; these are traced too, by kprobe_multi, from now on"), "{said}");
    }
}
