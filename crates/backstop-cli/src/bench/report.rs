//! The figures, for people and for programs.

use super::BenchArgs;
use super::figures::BenchRate;
use super::held_snapshot::HeldSnapshotBench;
use super::raw::RawRates;
use super::raw::postgres::CALLERS_CONNECTIONS;
use super::round::BenchRound;
use anyhow::Result;
use backstop::{Durability, StoreKind};
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::fmt::Write;

/// Everything measured in one run.
pub(super) struct StoreBenchReport<'a> {
    pub(super) kind: StoreKind,
    pub(super) durability: Durability,
    /// What the store says of itself: figures mean little without it.
    pub(super) promise: String,
    pub(super) args: &'a BenchArgs,
    pub(super) raw: Option<RawRates>,
    pub(super) rounds: Vec<BenchRound>,
    pub(super) held: Option<HeldSnapshotBench>,
}

impl StoreBenchReport<'_> {
    pub(super) fn json(&self) -> Result<String> {
        let raw = self.raw.map(|raw| {
            json!({
                "enqueue_bulk": raw.bulk, "enqueue_callers": raw.callers,
                "enqueue_one_connection": raw.lone, "enqueue_grouped": raw.grouped,
                "cycle": raw.cycle, "engine_shape": raw.engine,
                "commit_ms": raw.commit.as_secs_f64() * 1_000.0,
            })
        });
        let rounds: Vec<Value> = self
            .rounds
            .iter()
            .map(|round| self.round_json(round))
            .collect::<Result<_>>()?;
        let report = json!({
            "store": self.kind.word(), "durability": self.durability_word(), "promise": self.promise,
            "jobs": self.args.jobs(), "callers": self.args.callers, "handlers": self.args.handlers,
            "repeat": self.args.repeat, "raw": raw, "rounds": rounds, "held_snapshot": self.held,
        });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }

    fn round_json(&self, round: &BenchRound) -> Result<Value> {
        let mut value = serde_json::to_value(round)?;
        if let Some(raw) = self.raw {
            value["ratio_to_raw"] = json!({
                "enqueue_bulk": round.enqueue_bulk.ratio_to(raw.bulk),
                "enqueue_callers": round.enqueue_callers.ratio_to(raw.callers),
                "enqueue_callers_to_one_connection": raw.lone.map(|lone| round.enqueue_callers.ratio_to(lone)),
                "enqueue_callers_to_grouped": raw.grouped.map(|grouped| round.enqueue_callers.ratio_to(grouped)),
                "drain": round.drain.ratio_to(raw.cycle),
                "drain_gone": round.drain_gone.ratio_to(raw.cycle),
                "drain_to_engine_shape": raw.engine.map(|engine| round.drain.ratio_to(engine)),
            });
        }
        if let Some(first) = self
            .rounds
            .first()
            .filter(|first| first.present != round.present)
        {
            value["drain_ratio_to_empty"] = json!(round.drain.ratio_to(first.drain));
        }
        Ok(value)
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        let mut header = vec![Cell::new("jobs a second"), right("raw limit")];
        for round in &self.rounds {
            header.push(right(&match round.present {
                0 => "backstop".to_owned(),
                present => format!("with {} others", grouped(present)),
            }));
            header.push(right("of raw"));
        }
        table.set_header(header);
        let (callers, handlers) = (self.args.callers, self.args.handlers);
        self.row(
            &mut table,
            "push, 1 caller",
            |_| None,
            |round| round.enqueue_single,
        );
        let label = format!("push, {callers} callers, each acknowledged");
        self.row(
            &mut table,
            &label,
            |raw| Some(raw.callers),
            |round| round.enqueue_callers,
        );
        if self.raw.is_some_and(|raw| raw.lone.is_some()) {
            let label = "same, raw on one connection";
            self.row(
                &mut table,
                label,
                |raw| raw.lone,
                |round| round.enqueue_callers,
            );
        }
        if self.raw.is_some_and(|raw| raw.grouped.is_some()) {
            let label = format!("same, raw in inserts of {callers} and nobody waiting");
            self.row(
                &mut table,
                &label,
                |raw| raw.grouped,
                |round| round.enqueue_callers,
            );
        }
        self.row(
            &mut table,
            "push in batches of 1,000",
            |raw| Some(raw.bulk),
            |round| round.enqueue_bulk,
        );
        let label = format!("full cycle, {handlers} handlers");
        self.row(
            &mut table,
            &label,
            |raw| Some(raw.cycle),
            |round| round.drain,
        );
        let label = "same, done jobs not kept, as in the raw loop";
        self.row(
            &mut table,
            label,
            |raw| Some(raw.cycle),
            |round| round.drain_gone,
        );
        if self.raw.is_some_and(|raw| raw.engine.is_some()) {
            let label = "same, raw in the shape of an engine";
            self.row(&mut table, label, |raw| raw.engine, |round| round.drain);
        }
        let heading = format!(
            "{}, durability {}: {}",
            self.kind.name(),
            self.durability_word(),
            self.promise
        );
        format!(
            "{heading}\n{table}\n{}{}{}",
            self.connections_text(),
            self.pickup_text(),
            self.held_text()
        )
    }

    fn row(
        &self,
        table: &mut Table,
        label: &str,
        raw: fn(&RawRates) -> Option<BenchRate>,
        ours: fn(&BenchRound) -> BenchRate,
    ) {
        let limit = self.raw.as_ref().and_then(raw);
        let mut cells = vec![
            Cell::new(label),
            right(&limit.map_or("–".to_owned(), per_second)),
        ];
        for round in &self.rounds {
            cells.push(right(&per_second(ours(round))));
            cells.push(right(&limit.map_or("–".to_owned(), |limit| {
                format!("{:.2}", ours(round).ratio_to(limit))
            })));
        }
        table.add_row(cells);
    }

    /// What the raw figure of many callers depends on.
    fn connections_text(&self) -> String {
        match (self.kind, self.raw) {
            (StoreKind::Postgres, Some(_)) => {
                format!(
                    "raw callers share {CALLERS_CONNECTIONS} connections, as many as backstop has by default\n"
                )
            }
            _ => String::new(),
        }
    }

    fn pickup_text(&self) -> String {
        let mut text = String::new();
        if let Some(raw) = self.raw {
            let ms = raw.commit.as_secs_f64() * 1_000.0;
            let _ = writeln!(text, "one raw commit            {ms:.2} ms (median)");
        }
        for round in &self.rounds {
            let beside = match round.present {
                0 => String::new(),
                present => format!(", {} others present", grouped(present)),
            };
            let pickup = round.pickup;
            let _ = writeln!(
                text,
                "push to handler start     {:.2} ms p50, {:.2} ms p99 ({} samples{beside})",
                pickup.p50_ms, pickup.p99_ms, pickup.samples
            );
        }
        text
    }

    fn held_text(&self) -> String {
        self.held
            .as_ref()
            .map_or_else(String::new, |held| held.text(per_second))
    }

    const fn durability_word(&self) -> &'static str {
        match (self.kind, self.durability) {
            (StoreKind::Redis, _) => "as the server is set",
            (_, Durability::Full) => "full",
            (_, Durability::Relaxed) => "relaxed",
        }
    }
}

fn right(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn per_second(rate: BenchRate) -> String {
    grouped(rate.count_per_second())
}

pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(super::grouped(1_234_567), "1,234,567");
        assert_eq!(super::grouped(999), "999");
        assert_eq!(super::grouped(1_000), "1,000");
    }
}
