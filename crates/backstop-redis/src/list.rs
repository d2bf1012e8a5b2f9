//! Lists, page by page. A page walks the line that has its order, looks at no more than
//! [`SCAN_MAX`] places and for no longer than about [`LOOK_FOR`], and continues after the last
//! place it looked at.

mod cursor;

use crate::base::Base;
use crate::keys::Part;
use crate::lines::{Direction, Found, Line, Lines, Spot, part_of};
use crate::record::fingerprint_bytes;
use crate::view::{Seen, View, look_at, views_at};
use backstop_core::amend::Filter;
use backstop_core::limits::{LOOK_FOR, PAGE_BYTES_MAX, PAGE_MAX, SCAN_MAX};
use backstop_core::port::operator::page_bytes;
use backstop_core::port::{Answer, Order, Page, PageQuery};
use backstop_core::{Job, QueueName, State};
pub(crate) use cursor::{Place, from_hex, to_hex};
use std::time::Duration;
use tokio::time::Instant;

const DOING: &str = "listing jobs";
/// Jobs read at once: their payloads may be large, and a page ends soon then.
const WHOLE_AT_ONCE: usize = 16;

/// A page of jobs.
pub(crate) async fn page(base: &Base, query: &PageQuery) -> Answer<Page> {
    let after = Place::of(query)?;
    let queues = queues(base, DOING, &query.filter).await?;
    let mut walk = Walk {
        base,
        filter: &query.filter,
        queues: &queues,
        limit: query.limit.clamp(1, PAGE_MAX),
        until: Instant::now() + Duration::from(LOOK_FOR),
        looked: 0,
        found: Vec::new(),
        last: after.clone(),
        next: None,
    };
    walk.through(query.order).await?;
    let mut page = Page {
        next: walk.next.map(|place| place.to_string()),
        ..Page::default()
    };
    let (mut bytes, mut last) = (0, None);
    for slice in walk.found.chunks(WHOLE_AT_ONCE) {
        let spots: Vec<Spot> = slice.iter().map(|(spot, _)| *spot).collect();
        let views = views_at(base, DOING, &queues, &spots).await?;
        let mut places = slice.iter();
        for view in views {
            match view {
                View::Whole(job) => {
                    bytes += page_bytes(&job);
                    if bytes > PAGE_BYTES_MAX && last.is_some() {
                        page.next = last.map(|place: &Place| place.to_string());
                        return Ok(page);
                    }
                    // Those that are gone were left out.
                    last = places
                        .find(|(spot, _)| spot.id == job.id)
                        .map(|(_, place)| place)
                        .or(last);
                    // A job may have moved on since its place was seen.
                    page.jobs
                        .extend(is_still_meant(&query.filter, &job).then_some(*job));
                }
                View::Damaged(damaged) => page.damaged.push(damaged),
            }
        }
    }
    Ok(page)
}

fn is_still_meant(filter: &Filter, job: &Job) -> bool {
    // What it died of was told by the line it stood in.
    let fingerprint = filter.fingerprint.filter(|_| job.state == State::Dead);
    filter.fits(&job.queue, &job.kind, job.state, fingerprint)
}

/// All queues the filter lets through, by name.
pub(crate) async fn queues(
    base: &Base,
    doing: &'static str,
    filter: &Filter,
) -> Answer<Vec<QueueName>> {
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
    /// No look begins after this.
    until: Instant,
    looked: usize,
    found: Vec<(Spot, Place)>,
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
        if self.filter.kind.is_some() {
            FILTERED_AT_ONCE
        } else {
            self.limit + 1
        }
    }

    /// The line that has the order of the list.
    async fn through(&mut self, order: Order) -> Answer<()> {
        let ended = if order == Order::Oldest {
            Direction::Forward
        } else {
            Direction::Backward
        };
        let fingerprint = self.filter.fingerprint.map(fingerprint_bytes);
        match (self.filter.state, fingerprint) {
            (Some(State::Dead), Some(prefix)) => {
                self.line(
                    Line {
                        part: Part::Groups,
                        prefix: &prefix,
                    },
                    ended,
                )
                .await
            }
            (None, Some(_)) => self.picked(State::Dead).await,
            // No other job has a fingerprint.
            (Some(_), Some(_)) => Ok(()),
            (Some(State::Ready), None) => self.ready().await,
            (Some(State::Running), None) => self.picked(State::Running).await,
            (Some(state @ (State::Scheduled | State::Retrying)), None) => {
                self.line(Line::of(part_of(state)), Direction::Forward)
                    .await
            }
            (Some(state @ (State::Done | State::Dead | State::Cancelled)), None) => {
                self.line(Line::of(part_of(state)), ended).await
            }
            (None, None) => self.line(Line::of(Part::Order), Direction::Backward).await,
        }
    }

    /// A line whose members sort as the list does, over all queues.
    async fn line(&mut self, line: Line<'_>, direction: Direction) -> Answer<()> {
        let lines = Lines {
            base: self.base,
            doing: DOING,
            queues: self.queues,
        };
        loop {
            let after = self.last.as_ref().and_then(Place::member);
            let found = lines.next(line, direction, after, self.at_once()).await?;
            if found.is_empty()
                || self
                    .look(found, |found| Place::Member(found.member.clone()))
                    .await?
                    == Step::Full
            {
                return Ok(());
            }
        }
    }

    /// Ready jobs in claim order, queue by queue.
    async fn ready(&mut self) -> Answer<()> {
        let lines = Lines {
            base: self.base,
            doing: DOING,
            queues: self.queues,
        };
        for (at, queue) in self.queues.iter().enumerate() {
            loop {
                let after = match &self.last {
                    Some(Place::Line { queue: reached, .. })
                        if queue.as_str() < reached.as_str() =>
                    {
                        break;
                    }
                    Some(Place::Line {
                        queue: reached,
                        place,
                        member,
                    }) if queue.as_str() == reached => Some((*place, member.clone())),
                    _ => None,
                };
                let found = lines.next_ready(at, after, self.at_once()).await?;
                let place = |found: &Found| Place::Line {
                    queue: queue.to_string(),
                    place: found.place,
                    member: found.member.clone(),
                };
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

    /// Jobs of a state, newest first by arrival. No line has that order: they are read whole, or
    /// picked out of all jobs where that would be too much.
    async fn picked(&mut self, state: State) -> Answer<()> {
        let lines = Lines {
            base: self.base,
            doing: DOING,
            queues: self.queues,
        };
        let Some(mut found) = lines.whole(&[state], SCAN_MAX).await? else {
            return self.line(Line::of(Part::Order), Direction::Backward).await;
        };
        found.sort_unstable_by(|a, b| b.member.cmp(&a.member));
        if let Some(after) = self.last.as_ref().and_then(Place::member) {
            found.retain(|found| &found.member[..] < after);
        }
        self.look(found, |found| Place::Member(found.member.clone()))
            .await
            .map(drop)
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
                let place = place(found);
                self.found.extend(fits.then(|| (found.spot, place.clone())));
                self.last = Some(place);
            }
            // After a whole look: each page gets on by one at least.
            if slice.len() == FILTERED_AT_ONCE && Instant::now() >= self.until {
                self.next.clone_from(&self.last);
                return Ok(Step::Full);
            }
        }
        Ok(Step::On)
    }

    /// Which of these fit, where their line does not tell. What cannot be read fits where nobody
    /// has to look into it.
    async fn fitting(&self, found: &[Found]) -> Answer<Vec<bool>> {
        let is_picked = match self.filter.state {
            Some(state) => state == State::Running,
            None => self.filter.fingerprint.is_some(),
        };
        if self.filter.kind.is_none() && !is_picked {
            return Ok(vec![true; found.len()]);
        }
        let spots: Vec<Spot> = found.iter().map(|found| found.spot).collect();
        let seen = look_at(self.base, DOING, self.queues, &spots).await?;
        let fits = |(spot, seen): (&Spot, Option<Seen>)| {
            seen.is_some_and(|seen| seen.fits(self.filter, &self.queues[spot.queue]))
        };
        Ok(spots.iter().zip(seen).map(fits).collect())
    }
}
