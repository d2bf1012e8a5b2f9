//! TLS to MySQL and MariaDB: the server must be who it says it is.

use crate::ground::{at_noon, noon};
use backstop::tables::Table;
use backstop_testkit::servers::mariadb::Mariadb;
use backstop_testkit::servers::postgres::Tls;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::path::Path;

fn authority(file: &Path) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
    std::fs::write(file, issuer.pem()).expect("a file");
    issuer
}

/// A server whose certificate is for `name`.
fn server(folder: &Path, name: &str, issuer: &CertifiedIssuer<'static, KeyPair>) -> Mariadb {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new([name.to_owned()]).expect("a name");
    let made = params.signed_by(&key, issuer).expect("a certificate");
    let tls = Tls {
        certificate: folder.join("server.pem"),
        key: folder.join("server.key"),
    };
    std::fs::write(&tls.certificate, made.pem()).expect("a file");
    std::fs::write(&tls.key, key.serialize_pem()).expect("a file");
    Mariadb::start_with_tls(&tls)
}

async fn due(url: &str) -> Result<usize, String> {
    let table = Table::new("t", url, "t").map_err(|error| error.to_string())?;
    let due = at_noon()
        .backstop
        .adopted_table(&table)
        .due(noon(), None)
        .await;
    due.map(|due| due.len()).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_taken_for_what_its_certificate_says_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, stranger) = (
        folder.path().join("ca.pem"),
        folder.path().join("stranger.pem"),
    );
    let issuer = authority(&own);
    authority(&stranger);
    let with = |url: &str, file: &Path| {
        format!("{url}?ssl-mode=verify-identity&ssl-ca={}", file.display())
    };
    let maria = server(folder.path(), "127.0.0.1", &issuer);
    let url = maria.fresh_url();
    maria.sql("ALTER USER backstop@'%' REQUIRE SSL");
    maria.sql_in(&url, "CREATE TABLE t (ID INT PRIMARY KEY, STATUS VARCHAR(9), DATE_INSERTED DATETIME, FAILURES INT, LAST_FAILURE DATETIME); INSERT INTO t VALUES (1, 'NEW', '2026-03-01 11:00:00', 0, NULL)");
    assert_eq!(
        due(&with(&url, &own)).await,
        Ok(1),
        "the authority vouches for it"
    );
    for (url, why) in [
        (url.clone(), "the server wants TLS"),
        (with(&url, &stranger), "another authority"),
        (
            format!("{url}?ssl-mode=required"),
            "no authority that this machine knows",
        ),
        (with(&url, Path::new("nowhere.pem")), "no such file"),
        (format!("{url}?ssl-mode=preferred"), "not to be had"),
    ] {
        let refused = due(&url).await.expect_err(why);
        assert!(
            !refused.contains(backstop_testkit::servers::mariadb::PASSWORD),
            "{refused}"
        );
    }
    let other = server(folder.path(), "elsewhere.example.org", &issuer);
    let refused = due(&with(&other.fresh_url(), &own))
        .await
        .expect_err("another name");
    assert!(refused.contains("certificate"), "{refused}");
}
