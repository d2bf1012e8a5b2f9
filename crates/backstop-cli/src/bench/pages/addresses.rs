//! Every address there is to ask: the pages of the dashboard and what the API answers to GET, each
//! in the ways people ask for it.

use super::PageFixture;
use anyhow::{Context, Result};
use backstop::JobState;
use backstop_server::{api, pages};
use std::fmt;

/// An address that is asked for.
#[derive(Clone, Debug)]
pub(super) struct PageAddress(String);

/// All of them. One whose pattern is not known here is an error: a new page must not be left out.
pub(super) fn all(ground: &PageFixture) -> Result<Vec<PageAddress>> {
    let document = serde_json::to_value(api::description(""))?;
    let paths = document["paths"]
        .as_object()
        .context("the API is described by its paths")?;
    // An answer that never ends cannot be timed.
    let ends = |path: &str| path != "/v1/events";
    let looked_at = paths
        .iter()
        .filter(|(path, item)| item.get("get").is_some() && ends(path));
    let looked_at = looked_at.map(|(path, _)| path.as_str());
    let mut all = Vec::new();
    for pattern in pages::ADDRESSES
        .into_iter()
        .chain(["/metrics"])
        .chain(looked_at)
    {
        let address =
            filled(pattern, ground).with_context(|| format!("no example of {pattern} is known"))?;
        all.extend(
            queries(pattern, ground)
                .into_iter()
                .map(|query| PageAddress(format!("{address}{query}"))),
        );
    }
    Ok(all)
}

/// A pattern with examples in its places.
fn filled(pattern: &str, ground: &PageFixture) -> Option<String> {
    let path = pattern.strip_prefix("/v1").unwrap_or(pattern);
    let noun = path.split('/').nth(1)?;
    let part = |part: &str| match (noun, part) {
        _ if !part.starts_with('{') => Some(part.to_owned()),
        ("jobs", "{id}") if path.starts_with("/jobs/runs/") => Some(ground.run.clone()),
        ("bulk", "{id}") => Some(ground.run.clone()),
        ("jobs", "{id}") => Some(ground.job.to_string()),
        ("dead", "{id}") if path.starts_with("/dead/redrives/") => Some(ground.redrive.clone()),
        ("dead", "{id}") => Some(ground.letter.to_string()),
        ("queues", "{queue}") => Some(ground.queue.to_string()),
        ("streams", "{stream}" | "{s}") => Some(PageFixture::STREAM.to_owned()),
        ("streams", "{key}" | "{k}") => Some(PageFixture::KEY.to_owned()),
        ("schedules" | "sweeps", "{schedule}" | "{sweep}" | "{s}") => {
            Some(PageFixture::NAME.to_owned())
        }
        _ => None,
    };
    pattern
        .split('/')
        .map(part)
        .collect::<Option<Vec<String>>>()
        .map(|parts| parts.join("/"))
}

/// What is asked of it: nothing, and what filters, searches and windows there are.
fn queries(pattern: &str, ground: &PageFixture) -> Vec<String> {
    let PageFixture {
        queue,
        kind,
        rare,
        fingerprint,
        ..
    } = ground;
    let states = |before: &str| {
        JobState::ALL
            .map(|state| format!("{before}state={state}"))
            .to_vec()
    };
    let plain = || vec![String::new()];
    let query_strings =
        |queries: &[&str]| queries.iter().map(ToString::to_string).collect::<Vec<_>>();
    match pattern {
        "/" => query_strings(&["", "?window=1h", "?window=24h", "?window=7d"]),
        "/queues/{queue}" => query_strings(&["", "?window=24h", "?window=7d"]),
        "/kinds" | "/v1/kinds" => query_strings(&["", "?window=5m", "?window=24h", "?window=7d"]),
        "/queues" => query_strings(&["", "?search=mail"]),
        "/jobs" | "/v1/jobs" => [
            plain(),
            states("?"),
            states(&format!("?queue={queue}&")),
            states(&format!("?kind={rare}&")),
            states(&format!("?queue={queue}&kind={kind}&")),
            vec![
                format!("?queue={queue}"),
                format!("?kind={kind}"),
                format!("?kind={rare}"),
            ],
            vec![
                "?text=nobody+ever+wrote+this".to_owned(),
                "?state=done&text=nobody+ever+wrote+this".to_owned(),
                format!("?queue={queue}&text=nobody+ever+wrote+this"),
                format!("?kind={rare}&text=nobody+ever+wrote+this"),
            ],
        ]
        .concat(),
        "/jobs/confirm" => vec![format!("?action=cancel&queue={queue}&all=matching")],
        "/dead" => [
            query_strings(&[
                "",
                "?view=letters",
                "?text=declined",
                "?text=nobody+ever+wrote+this",
                "?error_type=NoSuchType",
            ]),
            vec![
                format!("?queue={queue}"),
                format!("?queue={queue}&fingerprint={fingerprint}"),
                format!("?fingerprint={fingerprint}"),
                format!("?kind={rare}"),
                format!("?queue={queue}&text=nobody+ever+wrote+this"),
                "?since=2000-01-01&until=2000-01-02".to_owned(),
            ],
        ]
        .concat(),
        "/v1/dead" => [
            query_strings(&["", "?text=declined", "?text=nobody+ever+wrote+this"]),
            vec![
                format!("?queue={queue}"),
                format!("?fingerprint={fingerprint}"),
                format!("?kind={rare}"),
            ],
        ]
        .concat(),
        "/v1/dead/groups" => vec![
            String::new(),
            format!("?queue={queue}"),
            "?limit=1000".to_owned(),
        ],
        "/dead/confirm" => vec![format!(
            "?action=requeue&fingerprint={fingerprint}&all=matching"
        )],
        "/dead/redrive" => vec![
            String::new(),
            format!("?queue={queue}&fingerprint={fingerprint}"),
        ],
        "/streams/{stream}/key" => vec![format!("?key={}", PageFixture::KEY)],
        "/audit" => query_strings(&["", "?who=nobody", "?what=queue"]),
        _ => plain(),
    }
}

impl PageAddress {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The page behind this one, if its body names one.
    pub(super) fn next(&self, body: &str) -> Option<Self> {
        if !self.0.starts_with("/v1/") {
            let link = body
                .split_once("rel=\"next\" href=\"")?
                .1
                .split_once('"')?
                .0;
            return Some(Self(link.replace("&amp;", "&").replace("&#38;", "&")));
        }
        let answer: serde_json::Value = serde_json::from_str(body).ok()?;
        let sign = if self.0.contains('?') { '&' } else { '?' };
        Some(Self(format!(
            "{}{sign}cursor={}",
            self.0,
            answer["next"].as_str()?
        )))
    }
}

impl fmt::Display for PageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_behind_is_named_by_the_one_before() {
        let check = |address: &str, body: &str, next: Option<&str>| {
            let found = PageAddress(address.to_owned())
                .next(body)
                .map(|next| next.to_string());
            assert_eq!(found.as_deref(), next, "{body}");
        };
        check(
            "/jobs",
            r#"<a class="button" rel="next" href="/jobs?a=1&#38;after=x">"#,
            Some("/jobs?a=1&after=x"),
        );
        check("/jobs", "<a href=\"/\">", None);
        check(
            "/v1/jobs",
            r#"{"jobs":[],"next":"x"}"#,
            Some("/v1/jobs?cursor=x"),
        );
        check(
            "/v1/jobs?queue=q",
            r#"{"jobs":[],"next":"x"}"#,
            Some("/v1/jobs?queue=q&cursor=x"),
        );
        check("/v1/jobs", r#"{"jobs":[],"next":null}"#, None);
    }
}
