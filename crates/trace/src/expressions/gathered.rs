//! What is gathered of events in the kernel: keys and values of its table.

use super::shown::{name, shape, type_name};
use btf::Shape;
use expr::tree::{Aggregate, Format, Function, Kind, Output, Root, Text};
use expr::{Error, Scope};

/// Most bytes of a key: it is put together in the program's stack.
const MOST_KEY: u32 = 192;

/// An aggregation at a target.
#[derive(Clone, Debug)]
pub struct Gathered {
    /// As it was written.
    pub text: String,
    /// Which of the request's outputs: those of all its targets go to one table.
    pub number: usize,
    /// What is done.
    pub function: Function,
    /// Whether what is gathered is signed.
    pub signed: bool,
    /// The type in C of the value that is gathered; none of `count()`.
    pub type_name: Option<String>,
    /// The keys, in order.
    pub keys: Vec<Key>,
    pub(crate) aggregate: Aggregate,
}

/// A key of an aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// As it was written.
    pub text: String,
    /// Its type in C.
    pub type_name: String,
    /// What it is.
    pub kind: KeyKind,
    /// Where it lies in the table's key, in bytes.
    pub offset: u32,
    /// Bytes, a multiple of 8.
    pub size: u32,
}

/// What a key is.
#[derive(Clone, Debug, PartialEq)]
pub enum KeyKind {
    /// A number, extended to 8 bytes.
    Number {
        /// How its bytes read.
        shape: Shape,
        /// How many are its own.
        size: u32,
        /// How it is shown.
        format: Format,
    },
    /// The number of a system call as `sys_enter` has it, 8 bytes, and behind it 8 that are not 0 if a 32-bit program made it.
    SystemCall {
        /// How its bytes read.
        shape: Shape,
    },
    /// A text, padded with zeros; the byte 0xff at its end means that it went on.
    Text,
}

/// Buckets of `hist()`: negative, zero, and one for each bit.
pub const BUCKETS: u32 = 66;

/// Bytes before the keys in the table's key: which probe, where those are kept apart.
pub(crate) const FIRST_KEY: u32 = 8;

impl Gathered {
    /// `call`: the argument, if there is one, that is a system call's number.
    pub(super) fn new(
        scope: &Scope<'_>,
        text: &str,
        number: usize,
        aggregate: Aggregate,
        call: Option<u16>,
    ) -> Result<Gathered, Error> {
        let mut at = FIRST_KEY;
        let mut keys = Vec::with_capacity(aggregate.keys.len());
        for (output, span) in aggregate.keys.iter().zip(&aggregate.key_spans) {
            let (kind, size) = match output {
                Output::Scalar(e, format) => {
                    let size = e.ty.word().map_or(8, |int| int.size.into());
                    let shape = shape(&scope.types, &e.ty, e.spelled);
                    let is_call = call.is_some_and(|n| e.kind == Kind::Root(Root::Arg(n)));
                    if is_call && *format == Format::Plain && size == 8 {
                        (KeyKind::SystemCall { shape }, 16)
                    } else {
                        (KeyKind::Number { shape, size, format: *format }, 8)
                    }
                }
                Output::Text(Text::Comm, _) => (KeyKind::Text, 16),
                Output::Text(..) => {
                    (KeyKind::Text, expr::text_room(output).unwrap_or(64).next_multiple_of(8))
                }
                _ => continue,
            };
            let type_name = type_name(&scope.types, output);
            keys.push(Key { text: span.of(text).into(), type_name, kind, offset: at, size });
            at += size;
        }
        if at > MOST_KEY {
            let message = format!(
                "its keys take {at} bytes, at most {MOST_KEY} can be; str(…, n) makes a text shorter"
            );
            return Err(Error { span: aggregate.span, message, unknown: false });
        }
        let signed = aggregate.value.as_ref().is_none_or(|value| value.word().signed);
        let type_name = aggregate.value.as_ref().map(|value| name(&scope.types, &value.ty, value.spelled));
        let function = aggregate.function;
        Ok(Gathered { text: text.into(), number, function, signed, type_name, keys, aggregate })
    }

    /// Bytes of the table's key.
    pub fn key_size(&self) -> u32 {
        self.keys.last().map_or(FIRST_KEY, |key| key.offset + key.size)
    }

    /// Words of the table's value.
    pub fn words(&self) -> u32 {
        match self.function {
            Function::Count => 1,
            Function::Min | Function::Max => 2,
            // How many, and a sum of 128 bits.
            Function::Sum | Function::Avg => 3,
            Function::Hist => BUCKETS,
            // Below the first step, the steps, above the last.
            Function::LHist { low, high, step } => ((high - low) / step) as u32 + 2,
        }
    }

    /// Whether all is gathered in one entry.
    pub(crate) fn is_one(&self) -> bool {
        self.keys.is_empty() && !self.apart()
    }

    /// Whether values are added up.
    pub(crate) fn is_summed(&self) -> bool {
        matches!(self.function, Function::Sum | Function::Avg)
    }

    /// Whether what two probes gather is kept apart: what is not added up by one instruction.
    pub(crate) fn apart(&self) -> bool {
        matches!(self.function, Function::Min | Function::Max)
    }
}
