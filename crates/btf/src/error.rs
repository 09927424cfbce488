//! What can go wrong, each with what it was about.

use std::io;
use std::path::PathBuf;

use crate::types::Kind;

/// Why BTF could not be read, or a question about it not be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be opened or read.
    #[error("cannot read BTF from {}: {source}", path.display())]
    Read {
        /// The file asked for.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file was read, but what it holds is not BTF this crate understands.
    #[error("{}: {source}", path.display())]
    In {
        /// The file asked for.
        path: PathBuf,
        /// What is wrong with its content.
        source: Box<Error>,
    },
    /// The header or the sections it names are not right.
    #[error("not usable BTF: {0}")]
    Header(&'static str),
    /// A type record does not fit the section it lies in, or contradicts itself.
    #[error("malformed BTF: type {id}: {what}")]
    Malformed {
        /// The record's id.
        id: u32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A record of a kind newer than this crate, in BTF without the layout section that would tell its length.
    #[error(
        "type {id} is of kind {kind}, which is newer than this program, and the BTF has no layout section to skip it by"
    )]
    UnknownKind {
        /// The record's id.
        id: u32,
        /// The kind's number.
        kind: u32,
    },
    /// No type has this id.
    #[error("no type has the id {0}")]
    NoType(u32),
    /// The type is of another kind than the question needs.
    #[error("`{name}` (type {id}) is {} {found}, not a {wanted}", article(*found))]
    WrongKind {
        /// The type asked about.
        id: u32,
        /// Its C spelling.
        name: String,
        /// What it is.
        found: Kind,
        /// What the question needs, in words.
        wanted: &'static str,
    },
    /// The struct or union has no such member, anonymous ones inside included.
    #[error("`{strukt}` has no member `{member}`")]
    NoMember {
        /// C spelling of the struct or union.
        strukt: String,
        /// The name looked for.
        member: String,
    },
    /// The type has no size: `void`, a function, a forward declaration.
    #[error("`{name}` has no size")]
    NoSize {
        /// C spelling of the type.
        name: String,
    },
    /// The type refers to itself, or nests deeper or wider than any compiler writes.
    #[error("type {0} nests too deeply or refers to itself")]
    TooDeep(u32),
    /// A size or an offset does not fit its field.
    #[error("the size or offset of type {0} is too large")]
    TooLarge(u32),
}

/// The article before a kind's name.
fn article(kind: Kind) -> &'static str {
    match kind {
        Kind::Int | Kind::Array | Kind::Enum | Kind::Enum64 => "an",
        _ => "a",
    }
}
