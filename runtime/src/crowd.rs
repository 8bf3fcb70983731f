//! The choice of the TCP connection that gives way to a new one.
//!
//! # Limits
//! [`CrowdLimits`] bounds all connections of a port, and those of one network. If a new connection exceeds a bound, another
//! gives way to it: of the network with most connections, an idle one, else the one whose transfer has lasted longest. So
//! a network that fills the table loses its own connections first. A connection whose request is being served gives
//! way only if the request has been served for more than a second, and its network has more connections than that of the
//! new connection. If no connection may give way, the new one does.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The limits of the connections of one port.
#[derive(Clone, Copy, Debug)]
pub struct CrowdLimits {
    /// Maximum connections in total.
    pub connections_max: usize,
    /// Maximum connections from one IPv4 address, or from one IPv6 network of 64 bits.
    pub each_max: usize,
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The connection waits for a request.
    Idle,
    /// The peer is sending a request, or receiving a response.
    Transferring,
    /// The server works on the request.
    Serving,
}

/// The facts about a connection by which one is chosen to be closed.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The network of the peer.
    pub network: u64,
    /// The phase of the connection.
    pub phase: Phase,
    /// When the phase began, in nanoseconds of any clock.
    pub since: u64,
    /// Whether the phase has lasted longer than a request is served without waiting for anybody ([`SLOW`]).
    pub is_slow: bool,
}

/// The decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Admit: there is room.
    Welcome,
    /// Admit, and close this connection to make room.
    Replace(usize),
    /// Refuse: there is no room.
    Refuse,
}

/// Decides about a new connection from the network `newcomer`.
pub fn choose(candidates: &[Candidate], newcomer: u64, limits: CrowdLimits) -> Choice {
    let mut counts = BTreeMap::new();
    for candidate in candidates {
        *counts.entry(candidate.network).or_insert(0_usize) += 1;
    }
    let own = counts.get(&newcomer).copied().unwrap_or(0);
    let is_capped = own >= limits.each_max;
    if candidates.len() < limits.connections_max && !is_capped {
        return Choice::Welcome;
    }
    let may_go = |candidate: &Candidate| {
        let has_more = || counts.get(&candidate.network).is_some_and(|count| *count > own);
        let may_end = candidate.phase != Phase::Serving || candidate.is_slow && has_more();
        may_end && (!is_capped || candidate.network == newcomer)
    };
    // Of equals, the first goes.
    let evictable = candidates.iter().enumerate().rev().filter(|(_, candidate)| may_go(candidate));
    let first = evictable.max_by_key(|(_, Candidate { network, phase, since, .. })| {
        (counts.get(network).copied(), *phase == Phase::Idle, u64::MAX - since)
    });
    first.map_or(Choice::Refuse, |(at, _)| Choice::Replace(at))
}

/// Returns the network of an address: an IPv4 address, or the first 64 bits of an IPv6 one, from which one host can
/// choose many addresses.
pub fn network(address: IpAddr) -> u64 {
    match address.to_canonical() {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => {
            let [a, b, c, d, e, f, g, h, ..] = v6.octets();
            u64::from_be_bytes([a, b, c, d, e, f, g, h])
        }
    }
}

/// How long a request is served at most unless it waits for somebody, such as a local process that locks a file.
pub const SLOW: Duration = Duration::from_secs(1);
