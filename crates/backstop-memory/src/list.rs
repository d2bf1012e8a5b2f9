//! Lists of jobs, page by page.

use crate::state::{ArrivalNumber, MemoryJob, MemoryState};
use backstop_core::JobState;
use backstop_core::limits::{PAGE_BYTES_MAX, PAGE_MAX};
use backstop_core::port::operator::page_bytes;
use backstop_core::port::{ListJobsRequest, ListJobsResult, ListOrder, StoreError, StoreResult};

impl MemoryState {
    pub(crate) fn page(&self, query: &ListJobsRequest) -> StoreResult<ListJobsResult> {
        let filter = &query.filter;
        let fitting = self
            .jobs
            .iter()
            .filter(|(_, record)| record.matches(filter));
        let mut order: Vec<_> = fitting
            .map(|(arrival, record)| (position(record, *arrival, query), *arrival))
            .collect();
        order.sort();
        let from = match &query.cursor {
            None => 0,
            // Positions are texts that sort as the list does, so the cursor is the position of the
            // last job shown.
            Some(cursor) if is_position(cursor) => {
                order.partition_point(|(position, _)| position <= cursor)
            }
            Some(_) => {
                return Err(StoreError::misuse(
                    "list jobs",
                    "the cursor is not one this store made",
                ));
            }
        };
        let rest = &order[from.min(order.len())..];
        let mut page = ListJobsResult::default();
        let mut bytes = 0;
        for (position, arrival) in rest.iter().take(query.limit.clamp(1, PAGE_MAX)) {
            let job = self.view(*arrival);
            bytes += page_bytes(&job);
            if bytes > PAGE_BYTES_MAX && !page.jobs.is_empty() {
                return Ok(page);
            }
            page.jobs.push(job);
            page.next = (page.jobs.len() < rest.len()).then(|| position.clone());
        }
        Ok(page)
    }
}

fn position(record: &MemoryJob, arrival: ArrivalNumber, query: &ListJobsRequest) -> String {
    let up = |number: i64| format!("{:020}", i128::from(number) - i128::from(i64::MIN));
    let down = |number: i64| format!("{:020}", i128::from(i64::MAX) - i128::from(number));
    match query.filter.state {
        Some(JobState::Scheduled | JobState::Retrying) => {
            format!("p{}{arrival:020}", up(record.run_at.as_micros()))
        }
        // A space sorts before every character of a queue name, so that the jobs are sorted by
        // queue.
        Some(JobState::Ready) => format!(
            "p{} {}{:020}",
            record.queue,
            record.priority.level(),
            record.seq
        ),
        Some(JobState::Done | JobState::Dead | JobState::Cancelled) => {
            let at = record.finished_at.unwrap_or_default().as_micros();
            match query.order {
                ListOrder::Newest => format!("p{}{:020}", down(at), u64::MAX - arrival),
                ListOrder::Oldest => format!("p{}{arrival:020}", up(at)),
            }
        }
        Some(JobState::Running) | None => format!("p{:020}", u64::MAX - arrival),
    }
}

fn is_position(cursor: &str) -> bool {
    cursor.len() > 20 && cursor.starts_with('p')
}
