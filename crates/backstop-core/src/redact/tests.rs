use super::*;
use proptest::prelude::*;

#[test]
fn a_name_counts_in_any_spelling() {
    let redaction = Redaction::default();
    for name in [
        "password",
        "PASSWORD",
        "db_password",
        "userPassword",
        "passwords",
        "token",
        "accessToken",
        "X-Auth-Token",
        "Authorization",
        "proxy-authorization",
        "client_secret",
        "api_key",
        "apiKey",
        "APIKEY",
        "x-api-key",
    ] {
        assert!(redaction.is_secret(name), "{name}");
    }
    for name in [
        "",
        "user",
        "key",
        "api",
        "pass",
        "author",
        "authorized",
        "to_ke",
    ] {
        assert!(!redaction.is_secret(name), "{name}");
    }
}

#[test]
fn the_list_of_names_is_the_callers() {
    let redaction = Redaction::of(["Card-Number", "", "-"]);
    assert_eq!(
        redaction.payload(br#"{"cardNumber":4111,"password":"x"}"#),
        br#"{"cardNumber":"[redacted]","password":"x"}"#
    );
    let none = Redaction::of([""; 0]);
    assert_eq!(none.text("password=x"), "password=x");
}

fn json(given: &str, expected: &str) {
    let shown = Redaction::default().payload(given.as_bytes());
    assert_eq!(String::from_utf8(shown).unwrap(), expected, "{given}");
}

#[test]
fn json_is_redacted_by_field_at_any_depth_and_otherwise_kept_to_the_byte() {
    json(r#"{"password":"hunter2"}"#, r#"{"password":"[redacted]"}"#);
    json(
        r#"{ "b": 1.50, "password" : 12 , "a":[1e400 ]}"#,
        r#"{ "b": 1.50, "password" : "[redacted]" , "a":[1e400 ]}"#,
    );
    json(
        r#"{"a":[{"b":{"apiKey":{"deep":["x"]}}}]}"#,
        r#"{"a":[{"b":{"apiKey":"[redacted]"}}]}"#,
    );
    json(
        r#"{"token":null,"secret":true,"n":9223372036854775808}"#,
        r#"{"token":"[redacted]","secret":"[redacted]","n":9223372036854775808}"#,
    );
    json(
        r#"{"token":["a]","}b"],"c":1}"#,
        r#"{"token":"[redacted]","c":1}"#,
    );
    json(
        r#"{"password":"a\"b\\","c":"\\"}"#,
        r#"{"password":"[redacted]","c":"\\"}"#,
    );
    json(
        r#"{"pass\u0077ord":"x","\ud800token":"y"}"#,
        r#"{"pass\u0077ord":"[redacted]","\ud800token":"[redacted]"}"#,
    );
    json(r#"["password","token"]"#, r#"["password","token"]"#);
    json(
        r#"{"note":"my password is x","key":"password"}"#,
        r#"{"note":"my password is x","key":"password"}"#,
    );
    json(r#""password""#, r#""password""#);
    json(
        "{\"token\"\n:\n-1.5e3\n}",
        "{\"token\"\n:\n\"[redacted]\"\n}",
    );
    json(
        r#"{"password":"a","password":"b"}"#,
        r#"{"password":"[redacted]","password":"[redacted]"}"#,
    );
}

#[test]
fn a_payload_that_is_not_json_is_free_text() {
    json(r#"{"password":"hunter2","#, r#"{"password":"[redacted]","#);
    let shown = Redaction::default().payload(b"\xff password=x");
    assert_eq!(
        String::from_utf8(shown).unwrap(),
        "\u{fffd} password=[redacted]"
    );
}

fn text(given: &str, expected: &str) {
    assert_eq!(Redaction::default().text(given), expected, "{given}");
}

#[test]
fn values_in_free_text_are_redacted() {
    text(
        "login failed: password=hunter2, user=ada",
        "login failed: password=[redacted], user=ada",
    );
    text(
        "DB_PASSWORD = hunter2 HOST=x",
        "DB_PASSWORD = [redacted] HOST=x",
    );
    text("api-key: abc; retry", "api-key: [redacted]; retry");
    text("GET /a?token=abc&page=2", "GET /a?token=[redacted]&page=2");
    text(
        r#"body {"token":"abc","n":1}"#,
        r#"body {"token":"[redacted]","n":1}"#,
    );
    text(
        r#"body {"token": 123, "n":1}"#,
        r#"body {"token": [redacted], "n":1}"#,
    );
    text(
        r#"said "{\"token\":\"abc\",\"n\":1}""#,
        r#"said "{\"token\":\"[redacted]\",\"n\":1}""#,
    );
    text(
        "{'password': 'a b', 'n': 1}",
        "{'password': '[redacted]', 'n': 1}",
    );
    text(":password=>\"x\"", ":password=>\"[redacted]\"");
    text("Config{secret=abc, n=1}", "Config{secret=[redacted], n=1}");
    text("secrets: [a, b] and more", "secrets: [redacted] and more");
    text(
        "spring.datasource.password=abc",
        "spring.datasource.password=[redacted]",
    );
    text(
        "pässword=1 tokén=2 token=é",
        "pässword=1 tokén=2 token=[redacted]",
    );
    text("password: \"cut off by the lim", "password: \"[redacted]");
}

#[test]
fn credentials_are_redacted_with_their_scheme() {
    text("Authorization: Bearer abc", "Authorization: [redacted]");
    text(
        "Authorization: Digest user=\"a\", response=\"b\"\nHost: h",
        "Authorization: [redacted]\nHost: h",
    );
    text(
        "curl -H 'Authorization: Basic YTpi' http://h",
        "curl -H 'Authorization: [redacted]' http://h",
    );
    text(
        "{\"authorization\": \"Bearer abc\", \"n\": 1}",
        "{\"authorization\": \"[redacted]\", \"n\": 1}",
    );
    text("token: Bearer abc def", "token: [redacted] def");
    text(
        "sent Bearer eyJhbGciOiJ9.x1 to h",
        "sent Bearer [redacted] to h",
    );
    text("the bearer was refused", "the bearer was refused");
}

#[test]
fn passwords_in_addresses_are_redacted() {
    text(
        "cannot reach postgres://ada:pw@db/x?a=1",
        "cannot reach postgres://ada:[redacted]@db/x?a=1",
    );
    text("redis://:pw@h:6379", "redis://:[redacted]@h:6379");
    text("amqp://a:p@ss@h", "amqp://a:[redacted]@h");
    text("postgres://u:p/w?x#y@h/db", "postgres://u:[redacted]@h/db");
    for harmless in [
        "https://h:8080/@a",
        "https://ada@h",
        "http://[::1]:80/a@b",
        "see http://h/a:b",
        "://",
        "x://:@h",
    ] {
        text(harmless, harmless);
    }
}

#[test]
fn what_is_not_a_secret_stays() {
    for harmless in [
        "",
        "order 17 not found",
        "at app::token::parse (src/token.rs:42:10)",
        "File \"/app/token.py\", line 3",
        "invalid token",
        "password=",
        "password=\"\"",
        "user: ada",
        "a = b",
    ] {
        text(harmless, harmless);
    }
}

#[test]
fn once_is_as_good_as_twice() {
    for given in [
        "password=a",
        "{\"token\":\"a\"}",
        "Authorization: Bearer a",
        "x://a:b@c",
        "secret: [1, 2]",
    ] {
        let once = Redaction::default().text(given);
        assert_eq!(Redaction::default().text(&once), once);
    }
}

#[test]
fn an_error_stays_within_its_limits() {
    let error = ErrorReport {
        message: "token=a ".repeat(250),
        stack_trace: Some("token=a ".repeat(512)),
        ..ErrorReport::default()
    };
    let shown = Redaction::default().error(&error);
    assert_eq!(shown.message.chars().count(), ERROR_CHARS_MAX);
    assert_eq!(shown.stack_trace.unwrap().chars().count(), STACK_CHARS_MAX);
}

fn secret_name() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec![
        "password",
        "token",
        "secret",
        "api_key",
        "apiKey",
        "Authorization",
    ]);
    (prop::sample::select(vec!["", "db_", "X-"]), names)
        .prop_map(|(before, name)| format!("{before}{name}"))
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(given in any::<String>(), bytes in any::<Vec<u8>>()) {
        Redaction::default().text(&given);
        Redaction::default().payload(&bytes);
    }

    #[test]
    fn no_text_of_what_it_looks_for_makes_it_panic(given in "[a\"'\\\\:=@/{}\\[\\] é\n]{0,12}(token|password|://|bearer)[a1\"'\\\\:=@/{}\\[\\] é\n]{0,24}") {
        Redaction::default().text(&given);
        Redaction::default().payload(given.as_bytes());
    }

    #[test]
    fn a_secret_in_free_text_is_never_shown(
        name in secret_name(),
        value in "[A-Za-z0-9+.!$%*é-]{6,24}",
        form in prop::sample::select(vec!["N=V", "N: V", "N = V;", "\"N\":\"V\"", "{'N': 'V'}", "\\\"N\\\": \\\"V\\\"", "N: Bearer V", "s://u:V@h"]),
        before in "[a-z ]{0,12}",
        after in "[a-z ,]{0,12}",
    ) {
        let given = format!("{before} {} {after}", form.replace('N', &name).replace('V', &value));
        let shown = Redaction::default().text(&given);
        prop_assert!(!shown.contains(&value), "{given} became {shown}");
    }

    #[test]
    fn a_secret_field_of_json_is_never_shown_and_the_rest_is_the_same(
        name in secret_name(),
        secret in "[a-z0-9]{12,24}",
        other in any::<String>(),
        number in any::<f64>(),
        depth in 0_usize..5,
    ) {
        let mut value = serde_json::json!({ "first": other, &name: [secret], "number": number });
        let mut expected = value.clone();
        expected[&name] = REDACTED.into();
        for _ in 0..depth {
            value = serde_json::json!([{ "in": value }]);
            expected = serde_json::json!([{ "in": expected }]);
        }
        let shown = Redaction::default().payload(value.to_string().as_bytes());
        prop_assert_eq!(String::from_utf8(shown).unwrap(), expected.to_string());
    }
}

#[test]
fn a_value_that_is_known_to_be_secret_is_hidden_wherever_it_stands() {
    let known =
        Redaction::default().with_values(["tr0ub4dor", "tr0ub4dor&3", "a\"b\\c\n", "short"]);
    for (given, expected) in [
        (
            "login as ada with tr0ub4dor failed",
            "login as ada with [redacted] failed",
        ),
        ("tr0ub4dor&3, tr0ub4dor&3", "[redacted], [redacted]"),
        ("a short text is no value", "a short text is no value"),
        (
            r#"{"note":"it is tr0ub4dor"}"#,
            r#"{"note":"it is [redacted]"}"#,
        ),
    ] {
        assert_eq!(known.text(given), expected);
    }
    for (given, expected) in [
        (
            r#"{ "note": ["tr0ub4dor", 1.50] }"#,
            r#"{ "note": ["[redacted]", 1.50] }"#,
        ),
        (r#"{"tr0ub4dor":"x\ty"}"#, r#"{"[redacted]":"x\ty"}"#),
        (r#"{"note":"\u0074r0ub4dor"}"#, r#"{"note":"[redacted]"}"#),
        (r#"{"note":"a\"b\\c\n"}"#, r#"{"note":"[redacted]"}"#),
        (
            r#"{"tr0ub4dor password":"x"}"#,
            r#"{"[redacted] password":"[redacted]"}"#,
        ),
    ] {
        let shown = known.payload(given.as_bytes());
        assert_eq!(String::from_utf8(shown).unwrap(), expected, "{given}");
    }
    let number = Redaction::default().with_values(["1234567"]);
    assert_eq!(
        number.payload(b"[1234567]"),
        b"[1234567]",
        "a number stays one: what is JSON stays JSON"
    );
    assert!(!format!("{known:?}").contains("tr0ub4dor"), "{known:?}");
}

#[test]
fn passwords_of_addresses_are_such_values_unless_they_are_words_of_them() {
    let known = Redaction::default().with_addresses([
        "postgres://ada:tr0ub%34dor@db/jobs",
        "postgres://postgres:postgres@db/postgres",
        "https://db.example.org/without",
        "sqlite:backstop.db",
    ]);
    for (given, expected) in [
        ("refused tr0ub%34dor", "refused [redacted]"),
        ("refused tr0ub4dor", "refused [redacted]"),
        (
            "postgres at db.example.org and backstop.db",
            "postgres at db.example.org and backstop.db",
        ),
    ] {
        assert_eq!(known.text(given), expected);
    }
}
