//! How clients find servers: at an address, or by the rpcbind of a host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use haulage::rpcbind::{Endpoint, Fault, Netid, Rpcbind};
use haulage::sys::clock;

use crate::calling;
use crate::cli::address::{Address, needs_scope};
use crate::cli::rpcbind::ServerAddress;
use crate::failure::Failure;
use crate::output::progress::Step;

use super::service::NamedProgram;

/// Returns the address of a server that serves a program over RDMA, within `timeout` for each look-up.
///
/// # Errors
/// The name of the host has no address. Or no rpcbind answers there, or it knows of no such server.
pub fn server(
    server: &ServerAddress,
    wanted: NamedProgram,
    timeout: Duration,
) -> Result<SocketAddr, Failure> {
    match server {
        ServerAddress::At(address) => calling::reachable(&address.resolve(Some(timeout))?, timeout),
        ServerAddress::Registered(rpcbind) => {
            let found = look_up(rpcbind, wanted, Netid::of, timeout)?;
            found.map_err(|why| explain(rpcbind, wanted, &why))
        }
    }
}

/// Returns the address at which the host of a server serves another program over TCP: as rpcbind says, if the server is
/// looked up there and it says so, or else at the port that is usual.
///
/// # Errors
/// The name of the host has no address.
pub fn over_tcp(
    server: &ServerAddress,
    wanted: NamedProgram,
    (usual, timeout): (u16, Duration),
) -> Result<SocketAddr, Failure> {
    let host = match server {
        ServerAddress::At(address) => address,
        ServerAddress::Registered(rpcbind) => {
            if let Ok(found) = look_up(rpcbind, wanted, Netid::of_tcp, timeout)? {
                return Ok(found);
            }
            rpcbind
        }
    };
    calling::reachable(&host.with_port(usual).resolve(Some(timeout))?, timeout)
}

/// Why an rpcbind does not lead to a server.
enum Unfound {
    /// It does not answer as it should.
    Unheard(Fault),
    /// It knows of none.
    Unknown,
    /// It knows one that serves its own machine alone, at this address.
    Loopback(SocketAddr),
}

/// Asks the rpcbind at one address of its host after another, until one leads to a server.
fn look_up(
    rpcbind: &Address,
    wanted: NamedProgram,
    netid: fn(IpAddr) -> Netid,
    timeout: Duration,
) -> Result<Result<SocketAddr, Unfound>, Failure> {
    let deadline = clock::now().saturating_add(timeout);
    let hosts = rpcbind.resolve(Some(timeout))?;
    let _step = Step::begin(format_args!("asking the rpcbind of {}", rpcbind.host()));
    let mut why = Unfound::Unknown;
    for (at, left) in hosts.iter().zip((1..=hosts.len()).rev()) {
        // One address that does not answer leaves time for the others.
        let within = deadline.saturating_since(clock::now()) / u32::try_from(left).unwrap_or(1);
        let asked = Rpcbind::at(vec![Endpoint::Tcp(*at)], within);
        match ask(&asked, *at, wanted, netid) {
            Ok(found) => return Ok(Ok(found)),
            Err(Unfound::Unknown) => {}
            Err(other) => why = other,
        }
    }
    Ok(Err(why))
}

/// Asks the rpcbind at `at` for an address of its own kind, and then for one of the other kind.
fn ask(
    rpcbind: &Rpcbind,
    at: SocketAddr,
    wanted: NamedProgram,
    netid: fn(IpAddr) -> Netid,
) -> Result<SocketAddr, Unfound> {
    let other: IpAddr = match at.ip() {
        IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED.into(),
    };
    let mut why = Unfound::Unknown;
    for netid in [netid(at.ip()), netid(other)] {
        match rpcbind.look_up(wanted.program, netid).map_err(Unfound::Unheard)? {
            // At all addresses of the other kind, of which `at` is none.
            Some(found) if found.ip().is_unspecified() => {}
            Some(found) if found.ip().is_loopback() && !at.ip().is_loopback() => {
                why = Unfound::Loopback(found);
            }
            Some(found) => return Ok(on_link_of(found, at)),
            None => {}
        }
    }
    Err(why)
}

/// Returns an address on the link of `host`, if it is link-local: rpcbind does not tell the link.
fn on_link_of(mut found: SocketAddr, host: SocketAddr) -> SocketAddr {
    if let (true, SocketAddr::V6(found), SocketAddr::V6(host)) =
        (needs_scope(&found), &mut found, host)
    {
        found.set_scope_id(host.scope_id());
    }
    found
}

/// Returns what to do where rpcbind does not lead to a server.
fn explain(rpcbind: &Address, wanted: NamedProgram, why: &Unfound) -> Failure {
    let (host, NamedProgram { name, program, served_by }) = (rpcbind.host(), wanted);
    Failure::failed(match why {
        Unfound::Unheard(Fault::Absent(_)) => format!(
            "no rpcbind listens at {host}; start it there, or give the address of the server with --connect"
        ),
        Unfound::Unheard(fault) => format!(
            "cannot ask the rpcbind of {host}: {fault}; give the address of the server with --connect"
        ),
        Unfound::Unknown => format!(
            "the rpcbind of {host} knows of no {name} ({program}) over RDMA; start `{served_by} --register` there, or give \
             the address of the server with --connect"
        ),
        Unfound::Loopback(at) => format!(
            "the rpcbind of {host} has {name} ({program}) at {at}, which only its own machine reaches; start `{served_by}` \
             there with another --listen"
        ),
    })
}
