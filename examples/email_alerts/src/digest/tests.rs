use super::*;

fn at(text: &str) -> Time {
    text.parse().unwrap()
}

fn check(date: &str, range: Range, starts_at: &str, ends_at: &str) {
    let window = Window::of(date, range, at("2030-01-01T00:00:00Z"));
    assert_eq!(
        window,
        Ok(Window {
            starts_at: at(starts_at),
            ends_at: at(ends_at)
        })
    );
}

#[test]
fn a_daily_digest_is_about_the_day_before_eight() {
    check(
        "2026-01-15",
        Range::Daily,
        "2026-01-14T08:00:00Z",
        "2026-01-15T08:00:00Z",
    );
    check(
        "2026-07-15",
        Range::Daily,
        "2026-07-14T07:00:00Z",
        "2026-07-15T07:00:00Z",
    );
}

#[test]
fn a_weekly_digest_is_about_the_week_before_a_saturday() {
    check(
        "2026-01-17",
        Range::Weekly,
        "2026-01-10T08:00:00Z",
        "2026-01-17T08:00:00Z",
    );
}

#[test]
fn digests_over_a_change_of_clocks_are_an_hour_shorter_or_longer() {
    check(
        "2026-03-29",
        Range::Daily,
        "2026-03-28T08:00:00Z",
        "2026-03-29T07:00:00Z",
    );
    check(
        "2026-10-25",
        Range::Daily,
        "2026-10-24T07:00:00Z",
        "2026-10-25T08:00:00Z",
    );
    check(
        "2026-04-04",
        Range::Weekly,
        "2026-03-28T08:00:00Z",
        "2026-04-04T07:00:00Z",
    );
}

#[test]
fn digests_leave_no_moment_out_and_none_twice() {
    for dates in [
        ["2026-03-28", "2026-03-29", "2026-03-30"],
        ["2026-10-24", "2026-10-25", "2026-10-26"],
    ] {
        let windows =
            dates.map(|date| Window::of(date, Range::Daily, at("2030-01-01T00:00:00Z")).unwrap());
        assert_eq!(windows[0].ends_at, windows[1].starts_at);
        assert_eq!(windows[1].ends_at, windows[2].starts_at);
    }
}

#[test]
fn what_is_not_over_has_no_digest() {
    let of = |now: &str| Window::of("2026-01-15", Range::Daily, at(now));
    assert!(
        of("2026-01-15T08:00:00Z").is_ok(),
        "over at its last moment"
    );
    assert!(matches!(
        of("2026-01-15T07:59:59Z"),
        Err(NoDigest::NotOver(..))
    ));
}

#[test]
fn a_weekly_digest_is_of_a_saturday_and_every_digest_is_of_a_date() {
    let later = at("2030-01-01T00:00:00Z");
    assert!(matches!(
        Window::of("2026-01-16", Range::Weekly, later),
        Err(NoDigest::NotASaturday(_))
    ));
    for text in ["", "yesterday", "2026-02-30", "17"] {
        assert!(
            matches!(
                Window::of(text, Range::Daily, later),
                Err(NoDigest::NotADate(_))
            ),
            "{text}"
        );
    }
}
