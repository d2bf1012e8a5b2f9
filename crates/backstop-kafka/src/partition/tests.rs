use super::{AssignmentGeneration, BatchCutting, FlowChange, KafkaPartition};
use crate::flow::{KafkaBounds, KafkaFlow};
use crate::message::KafkaMessage;
use bytes::Bytes;
use std::time::{Duration, Instant};

const CUTTING: BatchCutting = BatchCutting {
    records_max: 3,
    bytes_max: 2_000,
    wait: Duration::from_millis(10),
    batches_max: 2,
    uncommitted_max: 7,
};
const BOUNDS: KafkaBounds = KafkaBounds {
    partition_waiting: 4,
    records: 100,
    bytes: 100_000,
};

struct Scene {
    partition: KafkaPartition,
    began: Instant,
    next: i64,
}

impl Scene {
    fn new() -> Self {
        Self {
            partition: KafkaPartition::new(AssignmentGeneration(1)),
            began: Instant::now(),
            next: 0,
        }
    }

    /// Lets `count` records of this many bytes arrive at once.
    fn arrive(&mut self, count: usize, bytes: usize) {
        for _ in 0..count {
            let payload = Some(Bytes::from(vec![b'x'; bytes]));
            let (topic, offset) = ("orders".into(), self.next);
            let message = KafkaMessage {
                topic,
                partition: 0,
                offset,
                key: None,
                payload,
                timestamp_ms: None,
            };
            self.partition.arrive(message, self.began);
            self.next += 1;
        }
    }

    /// The sizes of the batches that are cut after this many milliseconds.
    fn cut(&mut self, millis: u64) -> Vec<usize> {
        let now = self.began + Duration::from_millis(millis);
        std::iter::from_fn(|| self.partition.cut(&CUTTING, now))
            .map(|cut| cut.messages.len())
            .collect()
    }

    fn turn(&mut self) -> Option<FlowChange> {
        self.partition.change_flow(0, 0, &BOUNDS)
    }
}

#[track_caller]
fn check(count: usize, bytes: usize, millis: u64, batches: &[usize]) {
    let mut scene = Scene::new();
    scene.arrive(count, bytes);
    assert_eq!(
        scene.cut(millis),
        batches,
        "{count} records of {bytes} bytes after {millis} ms"
    );
}

#[test]
fn a_batch_is_cut_when_it_is_full() {
    check(0, 1, 100, &[]);
    check(2, 1, 0, &[]);
    check(3, 1, 0, &[3]);
    check(5, 1, 0, &[3]);
}

#[test]
fn a_batch_is_cut_when_its_bytes_are_full() {
    check(2, 700, 0, &[]);
    check(3, 700, 0, &[2]);
}

#[test]
fn a_record_waits_only_so_long_for_company() {
    check(1, 1, 9, &[]);
    check(1, 1, 10, &[1]);
    check(5, 1, 10, &[3, 2]);
}

#[test]
fn a_record_larger_than_a_batch_comes_alone() {
    check(1, 5_000, 10, &[1]);
    check(2, 5_000, 0, &[1]);
}

#[test]
fn so_many_batches_are_with_the_sink_at_once() {
    check(9, 1, 0, &[3, 3]);
}

#[test]
fn so_many_records_are_given_out_and_not_committed() {
    let mut scene = Scene::new();
    scene.arrive(9, 1);
    let (first, second) = (
        scene.partition.cut(&CUTTING, scene.began),
        scene.partition.cut(&CUTTING, scene.began),
    );
    for cut in [first, second].into_iter().flatten() {
        scene.partition.mark_returned(cut.number);
        scene.partition.prefix.mark_accepted(cut.number);
    }
    assert_eq!(scene.cut(100), [0; 0], "three more would be nine");
    let mark = scene.partition.prefix.mark().unwrap();
    scene.partition.prefix.drop_committed(mark.through);
    assert_eq!(scene.cut(100), [3]);
}

#[test]
fn nothing_is_cut_while_a_batch_is_refused() {
    let mut scene = Scene::new();
    scene.arrive(3, 1);
    let refused = scene.partition.cut(&CUTTING, scene.began).unwrap().number;
    scene.partition.mark_failed(refused);
    scene.arrive(3, 1);
    assert_eq!(scene.cut(100), [0; 0]);
    scene.partition.mark_returned(refused);
    assert_eq!(scene.cut(100), [3]);
}

#[test]
fn a_partition_that_is_paused_does_not_wait_for_company() {
    let mut scene = Scene::new();
    scene.arrive(4, 1);
    assert_eq!(scene.turn(), Some(FlowChange::Pause));
    assert_eq!(scene.cut(0), [3, 1]);
}

#[test]
fn the_client_is_told_what_it_was_not_told_before() {
    let mut scene = Scene::new();
    // The client may still apply a pause of an earlier assignment.
    assert_eq!(scene.turn(), Some(FlowChange::Resume));
    assert_eq!(scene.turn(), None);
    scene.arrive(4, 1);
    assert_eq!(
        (scene.turn(), scene.partition.flow()),
        (Some(FlowChange::Pause), KafkaFlow::Full)
    );
    assert_eq!(scene.turn(), None);
    let cut = scene.partition.cut(&CUTTING, scene.began).unwrap();
    scene.partition.mark_failed(cut.number);
    assert_eq!(
        (scene.turn(), scene.partition.flow()),
        (None, KafkaFlow::Failing)
    );
    scene.partition.mark_returned(cut.number);
    scene.partition.prefix.mark_accepted(cut.number);
    scene.partition.prefix.drop_committed(cut.number);
    assert_eq!(
        (scene.turn(), scene.partition.flow()),
        (Some(FlowChange::Resume), KafkaFlow::Flowing)
    );
}

#[test]
fn records_count_until_they_are_committed() {
    let mut scene = Scene::new();
    scene.arrive(4, 1);
    let cut = scene.partition.cut(&CUTTING, scene.began).unwrap();
    assert_eq!(
        (scene.partition.records(), scene.partition.records_waiting()),
        (4, 1)
    );
    scene.partition.prefix.mark_accepted(cut.number);
    assert_eq!(
        (scene.partition.records(), scene.partition.records_waiting()),
        (4, 1)
    );
    scene.partition.prefix.drop_committed(cut.number);
    assert_eq!(
        (scene.partition.records(), scene.partition.records_waiting()),
        (1, 1)
    );
}
