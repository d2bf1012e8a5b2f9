//! A column of names that are mostly the same, with each name sent once.

use crate::row;

/// Equal names are neighbours, and `names` has each once. `at` says for each row which name it has,
/// counted from 1.
#[derive(Default)]
pub(super) struct DistinctNames<'a> {
    pub(super) names: Vec<&'a str>,
    pub(super) at: Vec<i32>,
}

impl<'a> DistinctNames<'a> {
    pub(super) fn of(names: impl Iterator<Item = &'a str>) -> Self {
        let mut named = Self::default();
        for name in names {
            if named.names.last() != Some(&name) {
                named.names.push(name);
            }
            named.at.push(row::number(named.names.len()));
        }
        named
    }
}
