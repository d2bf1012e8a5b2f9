//! A fair limit on ended items of several callers: no caller displaces the items of another one
//! that has fewer.

use std::collections::{BTreeMap, VecDeque};

/// Returns the items over `max`: repeatedly the oldest item of the caller with the most items.
/// `ended` lists the oldest items first, each with its caller.
///
/// ```
/// let ended = [("bob", 1), ("ada", 2), ("ada", 3), ("ada", 4)];
/// assert_eq!(backstop_core::share::surplus(ended, 2), [2, 3]);
/// ```
pub fn surplus<W: Ord, T>(ended: impl IntoIterator<Item = (W, T)>, max: usize) -> Vec<T> {
    let (mut of_callers, mut count) = (BTreeMap::<W, VecDeque<T>>::new(), 0_usize);
    for (who, one) in ended {
        of_callers.entry(who).or_default().push_back(one);
        count += 1;
    }
    let oldest_of_most = |_| {
        of_callers
            .values_mut()
            .max_by_key(|ended| ended.len())?
            .pop_front()
    };
    (max..count).filter_map(oldest_of_most).collect()
}
