//! Alert rules for Prometheus and a board for Grafana, made for what `/metrics` tells.

mod grafana_dashboard;

pub use grafana_dashboard::board;

/// The rules, as Prometheus reads them. Each alert has a summary, a description, and in `action`
/// what to do.
pub const RULES: &str = include_str!("rules.yml");

#[cfg(test)]
mod tests;
