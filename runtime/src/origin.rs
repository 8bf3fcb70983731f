//! Where connections come from: those of one origin share limits and turns.

use std::net::{IpAddr, SocketAddr};

/// The origin of connections: connections of one origin share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// This core made the connection.
    Ours,
    /// An IPv4 address.
    V4([u8; 4]),
    /// The first 64 bits of an IPv6 address: a host with one address of a network can have them all.
    V6([u8; 8]),
    /// A process of this machine.
    Process(u32),
}

impl Origin {
    /// Returns the origin of a connection from `peer`, or from a process of this machine, if that is known.
    pub(crate) fn of(peer: SocketAddr, process: Option<u32>) -> Self {
        match (process, peer.ip().to_canonical()) {
            (Some(process), _) => Self::Process(process),
            (None, IpAddr::V4(address)) => Self::V4(address.octets()),
            (None, IpAddr::V6(address)) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                Self::V6(network)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_an_address_a_network_of_64_bits_or_a_process() {
        let of = |text: &str, process| Origin::of(text.parse().unwrap(), process);
        assert_eq!(of("10.0.0.1:5", None), Origin::V4([10, 0, 0, 1]));
        assert_eq!(
            of("[::ffff:10.0.0.1]:5", None),
            of("10.0.0.1:6", None),
            "an IPv4 address all the same"
        );
        assert_eq!(of("[2001:db8::1]:5", None), of("[2001:db8::ffff:1]:6", None));
        assert_ne!(of("[2001:db8::1]:5", None), of("[2001:db8:0:1::1]:5", None));
        assert_eq!(of("127.0.0.1:0", Some(7)), Origin::Process(7));
    }
}
