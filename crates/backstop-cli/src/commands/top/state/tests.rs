use super::*;
use crate::commands::top::figures::TopFigures;
use backstop::config::ConfigOverrides;
use backstop::testing::{self, TestBackstop};
use backstop::{Run, RunError, Span};

/// Four queues; the jobs of `webhooks` die of two causes.
async fn place() -> TestBackstop {
    let test = testing::start();
    for (queue, number) in [
        ("emails", 5),
        ("images", 1),
        ("reports", 1),
        ("webhooks", 3),
    ] {
        for n in 0..number {
            test.backstop
                .draft(queue)
                .kind("deliver")
                .json(&n)
                .push()
                .await
                .unwrap();
        }
    }
    let dies = |run: Run| async move {
        let cause = if run.payload() == b"0" {
            "410 Gone"
        } else {
            "certificate expired"
        };
        Err::<(), _>(RunError::dead(cause))
    };
    test.backstop
        .worker()
        .handle_raw("webhooks", dies)
        .drain()
        .await
        .unwrap();
    test
}

async fn looking_at(test: &TestBackstop, view: TopView) -> TopState {
    let mut state = TopState::new(view, "memory:".to_owned());
    read(&mut state, test).await;
    state
}

async fn read(state: &mut TopState, test: &TestBackstop) {
    let figures = TopFigures::read(&test.backstop).await.unwrap();
    let mut trail = std::mem::take(&mut state.history);
    trail.push(&figures);
    state.take_in(figures, trail);
}

/// Presses keys one after another: letters, and words for what has none. Answers the last wish.
fn press(state: TopState, keys: &str) -> (TopState, KeyOutcome) {
    let mut at = (state, KeyOutcome::Draw);
    for word in keys.split_whitespace() {
        let code = match word {
            "right" => KeyCode::Right,
            "left" => KeyCode::Left,
            "down" => KeyCode::Down,
            "up" => KeyCode::Up,
            "esc" => KeyCode::Esc,
            "enter" => KeyCode::Enter,
            "back" => KeyCode::Backspace,
            letter => KeyCode::Char(letter.chars().next().unwrap()),
        };
        at = at.0.press(KeyEvent::from(code));
    }
    at
}

/// The first cell of the chosen row.
fn chosen(state: &TopState) -> String {
    state
        .row()
        .map(|row| row.cells[0].0.clone())
        .unwrap_or_default()
}

#[tokio::test]
async fn arrows_and_digits_choose_a_view() {
    let test = place().await;
    let cases = [
        ("right", TopView::Rates),
        ("left", TopView::Breakers),
        ("right right right", TopView::Dead),
        ("5", TopView::Streams),
        ("6 right", TopView::Queues),
        ("9", TopView::Queues),
    ];
    for (keys, view) in cases {
        assert_eq!(
            press(looking_at(&test, TopView::Queues).await, keys).0.view,
            view,
            "{keys}"
        );
    }
}

#[tokio::test]
async fn rows_and_pages_end_at_the_first_and_the_last_row() {
    let test = place().await;
    let cases = [
        ("", "emails"),
        ("k", "emails"),
        ("j", "images"),
        ("down down up", "images"),
        ("j j j j j j", "webhooks"),
        ("l", "reports"),
        ("l l l", "webhooks"),
        ("G h", "images"),
        ("G g", "emails"),
    ];
    for (keys, row) in cases {
        let mut state = looking_at(&test, TopView::Queues).await;
        state.rows_fit = 2;
        assert_eq!(chosen(&press(state, keys).0), row, "{keys}");
    }
}

#[tokio::test]
async fn a_filter_hides_rows_as_it_is_typed() {
    let test = place().await;
    let rows = |state: &TopState| {
        state
            .table()
            .rows
            .into_iter()
            .map(|row| row.id)
            .collect::<Vec<_>>()
    };
    let (state, _) = press(looking_at(&test, TopView::Queues).await, "/ M A");
    assert_eq!(
        rows(&state),
        ["emails", "images"],
        "whatever the size of the letters"
    );
    let (state, _) = press(state, "i");
    assert_eq!(rows(&state), ["emails"]);
    let (state, _) = press(state, "back back g");
    assert_eq!(
        state.mode,
        TopMode::Filtering,
        "letters are typed, not obeyed"
    );
    let (state, wish) = press(state, "back q enter");
    assert_eq!(
        (wish, rows(&state)),
        (KeyOutcome::Draw, Vec::<String>::new())
    );
    let (state, _) = press(state, "esc");
    assert_eq!(rows(&state).len(), 4);
}

#[tokio::test]
async fn the_chosen_row_stays_chosen_when_others_come_before_it() {
    let test = place().await;
    let (mut state, _) = press(looking_at(&test, TopView::Queues).await, "j");
    test.backstop
        .draft("a-new-one")
        .json(&1)
        .push()
        .await
        .unwrap();
    read(&mut state, &test).await;
    assert_eq!((chosen(&state).as_str(), state.at()), ("images", 2));
}

#[tokio::test]
async fn a_capital_p_pauses_the_chosen_queue_and_resumes_it() {
    let test = place().await;
    let (mut state, wish) = press(looking_at(&test, TopView::Queues).await, "j P");
    let images = QueueName::new("images").unwrap();
    assert_eq!(
        wish,
        KeyOutcome::Perform(vec![TopAction::SetGate(images.clone(), QueueState::Paused)])
    );
    test.backstop
        .store()
        .set_queue_state(images.clone(), QueueState::Paused, test.backstop.now())
        .await
        .unwrap();
    read(&mut state, &test).await;
    assert_eq!(
        press(state, "P").1,
        KeyOutcome::Perform(vec![TopAction::SetGate(images, QueueState::Active)])
    );
    let (state, wish) = press(looking_at(&test, TopView::Workers).await, "P");
    assert_eq!(wish, KeyOutcome::Draw);
    assert!(
        matches!(state.notice, Some(TopNotice::Failed(_))),
        "it says where there are queues"
    );
}

#[tokio::test]
async fn a_worker_is_quieted_and_goes_on_by_a_capital_p_and_is_stopped_after_a_question() {
    use backstop::core::port::BeatRequest;
    let test = place().await;
    let (now, names) = (test.backstop.now(), ["one", "two"].map(WorkerName::new));
    for worker in names.clone() {
        let queues = vec![QueueName::new("emails").unwrap()];
        let beat = BeatRequest {
            worker,
            queues,
            leases: Vec::new(),
            until: now.after(Span::secs(15)),
        };
        test.backstop.store().beat(beat, now).await.unwrap();
    }
    // Only who tells of itself hears what it is asked for.
    let (config, attendance) = (
        backstop::config::resolve(None, ConfigOverrides::default(), ConfigOverrides::default())
            .unwrap(),
        backstop::http_workers::SeenWorkers::default(),
    );
    for worker in &names {
        let remote = test.backstop.http_workers(&config, &attendance);
        remote
            .beat(
                worker,
                &backstop::workers::WorkerDescription::default(),
                Vec::new(),
                None,
            )
            .await
            .unwrap();
    }
    let [one, two] = names;
    let order = |worker: &WorkerName, order| TopAction::CommandWorker(worker.clone(), order);
    let (mut state, wish) = press(looking_at(&test, TopView::Workers).await, "P");
    assert_eq!(
        wish,
        KeyOutcome::Perform(vec![order(&one, WorkerCommand::Quiet)])
    );
    test.backstop
        .changes("ada")
        .command_worker(&one, WorkerCommand::Quiet)
        .await
        .unwrap()
        .unwrap();
    read(&mut state, &test).await;
    assert_eq!(state.row().unwrap().cells[1].0, "quiet");
    assert_eq!(
        press(looking_at(&test, TopView::Workers).await, "P").1,
        KeyOutcome::Perform(vec![order(&one, WorkerCommand::Resume)])
    );
    let (_, wish) = press(looking_at(&test, TopView::Workers).await, "A P");
    assert_eq!(
        wish,
        KeyOutcome::Perform(vec![order(&two, WorkerCommand::Quiet)]),
        "none goes on while another is quieted"
    );
    let (state, wish) = press(looking_at(&test, TopView::Workers).await, "A S");
    assert_eq!(wish, KeyOutcome::Draw);
    let both = vec![
        order(&one, WorkerCommand::Stop),
        order(&two, WorkerCommand::Stop),
    ];
    assert_eq!(state.mode, TopMode::Confirming(both.clone()));
    assert_eq!(press(state, "y").1, KeyOutcome::Perform(both));
    let (state, wish) = press(looking_at(&test, TopView::Queues).await, "S");
    assert_eq!(wish, KeyOutcome::Draw);
    assert!(
        matches!(state.notice, Some(TopNotice::Failed(_))),
        "it says where there are workers"
    );
}

#[tokio::test]
async fn a_small_letter_changes_nothing() {
    let test = place().await;
    for view in TopView::ALL {
        for letter in ('a'..='z').filter(|letter| *letter != 'q') {
            let (_, wish) = press(looking_at(&test, view).await, &letter.to_string());
            assert!(
                matches!(wish, KeyOutcome::Draw | KeyOutcome::Read),
                "{letter} in {view:?}: {wish:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_group_is_requeued_after_a_yes_and_only_then() {
    let test = place().await;
    let (state, wish) = press(looking_at(&test, TopView::Dead).await, "R");
    assert_eq!(wish, KeyOutcome::Draw);
    let is_group = |deeds: &[TopAction]| matches!(deeds, [TopAction::Requeue { count: 2, .. }]);
    assert!(
        matches!(&state.mode, TopMode::Confirming(deeds) if is_group(deeds)),
        "{:?}",
        state.mode
    );
    for no in ["n", "enter", "esc", "Y", "q", "R"] {
        let (after, wish) = press(state.clone(), no);
        assert_eq!(
            (after.mode, wish),
            (TopMode::Browsing, KeyOutcome::Draw),
            "{no}"
        );
    }
    let (_, wish) = press(state, "y");
    assert!(
        matches!(&wish, KeyOutcome::Perform(deeds) if is_group(deeds)),
        "{wish:?}"
    );
    let (state, wish) = press(looking_at(&test, TopView::Queues).await, "R y");
    assert_eq!(
        (state.mode, wish),
        (TopMode::Browsing, KeyOutcome::Draw),
        "a queue is no group"
    );
}

/// The first cells of the rows that are selected.
fn selected(state: &TopState) -> Vec<String> {
    let rows = state
        .table()
        .rows
        .into_iter()
        .filter(|row| state.is_selected(row));
    rows.map(|row| row.cells[0].0.clone()).collect()
}

#[tokio::test]
async fn x_selects_rows_and_a_capital_a_all_that_are_shown() {
    let test = place().await;
    let cases: [(&str, &[&str]); 8] = [
        ("x", &["emails"]),
        ("x j j x", &["emails", "reports"]),
        ("x x", &[]),
        ("A", &["emails", "images", "reports", "webhooks"]),
        ("A A", &[]),
        ("x A", &["emails", "images", "reports", "webhooks"]),
        ("/ m a enter A esc", &["emails", "images"]),
        ("A esc", &[]),
    ];
    for (keys, expected) in cases {
        let (state, wish) = press(looking_at(&test, TopView::Queues).await, keys);
        assert_eq!(
            (selected(&state), wish),
            (
                expected.iter().map(ToString::to_string).collect(),
                KeyOutcome::Draw
            ),
            "{keys}"
        );
    }
    let (state, _) = press(looking_at(&test, TopView::Queues).await, "A right left");
    assert!(selected(&state).is_empty(), "another view begins with none");
}

#[tokio::test]
async fn what_a_capital_letter_does_is_done_to_all_that_are_selected_after_a_yes() {
    let test = place().await;
    let queue = |name: &str, gate| TopAction::SetGate(QueueName::new(name).unwrap(), gate);
    let (state, wish) = press(looking_at(&test, TopView::Queues).await, "x j x P");
    let both = vec![
        queue("emails", QueueState::Paused),
        queue("images", QueueState::Paused),
    ];
    assert_eq!(
        (&state.mode, wish),
        (&TopMode::Confirming(both.clone()), KeyOutcome::Draw)
    );
    assert_eq!(press(state.clone(), "n").1, KeyOutcome::Draw);
    let (mut state, wish) = press(state, "y");
    assert_eq!(
        (wish, selected(&state)),
        (KeyOutcome::Perform(both), Vec::new())
    );
    test.backstop
        .changes("t")
        .pause(&QueueName::new("emails").unwrap())
        .await
        .unwrap();
    read(&mut state, &test).await;
    let (state, wish) = press(state, "A / m a enter P");
    assert_eq!(
        wish,
        KeyOutcome::Perform(vec![queue("images", QueueState::Paused)]),
        "what is hidden, or paused already, stays"
    );
    assert!(selected(&state).is_empty());
    let (_, wish) = press(looking_at(&test, TopView::Dead).await, "A R y");
    assert!(
        matches!(&wish, KeyOutcome::Perform(deeds) if deeds.len() == 2),
        "{wish:?}"
    );
}

#[tokio::test]
async fn q_and_control_c_end_it_wherever_it_is() {
    let test = place().await;
    assert_eq!(
        press(looking_at(&test, TopView::Queues).await, "q").1,
        KeyOutcome::Quit
    );
    let (state, _) = press(looking_at(&test, TopView::Dead).await, "/ x");
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.press(control_c).1, KeyOutcome::Quit);
}

#[tokio::test]
async fn help_goes_away_with_any_key() {
    let test = place().await;
    let (state, _) = press(looking_at(&test, TopView::Queues).await, "?");
    assert_eq!(state.mode, TopMode::Help);
    let (state, wish) = press(state, "q");
    assert_eq!((state.mode, wish), (TopMode::Browsing, KeyOutcome::Draw));
}

#[tokio::test]
async fn a_store_that_fails_leaves_the_last_figures_and_says_so() {
    let test = place().await;
    let mut state = looking_at(&test, TopView::Queues).await;
    state.set_store_error("the store did not answer".to_owned());
    assert_eq!(
        (state.table().rows.len(), state.store_error.is_some()),
        (4, true)
    );
    test.clock.advance(Span::secs(1));
    read(&mut state, &test).await;
    assert_eq!(state.store_error, None);
}
