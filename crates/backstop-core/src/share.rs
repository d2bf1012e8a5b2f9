//! Which ended things of several callers are forgotten where there are too many: nobody pushes out
//! what others did.

use std::collections::{BTreeMap, VecDeque};

/// What is over `max`: again and again the oldest one of the caller that has the most. `ended` come
/// the oldest first, each with its caller.
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
