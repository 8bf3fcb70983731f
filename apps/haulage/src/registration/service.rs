//! What servers register: programs at addresses.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use haulage::rpcbind::{Netid, Program};
use haulage_kv::protocol;
use haulage_store::{mount3, nfs3};

/// A version of a program, with the name by which users know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedProgram {
    /// The name.
    pub name: &'static str,
    /// The number and the version.
    pub program: Program,
    /// The command that serves it.
    pub served_by: &'static str,
}

impl NamedProgram {
    /// The key-value service.
    pub const KV: Self = Self {
        name: "key-value service",
        program: Program { program: protocol::PROGRAM, version: protocol::VERSION },
        served_by: "haulage kv serve",
    };
    /// NFS version 3.
    pub const NFS: Self = Self {
        name: "NFS",
        program: Program { program: nfs3::PROGRAM, version: nfs3::VERSION },
        served_by: "haulage store serve",
    };
    /// MOUNT version 3.
    pub const MOUNT: Self = Self {
        name: "MOUNT",
        program: Program { program: mount3::PROGRAM, version: mount3::VERSION },
        served_by: "haulage store serve",
    };

    /// Returns the program as it is served over RDMA by a server that listens at `bound`.
    pub fn over_rdma(self, bound: SocketAddr) -> Vec<Service> {
        self.at(bound, Netid::of)
    }

    /// Returns the program as it is served over TCP by a server that listens at `bound`, if it does.
    pub fn over_tcp(self, bound: Option<SocketAddr>) -> Vec<Service> {
        bound.map(|bound| self.at(bound, Netid::of_tcp)).unwrap_or_default()
    }

    fn at(self, bound: SocketAddr, netid: fn(IpAddr) -> Netid) -> Vec<Service> {
        let service =
            |address: SocketAddr| Service { of: self, netid: netid(address.ip()), address };
        addresses(bound, takes_ipv4()).into_iter().map(service).collect()
    }
}

/// A program that is served at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The program.
    pub of: NamedProgram,
    /// How it is served.
    pub netid: Netid,
    /// Where it is served.
    pub address: SocketAddr,
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of: NamedProgram { name, program, .. }, netid, .. } = self;
        write!(f, "{name} ({program}) for {netid}")
    }
}

/// The kinds of address that reach a socket that is bound to the unspecified IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    /// IPv6 alone.
    Ipv6,
    /// IPv4, too.
    Both,
}

/// Returns the addresses to register for a socket that is bound to `bound`: one for each kind by which it is reached.
fn addresses(bound: SocketAddr, takes: Takes) -> Vec<SocketAddr> {
    let unspecified = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), bound.port());
    match (bound.ip(), takes) {
        (IpAddr::V6(ip), Takes::Both) if ip.is_unspecified() => vec![bound, unspecified],
        _ => vec![bound],
    }
}

/// Returns what sockets of this machine that are bound to the unspecified IPv6 address take, unless they ask for
/// something else, as ours do not.
fn takes_ipv4() -> Takes {
    match fs::read_to_string("/proc/sys/net/ipv6/bindv6only") {
        Ok(only) if only.trim() == "1" => Takes::Ipv6,
        _ => Takes::Both,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_the_netid_of_its_address() {
        let netids = |services: Vec<Service>| {
            services.into_iter().map(|service| service.netid.name()).collect::<Vec<_>>()
        };
        let (v4, v6) = ("192.0.2.7:1".parse().unwrap(), "[2001:db8::7]:1".parse().unwrap());
        assert_eq!(netids(NamedProgram::NFS.over_rdma(v4)), ["rdma"]);
        assert_eq!(netids(NamedProgram::NFS.over_rdma(v6)), ["rdma6"]);
        assert_eq!(netids(NamedProgram::MOUNT.over_tcp(Some(v4))), ["tcp"]);
        assert_eq!(netids(NamedProgram::MOUNT.over_tcp(Some(v6))), ["tcp6"]);
        assert!(NamedProgram::MOUNT.over_tcp(None).is_empty());
    }

    #[test]
    fn a_server_at_all_addresses_is_registered_for_each_kind_that_reaches_it() {
        let any = "[::]:20049".parse().unwrap();
        assert_eq!(addresses(any, Takes::Both), [any, "0.0.0.0:20049".parse().unwrap()]);
        assert_eq!(addresses(any, Takes::Ipv6), [any]);
        for one in ["0.0.0.0:1", "[::1]:1", "192.0.2.7:1"] {
            let one = one.parse().unwrap();
            assert_eq!(addresses(one, Takes::Both), [one]);
        }
    }
}
