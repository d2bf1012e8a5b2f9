//! Forget a key, enable it, set it going again.

use super::{KeyArgs, unknown};
use crate::commands::because::Because;
use crate::commands::confirm;
use crate::context::Context;
use crate::output::words::counted;
use crate::trouble::{Trouble, Verdict};
use backstop::operate::Changes;
use backstop::streams::{Resume, Stream};
use backstop_core::terminal::shell_argument;
use backstop_server::wire::stream::ForgottenShape;
use clap::Args;
use serde::Serialize;
use serde_json::json;

/// Which key, and for how long.
#[derive(Args, Debug)]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    which: KeyArgs,
    /// And ignore its records until it is enabled again
    #[arg(long)]
    disable: bool,
    /// Do not ask where it holds records
    #[arg(long, short)]
    yes: bool,
    #[command(flatten)]
    because: Because,
}

/// Which key.
#[derive(Args, Debug)]
pub(crate) struct EnableArgs {
    #[command(flatten)]
    which: KeyArgs,
    #[command(flatten)]
    because: Because,
}

/// Which key, and how it goes on.
#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    which: KeyArgs,
    /// Go on past the record it halted at, instead of trying it again
    #[arg(long)]
    skip: bool,
    #[command(flatten)]
    because: Because,
}

async fn opened(
    args: &KeyArgs,
    because: &Because,
    context: &Context,
) -> Result<(Changes, Stream), Trouble> {
    let backstop = context.look().await?;
    let stream = backstop
        .stream(args.stream.as_str())
        .map_err(Trouble::misuse)?;
    Ok((because.changes(&backstop), stream))
}

pub(super) async fn forget(args: &ForgetArgs, context: &Context) -> Result<Verdict, Trouble> {
    let (changes, stream) = opened(&args.which, &args.because, context).await?;
    if !args.yes && !is_meant(&stream, &args.which).await? {
        context.output.note("nothing was forgotten");
        return Ok(Verdict::FallsShort);
    }
    let gone = if args.disable {
        changes.disable(&stream, &args.which.key).await?
    } else {
        changes
            .forget(&stream, &args.which.key)
            .await?
            .ok_or_else(|| unknown(&args.which))?
    };
    let then = if args.disable {
        "; its records are ignored until it is enabled"
    } else {
        ""
    };
    let text = format!(
        "{} forgotten with {}{then}",
        args.which.key,
        counted(gone.records, "held record")
    );
    tell(
        context,
        &ForgottenShape {
            count: gone.records,
            disabled: args.disable,
            key: &args.which.key,
        },
        &text,
    )
}

/// Whether what a key holds may go; one that holds nothing loses nothing.
async fn is_meant(stream: &Stream, which: &KeyArgs) -> Result<bool, Trouble> {
    let held = stream
        .key(&which.key)
        .await?
        .map_or(0, |stored| stored.count);
    if held == 0 {
        return Ok(true);
    }
    let meant = format!("{} of key {}", counted(held, "held record"), which.key);
    confirm::removal(&meant, "the same command with --yes")
}

pub(super) async fn enable(args: &EnableArgs, context: &Context) -> Result<Verdict, Trouble> {
    let (changes, stream) = opened(&args.which, &args.because, context).await?;
    let key = &args.which.key;
    let was_disabled = changes.enable(&stream, key).await?;
    let text = if was_disabled {
        "is enabled; its next record is its first"
    } else {
        "was not disabled"
    };
    tell(
        context,
        &json!({ "key": key, "enabled": was_disabled }),
        &format!("{key} {text}"),
    )
}

pub(super) async fn resume(args: &ResumeArgs, context: &Context) -> Result<Verdict, Trouble> {
    let resume = if args.skip {
        Resume::Past
    } else {
        Resume::Again
    };
    let (changes, stream) = opened(&args.which, &args.because, context).await?;
    let was_halted = changes.resume_key(&stream, &args.which.key, resume).await?;
    if !was_halted {
        return Err(Trouble::new(format!(
            "key {} of stream {} is not halted",
            args.which.key, args.which.stream
        ))
        .advise(format!(
            "backstop stream show {} {}",
            args.which.stream,
            shell_argument(args.which.key.as_str())
        )));
    }
    let how = if args.skip {
        "past the record it halted at"
    } else {
        "with the record it halted at"
    };
    tell(
        context,
        &json!({ "key": args.which.key, "resumed": true }),
        &format!("{} goes on {how}", args.which.key),
    )
}

fn tell(context: &Context, shape: &impl Serialize, text: &str) -> Result<Verdict, Trouble> {
    if context.output.is_json() {
        context.output.json(shape)?;
    } else {
        context.output.line(text)?;
    }
    Ok(Verdict::Fine)
}
