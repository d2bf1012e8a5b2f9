//! Spans, as a collector gets them: a real one, on a real port, that speaks OTLP over HTTP.

use crate::place::{Place, wait_until};
use crate::serve::{HERE, serve};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a collector was told.
#[derive(Clone, Default)]
struct Told {
    spans: Arc<Mutex<Vec<Span>>>,
    services: Arc<Mutex<Vec<String>>>,
    heads: Arc<Mutex<Vec<String>>>,
}

/// Starts one; answers its address.
fn collector() -> (String, Told) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let told = Told::default();
    std::thread::spawn({
        let told = told.clone();
        move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let told = told.clone();
                std::thread::spawn(move || while take(&stream, &told).is_some() {});
            }
        }
    });
    (address, told)
}

/// Takes one request in, and answers that all is well.
fn take(mut stream: &TcpStream, told: &Told) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let start = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        let line = head[start..].to_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let request = ExportTraceServiceRequest::decode(body.as_slice()).unwrap();
    for resource in request.resource_spans {
        let attributes = resource
            .resource
            .into_iter()
            .flat_map(|resource| resource.attributes);
        let service = attributes
            .filter(|pair| pair.key == "service.name")
            .map(|pair| format!("{:?}", pair.value));
        told.services.lock().unwrap().extend(service);
        let spans = resource
            .scope_spans
            .into_iter()
            .flat_map(|scope| scope.spans);
        told.spans.lock().unwrap().extend(spans);
    }
    told.heads.lock().unwrap().push(head);
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n",
        )
        .ok()
}

impl Told {
    /// The one span of this name.
    fn span(&self, name: &str) -> Span {
        let spans = self.spans.lock().unwrap();
        let named: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(named.len(), 1, "{name}: {spans:#?}");
        named[0].clone()
    }
}

fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

fn attribute(span: &Span, key: &str) -> String {
    let pair = span.attributes.iter().find(|pair| pair.key == key);
    format!(
        "{:?}",
        pair.unwrap_or_else(|| panic!("{key}: {span:#?}")).value
    )
}

#[test]
fn a_run_is_linked_to_the_push_of_its_job_and_its_command_goes_on_from_there() {
    let (address, told) = collector();
    let place = Place::new();
    let toml = format!(
        "[telemetry]\notlp = \"{address}\"\nservice = \"orders\"\nheaders = {{ x-key = \"k1\" }}\n"
    );
    place.write("backstop.toml", &toml);
    place
        .run(["push", "mail", "1", "--kind", "send", "--id", "a"])
        .succeeded();
    let push = told.span("push mail");
    place
        .run([
            "work",
            "mail",
            "--exec",
            "printf %s \"$TRACEPARENT\" > traceparent",
            "--until-empty",
        ])
        .succeeded();
    let run = told.span("run mail");
    assert_eq!(run.links.len(), 1, "{run:#?}");
    assert_eq!(
        (&run.links[0].trace_id, &run.links[0].span_id),
        (&push.trace_id, &push.span_id)
    );
    assert!(
        run.parent_span_id.is_empty(),
        "a trace of its own: it may be days later"
    );
    let expected = format!("00-{}-{}-01", hex(&run.trace_id), hex(&run.span_id));
    assert_eq!(place.read("traceparent"), expected);
    let id = place.job("a")["id"].as_str().unwrap().to_owned();
    for (key, part) in [
        ("job", id.as_str()),
        ("queue", "mail"),
        ("kind", "send"),
        ("outcome", "done"),
        ("attempt", "1"),
    ] {
        assert!(attribute(&run, key).contains(part), "{key}: {run:#?}");
    }
    assert!(
        told.services
            .lock()
            .unwrap()
            .iter()
            .all(|service| service.contains("orders"))
    );
    let heads = told.heads.lock().unwrap();
    assert!(
        heads
            .iter()
            .all(|head| head.starts_with("POST /v1/traces ") && head.contains("x-key: k1")),
        "{heads:?}"
    );
}

#[test]
fn what_a_command_pushes_belongs_to_its_run() {
    let (address, told) = collector();
    let place = Place::new();
    let toml = format!("[telemetry]\notlp = \"{address}\"\n");
    place.write("backstop.toml", &toml);
    let push = format!("{} push next 1", env!("CARGO_BIN_EXE_backstop"));
    place.run(["push", "mail", "1"]).succeeded();
    place
        .run(["work", "mail", "--exec", &push, "--until-empty"])
        .succeeded();
    let (run, push) = (told.span("run mail"), told.span("push next"));
    assert_eq!(
        (&push.trace_id, &push.parent_span_id),
        (&run.trace_id, &run.span_id)
    );
}

#[test]
fn a_request_goes_on_from_its_caller_and_what_it_pushed_hangs_under_it() {
    const CALLER: (&str, &str) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let (address, told) = collector();
    let place = Place::new();
    let toml = format!(
        "[telemetry]\notlp = \"{address}\"\n[queues.mail]\nhandler = {{ exec = [\"sh\", \"-c\", \"printf %s $TRACEPARENT > traceparent\"] }}\n"
    );
    place.write("backstop.toml", &toml);
    let served = serve(&place, &HERE);
    let traceparent = format!("traceparent: 00-{}-{}-01\r\n", CALLER.0, CALLER.1);
    let (status, text) = served.ask(
        "POST /v1/jobs",
        &traceparent,
        r#"{"queue":"mail","payload":1,"id":"a"}"#,
    );
    assert_eq!(status, 201, "{text}");
    wait_until("the job is done", || served.state("a") == "done");
    // What is left to be exported is sent at the end.
    served.stop();
    let (request, push, run) = (
        told.span("POST /v1/jobs"),
        told.span("push mail"),
        told.span("run mail"),
    );
    assert_eq!(
        (
            hex(&request.trace_id).as_str(),
            hex(&request.parent_span_id).as_str()
        ),
        CALLER
    );
    assert_eq!(request.kind, SpanKind::Server as i32, "{request:#?}");
    assert!(
        attribute(&request, "http.response.status_code").contains("201"),
        "{request:#?}"
    );
    assert!(
        attribute(&request, "http.route").contains("/v1/jobs"),
        "{request:#?}"
    );
    assert_eq!(
        (&push.trace_id, &push.parent_span_id),
        (&request.trace_id, &request.span_id)
    );
    // The run may be days later: a trace of its own, which names the push it hangs under.
    assert_eq!(run.links.len(), 1, "{run:#?}");
    assert_eq!(
        (&run.links[0].trace_id, &run.links[0].span_id),
        (&push.trace_id, &push.span_id)
    );
    assert_eq!(
        place.read("traceparent"),
        format!("00-{}-{}-01", hex(&run.trace_id), hex(&run.span_id))
    );
    // Who brings no place begins a trace, and takes part in nobody else's.
    let looks = told
        .spans
        .lock()
        .unwrap()
        .iter()
        .filter(|span| span.name == "GET /v1/jobs/{id}")
        .cloned()
        .collect::<Vec<_>>();
    assert!(
        !looks.is_empty()
            && looks
                .iter()
                .all(|span| span.parent_span_id.is_empty() && hex(&span.trace_id) != CALLER.0)
    );
}

#[test]
fn a_run_that_failed_says_so() {
    let (address, told) = collector();
    let place = Place::new();
    place.run(["push", "mail", "1"]).succeeded();
    let args = ["work", "mail", "--exec", "exit 65", "--until-empty"];
    let output = place
        .command(args)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", &address)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let run = told.span("run mail");
    assert_eq!(
        run.status.as_ref().map(|status| status.code),
        Some(2),
        "{run:#?}"
    );
    assert!(attribute(&run, "outcome").contains("dead"));
    assert!(run.links.is_empty(), "its push was not exported");
}

#[test]
fn without_an_address_or_switched_off_nothing_is_exported() {
    let (address, told) = collector();
    let place = Place::new();
    let push = |variables: &[(&str, &str)]| {
        let output = place
            .command(["push", "mail", "1"])
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    push(&[]);
    push(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &address),
        ("OTEL_SDK_DISABLED", "true"),
    ]);
    push(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &address),
        ("OTEL_TRACES_EXPORTER", "none"),
    ]);
    assert!(told.heads.lock().unwrap().is_empty());
    push(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &address)]);
    told.span("push mail");
}

#[test]
fn a_collector_that_is_not_there_keeps_no_job_from_being_pushed() {
    let place = Place::new();
    place.write(
        "backstop.toml",
        "[telemetry]\notlp = \"http://127.0.0.1:1\"\n",
    );
    place.run(["push", "mail", "1"]).succeeded();
    assert_eq!(place.count("mail", "ready"), 1);
}
