//! Hints between processes.

use super::{open, user};
use backstop_core::NewJob;
use backstop_core::port::{HintSubscription, Store};
use backstop_postgres::{enqueue_in, schema_of};
use backstop_testkit::given::{Scene, at, job};
use backstop_testkit::servers::{self, Bouncer, Mode, Proxy};
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{AsyncMessage, Client, NoTls};

const PATIENCE: Duration = Duration::from_mins(1);

async fn hears(ears: &mut Box<dyn HintSubscription>, what: &str) {
    let heard = tokio::time::timeout(PATIENCE, ears.next()).await;
    assert!(heard.is_ok(), "not heard: {what}");
}

/// Somebody who listens: the first hint is that it does.
async fn ears(store: &Arc<dyn Store>) -> Box<dyn HintSubscription> {
    let mut ears = store.watch();
    hears(&mut ears, "that it listens").await;
    ears
}

async fn push(store: &Arc<dyn Store>, name: &str) {
    Scene::new(Arc::clone(store)).insert([job("q", name)]).await;
}

#[tokio::test]
async fn a_push_is_heard_by_another_store() {
    let address = servers::postgres().fresh_url();
    let (speaker, listener) = (open(&address).await, open(&address).await);
    let mut ears = ears(&listener).await;
    push(&speaker, "a").await;
    hears(&mut ears, "the push").await;
}

#[tokio::test]
async fn a_push_behind_a_pooler_is_heard_by_who_listens_directly() {
    let bouncer = Bouncer::start(servers::postgres());
    let address = bouncer.fresh_url();
    let speaker = open(&format!("{address}&pooler=transaction")).await;
    let schema = schema_of(&address).expect("a schema");
    let listener = open(&format!("{}?schema={schema}", servers::postgres().url())).await;
    let mut ears = ears(&listener).await;
    push(&speaker, "a").await;
    hears(&mut ears, "the push").await;
}

#[tokio::test]
async fn who_lost_its_session_hears_again() {
    let address = servers::postgres().fresh_url();
    let name = format!("ears_{}", schema_of(&address).expect("a schema"));
    let speaker = open(&address).await;
    let listener = open(&format!("{address}&application_name={name}")).await;
    let mut ears = ears(&listener).await;
    let ended = servers::postgres().sql(&format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '{name}'"
    ));
    assert_ne!(ended.trim(), "0", "it had sessions");
    hears(&mut ears, "that it listens again").await;
    push(&speaker, "a").await;
    hears(&mut ears, "the push").await;
}

#[tokio::test]
async fn who_went_deaf_finds_out_and_hears_again() {
    let proxy = Proxy::start(servers::postgres().addr()).await;
    let address = servers::postgres().fresh_url_at(proxy.addr());
    let schema = schema_of(&address).expect("a schema");
    let speaker = open(&format!("{}?schema={schema}", servers::postgres().url())).await;
    let listener = open(&address).await;
    let mut ears = ears(&listener).await;
    // What was connected then stays silent for ever, and nobody says so.
    proxy.set(Mode::HalfOpen);
    tokio::task::yield_now().await;
    proxy.set(Mode::Pass);
    hears(&mut ears, "that it listens again").await;
    push(&speaker, "a").await;
    hears(&mut ears, "the push").await;
}

/// A session that listens on the channel of a schema, and what is said there.
async fn channel(schema: &str) -> (Client, BoxStream<'static, String>) {
    let connected = tokio_postgres::connect(&servers::postgres().url(), NoTls).await;
    let (client, mut connection) = connected.expect("the server takes connections");
    let (said, heard) = tokio::sync::mpsc::unbounded_channel();
    let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
    tokio::spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                let _ = said.send(notification.payload().to_owned());
            }
        }
    });
    client
        .batch_execute(&format!("LISTEN \"backstop:{schema}\""))
        .await
        .expect("it listens");
    let heard = stream::unfold(heard, |mut heard| async move {
        Some((heard.recv().await?, heard))
    });
    (client, heard.boxed())
}

/// What is said until this session says that it is enough.
async fn said_until_now(client: &Client, schema: &str, said: &mut BoxStream<'_, String>) -> usize {
    client
        .batch_execute(&format!("NOTIFY \"backstop:{schema}\", 'enough'"))
        .await
        .expect("it says so");
    let mut count = 0;
    while tokio::time::timeout(PATIENCE, said.next())
        .await
        .expect("it comes")
        .as_deref()
        != Some("enough")
    {
        count += 1;
    }
    count
}

#[tokio::test]
async fn a_thousand_pushes_are_few_notifications() {
    let address = servers::postgres().fresh_url();
    let schema = schema_of(&address).expect("a schema");
    let speaker = open(&address).await;
    push(&speaker, "the queue comes into being").await;
    let (client, mut said) = channel(&schema).await;
    let pushes = (0..1_000).map(|n| speaker.enqueue(vec![job("q", &n.to_string()).into()], at(0)));
    for pushed in join_all(pushes).await {
        pushed.expect("it goes in");
    }
    // The last one may still be on its way when its push is answered.
    assert!(
        tokio::time::timeout(PATIENCE, said.next()).await.is_ok(),
        "nothing was said"
    );
    let count = 1 + said_until_now(&client, &schema, &mut said).await;
    assert!(count <= 100, "{count} notifications");
}

#[tokio::test]
async fn a_transaction_of_the_users_carries_no_notification() {
    let address = servers::postgres().fresh_url();
    let schema = schema_of(&address).expect("a schema");
    let store = open(&address).await;
    let (client, mut said) = channel(&schema).await;
    let mut theirs = user().await;
    let transaction = theirs.transaction().await.expect("a transaction");
    let jobs = [NewJob::from(job("q", "a"))];
    enqueue_in(&transaction, &schema, &jobs, at(0))
        .await
        .expect("it goes in");
    transaction.commit().await.expect("it commits");
    let sql = format!("SELECT {schema}.enqueue('q', 'k', '{{}}')");
    theirs.batch_execute(&sql).await.expect("it goes in");
    assert_eq!(
        said_until_now(&client, &schema, &mut said).await,
        0,
        "a commit would wait for every other"
    );
    assert_eq!(
        Scene::new(store).claim("q", 10).await.len(),
        2,
        "polling finds them"
    );
}
