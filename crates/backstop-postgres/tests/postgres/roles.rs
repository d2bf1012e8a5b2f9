//! Roles that may do no more than their work, with the grants that `docs/stores.md` lists.

use super::fresh_store;
use backstop_core::port::{Store, StoreError};
use backstop_postgres::{PostgresDurability, PostgresStore};
use backstop_testkit::given::{Scene, at, job, names};
use backstop_testkit::servers;
use std::sync::{Arc, OnceLock};
use tokio::sync::{mpsc, oneshot};

/// What `docs/stores.md` grants to a role of this name.
fn granted(name: &str) -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stores.md");
    let page = std::fs::read_to_string(page).expect("it is there");
    let blocks = page
        .split("```sql\n")
        .skip(1)
        .filter_map(|block| block.split("```").next());
    let block: String = blocks
        .filter(|block| block.starts_with("GRANT USAGE ON SCHEMA backstop"))
        .collect();
    let lines = block
        .lines()
        .filter_map(|line| line.strip_suffix(';')?.split_once(" TO "));
    let ours = lines.filter(|(_, roles)| roles.split(", ").any(|role| role == name));
    let here = |what: &str| {
        what.replace("backstop.", "SCHEMA_NAME.")
            .replace("SCHEMA backstop", "SCHEMA SCHEMA_NAME")
    };
    let grants: Vec<String> = ours
        .map(|(what, _)| format!("{} TO ROLE_NAME", here(what)))
        .collect();
    assert_eq!(
        grants.len(),
        3,
        "the page lists what a {name} needs: {block}"
    );
    grants
}

/// The address of a schema as the role that works in all of them, which is given the page's grants
/// for a worker there.
pub(crate) async fn worker_of(schema: &str) -> String {
    static GRANTER: OnceLock<mpsc::Sender<Granting>> = OnceLock::new();
    let (done, granted) = oneshot::channel();
    let granting = (schema.to_owned(), done);
    GRANTER
        .get_or_init(granter)
        .send(granting)
        .await
        .expect("the granter is there");
    granted.await.expect("an owner may grant");
    address_as("worker", schema)
}

/// A schema, and who waits for the grants.
type Granting = (String, oneshot::Sender<()>);

/// Makes the role, and grants for all cases on one connection: a connection each would make the
/// suite a fifth slower.
fn granter() -> mpsc::Sender<Granting> {
    // Who looks at what the store is doing sees it only as a member.
    servers::postgres().sql("CREATE ROLE worker LOGIN; GRANT worker TO backstop");
    let grants = granted("worker").join(";");
    let (sender, mut schemas) = mpsc::channel::<Granting>(64);
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a test can have a thread").block_on(async {
            let owner = super::user().await;
            while let Some((schema, done)) = schemas.recv().await {
                owner
                    .batch_execute(&filled(&grants, &schema, "worker"))
                    .await
                    .expect("an owner may grant");
                // Whoever waited may have given up.
                let _ = done.send(());
            }
        });
    });
    sender
}

/// A role of its own for a schema, with these grants; and the address as that role.
pub(crate) fn role(schema: &str, name: &str, grants: &[impl AsRef<str>]) -> String {
    let server = servers::postgres();
    let role = format!("{name}_{schema}");
    server.sql(&format!("CREATE ROLE {role} LOGIN"));
    for grant in grants {
        server.sql(&filled(grant.as_ref(), schema, &role));
    }
    address_as(&role, schema)
}

fn filled(grant: &str, schema: &str, role: &str) -> String {
    grant
        .replace("SCHEMA_NAME", schema)
        .replace("ROLE_NAME", role)
}

fn address_as(role: &str, schema: &str) -> String {
    let address = servers::postgres()
        .url()
        .replacen("backstop@", &format!("{role}@"), 1);
    format!("{address}?schema={schema}")
}

/// All that it needs to do is tried by the contract.
#[tokio::test]
async fn a_worker_has_no_right_to_the_tables() {
    let (store, schema) = fresh_store().await;
    assert_eq!(store.migrate().await.expect("nothing to do").from, 1);
    let examined = store.examine().await.expect("it may look");
    for what in [
        "version 1 of 1",
        "no transaction of this role has been open for long",
    ] {
        assert!(
            examined.findings.iter().any(|found| found.what == what),
            "{what}: {examined:?}"
        );
    }
    let address = address_as("worker", &schema);
    let client = backstop_postgres::connect(&address)
        .await
        .expect("it may connect");
    for forbidden in [
        "SELECT * FROM SCHEMA_NAME.job",
        "DELETE FROM SCHEMA_NAME.finished",
        "DROP TABLE SCHEMA_NAME.job",
    ] {
        let error = client
            .batch_execute(&forbidden.replace("SCHEMA_NAME", &schema))
            .await
            .expect_err(forbidden);
        assert_eq!(
            error.code().map(tokio_postgres::error::SqlState::code),
            Some("42501"),
            "{forbidden}"
        );
    }
}

#[tokio::test]
async fn a_producer_may_enqueue_and_nothing_else() {
    let (store, schema) = fresh_store().await;
    let address = role(&schema, "producer", &granted("producer"));
    let producer = PostgresStore::open(&address, PostgresDurability::Full).expect("an address");
    assert_eq!(
        producer.migrate().await.expect("nothing to do").from,
        1,
        "every command looks first"
    );
    let producing = Scene::new(Arc::new(producer));
    producing.insert([job("q", "a")]).await;
    let refused = producing
        .store
        .queues(at(0))
        .await
        .expect_err("it may not look");
    assert!(
        matches!(refused, StoreError::Misuse { .. }) && refused.to_string().contains("grant"),
        "{refused}"
    );
    assert_eq!(names(&Scene::new(store).claim("q", 10).await), ["a"]);
}

#[tokio::test]
async fn a_temporary_table_of_a_caller_cannot_stand_in_for_ours() {
    let (store, schema) = fresh_store().await;
    let client = super::user().await;
    let trap = "CREATE TEMP TABLE queue (id int, name text, paused boolean); CREATE TEMP TABLE job (id uuid);";
    client
        .batch_execute(trap)
        .await
        .expect("a user may have such tables");
    let call = format!("SELECT {schema}.enqueue('q', 'k', '{{}}')");
    client.query_one(&call, &[]).await.expect("it is taken in");
    assert_eq!(Scene::new(store).claim("q", 10).await.len(), 1);
}
