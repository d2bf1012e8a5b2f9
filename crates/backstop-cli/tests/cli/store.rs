use crate::place::{Place, json_args};
use serde_json::{Value, json};

#[test]
fn a_store_that_is_not_there_looks_empty_and_is_not_made() {
    let place = Place::new();
    assert_eq!(
        place.json(["job", "list"]),
        json!({ "jobs": [], "next": null })
    );
    assert_eq!(place.json(["queue", "list"]), json!({ "queues": [] }));
    let answer = place.run(["queue", "list"]).succeeded();
    assert!(
        answer.stderr.contains("there is no store at backstop.db"),
        "{answer:#?}"
    );
    assert!(!place.path("backstop.db").exists());
    place
        .run(["doctor"])
        .complains(1, &["there is no store at backstop.db", "try: "]);
    assert!(!place.path("backstop.db").exists());
}

#[test]
fn doctor_says_what_can_be_relied_on() {
    let place = Place::new();
    place.json(["push", "q", "1"]);
    let shape = place.json(["doctor"]);
    assert!(
        shape["store"].as_str().unwrap().starts_with("SQLite"),
        "{shape}"
    );
    assert!(
        shape["promise"].as_str().unwrap().contains("power cut"),
        "{shape}"
    );
    let findings = shape["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    for finding in findings {
        assert!(
            ["good", "warning", "bad"].contains(&finding["grade"].as_str().unwrap()),
            "{finding}"
        );
        assert!(
            finding["what"].is_string() && finding.get("advice").is_some(),
            "{finding}"
        );
    }
    let text = place.run(["doctor"]).succeeded().stdout;
    assert!(text.contains("GRADE\tFINDING\tADVICE"), "{text}");
    let relaxed = place.json(["doctor", "--durability", "relaxed"]);
    assert_ne!(relaxed["promise"], shape["promise"]);
}

#[test]
fn migrate_says_from_where_to_where() {
    let place = Place::new();
    let first = place.json(["migrate"]);
    assert_eq!(first["from"], 0);
    assert!(first["to"].as_u64().unwrap() > 0);
    assert_eq!(place.json(["migrate"])["from"], first["to"]);
    let text = place.run(["migrate"]).succeeded().stdout;
    assert!(text.contains("nothing to do"), "{text}");
}

#[test]
fn a_store_that_cannot_be_used_is_named_without_its_password() {
    let place = Place::new();
    let answer = place.run(["job", "list", "--store", "mongodb://u:secret@h/db"]);
    let answer = answer.complains(2, &["is not a store", "try: --store sqlite:backstop.db"]);
    assert!(!answer.stderr.contains("secret"));
    place
        .run(["push", "q", "1", "--store", "sqlite:no/such/folder/b.db"])
        .complains(1, &["no/such/folder/b.db", "try: "]);
    place.write("not.db", &"this is not a database ".repeat(100));
    place
        .run(["push", "q", "1", "--store", "sqlite:not.db"])
        .complains(1, &["not.db"]);
    let told = place
        .run(json_args(["job", "list", "--store", "x:"]))
        .exits(2);
    let error: Value = serde_json::from_str(&told.stderr).unwrap();
    assert!(
        error["error"].is_string() && error["try"].is_string(),
        "{error}"
    );
}

#[test]
fn completions_and_help_are_there_for_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(["completions", shell]).succeeded().stdout;
        assert!(script.contains("backstop"), "{shell}");
    }
    place
        .run(["completions", "tcsh"])
        .complains(2, &["possible values"]);
    let commands: [&[&str]; 24] = [
        &[],
        &["push"],
        &["work"],
        &["job", "list"],
        &["job", "show"],
        &["job", "retry"],
        &["job", "cancel"],
        &["job", "delete"],
        &["job", "why"],
        &["queue", "list"],
        &["queue", "pause"],
        &["queue", "resume"],
        &["queue", "clear"],
        &["policy", "preview"],
        &["sweep"],
        &["reconcile"],
        &["table", "check"],
        &["table", "due"],
        &["table", "run"],
        &["table", "status"],
        &["doctor"],
        &["migrate"],
        &["demo"],
        &["completions"],
    ];
    for command in commands {
        let help = place
            .run(command.iter().chain(&["--help"]))
            .succeeded()
            .stdout;
        assert!(help.contains("Examples:"), "{command:?} does not teach");
    }
    place.run(["nonsense"]).complains(2, &["nonsense"]);
}
