//! The dashboard in a real browser, against a real server: what a person meets, whether they see
//! it, hear it, or have no script.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "in a test, a panic is how to say no"
)]

mod acts;
mod answers;
mod chromium;
mod contrast;
mod crawl;
mod hostile;
mod keyboard;
mod lists;
mod live;
mod page;
mod pages;
mod picture;
mod rules;
mod screens;
mod site;
mod visitors;
