//! Chromium over the pipe of its debugging protocol: one process for all tests, gone with them.

use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

const INSTALL: &str = "the browser tests need Chromium; on Debian: apt-get install --no-install-recommends chromium-headless-shell";

/// The pipe's two ends are the descriptors 3 and 4 by the protocol; this program has them as the
/// shell's stdin and stdout.
const PIPED: &str = r#"exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null"#;

const FLAGS: [&str; 11] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
];

/// The one browser of this process. It ends when its pipe closes, and so with the tests, however
/// they end.
pub(crate) fn browser() -> &'static Browser {
    static BROWSER: OnceLock<Browser> = OnceLock::new();
    BROWSER.get_or_init(Browser::launch)
}

/// A running browser.
pub(crate) struct Browser {
    pipe: Arc<Mutex<ChildStdin>>,
    inbox: Arc<Inbox>,
    next: AtomicU64,
    _process: Child,
    _profile: TempDir,
}

/// What the browser said and nobody has looked at.
#[derive(Default)]
struct Inbox {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default)]
struct Heard {
    answers: HashMap<u64, Value>,
    /// By session, in their order.
    events: HashMap<String, Vec<Value>>,
    is_closed: bool,
}

impl Browser {
    fn launch() -> Self {
        // The first is the same browser without its windows: all that is needed here, at less than
        // half of the cost.
        let program = [
            "chromium-headless-shell",
            "chromium",
            "chromium-browser",
            "google-chrome",
        ];
        let program = program
            .into_iter()
            .find(|name| is_there(name))
            .unwrap_or_else(|| panic!("{INSTALL}"));
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", PIPED, "sh", program]).args(FLAGS);
        command
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let pipe = Arc::new(Mutex::new(process.stdin.take().unwrap()));
        let inbox = Arc::<Inbox>::default();
        let stdout = process.stdout.take().unwrap();
        std::thread::spawn({
            let (inbox, pipe) = (Arc::clone(&inbox), Arc::clone(&pipe));
            move || listen(stdout, &inbox, &pipe)
        });
        let browser = Self {
            pipe,
            inbox,
            next: AtomicU64::new(1),
            _process: process,
            _profile: profile,
        };
        browser.call(None, "Browser.getVersion", &json!({}));
        browser
    }

    /// Calls a method, in a session or of the browser itself, and waits for its answer.
    pub(crate) fn call(&self, session: Option<&str>, method: &str, params: &Value) -> Value {
        let answer = self.try_call(session, method, params);
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// As [`Browser::call`], where the browser may refuse.
    pub(crate) fn try_call(
        &self,
        session: Option<&str>,
        method: &str,
        params: &Value,
    ) -> Result<Value, Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        say(&self.pipe, &message);
        let mut answer = self.wait(method, |heard| heard.answers.remove(&id));
        match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["result"].take()),
        }
    }

    /// The events of a session so far, of this method.
    pub(crate) fn events(&self, session: &str, method: &str) -> Vec<Value> {
        let heard = self.inbox.heard.lock().unwrap();
        let all = heard.events.get(session).into_iter().flatten();
        all.filter(|event| event["method"] == method)
            .map(|event| event["params"].clone())
            .collect()
    }

    /// Waits until there are more than `before` events of this method.
    pub(crate) fn wait_past(&self, session: &str, method: &str, before: usize) {
        self.wait(method, |heard| {
            let all = heard.events.get(session).into_iter().flatten();
            (all.filter(|event| event["method"] == method).count() > before).then_some(())
        });
    }

    fn wait<T>(&self, what: &str, mut look: impl FnMut(&mut Heard) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut heard = self.inbox.heard.lock().unwrap();
        loop {
            if let Some(found) = look(&mut heard) {
                return found;
            }
            assert!(!heard.is_closed, "the browser ended before {what}");
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "{what} did not come to pass");
            heard = self.inbox.changed.wait_timeout(heard, left).unwrap().0;
        }
    }
}

fn is_there(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    found.is_ok_and(|status| status.success())
}

fn say(pipe: &Mutex<ChildStdin>, message: &Value) {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(0);
    let mut pipe = pipe.lock().unwrap();
    // A browser that is gone is noticed by whoever waits for its answer.
    let _ = pipe.write_all(&bytes).and_then(|()| pipe.flush());
}

fn listen(stdout: ChildStdout, inbox: &Inbox, pipe: &Mutex<ChildStdin>) {
    for message in BufReader::new(stdout).split(0) {
        let Ok(message) = message else { break };
        let Ok(message) = serde_json::from_slice::<Value>(&message) else {
            continue;
        };
        let session = message["sessionId"].as_str().unwrap_or_default().to_owned();
        if message["method"] == "Page.javascriptDialogOpening" {
            // A dialog stops its page until somebody answers; that there was one is on record.
            let accept = json!({ "id": 0, "method": "Page.handleJavaScriptDialog", "sessionId": session,
                "params": { "accept": true } });
            say(pipe, &accept);
        }
        let mut heard = inbox.heard.lock().unwrap();
        match message["id"].as_u64() {
            Some(id) => drop(heard.answers.insert(id, message)),
            None => heard.events.entry(session).or_default().push(message),
        }
        inbox.changed.notify_all();
    }
    inbox.heard.lock().unwrap().is_closed = true;
    inbox.changed.notify_all();
}
