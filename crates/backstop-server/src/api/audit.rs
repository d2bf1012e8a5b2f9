//! Who changed what.

use super::read::{QueryParams, ok, parse_limit};
use super::{Problem, ProblemShape};
use crate::App;
use crate::access::Caller;
use crate::wire::audit::AuditShape;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use backstop::audit::AuditEntry;
use serde::Deserialize;
use utoipa::IntoParams;

/// Which changes.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ListAuditQuery {
    /// By somebody with this in the name.
    who: Option<String>,
    /// With this in what was done.
    what: Option<String>,
    /// Where to go on: the `next` of the page before.
    cursor: Option<String>,
    /// At most so many: 1 to 1000, 50 if not said. Other numbers are brought into that range.
    limit: Option<String>,
}

/// List who changed what, the newest first. A page looks at a thousand entries at most, whether
/// they fit or not.
#[utoipa::path(
    get, path = "/audit", tag = "audit", params(ListAuditQuery),
    responses(
        (status = 200, body = AuditShape<'_>),
        (status = "default", body = ProblemShape<'_>, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ListAuditQuery>,
) -> Result<Response, Problem> {
    let limit = parse_limit(query.limit.as_deref())?;
    let (who, what) = (
        query.who.unwrap_or_default(),
        query.what.unwrap_or_default(),
    );
    let fits = |entry: &AuditEntry| entry.who.contains(&who) && entry.what.contains(&what);
    let after = query.cursor.filter(|cursor| !cursor.is_empty());
    // Some stores take no text with control characters in it.
    if after
        .as_ref()
        .is_some_and(|cursor| !cursor.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return Err(Problem::bad_request(
            "`cursor` is none that this list has given",
        ));
    }
    let page = app
        .backstop()
        .audit(caller.name())
        .page(after, limit, fits)
        .await?;
    Ok(ok(&AuditShape::new(&page)))
}
