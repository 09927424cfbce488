//! Near matches for a name that is not there.

/// At most three of `names` that look like `wanted`, nearest first.
///
/// Near means few edits (Damerau: a swap of neighbours counts one) for the length of the name, or one name holding
/// the other.
pub fn near<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let most = (wanted.len() / 4).clamp(1, 4);
    let mut found: Vec<(usize, &str)> = Vec::new();
    for name in names {
        let gap = name.len().abs_diff(wanted.len());
        let holds = wanted.len() >= 4
            && gap <= 12
            && (name.contains(wanted) || name.len() >= 4 && wanted.contains(name));
        let score = if gap <= most {
            let edits = strsim::osa_distance(wanted, name);
            if edits <= most {
                edits
            } else if holds {
                most + gap
            } else {
                continue;
            }
        } else if holds {
            most + gap
        } else {
            continue;
        };
        found.push((score, name));
    }
    found.sort();
    found.dedup();
    found.truncate(3);
    found.into_iter().map(|(_, name)| name).collect()
}

/// `"; did you mean a, b or c?"`, or nothing.
pub fn hint(near: &[&str]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("; did you mean {one}?"),
        [most @ .., last] => format!("; did you mean {} or {last}?", most.join(", ")),
    }
}

/// What to say when a name is not among `names`: the near ones as [`hint`] puts them, or nothing.
pub fn near_names<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    hint(&near(wanted, names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_right_name_comes_first() {
        let names = ["tcp_connect", "tcp_connect_init", "udp_connect", "vfs_read", "tcp_collapse"];
        assert_eq!(near("tcp_conect", names.into_iter())[0], "tcp_connect");
        assert_eq!(near("tcp_connetc", names.into_iter())[0], "tcp_connect");
        assert_eq!(near("fs_read", names.into_iter()), ["vfs_read"]);
        assert!(near("zzzzzzzz", names.into_iter()).is_empty());
    }

    #[test]
    fn hints_read_as_english() {
        assert_eq!(hint(&[]), "");
        assert_eq!(hint(&["a"]), "; did you mean a?");
        assert_eq!(hint(&["a", "b", "c"]), "; did you mean a, b or c?");
    }
}
