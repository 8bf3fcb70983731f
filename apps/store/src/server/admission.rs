//! Which addresses may connect.

use std::net::IpAddr;

/// The networks whose addresses may connect.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Networks, each an address and a prefix length. An empty list admits all addresses.
    pub networks: Vec<(IpAddr, u8)>,
}

impl Admission {
    /// Returns whether a client at this address may connect.
    pub fn admits(&self, address: IpAddr) -> bool {
        // A dual-stack socket gives IPv4 addresses as IPv4-mapped IPv6 ones.
        let address = address.to_canonical();
        self.networks.is_empty() || self.networks.iter().any(|net| contains(net, address))
    }
}

/// Returns whether a network contains `address`.
fn contains((network, bits): &(IpAddr, u8), address: IpAddr) -> bool {
    let (ours, theirs, width) = match (network, address) {
        (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
            (u128::from(ours.to_bits()), u128::from(theirs.to_bits()), 32)
        }
        (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
        _ => return false,
    };
    let rest = u32::from(width - (*bits).min(width));
    ours.checked_shr(rest).unwrap_or(0) == theirs.checked_shr(rest).unwrap_or(0)
}
