//! Redis versions with bugs that affect backstop: all scripts run in Redis's Lua engine.

/// A known bug, and what to do about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct VersionFault {
    pub(super) what: &'static str,
    pub(super) advice: &'static str,
    /// The first fixed release of each release line.
    mended: &'static [(u32, u32, u32)],
}

const FAULTS: [VersionFault; 2] = [
    VersionFault {
        what: "its Lua engine lets a script author run code (CVE-2025-49844, CVE-2025-46817)",
        advice: "use 6.2.20, 7.2.11, 7.4.6, 8.0.4, 8.2.2 or newer; until then let nobody else run scripts",
        mended: &[(6, 2, 20), (7, 2, 11), (7, 4, 6), (8, 0, 4), (8, 2, 2)],
    },
    VersionFault {
        what: "its Lua library lets a script author run code (CVE-2024-31449)",
        advice: "use 6.2.16, 7.2.6, 7.4.1 or newer; until then let nobody else run scripts",
        mended: &[(6, 2, 16), (7, 2, 6), (7, 4, 1)],
    },
];

/// The known bugs of a version.
pub(super) fn known(version: &str) -> impl Iterator<Item = VersionFault> {
    let version = numbers(version);
    FAULTS
        .into_iter()
        .filter(move |fault| !is_mended(fault.mended, version))
}

fn numbers(version: &str) -> (u32, u32, u32) {
    let mut numbers = version
        .split('.')
        .map(|number| number.parse().unwrap_or_default());
    let mut next = || numbers.next().unwrap_or_default();
    (next(), next(), next())
}

/// A release line newer than all fixed ones never had the bug.
fn is_mended(mended: &[(u32, u32, u32)], version: (u32, u32, u32)) -> bool {
    let same_line = mended
        .iter()
        .find(|first| (first.0, first.1) == (version.0, version.1));
    match same_line {
        Some(first) => version >= *first,
        None => mended.iter().all(|first| version > *first),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_the_faults_it_was_released_with() {
        for (version, count) in [
            ("6.2.5", 2),
            ("7.0.15", 2),
            ("7.2.6", 1),
            ("7.2.11", 0),
            ("8.2.1", 1),
            ("8.2.2", 0),
            ("9.0.0", 0),
        ] {
            assert_eq!(known(version).count(), count, "{version}");
        }
    }
}
