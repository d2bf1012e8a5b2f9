//! `backstop token`: what lets people and programs in from elsewhere.

use super::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::table::{CellTone, TextTable};
use crate::output::words::relative;
use backstop::{QueueName, Span, Time};
use backstop_server::access::{CreateTokenError, NewToken, Scope, Token, TokenRegistry};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Tokens: make, list, revoke.
#[derive(Subcommand, Debug)]
pub(crate) enum TokenSubcommand {
    /// Make a token; it is shown once and kept nowhere
    #[command(after_help = "\
Examples:
  backstop token create --scope admin --name ada
  backstop token create --scope push --scope work --name web --expires 90d --json
  backstop token create --scope push --scope work --queue emails --queue sms

Scopes: push (put jobs and records in), work (lease, settle, beat), read (look; secrets stay hidden), admin (everything).
A token with queues may do that in these queues only: push to, lease from, look at and change them. What goes across queues is refused
to it: the dashboard, streams, schedules, sweeps, tables, metrics, events, and changes that name no queue.
The store keeps only a hash. All servers of the store know the token at once. To exchange one, make the new one first, give it to
whoever had the old one, and revoke that: both work meanwhile.")]
    Create(TokenCreateArgs),
    /// All tokens, without what they open
    #[command(after_help = "\
Examples:
  backstop token list
  backstop token list --json | jq '.tokens[] | select(.expired)'")]
    List,
    /// End a token, and every session it opened; servers notice within seconds
    #[command(after_help = "\
Examples:
  backstop token revoke 4f1c9a02be77 --reason 'it was in a log'")]
    Revoke(TokenRevokeArgs),
}

/// What for, and for how long.
#[derive(Args, Debug)]
pub(crate) struct TokenCreateArgs {
    /// What it allows: push, work, read or admin; may be given several times
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    scopes: Vec<Scope>,
    /// Only in this queue; may be given several times [default: everywhere]
    #[arg(long = "queue", value_name = "QUEUE")]
    queues: Vec<QueueName>,
    /// What it is for; the audit log names it
    #[arg(long, value_name = "NAME", default_value = "")]
    name: String,
    /// How long it is good for [default: until it is revoked]
    #[arg(long, value_name = "D")]
    expires: Option<Span>,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Which.
#[derive(Args, Debug)]
pub(crate) struct TokenRevokeArgs {
    /// The id that `backstop token list` shows
    id: String,
    #[command(flatten)]
    reason: ReasonArgs,
}

impl TokenSubcommand {
    /// Whether it changes nothing, and needs no entry of the configuration.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(self, Self::List)
    }
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &TokenSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        TokenSubcommand::Create(args) => create(args, context).await,
        TokenSubcommand::List => list(context).await,
        TokenSubcommand::Revoke(args) => revoke(args, context).await,
    }
}

async fn create(args: &TokenCreateArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open().await?;
    let (scopes, queues) = (deduplicate(&args.scopes), deduplicate(&args.queues));
    let new = NewToken {
        name: args.name.clone(),
        scopes,
        queues,
        expires_in: args.expires,
    };
    let tokens = TokenRegistry::of(&backstop).because(args.reason.reason());
    let minted = tokens
        .create(&CliContext::current_user(), new)
        .await
        .map_err(|error| match error {
            CreateTokenError::Store(error) => error.into(),
            other => CliError::misuse(other),
        })?;
    if context.output.is_json() {
        context
            .output
            .json(&json!({ "id": minted.id, "token": minted.token }))?;
    } else {
        context.output.line(&minted.token)?;
        context.output.note(format!(
            "its id is {}; the token is not shown again",
            minted.id
        ));
    }
    Ok(ExitStatus::Success)
}

/// Each of these once, in order.
fn deduplicate<T: Ord + Clone>(values: &[T]) -> Vec<T> {
    values
        .iter()
        .cloned()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

async fn list(context: &CliContext) -> Result<ExitStatus, CliError> {
    let backstop = context.open_for_reading().await?;
    let (tokens, now) = (TokenRegistry::of(&backstop).list().await?, backstop.now());
    if context.output.is_json() {
        let tokens: Vec<Value> = tokens.iter().map(|token| shape(token, now)).collect();
        context.output.json(&json!({ "tokens": tokens }))?;
    } else if tokens.is_empty() {
        context
            .output
            .note("no tokens yet; try: backstop token create --scope admin");
    } else {
        context.output.table(&table(&tokens, now))?;
    }
    Ok(ExitStatus::Success)
}

fn shape(token: &Token, now: Time) -> Value {
    json!({
        "id": token.id,
        "name": token.name,
        "scopes": token.scopes,
        "queues": token.queues,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "expired": token.is_expired(now),
    })
}

fn table(tokens: &[Token], now: Time) -> TextTable {
    let mut table = TextTable::new(&["ID", "NAME", "SCOPES", "QUEUES", "MADE", "EXPIRES"]);
    for token in tokens {
        let scopes: Vec<&str> = token.scopes.iter().map(|scope| scope.as_str()).collect();
        let queues: Vec<&str> = token.queues.iter().map(QueueName::as_str).collect();
        let expires = match token.expires_at {
            None => ("never".to_owned(), CellTone::Plain),
            Some(_) if token.is_expired(now) => ("expired".to_owned(), CellTone::Bad),
            Some(at) => (relative(at, now), CellTone::Plain),
        };
        let plain = |text: String| (text, CellTone::Plain);
        table.styled_row([
            plain(token.id.clone()),
            plain(token.name.clone()),
            plain(scopes.join(", ")),
            plain(if queues.is_empty() {
                "all".to_owned()
            } else {
                queues.join(", ")
            }),
            plain(relative(token.created_at, now)),
            expires,
        ]);
    }
    table
}

async fn revoke(args: &TokenRevokeArgs, context: &CliContext) -> Result<ExitStatus, CliError> {
    let (backstop, id) = (context.open().await?, &args.id);
    if !TokenRegistry::of(&backstop)
        .because(args.reason.reason())
        .revoke(&CliContext::current_user(), id)
        .await?
    {
        return Err(CliError::new(format!("there is no token {id}")).advise("backstop token list"));
    }
    if context.output.is_json() {
        context.output.json(&json!({ "id": id, "revoked": true }))?;
    } else {
        context
            .output
            .line(format!("{id} is revoked; servers notice within seconds"))?;
    }
    Ok(ExitStatus::Success)
}
