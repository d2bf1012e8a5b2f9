//! A backlog table that somebody has already: four rows of a status and a date, and a job that
//! works them off.
//!
//! `cargo run -p backlog_table` runs one pass over it, and then plays what becomes of rows whose
//! every try fails, for 360 days and by two strategies: Fibonacci minutes, which count failures in
//! two columns more, and progressive ones, which only look at a row's age.

mod backlog;
pub mod chart;
mod play;
pub mod svg;

pub use backlog::{ARTICLE, Backlog, FRESH, Sample, moment};
pub use play::{Played, Strategy, Try, first_run, play};
