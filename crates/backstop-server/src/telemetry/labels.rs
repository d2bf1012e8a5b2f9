//! Labels are bounded: only these are told, and only so many values of each; what comes after them
//! is `other`.
//!
//! | label | what it names | where it comes from |
//! |---|---|---|
//! | `queue`, `kind`, `stream`, `schedule`, `sweep`, `table` | as people named them | users |
//! | `outcome`, `result`, `alarm`, `state`, `event`, `grade`, `action` | a word of a fixed list | us |
//! | `method`, `route`, `status` | of a request: the pattern of the route, never its address | us |

use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, RwLock};

/// Values of one label that are told apart.
pub(super) const VALUES_MAX: usize = 200;
/// What stands for all further ones.
pub(super) const OTHER: &str = "other";

pub(super) const LABELS: [&str; 16] = [
    "queue", "kind", "stream", "schedule", "sweep", "table", "outcome", "result", "alarm", "state",
    "event", "grade", "action", "method", "route", "status",
];

/// The values that have been told so far.
#[derive(Default, Debug)]
pub(super) struct LabelValues(RwLock<HashMap<&'static str, HashSet<String>>>);

impl LabelValues {
    /// Whether a value of a label is told by its name; [`OTHER`] stands for it otherwise.
    pub(super) fn admits(&self, label: &'static str, value: &str) -> bool {
        let is_known = |seen: &HashMap<&'static str, HashSet<String>>| {
            seen.get(label).is_some_and(|values| values.contains(value))
        };
        if is_known(&self.0.read().unwrap_or_else(PoisonError::into_inner)) {
            return true;
        }
        let mut seen = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let values = seen.entry(label).or_default();
        values.contains(value) || (values.len() < VALUES_MAX && values.insert(value.to_owned()))
    }
}

/// The label of this name, if there is one.
pub(super) fn known_label(name: &str) -> Option<&'static str> {
    LABELS.into_iter().find(|label| *label == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_of_a_label_are_told_by_name_and_stay_so() {
        let seen = LabelValues::default();
        for n in 0..VALUES_MAX {
            assert!(seen.admits("queue", &format!("q{n}")));
        }
        assert!(!seen.admits("queue", "one more"));
        assert!(seen.admits("queue", "q0"), "those that were there stay");
        assert!(seen.admits("stream", "one more"), "each label has its own");
    }
}
