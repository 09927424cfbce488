//! Colours of a line: as constants, so that a line without colour costs what it cost before there were any.
//!
//! Few and quiet, from the terminal's own palette: the function bold, what is the same in every line dim, errors red,
//! durations cyan.

use crate::cli::ColorArg;
use std::ffi::OsString;

/// The constant parts of a line.
pub trait Paint {
    /// Before and after the target's name.
    const NAME: (&'static str, &'static str);
    /// Before and after what stays the same: types, argument names.
    const LABEL: (&'static str, &'static str);
    /// Before and after an error's name.
    const ERROR: (&'static str, &'static str);
    /// ` cpu=`
    const CPU: &'static str;
    /// ` context=`
    const CONTEXT: &'static str;
    /// ` process=(`
    const PROCESS: &'static str;
    /// ` tid=`
    const TID: &'static str;
    /// ` call=`
    const CALL: &'static str;
    /// ` duration=`, and what follows the duration.
    const DURATION: (&'static str, &'static str);
    /// ` time=`
    const TIME: &'static str;
}

/// No colours.
pub struct Plain;

/// Those of a terminal: ECMA-48, "select graphic rendition".
pub struct Colour;

impl Paint for Plain {
    const NAME: (&'static str, &'static str) = ("", "");
    const LABEL: (&'static str, &'static str) = ("", "");
    const ERROR: (&'static str, &'static str) = ("", "");
    const CPU: &'static str = " cpu=";
    const CONTEXT: &'static str = " context=";
    const PROCESS: &'static str = " process=(";
    const TID: &'static str = " tid=";
    const CALL: &'static str = " call=";
    const DURATION: (&'static str, &'static str) = (" duration=", "");
    const TIME: &'static str = " time=";
}

impl Paint for Colour {
    const NAME: (&'static str, &'static str) = ("\x1b[1m", "\x1b[0m");
    const LABEL: (&'static str, &'static str) = ("\x1b[2m", "\x1b[0m");
    const ERROR: (&'static str, &'static str) = ("\x1b[31m", "\x1b[0m");
    const CPU: &'static str = "\x1b[2m cpu=\x1b[0m";
    const CONTEXT: &'static str = "\x1b[2m context=\x1b[0m";
    const PROCESS: &'static str = "\x1b[2m process=\x1b[0m(";
    const TID: &'static str = "\x1b[2m tid=\x1b[0m";
    const CALL: &'static str = "\x1b[2m call=\x1b[0m";
    const DURATION: (&'static str, &'static str) = ("\x1b[2m duration=\x1b[0;36m", "\x1b[0m");
    const TIME: &'static str = "\x1b[2m time=\x1b[0m";
}

/// Whether lines are coloured. By itself only on a terminal that can, and not where `NO_COLOR` is set and not empty
/// (<https://no-color.org>).
pub fn wanted(when: ColorArg, is_terminal: bool) -> bool {
    decide(when, is_terminal, |name| std::env::var_os(name))
}

fn decide(when: ColorArg, is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    match when {
        ColorArg::Always => true,
        ColorArg::Never => false,
        ColorArg::Auto => {
            let forbidden = variable("NO_COLOR").is_some_and(|v| !v.is_empty());
            is_terminal && !forbidden && variable("TERM").is_none_or(|term| term != "dumb")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_is_for_terminals_that_want_it() {
        let auto = |is_terminal, set: &[(&str, &str)]| {
            let variable = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| OsString::from(v));
            decide(ColorArg::Auto, is_terminal, variable)
        };
        assert!(auto(true, &[("TERM", "xterm")]) && auto(true, &[]));
        assert!(!auto(false, &[("TERM", "xterm")]));
        assert!(!auto(true, &[("TERM", "dumb")]));
        assert!(!auto(true, &[("NO_COLOR", "1"), ("TERM", "xterm")]));
        assert!(auto(true, &[("NO_COLOR", "")]), "set to nothing says nothing");
        let none = |_: &str| Some(OsString::from("1"));
        assert!(decide(ColorArg::Always, false, none) && !decide(ColorArg::Never, true, none));
    }
}
