//! TLS: the server must be who it says it is.

use backstop_core::port::{Store, StoreError};
use backstop_postgres::{PostgresDurability, PostgresStore};
use backstop_testkit::servers::postgres::{Postgres, Settings, Tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An authority, and a server whose certificate it made for `name`.
struct Place {
    server: Postgres,
    authority: PathBuf,
    stranger: PathBuf,
    _dir: TempDir,
}

fn authority(file: &Path) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
    std::fs::write(file, issuer.pem()).expect("a file");
    issuer
}

fn place(name: &str) -> Place {
    let dir = tempfile::tempdir().expect("a directory");
    let (own, stranger) = (dir.path().join("ca.pem"), dir.path().join("stranger.pem"));
    let issuer = authority(&own);
    authority(&stranger);
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let (certificate_file, key_file) =
        (dir.path().join("server.pem"), dir.path().join("server.key"));
    std::fs::write(&certificate_file, certificate.pem()).expect("a file");
    std::fs::write(&key_file, key.serialize_pem()).expect("a file");
    let tls = Some(Tls {
        certificate: certificate_file,
        key: key_file,
    });
    let server = Postgres::start(Settings {
        tls,
        ..Settings::default()
    });
    Place {
        server,
        authority: own,
        stranger,
        _dir: dir,
    }
}

async fn migrate(address: &str) -> Result<(), StoreError> {
    let store = PostgresStore::open(address, PostgresDurability::Full).expect("an address");
    store.migrate().await.map(drop)
}

#[tokio::test]
async fn a_server_is_taken_for_what_its_certificate_says_and_no_other() {
    let place = place("127.0.0.1");
    let address = place.server.fresh_url();
    let with = |file: &Path| {
        format!(
            "{address}&sslmode=verify-full&sslrootcert={}",
            file.display()
        )
    };
    migrate(&with(&place.authority))
        .await
        .expect("the authority vouches for it");
    let ssl = place
        .server
        .sql("SELECT count(*) FROM pg_stat_ssl WHERE ssl");
    assert_ne!(ssl.trim(), "0", "the connection is encrypted");
    for (address, why) in [
        (with(&place.stranger), "another authority"),
        (
            format!("{address}&sslmode=require"),
            "no authority that this machine knows",
        ),
    ] {
        let refused = migrate(&address).await.expect_err(why).to_string();
        assert!(refused.contains("sslrootcert"), "{why}: {refused}");
    }
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused() {
    let place = place("db.example");
    let address = format!(
        "{}&sslrootcert={}",
        place.server.fresh_url(),
        place.authority.display()
    );
    let refused = migrate(&address)
        .await
        .expect_err("127.0.0.1 is not db.example")
        .to_string();
    assert!(refused.contains("certificate"), "{refused}");
}
