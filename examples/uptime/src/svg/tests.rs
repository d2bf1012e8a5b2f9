use super::*;
use crate::consumer::Counts;
use crate::sequencer::Hold;

fn figures(false_misses: u64, hold: Option<Hold>) -> Figures {
    Figures {
        mode: Mode::Immediate,
        false_misses,
        true_misses_found: 5,
        true_misses: 5,
        handled: 100,
        lost: 0,
        hold,
        delay_p50_ms: 40,
        delay_p99_ms: 1_500,
        took_ms: 1,
        behind_ms: 0,
        counts: Counts::default(),
    }
}

fn summary() -> Summary {
    Summary {
        subscriptions: 3,
        arrivals: 100,
        in_time: 90,
        dropped: 4,
        late: 1,
        duplicates: 2,
        broken: 1,
    }
}

#[test]
fn a_bar_is_as_long_as_its_figure_is_large() {
    let svg = draw(&summary(), &[figures(2_000, None), figures(500, None)]);
    let bars: Vec<&str> = svg
        .lines()
        .filter(|line| line.contains("class=\"first\"") || line.contains("class=\"second\""))
        .collect();
    assert!(bars[0].contains("width=\"470.0\""), "{}", bars[0]);
    assert!(bars[1].contains("width=\"117.5\""), "{}", bars[1]);
    assert!(svg.contains(">2,000<") && svg.contains(">1.5 s<"));
}

#[test]
fn nothing_of_a_kind_draws_empty_bars() {
    let hold = Hold {
        added: 9,
        removed: 9,
        timeouts: 0,
        overflows: 0,
        mean_held: 0.0,
    };
    let svg = draw(&summary(), &[figures(0, Some(hold))]);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}

#[test]
fn the_picture_says_in_words_what_it_shows() {
    let svg = draw(&summary(), &[figures(2_000, None)]);
    assert!(svg.contains(
        "False misses: immediate 2,000. True misses found: immediate 5 of 5. Timeouts: immediate –."
    ));
    assert!(svg.contains("prefers-color-scheme: dark"));
}

#[test]
fn words_cannot_end_the_picture() {
    assert_eq!(escape("</text>&\""), "&lt;/text&gt;&amp;&quot;");
}
