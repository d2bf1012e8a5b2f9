use crate::place::Place;

const FILE: &str = "[store]\nurl = \"sqlite:file.db\"\n[queues.q]\nretry = { kind = \"constant\", every = \"1s\", max_attempts = 9 }\n";

#[test]
fn file_then_environment_then_flags() {
    let place = Place::new();
    place.write("backstop.toml", FILE);
    let exists = |name: &str| place.path(name).exists();
    place.run(["push", "q", "1"]).succeeded();
    assert!(exists("file.db") && !exists("backstop.db"));
    let push = |args: &[&str]| {
        let mut command = place.command(["push", "q", "1"].iter().chain(args));
        assert!(
            command
                .env("BACKSTOP_STORE", "sqlite:env.db")
                .output()
                .unwrap()
                .status
                .success()
        );
    };
    push(&[]);
    assert!(exists("env.db"));
    push(&["--store", "sqlite:flag.db"]);
    assert!(exists("flag.db"));
}

#[test]
fn a_named_file_must_be_there_and_counts_instead_of_the_usual_one() {
    let place = Place::new();
    place.write("backstop.toml", FILE);
    place.write("other.toml", "[store]\nurl = \"sqlite:other.db\"\n");
    place
        .run(["push", "q", "1", "--config", "other.toml"])
        .succeeded();
    assert!(place.path("other.db").exists());
    place
        .run(["push", "q", "1", "--config", "missing.toml"])
        .complains(2, &["missing.toml", "try: "]);
}

#[test]
fn a_mistake_in_the_file_is_shown_with_line_column_and_what_is_allowed() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[store]\nurl = \"memory:\"\nurll = \"x\"\n",
    );
    let parts = [
        "backstop.toml",
        ":3:1: unknown field `urll`",
        "`durability`",
    ];
    place.run(["queue", "list"]).complains(2, &parts);
    place.write("backstop.toml", "[queues.q]\nconcurrency = 0\n");
    place
        .run(["queue", "list"])
        .complains(2, &["[queues.q]", "`concurrency` must be"]);
    let status = place
        .command(["queue", "list", "--config", "/dev/null"])
        .env("BACKSTOP_DURABILITY", "often")
        .output();
    let stderr = String::from_utf8(status.unwrap().stderr).unwrap();
    assert!(
        stderr.contains("BACKSTOP_DURABILITY") && stderr.contains("full or relaxed"),
        "{stderr}"
    );
}

#[test]
fn the_files_policy_is_the_queues() {
    let place = Place::new();
    place.write("backstop.toml", FILE);
    place.json(["push", "q", "1", "--id", "a"]);
    assert_eq!(place.job("a")["max_attempts"], 9);
}

#[test]
fn a_handler_that_cannot_be_started_is_named_with_key_and_line() {
    let place = Place::new();
    place.write("no-program", "text");
    place.write(
        "backstop.toml",
        "[queues.a]\nhandler = { exec = [\"no-such-program\"] }\n[queues.b]\n\nhandler = { exec = [\"./no-program\"] }\n\
         [streams.s]\nhandler = { exec = [\"./nowhere\", \"x\"] }\n[queues.good]\nhandler = { exec = [\"sh\"] }\n",
    );
    let answer = place.run(["config", "check"]).exits(1);
    let lines: Vec<&str> = answer.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{answer:?}");
    assert!(lines[0].starts_with(
        "backstop.toml, line 2: queues.a.handler.exec: there is no program `no-such-program`"
    ));
    assert!(lines[1].starts_with(
        "backstop.toml, line 5: queues.b.handler.exec: ./no-program cannot be executed"
    ));
    assert!(
        lines[2].starts_with(
            "backstop.toml, line 7: streams.s.handler.exec: there is no file ./nowhere"
        )
    );
    let told = place.run(["config", "check", "--json"]).exits(1).json();
    assert_eq!(
        (&told["valid"], &told["problems"][1]["line"]),
        (&false.into(), &5.into())
    );
    for (address, why) in [
        ("http//x", "not an address"),
        ("http://169.254.169.254/", "link-local"),
    ] {
        let text = format!("[queues.q]\nlease = \"5s\"\nhandler = {{ http = \"{address}\" }}\n");
        place.write("backstop.toml", &text);
        place
            .run(["config", "check"])
            .complains(1, &["backstop.toml, line 3: [queues.q]: `http`", why]);
        place
            .run(["queue", "list"])
            .complains(2, &["backstop.toml, line 3: [queues.q]: `http`", why]);
    }
}

#[test]
fn a_configuration_is_checked_without_starting_anything() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { exec = [\"true\"] }\n[schedules.s]\ncron = \"30 8 * * *\"\nqueue = \"q\"\n[server]\nlisten = \"0.0.0.0:1\"\nplain_http = true\n",
    );
    let checked = place.json(["config", "check"]);
    assert_eq!(
        (&checked["valid"], &checked["handlers"]),
        (&true.into(), &1.into())
    );
    assert_eq!(
        (&checked["schedules"], &checked["listen"]),
        (&1.into(), &"0.0.0.0:1".into())
    );
    assert!(!place.path("backstop.db").exists(), "no store was made");
    assert!(
        place
            .run(["config", "check"])
            .succeeded()
            .stdout
            .contains("1 queue, 1 with a handler")
    );
    place.write(
        "backstop.toml",
        "[server]\nlisten = \"127.0.0.1:1\"\nlistn = 1\n",
    );
    place
        .run(["config", "check"])
        .complains(2, &[":3:1: ", "`listn`"]);
    place.write(
        "backstop.toml",
        "[queues.q]\nhandler = { http = \"https://localhost\", ca = \"none.pem\" }\n",
    );
    place
        .run(["config", "check"])
        .complains(2, &["queue q", "none.pem"]);
    place.write(
        "backstop.toml",
        "[server]\ntls = { cert = \"c.pem\", key = \"k.pem\" }\n",
    );
    place.run(["config", "check"]).complains(2, &["c.pem"]);
    place.write("backstop.toml", "[store]\nurl = \"mongo:x\"\n");
    place
        .run(["config", "check"])
        .complains(2, &["not the address of a store"]);
}

#[test]
fn what_every_command_or_the_server_would_refuse_is_found_by_the_check() {
    let place = Place::new();
    let sweep = "[sweeps.s]\nurl = \"sqlite:a.db\"\nunique_key = \"a:{id}\"\nqueue = \"q\"\nevery = \"1m\"\n";
    let of_sweep = format!("{sweep}query = \"DELETE FROM a WHERE at <= :cutoff RETURNING id\"\n");
    for (file, code, parts) in [
        (
            "[server]\nlisten = \"0.0.0.0:7007\"\n",
            1,
            ["line 2", "server.listen", "0.0.0.0:7007"],
        ),
        (
            "[store]\nurl = \"postgres://u:secret@host:bad/db\"\n",
            1,
            ["line 2", "store.url", "postgres://USER"],
        ),
        (&of_sweep, 1, ["line 6", "sweeps.s", "must be a SELECT"]),
    ] {
        place.write("backstop.toml", file);
        let answer = place.run(["config", "check"]).exits(code);
        let told = format!("{}{}", answer.stdout, answer.stderr);
        assert!(
            parts.iter().all(|part| told.contains(part)) && !told.contains("secret"),
            "{file}: {told}"
        );
    }
    place.write(
        "backstop.toml",
        "[server]\nlisten = \"0.0.0.0:7007\"\nplain_http = true\n",
    );
    place.run(["config", "check"]).succeeded();
}

#[test]
fn a_file_that_cannot_be_read_does_not_keep_anybody_from_looking_at_a_store_that_is_named() {
    let place = Place::new();
    place.run(["push", "q", "1", "--id", "a"]).succeeded();
    let (file, list) = (place.path("backstop.toml"), ["job", "list"]);
    let named = [list.as_slice(), &["--store", "sqlite:backstop.db"]].concat();
    let check = || {
        let answer = place.run(&named).succeeded();
        let warning = "warning: backstop.toml cannot be read: ";
        assert!(answer.stderr.starts_with(warning), "{answer:#?}");
        let told = "backstop.toml cannot be read";
        place.run(list).complains(2, &[told, "try: "]);
        let given = [named.as_slice(), &["--config", "backstop.toml"]].concat();
        place.run(given).complains(2, &[told]);
    };
    std::fs::write(&file, b"redact = [\"\xff\"]\n").unwrap();
    check();
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    check();
}

#[test]
fn a_broken_file_does_not_keep_anybody_from_looking_at_a_store_that_is_named() {
    let place = Place::new();
    place
        .run(["push", "q", r#"{"pin":"canary"}"#, "--id", "a"])
        .succeeded();
    for (text, told) in [
        (
            "redact = [\"pin\"]\n[queues.q]\nconcurency = 1\n",
            "backstop.toml:3:1: unknown field `concurency`",
        ),
        (
            "redact = [\"pin\"]\n[queues.q]\nconcurrency = 0\n",
            "backstop.toml, line 3: [queues.q]: `concurrency`",
        ),
    ] {
        place.write("backstop.toml", text);
        for look in [
            "job list",
            "job show a",
            "job why a",
            "queue list",
            "dead list",
            "dead export",
            "doctor",
            "worker list",
            "top --once",
        ] {
            let mut command = place.command(look.split(' '));
            let output = command
                .env("BACKSTOP_STORE", "sqlite:backstop.db")
                .output()
                .unwrap();
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.success(), "{look}: {stderr}");
            assert!(
                stderr
                    .lines()
                    .filter(|line| line.starts_with(&format!("warning: {told}")))
                    .count()
                    == 1,
                "{stderr}"
            );
            place
                .run(look.split(' ').chain(["--store", "sqlite:backstop.db"]))
                .succeeded();
            place.run(look.split(' ')).complains(2, &[told, "try: "]);
        }
        let list = ["job", "list", "--store", "sqlite:backstop.db"];
        assert_eq!(
            place.json(list)["jobs"][0]["payload"]["pin"],
            "[redacted]",
            "by the names in the broken file"
        );
        // What needs it is stopped by it, wherever the store is.
        for needs in [
            "push q 1",
            "work q --exec true",
            "job retry a",
            "schedule missed",
            "sweep",
        ] {
            place
                .run(needs.split(' ').chain(["--store", "sqlite:backstop.db"]))
                .complains(2, &[told, "try: "]);
        }
    }
    place
        .run(["queue", "list", "--store", "sqlite:other.db"])
        .succeeded();
    assert!(!place.path("other.db").exists(), "a look makes no store");
}

#[test]
fn a_broken_file_does_not_stop_what_needs_none() {
    let place = Place::new();
    place.write("backstop.toml", "[queues.q]\nconcurency = 1\n");
    place.write("records", r#"{"at_ms":0,"key":"a","position":60000}"#);
    for command in [
        "policy preview",
        "policy simulate --rate 1/s --outage 1m",
        "alerts --prometheus",
        "completions bash",
        r#"stream replay --stream {"step":"1m"} --input records"#,
    ] {
        let answer = place.run(command.split(' ')).succeeded();
        assert_eq!(answer.stderr, "", "{command}");
    }
    place
        .run("stream replay --name uptime --input records".split(' '))
        .complains(2, &["unknown field `concurency`"]);
}

#[test]
fn a_mistake_in_the_file_is_one_line_for_programs_too() {
    let place = Place::new();
    place.write("backstop.toml", "[queues.q]\nconcurrency = \"many\n");
    let answer = place.run(["--json", "queue", "list"]).exits(2);
    let told: serde_json::Value = serde_json::from_str(&answer.stderr).unwrap();
    let error = told["error"].as_str().unwrap();
    assert!(
        error.starts_with("backstop.toml:2:") && !error.contains('\n') && !error.contains('^'),
        "{error}"
    );
    assert!(
        told["try"]
            .as_str()
            .unwrap()
            .contains("backstop config check"),
        "{told}"
    );
}
