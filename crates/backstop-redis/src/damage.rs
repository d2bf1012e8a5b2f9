//! Jobs whose record cannot be read: found by their id wherever they stand, so that they can be
//! removed.

use crate::base::{Base, readable};
use crate::keys::Part;
use crate::lines::part_of;
use crate::record::{id_of, state_letter};
use crate::repair::dissolve_runs;
use crate::reply;
use crate::script::ERASE;
use backstop_core::port::Answer;
use backstop_core::{JobId, QueueName, State};
use redis::Value;
use std::collections::BTreeMap;

/// Places looked at in one step.
const STEP: usize = 1_000;
const ORDER: u8 = b'O';
const UNIQUE: u8 = b'U';

/// Where a job stands.
#[derive(Default)]
pub(crate) struct Remains {
    /// The state of the line it was found in; `None` if it is in none.
    pub(crate) state: Option<State>,
    /// Each a letter, and the member of that line.
    places: Vec<(u8, Vec<u8>)>,
}

/// Looks for jobs in every line of a queue. Nothing but their ids is known, so that all places are
/// looked at.
pub(crate) async fn find(
    base: &Base,
    doing: &'static str,
    queue: &QueueName,
    ids: &[JobId],
) -> Answer<BTreeMap<JobId, Remains>> {
    let mut remains: BTreeMap<JobId, Remains> =
        ids.iter().map(|id| (*id, Remains::default())).collect();
    for id in ids {
        let mut command = redis::cmd("HEXISTS");
        command
            .arg(base.keys.part(queue, Part::Leases))
            .arg(&id.as_bytes()[..]);
        if base.link.ask(doing, &command).await? == Value::Int(1) {
            remains.entry(*id).or_default().state = Some(State::Running);
        }
    }
    dissolve_runs(base, doing, queue).await?;
    for state in State::ALL
        .into_iter()
        .filter(|state| *state != State::Running)
    {
        let line = Line {
            part: part_of(state),
            letter: state_letter(state),
            state: Some(state),
        };
        line.search(base, doing, queue, &mut remains).await?;
    }
    let order = Line {
        part: Part::Order,
        letter: ORDER,
        state: None,
    };
    order.search(base, doing, queue, &mut remains).await?;
    let keys = Line {
        part: Part::Unique,
        letter: UNIQUE,
        state: None,
    };
    keys.search(base, doing, queue, &mut remains).await?;
    Ok(remains)
}

/// Removes a job from wherever it was found; whether it was still there, and still could not be
/// read.
pub(crate) async fn erase(
    base: &Base,
    doing: &'static str,
    queue: &QueueName,
    id: JobId,
    remains: &Remains,
) -> Answer<bool> {
    let mut call = base.script(&ERASE, queue);
    call.push(id.as_bytes());
    for (letter, what) in &remains.places {
        call.push(&[*letter]);
        call.push(what);
    }
    Ok(base.link.run(doing, &call).await? == Value::Int(1))
}

/// A line that is searched.
struct Line {
    part: Part,
    letter: u8,
    state: Option<State>,
}

impl Line {
    async fn search(
        &self,
        base: &Base,
        doing: &'static str,
        queue: &QueueName,
        remains: &mut BTreeMap<JobId, Remains>,
    ) -> Answer<()> {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd(if self.part == Part::Unique {
                "HSCAN"
            } else {
                "ZSCAN"
            });
            scan.arg(base.keys.part(queue, self.part))
                .arg(&cursor)
                .arg("COUNT")
                .arg(STEP);
            let (next, found) =
                readable(doing, reply::scanned(base.link.ask(doing, &scan).await?))?;
            for pair in found.chunks_exact(2) {
                self.note(&pair[0], &pair[1], remains);
            }
            cursor = next;
            if cursor == "0" {
                return Ok(());
            }
        }
    }

    /// A member ends with its id; of a unique key it is the holder that begins with one.
    fn note(&self, member: &[u8], value: &[u8], remains: &mut BTreeMap<JobId, Remains>) {
        let id = if self.part == Part::Unique {
            value.get(..16)
        } else {
            member.last_chunk().map(|id: &[u8; 16]| &id[..])
        };
        let Some(remains) = id.and_then(id_of).and_then(|id| remains.get_mut(&id)) else {
            return;
        };
        remains.places.push((self.letter, member.to_vec()));
        remains.state = remains.state.or(self.state);
    }
}
