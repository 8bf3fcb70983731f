//! The addresses of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use crate::work::PeerUser;

/// Returns the addresses of all interfaces that are up, in the system's order.
pub fn addresses() -> std::io::Result<Vec<IpAddr>> {
    let mut list = ptr::null_mut();
    // SAFETY: the place is live for the call.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut found = Vec::new();
    let mut at: *const libc::ifaddrs = list;
    // SAFETY: the list is of live entries, each naming the next, until it is freed below.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        let up = entry.ifa_flags & libc::IFF_UP.cast_unsigned() != 0;
        found.extend(address(entry.ifa_addr).filter(|_| up));
    }
    // SAFETY: it came from getifaddrs and is freed once.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

/// Decides by a peer's address alone whether it may be on this machine.
pub fn user_at(peer: IpAddr) -> PeerUser {
    let peer = peer.to_canonical();
    let is_ours = || match addresses() {
        Ok(addresses) => addresses.iter().any(|address| address.to_canonical() == peer),
        Err(_) => true,
    };
    if peer.is_loopback() || is_ours() { PeerUser::Unknown } else { PeerUser::Remote }
}

/// Decodes an address that getifaddrs returned.
fn address(at: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: it is null or points to an address of the family it begins with.
    let family = unsafe { at.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: as above; of this family it is a sockaddr_in.
            let four = unsafe { at.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes()).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above; of this family it is a sockaddr_in6.
            let six = unsafe { at.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(six.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_its_loopback_address() {
        assert!(addresses().unwrap().iter().any(IpAddr::is_loopback));
    }
}
