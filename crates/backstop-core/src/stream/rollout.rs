//! The rollout of a stream: the tenants for which it is switched on.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The tenants for which a stream is switched on. `exclude` beats `include`, `include` beats
/// `percent`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rollout {
    /// The share of tenants, from 0 to 100. A larger share includes every tenant of a smaller one.
    pub percent: f64,
    /// Tenants for which the stream is on, whatever the share.
    pub include: Vec<String>,
    /// Tenants for which the stream is off, whatever the share and `include`.
    pub exclude: Vec<String>,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            percent: 100.0,
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

impl Rollout {
    /// Whether the stream is on for this tenant. The caller passes the key for a record without a
    /// tenant.
    pub fn covers(&self, tenant: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == tenant);
        !named(&self.exclude) && (named(&self.include) || hash_percent(tenant) < self.percent)
    }
}

/// Hashes a tenant to a number between 0 and 100 that is the same on every machine and in every
/// version.
fn hash_percent(tenant: &str) -> f64 {
    let digest: [u8; 32] = Sha256::digest(tenant.as_bytes()).into();
    let bits = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    f64::from(bits) / (f64::from(u32::MAX) + 1.0) * 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(percent: f64) -> Vec<String> {
        let rollout = Rollout {
            percent,
            ..Rollout::default()
        };
        (0..1_000)
            .map(|n| format!("tenant-{n}"))
            .filter(|tenant| rollout.covers(tenant))
            .collect()
    }

    #[test]
    fn a_larger_share_only_adds() {
        let shares = [0.0, 0.5, 10.0, 50.0, 99.9, 100.0].map(on);
        for pair in shares.windows(2) {
            assert!(pair[0].iter().all(|tenant| pair[1].contains(tenant)));
        }
        assert_eq!((shares[0].len(), shares[5].len()), (0, 1_000));
        assert!((80..120).contains(&shares[2].len()), "{}", shares[2].len());
    }

    #[test]
    fn exclude_beats_include_beats_percent() {
        let all = |percent, include: &[&str], exclude: &[&str]| Rollout {
            percent,
            include: include.iter().map(ToString::to_string).collect(),
            exclude: exclude.iter().map(ToString::to_string).collect(),
        };
        assert!(all(0.0, &["a"], &[]).covers("a"));
        assert!(!all(100.0, &["a"], &["a"]).covers("a"));
        assert!(!all(100.0, &[], &["a"]).covers("a"));
    }
}
