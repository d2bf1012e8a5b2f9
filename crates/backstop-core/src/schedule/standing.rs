//! Since when a schedule counts, and when it was paused.
//!
//! | an instant is expected … | if |
//! |---|---|
//! | under the first rule a schedule had | not before `since`, or the first registration |
//! | under a later rule: another cron, another zone | not before `since`, nor before that rule was first seen |
//! | in a pause | it is skipped; the first moment of a pause counts to it, the last does not |
//!
//! A changed cron therefore does not make its past week up, nor does one that is changed back. Rules are remembered side by side: while an old and a new
//! version run together, each finds its own.

use super::Schedule;
use crate::limits::{LEDGER_KEPT, PAUSES_MAX, RULES_MAX};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// A rule that nobody has looked by for so long, while another was in force, was put aside.
const RULE_RESTS: Span = Span::hours(6);

/// What is remembered of a schedule beside its ledger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// When it was first registered.
    pub registered: Time,
    /// Since when it is paused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Time>,
    /// Former pauses: from, until.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pauses: Vec<(Time, Time)>,
    /// The rules it was under, the latest last.
    #[serde(default)]
    rules: Vec<Rule>,
    /// Its newest run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<Last>,
}

/// The newest run of a schedule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Last {
    /// Its instant.
    pub instant: Time,
    /// What became of it, in the ledger's word.
    pub what: String,
    /// When that was.
    pub at: Time,
}

/// A rule and how far it has been dealt with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Rule {
    /// Cron and zone.
    text: String,
    /// When it took the place of another one; `None` for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Time>,
    /// Every instant up to here has its final entry, or was before anybody looked.
    settled: Time,
}

impl Standing {
    /// A schedule nobody has heard of before.
    pub const fn new(now: Time) -> Self {
        Self { registered: now, paused: None, pauses: Vec::new(), rules: Vec::new(), last: None }
    }

    /// Notes that the schedule is under its rule.
    pub fn register(&mut self, schedule: &Schedule, now: Time) {
        let rule = schedule.rule();
        if let Some(at) = self.rules.iter().position(|known| known.text == rule) {
            let is_last = at + 1 == self.rules.len();
            if is_last || now.since(self.rules[at].settled) <= RULE_RESTS {
                return;
            }
            // It was put aside and comes back: what it would have been due for meanwhile was another rule's.
            self.rules.remove(at);
        }
        let since = (!self.rules.is_empty()).then_some(now);
        // What is older than the window was never expected by anybody.
        let settled = now.before(schedule.missed.look_back);
        self.rules.push(Rule { text: rule, since, settled });
        let surplus = self.rules.len().saturating_sub(RULES_MAX);
        self.rules.drain(..surplus);
    }

    /// The latest rule: cron and zone.
    pub fn rule(&self) -> Option<&str> {
        self.rules.last().map(|rule| rule.text.as_str())
    }

    /// From when on its instants are expected.
    pub fn since(&self, schedule: &Schedule) -> Time {
        let usual = schedule.since.unwrap_or(self.registered);
        self.of(schedule).and_then(|rule| rule.since).map_or(usual, |changed| match schedule.since {
            Some(since) => since.max(changed),
            None => changed,
        })
    }

    /// Up to where the schedule's rule has been dealt with.
    pub fn settled(&self, schedule: &Schedule) -> Option<Time> {
        self.of(schedule).map(|rule| rule.settled)
    }

    /// Notes how far the schedule's rule has been dealt with. It never falls: a process that is behind knows less.
    pub fn settle(&mut self, schedule: &Schedule, through: Time) {
        let rule = schedule.rule();
        if let Some(known) = self.rules.iter_mut().find(|known| known.text == rule) {
            known.settled = known.settled.max(through);
        }
    }

    /// Notes the newest run.
    pub fn ran(&mut self, last: Last) {
        if self.last.as_ref().is_none_or(|known| known.instant < last.instant) {
            self.last = Some(last);
        }
    }

    /// Pauses it; whether it was not paused before.
    pub fn pause(&mut self, now: Time) -> bool {
        let was_going = self.paused.is_none();
        if was_going {
            self.paused = Some(now);
        }
        was_going
    }

    /// Sets it going again; whether it was paused. Pauses that ended before the ledger begins are forgotten.
    pub fn resume(&mut self, now: Time) -> bool {
        let Some(from) = self.paused.take() else { return false };
        self.pauses.retain(|(_, until)| now.since(*until) <= LEDGER_KEPT);
        self.pauses.push((from, now));
        let surplus = self.pauses.len().saturating_sub(PAUSES_MAX);
        self.pauses.drain(..surplus);
        true
    }

    /// Whether it was paused at an instant.
    pub fn is_paused_at(&self, instant: Time) -> bool {
        let in_former = self.pauses.iter().any(|(from, until)| (*from..*until).contains(&instant));
        in_former || self.paused.is_some_and(|from| from <= instant)
    }

    fn of(&self, schedule: &Schedule) -> Option<&Rule> {
        let rule = schedule.rule();
        self.rules.iter().find(|known| known.text == rule)
    }
}
