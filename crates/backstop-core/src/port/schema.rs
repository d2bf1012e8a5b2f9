//! The version of a store's schema: which stores this program may use, and which steps an older one
//! needs.
//!
//! | the store has | the program |
//! |---|---|
//! | no schema | makes the newest one at once |
//! | the newest version | uses it |
//! | an older version | takes the steps that are missing, each in one transaction |
//! | a newer version | refuses it |
//! | the mark of a pre-release | refuses it: pre-releases counted their versions anew |

use super::error::{StoreError, StoreResult};

/// The version mark that a store has in its database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemaMark {
    /// The database has no schema yet.
    Missing,
    /// A pre-release of backstop made it. Its version numbers mean something else than ours.
    PreRelease,
    Version(u32),
}

impl SchemaMark {
    /// Returns the version, 0 if there is no schema yet. Refuses a store of a pre-release, and one
    /// that is newer than `newest`. `instead` says what else the user can use, such as "a new
    /// file".
    pub fn check(self, doing: &'static str, newest: u32, instead: &str) -> StoreResult<u32> {
        match self {
            Self::Missing => Ok(0),
            Self::Version(version) if version <= newest => Ok(version),
            Self::Version(version) => {
                let cause = format!(
                    "the store has version {version}, and this program knows versions up to {newest}. \
                     Use the program that migrated it, a newer one, or {instead}"
                );
                Err(StoreError::misuse(doing, cause))
            }
            Self::PreRelease => {
                let cause = format!(
                    "the store was made by a pre-release of backstop. Export what you need with that \
                     program, or use {instead}"
                );
                Err(StoreError::misuse(doing, cause))
            }
        }
    }
}

/// The upgrade steps from version 1 to the newest one, in order: the first one leads to version 2.
/// A step is SQL that a store runs in one transaction. A released step is never changed.
#[derive(Clone, Copy, Debug)]
pub struct UpgradeSteps<'a>(pub &'a [&'a str]);

impl<'a> UpgradeSteps<'a> {
    /// The version after the last step.
    pub const fn newest(self) -> u32 {
        self.0.len() as u32 + 1
    }

    /// The steps that a store of this version needs, each with the version it leads to. A store
    /// without a schema, of version 0, needs one step: `schema`, which creates the newest version.
    pub fn steps_from(self, version: u32, schema: &'a str) -> Vec<(u32, &'a str)> {
        if version == 0 {
            return vec![(self.newest(), schema)];
        }
        (2..)
            .zip(self.0.iter().copied())
            .filter(|(to, _)| *to > version)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_store_that_is_not_newer_is_used() {
        let check = |mark: SchemaMark| mark.check("migrating", 2, "a new file");
        assert_eq!(check(SchemaMark::Missing), Ok(0));
        assert_eq!(check(SchemaMark::Version(1)), Ok(1));
        assert_eq!(check(SchemaMark::Version(2)), Ok(2));
        for (mark, expected) in [
            (SchemaMark::Version(3), "Use the program that migrated it"),
            (
                SchemaMark::PreRelease,
                "made by a pre-release of backstop. Export what you need",
            ),
        ] {
            let refused = check(mark).expect_err("this program does not know it");
            assert!(matches!(refused, StoreError::Misuse { .. }), "{refused:?}");
            let text = refused.to_string();
            assert!(
                text.contains(expected) && text.ends_with("a new file"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_store_needs_the_steps_after_its_version() {
        let steps = UpgradeSteps(&["to 2", "to 3"]);
        assert_eq!(steps.newest(), 3);
        for (version, expected) in [
            (0, &[(3, "all")][..]),
            (1, &[(2, "to 2"), (3, "to 3")]),
            (2, &[(3, "to 3")]),
            (3, &[]),
        ] {
            assert_eq!(steps.steps_from(version, "all"), expected);
        }
        assert_eq!(UpgradeSteps(&[]).newest(), 1);
    }
}
