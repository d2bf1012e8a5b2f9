//! `backstop dead`: look at what was given up, bring it back, remove it, carry it elsewhere.

mod change;
mod export_import;
mod list;
mod redrive;
mod select;
mod show;
mod stats;

use super::job::JobIdArgs;
use crate::context::CliContext;
use crate::error::{CliError, ExitStatus};
use backstop::Backstop;
use backstop::dead::DeadLetters;
use clap::Subcommand;
use select::DeadSelectionArgs;

/// Look at what was given up, bring it back, remove it, carry it elsewhere.
#[derive(Subcommand, Debug)]
pub(crate) enum DeadSubcommand {
    /// How many dead letters there are, by queue
    #[command(after_help = "\
Examples:
  backstop dead stats
  backstop dead stats --json | jq .total")]
    Stats,
    /// What they died of: deaths with the same cause in one line, the largest group first
    #[command(after_help = "\
Examples:
  backstop dead groups
  backstop dead groups --queue emails --limit 5
  backstop dead list --fingerprint 9f1c2ab03d4e5f60      the letters of one group
  backstop dead requeue --fingerprint 9f1c2ab03d4e5f60   once its cause is gone")]
    Groups(stats::DeadGroupsArgs),
    /// List dead letters, the newest death first
    #[command(after_help = "\
Examples:
  backstop dead list --queue emails --since 1h
  backstop dead list --error-type Timeout --text example.org
  backstop dead list --limit 1000 --json | jq -r '.dead[].id'

Values of secret fields read [redacted], here and in errors; --text does not find them. A letter that cannot be read
is told on stderr (in JSON under `damaged`) and hides no other.")]
    List(list::DeadListArgs),
    /// Show one dead letter with its payload, its errors and what was known when it died
    #[command(after_help = "\
Examples:
  backstop dead show order-17
  backstop dead show 019a8c2e-7d11-7c3e-9a55-0d6c1f0a2b3c --json
  backstop dead show order-17 --queue emails       on Redis, where several queues have a job of that id")]
    Show(JobIdArgs),
    /// Run dead letters again, in their queues and with all attempts anew
    #[command(after_help = "\
Examples:
  backstop dead requeue order-17 order-18
  backstop dead requeue --oldest 10 --queue emails
  backstop dead requeue --queue emails --error-type Timeout --since 2h
  backstop dead requeue --all

The same as `backstop job retry` of dead jobs. Their history stays with them, and `requeues`
counts. To try a few first, see `backstop dead redrive`.")]
    Requeue(DeadSelectionArgs),
    /// Run dead letters again, in another queue
    #[command(after_help = "\
Examples:
  backstop dead move order-17 --to emails-by-hand
  backstop dead move --queue emails --kind newsletter --to slow

A letter is in one queue or in the other at any time, never in neither. A sweep knows the jobs of its own queue: it gives
a new job to the row of a letter that was moved away, unless the row is marked as processed.")]
    Move(change::DeadMoveArgs),
    /// Remove dead letters with their history
    #[command(after_help = "\
Examples:
  backstop dead delete order-17 --yes
  backstop dead delete --queue emails --until 30d --yes

What is removed cannot be brought back; `backstop dead export` makes a backup first. One that cannot be read is removed
by its id.")]
    Delete(change::DeadDeleteArgs),
    /// Remove all dead letters of a queue, or of all
    #[command(after_help = "\
Examples:
  backstop dead clear emails
  backstop dead clear --all --yes --json")]
    Clear(change::DeadClearArgs),
    /// Write dead letters as NDJSON, one a line: a backup
    #[command(after_help = "\
Examples:
  backstop dead export > dead.ndjson
  backstop dead export --queue emails --output emails.ndjson

Payloads are whole; error texts are redacted as in lists. The oldest death comes first. With --output the file appears
when it is complete.")]
    Export(export_import::DeadExportArgs),
    /// Take dead letters in from an export
    #[command(after_help = "\
Examples:
  backstop dead import dead.ndjson
  backstop dead export --store sqlite:old.db | backstop dead import - --store redis://localhost

Every good line is taken in, each bad one is named. Doing it again is harmless: letters that are known stay as they are.
A line needs `id`, `queue` and `original_job` with a `payload`.")]
    Import(export_import::DeadImportArgs),
    /// Requeue a few, watch them, and go on with the rest or stop
    #[command(after_help = "\
Examples:
  backstop dead redrive --queue emails --canary 5 --max-failures 1 --then-rate 100/s
  backstop dead redrive --oldest 1000 --queue emails
  backstop dead redrive --list
  backstop dead redrive --stop ID         from anywhere
  backstop dead redrive --resume ID       after Ctrl-C, or after its runner was killed

The oldest letters go first, or the first ones named, as the canary. When each has ended, and not more than --max-failures died again, the
others follow at --then-rate; they are watched too, and if a larger share dies than the canary was allowed to, it stops
by itself and exits 1. Only letters that are dead now are redriven, each once. Workers must be running elsewhere.")]
    Redrive(redrive::DeadRedriveArgs),
    /// Who changed what by hand, the newest first: dead letters, and anything else
    #[command(after_help = "\
Examples:
  backstop dead audit
  backstop dead audit --limit 1000 --json
  backstop queue pause emails --reason 'the mail server moves'      what is shown as its reason

An entry without a count was cut off before it ended; one with an error ended early. Of dead letters are `requeue`, `move`,
`delete`, `clear`, `import` and `redrive`; what was done to anything else says so first, as in `queue pause`.")]
    Audit(stats::DeadAuditArgs),
}

impl DeadSubcommand {
    /// Whether it changes nothing, and needs no entry of the configuration.
    pub(crate) const fn is_read_only(&self) -> bool {
        matches!(
            self,
            Self::Stats
                | Self::Groups(_)
                | Self::List(_)
                | Self::Show(_)
                | Self::Export(_)
                | Self::Audit(_)
        )
    }
}

/// Does what was asked for.
pub(crate) async fn run(
    command: &DeadSubcommand,
    context: &CliContext,
) -> Result<ExitStatus, CliError> {
    match command {
        DeadSubcommand::Stats => stats::stats(context).await,
        DeadSubcommand::Groups(args) => stats::groups(args, context).await,
        DeadSubcommand::List(args) => list::run(args, context).await,
        DeadSubcommand::Show(args) => show::run(args, context).await,
        DeadSubcommand::Requeue(args) => change::requeue(args, context).await,
        DeadSubcommand::Move(args) => change::move_to(args, context).await,
        DeadSubcommand::Delete(args) => change::delete(args, context).await,
        DeadSubcommand::Clear(args) => change::clear(args, context).await,
        DeadSubcommand::Export(args) => export_import::export(args, context).await,
        DeadSubcommand::Import(args) => export_import::import(args, context).await,
        DeadSubcommand::Audit(args) => stats::audit(args, context).await,
        DeadSubcommand::Redrive(args) => redrive::run(args, context).await,
    }
}

/// The dead letters of a store, on behalf of whoever sits here.
pub(super) fn letters(backstop: &Backstop, context: &CliContext) -> DeadLetters {
    context.config.dead(backstop, &CliContext::current_user())
}
