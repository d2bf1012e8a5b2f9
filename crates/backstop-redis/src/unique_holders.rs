//! Finds the holders of unique keys.

use crate::context::{StoreContext, readable};
use crate::record::{id_of, state_of};
use crate::reply;
use crate::script::HOLDERS;
use backstop_core::port::{StoreResult, UniqueKeyHolder};
use backstop_core::unique::UniqueKey;
use backstop_core::{QueueName, Time};

const DOING: &str = "looking for holders";
const ID_BYTES: usize = 16;

/// The holders of these keys of a queue, in their order.
pub(crate) async fn holders(
    base: &StoreContext,
    queue: &QueueName,
    keys: &[UniqueKey],
    now: Time,
) -> StoreResult<Vec<Option<UniqueKeyHolder>>> {
    let mut call = base.script(&HOLDERS, queue).arg(now.as_micros());
    for key in keys {
        call.push(key.as_str().as_bytes());
    }
    let answers = readable(DOING, reply::all_bytes(base.link.run(DOING, &call).await?))?;
    let held = |answer: &Vec<u8>| match answer.as_slice() {
        [] => Ok(None),
        answer => readable(DOING, holder(answer)).map(Some),
    };
    answers.iter().map(held).collect()
}

/// Decodes a reply of the script; `None` if it cannot be read.
fn holder(answer: &[u8]) -> Option<UniqueKeyHolder> {
    let (id, state) = answer.split_at_checked(ID_BYTES)?;
    let state = state.first().and_then(|letter| state_of(*letter));
    Some(UniqueKeyHolder {
        job: id_of(id)?,
        state,
    })
}
