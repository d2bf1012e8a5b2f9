//! Adopted tables: how they stand.

use backstop::tables::{AgeBand, FailingPasses, RowInHand, TableStatus, UnburiedRows};
use backstop::{Span, Time};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// All tables of the configuration.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Tables)]
pub struct TablesShape<'a> {
    /// By name.
    pub tables: Vec<TableShape<'a>>,
}

/// A table, and how it stands.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = Table)]
pub struct TableShape<'a> {
    /// What it is called here.
    pub name: &'a str,
    /// What it is called in its database.
    pub table: &'a str,
    /// How often it is passed over.
    #[schema(value_type = String)]
    pub every: Span,
    /// At most so many rows in one pass.
    pub max_records: usize,
    /// How it stands; null if that cannot be told.
    pub status: Option<TableStatusShape<'a>>,
    /// Why it cannot be told, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Passes that failed since the last that did not; null if none.
    pub failing: Option<TableFailingShape>,
}

/// Passes that fail, one after the other.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = TableFailing)]
pub struct TableFailingShape {
    /// When the first of them failed.
    #[schema(value_type = String, format = DateTime)]
    since: Time,
    /// When the last one did.
    #[schema(value_type = String, format = DateTime)]
    at: Time,
    /// How many there were.
    passes: u64,
    /// Of what the last one failed.
    error: String,
}

impl TableFailingShape {
    /// The shape of passes that fail.
    pub fn new(failing: &FailingPasses) -> Self {
        let FailingPasses {
            since,
            at,
            passes,
            error,
        } = failing.clone();
        Self {
            since,
            at,
            passes,
            error,
        }
    }
}

/// How a table stands.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = TableStatus)]
pub struct TableStatusShape<'a> {
    #[schema(value_type = String, format = DateTime)]
    at: Time,
    /// Rows by what their status says.
    states: TableStatesShape,
    /// Open rows by their age.
    bands: Vec<TableBandShape>,
    /// Rows that would be tried now.
    due: u64,
    /// Rows that are tried later.
    waiting: u64,
    /// Rows that are not tried any more.
    expired: u64,
    /// Those of them that could not be copied to the dead letters, where they are to be; null if
    /// all could.
    unburied: Option<TableUnburiedShape>,
    /// Open rows whose date cannot be read.
    undated: u64,
    /// Open rows whose key is too long.
    unkeyed: u64,
    /// Rows that runners have.
    in_hand: usize,
    /// Those of them that have been in hand for the longest.
    hands: Vec<RowInHandShape>,
    #[schema(value_type = Option<String>, format = DateTime)]
    next_due: Option<Time>,
    #[schema(value_type = Option<String>, format = DateTime)]
    last_pass: Option<Time>,
    #[schema(value_type = String, format = DateTime)]
    next_pass: Time,
    /// Passes that failed since the last that did not; null if none.
    failing: Option<TableFailingShape>,
    /// The keys of expired rows, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Value>>)]
    expired_rows: Option<&'a [Value]>,
}

/// Expired rows that found no room in the dead letters.
#[derive(Serialize, ToSchema, Debug)]
#[schema(as = TableUnburied)]
struct TableUnburiedShape {
    /// How many there are at least.
    rows: u64,
    /// Why, and what to do about it.
    why: &'static str,
}

impl TableUnburiedShape {
    const fn new(unburied: &UnburiedRows) -> Self {
        Self {
            rows: unburied.rows,
            why: unburied.full.advice(),
        }
    }
}

#[derive(Serialize, ToSchema, Debug)]
#[schema(as = RowInHand)]
struct RowInHandShape {
    #[schema(value_type = Value)]
    id: Value,
    runner: String,
    #[schema(value_type = String, format = DateTime)]
    since: Time,
}

#[derive(Serialize, ToSchema, Debug)]
#[schema(as = TableStates)]
struct TableStatesShape {
    new: u64,
    error: u64,
    success: u64,
    other: u64,
}

#[derive(Serialize, ToSchema, Debug)]
#[schema(as = TableBand)]
struct TableBandShape {
    #[schema(value_type = Option<String>)]
    until: Option<Span>,
    #[schema(value_type = Option<String>)]
    every: Option<Span>,
    new: u64,
    error: u64,
}

impl<'a> TableStatusShape<'a> {
    /// The shape of how a table stands.
    pub fn new(status: &TableStatus, expired_rows: Option<&'a [Value]>) -> Self {
        let &TableStatus {
            new,
            error,
            success,
            other,
            ..
        } = status;
        let band = |&AgeBand {
                        until,
                        every,
                        new,
                        error,
                        ..
                    }: &AgeBand| TableBandShape {
            until,
            every,
            new,
            error,
        };
        let hand = |row: &RowInHand| RowInHandShape {
            id: row.key.clone(),
            runner: row.runner.clone(),
            since: row.since,
        };
        Self {
            at: status.at,
            states: TableStatesShape {
                new,
                error,
                success,
                other,
            },
            bands: status.bands.iter().map(band).collect(),
            due: status.due,
            waiting: status.waiting,
            expired: status.expired,
            unburied: status.unburied.as_ref().map(TableUnburiedShape::new),
            undated: status.undated,
            unkeyed: status.unkeyed,
            in_hand: status.in_hand,
            hands: status.hands.iter().map(hand).collect(),
            next_due: status.next_due,
            last_pass: status.last_pass,
            next_pass: status.next_pass,
            failing: status.failing.as_ref().map(TableFailingShape::new),
            expired_rows,
        }
    }
}
