//! A worker process: batches come in on one side, answers go out on the other, until no more come.

use super::message::{Answer, Batch};
use crate::consumer::Consumer;
use crate::limits::BATCHES_IN_FLIGHT_MAX;
use crate::mode::Setup;
use crate::world::Arrival;
use anyhow::{Context, Result};
use std::io::{BufRead, Write};
use std::sync::mpsc::{Receiver, sync_channel};
use std::{io, thread};

/// Works until the input ends.
pub fn work(setup: &Setup, output: &mut impl Write) -> Result<()> {
    let directory = setup.directory()?;
    let mut consumer = Consumer::new(
        setup.memory()?,
        directory.clone(),
        setup.sequencer(directory)?,
    );
    for line in read_ahead() {
        let batch: Batch = serde_json::from_str(&line?).context("a batch that is none")?;
        let bytes = batch
            .arrivals
            .iter()
            .map(|line| Ok(Arrival::from_line(line.get())?.bytes));
        let taken = consumer.take(bytes.collect::<Result<_>>()?, setup.clock.now_ms())?;
        let broken = taken
            .broken
            .iter()
            .map(|(_, broken)| broken.to_string())
            .collect();
        say(
            output,
            &Answer::Taken {
                batch: batch.batch,
                counts: taken.counts,
                broken,
            },
        )?;
    }
    consumer.drain()?;
    say(
        output,
        &Answer::Finished {
            hold: consumer.finish()?,
        },
    )
}

/// Reads while there is work, so that whoever writes never waits for it.
fn read_ahead() -> Receiver<io::Result<String>> {
    let (sender, receiver) = sync_channel(BATCHES_IN_FLIGHT_MAX);
    thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

fn say(output: &mut impl Write, answer: &Answer) -> Result<()> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    output.write_all(line.as_bytes())?;
    Ok(output.flush()?)
}
