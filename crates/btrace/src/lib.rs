//! What of the command can be used, and tested, without running it: the command line and the rendering of events. The wiring is
//! `main.rs`.
#![forbid(unsafe_code)]

pub mod cli;
pub mod clock;
pub mod logging;
pub mod render;
pub mod words;
