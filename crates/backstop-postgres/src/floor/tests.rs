use super::*;

fn at(seconds: i64) -> Time {
    Time::from_micros(seconds * 1_000_000)
}

fn from(floors: &Floors, of: &Of, seconds: i64) -> Option<Time> {
    floors.look(of, at(seconds)).from
}

fn seen(floors: &Floors, of: &Of, seconds: i64, to: i64) {
    let look = floors.look(of, at(seconds));
    floors.left_nothing(of.clone(), look, at(to));
}

#[test]
fn looks_begin_a_little_before_what_was_left_with_nothing() {
    let floors = Floors::default();
    assert_eq!(floors.look(&Of::Waiting, at(100)).begins_at(), i64::MIN);
    seen(&floors, &Of::Waiting, 100, 100);
    assert_eq!(from(&floors, &Of::Waiting, 101), Some(at(90)));
    seen(&floors, &Of::Waiting, 150, 150);
    assert_eq!(from(&floors, &Of::Waiting, 151), Some(at(140)));
    assert_eq!(
        from(&floors, &Of::Leases, 151),
        None,
        "each thing has its own"
    );
}

#[test]
fn a_look_from_the_beginning_comes_in_time_and_however_many_others_there_were() {
    let floors = Floors::default();
    for second in 100..160 {
        seen(&floors, &Of::Waiting, second, second);
        assert!(from(&floors, &Of::Waiting, second).is_some());
    }
    assert_eq!(from(&floors, &Of::Waiting, 160), None);
    seen(&floors, &Of::Waiting, 160, 160);
    assert_eq!(from(&floors, &Of::Waiting, 219), Some(at(150)));
}

#[test]
fn a_clock_that_was_set_back_looks_from_the_beginning() {
    let floors = Floors::default();
    seen(&floors, &Of::Keys, 100, 100);
    assert_eq!(from(&floors, &Of::Keys, 99), None);
    seen(&floors, &Of::Keys, 99, 99);
    assert_eq!(from(&floors, &Of::Keys, 99), Some(at(89)));
}

#[test]
fn nothing_is_remembered_of_a_look_that_followed_what_was_forgotten() {
    let floors = Floors::default();
    seen(&floors, &Of::Keys, 100, 100);
    let look = floors.look(&Of::Keys, at(101));
    floors.forget();
    floors.left_nothing(Of::Keys, look, at(101));
    assert_eq!(from(&floors, &Of::Keys, 102), None);
}
