//! Doing something to jobs: first how many, then whether, then it.

use super::filter::JobFilter;
use super::{FilterChip, short};
use crate::bulk::{BulkActions, BulkPlan, BulkTarget, JobCount, count_target};
use crate::pages::job_ref::{JobRef, by_queue};
use crate::pages::link::PageLink;
use crate::pages::{FlashMessage, PageFailure, PageFrame, PageSection, PageView, PostedForm, text};
use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use backstop::operate::ChangedJobs;
use backstop_core::JobId;
use backstop_core::amend::{AmendAction, AmendRefusal, Selection};
use backstop_core::port::StoreResult;

#[derive(Template)]
#[template(path = "confirm.html")]
#[expect(clippy::struct_excessive_bools, reason = "what a template asks")]
struct JobConfirmPage {
    frame: PageFrame,
    verb: &'static str,
    is_danger: bool,
    consequence: &'static str,
    count: Option<String>,
    is_exact: bool,
    ids: Vec<(String, String)>,
    chips: Vec<FilterChip>,
    is_all: bool,
    must_type: bool,
    act: String,
    fields: Vec<(String, String)>,
    back: String,
    back_word: &'static str,
}

/// What is asked of jobs.
pub(in crate::pages) fn action(
    view: &PageView,
    word: Option<&str>,
) -> Result<AmendAction, PageFailure> {
    match word {
        Some("retry") => Ok(AmendAction::Retry),
        Some("cancel") => Ok(AmendAction::Cancel),
        Some("delete") => Ok(AmendAction::Delete),
        _ => Err(view.bad("Jobs can be retried, cancelled and deleted; say which.")),
    }
}

/// Its word in the address, what it does in a sentence, and whether it cannot be undone.
pub(in crate::pages) const fn describe_action(
    action: &AmendAction,
) -> (&'static str, &'static str, bool) {
    match action {
        AmendAction::Retry => (
            "retry",
            "Waiting jobs run at once; dead and cancelled ones get all their attempts again. Running, ready and done ones are left alone.",
            false,
        ),
        AmendAction::Cancel => (
            "cancel",
            "They do not run any more; workers that run one are told to stop. A cancelled job can be retried.",
            true,
        ),
        AmendAction::Delete => (
            "delete",
            "They are removed with their history and cannot be brought back. Running ones are left alone.",
            true,
        ),
        AmendAction::Move(_) => (
            "move",
            "They run in the other queue, with all attempts again.",
            false,
        ),
    }
}

/// What is about to happen, and to how many.
pub(super) async fn confirm(view: PageView) -> Result<Response, PageFailure> {
    let action = action(&view, view.query("action"))?;
    let (verb, consequence, is_danger) = describe_action(&action);
    let filter = JobFilter::of(&view)?;
    let picks = JobRef::all(&view, view.query_all("id"))?;
    let is_matching = view.query("all").is_some();
    let back = filter.link(&view);
    if picks.is_empty() && !is_matching {
        let note = FlashMessage::refused(
            "Nothing was selected: tick the boxes of some jobs, or choose all that match.",
        );
        return Ok(note.redirect(view.app().base(), &back.to_string()));
    }
    let count = if is_matching {
        view.ask(count_target(
            view.app(),
            &BulkTarget::jobs(&filter.search(), &action),
        ))
        .await?
    } else {
        JobCount::Exactly(picks.len() as u64)
    };
    let fields = confirm_fields(verb, &filter.on(String::new()), &picks, is_matching);
    let page = JobConfirmPage {
        frame: view.frame(PageSection::Jobs, format!("{} jobs?", capital(verb))),
        verb,
        is_danger,
        consequence,
        is_exact: count.exact().is_some(),
        count: describe_count(count),
        ids: picks
            .iter()
            .map(|pick| (short(pick.id), pick.link(&view, "/jobs").to_string()))
            .collect(),
        chips: if is_matching {
            filter.chips(&back)
        } else {
            Vec::new()
        },
        is_all: is_matching && filter == JobFilter::default(),
        must_type: is_matching && action == AmendAction::Delete,
        act: view.at("/jobs/act"),
        fields,
        back: back.to_string(),
        back_word: "Back to the list",
    };
    view.show(&page)
}

/// How many there are, where something was found out.
pub(in crate::pages) fn describe_count(counted: JobCount) -> Option<String> {
    (counted != JobCount::AtLeast(0)).then(|| counted.to_string())
}

/// What the confirmation hands on.
pub(in crate::pages) fn confirm_fields(
    verb: &str,
    filter: &PageLink,
    picks: &[JobRef],
    is_matching: bool,
) -> Vec<(String, String)> {
    let mut fields = vec![("action".to_owned(), verb.to_owned())];
    fields.extend(filter.pairs().iter().cloned());
    if is_matching {
        fields.push(("all".to_owned(), "matching".to_owned()));
    } else {
        fields.extend(picks.iter().map(|pick| ("id".to_owned(), pick.to_string())));
    }
    fields
}

/// Does it: to those that were picked at once, to all that match in the background.
pub(super) async fn act(view: PageView, posted: PostedForm) -> Result<Response, PageFailure> {
    let action = action(&view, posted.get("action"))?;
    let filter = JobFilter::posted(&view, &posted)?;
    let back = match posted.get("back") {
        Some("job") => JobRef::read(posted.get("id").unwrap_or_default()).link(&view, "/jobs"),
        _ => filter.link(&view),
    };
    if posted.get("all").is_some() {
        if !is_confirmed(&posted, &action) {
            return Ok(back_to_confirm(
                &view,
                &posted,
                filter.on(view.at("/jobs/confirm")),
            ));
        }
        let target = BulkTarget::jobs(&filter.search(), &action);
        return start(&view, &posted, target, &back).await;
    }
    let picks = JobRef::all(&view, posted.all("id"))?;
    if picks.is_empty() {
        return Ok(FlashMessage::refused("Nothing was selected.")
            .redirect(view.app().base(), &back.to_string()));
    }
    let selection = |(queue, ids)| match queue {
        Some(queue) => Selection::Within(queue, ids),
        None => Selection::Ids(ids),
    };
    let selections: Vec<Selection> = by_queue(&picks).into_iter().map(selection).collect();
    let mut changed = ChangedJobs::default();
    let done = view
        .changes(&posted)?
        .amend_each(&selections, &action, &mut changed)
        .await;
    let outcome = JobActionOutcome::of(&view, done, changed.count, changed.refused, 0)?;
    let is_gone = matches!(action, AmendAction::Delete)
        && posted.get("back") == Some("job")
        && outcome.count > 0;
    let back = if is_gone { filter.link(&view) } else { back };
    Ok(outcome
        .note(&action)
        .redirect(view.app().base(), &back.to_string()))
}

/// Whether all that match may be changed: to remove them, whoever asks has typed the word. One
/// click too many is no word.
pub(in crate::pages) fn is_confirmed(posted: &PostedForm, action: &AmendAction) -> bool {
    *action != AmendAction::Delete || posted.get("typed") == Some(describe_action(action).0)
}

/// Back to the question, which names what it is about.
pub(in crate::pages) fn back_to_confirm(
    view: &PageView,
    posted: &PostedForm,
    question: PageLink,
) -> Response {
    let note = FlashMessage::refused(
        "Nothing was deleted: to delete all that match, type the word delete.",
    );
    let question = question.with("action", "delete").with("all", "matching");
    note.redirect(
        view.app().base(),
        &question
            .with_some("reason", posted.get("reason"))
            .to_string(),
    )
}

/// Starts a run in the background, and shows it.
pub(in crate::pages) async fn start(
    view: &PageView,
    posted: &PostedForm,
    target: BulkTarget,
    back: &PageLink,
) -> Result<Response, PageFailure> {
    let bulk = BulkActions::new(view.app(), view.who()).because(posted.reason(view)?);
    let Some(place) = bulk.enter() else {
        let note = FlashMessage::refused(
            "As many bulk actions are under way as this server takes, or takes from one person; \
             nothing was changed. Wait for one to end.",
        );
        return Ok(note.redirect(view.app().base(), &back.to_string()));
    };
    let expected = view.ask(count_target(view.app(), &target)).await?.exact();
    let plan = BulkPlan {
        target,
        expected,
        back: back.to_string(),
    };
    let id = view.ask(bulk.start_in(place, plan)).await?;
    Ok(redirect_to(&view.at(&format!("/jobs/runs/{id}"))))
}

pub(in crate::pages) fn redirect_to(address: &str) -> Response {
    use axum::response::IntoResponse;
    let location = [(axum::http::header::LOCATION, address.to_owned())];
    (StatusCode::SEE_OTHER, location).into_response()
}

/// What became of those that were picked.
pub(in crate::pages) struct JobActionOutcome {
    pub(in crate::pages) count: u64,
    refused: Vec<(JobId, AmendRefusal)>,
    /// How many more were refused than are listed.
    more_refused: u64,
    /// What the store said where it failed in the middle.
    broke_off: Option<String>,
}

impl JobActionOutcome {
    /// What was done, and how it ended. A store that fails before anything was done has a page of
    /// its own.
    pub(in crate::pages) fn of(
        view: &PageView,
        done: StoreResult<()>,
        count: u64,
        refused: Vec<(JobId, AmendRefusal)>,
        more_refused: u64,
    ) -> Result<Self, PageFailure> {
        match done {
            Err(error) if count == 0 => Err(view.store_failed(error)),
            done => Ok(Self {
                count,
                refused,
                more_refused,
                broke_off: done.err().map(|error| error.to_string()),
            }),
        }
    }

    /// What was done, in a sentence; what was refused, and why.
    pub(in crate::pages) fn note(&self, action: &AmendAction) -> FlashMessage {
        let done = match action {
            AmendAction::Retry => "ready to run now",
            AmendAction::Cancel => "cancelled",
            AmendAction::Delete => "deleted",
            AmendAction::Move(_) => "moved",
        };
        let jobs = text::many(self.count, "job is", "jobs are");
        if let Some(error) = &self.broke_off {
            return FlashMessage::refused(format!(
                "{jobs} {done}, then the store failed: {error}. Look at the others and go on with those."
            ));
        }
        let Some((id, why)) = self.refused.first() else {
            return FlashMessage::done(format!("{jobs} {done}."));
        };
        let left = text::many(self.refused.len() as u64 + self.more_refused, "was", "were");
        let advice = advice(*why);
        FlashMessage::refused(format!(
            "{jobs} {done}; {left} left alone. The first, {id}: {why}. {advice}"
        ))
    }
}

/// What to do about a refusal.
const fn advice(refusal: AmendRefusal) -> &'static str {
    match refusal {
        AmendRefusal::UniqueKeyHeld(_) => "Let that one end, or cancel it, and try again.",
        AmendRefusal::Full => "Raise max_size, or try again when there is room.",
        AmendRefusal::Running => "Cancel it, then try again.",
        AmendRefusal::NotFound | AmendRefusal::Done | AmendRefusal::Ready | AmendRefusal::Ended => {
            "Nothing needs to be done."
        }
        AmendRefusal::Ambiguous => "Open it by its id and choose the queue.",
        AmendRefusal::Alive | AmendRefusal::OtherState(_) => "Look at it again before you go on.",
    }
}

pub(in crate::pages) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| {
        first.to_uppercase().chain(letters).collect()
    })
}
