//! A store as version 3 left it: each job by itself in the ready line, its payload apart, its end in its record.

use crate::place::{Place, open};
use backstop_core::State;
use backstop_core::amend::{Action, Filter};
use backstop_core::port::{Grade, Settled, Store};
use backstop_testkit::given::{DONE, WORKER, at, filter, job, listed, names};
use backstop_testkit::servers;

/// Makes of a queue what version 3 would have made of it.
const AS_BEFORE: &str = r"
    local records, payloads, ready, runs, meta, ends, leases = unpack(KEYS)
    for _, id in ipairs(redis.call('HKEYS', records)) do
        local record, ended = redis.call('HGET', records, id), redis.call('HGET', ends, id)
        if ended then record = ended .. record:sub(#ended + 1) end
        local last = 80 + record:byte(79) * 256 + record:byte(80)
        redis.call('HSET', payloads, id, record:sub(last + 1))
        redis.call('HSET', records, id, record:sub(1, 35) .. (record:byte(36) - 52) .. record:sub(37, last))
    end
    local found = redis.call('ZRANGE', runs, 0, -1, 'WITHSCORES')
    for at = 1, #found, 2 do
        for from = 1, #found[at], 24 do
            redis.call('ZADD', ready, found[at + 1] + (from - 1) / 24, found[at]:sub(from, from + 23))
        end
    end
    for _, id in ipairs(redis.call('HKEYS', leases)) do
        local lease = redis.call('HGET', leases, id)
        redis.call('HSET', leases, id, lease:sub(1, 9) .. '0' .. lease:sub(11))
    end
    redis.call('HINCRBY', meta, 'seq', redis.call('ZCARD', ready))
    redis.call('HDEL', meta, 'in_runs', 'apart')
    return redis.call('DEL', runs, ends)";

fn make_former(place: &Place<'_>) {
    let keys = ["records", "payloads", "ready", "runs", "meta", "ends", "leases"];
    let keys = keys.map(|part| place.key("q", part));
    let mut command = vec!["eval", AS_BEFORE, "7"];
    command.extend(keys.iter().map(String::as_str));
    assert_eq!(place.server.cli(&command).trim(), "2", "it had a run and an end");
    place.server.cli(&["set", &format!("{}:schema", place.prefix()), "3"]);
}

#[tokio::test]
async fn a_store_of_version_3_is_worked_on_before_and_after_it_is_migrated() {
    for is_migrated in [false, true] {
        let place = Place::on(servers::redis()).await;
        let mut scene = place.scene();
        scene.insert_and_end(job("q", "done"), DONE).await;
        scene.insert([job("q", "running")]).await;
        let running = scene.claim_one("q").await;
        scene.insert(["a", "b", "c", "d"].map(|name| job("q", name))).await;
        make_former(&place);
        if is_migrated {
            let migrated = open(&place.url).migrate().await.expect("it migrates");
            assert_eq!((migrated.from, migrated.to), (3, 4));
            let examination = place.store.examine().await.expect("it is examined");
            assert!(
                examination
                    .findings
                    .iter()
                    .all(|finding| finding.grade != Grade::Bad || finding.what.contains("append"))
            );
        }
        assert_eq!(scene.job("done").await.state, State::Done);
        assert_eq!(scene.settle(&running.lease, DONE).await, Settled::Applied);
        assert_eq!((scene.job("running").await.state, scene.job("running").await.attempt), (State::Done, 1));
        scene.insert(["e", "f"].map(|name| job("q", name))).await;
        let runs = scene.claim("q", 3).await;
        assert_eq!(names(&runs), ["a", "b", "c"], "{is_migrated}");
        scene.settle_all(runs.iter().map(|run| (&run.lease, DONE))).await;
        assert_eq!(names(&scene.claim("q", 9).await), ["d", "e", "f"], "{is_migrated}");
        assert_eq!(scene.list(&Filter::default()).await.len(), 8);
    }
}

/// Makes of the claims of a queue what a version without their beginning would have made of them.
const UNDATED: &str = r"
    local claims = redis.call('HGETALL', KEYS[1])
    for at = 1, #claims, 2 do
        redis.call('HSET', KEYS[1], claims[at], (claims[at + 1]:gsub('^([^\n]*),@%-?%d+\n', '%1\n')))
    end
    return #claims / 2";

#[tokio::test]
async fn a_claim_without_a_beginning_is_read_repaired_kept_and_seized() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    scene.insert([job("q", "a")]).await;
    let run = scene.claim_one("q").await;
    let undated = place.server.cli(&["eval", UNDATED, "1", &place.key("q", "claims")]);
    assert_eq!(undated.trim(), "1");
    place.delete("q", "left");
    place.store.migrate().await.expect("it repairs");
    let held_by = scene.job("a").await.held_by.expect("it runs");
    assert_eq!((held_by.worker.as_str(), held_by.since), (WORKER, None));
    assert_eq!(scene.beat(std::slice::from_ref(&run.lease), at(60)).await, []);
    let kept = scene.job("a").await.held_by.expect("it runs");
    assert_eq!((kept.since, kept.until), (None, at(60)));
    scene.now = at(100);
    let seized = scene.seize("rescuer").await;
    assert_eq!(seized[0].vanished.worker.as_str(), WORKER);
    assert_eq!(scene.job("a").await.started_at(), Some(at(100)));
}

/// What a repair counts anew keeps who has it and since when.
#[tokio::test]
async fn a_repair_keeps_the_beginning_of_a_claim() {
    for part in ["left", "order", "terms"] {
        let place = Place::on(servers::redis()).await;
        let mut scene = place.scene();
        scene.insert([job("q", "a")]).await;
        scene.now = at(4);
        scene.claim_one("q").await;
        place.delete("q", part);
        place.store.migrate().await.expect("it repairs");
        let job = scene.job("a").await;
        // A claim whose end is lost is closed, and its job is ready.
        let expected = if part == "terms" { (State::Ready, None) } else { (State::Running, Some(at(4))) };
        assert_eq!((job.state, job.started_at()), expected, "{part}");
    }
}

#[tokio::test]
async fn jobs_taken_out_of_a_run_are_passed_over_and_the_rest_stays_in_line() {
    let place = Place::on(servers::redis()).await;
    let mut scene = place.scene();
    let all: Vec<String> = (0..600).map(|n| format!("{n:03}")).collect();
    scene.insert(all.iter().map(|name| job("q", name))).await;
    let out: Vec<&str> = all.iter().map(String::as_str).filter(|name| !name.ends_with('7')).collect();
    scene.amend_named(&out[..500], Action::Cancel).await;
    let left: Vec<&str> = all.iter().map(String::as_str).filter(|name| !out[..500].contains(name)).collect();
    assert_eq!(scene.queue("q").await.counts.of(State::Ready), left.len() as u64);
    assert_eq!(listed(&scene.list(&filter(Some("q"), Some(State::Ready))).await), left);
    scene.amend_named(&[out[0]], Action::Retry).await;
    let mut claimed = Vec::new();
    for max in [1, 40, 2, 100] {
        let runs = scene.claim("q", max).await;
        claimed.extend(names(&runs));
    }
    let mut expected: Vec<&str> = left.clone();
    expected.push(out[0]);
    assert_eq!(claimed, expected);
    assert_eq!(scene.queue("q").await.counts.of(State::Ready), 0);
}
