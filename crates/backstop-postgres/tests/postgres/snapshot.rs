//! A transaction that is left open keeps every deleted row alive. Claims must not walk over them.

use super::{fresh_store, user};
use backstop_core::Outcome;
use backstop_core::verdict::DoneRetention;
use backstop_testkit::given::{Scene, job};
use tokio_postgres::Client;

const ROUNDS: usize = 300;
const BATCH: usize = 20;

#[tokio::test]
async fn a_claim_costs_the_same_however_long_a_snapshot_is_held() {
    let (store, schema) = fresh_store().await;
    let (mut scene, client) = (Scene::new(store), user().await);
    let idle = user().await;
    idle.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
        .await
        .expect("a snapshot");
    let (mut first, mut last) = (0, 0);
    for round in 0..ROUNDS {
        scene
            .insert((0..BATCH).map(|n| job("q", &format!("{round}-{n}"))))
            .await;
        let blocks = blocks(&client, &schema).await;
        if round < 10 {
            first = first.max(blocks);
        }
        last = blocks;
        let runs = scene.claim("q", BATCH).await;
        assert_eq!(runs.len(), BATCH);
        scene
            .settle_all(
                runs.iter()
                    .map(|run| (&run.lease, Outcome::Done(DoneRetention::Listed))),
            )
            .await;
    }
    assert!(
        last <= first * 3 / 2,
        "{first} blocks at first, {last} after {ROUNDS} rounds"
    );
    drop(idle);
}

/// Blocks that a claim touches.
async fn blocks(client: &Client, schema: &str) -> i64 {
    client.batch_execute("BEGIN").await.expect("a transaction");
    // One more than there are: a claim that finds too few also looks for late jobs.
    let more = BATCH + 1;
    let claim = format!(
        "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) SELECT * FROM {schema}.claim(5, 'w', 90000000000, '{{q}}', '{{{more}}}', 5)"
    );
    // The first call of a connection also reads the catalogue.
    client
        .simple_query(&claim.replace("claim(5", "claim(6").replace("{q}", "{none}"))
        .await
        .expect("it explains");
    let lines = client.simple_query(&claim).await.expect("it explains");
    client
        .batch_execute("ROLLBACK")
        .await
        .expect("it rolls back");
    super::held::blocks_of(&lines)
}
