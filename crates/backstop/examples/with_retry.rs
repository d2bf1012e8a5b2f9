//! An operation in this process, with retries and a dead letter: `cargo run -p backstop --example
//! with_retry`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use backstop::{Backstop, GivenUpData, RetryPolicy, RunError, Span};
use serde::Serialize;

#[derive(Serialize)]
struct Image {
    camera: &'static str,
    file: &'static str,
}

/// Stands for a client of a detection service.
async fn detect(image: &Image, attempt: u32) -> Result<u32, RunError> {
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    match (image.camera, attempt) {
        ("front", 1) => Err(RunError::retry_after(
            Span::millis(200),
            "the model is loading",
        )),
        ("front", _) => Ok(2),
        ("cellar", _) => Err(std::io::Error::other("connection refused"))?,
        _ => Err(RunError::dead(format!(
            "there is no camera {}",
            image.camera
        ))),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backstop = Backstop::open("memory:").await?;
    let policy =
        RetryPolicy::from_json(br#"{"kind":"exponential","base":"100ms","max_attempts":4}"#)?;
    for camera in ["front", "cellar", "roof"] {
        let image = Image {
            camera,
            file: "2026-01-01.jpg",
        };
        let operation = backstop
            .with_retry("detection_queue", &image)
            .kind("Detect")
            .policy(policy.clone());
        let retried = operation.run(|attempt| detect(&image, attempt)).await?;
        match retried.outcome {
            Ok(persons) => println!("{camera}: {persons} persons, attempt {}", retried.attempts),
            Err(given_up) => match &given_up.data {
                // Nothing is lost: it can be listed, requeued, exported.
                GivenUpData::Buried(id) => {
                    println!("{camera}: dead letter {id}, attempt {}", retried.attempts);
                }
                _ => println!("{camera}: {given_up}"),
            },
        }
    }
    Ok(())
}
