//! The numbers of the format: `include/uapi/linux/btf.h`.

use crate::error::Error;
use crate::types::Kind;

/// `BTF_MAGIC`.
pub(crate) const MAGIC: u16 = 0xeb9f;
/// `BTF_VERSION`.
pub(crate) const VERSION: u8 = 1;
/// `sizeof(struct btf_header)` up to and including `str_len`; 7.1 added the layout section behind it.
pub(crate) const HEADER_LEN: u32 = 24;
/// `sizeof(struct btf_header)` with the layout section.
pub(crate) const HEADER_LEN_LAYOUT: u32 = 32;
/// `sizeof(struct btf_type)`.
pub(crate) const TYPE_LEN: usize = 12;

/// Bytes that follow `struct btf_type`, by kind: once, and for each of its `vlen` elements.
pub(crate) const fn tail_of(kind: Kind) -> (u8, u8) {
    match kind {
        Kind::Int | Kind::Var | Kind::DeclTag => (4, 0),
        Kind::Array => (12, 0),
        Kind::Struct | Kind::Union | Kind::Datasec | Kind::Enum64 => (0, 12),
        Kind::Enum | Kind::FuncProto => (0, 8),
        Kind::Void
        | Kind::Ptr
        | Kind::Fwd
        | Kind::Typedef
        | Kind::Volatile
        | Kind::Const
        | Kind::Restrict
        | Kind::Func
        | Kind::Float
        | Kind::TypeTag
        | Kind::Unknown => (0, 0),
    }
}

/// `BTF_INFO_KIND`: seven bits since 7.2, five before; the two more were zero.
pub(crate) const fn info_kind(info: u32) -> u32 {
    (info >> 24) & 0x7f
}

/// `BTF_INFO_VLEN`: twenty-four bits since 7.2, sixteen before; the eight more were zero.
pub(crate) const fn info_vlen(info: u32) -> u32 {
    info & 0x00ff_ffff
}

/// `BTF_INFO_KFLAG`.
pub(crate) const fn info_kflag(info: u32) -> bool {
    info >> 31 == 1
}

/// The little-endian `u32` at `at`, if it lies within.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let (word, _) = bytes.get(at..)?.split_first_chunk::<4>()?;
    Some(u32::from_le_bytes(*word))
}

/// The little-endian `u32`s of one record, as many as fit. (The record's length is a constant at every use.)
pub(crate) fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let mut out = [0; N];
    for (word, chunk) in out.iter_mut().zip(bytes.chunks_exact(4)) {
        if let Some((four, _)) = chunk.split_first_chunk::<4>() {
            *word = u32::from_le_bytes(*four);
        }
    }
    out
}

/// Where the sections of a blob lie, as byte ranges from its beginning, all checked to be inside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sections {
    pub types: std::ops::Range<usize>,
    pub strings: std::ops::Range<usize>,
    /// `struct btf_layout` by kind; empty before 7.1.
    pub layout: std::ops::Range<usize>,
}

impl Sections {
    /// Reads `struct btf_header`.
    pub(crate) fn of(bytes: &[u8]) -> Result<Sections, Error> {
        let short = Error::Header("shorter than its header");
        let Some((first, _)) = bytes.split_first_chunk::<8>() else {
            return Err(short);
        };
        let [m0, m1, version, _flags, l0, l1, l2, l3] = *first;
        if u16::from_be_bytes([m0, m1]) == MAGIC {
            return Err(Error::Header("written for a machine of the other endianness"));
        }
        if u16::from_le_bytes([m0, m1]) != MAGIC {
            return Err(Error::Header("it does not begin with the magic number 0xeb9f"));
        }
        if version != VERSION {
            return Err(Error::Header("its version is not 1"));
        }
        let header_len = u32::from_le_bytes([l0, l1, l2, l3]);
        if header_len < HEADER_LEN {
            return Err(Error::Header("its header is shorter than any known"));
        }
        if bytes.len() < header_len as usize {
            return Err(short);
        }
        let field = |at: usize| u32_at(bytes, at).ok_or(Error::Header("shorter than its header"));
        let section = |off: u32, len: u32, what: &'static str| {
            let start = header_len as usize + off as usize;
            let end = start + len as usize;
            bytes.get(start..end).map(|_| start..end).ok_or(Error::Header(what))
        };
        let types = section(field(8)?, field(12)?, "its type section lies beyond its end")?;
        let strings = section(field(16)?, field(20)?, "its string section lies beyond its end")?;
        let layout = if header_len >= HEADER_LEN_LAYOUT {
            section(field(24)?, field(28)?, "its layout section lies beyond its end")?
        } else {
            0..0
        };
        Ok(Sections { types, strings, layout })
    }
}
