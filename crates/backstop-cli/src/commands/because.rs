//! `--reason`: why somebody changes something, for the audit.

use crate::context::Context;
use backstop::Backstop;
use backstop::audit::Reason;
use backstop::operate::Changes;
use clap::Args;

/// Why something is changed, if anybody says so.
#[derive(Args, Debug, Default)]
pub(crate) struct Because {
    /// Why, for the audit: one line of at most 200 characters
    #[arg(long, value_name = "TEXT")]
    reason: Option<Reason>,
}

impl Because {
    /// The reason.
    pub(crate) fn reason(&self) -> Option<Reason> {
        self.reason.clone()
    }

    /// What can be changed, for this reason and in the name of whoever sits here.
    pub(crate) fn changes(&self, backstop: &Backstop) -> Changes {
        backstop.changes(&Context::who()).because(self.reason())
    }
}
