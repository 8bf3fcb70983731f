//! Connection limits of one TCP port, and the choice of the connection that gives way to a new one.
//!
//! # Normal operation
//! The thread that accepts connections owns the [`Crowd`]. Each connection is served by a thread that holds its
//! [`Seat`] and records its phase there. Dropping the seat ends the connection. When the [`Listener`] is closed, the
//! thread ends, with the port and all idle connections, however long the process goes on.
//!
//! # Limits
//! [`CrowdLimits`] bounds all connections, and those of one address. If a new connection exceeds a bound, another is
//! closed for it: of the address with most connections, an idle one, else the one whose transfer has lasted longest. So
//! an address that fills the table loses its own connections first. A connection whose request is being served gives
//! way only if the request has been served for more than a second, and its address has more connections than the address
//! of the new connection. If no connection may give way, the new one is closed.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use haulage::crowd::{Candidate, Choice, choose, network};
pub use haulage::crowd::{CrowdLimits, Phase};
use haulage::sys::clock;
use haulage_proto::time::Instant;

mod listener;

pub use listener::Listener;

/// The connections of one port.
#[derive(Debug)]
pub struct Crowd {
    members: Vec<Arc<Member>>,
    limits: CrowdLimits,
}

/// The place of a connection in the crowd, held by the thread that serves it.
#[derive(Debug)]
pub struct Seat(Arc<Member>);

/// A connection whose reads and writes share one deadline.
#[derive(Debug)]
pub struct Timed<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

#[derive(Debug)]
struct Member {
    stream: TcpStream,
    network: u64,
    /// The phase in the upper two bits, and its start in the others; [`GONE`] once the seat is dropped.
    state: AtomicU64,
}

impl Crowd {
    /// Creates an empty crowd.
    pub const fn new(limits: CrowdLimits) -> Self {
        Self { members: Vec::new(), limits }
    }

    /// Admits a connection, in [`Phase::Transferring`]. If a limit is reached, closes another one for it, or returns
    /// `None` and closes the new one if every other is being served.
    pub fn admit(&mut self, stream: TcpStream, peer: IpAddr) -> Option<Seat> {
        self.members.retain(|member| member.state.load(Ordering::Acquire) != GONE);
        let network = network(peer);
        let now = now();
        let each = self.members.iter().enumerate();
        let candidates: Vec<_> = each.map(|(at, member)| member.candidate(at, now)).collect();
        match choose(&candidates, network, self.limits) {
            Choice::Welcome => {}
            Choice::Replace(at) => {
                let replaced = self.members.swap_remove(at);
                // `shutdown` fails only if the connection is gone. Its thread reads the end.
                let _ = replaced.stream.shutdown(Shutdown::Both);
            }
            Choice::Refuse => return None,
        }
        let member = Arc::new(Member { stream, network, state: AtomicU64::new(0) });
        let seat = Seat(Arc::clone(&member));
        // An idle connection gives way first; a new one gets time to send its request.
        seat.enter(Phase::Transferring);
        self.members.push(member);
        Some(seat)
    }

    /// Has every connection end once what is being served on it is answered.
    pub fn close(self) {
        for member in self.members {
            // `shutdown` fails only if the connection is gone. The thread of the connection reads the end.
            let _ = member.stream.shutdown(Shutdown::Read);
        }
    }
}

impl Seat {
    /// Records that the connection enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.0.state.store(bits(phase) | now(), Ordering::Release);
    }

    /// Returns the connection with a deadline of `time` from now for all reads and writes.
    pub fn within(&self, time: Duration) -> Timed<'_> {
        let deadline = clock::now().saturating_add(time);
        Timed { stream: &self.0.stream, deadline }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The crowd may hold the socket for longer; shutdown tells the peer now.
        let _ = self.0.stream.shutdown(Shutdown::Both);
        self.0.state.store(GONE, Ordering::Release);
    }
}

impl Timed<'_> {
    /// Returns the time left before the deadline.
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
        // The system applies its timeout to the whole of a `write`, so each writes at most a step.
        self.stream.write(bytes.get(..STEP).unwrap_or(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Member {
    fn candidate(&self, key: usize, now: u64) -> Candidate<usize, u64> {
        let state = self.state.load(Ordering::Acquire);
        let lasted = Duration::from_nanos(now.saturating_sub(state & SINCE));
        Candidate { key, origin: self.network, phase: phase_of(state), lasted }
    }
}

const fn bits(phase: Phase) -> u64 {
    match phase {
        Phase::Silent | Phase::Idle => 0,
        Phase::Transferring => 1 << PHASE_SHIFT,
        Phase::Serving => 2 << PHASE_SHIFT,
    }
}

/// Decodes the phase of a state. A dropped seat counts as idle: closing it loses nothing.
const fn phase_of(state: u64) -> Phase {
    match state >> PHASE_SHIFT {
        1 => Phase::Transferring,
        2 => Phase::Serving,
        _ => Phase::Idle,
    }
}

/// Returns the time as a state holds it.
fn now() -> u64 {
    let now = clock::now().saturating_since(Instant::ZERO).as_nanos();
    u64::try_from(now).unwrap_or(u64::MAX) & SINCE
}

/// Octets that one system call writes at most.
const STEP: usize = 64 << 10;

const PHASE_SHIFT: u32 = 62;
/// The bits of a state that hold the start of its phase, in nanoseconds: they last for 146 years.
const SINCE: u64 = (1 << PHASE_SHIFT) - 1;
/// The state of a dropped seat.
const GONE: u64 = u64::MAX;

#[cfg(test)]
mod tests;
