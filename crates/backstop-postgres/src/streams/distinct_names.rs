//! Names that many things share, as the functions take them: each of them once.

use crate::row;

/// Names that are beside each other when they are the same, each said once; and which of them each
/// was, from 1 on.
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
