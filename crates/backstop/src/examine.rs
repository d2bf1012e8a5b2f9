//! What can be relied on: what the store says of itself, and how its clock stands to this
//! machine's.

use crate::breakers::{BreakerInfo, BreakerName};
use crate::client::Backstop;
use crate::why::render::make_room;
use backstop_core::breaker::BreakerPhase;
use backstop_core::gate::ShutReason;
use backstop_core::limits::EXPIRED_COUNTED_MAX;
use backstop_core::port::{
    ExaminationReport, ExpiredLeases, FindingSeverity, QueueStatus, StoreError, StoreFinding,
    StoreResult,
};
use backstop_core::terminal::shell_argument;
use backstop_core::{JobState, Span, Time};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Readings of the store's clock; the one that was quickest there and back is the nearest to the
/// truth.
const READINGS: usize = 5;
/// A lease that expired longer ago than this was to be taken over by now.
const EXPIRED_REPORTED_AFTER: Span = Span::secs(60);
/// From here on the clocks are apart in a way that people notice.
const CLOCKS_APART_NOTICED: Span = Span::secs(1);

impl Backstop {
    /// What the store says of itself, how far its clock is from this machine's, and which queues
    /// and kinds are in trouble. Clocks that are further apart than `lease` are a fault.
    pub async fn examine(&self, lease: Span) -> StoreResult<ExaminationReport> {
        let mut examination = self.examine_store(lease).await?;
        // A store without its shape says so itself; what is in it cannot be asked.
        if let (Ok(queues), Ok(guards)) = (
            self.store().queues(self.current_time().await).await,
            self.breakers().list().await,
        ) {
            examination
                .findings
                .extend(content_findings(&queues, &guards));
        }
        Ok(examination)
    }

    /// As [`Backstop::examine`], without what [`content_findings`] tells. On a store with many jobs
    /// this takes long.
    pub async fn examine_store(&self, lease: Span) -> StoreResult<ExaminationReport> {
        let mut examination = self.store().examine().await?;
        let mut readings = Vec::with_capacity(READINGS);
        for _ in 0..READINGS {
            readings.push(self.read_clock().await?);
        }
        let best = readings
            .into_iter()
            .min_by_key(|reading| reading.round_trip);
        examination
            .findings
            .extend(best.map(|reading| judge(reading, lease)));
        examination.findings.extend(self.spill_finding().await);
        let now = self.current_time().await;
        examination
            .findings
            .extend(match self.overdue_leases().await {
                Ok(expired) => overdue_leases_finding(expired, now),
                Err(error) => Some(unknown_expired_finding(&error)),
            });
        Ok(examination)
    }

    /// The leases that expired so long ago that somebody should have taken over their jobs by now.
    pub async fn overdue_leases(&self) -> StoreResult<ExpiredLeases> {
        let before = self.current_time().await.before(EXPIRED_REPORTED_AFTER);
        self.store().expired_leases(before).await
    }

    /// Dead letters that wait in the local spill for the store to take them in.
    async fn spill_finding(&self) -> Option<StoreFinding> {
        let status = match self.spill().status().await {
            Ok(status) => status,
            Err(error) => {
                let advice = Some("look at its directory and rights".to_owned());
                return Some(StoreFinding {
                    severity: FindingSeverity::Warning,
                    what: format!("the spill cannot be read: {error}"),
                    advice,
                });
            }
        };
        if status.records == 0 && status.set_aside.is_empty() {
            return None;
        }
        let (directory, records, aside) = (
            status.directory.display(),
            status.records,
            status.set_aside.len(),
        );
        Some(StoreFinding {
            severity: FindingSeverity::Warning,
            what: format!(
                "{records} dead letters wait in {directory} to be taken in; {aside} files there hold lines nobody could read"
            ),
            advice: Some(
                "they are taken in by the next program that opens this store; mend or remove the .bad files"
                    .to_owned(),
            ),
        })
    }

    async fn read_clock(&self) -> StoreResult<ClockReading> {
        let (here, started) = (wall_clock(), Instant::now());
        let store = self.store().time().await?;
        let round_trip =
            Span::micros(i64::try_from(started.elapsed().as_micros()).unwrap_or(i64::MAX));
        Ok(ClockReading {
            here,
            store,
            round_trip,
        })
    }
}

/// Leases that nobody takes over. A live worker does it within a lease, so none runs, or something
/// is in its way.
fn overdue_leases_finding(expired: ExpiredLeases, now: Time) -> Option<StoreFinding> {
    let first = expired.first?;
    Some(StoreFinding {
        severity: FindingSeverity::Warning,
        what: format!(
            "{} expired more than {:.0} s ago, the first {:.0} s ago, and nobody took over the jobs",
            describe_expired(&expired),
            EXPIRED_REPORTED_AFTER.as_secs_f64(),
            now.since(first).as_secs_f64()
        ),
        advice: Some(
            "start a worker, of any queue: it takes them over; if one runs, its log says what is in its way"
                .to_owned(),
        ),
    })
}

/// How many leases those are, in words.
pub fn describe_expired(expired: &ExpiredLeases) -> String {
    match expired.count {
        1 => "1 lease".to_owned(),
        EXPIRED_COUNTED_MAX.. => format!("{EXPIRED_COUNTED_MAX} leases or more"),
        count => format!("{count} leases"),
    }
}

/// Whether jobs wait behind expired leases is not known.
fn unknown_expired_finding(error: &StoreError) -> StoreFinding {
    StoreFinding {
        severity: FindingSeverity::Warning,
        what: format!("the expired leases could not be counted: {error}"),
        advice: Some("mend that first, then look again".to_owned()),
    }
}

/// Queues that are full or nearly so, and guards that keep jobs from running.
pub fn content_findings(queues: &[QueueStatus], guards: &[BreakerInfo]) -> Vec<StoreFinding> {
    let full_queue_findings = queues.iter().flat_map(full_queue_findings);
    full_queue_findings
        .chain(
            guards
                .iter()
                .filter_map(|guard| closed_finding(guard, queues)),
        )
        .collect()
}

/// Queues that are full, or nearly so.
fn full_queue_findings(queue: &QueueStatus) -> Vec<StoreFinding> {
    let (name, live, dead) = (
        &queue.name,
        queue.counts.live(),
        queue.counts.of(JobState::Dead),
    );
    let mut findings = Vec::new();
    if let Some(max) = queue
        .bounds
        .max_size
        .filter(|_| queue.bounds.is_under_pressure(live))
    {
        findings.push(StoreFinding {
            // What a full queue does is what it was configured to do: nothing falls short.
            severity: FindingSeverity::Warning,
            what: format!(
                "queue {name} holds {live} of at most {max} live jobs; then {}",
                queue.bounds.overflow
            ),
            advice: Some(format!("more workers for {name}, or a larger max_size")),
        });
    }
    if dead >= queue.bounds.dead_max {
        findings.push(StoreFinding {
            severity: FindingSeverity::Bad,
            what: format!(
                "queue {name} has {dead} dead letters of at most {}: kinds that die stop",
                queue.bounds.dead_max
            ),
            advice: Some(format!(
                "backstop dead groups --queue {name}; requeue, export or delete what is there"
            )),
        });
    }
    findings
}

/// Whether a breaker or a gate keeps jobs back, and somebody should know. A half-open one waits for
/// a job to try; where its queue has none, nobody is kept waiting, and it would be told for as long
/// as nobody pushes.
pub fn blocks_jobs(guard: &BreakerInfo, queues: &[QueueStatus]) -> bool {
    match guard.status.state {
        BreakerPhase::Closed => false,
        BreakerPhase::Open => true,
        BreakerPhase::HalfOpen => live_behind(guard, queues) > 0,
    }
}

/// The live jobs of the queue that it stands before.
fn live_behind(guard: &BreakerInfo, queues: &[QueueStatus]) -> u64 {
    queues
        .iter()
        .find(|queue| queue.name == *guard.name.queue())
        .map_or(0, |queue| queue.counts.live())
}

/// A breaker or a gate that keeps jobs from running.
fn closed_finding(guard: &BreakerInfo, queues: &[QueueStatus]) -> Option<StoreFinding> {
    if !blocks_jobs(guard, queues) {
        return None;
    }
    let waiting = live_behind(guard, queues);
    let why = guard
        .status
        .events
        .last()
        .map_or_else(String::new, |event| format!(": {}", event.why));
    let what = match (&guard.name, guard.shut) {
        (BreakerName::Gate(..), _) => format!("the gate of kind {} is shut{why}", guard.name),
        (BreakerName::Breaker(queue), _) => {
            format!(
                "the breaker of queue {queue} is {}{why}",
                guard.status.state
            )
        }
    };
    Some(StoreFinding {
        severity: FindingSeverity::Warning,
        what: format!("{what}; its queue holds {waiting} live jobs"),
        advice: Some(match guard.shut {
            Some(ShutReason::Full) => make_room(guard.name.queue()),
            _ => format!(
                "look at its cause with backstop dead groups, then backstop breaker reset {}",
                shell_argument(&guard.name.to_string())
            ),
        }),
    })
}

fn wall_clock() -> Time {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Time::from_micros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}

/// The store's clock, read once.
#[derive(Clone, Copy)]
struct ClockReading {
    /// This machine's clock when the question went out.
    here: Time,
    store: Time,
    /// How long question and answer took.
    round_trip: Span,
}

/// The store read its clock half the round trip after the question went out, give or take the other
/// half.
fn judge(reading: ClockReading, lease: Span) -> StoreFinding {
    let half = Span::micros(reading.round_trip.as_micros() / 2);
    let here = reading.here.after(half);
    let (apart, side) = if reading.store >= here {
        (reading.store.since(here), "ahead of")
    } else {
        (here.since(reading.store), "behind")
    };
    let (apart_ms, half_ms) = (apart.as_secs_f64() * 1_000.0, half.as_secs_f64() * 1_000.0);
    let what = format!(
        "the store's clock is {apart_ms:.1} ms {side} this machine's, give or take {half_ms:.1} ms"
    );
    let (grade, advice) = match apart {
        apart if apart > lease => (
            FindingSeverity::Bad,
            Some(
                "set one of them right: they are further apart than a lease, and times of one mislead on the other",
            ),
        ),
        apart if apart > CLOCKS_APART_NOTICED => (
            FindingSeverity::Warning,
            Some(
                "keep both machines on network time: jobs go by the store's clock, your logs by this one",
            ),
        ),
        _ => (FindingSeverity::Good, None),
    };
    StoreFinding {
        severity: grade,
        what,
        advice: advice.map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use backstop_core::QueueBounds;
    use backstop_core::breaker::{BreakerAdmission, BreakerSettings, BreakerStatus};
    use backstop_core::plan::QueueQuota;
    use backstop_core::port::{Claim, QueueState, QueueTotals, SeizeRequest, StateCounts};
    use backstop_core::{JobId, Kind, LeaseNumber, NewJob, Payload, WorkerName};

    /// A store whose clock was read `store` ms after ours, in a round trip of `round_trip` ms.
    fn check(store_ms: i64, round_trip_ms: i64, grade: FindingSeverity, said: &str) {
        let here = Time::from_millis(1_000_000);
        let store = Time::from_millis(1_000_000 + store_ms);
        let finding = judge(
            ClockReading {
                here,
                store,
                round_trip: Span::millis(round_trip_ms),
            },
            Span::secs(15),
        );
        assert_eq!(finding.severity, grade, "{finding:?}");
        assert!(
            finding.what.contains(said),
            "{said:?} is missing in {finding:?}"
        );
        assert_eq!(finding.advice.is_some(), grade != FindingSeverity::Good);
    }

    #[test]
    fn half_the_round_trip_is_taken_off() {
        check(
            50,
            100,
            FindingSeverity::Good,
            "0.0 ms ahead of this machine's, give or take 50.0 ms",
        );
        check(3, 2, FindingSeverity::Good, "2.0 ms ahead");
        check(-9, 2, FindingSeverity::Good, "10.0 ms behind");
    }

    #[test]
    fn a_second_is_noticed_and_a_lease_is_too_much() {
        check(1_000, 0, FindingSeverity::Good, "ahead");
        check(1_001, 0, FindingSeverity::Warning, "ahead");
        check(-1_001, 0, FindingSeverity::Warning, "behind");
        check(15_000, 0, FindingSeverity::Warning, "ahead");
        check(15_001, 0, FindingSeverity::Bad, "15001.0 ms ahead");
        check(-15_001, 0, FindingSeverity::Bad, "behind");
    }

    #[tokio::test]
    async fn the_finding_is_added_to_what_the_store_says() {
        let backstop = Backstop::open("memory:").await.unwrap();
        let own = backstop.store().examine().await.unwrap();
        let all = backstop.examine(Span::secs(15)).await.unwrap();
        assert_eq!(all.findings.len(), own.findings.len() + 1);
        assert_eq!((all.store, all.promise), (own.store, own.promise));
    }

    #[tokio::test]
    async fn leases_that_expired_long_ago_and_nobody_took_over_are_a_warning() {
        let backstop = Backstop::open("memory:").await.unwrap();
        backstop
            .push_jobs(["a", "b"].map(job).to_vec())
            .await
            .unwrap();
        let now = backstop.now();
        for (number, ended) in [(1, 90), (2, 50)] {
            let until = now.before(Span::secs(ended));
            let wants = vec![QueueQuota {
                queue: "q".parse().unwrap(),
                max: 1,
            }];
            let claim = Claim {
                number: LeaseNumber::draw(number),
                worker: WorkerName::new("doomed"),
                until,
                wants,
            };
            backstop
                .store()
                .claim(claim, until.before(Span::secs(15)))
                .await
                .unwrap();
        }
        let warnings = || async {
            let findings = backstop
                .examine_store(Span::secs(15))
                .await
                .unwrap()
                .findings;
            findings
                .into_iter()
                .filter(|finding| finding.what.contains("took over"))
                .collect::<Vec<_>>()
        };
        let [warning] = &warnings().await[..] else {
            panic!("one lease of the two")
        };
        assert_eq!(warning.severity, FindingSeverity::Warning);
        assert!(
            warning
                .what
                .starts_with("1 lease expired more than 60 s ago, the first 9"),
            "{warning:?}"
        );
        let (number, worker) = (LeaseNumber::draw(3), WorkerName::new("rescuer"));
        let seize = SeizeRequest {
            number,
            worker,
            until: now.after(Span::secs(15)),
            max: 9,
            spared: Vec::new(),
        };
        assert_eq!(
            backstop.store().seize(seize, now).await.unwrap().runs.len(),
            2
        );
        assert_eq!(warnings().await, []);
    }

    fn job(id: &str) -> NewJob {
        let payload = Payload::from_stored(b"1".to_vec());
        NewJob::new(
            JobId::named(id),
            "q".parse().unwrap(),
            Kind::default(),
            payload,
        )
    }

    fn guard(name: &str, state: BreakerPhase) -> BreakerInfo {
        let status = BreakerStatus {
            state,
            failure_count: 5,
            success_count: 0,
            total_calls: 5,
            rejected_calls: 0,
            last_failure_time: None,
            opened_at: None,
            next_probe_at: None,
            events: Vec::new(),
        };
        BreakerInfo {
            name: name.parse().unwrap(),
            shut: None,
            deaths: None,
            settings: BreakerSettings::default(),
            status,
            admission: BreakerAdmission::Blocked { until: None },
        }
    }

    /// Queue `q` with so many live jobs.
    fn queues(live: u64, max_size: Option<u64>) -> Vec<QueueStatus> {
        let mut counts = StateCounts::default();
        *counts.of_mut(JobState::Ready) = live;
        vec![QueueStatus {
            name: "q".parse().unwrap(),
            state: QueueState::Active,
            counts,
            totals: QueueTotals::default(),
            next_ready: None,
            bounds: QueueBounds {
                max_size,
                ..QueueBounds::default()
            },
        }]
    }

    #[test]
    fn a_queue_at_its_bound_is_a_warning() {
        let found = |live| content_findings(&queues(live, Some(10)), &[]);
        assert!(found(1).is_empty());
        for live in [10, 11] {
            let [finding] = &found(live)[..] else {
                panic!("{live}")
            };
            assert_eq!(finding.severity, FindingSeverity::Warning, "{finding:?}");
            assert!(
                finding
                    .what
                    .contains(&format!("holds {live} of at most 10")),
                "{finding:?}"
            );
        }
    }

    #[test]
    fn a_half_open_guard_is_told_only_while_jobs_wait_behind_it() {
        for name in ["q", "q/kind"] {
            for (state, live, is_told) in [
                (BreakerPhase::Closed, 1, false),
                (BreakerPhase::Open, 0, true),
                (BreakerPhase::Open, 1, true),
                (BreakerPhase::HalfOpen, 0, false),
                (BreakerPhase::HalfOpen, 1, true),
            ] {
                let guard = guard(name, state);
                let (queues, guards) = (queues(live, None), [guard]);
                assert_eq!(
                    blocks_jobs(&guards[0], &queues),
                    is_told,
                    "{name}: {state:?}, {live} live"
                );
                assert_eq!(
                    !content_findings(&queues, &guards).is_empty(),
                    is_told,
                    "{name}: {state:?}, {live} live"
                );
            }
        }
    }
}
