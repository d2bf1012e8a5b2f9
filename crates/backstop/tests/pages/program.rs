use backstop::{Backstop, Run, RunError, Task};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Welcome {
    email: String,
}

impl Task for Welcome {
    const KIND: &'static str = "welcome";
    const QUEUE: &'static str = "emails";
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backstop = Backstop::open("sqlite:backstop.db").await?;
    backstop.push(&Welcome { email: "ada@example.org".into() }).await?;

    let worker = backstop
        .worker()
        .handle(|task: Welcome, run: Run| async move {
            println!("attempt {} for {}", run.attempt(), task.email);
            Ok::<(), RunError>(())
        })
        .start()?;
    worker.until_ctrl_c().await;
    Ok(())
}
