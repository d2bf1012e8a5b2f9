//! Questions: asked while everything around them changes, answered with a reason, put away, and
//! never half out of sight.

use crate::acts::{confirm, follow, visitors};
use crate::crawl::{ALIKE_MAX, crawl};
use crate::page::{ENTER, ESCAPE, Page, TAB};
use crate::site::{BUSY, NEWS, Site};
use backstop::core::port::QueueState;
use backstop::workers::LISTED;
use backstop::{Run, RunningWorker};

/// The form that is asked, by what it would be sent with.
const ASKED: &str = "document.querySelector('details.confirm[open] input[name=name]')?.value ?? ''";
const REASON: &str =
    "document.querySelector('details.confirm[open] input[name=reason]')?.value ?? ''";
/// How many questions are asked.
const OPEN: &str = "document.querySelectorAll('details.confirm[open]').length";

/// Waits until whoever only looks was shown what has happened since: a page that was to change has
/// had its chance.
fn let_news_arrive(beside: &Page, site: &Site) {
    beside.go(&site.at(&format!("/queues/{NEWS}")));
    let shown = || beside.eval("document.querySelector('.figures').textContent");
    for _ in 0..3 {
        let before = shown();
        beside.wait_until("news", |_| shown() != before);
    }
}

fn reasons(site: &Site) -> Vec<Option<String>> {
    let entries = site.wait(site.backstop.audit("").entries(5)).unwrap();
    entries.into_iter().map(|entry| entry.reason).collect()
}

/// Another worker, before all others by its name.
fn first_worker(site: &Site) -> RunningWorker {
    site.wait(async {
        let worker = site
            .backstop
            .worker()
            .name("a first")
            .handle_raw("slow", |_: Run| async { Ok(()) });
        let running = worker.start().unwrap();
        while site.backstop.workers(LISTED).await.unwrap().len() < 2 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        running
    })
}

#[test]
fn a_question_stays_about_the_worker_it_was_asked_about() {
    let (site, page, beside) = (Site::busy(), Page::open(), Page::open());
    let name = format!("{BUSY} plain");
    page.go(&site.at("/workers"));
    page.click("DisclosureTriangle", &format!("Stop {name}…"));
    assert_eq!(page.eval(ASKED), name.as_str());
    let _first = first_worker(&site);
    let_news_arrive(&beside, &site);
    assert_eq!(page.eval(ASKED), name.as_str(), "the one below the pointer");
    assert_eq!(page.eval(OPEN), 1);
    // Once it is put away, the page is up to date, and nothing is asked.
    page.press_key(ESCAPE);
    page.wait_until("the other worker is shown", |page| {
        page.text().contains("a first")
    });
    assert_eq!(page.eval(OPEN), 0);
}

#[test]
fn what_was_typed_and_where_the_focus_is_stay_while_everything_changes() {
    let (site, page, beside) = (Site::busy(), Page::open(), Page::open());
    page.go(&site.at("/breakers"));
    page.click("DisclosureTriangle", "Reset mail…");
    page.fill("textbox", "Reason", "the mail server is back");
    page.press_key(TAB);
    let focused = || page.eval("document.activeElement.textContent");
    assert_eq!(focused(), "Yes, reset mail");
    page.wait_until("it says that it waits", |page| {
        page.tree()
            .iter()
            .any(|node| node.role == "button" && node.name == "Waiting for you")
    });
    let_news_arrive(&beside, &site);
    assert_eq!(page.eval(REASON), "the mail server is back");
    assert_eq!(focused(), "Yes, reset mail");
    page.after(|| page.press_key(ENTER));
    assert!(
        reasons(&site).contains(&Some("the mail server is back".to_owned())),
        "{:?}",
        reasons(&site)
    );
}

#[test]
fn what_has_the_focus_keeps_it_when_the_page_is_renewed() {
    let (site, page) = (Site::busy(), Page::open());
    page.go(&site.at("/breakers"));
    page.eval("document.querySelector('details.confirm summary').focus()");
    page.eval("document.querySelector('details.confirm summary').isOld = true");
    page.wait_until("it is renewed", |page| {
        page.eval("document.querySelector('details.confirm summary').isOld ?? ''") == ""
    });
    assert_eq!(page.eval("document.activeElement.textContent"), "Reset…");
}

#[test]
fn a_question_is_put_away_with_escape_and_with_a_click_beside_it() {
    let (site, page) = (Site::busy(), Page::open());
    page.go(&site.at("/queues"));
    page.click("DisclosureTriangle", "Pause mail…");
    page.press_key(ESCAPE);
    assert_eq!(page.eval(OPEN), 0);
    assert_eq!(page.eval("document.activeElement.textContent"), "Pause…");
    page.click("DisclosureTriangle", "Pause mail…");
    page.click_at(640.0, 890.0);
    assert_eq!(page.eval(OPEN), 0);
    // What somebody has begun to answer does not vanish with a click that went astray.
    page.click("DisclosureTriangle", "Pause mail…");
    page.fill("textbox", "Reason", "half a sent");
    page.click_at(640.0, 890.0);
    assert_eq!(
        (page.eval(OPEN), page.eval(REASON)),
        (1.into(), "half a sent".into())
    );
    assert_eq!(site.queue("mail").state, QueueState::Active);
}

#[test]
fn the_audit_says_why_a_queue_was_paused() {
    for page in visitors() {
        let site = Site::busy();
        page.go(&site.at("/queues/mail"));
        page.click("DisclosureTriangle", "Pause…");
        page.fill("textbox", "Reason", "mail is moved");
        follow(&page, "button", "Pause");
        assert_eq!(site.queue("mail").state, QueueState::Paused);
        assert_eq!(reasons(&site)[0].as_deref(), Some("mail is moved"));
        page.go(&site.at("/audit"));
        assert!(page.text().contains("mail is moved"), "{}", page.text());
    }
}

#[test]
fn everything_works_below_a_path() {
    for page in visitors() {
        let site = Site::mounted("/board");
        page.go(&site.at("/queues"));
        confirm(&page, "Pause mail…", "Yes, pause mail");
        assert_eq!(site.queue("mail").state, QueueState::Paused);
        assert_eq!(page.address(), site.at("/queues"));
    }
    let (site, page) = (Site::mounted("/board"), Page::open());
    page.go(&site.at("/"));
    page.click("button", "Theme: system");
    page.after(|| page.press("gq"));
    assert_eq!(page.address(), site.at("/queues"));
    page.find("button", "Theme: light");
    site.wait(site.backstop.draft("brand-new").json(&1).push())
        .unwrap();
    page.wait_until("it is live", |page| {
        page.tree()
            .iter()
            .any(|node| node.role == "link" && node.name == "brand-new")
    });
}

/// Opens every question, one after the other; answers those that are not on the screen from edge to
/// edge, unless what is around them can be scrolled.
const OUT_OF_SIGHT: &str = r"(() => {
const scrolls = (e) => e && e !== document.body && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
const lost = [];
for (const question of document.querySelectorAll('details.confirm')) {
  question.open = true;
  const form = question.querySelector('form');
  form.scrollIntoView({ block: 'nearest' });
  const at = form.getBoundingClientRect();
  const isFixed = getComputedStyle(form).position === 'fixed';
  const isOut = at.left < 0 || at.right > innerWidth || at.width < 150 || (isFixed && (at.top < 0 || at.bottom > innerHeight + 1));
  if (isOut && (isFixed || !scrolls(question.parentElement))) lost.push(`${question.id}: ${at.left} to ${at.right}`);
  question.open = false;
}
return JSON.stringify(lost);
})()";

#[test]
fn every_question_is_on_the_screen() {
    let long = "x".repeat(120);
    let site = Site::filled(&["ada@example.org", &long]);
    for (width, height) in [(360, 740), (1280, 900)] {
        let page = Page::open();
        page.sized(width, height);
        let mut lost = Vec::new();
        crawl(&site, &page, ALIKE_MAX, |page| {
            let found = page.eval(OUT_OF_SIGHT);
            let found: Vec<String> = serde_json::from_str(found.as_str().unwrap()).unwrap();
            lost.extend(
                found
                    .into_iter()
                    .map(|found| format!("{width} {}: {found}", page.address())),
            );
        });
        assert!(lost.is_empty(), "{lost:#?}");
    }
}
