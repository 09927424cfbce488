//! What gathers many events.

use super::Checker;
use super::operators::convert;
use crate::ast::{AggregateNode, Node};
use crate::error::Error;
use crate::tree::{Aggregate, Expr, Function, Kind, Output, Place, Text};
use crate::types::{IntTy, Ty};

/// Most keys of one aggregation.
pub const MOST_KEYS: usize = 8;

/// Bytes of a text that is a key and does not say how many: with one that tells that it goes on, and the terminator, 64.
pub const KEY_TEXT: u32 = 62;

/// Most steps of `lhist()`.
pub const MOST_STEPS: i64 = 1024;

impl Checker<'_> {
    pub(crate) fn aggregate(&self, node: &AggregateNode) -> Result<Aggregate, Error> {
        let wrong = |what: &str| Err(Error::new(node.span, format!("{}() takes {what}", node.name)));
        let (function, value) = match (node.name.as_str(), node.args.as_slice()) {
            ("count", []) => (Function::Count, None),
            ("count", _) => return wrong("nothing: count() by (…) counts for each value"),
            ("lhist", [value, low, high, step]) => {
                let [low, high, step] = [self.bound(low)?, self.bound(high)?, self.bound(step)?];
                let steps = high.checked_sub(low).filter(|_| step > 0).map(|width| width / step.max(1));
                if !steps.is_some_and(|n| (1..=MOST_STEPS).contains(&n)) || (high - low) % step != 0 {
                    let message = format!(
                        "from {low} to {high} by {step}: the upper bound is to be 1 to {MOST_STEPS} whole steps above the lower"
                    );
                    return Err(Error::new(node.span, message));
                }
                (Function::LHist { low, high, step }, Some(value))
            }
            ("lhist", _) => return wrong("a value, the lower bound, the upper bound and the step"),
            ("hist", [value]) => (Function::Hist, Some(value)),
            ("sum", [value]) => (Function::Sum, Some(value)),
            ("min", [value]) => (Function::Min, Some(value)),
            ("max", [value]) => (Function::Max, Some(value)),
            ("avg", [value]) => (Function::Avg, Some(value)),
            _ => return wrong("one value"),
        };
        let value = value.map(|value| self.gathered(value)).transpose()?;
        if node.by.len() > MOST_KEYS {
            return Err(Error::new(node.span, format!("at most {MOST_KEYS} keys")));
        }
        let keys = node.by.iter().map(|key| self.key(key)).collect::<Result<_, _>>()?;
        let key_spans = node.by.iter().map(|key| key.span).collect();
        Ok(Aggregate { function, value, keys, key_spans, span: node.span })
    }

    fn bound(&self, node: &Node) -> Result<i64, Error> {
        match self.integer(node)?.kind {
            Kind::Const(n) => Ok(n.cast_signed()),
            _ => Err(Error::new(node.span, "bounds and step are constants")),
        }
    }

    /// A number of 64 bits.
    fn gathered(&self, node: &Node) -> Result<Expr, Error> {
        let value = self.integer(node)?;
        let signed = value.word().signed;
        Ok(convert(value, Ty::Int(IntTy { size: 8, signed })))
    }

    fn key(&self, node: &Node) -> Result<Output, Error> {
        match self.output(node)? {
            Output::Scalar(value, format) => Ok(Output::Scalar(value, format)),
            Output::Text(Text::Comm, _) => Ok(Output::Text(Text::Comm, Some(16))),
            Output::Text(text, most) => {
                // As many bytes as were asked for.
                let asked = !matches!(&text, Text::Memory { most: array, .. } if *array == most);
                let most = if asked { most } else { most.map(|most| most.min(KEY_TEXT)) };
                Ok(Output::Text(text, Some(most.unwrap_or(KEY_TEXT))))
            }
            Output::Path(..) => {
                let message =
                    "a path is too long for a key; its last name is not: str(….dentry->d_name.name)";
                Err(Error::new(node.span, message))
            }
            Output::Bytes { ty: ty @ Ty::Composite(_), .. }
            | Output::Value(Place { ty: ty @ Ty::Composite(_), .. }) => {
                let message = format!("a key is a number or a text; this is {}: name a member", self.a(&ty));
                Err(Error::new(node.span, message))
            }
            _ => Err(Error::new(node.span, "a key is a number or a text")),
        }
    }
}
