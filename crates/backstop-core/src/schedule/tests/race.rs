//! Two virtual years of eight zones, with three schedulers that race, sleep and are killed between any two steps: no instant
//! fires twice, and none goes without an explanation.

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

/// What all share: a store that answers one call at a time.
struct Shared {
    pages: BTreeMap<Day, Page>,
    standing: Standing,
    /// When the job of an instant came in. Pruned ones leave their unique key behind.
    jobs: BTreeMap<Time, Time>,
    /// How often a job was taken in for an instant.
    inserted: BTreeMap<Time, u32>,
}

/// Where a scheduler is between two steps.
enum Step {
    Idle,
    Decided(Vec<Entry>),
    Entered,
    Fired(Vec<Entry>),
}

/// A process.
struct Scheduler {
    step: Step,
    settled: Option<Time>,
    /// Behind which instant it looks, and when it decided.
    look: (Time, Time),
    /// When it goes on.
    awake: Time,
}

impl Scheduler {
    fn new(now: Time) -> Self {
        Self { step: Step::Idle, settled: None, look: (now, now), awake: now }
    }

    fn from(&self, schedule: &Schedule, shared: &Shared, now: Time) -> Time {
        let window = now.before(schedule.missed.look_back);
        let left = shared.standing.settled(schedule).unwrap_or(window);
        self.settled.unwrap_or(left.min(window)).min(now)
    }

    /// The next step, with what it knew when it took the last one.
    fn go_on(&mut self, schedule: &Schedule, shared: &mut Shared, now: Time) -> Option<Time> {
        if matches!(self.step, Step::Idle) {
            self.look = (self.from(schedule, shared, now), now);
        }
        let (from, decided) = self.look;
        let pages = |shared: &Shared| -> Vec<Entry> {
            shared
                .pages
                .range(Day::of(from)..)
                .flat_map(|(_, page)| page.entries().copied().collect::<Vec<_>>())
                .collect()
        };
        match std::mem::replace(&mut self.step, Step::Idle) {
            Step::Idle => {
                let known: BTreeSet<Time> = pages(shared).iter().map(|entry| entry.instant).collect();
                let decision =
                    decide(schedule, Seen { standing: &shared.standing, from, known: &known }, now);
                self.step = Step::Decided(decision.enter);
                Some(now)
            }
            Step::Decided(mut entries) => {
                // A page at a time, as a store has it.
                let day = entries.first().map(|entry| Day::of(entry.instant));
                for entry in entries.extract_if(.., |entry| Some(Day::of(entry.instant)) == day) {
                    shared.page(entry.instant).enter(entry);
                }
                self.step = if entries.is_empty() { Step::Entered } else { Step::Decided(entries) };
                Some(now)
            }
            Step::Entered => {
                let due = pages(shared).into_iter().filter(|entry| entry.what == What::Due);
                let fired = due.map(|entry| {
                    let at = shared.enqueue(entry.instant, now);
                    Entry { what: What::after(at.since(entry.instant), schedule.missed.grace), at, ..entry }
                });
                self.step = Step::Fired(fired.collect());
                Some(now)
            }
            Step::Fired(entries) => {
                for entry in entries {
                    shared.page(entry.instant).conclude(entry);
                }
                let open = pages(shared).into_iter().find(|entry| entry.what == What::Due);
                let through = open.map_or(decided, |entry| entry.instant.before(Span::micros(1)));
                self.settled = Some(through.max(from));
                shared.standing.settle(schedule, through);
                schedule.next(now)
            }
        }
    }
}

impl Shared {
    fn page(&mut self, instant: Time) -> &mut Page {
        let day = Day::of(instant);
        self.pages.entry(day).or_insert_with(|| Page::empty(day))
    }

    /// The store's rule: the first one is taken in, any other is answered with it.
    fn enqueue(&mut self, instant: Time, now: Time) -> Time {
        if let Some(at) = self.jobs.get(&instant) {
            return *at;
        }
        *self.inserted.entry(instant).or_default() += 1;
        self.jobs.insert(instant, now);
        now
    }
}

/// How long a process is away: mostly not, sometimes for minutes, hours or days.
fn absence(dice: &mut Dice) -> Span {
    match dice.roll(40) {
        0..20 => Span::millis(dice.roll(2_000).cast_signed()),
        20..30 => Span::secs(dice.roll(120).cast_signed()),
        30..36 => Span::minutes(dice.roll(90).cast_signed()),
        36..39 => Span::hours(dice.roll(48).cast_signed()),
        _ => Span::hours(dice.roll(300).cast_signed()),
    }
}

fn check_raced(cron: &str, zone: &str, missed: Missed, seed: u64) {
    let years = if zone == "Pacific/Apia" {
        ("2011-01-01T00:00:30Z", "2013-01-01T00:00:00Z")
    } else {
        ("2025-01-01T00:00:30Z", "2027-01-01T00:00:00Z")
    };
    let (begin, end) = (time(years.0), time(years.1));
    let schedule = Schedule { missed, since: None, ..schedule(cron, zone) };
    let mut shared = Shared {
        pages: BTreeMap::new(),
        standing: standing_of(&schedule, begin),
        jobs: BTreeMap::new(),
        inserted: BTreeMap::new(),
    };
    let mut dice = Dice(seed);
    let mut schedulers: Vec<Scheduler> = (0..3).map(|_| Scheduler::new(begin)).collect();
    let mut pause_changes = begin.after(Span::days(dice.roll(60).cast_signed()));
    loop {
        let at = (0..3).min_by_key(|at| schedulers[*at].awake).unwrap();
        let now = schedulers[at].awake;
        if now > end {
            break;
        }
        if now >= pause_changes {
            if !shared.standing.pause(now) {
                shared.standing.resume(now);
            }
            pause_changes = now.after(Span::hours(dice.roll(24 * 40).cast_signed()));
        }
        if dice.roll(12) == 0 {
            // Killed wherever it is; another one takes its place after a while.
            schedulers[at] = Scheduler::new(now.after(absence(&mut dice)));
            continue;
        }
        let next = schedulers[at].go_on(&schedule, &mut shared, now).unwrap();
        schedulers[at].awake = next.max(now).after(if dice.roll(4) == 0 {
            absence(&mut dice)
        } else {
            Span::millis(dice.roll(30).cast_signed())
        });
    }
    // The last one sees everything through, undisturbed.
    let mut last = Scheduler::new(end);
    last.go_on(&schedule, &mut shared, end);
    while !matches!(last.step, Step::Idle) {
        last.go_on(&schedule, &mut shared, end);
    }
    check_ledger(
        &schedule,
        &shared,
        begin,
        end,
        &format!("{cron} in {zone}, seed {seed}, {:?}", missed.policy),
    );
}

fn check_ledger(schedule: &Schedule, shared: &Shared, begin: Time, end: Time, case: &str) {
    let expected: BTreeSet<Time> = schedule.between(begin.before(Span::micros(1)), end).collect();
    let entries: BTreeMap<Time, Entry> =
        shared.pages.values().flat_map(|page| page.entries().map(|entry| (entry.instant, *entry))).collect();
    let entered: BTreeSet<Time> = entries.keys().copied().collect();
    let differ: Vec<String> = entered.symmetric_difference(&expected).map(Time::to_string).collect();
    assert_eq!(differ, Vec::<String>::new(), "{case}: one entry for each instant, and no other");
    for (instant, entry) in &entries {
        assert_ne!(entry.what, What::Due, "{case}: {instant} is still due");
        assert_eq!(entry.what.has_job(), shared.jobs.contains_key(instant), "{case}: {entry:?}");
        assert_eq!(
            shared.inserted.get(instant).copied().unwrap_or_default(),
            u32::from(entry.what.has_job()),
            "{case}: {entry:?}"
        );
        if let What::Coalesced(into) = entry.what {
            assert!(into > *instant && entries.contains_key(&into), "{case}: {entry:?}");
        }
    }
    let fired = entries.values().filter(|entry| entry.what.has_job()).count();
    assert!(fired * 10 > expected.len(), "{case}: only {fired} of {} were fired", expected.len());
}

#[test]
fn three_that_race_sleep_and_are_killed_fire_each_instant_once_and_explain_the_others() {
    let all = Missed { policy: Policy::All, ..Missed::default() };
    let policies = [
        all,
        Missed::default(),
        Missed { policy: Policy::Skip, ..all },
        Missed { max: 2, look_back: Span::days(2), ..all },
    ];
    let expressions = ["30 2 * * *", "10 */6 * * *", "15,45 1 * * 6", "30 8 * * *"];
    for (seed, zone) in (1..).zip(ZONES) {
        for at in [seed, seed + 1] {
            check_raced(expressions[at % 4], zone, policies[(at + seed / 4) % 4], seed as u64 * 7_919);
        }
    }
    check_raced("0 * * * *", "Australia/Lord_Howe", all, 104_729);
}
