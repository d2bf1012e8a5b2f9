use super::*;
use crate::{FRESH, Strategy, Try};

#[test]
fn a_picture_tells_the_same_in_words_and_draws_no_stroke_twice() {
    let tries = [0, 1, 2, 518_400].map(|minutes| Try {
        id: FRESH.id,
        after: Span::minutes(minutes),
    });
    let played = Played {
        strategy: Strategy::Fibonacci,
        tries: tries.to_vec(),
        passes: 4,
        expired: 0,
    };
    let svg = draw(&[played], &[FRESH]);
    assert!(
        svg.contains("<desc id=\"what\">Fibonacci minutes: row 5  new 4 tries.</desc>"),
        "{svg}"
    );
    assert_eq!(
        svg.matches('M').count(),
        3,
        "the first two are at one place: {svg}"
    );
    assert!(
        svg.contains(&format!("M{LEFT}.0 ")) && svg.contains(&format!("M{}.0 ", LEFT + LENGTH)),
        "{svg}"
    );
    assert!(svg.ends_with("</svg>\n"));
}
