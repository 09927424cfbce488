//! Branches taken on the way to a program, from the processor's own records.

/// How many, or why that is not known.
pub fn taken() -> Result<usize, String> {
    Err("btrace does not read the processor's branch records yet".into())
}
