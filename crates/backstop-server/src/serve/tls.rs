//! Certificates, which can be exchanged while the server runs.

use backstop::config::{ServerTransport, TlsFiles};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;

/// The word for HTTP/2 in a TLS handshake.
pub(super) const H2: &[u8] = b"h2";

/// The certificate as it stands.
pub(super) struct TlsCertificate(RwLock<Arc<ServerConfig>>);

/// Why a certificate cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct InvalidCertificate {
    file: String,
    problem: String,
}

impl TlsCertificate {
    /// As the files of a configuration say, if it has any.
    pub(super) fn of(
        server: &backstop::config::ServerConfig,
    ) -> Result<Option<Self>, InvalidCertificate> {
        match &server.transport {
            ServerTransport::Tls(files) => {
                Ok(Some(Self(RwLock::new(Arc::new(read_config(files)?)))))
            }
            ServerTransport::Plain | ServerTransport::BehindProxy => Ok(None),
        }
    }

    /// From now on as `other`; connections keep what they began with.
    pub(super) fn replace(&self, other: Self) {
        let config = other.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = config;
    }

    pub(super) fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner)).into()
    }
}

/// TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
fn read_config(files: &TlsFiles) -> Result<ServerConfig, InvalidCertificate> {
    let invalid_certificate = |file: &Path, problem: &dyn std::fmt::Display| InvalidCertificate {
        file: file.display().to_string(),
        problem: problem.to_string(),
    };
    let certificates: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&files.cert).and_then(Iterator::collect);
    let certificates = certificates.map_err(|error| invalid_certificate(&files.cert, &error))?;
    if certificates.is_empty() {
        return Err(invalid_certificate(
            &files.cert,
            &"there is no certificate in it",
        ));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| invalid_certificate(&files.key, &error))?;
    // Named, because a process may link several providers, and then has none by default.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder
        .map_err(|error| invalid_certificate(&files.key, &error))?
        .with_no_client_auth();
    let mut config = builder
        .with_single_cert(certificates, key)
        .map_err(|error| invalid_certificate(&files.key, &error))?;
    config.alpn_protocols = vec![H2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
