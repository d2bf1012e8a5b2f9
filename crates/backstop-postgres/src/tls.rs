//! TLS, always with the server's certificate and name checked.

use crate::address::{PostgresAddress, PostgresOpenError};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Builds the TLS connector; `None` if the address forbids TLS.
pub(crate) fn connector(
    address: &PostgresAddress,
) -> Result<Option<MakeRustlsConnect>, PostgresOpenError> {
    if address.config.get_ssl_mode() == SslMode::Disable {
        return Ok(None);
    }
    let roots = match &address.root_certificate {
        Some(file) => from_file(file)?,
        None => of_this_machine(),
    };
    // Named explicitly: a process may link several providers, and then has no default one.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| PostgresOpenError::Certificates(error.to_string()))?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(Some(MakeRustlsConnect::new(config)))
}

fn from_file(file: &Path) -> Result<RootCertStore, PostgresOpenError> {
    let wrong =
        |cause: String| PostgresOpenError::Certificates(format!("{}: {cause}", file.display()));
    let mut roots = RootCertStore::empty();
    for certificate in
        CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?
    {
        let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| wrong(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("there is no certificate in it".to_owned()));
    }
    Ok(roots)
}

/// Loads the root certificates that this machine trusts. An empty list is not an error yet: a
/// server without TLS needs none, and a server with TLS is refused later.
fn of_this_machine() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}
