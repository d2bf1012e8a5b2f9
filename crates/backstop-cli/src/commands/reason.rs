//! `--reason`: why somebody changes something, for the audit.

use crate::context::CliContext;
use backstop::Backstop;
use backstop::audit::AuditReason;
use backstop::operate::AuditedChanges;
use clap::Args;

/// Why something is changed, if anybody says so.
#[derive(Args, Debug, Default)]
pub(crate) struct ReasonArgs {
    /// Why, for the audit: one line of at most 200 characters
    #[arg(long, value_name = "TEXT")]
    reason: Option<AuditReason>,
}

impl ReasonArgs {
    pub(crate) fn reason(&self) -> Option<AuditReason> {
        self.reason.clone()
    }

    /// What can be changed, for this reason and in the name of whoever sits here.
    pub(crate) fn changes(&self, backstop: &Backstop) -> AuditedChanges {
        backstop
            .changes(&CliContext::current_user())
            .because(self.reason())
    }
}
