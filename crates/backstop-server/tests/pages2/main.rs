//! The pages of streams, schedules, sweeps, tables and the policy lab, as a browser gets them.

mod policy;
mod schedules;
mod site;
mod streams;
mod sweeps;
mod tables;
