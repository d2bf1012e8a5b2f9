//! Why an operator changes something. Said in the address of every request that changes anything,
//! since not all of these have a body.

use super::Problem;
use super::read::parse_param;
use backstop::audit::AuditReason;
use serde::Deserialize;
use utoipa::IntoParams;

/// Why something is changed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangeReasonQuery {
    /// Why, for the audit: one line of at most 200 characters.
    reason: Option<String>,
}

impl ChangeReasonQuery {
    /// The reason, if one is given.
    pub(super) fn reason(&self) -> Result<Option<AuditReason>, Problem> {
        parse_reason(self.reason.as_deref())
    }
}

/// The reason that a parameter gives, if it says anything.
pub(super) fn parse_reason(text: Option<&str>) -> Result<Option<AuditReason>, Problem> {
    parse_param("reason", text)
}
