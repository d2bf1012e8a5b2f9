//! Forget a key, enable it, set it going again.

use super::{KeyArgs, unknown};
use crate::context::Context;
use crate::output::words::counted;
use crate::trouble::{Trouble, Verdict};
use backstop::streams::{Resume, Stream};
use clap::Args;
use serde_json::{Value, json};

/// Which key, and for how long.
#[derive(Args, Debug)]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    which: KeyArgs,
    /// And ignore its records until it is enabled again
    #[arg(long)]
    disable: bool,
}

/// Which key, and how it goes on.
#[derive(Args, Debug)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    which: KeyArgs,
    /// Go on past the record it halted at, instead of trying it again
    #[arg(long)]
    skip: bool,
}

async fn stream(args: &KeyArgs, context: &Context) -> Result<Stream, Trouble> {
    context.look().await?.stream(args.stream.as_str()).map_err(Trouble::misuse)
}

pub(super) async fn forget(args: &ForgetArgs, context: &Context) -> Result<Verdict, Trouble> {
    let stream = stream(&args.which, context).await?;
    let gone = if args.disable {
        stream.disable(&args.which.key).await?
    } else {
        stream.forget(&args.which.key).await?.ok_or_else(|| unknown(&args.which))?
    };
    let then = if args.disable { "; its records are ignored until it is enabled" } else { "" };
    let text = format!("{} forgotten with {}{then}", args.which.key, counted(gone.records, "held record"));
    tell(context, &json!({ "key": args.which.key, "count": gone.records, "disabled": args.disable }), &text)
}

pub(super) async fn enable(args: &KeyArgs, context: &Context) -> Result<Verdict, Trouble> {
    let was_disabled = stream(args, context).await?.enable(&args.key).await?;
    let text = if was_disabled { "is enabled; its next record is its first" } else { "was not disabled" };
    tell(context, &json!({ "key": args.key, "enabled": was_disabled }), &format!("{} {text}", args.key))
}

pub(super) async fn resume(args: &ResumeArgs, context: &Context) -> Result<Verdict, Trouble> {
    let resume = if args.skip { Resume::Past } else { Resume::Again };
    let was_halted = stream(&args.which, context).await?.resume(&args.which.key, resume).await?;
    if !was_halted {
        return Err(Trouble::new(format!(
            "key {} of stream {} is not halted",
            args.which.key, args.which.stream
        ))
        .advise(format!("backstop stream show {} {}", args.which.stream, args.which.key)));
    }
    let how = if args.skip { "past the record it halted at" } else { "with the record it halted at" };
    tell(
        context,
        &json!({ "key": args.which.key, "resumed": true }),
        &format!("{} goes on {how}", args.which.key),
    )
}

fn tell(context: &Context, shape: &Value, text: &str) -> Result<Verdict, Trouble> {
    if context.output.is_json() {
        context.output.json(shape)?;
    } else {
        context.output.line(text)?;
    }
    Ok(Verdict::Fine)
}
