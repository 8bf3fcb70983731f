//! Netids, and the universal addresses that belong to them (RFC 5665).
//!
//! A universal address is an IP address and the two octets of the port, all with dots between:
//! `192.0.2.7.78.81` or `2001:db8::7.78.81`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The netid of a service, by its transport and the kind of its IP address. Those of RDMA are assigned for any RDMA network
/// that names services by IP address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Netid {
    /// `rdma`: IPv4.
    Rdma,
    /// `rdma6`: IPv6.
    Rdma6,
    /// `tcp`: TCP over IPv4.
    Tcp,
    /// `tcp6`: TCP over IPv6.
    Tcp6,
}

impl Netid {
    /// Returns the netid of RDMA services at addresses of this kind.
    pub const fn of(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::Rdma,
            //~ R5666-12-1: `Self::Rdma6` -> `Self::Rdma`
            IpAddr::V6(_) => Self::Rdma6,
        }
    }

    /// Returns the netid of TCP services at addresses of this kind.
    pub const fn of_tcp(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(_) => Self::Tcp,
            IpAddr::V6(_) => Self::Tcp6,
        }
    }

    /// Returns the loopback address of the kind that has this netid.
    pub(super) const fn loopback(self) -> IpAddr {
        match self {
            Self::Rdma | Self::Tcp => IpAddr::V4(Ipv4Addr::LOCALHOST),
            Self::Rdma6 | Self::Tcp6 => IpAddr::V6(Ipv6Addr::LOCALHOST),
        }
    }

    /// Returns the name of the netid.
    pub const fn name(self) -> &'static str {
        match self {
            //~ V2-12-1: `"rdma"` -> `"tcp"`
            Self::Rdma => "rdma",
            Self::Rdma6 => "rdma6",
            Self::Tcp => "tcp",
            Self::Tcp6 => "tcp6",
        }
    }
}

impl fmt::Display for Netid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Returns an address in the form of a universal address.
pub fn universal(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("{}.{high}.{low}", address.ip())
}

/// Parses a universal address.
pub fn parse_universal(text: &str) -> Option<SocketAddr> {
    let mut parts = text.rsplitn(3, '.');
    let low = octet(parts.next()?)?;
    let high = octet(parts.next()?)?;
    let host = parts.next()?;
    let ip = if host.contains(':') {
        IpAddr::V6(host.parse::<Ipv6Addr>().ok()?)
    } else {
        IpAddr::V4(host.parse::<Ipv4Addr>().ok()?)
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes([high, low])))
}

/// Parses decimal digits alone: the standard library would accept a sign as well.
fn octet(digits: &str) -> Option<u8> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_the_round_trip() {
        const V4: [&str; 2] = ["rdma", "tcp"];
        const V6: [&str; 2] = ["rdma6", "tcp6"];
        for (address, text, netids) in [
            ("192.0.2.7:20049", "192.0.2.7.78.81", V4),
            ("0.0.0.0:111", "0.0.0.0.0.111", V4),
            ("127.0.0.1:65535", "127.0.0.1.255.255", V4),
            ("[2001:db8::7]:20049", "2001:db8::7.78.81", V6),
            ("[::]:256", "::.1.0", V6),
            ("[::ffff:192.0.2.7]:1", "::ffff:192.0.2.7.0.1", V6),
        ] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(universal(address), text);
            assert_eq!(parse_universal(text), Some(address));
            let of = [Netid::of(address.ip()), Netid::of_tcp(address.ip())];
            assert_eq!(of.map(Netid::name), netids);
            assert!(of.iter().all(|netid| netid.loopback().is_ipv6() == address.is_ipv6()));
        }
    }

    #[test]
    fn anything_else_is_no_address() {
        for text in [
            "",
            "1",
            "1.2",
            ".",
            "..",
            "127.0.0.1",
            "127.0.0.1.78",
            "127.0.0.1.78.256",
            "127.0.0.1.-1.2",
            "127.0.0.1.+1.2",
            "127.0.0.1..2",
            "127.0.0.1.7.8 ",
            "127.0.0.1.2.7.8",
            "2001:db8::7",
            "2001:db8::g.7.8",
            "localhost.7.8",
            "/run/rpcbind.sock",
        ] {
            assert_eq!(parse_universal(text), None, "{text}");
        }
    }
}
