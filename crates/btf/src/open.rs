//! Opening BTF: the header, the sections, and the one pass that notes where each type begins.

use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

use crate::error::Error;
use crate::format::{self, Sections, TYPE_LEN};
use crate::source::{MAX_LEN, Source};
use crate::types::{Kind, Type, TypeId};

/// One entry of the offset index: the kind in the upper five bits, the record's offset in the type section, in words, below.
///
/// Records are made of 32-bit words, so 27 bits address 512 MiB; [`MAX_LEN`] is less. With the kind at hand, a search for
/// functions touches the records of functions only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry(u32);

impl Entry {
    const SHIFT: u32 = 27;

    fn new(tail: Tail, offset: usize) -> Entry {
        debug_assert!(offset as u64 <= MAX_LEN && offset.is_multiple_of(4));
        Entry((tail.0 & (u32::MAX << Entry::SHIFT)) | (offset as u32 / 4))
    }

    pub(crate) fn kind_number(self) -> u32 {
        self.0 >> Entry::SHIFT
    }

    /// Byte offset of the record in the type section.
    pub(crate) fn offset(self) -> usize {
        ((self.0 & ((1 << Entry::SHIFT) - 1)) * 4) as usize
    }
}

/// BTF: the types of a kernel, a module or a BPF program.
///
/// Owns its bytes (mapped or read), four bytes of index a type, and a share of the base it continues, if it is split.
#[derive(Debug)]
pub struct Btf {
    bytes: Source,
    sections: Sections,
    index: Vec<Entry>,
    base: Option<Arc<Btf>>,
    /// Id of the first type of this blob: 1, or the base's [`Btf::len`].
    first_id: u32,
    /// String offset of this blob's string section: 0, or the end of the base's.
    first_string: u32,
    /// See [`Btf::with_unsigned_char`].
    unsigned_char: bool,
}

impl Btf {
    /// Opens a BTF file, such as `/sys/kernel/btf/vmlinux`: maps it where the kernel can, else reads it once.
    ///
    /// # Errors
    /// [`Error::Read`] with the path if it cannot be read, [`Error::In`] with the path if its content is not right.
    pub fn open(path: &Path) -> Result<Btf, Error> {
        Btf::open_on(path, None)
    }

    /// Opens the BTF of a module (`/sys/kernel/btf/NAME`), whose ids and string offsets continue those of `base`.
    ///
    /// # Errors
    /// As [`Btf::open`].
    pub fn open_split(path: &Path, base: Arc<Btf>) -> Result<Btf, Error> {
        Btf::open_on(path, Some(base))
    }

    fn open_on(path: &Path, base: Option<Arc<Btf>>) -> Result<Btf, Error> {
        let bytes = Source::open(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        Btf::parse(bytes, base).map_err(|e| Error::In { path: path.to_owned(), source: Box::new(e) })
    }

    /// BTF from bytes at hand: what `BPF_OBJ_GET_INFO_BY_FD` gave, or a [`crate::Builder`] wrote.
    ///
    /// # Errors
    /// If a section or a type record lies beyond the end, or a record's kind is not known.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Btf, Error> {
        Btf::parse(Source::Bytes(bytes), None)
    }

    /// Split BTF from bytes at hand, on top of `base`.
    ///
    /// # Errors
    /// As [`Btf::from_bytes`].
    pub fn from_bytes_split(bytes: Vec<u8>, base: Arc<Btf>) -> Result<Btf, Error> {
        Btf::parse(Source::Bytes(bytes), Some(base))
    }

    /// The same types, plain `char` being unsigned (or not, as it is at first): the code was compiled so, as the kernel is from 6.2 on
    /// (`-funsigned-char`). BTF need not tell. Split BTF opened on top of it follows.
    #[must_use]
    pub fn with_unsigned_char(self, unsigned: bool) -> Btf {
        Btf { unsigned_char: unsigned, ..self }
    }

    /// Whether plain `char` is unsigned.
    pub fn has_unsigned_char(&self) -> bool {
        self.unsigned_char
    }

    fn parse(bytes: Source, base: Option<Arc<Btf>>) -> Result<Btf, Error> {
        if bytes.len() as u64 > MAX_LEN {
            return Err(Error::Header("larger than any BTF (256 MiB)"));
        }
        let sections = Sections::of(&bytes)?;
        let strings = bytes.get(sections.strings.clone()).unwrap_or_default();
        if strings.last().is_some_and(|b| *b != 0) {
            return Err(Error::Header("its last string has no end"));
        }
        if base.is_none() && strings.first() != Some(&0) {
            return Err(Error::Header("its first string is not the empty one"));
        }
        let first_id = base.as_ref().map_or(1, |b| b.len());
        let first_string = base.as_ref().map_or(0, |b| b.string_end());
        if first_string.checked_add(strings.len() as u32).is_none() {
            return Err(Error::Header("its strings and its base's exceed 4 GiB"));
        }
        let types = bytes.get(sections.types.clone()).unwrap_or_default();
        let layout = bytes.get(sections.layout.clone()).unwrap_or_default();
        let index = index(types, layout, first_id)?;
        let unsigned_char = base.as_ref().is_some_and(|b| b.unsigned_char);
        Ok(Btf { bytes, sections, index, base, first_id, first_string, unsigned_char })
    }

    /// One more than the highest type id, the base's and `void` (id 0) counted; `btf__type_cnt` of libbpf.
    pub fn len(&self) -> u32 {
        self.first_id.saturating_add(self.index.len() as u32)
    }

    /// Whether there is no type but `void`.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// Every id but 0 (`void`), the base's first.
    pub fn ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (1..self.len()).map(TypeId)
    }

    /// The ids that are not the base's.
    pub fn own_ids(&self) -> impl Iterator<Item = TypeId> + use<> {
        (self.first_id..self.len()).map(TypeId)
    }

    /// What this BTF continues, if it is split.
    pub fn base(&self) -> Option<&Arc<Btf>> {
        self.base.as_ref()
    }

    /// Whether the bytes are a map of the kernel's pages (they cost no memory of ours) rather than a copy.
    pub fn is_mapped(&self) -> bool {
        matches!(self.bytes, Source::Map(_))
    }

    /// The blob itself, header included, without its base.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The type with this id. Id 0 is `void`.
    ///
    /// # Errors
    /// [`Error::NoType`] if there is none.
    pub fn get(&self, id: TypeId) -> Result<Type<'_>, Error> {
        let mut owner = self;
        // An id below the first is the base's. (A base is older than what continues it, so the chain ends.)
        while id.0 < owner.first_id {
            match &owner.base {
                Some(base) => owner = base,
                None => return Ok(Type::void(self)),
            }
        }
        let slot = (id.0 - owner.first_id) as usize;
        let entry = owner.index.get(slot).ok_or(Error::NoType(id.0))?;
        Type::read(self, id, owner.types(), entry.offset()).ok_or(Error::NoType(id.0))
    }

    /// The string at an offset, without its terminator; `None` beyond the end, or if it is not UTF-8.
    pub fn string(&self, offset: u32) -> Option<&str> {
        CStr::from_bytes_until_nul(self.string_tail(offset)?).ok()?.to_str().ok()
    }

    /// Everything in the string section from `offset` on.
    pub(crate) fn string_tail(&self, offset: u32) -> Option<&[u8]> {
        let mut owner = self;
        while offset < owner.first_string {
            owner = owner.base.as_deref()?;
        }
        owner.strings().get((offset - owner.first_string) as usize..)
    }

    pub(crate) fn string_end(&self) -> u32 {
        self.first_string.saturating_add(self.sections.strings.len() as u32)
    }

    pub(crate) fn types(&self) -> &[u8] {
        self.bytes.get(self.sections.types.clone()).unwrap_or_default()
    }

    pub(crate) fn strings(&self) -> &[u8] {
        self.bytes.get(self.sections.strings.clone()).unwrap_or_default()
    }

    pub(crate) fn index(&self) -> &[Entry] {
        &self.index
    }

    pub(crate) fn first_id(&self) -> u32 {
        self.first_id
    }

    pub(crate) fn first_string(&self) -> u32 {
        self.first_string
    }
}

/// Notes where each record of the type section begins, and checks that it ends inside.
///
/// `layout` is the section of the same name (7.1): it tells the length of records of kinds this crate does not know.
///
/// The loop runs a hundred thousand times at every start: not inlined, it has the registers to itself.
#[inline(never)]
fn index(types: &[u8], layout: &[u8], first_id: u32) -> Result<Vec<Entry>, Error> {
    let tails = tails(layout);
    // A kernel's records are 25 bytes long on average. What is not used goes back below.
    let mut index = Vec::with_capacity(types.len() / 20);
    let mut rest = types;
    while let Some((head, _)) = rest.split_first_chunk::<TYPE_LEN>() {
        let [_, _, _, _, i0, i1, i2, i3, ..] = *head;
        let info = u32::from_le_bytes([i0, i1, i2, i3]);
        let tail = tails[format::info_kind(info) as usize & 127];
        let len = TYPE_LEN + tail.once() + tail.each() * format::info_vlen(info) as usize;
        let (Some(next), true) = (rest.get(len..), tail != Tail::NONE) else {
            return Err(refuse(first_id.saturating_add(index.len() as u32), format::info_kind(info), tail));
        };
        index.push(Entry::new(tail, types.len() - rest.len()));
        rest = next;
    }
    if !rest.is_empty() {
        return Err(refuse(first_id.saturating_add(index.len() as u32), 1, Tail::of(Kind::Int, 0, 0)));
    }
    if u32::try_from(index.len()).ok().and_then(|n| first_id.checked_add(n)).is_none() {
        return Err(Error::Header("it has more types than ids"));
    }
    index.shrink_to_fit();
    Ok(index)
}

/// What is wrong with the record that begins where the last good one ended.
#[cold]
fn refuse(id: u32, kind: u32, tail: Tail) -> Error {
    let what = match kind {
        0 => "its kind is 0",
        kind if tail == Tail::NONE => return Error::UnknownKind { id, kind },
        _ => "its record reaches beyond the type section",
    };
    Error::Malformed { id, what }
}

/// What follows a record of a kind: bytes once in bits 0-7 and bytes for each element in bits 8-15, as `struct btf_layout` has
/// them; and the kind in the upper five bits, where [`Entry`] has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tail(u32);

impl Tail {
    /// No record of this kind can be read. (Kind 0 is of no record.)
    const NONE: Tail = Tail(0);

    const fn of(kind: Kind, once: u8, each: u8) -> Tail {
        Tail(((kind as u32) << Entry::SHIFT) | ((each as u32) << 8) | once as u32)
    }

    const fn once(self) -> usize {
        (self.0 & 0xff) as usize
    }

    const fn each(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }
}

/// The tails of all 128 kinds: those known from the format, the others from the layout section.
fn tails(layout: &[u8]) -> [Tail; 128] {
    let mut tails = [Tail::NONE; 128];
    for (number, tail) in tails.iter_mut().enumerate().skip(1) {
        let kind = Kind::from_number(number as u32);
        *tail = if kind != Kind::Unknown {
            let (once, each) = format::tail_of(kind);
            Tail::of(kind, once, each)
        } else {
            match layout.get(number * 4..).and_then(|l| l.split_first_chunk::<4>()) {
                // The kernel accepts words only, and so the index can count in them.
                Some((&[once, each, _, _], _)) if (once | each) & 3 == 0 => Tail::of(kind, once, each),
                _ => Tail::NONE,
            }
        }
    }
    tails
}
