//! The state of a schedule: since when it counts, and when it was paused.
//!
//! | an instant is expected … | if |
//! |---|---|
//! | under the first rule of a schedule | it is not before `since`, or else the first registration |
//! | under a later rule: another cron, another zone | it is neither before `since` nor before that rule was first registered |
//! | during a pause | never, it is skipped; the first moment of a pause belongs to it, the last one does not |
//!
//! So a changed cron does not make up its past week, and neither does one that is changed back.
//! Instants of the former rule that were due and are not settled are not lost with that rule: they
//! are expected under the new one. The state remembers several rules side by side: while an old and
//! a new version of the program run together, each finds its own rule. A rule that is only written
//! differently is the same rule.
//!
//! Times recorded by a clock that was ahead are corrected when a process with a correct clock next
//! registers the schedule.

use super::{Cron, Schedule, Zone};
use crate::limits::{LEDGER_KEPT, PAUSES_MAX, RULES_MAX};
use crate::time::{Span, Time};
use serde::{Deserialize, Serialize};

/// A rule that no process has used for this long, while another one was in force, counts as
/// replaced.
const RULE_INACTIVE_AFTER: Span = Span::hours(6);

/// The state of a schedule, apart from its ledger.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ScheduleState {
    /// The time of the first registration.
    pub registered: Time,
    /// The start of the current pause, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Time>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pauses: Vec<(Time, Time)>,
    /// The rules of the schedule, the latest last.
    #[serde(default)]
    rules: Vec<ScheduleRule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<LatestRun>,
}

/// The newest run of a schedule.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LatestRun {
    pub instant: Time,
    /// The name of its outcome, as in the ledger.
    pub what: String,
    pub at: Time,
}

/// A rule, and up to where its instants are settled.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct ScheduleRule {
    text: String,
    /// When this rule replaced another one; `None` for the first rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<Time>,
    /// Every instant up to here has its final entry, or was before the schedule's time.
    settled: Time,
    /// The unsettled instants of the rule before this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left: Option<LeftoverInstants>,
}

/// Instants of a replaced rule: those after `after`, up to the replacement.
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

/// Parses the text of a rule into cron and zone.
fn read(text: &str) -> Option<(Cron, Zone)> {
    let (cron, zone) = text.rsplit_once(' ')?;
    Some((Cron::new(cron).ok()?, Zone::new(zone).ok()?))
}

impl ScheduleState {
    /// The state of a schedule at its first registration.
    pub const fn new(now: Time) -> Self {
        Self {
            registered: now,
            paused: None,
            pauses: Vec::new(),
            rules: Vec::new(),
            last: None,
        }
    }

    /// Records that the schedule uses its current rule.
    pub fn register(&mut self, schedule: &Schedule, now: Time) {
        // No process ever expected an instant older than this window.
        let window = now.before(schedule.missed.look_back);
        self.fix_future_times(window, now);
        if let Some(at) = self.rules.iter().position(|known| known.is_of(schedule)) {
            let is_last = at + 1 == self.rules.len();
            if is_last || now.since(self.rules[at].settled) <= RULE_INACTIVE_AFTER {
                return;
            }
            // The rule was replaced and comes back. Its instants in between belonged to another
            // rule.
            self.rules.remove(at);
        }
        // The rule used last. After a change was taken back, that is not the latest one in the
        // list.
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

    /// Corrects times that were recorded by a clock that was ahead.
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

    /// The time from which on the schedule's instants are expected.
    pub fn since(&self, schedule: &Schedule) -> Time {
        self.of(schedule).map_or_else(
            || schedule.since.unwrap_or(self.registered),
            |rule| self.rule_start(rule, schedule),
        )
    }

    /// The time from which on a rule counts.
    fn rule_start(&self, rule: &ScheduleRule, schedule: &Schedule) -> Time {
        match rule.since {
            None => schedule.since.unwrap_or(self.registered),
            Some(changed) => schedule.since.map_or(changed, |since| since.max(changed)),
        }
    }

    /// The expected instants in (`after`, `until`], in order.
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

    /// The expected instants in this range that belong to the former rule.
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

    /// Returns the time after which to look for instants at `now`. That is up to where the caller
    /// has settled them, or else the start of the window, or an earlier time up to which they were
    /// last settled.
    pub fn look_from(&self, schedule: &Schedule, settled: Option<Time>, now: Time) -> Time {
        let window = now.before(schedule.missed.look_back);
        let whole = || self.settled(schedule).unwrap_or(window).min(window);
        let from = settled
            .filter(|settled| !settled.is_ahead_of(now))
            .unwrap_or_else(whole);
        // A clock that is set right after decades must not make a process walk through all of them.
        from.min(now).max(now.before(LEDGER_KEPT))
    }

    /// The time up to which the instants of the schedule's rule are settled.
    pub fn settled(&self, schedule: &Schedule) -> Option<Time> {
        self.of(schedule).map(|rule| rule.settled)
    }

    /// Records up to where the instants of the schedule's rule are settled. The time never moves
    /// back, because a process that lags behind knows less.
    pub fn settle(&mut self, schedule: &Schedule, through: Time) {
        if let Some(known) = self.rules.iter_mut().find(|known| known.is_of(schedule)) {
            known.settled = known.settled.max(through);
        }
    }

    /// Records the newest run. A run that was fired before its time, by a clock that was ahead, is
    /// replaced by the next one in time.
    pub fn record_run(&mut self, last: LatestRun) {
        let gives_way =
            |known: &LatestRun| known.instant < last.instant || known.instant.is_ahead_of(last.at);
        if self.last.as_ref().is_none_or(gives_way) {
            self.last = Some(last);
        }
    }

    /// Pauses the schedule. Returns whether it was running before.
    pub fn pause(&mut self, now: Time) -> bool {
        let was_going = self.paused.is_none();
        if was_going {
            self.paused = Some(now);
        }
        was_going
    }

    /// Resumes the schedule. Returns whether it was paused. Pauses that ended before the ledger
    /// begins are forgotten.
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

    /// Whether the schedule was paused at an instant.
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
