//! Counts lines: grep -c for several words at once, in one pass over what is too much to be kept.

use std::io::{self, BufRead};

/// How many lines there are, then how many have each word in them: one decimal number a line.
pub fn lines(mut from: impl BufRead, words: &[String]) -> io::Result<Vec<String>> {
    let (mut all, mut with) = (0u64, vec![0u64; words.len()]);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line)? > 0 {
        all += 1;
        for (word, count) in words.iter().zip(&mut with) {
            *count += u64::from(has(&line, word.as_bytes()));
        }
        line.clear();
    }
    Ok(std::iter::once(all).chain(with).map(|n| n.to_string()).collect())
}

/// Whether `word`, which is in every line if it is empty, is in this one.
fn has(line: &[u8], word: &[u8]) -> bool {
    word.is_empty() || line.windows(word.len()).any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::lines;

    #[test]
    fn lines_are_counted_once_for_each_word_in_them() -> std::io::Result<()> {
        let words = ["ab".to_string(), "c".to_string(), "x".to_string()];
        assert_eq!(lines(&b"abab\nabc\n\nc"[..], &words)?, ["4", "2", "2", "0"]);
        assert_eq!(lines(&b""[..], &[])?, ["0"]);
        assert_eq!(lines(&b"\xff\xfe\n"[..], &[String::new()])?, ["1", "1"]);
        Ok(())
    }
}
