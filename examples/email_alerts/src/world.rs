//! Who is subscribed to what, what happened in the weeks before, and what comes in.

use crate::database::Database;
use crate::desk::Desk;
use crate::intake::Intake;
use anyhow::{Context, Result};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::time::Duration;

const SCHEMA: &str = include_str!("sql/schema.sql");
/// $1 how many. Every 25th address cannot be.
const SUBSCRIBERS: &str = "INSERT INTO email_alerts.subscribers (address)
    SELECT 'subscriber-' || n || CASE WHEN n % 25 = 0 THEN '@nowhere' ELSE '@example.org' END
      FROM generate_series(1, $1::int) AS n";
/// $1 how many lists there are.
const SUBSCRIPTIONS: &str =
    "INSERT INTO email_alerts.subscriptions (subscriber_id, list, frequency)
    SELECT subscriber.id, 'list-' || 1 + (subscriber.id * 7 + nth * 5) % $1::int,
           (ARRAY['immediately', 'daily', 'weekly'])[1 + (subscriber.id + nth) % 3]
      FROM email_alerts.subscribers AS subscriber, generate_series(1, 3) AS nth
    ON CONFLICT DO NOTHING";
/// $1 how many, $2 how many lists there are.
const PAST: &str = "INSERT INTO email_alerts.content_changes (list, title, created_at, processed_at)
    SELECT 'list-' || 1 + n % $2::int, 'past change ' || n, passed.at, passed.at + interval '1 minute'
      FROM generate_series(1, $1::int) AS n,
           LATERAL (SELECT clock_timestamp() - interval '16 days' * n / ($1::int + 1) AS at) AS passed";

/// How large it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// Who is subscribed at the beginning; each to three lists.
    pub subscribers: i32,
    /// Lists to subscribe to.
    pub lists: i32,
    /// Content changes of the 16 days before, processed at the time; digests are about them.
    pub past: i32,
    /// Content changes that come in.
    pub content_changes: u32,
    /// Messages that come in.
    pub messages: u32,
    /// Subscribers that sign up.
    pub sign_ups: u32,
}

/// Makes the tables, subscribers and what happened before.
pub async fn found(database: &Database, scale: Scale) -> Result<()> {
    let connection = database.connection().await?;
    let made = connection.batch_execute(SCHEMA).await;
    made.context("the tables cannot be made; name an empty database, or remove what is there: DROP SCHEMA email_alerts CASCADE")?;
    connection
        .execute(SUBSCRIBERS, &[&scale.subscribers])
        .await?;
    connection.execute(SUBSCRIPTIONS, &[&scale.lists]).await?;
    connection
        .execute(PAST, &[&scale.past, &scale.lists])
        .await?;
    Ok(())
}

/// Something that comes in.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Arrival {
    ContentChange { list: String, title: String },
    Message { list: String, title: String },
    SignUp { address: String },
}

/// Lets everything come in, in some order, spread over so long.
pub async fn arrive(desk: &Desk, scale: Scale, seed: u64, during: Duration) -> Result<()> {
    let arrivals = arrivals(scale, seed);
    let pause = during / u32::try_from(arrivals.len().max(1)).unwrap_or(u32::MAX);
    let intake = Intake(desk);
    for arrival in arrivals {
        match arrival {
            Arrival::ContentChange { list, title } => intake.content_change(&list, &title).await?,
            Arrival::Message { list, title } => intake.message(&list, &title).await?,
            Arrival::SignUp { address } => intake.sign_up(&address).await?,
        }
        tokio::time::sleep(pause).await;
    }
    Ok(())
}

fn arrivals(scale: Scale, seed: u64) -> Vec<Arrival> {
    let mut dice = StdRng::seed_from_u64(seed);
    let mut list = || format!("list-{}", dice.random_range(1..=scale.lists));
    let changes = (1..=scale.content_changes)
        .map(|n| (n, list()))
        .collect::<Vec<_>>();
    let messages = (1..=scale.messages)
        .map(|n| (n, list()))
        .collect::<Vec<_>>();
    let changes = changes.into_iter().map(|(n, list)| Arrival::ContentChange {
        list,
        title: format!("change {n}"),
    });
    let messages = messages.into_iter().map(|(n, list)| Arrival::Message {
        list,
        title: format!("message {n}"),
    });
    let sign_ups = (1..=scale.sign_ups).map(|n| {
        let host = if n % 25 == 0 {
            "nowhere"
        } else {
            "example.org"
        };
        Arrival::SignUp {
            address: format!("new-{n}@{host}"),
        }
    });
    let mut arrivals: Vec<Arrival> = changes.chain(messages).chain(sign_ups).collect();
    arrivals.shuffle(&mut dice);
    arrivals
}
