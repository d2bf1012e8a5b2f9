//! The figures, for people and for programs.

use super::measure::Rate;
use super::raw::Raw;
use super::{BenchArgs, Round};
use anyhow::Result;
use backstop::Durability;
use comfy_table::{Cell, CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::fmt::Write;

/// Everything measured in one run.
pub(super) struct Report<'a> {
    pub(super) store: &'a str,
    pub(super) durability: Durability,
    pub(super) args: &'a BenchArgs,
    pub(super) raw: Option<Raw>,
    pub(super) rounds: &'a [Round],
}

impl Report<'_> {
    pub(super) fn json(&self) -> Result<String> {
        let raw = self.raw.map(|raw| {
            json!({
                "enqueue_bulk": raw.bulk, "enqueue_callers": raw.grouped, "cycle": raw.cycle,
                "engine_shape": raw.engine,
                "commit_ms": raw.commit.as_secs_f64() * 1_000.0,
            })
        });
        let rounds: Vec<Value> =
            self.rounds.iter().map(|round| self.round_json(round)).collect::<Result<_>>()?;
        let report = json!({
            "store": self.store_kind(), "durability": self.durability_word(), "jobs": self.args.jobs,
            "callers": self.args.callers, "handlers": self.args.handlers, "raw": raw, "rounds": rounds,
        });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }

    fn round_json(&self, round: &Round) -> Result<Value> {
        let mut value = serde_json::to_value(round)?;
        if let Some(raw) = self.raw {
            value["ratio_to_raw"] = json!({
                "enqueue_bulk": ratio(round.enqueue_bulk, raw.bulk),
                "enqueue_callers": ratio(round.enqueue_callers, raw.grouped),
                "drain": ratio(round.drain, raw.cycle),
                "drain_to_engine_shape": ratio(round.drain, raw.engine),
            });
        }
        if let Some(first) = self.rounds.first().filter(|first| first.present != round.present) {
            value["drain_ratio_to_empty"] = json!(ratio(round.drain, first.drain));
        }
        Ok(value)
    }

    pub(super) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        let mut header = vec![Cell::new("jobs a second"), right("raw limit")];
        for round in self.rounds {
            header.push(right(&match round.present {
                0 => "backstop".to_owned(),
                present => format!("with {} others", grouped(present)),
            }));
            header.push(right("of raw"));
        }
        table.set_header(header);
        let (callers, handlers) = (self.args.callers, self.args.handlers);
        self.row(&mut table, "push, 1 caller", |_| None, |round| round.enqueue_single);
        let label = format!("push, {callers} callers, each acknowledged");
        self.row(&mut table, &label, |raw| Some(raw.grouped), |round| round.enqueue_callers);
        self.row(&mut table, "push in batches of 1,000", |raw| Some(raw.bulk), |round| round.enqueue_bulk);
        let label = format!("full cycle, {handlers} handlers");
        self.row(&mut table, &label, |raw| Some(raw.cycle), |round| round.drain);
        self.row(
            &mut table,
            "same, raw in the shape of an engine",
            |raw| Some(raw.engine),
            |round| round.drain,
        );
        format!(
            "{}, durability {}\n{table}\n{}",
            self.store_kind(),
            self.durability_word(),
            self.pickup_text()
        )
    }

    fn row(&self, table: &mut Table, label: &str, raw: fn(&Raw) -> Option<Rate>, ours: fn(&Round) -> Rate) {
        let limit = self.raw.as_ref().and_then(raw);
        let mut cells = vec![Cell::new(label), right(&limit.map_or("–".to_owned(), per_second))];
        for round in self.rounds {
            cells.push(right(&per_second(ours(round))));
            cells.push(right(
                &limit.map_or("–".to_owned(), |limit| format!("{:.2}", ratio(ours(round), limit))),
            ));
        }
        table.add_row(cells);
    }

    fn pickup_text(&self) -> String {
        let mut text = String::new();
        if let Some(raw) = self.raw {
            let ms = raw.commit.as_secs_f64() * 1_000.0;
            let _ = writeln!(text, "one raw commit            {ms:.2} ms (median)");
        }
        for round in self.rounds {
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

    /// The kind of store only: an address may carry a password.
    fn store_kind(&self) -> &str {
        self.store.split_once(':').map_or(self.store, |(kind, _)| kind)
    }

    const fn durability_word(&self) -> &'static str {
        match self.durability {
            Durability::Full => "full",
            Durability::Relaxed => "relaxed",
        }
    }
}

fn right(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn ratio(ours: Rate, raw: Rate) -> f64 {
    (ours.per_second / raw.per_second * 1_000.0).round() / 1_000.0
}

fn per_second(rate: Rate) -> String {
    grouped(rate.count_per_second())
}

/// `1234567` as `1,234,567`.
fn grouped(number: usize) -> String {
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
