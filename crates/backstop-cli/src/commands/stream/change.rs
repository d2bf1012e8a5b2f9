//! Forget a key, enable it, set it going again.

use super::{StreamKeyArgs, unknown_key};
use crate::commands::confirm;
use crate::commands::reason::ReasonArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use crate::output::words::counted;
use backstop::operate::AuditedChanges;
use backstop::streams::{ResumeFrom, Stream};
use backstop_core::terminal::shell_argument;
use backstop_server::wire::stream::StreamKeyForgottenShape;
use clap::Args;
use serde::Serialize;
use serde_json::json;

/// Which key, and for how long.
#[derive(Args, Debug)]
pub(crate) struct StreamForgetArgs {
    #[command(flatten)]
    target: StreamKeyArgs,
    /// And ignore its records until it is enabled again
    #[arg(long)]
    disable: bool,
    /// Do not ask where it holds records
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Which key.
#[derive(Args, Debug)]
pub(crate) struct StreamEnableArgs {
    #[command(flatten)]
    target: StreamKeyArgs,
    #[command(flatten)]
    reason: ReasonArgs,
}

/// Which key, and how it goes on.
#[derive(Args, Debug)]
pub(crate) struct StreamResumeArgs {
    #[command(flatten)]
    target: StreamKeyArgs,
    /// Go on past the record it halted at, instead of trying it again
    #[arg(long)]
    skip: bool,
    #[command(flatten)]
    reason: ReasonArgs,
}

async fn open_stream(
    args: &StreamKeyArgs,
    reason: &ReasonArgs,
    context: &CliContext,
) -> Result<(AuditedChanges, Stream), CliError> {
    let backstop = context.open_for_reading().await?;
    let stream = backstop
        .stream(args.stream.as_str())
        .map_err(CliError::misuse)?;
    Ok((reason.changes(&backstop), stream))
}

pub(super) async fn forget(
    args: &StreamForgetArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let (changes, stream) = open_stream(&args.target, &args.reason, context).await?;
    if !args.yes && !confirm_forget(&stream, &args.target).await? {
        context.output.note("nothing was forgotten");
        return Ok(ExitStatus::Failure);
    }
    let gone = if args.disable {
        changes.disable(&stream, &args.target.key).await?
    } else {
        changes
            .forget(&stream, &args.target.key)
            .await?
            .ok_or_else(|| unknown_key(&args.target))?
    };
    let then = if args.disable {
        "; its records are ignored until it is enabled"
    } else {
        ""
    };
    let text = format!(
        "{} forgotten with {}{then}",
        args.target.key,
        counted(gone.records, "held record")
    );
    print_change(
        context,
        &StreamKeyForgottenShape {
            count: gone.records,
            disabled: args.disable,
            key: &args.target.key,
        },
        &text,
    )
}

/// Whether what a key holds may go; one that holds nothing loses nothing.
async fn confirm_forget(stream: &Stream, target: &StreamKeyArgs) -> Result<bool, CliError> {
    let held = stream
        .key(&target.key)
        .await?
        .map_or(0, |stored| stored.count);
    if held == 0 {
        return Ok(true);
    }
    let description = format!("{} of key {}", counted(held, "held record"), target.key);
    confirm::confirm_removal(&description, "the same command with --yes")
}

pub(super) async fn enable(
    args: &StreamEnableArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let (changes, stream) = open_stream(&args.target, &args.reason, context).await?;
    let key = &args.target.key;
    let was_disabled = changes.enable(&stream, key).await?;
    let text = if was_disabled {
        "is enabled; its next record is its first"
    } else {
        "was not disabled"
    };
    print_change(
        context,
        &json!({ "key": key, "enabled": was_disabled }),
        &format!("{key} {text}"),
    )
}

pub(super) async fn resume(
    args: &StreamResumeArgs,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    let resume = if args.skip {
        ResumeFrom::NextRecord
    } else {
        ResumeFrom::SameRecord
    };
    let (changes, stream) = open_stream(&args.target, &args.reason, context).await?;
    let was_halted = changes
        .resume_key(&stream, &args.target.key, resume)
        .await?;
    if !was_halted {
        return Err(CliError::new(format!(
            "key {} of stream {} is not halted",
            args.target.key, args.target.stream
        ))
        .advise(format!(
            "backstop stream show {} {}",
            args.target.stream,
            shell_argument(args.target.key.as_str())
        )));
    }
    let how = if args.skip {
        "past the record it halted at"
    } else {
        "with the record it halted at"
    };
    print_change(
        context,
        &json!({ "key": args.target.key, "resumed": true }),
        &format!("{} goes on {how}", args.target.key),
    )
}

fn print_change(
    context: &CliContext,
    shape: &impl Serialize,
    text: &str,
) -> Result<ExitStatus, CliError> {
    if context.output.is_json() {
        context.output.json(shape)?;
    } else {
        context.output.line(text)?;
    }
    Ok(ExitStatus::Success)
}
