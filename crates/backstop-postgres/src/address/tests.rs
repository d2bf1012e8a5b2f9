use super::*;

fn read(text: &str) -> PostgresAddress {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn what_is_ours_is_taken_and_the_rest_is_the_drivers() {
    let address = read(
        "postgres://u:p@h:5433/db?schema=work_2&connections=3&pooler=transaction&application_name=x",
    );
    assert_eq!(
        (address.schema.as_str(), address.connections),
        ("work_2", 3)
    );
    assert_eq!(address.pooler, PoolerMode::Transaction);
    assert_eq!(address.config.get_application_name(), Some("x"));
    assert_eq!(address.config.get_ports(), [5433]);
    assert_eq!(
        schema_of("postgres://h/db").ok().as_deref(),
        Some("backstop")
    );
}

#[test]
fn a_certificate_to_check_with_means_tls_or_nothing() {
    let mode = |text: &str| read(text).config.get_ssl_mode();
    assert_eq!(mode("postgres://localhost/db"), SslMode::Prefer);
    assert_eq!(mode("postgres://127.0.0.1/db"), SslMode::Prefer);
    assert_eq!(mode("postgres://h/db"), SslMode::Require, "another machine");
    assert_eq!(mode("postgres://localhost,h/db"), SslMode::Require);
    assert_eq!(
        mode("postgres://h/db?sslmode=prefer"),
        SslMode::Prefer,
        "who says so gets it"
    );
    assert_eq!(
        mode("postgres://localhost/db?sslrootcert=/ca.pem"),
        SslMode::Require
    );
    assert_eq!(
        mode("postgres://h/db?sslmode=verify-full"),
        SslMode::Require
    );
    assert_eq!(mode("postgres://h/db?sslmode=disable"), SslMode::Disable);
}

#[test]
fn what_cannot_be_is_refused_without_the_password() {
    for (text, says) in [
        ("postgres://u:secret@h/db?schema=pg_x", "schema"),
        ("postgres://u:secret@h/db?schema=", "schema"),
        ("postgres://u:secret@h/db?schema=A", "schema"),
        ("postgres://u:secret@h/db?schema=a\"b", "schema"),
        ("postgres://u:secret@h/db?connections=0", "1 to 100"),
        (
            "postgres://u:secret@h/db?pooler=session",
            "none or transaction",
        ),
        ("postgres://u:secret@h/db?colour=red", "colour"),
        ("postgres://u:secret@h:port/db", "port"),
    ] {
        let error = text.parse::<PostgresAddress>().expect_err(text).to_string();
        assert!(
            error.contains(says) && !error.contains("secret"),
            "{text}: {error}"
        );
    }
}
