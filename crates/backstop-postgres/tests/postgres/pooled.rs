//! The contract of the port behind PgBouncer in transaction mode: no method may need a session.

use backstop_testkit::servers::{self, Bouncer};
use std::sync::OnceLock;

fn bouncer() -> &'static Bouncer {
    static BOUNCER: OnceLock<Bouncer> = OnceLock::new();
    BOUNCER.get_or_init(|| Bouncer::start(servers::postgres()))
}

backstop_testkit::store_contract!(|| async {
    crate::open(&format!("{}&pooler=transaction&connections=4", bouncer().fresh_url())).await
});
