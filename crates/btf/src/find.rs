//! Finding types and enumerators by name: one walk over the records of the right kinds.
//!
//! No table of names is made: it would cost more than all the searches of a command. Instead each name's first eight bytes are
//! loaded as a word and looked up in a small filter of the words wanted; only what passes is compared whole.

use crate::format::u32_at;
use crate::open::Btf;
use crate::types::{Enumerator, Kind, Type, TypeId};

/// The first eight bytes of a NUL-terminated name as a word, what follows the NUL blanked: equal names have equal words.
fn word(tail: &[u8]) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let eight = match tail.split_first_chunk::<8>() {
        Some((eight, _)) => *eight,
        None => {
            let mut eight = [0; 8];
            for (to, from) in eight.iter_mut().zip(tail) {
                *to = *from;
            }
            eight
        }
    };
    let w = u64::from_le_bytes(eight);
    // The lowest set bit marks the first zero byte (Hacker's Delight, 6-1); none, and the mask is all ones.
    let zeros = w.wrapping_sub(ONES) & !w & (ONES << 7);
    w & ((zeros & zeros.wrapping_neg()) >> 7).wrapping_sub(1)
}

/// Selects the first `len` bytes of a word.
fn mask(len: usize) -> u64 {
    match len {
        0..8 => (1 << (8 * len)) - 1,
        _ => u64::MAX,
    }
}

/// A set of names to look for.
struct Wanted<'q> {
    /// Word, position in the question, name; sorted by word.
    names: Vec<(u64, usize, &'q [u8])>,
    /// One bit for each of 4096 hashes of words.
    filter: [u64; 64],
}

impl<'q> Wanted<'q> {
    fn new(names: impl Iterator<Item = &'q str>) -> Wanted<'q> {
        let mut wanted = Wanted { names: Vec::new(), filter: [0; 64] };
        for (position, name) in names.enumerate() {
            // No type is found by an empty name, nor by one that no string section can hold.
            if !name.is_empty() && !name.as_bytes().contains(&0) {
                let key = word(name.as_bytes());
                wanted.names.push((key, position, name.as_bytes()));
                let (slot, bit) = Wanted::slot(key);
                wanted.filter[slot] |= bit;
            }
        }
        wanted.names.sort_unstable();
        wanted
    }

    /// Where in the filter a word falls.
    fn slot(key: u64) -> (usize, u64) {
        let hash = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        ((hash >> 6) as usize & 63, 1 << (hash & 63))
    }

    /// Whether a name that `tail` begins with may be among those wanted: no for nearly all that are not.
    #[inline]
    fn may_hold(&self, tail: &[u8]) -> bool {
        let (slot, bit) = Wanted::slot(word(tail));
        self.filter[slot] & bit != 0
    }

    /// Positions in the question of the names equal to the string that `tail` begins with.
    #[cold]
    fn positions(&self, tail: &[u8]) -> Vec<usize> {
        let key = word(tail);
        let from = self.names.partition_point(|n| n.0 < key);
        let candidates = self.names.get(from..).unwrap_or_default();
        candidates
            .iter()
            .take_while(|n| n.0 == key)
            .filter(|n| tail.get(n.2.len()) == Some(&0) && tail.starts_with(n.2))
            .map(|n| n.1)
            .collect()
    }
}

/// The strings a blob's records name: its own at hand, its base's behind them.
struct Strings<'a> {
    own: &'a [u8],
    first: u32,
    btf: &'a Btf,
}

impl<'a> Strings<'a> {
    fn of(btf: &'a Btf) -> Strings<'a> {
        Strings { own: btf.strings(), first: btf.first_string(), btf }
    }

    /// Everything from an offset on.
    #[inline]
    fn tail(&self, offset: u32) -> Option<&'a [u8]> {
        match offset.checked_sub(self.first) {
            Some(at) => self.own.get(at as usize..),
            None => self.btf.string_tail(offset),
        }
    }
}

/// A bit for each kind.
fn kind_bit(kind: Kind) -> u32 {
    1 << (kind as u32 & 31)
}

impl Btf {
    /// The first type of this kind and name; the base's come first.
    pub fn find(&self, kind: Kind, name: &str) -> Option<TypeId> {
        self.find_many(&[(kind, name)]).into_iter().next().flatten()
    }

    /// Every type of this kind and name: static functions and unlike structs share names.
    pub fn find_all(&self, kind: Kind, name: &str) -> Vec<TypeId> {
        let mut found = Vec::new();
        self.scan(&[(kind, name)], |_, id| {
            found.push(id);
            true
        });
        found
    }

    /// The first type of each kind and name, in one walk; the answers stand in the order of the questions.
    ///
    /// Costs little more than [`Btf::find`] for one name, be they five or five hundred.
    pub fn find_many(&self, wanted: &[(Kind, &str)]) -> Vec<Option<TypeId>> {
        let mut found = vec![None; wanted.len()];
        let mut left = wanted.len();
        self.scan(wanted, |position, id| {
            if let Some(slot @ None) = found.get_mut(position) {
                *slot = Some(id);
                left -= 1;
            }
            left > 0
        });
        found
    }

    /// Calls `each` with every type that answers a question, and the question's position, until it returns false.
    fn scan(&self, wanted: &[(Kind, &str)], mut each: impl FnMut(usize, TypeId) -> bool) {
        let kinds = wanted.iter().fold(0, |bits, (kind, _)| bits | kind_bit(*kind));
        let names = Wanted::new(wanted.iter().map(|(_, name)| *name));
        if names.names.is_empty() {
            return;
        }
        for part in self.parts() {
            let (types, strings) = (part.types(), Strings::of(part));
            for (entry, number) in part.index().iter().zip(part.first_id()..) {
                if kinds >> entry.kind_number() & 1 == 0 {
                    continue;
                }
                let Some(tail) = u32_at(types, entry.offset()).and_then(|name| strings.tail(name)) else {
                    continue;
                };
                if !names.may_hold(tail) {
                    continue;
                }
                for position in names.positions(tail) {
                    let right =
                        wanted.get(position).is_some_and(|(kind, _)| *kind as u32 == entry.kind_number());
                    if right && !each(position, TypeId(number)) {
                        return;
                    }
                }
            }
        }
    }

    /// The types of this kind that have a name, with it, in order of their ids.
    pub fn names(&self, kind: Kind) -> impl Iterator<Item = (TypeId, &str)> {
        self.names_from(kind, "")
    }

    /// Those of [`Btf::names`] whose name begins with `prefix`: for a pattern such as `tcp_*`, as cheap as [`Btf::find`].
    pub fn names_from<'a>(&'a self, kind: Kind, prefix: &'a str) -> impl Iterator<Item = (TypeId, &'a str)> {
        // The first eight bytes decide nearly always.
        let (want, mask) = (word(prefix.as_bytes()), mask(prefix.len()));
        self.of_kind(kind).filter_map(move |(id, part, at)| {
            let offset = u32_at(part.types(), at)?;
            let tail = part.string_tail(offset)?;
            if word(tail) & mask != want {
                return None;
            }
            let name = part.name_at(offset)?;
            name.starts_with(prefix).then_some((id, name))
        })
    }

    /// The types of this kind, in order of their ids.
    pub fn ids_of(&self, kind: Kind) -> impl Iterator<Item = TypeId> {
        self.of_kind(kind).map(|(id, _, _)| id)
    }

    /// Id, owner, and offset in the owner's type section.
    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (TypeId, &Btf, usize)> {
        self.parts().into_iter().flat_map(move |part| {
            part.index()
                .iter()
                .zip(part.first_id()..)
                .filter(move |(entry, _)| entry.kind_number() == kind as u32)
                .map(move |(entry, number)| (TypeId(number), part, entry.offset()))
        })
    }

    /// The base of the base first, this one last.
    fn parts(&self) -> Vec<&Btf> {
        let mut parts = vec![self];
        let mut part = self;
        while let Some(base) = part.base() {
            parts.push(base);
            part = base;
        }
        parts.reverse();
        parts
    }

    /// The value of an enumerator of any enum, such as `BPF_FUNC_get_current_task_btf`: a feature the kernel has or has not.
    ///
    /// The low 64 bits of it: an unsigned value beyond `i64::MAX` comes out negative ([`Btf::find_enumerators`] has it exact).
    pub fn enumerator(&self, name: &str) -> Option<i64> {
        let found = self.find_enumerators(&[name]).into_iter().next().flatten();
        found.map(|(_, e)| e.value as i64)
    }

    /// The first enumerator of each name, with its enum, in one walk over all enums.
    pub fn find_enumerators(&self, names: &[&str]) -> Vec<Option<(TypeId, Enumerator<'_>)>> {
        let mut found = vec![None; names.len()];
        let mut left = names.len();
        let wanted = Wanted::new(names.iter().copied());
        if wanted.names.is_empty() {
            return found;
        }
        for kind in [Kind::Enum, Kind::Enum64] {
            for (id, part, at) in self.of_kind(kind) {
                let Some(ty) = Type::read(self, id, part.types(), at) else { continue };
                let (records, step) = ty.enumerator_records();
                let strings = Strings::of(part);
                for (i, record) in records.chunks_exact(step).enumerate() {
                    let Some(tail) = u32_at(record, 0).and_then(|name| strings.tail(name)) else { continue };
                    if !wanted.may_hold(tail) {
                        continue;
                    }
                    for position in wanted.positions(tail) {
                        if let Some(slot @ None) = found.get_mut(position) {
                            *slot = ty.enumerators().nth(i).map(|e| (id, e));
                            left -= 1;
                        }
                    }
                    if left == 0 {
                        return found;
                    }
                }
            }
        }
        found
    }

    /// The value of an enumerator of the enum `enum_name`; `None` if there is no such enum, or it has no such name.
    ///
    /// Low 64 bits, as [`Btf::enumerator`].
    pub fn enum_has(&self, enum_name: &str, enumerator: &str) -> Option<i64> {
        let mut ids = self.find_all(Kind::Enum, enum_name);
        ids.extend(self.find_all(Kind::Enum64, enum_name));
        ids.into_iter()
            .filter_map(|id| self.get(id).ok())
            .flat_map(|ty| ty.enumerators())
            .find(|e| e.name == enumerator)
            .map(|e| e.value as i64)
    }
}
