//! Words of what is said to people.

/// `1 event`, `2 events`.
pub fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| count(n, "call")), ["0 calls", "1 call", "2 calls"]);
    }
}
