use super::super::token_cache::{TokenCache, UnknownTokenRule};
use super::*;
use backstop::testing;

fn new(name: &str, scopes: &[Scope], expires_in: Option<Span>) -> NewToken {
    NewToken {
        name: name.to_owned(),
        scopes: scopes.to_vec(),
        queues: Vec::new(),
        expires_in,
    }
}

#[tokio::test]
async fn a_token_is_found_by_its_text_and_by_nothing_else() {
    let backstop = testing::start().backstop;
    let minted = TokenRegistry::of(&backstop)
        .create("ada", new("web", &[Scope::Push], None))
        .await
        .unwrap();
    assert!(minted.token.starts_with(PREFIX) && minted.token.len() == PREFIX.len() + 76);
    let remembered = TokenCache::default();
    let found = remembered
        .find(&backstop, &minted.token, UnknownTokenRule::LookUp)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (found.id.as_str(), found.caller().name()),
        (minted.id.as_str(), "token web")
    );
    assert!(found.caller().may(Scope::Push) && !found.caller().may(Scope::Read));
    for text in [
        "",
        PREFIX,
        &minted.id,
        &minted.token[1..],
        &minted.token.to_uppercase(),
    ] {
        assert!(
            remembered
                .find(&backstop, text, UnknownTokenRule::LookUp)
                .await
                .unwrap()
                .is_none(),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_token_made_a_moment_ago_is_known_but_not_to_who_sent_too_many_wrong_ones() {
    let backstop = testing::start().backstop;
    let remembered = TokenCache::default();
    let old = TokenRegistry::of(&backstop)
        .create("ada", new("old", &[Scope::Read], None))
        .await
        .unwrap();
    let known = async |token: &str, unknown| {
        remembered
            .find(&backstop, token, unknown)
            .await
            .unwrap()
            .is_some()
    };
    assert!(known(&old.token, UnknownTokenRule::Refuse).await);
    let new = TokenRegistry::of(&backstop)
        .create("ada", new("new", &[Scope::Read], None))
        .await
        .unwrap();
    assert!(!known(&new.token, UnknownTokenRule::Refuse).await);
    assert!(known(&new.token, UnknownTokenRule::LookUp).await);
    let mixed = format!(
        "{}{}",
        &new.token[..PREFIX.len() + 12],
        &old.token[PREFIX.len() + 12..]
    );
    assert!(
        !known(&mixed, UnknownTokenRule::LookUp).await,
        "the id of one and the secret of another"
    );
}

#[tokio::test]
async fn tokens_of_before_there_were_queues_are_good_everywhere() {
    let kept =
        br#"{"name":"old","scopes":["push"],"sha256":"00","created_at":"2026-01-01T00:00:00Z"}"#;
    let fingerprint = SecretHash::of("x").to_hex();
    let kept = String::from_utf8_lossy(kept).replace("\"00\"", &format!("\"{fingerprint}\""));
    let token = parse_token("token/a", kept.as_bytes()).expect("a token");
    assert_eq!(
        (token.queues.len(), token.caller().queue_scope()),
        (0, &QueueScope::AllQueues)
    );
    let backstop = testing::start().backstop;
    let queues = vec!["emails".parse().unwrap()];
    let some = NewToken {
        queues: queues.clone(),
        ..new("some", &[Scope::Push], None)
    };
    TokenRegistry::of(&backstop)
        .create("ada", some)
        .await
        .unwrap();
    let listed = TokenRegistry::of(&backstop).list().await.unwrap();
    assert_eq!(
        (&listed[0].queues, listed[0].caller().queue_scope()),
        (&queues, &QueueScope::of(&queues))
    );
    let many = (0..=QUEUES_MAX)
        .map(|n| format!("q{n}").parse().unwrap())
        .collect();
    let many = NewToken {
        queues: many,
        ..new("many", &[Scope::Push], None)
    };
    let refused = TokenRegistry::of(&backstop)
        .create("ada", many)
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("at most 32 queues"), "{refused}");
}

#[tokio::test]
async fn a_token_that_nobody_named_is_called_by_its_id() {
    let backstop = testing::start().backstop;
    let minted = TokenRegistry::of(&backstop)
        .create("ada", new("", &[Scope::Read], None))
        .await
        .unwrap();
    let tokens = TokenRegistry::of(&backstop).list().await.unwrap();
    assert_eq!(tokens[0].caller().name(), format!("token {}", minted.id));
}

#[tokio::test]
async fn what_makes_no_sense_is_not_made() {
    let backstop = testing::start().backstop;
    let refused = async |new: NewToken| {
        TokenRegistry::of(&backstop)
            .create("ada", new)
            .await
            .unwrap_err()
            .to_string()
    };
    assert!(
        refused(new("a", &[], None))
            .await
            .contains("push, work, read or admin")
    );
    assert!(
        refused(new("a\nb", &[Scope::Read], None))
            .await
            .contains("visible")
    );
    assert!(
        refused(new(&"a".repeat(65), &[Scope::Read], None))
            .await
            .contains("64")
    );
    assert!(
        refused(new("a", &[Scope::Read], Some(Span::ZERO)))
            .await
            .contains("1s")
    );
    assert!(
        TokenRegistry::of(&backstop)
            .list()
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn there_are_only_as_many_as_can_be_compared() {
    let backstop = testing::start().backstop;
    let tokens = TokenRegistry::of(&backstop);
    for _ in 0..TOKENS_MAX {
        tokens.make(new("", &[Scope::Read], None)).await.unwrap();
    }
    let refused = tokens
        .create("ada", new("", &[Scope::Read], None))
        .await
        .unwrap_err();
    assert!(matches!(refused, CreateTokenError::TooMany), "{refused}");
}

#[tokio::test]
async fn making_and_ending_one_are_each_one_entry_in_the_audit_and_no_secret_is_in_it() {
    let backstop = testing::start().backstop;
    let tokens = TokenRegistry::of(&backstop);
    let minted = tokens
        .create("ada@home", new("web", &[Scope::Push], None))
        .await
        .unwrap();
    assert!(tokens.revoke("ada@home", &minted.id).await.unwrap());
    assert!(
        !tokens.revoke("ada@home", &minted.id).await.unwrap(),
        "it is gone"
    );
    let entries = backstop.audit("").entries(10).await.unwrap();
    let told: Vec<(&str, &str, Option<u64>)> = entries
        .iter()
        .rev()
        .map(|entry| (entry.who.as_str(), entry.what.as_str(), entry.count))
        .collect();
    assert_eq!(
        told.len(),
        2,
        "the token that was gone is no entry: {told:?}"
    );
    assert!(
        told.contains(&("ada@home", "token create", Some(1))),
        "{told:?}"
    );
    assert!(
        told.contains(&("ada@home", "token revoke", Some(1))),
        "{told:?}"
    );
    assert!(
        !serde_json::to_string(&entries)
            .unwrap()
            .contains(&minted.token)
    );
}

#[tokio::test]
async fn a_cell_that_cannot_be_read_lets_nobody_in() {
    let backstop = testing::start().backstop;
    for (name, value) in [
        ("token/a", "{"),
        (
            "token/b",
            r#"{"name":"","scopes":["admin"],"sha256":"00","created_at":"2026-01-01T00:00:00Z"}"#,
        ),
    ] {
        let swap = CellSwap {
            name: name.to_owned(),
            seen: None,
            version: 1,
            value: Some(value.into()),
        };
        backstop.store().swap(vec![swap]).await.unwrap();
    }
    assert!(
        TokenRegistry::of(&backstop)
            .list()
            .await
            .unwrap()
            .is_empty()
    );
    assert!(
        TokenCache::default()
            .find(
                &backstop,
                &format!("{PREFIX}{}", "0".repeat(76)),
                UnknownTokenRule::LookUp
            )
            .await
            .unwrap()
            .is_none()
    );
}
