//! What is gathered of events in the kernel: keys and values of its table.

use super::shown::shape;
use btf::Shape;
use expr::tree::{Aggregate, Format, Function, Output, Text};
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
    /// The keys, in order.
    pub keys: Vec<Key>,
    pub(crate) aggregate: Aggregate,
}

/// A key of an aggregation.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// As it was written.
    pub text: String,
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
    /// A text, padded with zeros; the byte 0xff at its end means that it went on.
    Text,
}

/// Buckets of `hist()`: negative, zero, and one for each bit.
pub const BUCKETS: u32 = 66;

/// Bytes before the keys in the table's key: which probe, where those are kept apart.
pub(crate) const FIRST_KEY: u32 = 8;

impl Gathered {
    pub(super) fn new(
        scope: &Scope<'_>,
        text: &str,
        number: usize,
        aggregate: Aggregate,
    ) -> Result<Gathered, Error> {
        let mut at = FIRST_KEY;
        let mut keys = Vec::with_capacity(aggregate.keys.len());
        for output in &aggregate.keys {
            let (kind, size, span) = match output {
                Output::Scalar(e, format) => {
                    let size = e.ty.word().map_or(8, |int| int.size.into());
                    let shape = shape(&scope.types, &e.ty, e.spelled);
                    (KeyKind::Number { shape, size, format: *format }, 8, e.span)
                }
                Output::Text(text, most) => {
                    let span = match text {
                        Text::Comm => aggregate.span,
                        Text::Memory { pointer, .. } => pointer.span,
                    };
                    let terminator = u32::from(*text != Text::Comm);
                    (KeyKind::Text, (most.unwrap_or(63) + terminator).next_multiple_of(8), span)
                }
                _ => continue,
            };
            let text = match output {
                Output::Text(Text::Comm, _) => "$comm".to_string(),
                _ => span.of(text).to_string(),
            };
            keys.push(Key { text, kind, offset: at, size });
            at += size;
        }
        if at > MOST_KEY {
            let message = format!(
                "its keys take {at} bytes, at most {MOST_KEY} can be; str(…, n) makes a text shorter"
            );
            return Err(Error { span: aggregate.span, message });
        }
        let signed = aggregate.value.as_ref().is_none_or(|value| value.word().signed);
        Ok(Gathered { text: text.into(), number, function: aggregate.function, signed, keys, aggregate })
    }

    /// Bytes of the table's key.
    pub fn key_size(&self) -> u32 {
        self.keys.last().map_or(FIRST_KEY, |key| key.offset + key.size)
    }

    /// Words of the table's value.
    pub fn words(&self) -> u32 {
        match self.function {
            Function::Count | Function::Sum => 1,
            Function::Min | Function::Max | Function::Avg => 2,
            Function::Hist => BUCKETS,
            // Below the first step, the steps, above the last.
            Function::LHist { low, high, step } => ((high - low) / step) as u32 + 2,
        }
    }

    /// Whether what two probes gather is kept apart: what is not added up by one instruction.
    pub(crate) fn apart(&self) -> bool {
        matches!(self.function, Function::Min | Function::Max)
    }
}
