//! The TCP connections of one listening port: how many there are, and which one gives way to a newcomer.
//!
//! # Normal operation
//! The thread that accepts connections owns the [`Crowd`]; each connection is served by a thread that holds its [`Seat`]
//! and says there what it is doing. Leaving is dropping the seat.
//!
//! # Limits
//! Connections are limited ([`CrowdLimits`]), and so are those of one address. Where a newcomer finds no room,
//! one connection is closed for it: of the address with most connections, one that is idle, else the one whose
//! transfer has lasted longest. So an address that fills the table loses its own connections first. A connection whose
//! request is being served stays; if there are no others, the newcomer goes.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use haulage::sys::clock;
use haulage_proto::time::Instant;

/// The connections of one port.
#[derive(Debug)]
pub struct Crowd {
    members: Vec<Arc<Member>>,
    limits: CrowdLimits,
}

/// How many connections a [`Crowd`] has at most.
#[derive(Clone, Copy, Debug)]
pub struct CrowdLimits {
    /// In all.
    pub connections_max: usize,
    /// From one IPv4 address, or from one IPv6 network of 64 bits.
    pub each_max: usize,
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits for a request.
    Idle,
    /// The peer sends a request, or takes a response.
    Transferring,
    /// We work on its request.
    Serving,
}

/// A connection in the crowd, for the thread that serves it.
#[derive(Debug)]
pub struct Seat(Arc<Member>);

/// Reads and writes of a connection that end, all of them, before a deadline.
#[derive(Debug)]
pub struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

#[derive(Debug)]
struct Member {
    stream: TcpStream,
    network: u128,
    /// The phase in the upper two bits, and when it began in the others; [`GONE`] when the seat was left.
    state: AtomicU64,
}

/// A connection as the choice among them sees it.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    network: u128,
    phase: Phase,
    since: u64,
}

/// What becomes of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// There is room.
    Welcome,
    /// There is, once this connection is closed.
    Replace(usize),
    /// There is none.
    Refuse,
}

impl Crowd {
    /// Makes an empty crowd.
    pub const fn new(limits: CrowdLimits) -> Self {
        Self { members: Vec::new(), limits }
    }

    /// Takes a connection in as [`Phase::Transferring`], if need be in place of another, which is closed. Returns
    /// `None`, and closes the new one, if every other is being served.
    pub fn admit(&mut self, stream: TcpStream, peer: IpAddr) -> Option<Seat> {
        self.members.retain(|member| member.state.load(Ordering::Acquire) != GONE);
        let network = network(peer);
        let candidates: Vec<_> = self.members.iter().map(|member| member.candidate()).collect();
        match choose(&candidates, network, self.limits) {
            Choice::Welcome => {}
            Choice::Replace(at) => {
                let replaced = self.members.swap_remove(at);
                // The only failure is a connection that is gone already. Its thread reads the end.
                let _ = replaced.stream.shutdown(Shutdown::Both);
            }
            Choice::Refuse => return None,
        }
        let member = Arc::new(Member { stream, network, state: AtomicU64::new(0) });
        let seat = Seat(Arc::clone(&member));
        // It has come to say something, and is not to give way before it could.
        seat.enter(Phase::Transferring);
        self.members.push(member);
        Some(seat)
    }
}

impl Seat {
    /// Says what the connection does from now on.
    pub fn enter(&self, phase: Phase) {
        let now = clock::now().saturating_since(Instant::ZERO).as_nanos();
        let since = u64::try_from(now).unwrap_or(u64::MAX) & SINCE;
        self.0.state.store(phase.bits() | since, Ordering::Release);
    }

    /// Returns the connection, to be read and written within `time` from now.
    pub fn within(&self, time: Duration) -> Timed<'_> {
        Timed { stream: &self.0.stream, deadline: clock::now().saturating_add(time) }
    }

    /// Returns the connection.
    pub fn stream(&self) -> &TcpStream {
        &self.0.stream
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The crowd may hold the socket for longer, and the peer is to know now.
        let _ = self.0.stream.shutdown(Shutdown::Both);
        self.0.state.store(GONE, Ordering::Release);
    }
}

impl Timed<'_> {
    /// Returns the time that is left.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.deadline.saturating_since(clock::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Member {
    fn candidate(&self) -> Candidate {
        let state = self.state.load(Ordering::Acquire);
        Candidate { network: self.network, phase: Phase::of(state), since: state & SINCE }
    }
}

impl Phase {
    const fn bits(self) -> u64 {
        match self {
            Self::Idle => 0,
            Self::Transferring => 1 << PHASE_SHIFT,
            Self::Serving => 2 << PHASE_SHIFT,
        }
    }

    /// Reads the phase of a state. A seat that was left counts as idle: nothing is lost by closing it.
    const fn of(state: u64) -> Self {
        match state >> PHASE_SHIFT {
            1 => Self::Transferring,
            2 => Self::Serving,
            _ => Self::Idle,
        }
    }
}

/// Chooses what becomes of a newcomer from `newcomer`.
fn choose(candidates: &[Candidate], newcomer: u128, limits: CrowdLimits) -> Choice {
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
        candidate.phase != Phase::Serving && (!is_capped || candidate.network == newcomer)
    };
    let evictable = candidates.iter().enumerate().filter(|(_, candidate)| may_go(candidate));
    let first = evictable.max_by_key(|(_, Candidate { network, phase, since })| {
        (counts.get(network).copied(), *phase == Phase::Idle, u64::MAX - since)
    });
    first.map_or(Choice::Refuse, |(at, _)| Choice::Replace(at))
}

/// Names what one host can choose addresses from: an IPv4 address, or the first 64 bits of an IPv6 one.
pub(crate) fn network(address: IpAddr) -> u128 {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits() & !u128::from(u64::MAX),
    }
}

const PHASE_SHIFT: u32 = 62;
/// The bits of a state that say since when, in nanoseconds: for 146 years.
const SINCE: u64 = (1 << PHASE_SHIFT) - 1;
/// The state of a seat that was left.
const GONE: u64 = u64::MAX;

#[cfg(test)]
mod tests;
