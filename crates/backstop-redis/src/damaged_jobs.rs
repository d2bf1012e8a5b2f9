//! Jobs whose record cannot be read. They are found by their id in every index, so that they can be
//! deleted.

use crate::context::{StoreContext, readable};
use crate::keys::QueueKey;
use crate::record::{id_of, state_code};
use crate::repair::dissolve_runs;
use crate::reply;
use crate::script::ERASE;
use crate::state_index::part_of;
use backstop_core::port::StoreResult;
use backstop_core::{JobId, JobState, QueueName};
use redis::Value;
use std::collections::BTreeMap;

/// How many entries one step looks at.
const STEP: usize = 1_000;
const ORDER: u8 = b'O';
const UNIQUE: u8 = b'U';

#[derive(Default)]
pub(crate) struct DamagedJobPlaces {
    /// The state of the index it was found in; `None` if it is in no state index.
    pub(crate) state: Option<JobState>,
    /// The letter of each index, and the member in it.
    places: Vec<(u8, Vec<u8>)>,
}

/// Searches every index of a queue for jobs. Only their ids are known, so it looks at all entries.
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
            letter: state_code(state),
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

/// Deletes a job wherever it was found; returns whether it still existed and was still unreadable.
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

/// An index to search for damaged jobs.
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

    /// A member ends with the job id. In the hash of unique keys, the value begins with it.
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
