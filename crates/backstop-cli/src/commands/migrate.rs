//! `backstop migrate`: the store's tables, brought up to what this version needs.

use crate::context::Context;
use crate::trouble::{Trouble, Verdict};
use backstop::StoreKind;
use backstop::core::port::StoreError;
use serde_json::json;

/// Migrates, and says from which version to which.
pub(crate) async fn run(context: &Context) -> Result<Verdict, Trouble> {
    let backstop = context.connect().await?;
    let migrated = backstop.store().migrate().await.map_err(|error| explain(error, context))?;
    let (from, to) = (migrated.from, migrated.to);
    if context.output.is_json() {
        context.output.json(&json!({ "from": from, "to": to }))?;
    } else if from == to {
        context.output.line(format!("{}: version {to}, nothing to do", context.config.store))?;
    } else {
        context.output.line(format!("{}: from version {from} to {to}", context.config.store))?;
    }
    Ok(Verdict::Fine)
}

/// A server that answers and does not let us has not given the role what it needs.
fn explain(error: StoreError, context: &Context) -> Trouble {
    match (context.config.store.kind(), &error) {
        (Some(StoreKind::Postgres), StoreError::Misuse { .. }) => Trouble::new(error).advise(
            "a role that may: GRANT CREATE ON DATABASE … TO … the first time; later on, the owner of the schema",
        ),
        _ => error.into(),
    }
}
