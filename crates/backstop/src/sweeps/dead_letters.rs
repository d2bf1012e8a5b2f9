//! Which keys have a dead letter.

use crate::client::Backstop;
use backstop_core::amend::Filter;
use backstop_core::port::{ListJobsRequest, ListOrder, StoreResult};
use backstop_core::unique::UniqueKey;
use backstop_core::{JobState, QueueName};
use std::collections::BTreeSet;

/// Letters of one page: their payloads come with them.
const PAGE: usize = 100;

/// Those of `keys` that a dead letter of the queue has. A dead job holds no key, so all letters are
/// looked at, a page at a time: as many as the queue's bound, for as long as a run may take. To
/// stop at fewer would end recovery just when much goes wrong.
pub(super) async fn keys_with_dead_letters(
    backstop: &Backstop,
    queue: &QueueName,
    keys: &BTreeSet<&UniqueKey>,
) -> StoreResult<BTreeSet<UniqueKey>> {
    let (mut dead, mut cursor) = (BTreeSet::new(), None);
    while dead.len() < keys.len() {
        let filter = Filter {
            queue: Some(queue.clone()),
            state: Some(JobState::Dead),
            ..Filter::default()
        };
        let query = ListJobsRequest {
            filter,
            cursor,
            limit: PAGE,
            order: ListOrder::Newest,
        };
        let page = backstop.store().jobs(query, backstop.now()).await?;
        dead.extend(
            page.jobs
                .into_iter()
                .filter_map(|job| job.unique_key)
                .filter(|key| keys.contains(key)),
        );
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    Ok(dead)
}
