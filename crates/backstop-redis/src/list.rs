//! Lists, page by page. A page walks the line that has its order, looks at no more than [`SCAN_MAX`] places, and
//! continues after the last place it looked at.

mod cursor;

use crate::base::Base;
use crate::keys::Part;
use crate::lines::{Direction, Found, Lines, Spot};
use crate::view::{jobs_at, look_at};
use backstop_core::amend::Filter;
use backstop_core::limits::{PAGE_MAX, SCAN_MAX};
use backstop_core::port::{Answer, Page, PageQuery};
use backstop_core::{QueueName, State};
pub(crate) use cursor::{Place, from_hex, to_hex};

const DOING: &str = "listing jobs";

/// A page of jobs.
pub(crate) async fn page(base: &Base, query: &PageQuery) -> Answer<Page> {
    let after = Place::of(query)?;
    let queues = queues(base, DOING, &query.filter).await?;
    let mut walk = Walk {
        base,
        filter: &query.filter,
        queues: &queues,
        limit: query.limit.clamp(1, PAGE_MAX),
        looked: 0,
        found: Vec::new(),
        last: after.clone(),
        next: None,
    };
    match query.filter.state {
        Some(State::Scheduled) => walk.line(Part::Scheduled, Direction::Forward).await?,
        Some(State::Retrying) => walk.line(Part::Retrying, Direction::Forward).await?,
        Some(State::Ready) => walk.ready().await?,
        Some(State::Done) => walk.line(Part::Done, Direction::Backward).await?,
        Some(State::Dead) => walk.line(Part::Dead, Direction::Backward).await?,
        Some(State::Cancelled) => walk.line(Part::Cancelled, Direction::Backward).await?,
        Some(State::Running) => walk.running().await?,
        None => walk.line(Part::Order, Direction::Backward).await?,
    }
    let next = walk.next.map(|place| place.to_string());
    let mut jobs = jobs_at(base, DOING, &queues, &walk.found).await?;
    // A job may have moved on since its place was seen.
    jobs.retain(|job| query.filter.fits(&job.queue, &job.kind, job.state));
    Ok(Page { jobs, next })
}

/// All queues the filter lets through, by name.
pub(crate) async fn queues(base: &Base, doing: &'static str, filter: &Filter) -> Answer<Vec<QueueName>> {
    match &filter.queue {
        Some(queue) => Ok(vec![queue.clone()]),
        None => base.queues(doing).await,
    }
}

/// What a page has seen so far.
struct Walk<'a> {
    base: &'a Base,
    filter: &'a Filter,
    queues: &'a [QueueName],
    limit: usize,
    looked: usize,
    found: Vec<Spot>,
    /// The place looked at last.
    last: Option<Place>,
    /// Where the next page starts, once it is clear that there is one.
    next: Option<Place>,
}

/// Whether a page is complete.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    On,
    Full,
}

/// Places read at once where a filter may pass most of them over.
const FILTERED_AT_ONCE: usize = 1_000;

impl Walk<'_> {
    /// Places to read at once: one more than a page shows, unless a filter picks among them.
    fn at_once(&self) -> usize {
        if self.filter.kind.is_some() { FILTERED_AT_ONCE } else { self.limit + 1 }
    }

    /// A line whose members sort as the list does, over all queues.
    async fn line(&mut self, part: Part, direction: Direction) -> Answer<()> {
        let lines = Lines { base: self.base, doing: DOING, queues: self.queues };
        loop {
            let after = self.last.as_ref().and_then(Place::member);
            let found = lines.next(part, direction, after, self.at_once()).await?;
            if found.is_empty()
                || self.look(found, |found| Place::Member(found.member.clone())).await? == Step::Full
            {
                return Ok(());
            }
        }
    }

    /// Ready jobs in claim order, queue by queue.
    async fn ready(&mut self) -> Answer<()> {
        let lines = Lines { base: self.base, doing: DOING, queues: self.queues };
        for (at, queue) in self.queues.iter().enumerate() {
            loop {
                let after = match &self.last {
                    Some(Place::Line { queue: reached, .. }) if queue.as_str() < reached.as_str() => break,
                    Some(Place::Line { queue: reached, place }) if queue.as_str() == reached => Some(*place),
                    _ => None,
                };
                let found = lines.next_ready(at, after, self.at_once()).await?;
                let place = |found: &Found| Place::Line { queue: queue.to_string(), place: found.place };
                if found.is_empty() {
                    break;
                }
                if self.look(found, place).await? == Step::Full {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Running jobs, newest first. No line has that order: what runs is read whole, or picked out of all jobs where
    /// that would be too much.
    async fn running(&mut self) -> Answer<()> {
        let lines = Lines { base: self.base, doing: DOING, queues: self.queues };
        let Some(mut found) = lines.whole(&[State::Running], SCAN_MAX).await? else {
            return self.line(Part::Order, Direction::Backward).await;
        };
        found.sort_unstable_by(|a, b| b.member.cmp(&a.member));
        if let Some(after) = self.last.as_ref().and_then(Place::member) {
            found.retain(|found| &found.member[..] < after);
        }
        self.look(found, |found| Place::Member(found.member.clone())).await.map(drop)
    }

    /// Looks at places, in their order.
    async fn look(&mut self, found: Vec<Found>, place: impl Fn(&Found) -> Place) -> Answer<Step> {
        for slice in found.chunks(FILTERED_AT_ONCE) {
            let fitting = self.fitting(slice).await?;
            for (found, fits) in slice.iter().zip(fitting) {
                if self.looked == SCAN_MAX || (fits && self.found.len() == self.limit) {
                    self.next.clone_from(&self.last);
                    return Ok(Step::Full);
                }
                self.looked += 1;
                self.last = Some(place(found));
                self.found.extend(fits.then_some(found.spot));
            }
        }
        Ok(Step::On)
    }

    /// Which of these fit. Without a kind to look for, only running jobs are not told by their line.
    async fn fitting(&self, found: &[Found]) -> Answer<Vec<bool>> {
        if self.filter.kind.is_none() && self.filter.state != Some(State::Running) {
            return Ok(vec![true; found.len()]);
        }
        let spots: Vec<Spot> = found.iter().map(|found| found.spot).collect();
        let seen = look_at(self.base, DOING, self.queues, &spots).await?;
        let fits = |(spot, seen): (&Spot, Option<(State, backstop_core::Kind)>)| {
            seen.is_some_and(|(state, kind)| self.filter.fits(&self.queues[spot.queue], &kind, state))
        };
        Ok(spots.iter().zip(seen).map(fits).collect())
    }
}
