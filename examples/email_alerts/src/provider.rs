//! Who delivers emails: a web service with keys by which it knows what it has delivered, and that
//! is not always well.
//!
//! | what happens | share | what the client sees |
//! |---|---|---|
//! | delivered | the rest | 200 |
//! | delivered before, by the same key | | 200, and nothing is delivered |
//! | an address that cannot be | | 422, for good |
//! | not delivered | `fails` | 503 |
//! | delivered, and the answer is lost | `silent` | 500 |

mod client;

pub use client::{Answer, Provider};

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// The header with the key.
const KEY: &str = "idempotency-key";
/// How long an answer takes, in milliseconds.
const TAKES_MS: std::ops::Range<u64> = 2..20;

/// An email as the provider gets it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mail {
    /// The address.
    pub to: String,
    /// The subject.
    pub subject: String,
}

/// How unwell it is.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Health {
    /// The share of calls that fail.
    pub fails: f64,
    /// The share of emails that are delivered without an answer.
    pub silent: f64,
}

/// The service itself. Cheap to clone.
#[derive(Clone)]
pub struct Service(Arc<Mutex<Books>>, Health);

struct Books {
    dice: StdRng,
    /// What was delivered, by key.
    delivered: HashMap<String, Mail>,
    counts: Counts,
}

/// What it has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Calls.
    pub calls: u64,
    /// Calls that failed, the email delivered or not.
    pub failures: u64,
    /// Calls for an email that was delivered before.
    pub repeats: u64,
    /// Calls with an address that cannot be.
    pub refusals: u64,
}

impl Service {
    /// A service that has delivered nothing yet.
    pub fn new(health: Health, seed: u64) -> Self {
        let dice = StdRng::seed_from_u64(seed);
        Self(
            Arc::new(Mutex::new(Books {
                dice,
                delivered: HashMap::new(),
                counts: Counts::default(),
            })),
            health,
        )
    }

    /// Starts it on a port of its own; answers where.
    pub async fn start(&self) -> anyhow::Result<String> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new()
            .route("/emails", post(take))
            .with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(format!("http://{address}/emails"))
    }

    /// What it has seen.
    pub fn counts(&self) -> Counts {
        self.books().counts
    }

    /// What it has delivered, by key.
    pub fn delivered(&self) -> HashMap<String, Mail> {
        self.books().delivered.clone()
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide(&self, key: &str, mail: Mail) -> (StatusCode, &'static str) {
        let mut books = self.books();
        books.counts.calls += 1;
        let roll = books.dice.random::<f64>();
        if !is_address(&mail.to) {
            books.counts.refusals += 1;
            return (StatusCode::UNPROCESSABLE_ENTITY, "there is no such address");
        }
        if roll < self.1.fails {
            books.counts.failures += 1;
            return (StatusCode::SERVICE_UNAVAILABLE, "too busy");
        }
        if books.delivered.contains_key(key) {
            books.counts.repeats += 1;
            return (StatusCode::OK, "delivered before");
        }
        books.delivered.insert(key.to_owned(), mail);
        if roll < self.1.fails + self.1.silent {
            books.counts.failures += 1;
            return (StatusCode::INTERNAL_SERVER_ERROR, "something went wrong");
        }
        (StatusCode::OK, "delivered")
    }
}

/// Whether an email can be delivered there.
pub fn is_address(text: &str) -> bool {
    text.split_once('@')
        .is_some_and(|(name, host)| !name.is_empty() && host.contains('.'))
}

async fn take(
    State(service): State<Service>,
    headers: HeaderMap,
    Json(mail): Json<Mail>,
) -> Response {
    let Some(key) = headers.get(KEY).and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "there is no idempotency-key").into_response();
    };
    let takes_ms = service.books().dice.random_range(TAKES_MS);
    // Half before it is delivered and half after: who is killed meanwhile may be killed on either
    // side of it.
    tokio::time::sleep(Duration::from_millis(takes_ms / 2)).await;
    let answer = service.decide(key, mail);
    tokio::time::sleep(Duration::from_millis(takes_ms / 2)).await;
    answer.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Health = Health {
        fails: 0.0,
        silent: 0.0,
    };

    fn mail(to: &str) -> Mail {
        Mail {
            to: to.to_owned(),
            subject: "news".to_owned(),
        }
    }

    #[test]
    fn one_key_is_delivered_once() {
        let service = Service::new(WELL, 1);
        for _ in 0..3 {
            assert_eq!(
                service.decide("email-1", mail("ada@example.org")).0,
                StatusCode::OK
            );
        }
        assert_eq!(
            (service.delivered().len(), service.counts().repeats),
            (1, 2)
        );
    }

    #[test]
    fn an_address_that_cannot_be_is_refused() {
        let service = Service::new(WELL, 1);
        for to in ["", "ada", "@example.org", "ada@nowhere"] {
            assert_eq!(
                service.decide("email-1", mail(to)).0,
                StatusCode::UNPROCESSABLE_ENTITY,
                "{to}"
            );
        }
        assert!(service.delivered().is_empty());
    }

    #[test]
    fn a_silent_provider_has_delivered_and_does_not_do_so_again() {
        let service = Service::new(
            Health {
                fails: 0.0,
                silent: 1.0,
            },
            1,
        );
        assert_eq!(
            service.decide("email-1", mail("a@b.c")).0,
            StatusCode::INTERNAL_SERVER_ERROR
        );
        assert_eq!(service.decide("email-1", mail("a@b.c")).0, StatusCode::OK);
        assert_eq!(service.delivered().len(), 1);
    }
}
