//! Names as a C compiler looks them up: tags, types, enumerators, variables; each walk is made once.

use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;

use crate::open::Btf;
use crate::types::{Kind, TypeId};

/// The section of per-CPU variables, whose addresses in it are offsets from each CPU's base.
const PER_CPU: &str = ".data..percpu";

/// An enumerator, and the enum it is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EnumeratorRef {
    /// Its enum, a type of kind [`Kind::Enum`] or [`Kind::Enum64`]; often without a name.
    pub of: TypeId,
    /// Its value.
    pub value: i128,
    /// Whether the enum's values are signed. Kernels before 6.0 do not write it: there nothing is, and -1 is 4294967295.
    pub signed: bool,
    /// Bytes of the enum: 1 to 8.
    pub size: u32,
}

/// A global variable of the kernel or of a module.
///
/// BTF has those that somebody asked `pahole` for: as a rule the per-CPU variables alone. Where a variable lies in memory,
/// `/proc/kallsyms` tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The variable, a type of kind [`Kind::Var`]: what `BPF_PSEUDO_BTF_ID` takes.
    pub id: TypeId,
    /// The type of its value.
    pub ty: TypeId,
    /// The section it lies in, such as `.data..percpu`; `None` if BTF names none.
    pub section: Option<String>,
    /// Bytes from the beginning of the section. (Of a linked kernel's sections but that of per-CPU variables, pahole writes
    /// addresses cut to 32 bits.)
    pub offset: u32,
    /// Bytes, as the section has it; 0 if no section has it.
    pub size: u32,
}

impl Variable {
    /// Whether each CPU has its own.
    pub fn is_per_cpu(&self) -> bool {
        self.section.as_deref() == Some(PER_CPU)
    }
}

impl Btf {
    /// The first enumerator of this name in any enum, in one walk over all of them ([`Btf::find_enumerators`] for many).
    ///
    /// Enumerators of unlike enums may share a name, for C files do not see each other: [`Btf::enumerators_named`] has all.
    pub fn find_enumerator(&self, name: &str) -> Option<EnumeratorRef> {
        let (of, found) = self.find_enumerators(&[name]).into_iter().next().flatten()?;
        self.enumerator_ref(of, found.value)
    }

    /// Every enumerator of this name, in order of their enums.
    pub fn enumerators_named(&self, name: &str) -> Vec<EnumeratorRef> {
        let mut all = Vec::new();
        for kind in [Kind::Enum, Kind::Enum64] {
            for ty in self.ids_of(kind).filter_map(|id| self.get(id).ok()) {
                let named = ty.enumerators().filter(|e| e.name == name);
                all.extend(named.filter_map(|e| self.enumerator_ref(ty.id(), e.value)));
            }
        }
        all.sort_unstable_by_key(|e| e.of);
        all
    }

    /// The names of all enumerators, for those who look for what a name may have been meant for. An enum at a time, each name as
    /// often as there are enums that have it.
    pub fn enumerator_names(&self) -> impl Iterator<Item = &str> {
        let kinds = [Kind::Enum, Kind::Enum64].into_iter();
        let enums = kinds.flat_map(|kind| self.ids_of(kind)).filter_map(|id| self.get(id).ok());
        enums.flat_map(|ty| ty.enumerators()).map(|e| e.name)
    }

    fn enumerator_ref(&self, of: TypeId, value: i128) -> Option<EnumeratorRef> {
        let ty = self.get(of).ok()?;
        Some(EnumeratorRef { of, value, signed: ty.is_signed_enum(), size: ty.size().unwrap_or(0) })
    }

    /// The first variable of this name ([`Kind::Var`]), and where it lies. Static variables of two files may share a name.
    pub fn find_variable(&self, name: &str) -> Option<Variable> {
        self.variable(self.find(Kind::Var, name)?)
    }

    /// Where a variable lies; `None` if the type is none ([`Kind::Var`]).
    pub fn variable(&self, id: TypeId) -> Option<Variable> {
        let ty = self.get(id).ok().filter(|ty| ty.kind() == Kind::Var)?.target()?;
        for section in self.ids_of(Kind::Datasec).filter_map(|id| self.get(id).ok()) {
            if let Some(place) = section.section_vars().find(|place| place.var == id) {
                let section = Some(section.name().unwrap_or_default().to_owned());
                return Some(Variable { id, ty, section, offset: place.offset, size: place.size });
            }
        }
        Some(Variable { id, ty, section: None, offset: 0, size: 0 })
    }
}

/// The types, enumerators and variables of a BTF by the names that C has for them, each looked for once.
///
/// A name that is asked for again costs a hash; the first time it is a walk, as [`Btf::find`] makes it. Tags (`struct file`) and other
/// names (`u32`, `TCP_CLOSE`, a variable) are apart, as in C. Of split BTF the base's come first.
///
/// ```
/// # fn main() -> Result<(), btf::Error> {
/// use btf::{Btf, Builder, Lookup};
///
/// let mut b = Builder::new();
/// let long = b.int("long unsigned int", 8, false);
/// b.enumeration("", 4, false, &[("TCP_CLOSE", 7)]);
/// let btf = Btf::from_bytes(b.finish())?;
///
/// let names = Lookup::new(&btf);
/// assert_eq!(names.ty("unsigned long"), Some(long));
/// assert_eq!(names.enumerator("TCP_CLOSE").map(|e| e.value), Some(7));
/// assert_eq!(names.ty("struct file"), None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Lookup<'a> {
    btf: &'a Btf,
    types: Cache<(Tag, String), TypeId>,
    enumerators: Cache<String, EnumeratorRef>,
    variables: Cache<String, Variable>,
}

/// What has been asked for, and what came of it.
type Cache<K, V> = RefCell<HashMap<K, Option<V>>>;

/// The keyword before a type's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tag {
    /// `struct`
    Struct,
    /// `union`
    Union,
    /// `enum`
    Enum,
    /// None: a typedef, or a type of the language.
    None,
}

impl Tag {
    /// The kinds that have it, in the order in which they are preferred.
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Tag::Struct => &[Kind::Struct],
            Tag::Union => &[Kind::Union],
            Tag::Enum => &[Kind::Enum, Kind::Enum64],
            Tag::None => &[Kind::Typedef, Kind::Int, Kind::Float],
        }
    }

    /// The keyword that a spelling begins with, and what follows it: `struct file` is a struct and `file`.
    pub fn split(spelling: &str) -> (Tag, &str) {
        let spelling = spelling.trim();
        for (word, tag) in [("struct", Tag::Struct), ("union", Tag::Union), ("enum", Tag::Enum)] {
            if let Some(rest) = spelling.strip_prefix(word).filter(|rest| rest.starts_with([' ', '\t'])) {
                return (tag, rest.trim_start());
            }
        }
        (Tag::None, spelling)
    }
}

impl<'a> Lookup<'a> {
    /// Nothing is looked for yet.
    pub fn new(btf: &'a Btf) -> Lookup<'a> {
        Lookup { btf, types: Cache::default(), enumerators: Cache::default(), variables: Cache::default() }
    }

    /// The BTF that is looked into.
    pub fn btf(&self) -> &'a Btf {
        self.btf
    }

    /// A type as C spells it, without pointers, arrays and qualifiers: `struct file`, `enum pid_type`, `size_t`, `unsigned long`
    /// (in any order of its words, and as gcc or clang names it in BTF). `void` is id 0. A struct, union or enum is one that is
    /// defined.
    pub fn ty(&self, spelling: &str) -> Option<TypeId> {
        let (tag, name) = Tag::split(spelling);
        self.tagged(tag, name)
    }

    /// [`Lookup::ty`] with the keyword apart.
    pub fn tagged(&self, tag: Tag, name: &str) -> Option<TypeId> {
        once(&self.types, (tag, name.to_owned()), || match tag {
            Tag::None if name == "void" => Some(TypeId::VOID),
            Tag::None => self.first(Kind::Typedef, &[name]).or_else(|| {
                // The languages' own have several spellings.
                let names = spellings(name);
                let names = if names.is_empty() { vec![name] } else { names };
                self.first(Kind::Int, &names).or_else(|| self.first(Kind::Float, &names))
            }),
            _ => tag.kinds().iter().find_map(|kind| self.btf.find(*kind, name)),
        })
    }

    fn first(&self, kind: Kind, names: &[&str]) -> Option<TypeId> {
        let wanted: Vec<(Kind, &str)> = names.iter().map(|name| (kind, *name)).collect();
        self.btf.find_many(&wanted).into_iter().flatten().next()
    }

    /// An enumerator, [`Btf::find_enumerator`].
    pub fn enumerator(&self, name: &str) -> Option<EnumeratorRef> {
        once(&self.enumerators, name.to_owned(), || self.btf.find_enumerator(name))
    }

    /// A variable, [`Btf::find_variable`].
    pub fn variable(&self, name: &str) -> Option<Variable> {
        once(&self.variables, name.to_owned(), || self.btf.find_variable(name))
    }
}

/// What the cache has, or what is found now.
fn once<K: Eq + Hash, V: Clone>(cache: &Cache<K, V>, key: K, find: impl FnOnce() -> Option<V>) -> Option<V> {
    if let Some(known) = cache.borrow().get(&key) {
        return known.clone();
    }
    let found = find();
    cache.borrow_mut().insert(key, found.clone());
    found
}

/// The names in BTF of a type that C spells with keywords: gcc's (`long unsigned int`) and clang's (`unsigned long`). Empty if it is
/// none.
fn spellings(spelling: &str) -> Vec<&'static str> {
    let (mut long, mut signed, mut unsigned) = (0, 0, 0);
    let mut base = None;
    for word in spelling.split_ascii_whitespace() {
        match word {
            "long" => long += 1,
            "signed" | "__signed__" => signed += 1,
            "unsigned" => unsigned += 1,
            "char" | "short" | "_Bool" | "bool" | "float" | "double" | "__int128" => {
                // `short int` is `short`, whatever the order.
                if base.is_some_and(|base| !(base == "int" && word == "short")) {
                    return Vec::new();
                }
                base = Some(word);
            }
            "int" if base == Some("short") => {}
            "int" if base.is_none() => base = Some("int"),
            _ => return Vec::new(),
        }
    }
    if signed + unsigned > 1 || (long + signed + unsigned == 0 && base.is_none()) {
        return Vec::new();
    }
    let names: &[&str] = match (base.unwrap_or("int"), long, signed, unsigned) {
        ("char", 0, 0, 0) => &["char"],
        ("char", 0, 1, 0) => &["signed char"],
        ("char", 0, 0, 1) => &["unsigned char"],
        ("short", 0, _, 0) => &["short int", "short"],
        ("short", 0, 0, 1) => &["short unsigned int", "unsigned short"],
        ("int", 0, _, 0) => &["int"],
        ("int", 0, 0, 1) => &["unsigned int"],
        ("int", 1, _, 0) => &["long int", "long"],
        ("int", 1, 0, 1) => &["long unsigned int", "unsigned long"],
        ("int", 2, _, 0) => &["long long int", "long long"],
        ("int", 2, 0, 1) => &["long long unsigned int", "unsigned long long"],
        ("_Bool" | "bool", 0, 0, 0) => &["_Bool", "bool"],
        ("__int128", 0, _, 0) => &["__int128"],
        ("__int128", 0, 0, 1) => &["__int128 unsigned", "unsigned __int128"],
        ("float", 0, 0, 0) => &["float"],
        ("double", 0, 0, 0) => &["double"],
        ("double", 1, 0, 0) => &["long double"],
        _ => &[],
    };
    names.to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_come_in_any_order() {
        for (spelling, want) in [
            ("unsigned long", "long unsigned int"),
            ("long unsigned", "long unsigned int"),
            ("long  int unsigned", "long unsigned int"),
            ("unsigned", "unsigned int"),
            ("signed", "int"),
            ("long long", "long long int"),
            ("unsigned short int", "short unsigned int"),
            ("int short", "short int"),
            ("unsigned char", "unsigned char"),
            ("bool", "_Bool"),
            ("long double", "long double"),
        ] {
            assert_eq!(spellings(spelling).first(), Some(&want), "{spelling}");
        }
        for none in ["", "u32", "unsigned signed", "long long long", "short char", "int int", "long char"] {
            assert!(spellings(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn a_tag_is_a_word_of_its_own() {
        assert_eq!(Tag::split("struct  file"), (Tag::Struct, "file"));
        assert_eq!(Tag::split(" enum x "), (Tag::Enum, "x"));
        assert_eq!(Tag::split("structure"), (Tag::None, "structure"));
        assert_eq!(Tag::split("union"), (Tag::None, "union"));
    }
}
