//! The slot of a queue is moved to another master of a Redis Cluster, and back. While its keys are
//! on both, the queue is unavailable; other queues go on, and so does this one as soon as it is
//! there.

use crate::stream::{QUEUE, Stream};
use backstop_testkit::servers::Cluster;

/// A queue of the same workers that stays where it is.
const OTHER: &str = "other";
const WORKERS: usize = 2;
/// There and back, twice.
const MOVES: usize = 4;
/// Few of a queue's keys, so that it takes several pieces.
const KEYS_OF_A_PIECE: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_slot_of_a_queue_moves_there_and_back() {
    let cluster = Cluster::start(0);
    let store = cluster.fresh_url();
    let prefix = store
        .split_once("prefix=")
        .expect("a fresh store has a prefix")
        .1;
    let key = format!("{prefix}:{{{QUEUE}}}:meta");
    let mut stream = Stream::start_with(&store, &[QUEUE, OTHER], WORKERS).await;
    for _ in 0..MOVES {
        let owner = cluster.master_of(&key).addr();
        let moving = tokio::task::block_in_place(|| cluster.begin_to_move(&key));
        let mut pieces = 0;
        while tokio::task::block_in_place(|| moving.move_keys(KEYS_OF_A_PIECE)) > 0 {
            pieces += 1;
            stream.assert_goes_on(OTHER).await;
        }
        assert!(
            pieces > 1,
            "there was no time at which some keys were here and some there"
        );
        tokio::task::block_in_place(|| moving.finish());
        assert_ne!(cluster.master_of(&key).addr(), owner);
        stream.assert_at_work_again("slot moved").await;
    }
    stream.finish().await.assert_sound();
}
