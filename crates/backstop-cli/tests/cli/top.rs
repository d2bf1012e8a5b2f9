//! `backstop top`: one frame or the figures where there is no terminal, and live on a terminal of
//! its own.

use crate::place::{Place, finished, lines, wait_until};

fn place() -> Place {
    let place = Place::new();
    place.write("jobs.ndjson", &lines(12));
    place.json(["push", "emails", "--file", "jobs.ndjson"]);
    place.json(["push", "webhooks", "{}", "--kind", "deliver"]);
    place
        .run([
            "work",
            "webhooks",
            "--exec",
            "echo '410 Gone' >&2; exit 65",
            "--until-empty",
        ])
        .exits(1);
    place
}

#[test]
fn a_frame_is_text_without_colours() {
    let place = place();
    let queues = place.run(["top", "--once"]).succeeded().stdout;
    for part in [
        "sqlite:backstop.db",
        "12 live",
        "1 dead",
        "QUEUE",
        "READY",
        "emails",
        "webhooks",
    ] {
        assert!(queues.contains(part), "{part:?} is missing:\n{queues}");
    }
    assert!(!queues.contains('\x1b'), "{queues:?}");
    let dead = place
        .run(["top", "--once", "--view", "dead"])
        .succeeded()
        .stdout;
    assert!(
        dead.contains("deliver") && dead.contains("410 Gone"),
        "{dead}"
    );
}

#[test]
fn the_figures_are_there_for_programs() {
    let place = place();
    let figures = place.json(["top", "--once"]);
    let queues = figures["queues"].as_array().unwrap();
    assert_eq!(
        queues
            .iter()
            .map(|queue| queue["name"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["emails", "webhooks"]
    );
    assert_eq!(
        (&queues[0]["ready"], &queues[0]["rate"]["done"]),
        (&12.into(), &0.0.into())
    );
    assert!(
        queues[0]["oldest_ms"].as_i64().is_some_and(|age| age >= 0),
        "{figures}"
    );
    assert_eq!(
        (
            &figures["dead"]["total"],
            &figures["dead"]["groups"][0]["count"]
        ),
        (&1.into(), &1.into())
    );
    for list in ["workers", "streams", "breakers"] {
        assert!(figures[list].is_array(), "{list}: {figures}");
    }
    assert_eq!(
        place.json(["top"])["queues"][0]["ready"],
        12,
        "--json alone means once"
    );
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let place = place();
    place
        .run(["top"])
        .complains(2, &["no terminal", "try: backstop top --once"]);
    place
        .run(["top", "--once", "--interval", "1ms"])
        .complains(2, &["--interval must be from 200ms to 10m"]);
}

/// Runs `top` on a terminal of its own. Each step is what is waited for, a text on the terminal or
/// a file, and the key that is pressed then.
const TERMINAL: &str = r#"
import fcntl, os, pty, select, struct, sys, termios, time
steps = [step.split("=>") for step in sys.argv[1].split(";")]
looked_at, go_on = os.pipe()
child, terminal = pty.fork()
if child == 0:
    os.read(looked_at, 1)
    os.execv(sys.argv[2], sys.argv[2:])
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
before, seen, end = termios.tcgetattr(terminal)[3], b"", time.monotonic() + 50
os.write(go_on, b".")
while time.monotonic() < end:
    if select.select([terminal], [], [], 0.1)[0]:
        try: part = os.read(terminal, 65536)
        except OSError: break
        seen += part
        if not part: break
    if steps and (steps[0][0].encode() in seen or os.path.exists(steps[0][0])):
        os.write(terminal, steps.pop(0)[1].encode())
else:
    os.kill(child, 9)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
was_left = seen.rfind(b"\x1b[?1049l") > seen.rfind(b"\x1b[?1049h") > -1
print(f"code {code}, {len(steps)} keys left, screen left: {was_left}, as before: {termios.tcgetattr(terminal)[3] == before}")
"#;

#[test]
fn on_a_terminal_keys_change_the_store_and_the_terminal_is_given_back() {
    let place = place();
    place.write("terminal.py", TERMINAL);
    let is_paused = || {
        let queues = place.json(["queue", "list"])["queues"].clone();
        let queues = queues.as_array().unwrap();
        queues
            .iter()
            .find(|queue| queue["name"] == "emails")
            .unwrap()["paused"]
            == true
    };
    for (round, paused) in [("first", true), ("second", false)] {
        let mut command = std::process::Command::new("python3");
        command
            .arg("terminal.py")
            .arg(format!("emails=>P;{round}=>q"))
            .arg(env!("CARGO_BIN_EXE_backstop"));
        command
            .args(["top", "--interval", "200ms"])
            .current_dir(place.path(""));
        command
            .env_remove("BACKSTOP_STORE")
            .env("TERM", "xterm-256color");
        let child = command
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("python3 is there");
        wait_until("the key", || is_paused() == paused);
        place.write(round, "");
        let told = finished(child).succeeded().stdout;
        assert_eq!(
            told,
            "code 0, 0 keys left, screen left: True, as before: True\n"
        );
    }
    let audit = place.json(["dead", "audit"])["audit"].clone();
    let told: Vec<&str> = audit
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["what"].as_str().unwrap())
        .collect();
    assert_eq!(told, ["queue resume", "queue pause"], "{audit}");
}
