use super::*;
use crate::commands::top::figures::TopFigures;
use crate::commands::top::rates::RateHistory;
use backstop::core::stream::Record;
use backstop::testing::{self, TestBackstop};
use backstop::{Payload, Run, RunError, StreamKey};
use ratatui::crossterm::event::{KeyCode, KeyEvent};

/// Two queues, a rate, dead letters with a hostile text, a stream that holds a record.
async fn place() -> (TestBackstop, TopState) {
    let test = testing::start();
    let mut state = TopState::new(TopView::Queues, "memory:".to_owned());
    read(&mut state, &test).await;
    for n in 0..20 {
        test.backstop.draft("emails").json(&n).push().await.unwrap();
    }
    test.backstop
        .draft("webhooks")
        .kind("deliver")
        .json(&1)
        .push()
        .await
        .unwrap();
    let dies = |_: Run| async { Err::<(), _>(RunError::dead("\x1b[31mred\x07 410 Gone")) };
    test.backstop
        .worker()
        .handle_raw("webhooks", dies)
        .drain()
        .await
        .unwrap();
    test.backstop
        .worker()
        .handle_raw("emails", |_: Run| async { Ok(()) })
        .drain()
        .await
        .unwrap();
    for n in 0..1_234 {
        test.backstop.draft("images").json(&n).push().await.unwrap();
    }
    let record = Record {
        key: StreamKey::new("site-7").unwrap(),
        position: 60_000,
        step: 60_000,
        tenant: None,
        payload: Payload::from_stored(b"{}".to_vec()),
    };
    test.backstop
        .stream("uptime")
        .unwrap()
        .offer(vec![record])
        .await
        .unwrap();
    test.clock.advance(backstop::Span::secs(4));
    read(&mut state, &test).await;
    (test, state)
}

async fn read(state: &mut TopState, test: &TestBackstop) {
    let figures = TopFigures::read(&test.backstop).await.unwrap();
    let mut trail: RateHistory = std::mem::take(&mut state.history);
    trail.push(&figures);
    state.take_in(figures, trail);
}

fn screen(state: &mut TopState, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state)).unwrap();
    lines(&terminal).join("\n")
}

/// The screen of a view has all of these.
async fn check(key: char, parts: &[&str]) {
    let (_test, state) = place().await;
    let (mut state, _) = state.press(KeyEvent::from(KeyCode::Char(key)));
    let screen = screen(&mut state, 100, 24);
    for part in parts {
        assert!(screen.contains(part), "{part:?} is missing:\n{screen}");
    }
}

#[tokio::test]
async fn the_first_line_is_the_whole_store_in_numbers() {
    check(
        '1',
        &["1,234 live", "5.0 done/s", "1 dead", "1 held", "0 workers"],
    )
    .await;
}

#[tokio::test]
async fn queues_show_depth_age_and_pace() {
    check('1', &["emails", "READY", "1,234", "4s", "5.0", "q quit"]).await;
}

#[tokio::test]
async fn rates_are_lines_of_bars() {
    check('2', &["PUSHED/S", "309", "█", "the highest is 5.0"]).await;
}

#[tokio::test]
async fn dead_letters_are_groups_and_their_texts_cannot_move_the_cursor() {
    check(
        '4',
        &["webhooks", "deliver", r"\u001b[31mred\u0007 410 Gone"],
    )
    .await;
}

#[tokio::test]
async fn streams_show_what_is_held() {
    check('5', &["uptime", "HELD", "MISSES"]).await;
}

#[tokio::test]
async fn what_is_empty_says_the_next_step() {
    check('3', &["nobody works; try: backstop work"]).await;
    check('6', &["no breakers yet"]).await;
}

#[tokio::test]
async fn a_question_names_what_would_be_done() {
    let (_test, mut state) = place().await;
    for letter in ['4', 'R'] {
        (state, _) = state.press(KeyEvent::from(KeyCode::Char(letter)));
    }
    let screen = screen(&mut state, 100, 24);
    assert!(
        screen.contains("Requeue 1 dead letter of webhooks"),
        "{screen}"
    );
}

#[tokio::test]
async fn selected_rows_have_a_star_and_a_question_names_each_of_them() {
    let (_test, mut state) = place().await;
    for letter in ['1', 'x', 'j', 'x'] {
        (state, _) = state.press(KeyEvent::from(KeyCode::Char(letter)));
    }
    let shown = screen(&mut state, 100, 24);
    assert!(
        shown.contains("* emails") && shown.contains("* images"),
        "{shown}"
    );
    assert!(
        shown.contains("  webhooks") && shown.contains("x select  A all"),
        "{shown}"
    );
    (state, _) = state.press(KeyEvent::from(KeyCode::Char('P')));
    let shown = screen(&mut state, 100, 24);
    assert!(
        shown.contains("Pause emails?") && shown.contains("Pause images?"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_store_that_fails_is_told_in_the_last_line() {
    let (_test, mut state) = place().await;
    state.set_store_error("listing queues: no answer within 10s".to_owned());
    let screen = screen(&mut state, 120, 24);
    assert!(
        screen
            .lines()
            .last()
            .unwrap()
            .contains("no answer within 10s"),
        "{screen}"
    );
    assert!(
        screen.contains("1,234"),
        "the last figures are still there:\n{screen}"
    );
}

#[tokio::test]
async fn the_smallest_terminal_is_no_reason_to_fail() {
    let (_test, state) = place().await;
    for view in "123456".chars() {
        for more in ['?', '/', 'R'] {
            for (width, height) in [(1, 1), (2, 3), (20, 6), (40, 12)] {
                let (state, _) = state.clone().press(KeyEvent::from(KeyCode::Char(view)));
                let (mut state, _) = state.press(KeyEvent::from(KeyCode::Char(more)));
                assert_eq!(
                    screen(&mut state, width, height).split('\n').count(),
                    usize::from(height)
                );
            }
        }
    }
}

#[tokio::test]
async fn a_page_has_every_row_however_many_there_are() {
    let (test, mut state) = place().await;
    for n in 0..70 {
        test.backstop
            .draft(&format!("q{n}"))
            .json(&n)
            .push()
            .await
            .unwrap();
    }
    test.clock.advance(backstop::Span::secs(1));
    read(&mut state, &test).await;
    let page = text(&mut state, 110);
    assert!(
        page.contains("q69") && page.contains("webhooks") && !page.contains("q quit"),
        "{page}"
    );
}
