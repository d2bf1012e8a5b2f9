//! The whole of it: a server, and all four systems at work.

use super::play::{self, Play};
use super::{DemoArgs, new_folder, short, store_in};
use crate::context::Context;
use crate::trouble::{Trouble, Verdict};
use std::time::Duration;

/// Serves and plays until it is told to stop, or for as long as was asked.
pub(super) async fn run(args: &DemoArgs, context: &Context) -> Result<Verdict, Trouble> {
    let folder = new_folder()?;
    let address = context.named_store.clone().unwrap_or_else(|| store_in(&folder));
    let backstop = context.open_at(&address).await?;
    short::refuse_used(&backstop, &address).await?;
    let (config, file) = play::config(&folder, &address, backstop.now(), context)?;
    let play = Play::start(&backstop, &address, &config, &folder)?;
    let _ = (file, args.listen);
    tokio::time::sleep(Duration::from_secs(args.seconds.unwrap_or(60))).await;
    play.stop().await;
    Ok(Verdict::Fine)
}
