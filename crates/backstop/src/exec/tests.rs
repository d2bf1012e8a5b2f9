use super::*;
use crate::handler::HandlerStates;
use backstop_core::failure::FailureHistory;
use backstop_core::job_options::JobOptions;
use backstop_core::lease::LeaseNumber;
use backstop_core::limits::UNSTARTED_WAIT;
use backstop_core::{JobId, Kind, Lease, LeasedRun, Payload, Priority, QueueName, Time};
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

fn run_of(payload: &[u8], cancel: CancellationToken) -> Run {
    let number = LeaseNumber::from_i64(42);
    let lease = Lease {
        queue: QueueName::new("emails").unwrap(),
        job: JobId::named("one"),
        number,
    };
    let leased = LeasedRun {
        lease,
        kind: Kind::new("Send mail").unwrap(),
        payload: Payload::from_stored(payload.to_vec()),
        priority: Priority::Normal,
        attempts_before: 2,
        lost_leases: 0,
        inserted_at: Time::default(),
        run_at: Time::default(),
        options: JobOptions::default(),
        history: FailureHistory::default(),
    };
    Run::new(Arc::new(leased), HandlerStates::default(), cancel)
}

async fn run(exec: Exec, payload: &[u8]) -> RunEnding {
    let deadline = Duration::from_secs(20);
    let run = exec.run(run_of(payload, CancellationToken::new()));
    tokio::time::timeout(deadline, run).await.expect("it ends")
}

async fn sh(line: &str) -> RunEnding {
    run(Exec::shell(line), b"{}").await
}

fn failed(ending: RunEnding) -> (ErrorReport, FailureAdvice) {
    match ending {
        RunEnding::Failed { error, advice, .. } => (error, advice),
        other => panic!("failed was expected: {other:?}"),
    }
}

#[tokio::test]
async fn the_exit_code_decides() {
    assert_eq!(sh("exit 0").await, RunEnding::Done);
    assert_eq!(sh("exit 75").await, RunEnding::Released(Span::secs(1)));
    for (code, advice) in [
        (1, FailureAdvice::Retry),
        (64, FailureAdvice::Retry),
        (65, FailureAdvice::Dead),
        (127, FailureAdvice::Retry),
    ] {
        let (error, advised) = failed(sh(&format!("exit {code}")).await);
        assert_eq!(error.message, format!("exited with code {code}"));
        assert_eq!(error.error_type, Some(format!("Exit {code}")));
        assert_eq!((advised, error.stack_trace), (advice, None));
    }
}

#[tokio::test]
async fn a_signal_is_a_failure() {
    let (error, advice) = failed(sh("kill -9 $$").await);
    assert_eq!(error.message, "killed by signal 9");
    assert_eq!(error.error_type.as_deref(), Some("Signal 9"));
    assert_eq!(advice, FailureAdvice::Retry);
}

#[tokio::test]
async fn the_end_of_stderr_is_the_error() {
    let line = "echo first >&2; echo noise; echo 'no such user' >&2; echo >&2; exit 65";
    let (error, _) = failed(sh(line).await);
    assert_eq!(error.message, "no such user");
    assert_eq!(
        error.stack_trace.as_deref(),
        Some("first\nno such user\n\n")
    );
}

#[tokio::test]
async fn a_chatty_command_is_read_to_its_end_and_remembered_by_its_tail() {
    let line = "head -c 5000000 /dev/zero | tr '\\0' x >&2; head -c 5000000 /dev/zero; echo end >&2; exit 1";
    let (error, _) = failed(sh(line).await);
    assert_eq!(error.stack_trace.map(|text| text.len()), Some(4_096));
    assert!(
        error.message.ends_with("end"),
        "the last line is one of x and the word"
    );
}

#[tokio::test]
async fn the_job_is_in_the_environment_and_the_payload_on_stdin() {
    let payload = "{\"größe\": 1.0,  \"x\":\"\\u00e9\"}".as_bytes();
    let line = "cat >&2; echo >&2; echo $BACKSTOP_JOB_ID,$BACKSTOP_QUEUE,$BACKSTOP_KIND,$BACKSTOP_ATTEMPT,$BACKSTOP_LEASE >&2; exit 1";
    let (error, _) = failed(run(Exec::shell(line), payload).await);
    assert_eq!(
        error.message,
        format!("{},emails,Send mail,3,42", JobId::named("one"))
    );
    let seen = error.stack_trace.expect("a trace");
    assert_eq!(
        seen.lines().next().map(str::as_bytes),
        Some(payload),
        "byte for byte"
    );
}

#[tokio::test]
async fn a_large_payload_passes_while_stderr_is_read() {
    let payload = vec![b'1'; 1 << 20];
    let (error, _) = failed(run(Exec::shell("wc -c >&2; exit 1"), &payload).await);
    assert_eq!(error.message, "1048576");
    assert_eq!(run(Exec::shell("cat >&2"), &payload).await, RunEnding::Done);
}

#[tokio::test]
async fn a_command_need_not_read_its_payload() {
    let payload = vec![b'1'; 1 << 20];
    assert_eq!(
        run(Exec::shell("exec <&-; exit 0"), &payload).await,
        RunEnding::Done
    );
    assert_eq!(
        run(Exec::new("true", [""; 0]), &payload).await,
        RunEnding::Done
    );
}

#[tokio::test]
async fn arguments_need_no_quoting_without_a_shell() {
    let argv = ["-c", "[ \"$1\" = 'a b\"c$HOME' ]", "sh", "a b\"c$HOME"];
    assert_eq!(run(Exec::new("sh", argv), b"{}").await, RunEnding::Done);
}

#[tokio::test]
async fn a_command_that_cannot_be_started_gives_its_job_back() {
    let folder = tempfile::tempdir().unwrap();
    let without_interpreter = folder.path().join("script");
    std::fs::write(&without_interpreter, "#!/no/such/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&without_interpreter, mode).unwrap();
    for program in [
        "no-such-command-here".as_ref(),
        Path::new("/etc/passwd"),
        &without_interpreter,
    ] {
        let ending = run(Exec::new(program, [""; 0]), b"{}").await;
        assert_eq!(
            ending,
            RunEnding::Released(UNSTARTED_WAIT),
            "{}",
            program.display()
        );
    }
}

#[tokio::test]
async fn a_job_that_no_command_can_be_told_of_fails() {
    let (error, advice) = failed(run(Exec::new("true", ["\0"]), b"{}").await);
    assert!(
        error.message.starts_with("true could not be run: "),
        "{}",
        error.message
    );
    assert_eq!(
        (error.error_type.as_deref(), advice),
        (Some("NotRun"), FailureAdvice::Retry)
    );
}

#[tokio::test]
async fn what_a_command_leaves_running_does_not_hold_up_its_job() {
    let started = std::time::Instant::now();
    assert_eq!(sh("sleep 7.531 & exit 0").await, RunEnding::Done);
    assert!(started.elapsed() < Duration::from_secs(5));
}

/// Waits until a file says what is expected; a process at work cannot be asked more politely.
async fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come to pass");
}

/// A command with a child of its own, both deaf to SIGTERM; it writes both numbers and waits.
fn deaf(pids: &Path) -> Exec {
    let pids = pids.display();
    Exec::shell(format!(
        "trap '' TERM; sleep 60 & echo $$ $! > {pids}.new; mv {pids}.new {pids}; wait; sleep 60"
    ))
}

fn all_gone(pids: &Path) -> bool {
    let pids = std::fs::read_to_string(pids).expect("the numbers");
    let is_gone = |pid: &str| {
        // Without an init to reap it, an orphan stays as a zombie: dead enough.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.is_empty() || stat.contains(") Z ")
    };
    pids.split_whitespace().all(is_gone)
}

#[tokio::test]
async fn a_dropped_run_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let exec = deaf(&pids);
    let running =
        tokio::spawn(async move { exec.run(run_of(b"{}", CancellationToken::new())).await });
    wait_for("a start", || pids.exists()).await;
    running.abort();
    wait_for("the end of both", || all_gone(&pids)).await;
}

#[tokio::test]
async fn a_run_called_off_is_given_back_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let (exec, cancel) = (deaf(&pids), CancellationToken::new());
    let running = tokio::spawn({
        let cancel = cancel.clone();
        async move { exec.run(run_of(b"{}", cancel)).await }
    });
    wait_for("a start", || pids.exists()).await;
    cancel.cancel();
    assert_eq!(running.await.unwrap(), RunEnding::Released(Span::ZERO));
    wait_for("the end of both", || all_gone(&pids)).await;
}

#[test]
fn a_runtime_that_goes_down_takes_its_commands_along() {
    let folder = tempfile::tempdir().unwrap();
    let pids = folder.path().join("pids");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let exec = deaf(&pids);
        tokio::spawn(async move { exec.run(run_of(b"{}", CancellationToken::new())).await });
        wait_for("a start", || pids.exists()).await;
    });
    drop(runtime);
    let after = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    after.block_on(wait_for("the end of both", || all_gone(&pids)));
}

#[tokio::test]
async fn a_command_is_told_where_its_run_stands_in_a_trace() {
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let place = traceparent.parse().ok();
    let told = |run: Run| async move {
        let exec = Exec::shell("echo \"trace ${TRACEPARENT-none}\" >&2; exit 1");
        failed(
            tokio::time::timeout(Duration::from_secs(20), exec.run(run))
                .await
                .expect("it ends"),
        )
        .0
        .message
    };
    let run = run_of(b"{}", CancellationToken::new());
    assert_eq!(
        told(run.clone().with_trace(place)).await,
        format!("trace {traceparent}")
    );
    assert_eq!(
        told(run).await,
        "trace none",
        "this process's own is none of the job's business"
    );
}

#[test]
fn a_handler_does_not_inherit_what_opens_the_store() {
    let command = Exec::shell("env").command(&run_of(b"{}", CancellationToken::new()));
    let removed: Vec<_> = command
        .as_std()
        .get_envs()
        .filter(|(_, value)| value.is_none())
        .collect();
    for name in ["BACKSTOP_STORE", "BACKSTOP_TOKEN"] {
        assert!(
            removed.iter().any(|(removed, _)| *removed == name),
            "{name} is inherited: {removed:?}"
        );
    }
}
