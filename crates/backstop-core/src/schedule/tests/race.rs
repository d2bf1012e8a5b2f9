//! Two virtual years of eight zones, with three schedulers that race, sleep and are killed between
//! any two steps, and with a clock that is sometimes days ahead. No instant fires twice, and each
//! instant without a job has a true explanation. The expected numbers of instants were counted by
//! another program, in another language and with another time zone database. The test also fails if
//! one of the events to survive has not happened.

use super::zones::ZONES;
use super::*;
use std::collections::{BTreeMap, BTreeSet};

/// Numbers that look random and are the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The state that all schedulers share: a store that answers one call at a time.
struct Shared {
    pages: BTreeMap<UtcDay, LedgerPage>,
    standing: ScheduleState,
    /// When the job of each instant was enqueued. Pruned jobs leave their unique key behind.
    jobs: BTreeMap<Time, Time>,
    /// How often a job was inserted for an instant.
    inserted: BTreeMap<Time, u32>,
    /// How often an enqueue was refused because the job existed.
    refused: u32,
    /// When a scheduler with a correct clock decided, and when it had entered its decision.
    looks: BTreeMap<Time, Time>,
    /// How often an instant was decided anew because the first decision was made by a clock that
    /// was ahead.
    anew: u32,
    /// Instants whose entry was made by a clock that was ahead.
    early: BTreeSet<Time>,
}

/// A clock that is ahead for a while.
struct Jumps {
    dice: Dice,
    from: Time,
    until: Time,
    ahead: Span,
}

impl Jumps {
    fn new(seed: u64, begin: Time) -> Self {
        let mut jumps = Self {
            dice: Dice(seed),
            from: begin,
            until: begin,
            ahead: Span::ZERO,
        };
        jumps.next(begin);
        jumps
    }

    /// The next jump begins some weeks after `after`.
    fn next(&mut self, after: Time) {
        self.from = after.after(Span::hours(24 + self.dice.roll(24 * 50).cast_signed()));
        self.until = self
            .from
            .after(Span::minutes(1 + self.dice.roll(180).cast_signed()));
        self.ahead = Span::minutes(2 + self.dice.roll(20 * 1_440).cast_signed());
    }

    fn is_on(&self, now: Time) -> bool {
        (self.from..self.until).contains(&now)
    }

    /// How far ahead the clock is.
    fn ahead(&self, now: Time) -> Span {
        if self.is_on(now) {
            self.ahead
        } else {
            Span::ZERO
        }
    }
}

/// One schedule in one zone, and how often it is due in its two years.
struct Case {
    cron: &'static str,
    zone: &'static str,
    due: usize,
    missed: MissedSettings,
    seed: u64,
}

impl Case {
    fn years(&self) -> (Time, Time) {
        // The island left out a day in December 2011. The years are past ones, because no country
        // changes their rules any more.
        let (begin, end) = if self.zone == "Pacific/Apia" {
            (2011, 2013)
        } else {
            (2024, 2026)
        };
        (
            time(&format!("{begin}-01-01T00:00:30Z")),
            time(&format!("{end}-01-01T00:00:00Z")),
        )
    }
}

/// How often each named event happened.
type Tally = BTreeMap<String, u32>;

/// The position of a scheduler between two steps.
enum Step {
    Idle,
    Decided(Vec<LedgerEntry>),
    Entered,
    Fired(Vec<LedgerEntry>),
}

/// A scheduler, which stands for one process.
struct Scheduler {
    step: Step,
    settled: Option<Time>,
    /// The instant after which it looks, and when it decided.
    look: (Time, Time),
    /// When it takes its next step.
    awake: Time,
}

impl Scheduler {
    fn new(now: Time) -> Self {
        Self {
            step: Step::Idle,
            settled: None,
            look: (now, now),
            awake: now,
        }
    }

    /// Takes the next step, with what the scheduler knew at the last one.
    fn go_on(
        &mut self,
        schedule: &Schedule,
        shared: &mut Shared,
        (now, is_ahead): (Time, bool),
    ) -> Option<Time> {
        if matches!(self.step, Step::Idle) {
            shared.standing.register(schedule, now);
            self.look = (shared.standing.look_from(schedule, self.settled, now), now);
        }
        let (from, decided) = self.look;
        let pages = |shared: &Shared| -> Vec<LedgerEntry> {
            let pages = shared
                .pages
                .range(UtcDay::of(from)..)
                .flat_map(|(_, page)| page.entries());
            pages.filter(|entry| !entry.is_void(now)).copied().collect()
        };
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle => {
                let known: BTreeSet<Time> =
                    pages(shared).iter().map(|entry| entry.instant).collect();
                let decision = decide(
                    schedule,
                    ScheduleSnapshot {
                        state: &shared.standing,
                        from,
                        known: &known,
                    },
                    now,
                );
                self.step = Step::Decided(decision.enter);
                Some(now)
            }
            Step::Decided(mut entries) => {
                // One page at a time, as a store does it.
                let day = entries.first().map(|entry| UtcDay::of(entry.instant));
                for entry in entries.extract_if(.., |entry| Some(UtcDay::of(entry.instant)) == day)
                {
                    shared.enter(entry, now, is_ahead);
                }
                self.step = if entries.is_empty() {
                    Step::Entered
                } else {
                    Step::Decided(entries)
                };
                Some(now)
            }
            Step::Entered => {
                let due = pages(shared).into_iter().filter(|entry| entry.is_due(now));
                let fired = due.map(|entry| {
                    let at = shared.enqueue(entry.instant, now);
                    LedgerEntry {
                        outcome: InstantOutcome::after(
                            at.since(entry.instant),
                            schedule.missed.grace,
                        ),
                        at,
                        ..entry
                    }
                });
                self.step = Step::Fired(fired.collect());
                Some(now)
            }
            Step::Fired(entries) => {
                for entry in entries {
                    shared.page(entry.instant).conclude(entry);
                }
                let open = pages(shared).into_iter().find(|entry| entry.is_due(now));
                let through = open.map_or(decided, |entry| entry.instant.before(Span::micros(1)));
                self.settled = Some(through.max(from));
                shared.standing.settle(schedule, through);
                schedule.next(now)
            }
        }
    }
}

impl Shared {
    fn page(&mut self, instant: Time) -> &mut LedgerPage {
        let day = UtcDay::of(instant);
        self.pages
            .entry(day)
            .or_insert_with(|| LedgerPage::empty(day))
    }

    /// Enters a decision that was made by a clock that is ahead or correct.
    fn enter(&mut self, entry: LedgerEntry, now: Time, is_ahead: bool) {
        let is_known = self
            .page(entry.instant)
            .entries()
            .any(|known| known.instant == entry.instant);
        if self.page(entry.instant).enter(entry, now) {
            self.anew += u32::from(is_known);
            self.early.remove(&entry.instant);
            let is_early = is_ahead || entry.at.is_ahead_of(now);
            self.early.extend(is_early.then_some(entry.instant));
        }
    }

    /// The rule of the store: the first job is inserted, and any other one is answered with it.
    fn enqueue(&mut self, instant: Time, now: Time) -> Time {
        if let Some(at) = self.jobs.get(&instant) {
            self.refused += 1;
            return *at;
        }
        *self.inserted.entry(instant).or_default() += 1;
        self.jobs.insert(instant, now);
        now
    }
}

/// How long a process is away: mostly not at all, sometimes for minutes, hours or days.
fn absence(dice: &mut Dice) -> Span {
    match dice.roll(40) {
        0..20 => Span::millis(dice.roll(2_000).cast_signed()),
        20..30 => Span::secs(dice.roll(120).cast_signed()),
        30..36 => Span::minutes(dice.roll(90).cast_signed()),
        36..39 => Span::hours(dice.roll(48).cast_signed()),
        _ => Span::hours(dice.roll(300).cast_signed()),
    }
}

fn check_raced(case: &Case, tally: &mut Tally) {
    let (begin, end) = case.years();
    let schedule = Schedule {
        missed: case.missed,
        since: None,
        ..schedule(case.cron, case.zone)
    };
    let mut shared = Shared {
        pages: BTreeMap::new(),
        standing: standing_of(&schedule, begin),
        jobs: BTreeMap::new(),
        inserted: BTreeMap::new(),
        refused: 0,
        looks: BTreeMap::new(),
        anew: 0,
        early: BTreeSet::new(),
    };
    let mut jumps = Jumps::new(case.seed ^ 0xc10c, begin);
    let mut dice = Dice(case.seed);
    let mut schedulers: Vec<Scheduler> = (0..3).map(|_| Scheduler::new(begin)).collect();
    let (mut pauses, mut pause_changes) = (
        Vec::new(),
        begin.after(Span::days(dice.roll(60).cast_signed())),
    );
    loop {
        let at = (0..3).min_by_key(|at| schedulers[*at].awake).unwrap();
        let now = schedulers[at].awake;
        if now > end {
            break;
        }
        if now >= jumps.until {
            // A sleeping scheduler looks at the clock every few seconds.
            for one in &mut schedulers {
                one.awake = one.awake.min(now.after(Span::secs(10)));
            }
            *tally.entry("the clock jumped".to_owned()).or_default() += 1;
            // No jump at the end: nothing would check its decisions afterwards.
            jumps.next(if now.after(Span::days(80)) < end {
                now
            } else {
                end
            });
        }
        if now >= pause_changes && !jumps.is_on(now) {
            pauses.push(now);
            if !shared.standing.pause(now) {
                shared.standing.resume(now);
            }
            pause_changes = now.after(Span::hours(dice.roll(24 * 40).cast_signed()));
        }
        if dice.roll(12) == 0 {
            // Kill a scheduler in any step; another one takes its place after a while.
            *tally
                .entry(schedulers[at].step.killed().to_owned())
                .or_default() += 1;
            schedulers[at] = Scheduler::new(now.after(absence(&mut dice)));
            continue;
        }
        let ahead = jumps.ahead(now);
        let seen = (now.after(ahead), !ahead.is_zero());
        let next = schedulers[at]
            .go_on(&schedule, &mut shared, seen)
            .unwrap()
            .before(ahead);
        if matches!(schedulers[at].step, Step::Entered) && schedulers[at].look.1 <= now {
            shared.looks.insert(schedulers[at].look.1, now);
        }
        schedulers[at].awake = next.max(now).after(if dice.roll(4) == 0 {
            absence(&mut dice)
        } else {
            Span::millis(dice.roll(30).cast_signed())
        });
    }
    // The last scheduler completes everything, undisturbed.
    let mut last = Scheduler::new(end);
    last.go_on(&schedule, &mut shared, (end, false));
    while !matches!(last.step, Step::Idle) {
        last.go_on(&schedule, &mut shared, (end, false));
    }
    *tally.entry("decided anew".to_owned()).or_default() += shared.anew;
    check_ledger(case, &schedule, &shared, &pauses, tally);
}

impl Step {
    /// The name of the event that a scheduler is killed in this step.
    const fn killed(&self) -> &'static str {
        match self {
            Self::Idle => "killed between looks",
            Self::Decided(_) => "killed after it decided",
            Self::Entered => "killed after it entered",
            Self::Fired(_) => "killed after it fired",
        }
    }
}

fn check_ledger(
    case: &Case,
    schedule: &Schedule,
    shared: &Shared,
    pauses: &[Time],
    tally: &mut Tally,
) {
    let (begin, end) = case.years();
    let name = format!(
        "{} in {}, {:?}, seed {}",
        case.cron, case.zone, case.missed.policy, case.seed
    );
    let expected: BTreeSet<Time> = schedule
        .between(begin.before(Span::micros(1)), end)
        .collect();
    let entries: BTreeMap<Time, LedgerEntry> = shared
        .pages
        .values()
        .flat_map(|page| page.entries().map(|entry| (entry.instant, *entry)))
        .collect();
    let entered: BTreeSet<Time> = entries.keys().copied().collect();
    let differ: Vec<String> = entered
        .symmetric_difference(&expected)
        .map(Time::to_string)
        .collect();
    assert_eq!(
        differ,
        Vec::<String>::new(),
        "{name}: one entry for each instant, and no other"
    );
    assert_eq!(
        entries.len(),
        case.due,
        "{name}: as many as were counted elsewhere"
    );
    let (mut wanted, mut with_job) = (0, 0);
    for (instant, entry) in &entries {
        let has_job = entry.outcome.has_job();
        assert_eq!(
            has_job,
            shared.jobs.contains_key(instant),
            "{name}: {entry:?}"
        );
        let inserted = shared.inserted.get(instant).copied().unwrap_or_default();
        assert_eq!(inserted, u32::from(has_job), "{name}: {entry:?}");
        // The schedule is paused after an odd number of changes.
        let is_paused = pauses.iter().filter(|change| **change <= *instant).count() % 2 == 1;
        let is_early = shared.early.contains(instant);
        if is_early && !has_job {
            // The entry of a clock that was ahead stays only if no scheduler looked after the
            // instant, until the clock reached the entry's time or the instant was too old.
            let until = entry.at.before(Span::minutes(1)).max(*instant);
            let seen = *instant..until.min(instant.after(case.missed.look_back));
            let looked = shared
                .looks
                .range(seen)
                .find(|(_, entered)| **entered < until);
            assert_eq!(looked, None, "{name}: {entry:?}");
        } else {
            // An entry from before its instant could not know of a later pause.
            let is_true = is_true(entry, is_paused && !is_early, &case.missed, &entries);
            assert!(is_true, "{name}: {entry:?}, paused: {is_paused}");
        }
        wanted += usize::from(!is_paused);
        with_job += usize::from(has_job);
        let why = entry
            .outcome
            .reason()
            .map(|why| format!(" ({why})"))
            .unwrap_or_default();
        *tally.entry(format!("{}{why}", entry.outcome)).or_default() += 1;
    }
    assert!(
        wanted * 3 > case.due,
        "{name}: only {wanted} of {} were outside pauses",
        case.due
    );
    assert!(
        with_job * 10 > wanted * 7,
        "{name}: only {with_job} of {wanted} were fired"
    );
    assert!(
        shared.refused > 10,
        "{name}: only {} times somebody was faster",
        shared.refused
    );
}

/// Whether the outcome in the ledger can be true.
fn is_true(
    entry: &LedgerEntry,
    is_paused: bool,
    missed: &MissedSettings,
    entries: &BTreeMap<Time, LedgerEntry>,
) -> bool {
    let late = entry.at.since(entry.instant);
    let (is_missing, policy) = (
        late > missed.grace && late < missed.look_back,
        missed.policy,
    );
    match entry.outcome {
        InstantOutcome::Skipped(SkipReason::Paused) => is_paused,
        _ if is_paused => false,
        InstantOutcome::Fired | InstantOutcome::Late | InstantOutcome::MadeUp => {
            entry.outcome == InstantOutcome::after(late, missed.grace)
        }
        InstantOutcome::Skipped(_) => is_missing && policy == MissedPolicy::Skip,
        InstantOutcome::Coalesced(into) => {
            is_missing
                && policy == MissedPolicy::One
                && into > entry.instant
                && entries.contains_key(&into)
        }
        InstantOutcome::Missed(SkipReason::TooOld) => late >= missed.look_back,
        InstantOutcome::Missed(_) => is_missing && policy == MissedPolicy::All,
        InstantOutcome::Due | InstantOutcome::Triggered(_) => false,
    }
}

/// How often each expression is due in the two years of each zone.
const DUE: [[usize; 4]; 8] = [
    [731, 2_924, 208, 731],
    [731, 2_924, 208, 731],
    [731, 2_924, 208, 731],
    [731, 2_924, 208, 731],
    [732, 2_924, 210, 732],
    [731, 2_924, 208, 731],
    [731, 2_922, 208, 731],
    [731, 2_924, 208, 731],
];

/// The events that must have happened over all cases together.
const HAPPENED: [&str; 14] = [
    "coalesced",
    "decided anew",
    "fired",
    "killed after it decided",
    "killed after it entered",
    "killed after it fired",
    "killed between looks",
    "late",
    "made_up",
    "missed (older than look_back)",
    "missed (over max)",
    "skipped (paused)",
    "skipped (policy skip)",
    "the clock jumped",
];

#[test]
fn three_that_race_sleep_and_are_killed_fire_each_instant_once_and_explain_the_others() {
    let all = MissedSettings {
        policy: MissedPolicy::All,
        ..MissedSettings::default()
    };
    let policies = [
        all,
        MissedSettings::default(),
        MissedSettings {
            policy: MissedPolicy::Skip,
            ..all
        },
        MissedSettings {
            max: 2,
            look_back: Span::days(2),
            ..all
        },
    ];
    let expressions = ["30 2 * * *", "10 */6 * * *", "15,45 1 * * 6", "30 8 * * *"];
    let mut tally = Tally::new();
    let hourly = Case {
        cron: "0 * * * *",
        zone: "Australia/Lord_Howe",
        due: 17_542,
        missed: MissedSettings { max: 100, ..all },
        seed: 104_729,
    };
    check_raced(&hourly, &mut tally);
    for (seed, (zone, due)) in (1..).zip(ZONES.into_iter().zip(DUE)) {
        for (at, (cron, due)) in expressions.into_iter().zip(due).enumerate() {
            let missed = policies[(at + seed) % 4];
            check_raced(
                &Case {
                    cron,
                    zone,
                    due,
                    missed,
                    seed: seed as u64 * 7_919,
                },
                &mut tally,
            );
        }
    }
    let happened: Vec<&str> = tally.keys().map(String::as_str).collect();
    assert_eq!(happened, HAPPENED, "{tally:#?}");
    assert!(tally.values().all(|times| *times > 50), "{tally:#?}");
}
