//! Since when a schedule counts, and when it was paused.
//!
//! | an instant is expected … | if |
//! |---|---|
//! | under the first rule a schedule had | not before `since`, or the first registration |
//! | under a later rule: another cron, another zone | not before `since`, nor before that rule was first seen |
//! | in a pause | it is skipped; the first moment of a pause counts to it, the last does not |
//!
//! A changed cron therefore does not make its past week up, nor does one that is changed back. What
//! the rule before it was due for and nobody has dealt with is not forgotten with that rule: it is
//! expected under the new one. Rules are remembered side by side: while an old and a new version
//! run together, each finds its own. A rule that is only written in another way is the same one.
//!
//! What was noted by a clock that was ahead is taken back when the schedule is next registered by
//! one that is right.

use super::{Cron, Schedule, Zone};
use crate::limits::{LEDGER_KEPT, PAUSES_MAX, RULES_MAX};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// A rule that nobody has looked by for so long, while another was in force, was put aside.
const RULE_INACTIVE_AFTER: Span = Span::hours(6);

/// What is remembered of a schedule beside its ledger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScheduleState {
    /// When it was first registered.
    pub registered: Time,
    /// Since when it is paused, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Time>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pauses: Vec<(Time, Time)>,
    /// The rules it was under, the latest last.
    #[serde(default)]
    rules: Vec<ScheduleRule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LatestRun>,
}

/// The newest run of a schedule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LatestRun {
    pub instant: Time,
    /// What became of it, in the ledger's word.
    pub what: String,
    pub at: Time,
}

/// A rule and how far it has been dealt with.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct ScheduleRule {
    text: String,
    /// When it took the place of another one; `None` for the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Time>,
    /// Every instant up to here has its final entry, or was before anybody looked.
    settled: Time,
    /// What the rule before it left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<LeftoverInstants>,
}

/// Instants of a rule that was replaced: those behind `after`, up to the replacement.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct LeftoverInstants {
    text: String,
    after: Time,
}

impl ScheduleRule {
    fn is_of(&self, schedule: &Schedule) -> bool {
        let is_same = |(cron, zone): (Cron, Zone)| {
            zone == schedule.timezone && cron.is_equivalent(&schedule.cron)
        };
        self.text == schedule.rule() || read(&self.text).is_some_and(is_same)
    }
}

/// The cron and the zone of a rule's text.
fn read(text: &str) -> Option<(Cron, Zone)> {
    let (cron, zone) = text.rsplit_once(' ')?;
    Some((Cron::new(cron).ok()?, Zone::new(zone).ok()?))
}

impl ScheduleState {
    /// A schedule nobody has heard of before.
    pub const fn new(now: Time) -> Self {
        Self {
            registered: now,
            paused: None,
            pauses: Vec::new(),
            rules: Vec::new(),
            last: None,
        }
    }

    /// Notes that the schedule is under its rule.
    pub fn register(&mut self, schedule: &Schedule, now: Time) {
        // What is older than the window was never expected by anybody.
        let window = now.before(schedule.missed.look_back);
        self.fix_future_times(window, now);
        if let Some(at) = self.rules.iter().position(|known| known.is_of(schedule)) {
            let is_last = at + 1 == self.rules.len();
            if is_last || now.since(self.rules[at].settled) <= RULE_INACTIVE_AFTER {
                return;
            }
            // It was put aside and comes back: what it would have been due for meanwhile was
            // another rule's.
            self.rules.remove(at);
        }
        // The one that was looked by last; after a change that was taken back that is not the
        // latest.
        let former = self.rules.iter().max_by_key(|rule| rule.settled);
        let left = former.map(|former| {
            let begun = self.rule_start(former, schedule).before(Span::micros(1));
            LeftoverInstants {
                text: former.text.clone(),
                after: former.settled.max(begun),
            }
        });
        let settled = left.as_ref().map_or(window, |left| left.after.min(window));
        let since = left.is_some().then_some(now);
        self.rules.push(ScheduleRule {
            text: schedule.rule(),
            since,
            settled,
            left,
        });
        let surplus = self.rules.len().saturating_sub(RULES_MAX);
        self.rules.drain(..surplus);
    }

    /// Takes back what was noted by a clock that was ahead.
    fn fix_future_times(&mut self, window: Time, now: Time) {
        let right = |noted: &mut Time, instead: Time| {
            if noted.is_ahead_of(now) {
                *noted = instead;
            }
        };
        right(&mut self.registered, now);
        let pauses = self
            .pauses
            .iter_mut()
            .map(|(_, until)| until)
            .chain(&mut self.paused);
        pauses
            .chain(self.rules.iter_mut().filter_map(|rule| rule.since.as_mut()))
            .for_each(|at| right(at, now));
        self.rules
            .iter_mut()
            .for_each(|rule| right(&mut rule.settled, window));
    }

    /// The latest rule: cron and zone.
    pub fn rule(&self) -> Option<&str> {
        self.rules.last().map(|rule| rule.text.as_str())
    }

    /// From when on its instants are expected.
    pub fn since(&self, schedule: &Schedule) -> Time {
        self.of(schedule).map_or_else(
            || schedule.since.unwrap_or(self.registered),
            |rule| self.rule_start(rule, schedule),
        )
    }

    /// From when on a rule counts.
    fn rule_start(&self, rule: &ScheduleRule, schedule: &Schedule) -> Time {
        match rule.since {
            None => schedule.since.unwrap_or(self.registered),
            Some(changed) => schedule.since.map_or(changed, |since| since.max(changed)),
        }
    }

    /// The instants in (`after`, `until`] that are expected, in order.
    pub fn expected<'a>(
        &self,
        schedule: &'a Schedule,
        after: Time,
        until: Time,
    ) -> impl Iterator<Item = Time> + 'a {
        let since = self.since(schedule);
        let own = schedule
            .between(after, until)
            .filter(move |instant| *instant >= since);
        self.leftover_instants(schedule, after, until)
            .into_iter()
            .chain(own)
    }

    /// Those of them that are of the rule before.
    fn leftover_instants(&self, schedule: &Schedule, after: Time, until: Time) -> Vec<Time> {
        let rule = self.of(schedule);
        let Some((left, changed)) = rule.and_then(|rule| rule.left.as_ref().zip(rule.since)) else {
            return Vec::new();
        };
        let after = after.max(left.after);
        let former = (after < changed).then(|| read(&left.text)).flatten();
        let Some((cron, zone)) = former else {
            return Vec::new();
        };
        let instants = cron
            .instants(&zone, after)
            .take_while(|instant| *instant < changed && *instant <= until);
        instants
            .filter(|instant| schedule.since.is_none_or(|since| *instant >= since))
            .collect()
    }

    /// Behind what to look at `now`: behind what whoever looks has settled, or all of the window,
    /// and what is older and was left by whoever looked last.
    pub fn look_from(&self, schedule: &Schedule, settled: Option<Time>, now: Time) -> Time {
        let window = now.before(schedule.missed.look_back);
        let whole = || self.settled(schedule).unwrap_or(window).min(window);
        let from = settled
            .filter(|settled| !settled.is_ahead_of(now))
            .unwrap_or_else(whole);
        // A clock that was set right after decades does not make anybody walk through them.
        from.min(now).max(now.before(LEDGER_KEPT))
    }

    /// Up to where the schedule's rule has been dealt with.
    pub fn settled(&self, schedule: &Schedule) -> Option<Time> {
        self.of(schedule).map(|rule| rule.settled)
    }

    /// Notes how far the schedule's rule has been dealt with. It never falls: a process that is
    /// behind knows less.
    pub fn settle(&mut self, schedule: &Schedule, through: Time) {
        if let Some(known) = self.rules.iter_mut().find(|known| known.is_of(schedule)) {
            known.settled = known.settled.max(through);
        }
    }

    /// Notes the newest run. One that was fired before its time, by a clock that was ahead, gives
    /// way to one in time.
    pub fn record_run(&mut self, last: LatestRun) {
        let gives_way =
            |known: &LatestRun| known.instant < last.instant || known.instant.is_ahead_of(last.at);
        if self.last.as_ref().is_none_or(gives_way) {
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

    /// Sets it going again; whether it was paused. Pauses that ended before the ledger begins are
    /// forgotten.
    pub fn resume(&mut self, now: Time) -> bool {
        let Some(from) = self.paused.take() else {
            return false;
        };
        self.pauses
            .retain(|(_, until)| now.since(*until) <= LEDGER_KEPT);
        self.pauses.push((from, now));
        let surplus = self.pauses.len().saturating_sub(PAUSES_MAX);
        self.pauses.drain(..surplus);
        true
    }

    /// Whether it was paused at an instant.
    pub fn is_paused_at(&self, instant: Time) -> bool {
        let in_former = self
            .pauses
            .iter()
            .any(|(from, until)| (*from..*until).contains(&instant));
        in_former || self.paused.is_some_and(|from| from <= instant)
    }

    fn of(&self, schedule: &Schedule) -> Option<&ScheduleRule> {
        self.rules.iter().find(|known| known.is_of(schedule))
    }
}
