//! Networks by their numbers, for the addresses that a service may be at.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network such as `10.0.0.0/8`, or one address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpNetwork {
    first: IpAddr,
    /// How many bits of an address say that it is in it.
    bits: u8,
}

/// A text that is no network address such as `10.0.0.0/8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is no network; write one such as 10.0.0.0/8, or an address such as 10.0.0.7")]
pub struct InvalidNetwork;

impl IpNetwork {
    /// Whether an address is in it. IPv4 in the clothes of IPv6 (`::ffff:10.0.0.7`) is IPv4: that
    /// is where a connection goes.
    pub fn contains(&self, ip: IpAddr) -> bool {
        match (self.first, ip.to_canonical()) {
            (IpAddr::V4(first), IpAddr::V4(ip)) => {
                masked(first.to_bits().into(), self.bits, 32)
                    == masked(ip.to_bits().into(), self.bits, 32)
            }
            (IpAddr::V6(first), IpAddr::V6(ip)) => {
                masked(first.to_bits(), self.bits, 128) == masked(ip.to_bits(), self.bits, 128)
            }
            _ => false,
        }
    }
}

/// The first `bits` of an address of `width` bits; the others are zero.
const fn masked(address: u128, bits: u8, width: u32) -> u128 {
    match width.saturating_sub(bits as u32) {
        128.. => 0,
        rest => address >> rest << rest,
    }
}

impl FromStr for IpNetwork {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (address, bits) = text
            .split_once('/')
            .map_or((text, None), |(ip, bits)| (ip, Some(bits)));
        let first: IpAddr = address.parse().map_err(|_| InvalidNetwork)?;
        let width = if first.is_ipv4() { 32 } else { 128 };
        let bits = bits
            .map_or(Ok(width), str::parse)
            .map_err(|_| InvalidNetwork)?;
        let network = Self { first, bits };
        // Mapped IPv4 would never fit: addresses are compared as what they are. Bits behind the
        // network's own are a slip.
        let is_itself = first == first.to_canonical() && network.starts_there(width);
        (bits <= width && is_itself)
            .then_some(network)
            .ok_or(InvalidNetwork)
    }
}

impl IpNetwork {
    fn starts_there(&self, width: u8) -> bool {
        let number = match self.first {
            IpAddr::V4(first) => first.to_bits().into(),
            IpAddr::V6(first) => first.to_bits(),
        };
        masked(number, self.bits, width.into()) == number
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first, self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(network: &str, inside: &[&str], outside: &[&str]) {
        let read: IpNetwork = network.parse().unwrap();
        for ip in inside {
            assert!(read.contains(ip.parse().unwrap()), "{ip} is in {network}");
        }
        for ip in outside {
            assert!(
                !read.contains(ip.parse().unwrap()),
                "{ip} is not in {network}"
            );
        }
    }

    #[test]
    fn an_address_is_in_a_network_by_its_first_bits() {
        check(
            "10.0.0.0/8",
            &["10.0.0.0", "10.255.255.255", "::ffff:10.1.2.3"],
            &["11.0.0.0", "9.255.255.255", "::a00:1"],
        );
        check("10.0.0.7", &["10.0.0.7"], &["10.0.0.6", "10.0.0.8"]);
        check(
            "192.168.4.0/22",
            &["192.168.7.255"],
            &["192.168.8.0", "192.168.3.255"],
        );
        check(
            "0.0.0.0/0",
            &["0.0.0.0", "255.255.255.255"],
            &["::1", "2001:db8::1"],
        );
        check("::/0", &["::1", "ffff::"], &["10.0.0.1", "::ffff:10.0.0.1"]);
        check(
            "2001:db8::/32",
            &["2001:db8::1", "2001:db8:ffff::"],
            &["2001:db9::", "2001:db7:ffff::"],
        );
        check("::1", &["::1"], &["::2", "127.0.0.1"]);
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in [
            "",
            "/",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "10.0.0.0/8/8",
            "::/129",
            "10.0.0",
            "a.example",
            "10.0.0.1/8",
            "2001:db8::1/32",
            "::ffff:10.0.0.0/104",
            " 10.0.0.0/8",
        ] {
            assert_eq!(text.parse::<IpNetwork>(), Err(InvalidNetwork), "{text:?}");
        }
        assert_eq!(
            "10.0.0.0/8".parse::<IpNetwork>().unwrap().to_string(),
            "10.0.0.0/8"
        );
    }
}
