//! Wrong tokens by the address they come from: a few are a mistake, many are an attempt.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Wrong tokens from one address within [`WINDOW`] that are answered as what they are.
const FAILURES_MAX: u32 = 10;
/// How long a failure is held against an address.
const WINDOW: Duration = Duration::from_mins(1);
/// Addresses remembered; the one that failed longest ago makes room.
const ADDRESSES_MAX: usize = 10_000;

#[derive(Debug, Default)]
pub(crate) struct TokenFailures(BTreeMap<IpAddr, AddressFailures>);

#[derive(Clone, Copy, Debug)]
struct AddressFailures {
    since: Instant,
    failures: u32,
}

impl AddressFailures {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= WINDOW
    }

    fn wait_left(&self, now: Instant) -> Option<Duration> {
        let left = WINDOW.saturating_sub(now.duration_since(self.since));
        (self.failures >= FAILURES_MAX && !left.is_zero()).then_some(left)
    }
}

impl TokenFailures {
    /// How long an address has to wait before it may try again; `None` if it may now.
    pub(crate) fn wait_left(&self, address: IpAddr, now: Instant) -> Option<Duration> {
        self.0.get(&client_network(address))?.wait_left(now)
    }

    /// Holds a failure against an address.
    pub(crate) fn record(&mut self, address: IpAddr, now: Instant) {
        let network = client_network(address);
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&network) {
            self.make_room(now);
        }
        let count = self.0.entry(network).or_insert(AddressFailures {
            since: now,
            failures: 0,
        });
        if count.is_over(now) {
            *count = AddressFailures {
                since: now,
                failures: 0,
            };
        }
        count.failures = count.failures.saturating_add(1);
    }

    fn make_room(&mut self, now: Instant) {
        self.0.retain(|_, count| !count.is_over(now));
        if self.0.len() >= ADDRESSES_MAX {
            let oldest = self
                .0
                .iter()
                .min_by_key(|(_, count)| count.since)
                .map(|(network, _)| *network);
            oldest.and_then(|network| self.0.remove(&network));
        }
    }
}

/// The address, or what one customer usually has of the new ones: 64 bits of it.
pub(crate) fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => {
            let network = u128::from(ip) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(network))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn failed(failures: &mut TokenFailures, address: &str, times: u32, now: Instant) {
        for _ in 0..times {
            failures.record(ip(address), now);
        }
    }

    #[test]
    fn ten_failures_in_a_minute_are_enough_and_a_minute_later_it_may_try_again() {
        let (mut failures, start) = (TokenFailures::default(), Instant::now());
        failed(&mut failures, "10.0.0.1", FAILURES_MAX - 1, start);
        assert_eq!(failures.wait_left(ip("10.0.0.1"), start), None);
        failed(&mut failures, "10.0.0.1", 1, start);
        assert_eq!(failures.wait_left(ip("10.0.0.1"), start), Some(WINDOW));
        let later = start + Duration::from_secs(20);
        assert_eq!(
            failures.wait_left(ip("10.0.0.1"), later),
            Some(Duration::from_secs(40))
        );
        assert_eq!(
            failures.wait_left(ip("10.0.0.2"), later),
            None,
            "others are not held up"
        );
        let after = start + WINDOW;
        assert_eq!(failures.wait_left(ip("10.0.0.1"), after), None);
        failed(&mut failures, "10.0.0.1", 1, after);
        assert_eq!(
            failures.wait_left(ip("10.0.0.1"), after),
            None,
            "counted anew"
        );
    }

    #[test]
    fn one_customer_is_one_place_however_addresses_are_spelled() {
        let (mut failures, now) = (TokenFailures::default(), Instant::now());
        failed(&mut failures, "2001:db8::1", FAILURES_MAX, now);
        assert!(failures.wait_left(ip("2001:db8::ffff"), now).is_some());
        assert!(failures.wait_left(ip("2001:db8:0:1::1"), now).is_none());
        failed(&mut failures, "::ffff:10.0.0.9", FAILURES_MAX, now);
        assert!(failures.wait_left(ip("10.0.0.9"), now).is_some());
    }

    #[test]
    fn it_remembers_no_more_than_it_may() {
        let (mut failures, start) = (TokenFailures::default(), Instant::now());
        for n in 0..ADDRESSES_MAX as u32 + 50 {
            let address = IpAddr::V4((0x0a00_0000 + n).into());
            failures.record(address, start + Duration::from_millis(u64::from(n)));
        }
        assert_eq!(failures.0.len(), ADDRESSES_MAX);
        assert!(
            !failures.0.contains_key(&ip("10.0.0.0")),
            "the oldest made room"
        );
        failures.record(ip("11.0.0.1"), start + WINDOW * 2);
        assert_eq!(failures.0.len(), 1, "what is over is forgotten");
    }
}
