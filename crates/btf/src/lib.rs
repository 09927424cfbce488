//! Reads BTF, the kernel's type format, where it lies.
//!
//! [`Btf::open`] maps `/sys/kernel/btf/vmlinux` (or reads it once, where the kernel cannot map it), walks the type records once
//! to note where each begins, and copies nothing: a [`Type`] borrows its bytes. From there:
//!
//! * **find** types by kind and name: [`Btf::find`], [`Btf::find_many`], [`Btf::names`], enumerators by [`Btf::find_enumerator`], global
//!   variables by [`Btf::find_variable`]; and all of them as C spells them, each looked for once: [`Lookup`];
//! * **follow** them: [`Btf::resolve`], [`Btf::size_of`], [`Btf::member`], [`Btf::proto`];
//! * **spell** them as C: [`Btf::type_name`], [`Btf::declare`], [`Btf::func_decl`], [`Btf::definition`];
//! * **render** bytes as values of a type, with the BTF long gone: [`Shape`];
//! * **write** a small BTF of one's own, as a generated BPF program needs: [`Builder`].
//!
//! Module and program BTF is *split*: it continues the type ids and string offsets of a base, [`Btf::open_split`].
//!
//! ```
//! # fn main() -> Result<(), btf::Error> {
//! use btf::{Btf, Builder, Kind};
//!
//! let mut b = Builder::new();
//! let int = b.int("int", 4, true);
//! let proto = b.func_proto(int, &[("fd", int)]);
//! b.func("close", proto, btf::Linkage::Global);
//! let btf = Btf::from_bytes(b.finish())?;
//!
//! let close = btf.find(Kind::Func, "close").expect("just written");
//! assert_eq!(btf.func_decl(close), "int close(int fd)");
//! # Ok(())
//! # }
//! ```
//!
//! # What it is careful about
//!
//! BTF is untrusted input: a program's BTF comes from whoever loaded it. Every offset, id and length is checked where it is
//! used; loops and by-value recursion end after [a bounded number of steps](Btf::resolve); nothing is allocated that the input's
//! size does not justify.
//!
//! # What it costs
//!
//! Opening costs about 31 instructions and four bytes of memory a type (Linux 6.18: 127,000 types, 0.9 ms; the map itself is the
//! kernel's memory). Finding names walks the index and compares the first eight bytes of each name of the kinds asked for, about 50
//! instructions each; asking for many at once ([`Btf::find_many`]) costs the same as for one. A whole process that opens the BTF,
//! finds five functions and prints their declarations takes 7.6 M instructions. Rendering an integer or a pointer takes about
//! 100, a `char[16]` 150. `examples/find` and `examples/cost` are what to count with.
//!
//! # What it leaves out
//!
//! BTF of the other endianness, `.BTF.ext`, and ELF: the caller brings the bytes. Values are little-endian and pointers eight
//! bytes wide.
//!
//! The format: `include/uapi/linux/btf.h` and `Documentation/bpf/btf.rst` of the kernel, as of 7.2.

#![deny(unsafe_code)]

mod builder;
mod cdecl;
mod definition;
mod errno;
mod error;
mod find;
mod follow;
mod format;
mod lookup;
mod open;
mod render;
mod shape;
mod source;
mod text;
mod types;

pub use builder::{Builder, Linkage, NewMember};
pub use definition::WrittenOut;
pub use errno::errno_name;
pub use error::Error;
pub use follow::{CharPtr, MemberRef, Param, Proto};
pub use lookup::{EnumeratorRef, Lookup, Tag, Variable};
pub use open::Btf;
pub use shape::{Bits, EnumNames, Field, Limits, Shape};
pub use text::{escape_json, escape_text, fast_dec, fast_dec_signed, fast_hex};
pub use types::{Array, Enumerator, IntEncoding, Kind, Member, ParamRef, SecVar, Type, TypeId};
