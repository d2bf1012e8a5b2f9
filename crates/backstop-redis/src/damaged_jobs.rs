//! Jobs whose record cannot be read: found by their id wherever they stand, so that they can be
//! removed.

use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::record::{id_of, state_letter};
use crate::repair::dissolve_runs;
use crate::reply;
use crate::script::ERASE;
use crate::state_index::part_of;
use backstop_core::port::StoreResult;
use backstop_core::{JobId, JobState, QueueName};
use redis::Value;
use std::collections::BTreeMap;

/// Places looked at in one step.
const STEP: usize = 1_000;
const ORDER: u8 = b'O';
const UNIQUE: u8 = b'U';

#[derive(Default)]
pub(crate) struct DamagedJobPlaces {
    /// The state of the line it was found in; `None` if it is in none.
    pub(crate) state: Option<JobState>,
    /// Each a letter, and the member of that line.
    places: Vec<(u8, Vec<u8>)>,
}

/// Looks for jobs in every line of a queue. Nothing but their ids is known, so that all places are
/// looked at.
pub(crate) async fn find(
    base: &StoreContext,
    doing: &'static str,
    queue: &QueueName,
    ids: &[JobId],
) -> StoreResult<BTreeMap<JobId, DamagedJobPlaces>> {
    let mut remains: BTreeMap<JobId, DamagedJobPlaces> = ids
        .iter()
        .map(|id| (*id, DamagedJobPlaces::default()))
        .collect();
    for id in ids {
        let mut command = redis::cmd("HEXISTS");
        command
            .arg(base.keys.part(queue, QueueKey::Leases))
            .arg(&id.as_bytes()[..]);
        if base.link.ask(doing, &command).await? == Value::Int(1) {
            remains.entry(*id).or_default().state = Some(JobState::Running);
        }
    }
    dissolve_runs(base, doing, queue).await?;
    for state in JobState::ALL
        .into_iter()
        .filter(|state| *state != JobState::Running)
    {
        let searched = SearchedKey {
            part: part_of(state),
            letter: state_letter(state),
            state: Some(state),
        };
        searched.search(base, doing, queue, &mut remains).await?;
    }
    let order = SearchedKey {
        part: QueueKey::Order,
        letter: ORDER,
        state: None,
    };
    order.search(base, doing, queue, &mut remains).await?;
    let keys = SearchedKey {
        part: QueueKey::Unique,
        letter: UNIQUE,
        state: None,
    };
    keys.search(base, doing, queue, &mut remains).await?;
    Ok(remains)
}

/// Removes a job from wherever it was found; whether it was still there, and still could not be
/// read.
pub(crate) async fn erase(
    base: &StoreContext,
    doing: &'static str,
    queue: &QueueName,
    id: JobId,
    remains: &DamagedJobPlaces,
) -> StoreResult<bool> {
    let mut call = base.script(&ERASE, queue);
    call.push(id.as_bytes());
    for (letter, what) in &remains.places {
        call.push(&[*letter]);
        call.push(what);
    }
    Ok(base.link.run(doing, &call).await? == Value::Int(1))
}

/// A line that is searched.
struct SearchedKey {
    part: QueueKey,
    letter: u8,
    state: Option<JobState>,
}

impl SearchedKey {
    async fn search(
        &self,
        base: &StoreContext,
        doing: &'static str,
        queue: &QueueName,
        remains: &mut BTreeMap<JobId, DamagedJobPlaces>,
    ) -> StoreResult<()> {
        let mut cursor = "0".to_owned();
        loop {
            let mut scan = redis::cmd(if self.part == QueueKey::Unique {
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
    fn note(&self, member: &[u8], value: &[u8], remains: &mut BTreeMap<JobId, DamagedJobPlaces>) {
        let id = if self.part == QueueKey::Unique {
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
