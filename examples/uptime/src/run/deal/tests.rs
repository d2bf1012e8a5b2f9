use super::*;
use crate::wire::Id;

fn keys(letters: &str) -> impl Iterator<Item = Option<SubscriptionId>> {
    letters
        .chars()
        .map(|letter| (letter != '?').then(|| SubscriptionId(Id::new(u128::from(letter as u32)))))
}

/// What each of three workers gets of what is dealt, as letters.
fn deal(dealer: &mut Dealer, letters: &str) -> (usize, String) {
    let dealt = dealer.deal(keys(letters));
    let mut hands = vec![String::new(); dealer.loads.len()];
    for batch in &dealt.batches {
        hands[batch.worker].extend(
            batch
                .places
                .iter()
                .filter_map(|place| letters.chars().nth(*place)),
        );
    }
    (dealt.taken, hands.join(" "))
}

#[test]
fn racing_deals_to_whoever_has_least_to_do() {
    let mut dealer = Dealer::new(Dealing::Racing, 3);
    assert_eq!(deal(&mut dealer, "aaab?b"), (6, "ab a? ab".to_owned()));
}

#[test]
fn faithful_leaves_a_subscription_with_whoever_has_it() {
    let mut dealer = Dealer::new(Dealing::Faithful, 3);
    assert_eq!(deal(&mut dealer, "aaab?b"), (6, "aaa bb ?".to_owned()));
    assert_eq!(deal(&mut dealer, "cacb"), (4, "a b cc".to_owned()));
}

#[test]
fn a_subscription_goes_anywhere_once_it_was_answered_for() {
    let mut dealer = Dealer::new(Dealing::Faithful, 2);
    assert_eq!(deal(&mut dealer, "a"), (1, "a ".to_owned()));
    assert_eq!(deal(&mut dealer, "bb"), (2, " bb".to_owned()));
    dealer.done(0, 1);
    dealer.done(1, 2);
    assert!(dealer.is_idle());
    assert_eq!(deal(&mut dealer, "ba"), (2, "b a".to_owned()));
}

#[test]
fn nobody_gets_more_than_there_is_room_for() {
    let mut dealer = Dealer::new(Dealing::Racing, 2);
    for _ in 0..BATCHES_IN_FLIGHT_MAX {
        assert_eq!(deal(&mut dealer, "ab").0, 2);
    }
    assert_eq!(deal(&mut dealer, "ab"), (0, " ".to_owned()));
    dealer.done(1, 2);
    assert_eq!(deal(&mut dealer, "ab"), (2, " ab".to_owned()));
    let mut dealer = Dealer::new(Dealing::Racing, 1);
    assert_eq!(
        dealer.deal(keys(&"a".repeat(BATCH_RESULTS_MAX + 5))).taken,
        BATCH_RESULTS_MAX
    );
}

#[test]
fn faithful_waits_rather_than_let_a_result_overtake() {
    let mut dealer = Dealer::new(Dealing::Faithful, 2);
    for _ in 0..BATCHES_IN_FLIGHT_MAX {
        assert_eq!(deal(&mut dealer, "a"), (1, "a ".to_owned()));
    }
    assert_eq!(deal(&mut dealer, "bab"), (1, " b".to_owned()));
}
