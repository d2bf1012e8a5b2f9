//! The provider as the service sees it.

use super::{KEY, Mail};
use crate::limits::PROVIDER_TIME_MAX;
use anyhow::Result;
use reqwest::{Client, StatusCode};
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;

/// The provider as the service sees it. Cheap to clone.
#[derive(Clone)]
pub struct Provider {
    client: Client,
    url: String,
}

/// What it says to an email.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is delivered, now or before.
    Delivered,
    /// It never can be.
    Refused(String),
    /// It may be, another time; or has been, and nobody knows.
    Unwell(String),
}

impl Provider {
    /// The provider at an address.
    pub fn at(url: &str) -> Result<Self> {
        // Named, because a process may link several providers of cryptography, and then has none by
        // default.
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let tls = tls
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .no_proxy()
            .http1_only();
        // A retry is the queue's business.
        let client = client
            .retry(reqwest::retry::never())
            .timeout(PROVIDER_TIME_MAX)
            .build()?;
        Ok(Self {
            client,
            url: url.to_owned(),
        })
    }

    /// Sends an email under a key by which the provider knows it again.
    pub async fn send(&self, key: &str, mail: &Mail) -> Result<Answer, reqwest::Error> {
        let body = serde_json::to_vec(mail).unwrap_or_default();
        let request = self
            .client
            .post(&self.url)
            .header(KEY, key)
            .header("content-type", "application/json");
        let answer = request.body(body).send().await?;
        let status = answer.status();
        let said = answer.text().await?;
        Ok(match status {
            status if status.is_success() => Answer::Delivered,
            StatusCode::UNPROCESSABLE_ENTITY => Answer::Refused(said),
            status => Answer::Unwell(format!("the provider answered {status}: {said}")),
        })
    }
}
