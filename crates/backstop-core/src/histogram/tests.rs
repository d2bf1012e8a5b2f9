use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn histogram(micros: &[i64]) -> Histogram {
    let mut histogram = Histogram::default();
    for took in micros {
        histogram.note(Span::micros(*took));
    }
    histogram
}

fn sum(of: &[&Histogram]) -> Histogram {
    let mut sum = Histogram::default();
    for one in of {
        sum.merge(one);
    }
    sum
}

fn lengths() -> impl Strategy<Value = Vec<i64>> {
    // All magnitudes are equally likely: as many values below a millisecond as above an hour.
    vec(
        (0_u32..40).prop_flat_map(|power| 0..(1_i64 << power)),
        0..50,
    )
}

proptest! {
    #[test]
    fn sums_are_the_same_in_whatever_order_and_however_grouped(a in lengths(), b in lengths(), c in lengths()) {
        let (one, two, three) = (histogram(&a), histogram(&b), histogram(&c));
        let left = sum(&[&sum(&[&one, &two]), &three]);
        let right = sum(&[&one, &sum(&[&two, &three])]);
        prop_assert_eq!(left, right);
        prop_assert_eq!(sum(&[&one, &two]), sum(&[&two, &one]));
        let all: Vec<i64> = [a, b, c].concat();
        prop_assert_eq!(left, histogram(&all), "as if one had counted all");
    }

    #[test]
    fn a_percentile_lies_in_the_bucket_of_the_true_one(mut all in lengths(), percent in 1_u8..=100) {
        let told = histogram(&all).percentile(percent);
        all.sort_unstable();
        let rank = (all.len() * usize::from(percent)).div_ceil(100);
        let truly = rank.checked_sub(1).map(|at| bucket_of(Span::micros(all[at])));
        match (told, truly) {
            (None, None) => {}
            (Some(told), Some(bucket)) => {
                prop_assert!(told >= lower(bucket) && upper(bucket).is_none_or(|end| told <= end), "{told:?} in {bucket}");
            }
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_read(a in lengths(), b in lengths(), failed in 0_u64..10) {
        let spread = RunHistograms { failed, run: histogram(&a), wait: histogram(&b) };
        let text = serde_json::to_string(&spread).unwrap();
        prop_assert_eq!(serde_json::from_str::<RunHistograms>(&text).unwrap(), spread);
    }
}

#[test]
fn buckets_follow_each_other_without_a_gap() {
    for bucket in 1..BUCKETS {
        let start = lower(bucket);
        assert_eq!(upper(bucket - 1), Some(start));
        assert_eq!(
            (bucket_of(start), bucket_of(start.plus(Span::micros(1)))),
            (bucket - 1, bucket)
        );
    }
    assert_eq!(
        (bucket_of(Span::ZERO), bucket_of(Span::days(30))),
        (0, BUCKETS - 1)
    );
    assert_eq!(Histogram::default().percentile(50), None);
}

#[test]
fn an_hour_of_minutes_in_every_bucket_fits_into_a_cell() {
    let mut full = RunHistograms {
        failed: 9_999,
        ..RunHistograms::default()
    };
    full.run = Histogram([999; BUCKETS]);
    full.wait = full.run;
    let hour: std::collections::BTreeMap<i64, RunHistograms> =
        (0..60).map(|slot| (slot, full)).collect();
    assert!(serde_json::to_vec(&hour).unwrap().len() < crate::limits::CELL_BYTES_MAX);
}
