//! Commands as handlers.
/// A command.
#[derive(Debug)]
pub struct Exec;
