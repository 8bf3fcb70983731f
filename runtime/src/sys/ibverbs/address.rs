//! Socket addresses in the libraries' form.

use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ptr;

use libc::{sa_family_t, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// Encodes an address.
pub(super) fn encode(address: SocketAddr) -> sockaddr_storage {
    let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
    match address {
        SocketAddr::V4(v4) => {
            let four = sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage has room for, and the alignment of, any address.
            unsafe { storage.as_mut_ptr().cast::<sockaddr_in>().write(four) };
        }
        SocketAddr::V6(v6) => {
            let six = sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { storage.as_mut_ptr().cast::<sockaddr_in6>().write(six) };
        }
    }
    // SAFETY: it is integers, all of them zeroed or written.
    unsafe { storage.assume_init() }
}

/// Decodes an address of either family.
pub(super) fn decode(address: &sockaddr_storage) -> Option<SocketAddr> {
    let start = ptr::from_ref(address);
    match i32::from(address.ss_family) {
        libc::AF_INET => {
            // SAFETY: a sockaddr_storage of this family begins with a sockaddr_in, all integers.
            let four = unsafe { start.cast::<sockaddr_in>().read() };
            let ip = Ipv4Addr::from(four.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(four.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: a sockaddr_storage of this family begins with a sockaddr_in6, all integers.
            let six = unsafe { start.cast::<sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(six.sin6_addr.s6_addr);
            let port = u16::from_be(six.sin6_port);
            Some(SocketAddrV6::new(ip, port, six.sin6_flowinfo, six.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Returns the address in the type that functions take.
pub(super) const fn raw(address: &mut sockaddr_storage) -> *mut sockaddr {
    ptr::from_mut(address).cast()
}

fn family(family: libc::c_int) -> sa_family_t {
    sa_family_t::try_from(family).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_survives_being_written_down() {
        for text in ["10.0.2.15:20049", "[fe80::1%3]:1", "[2001:db8::5]:65535", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(decode(&encode(address)), Some(address));
        }
        // SAFETY: a sockaddr_storage is integers.
        assert_eq!(decode(&unsafe { std::mem::zeroed() }), None);
    }
}
