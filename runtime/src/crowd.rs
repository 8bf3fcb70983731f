//! Admission where there is no room: which connection gives way to a newcomer.
//!
//! # Normal operation
//! A newcomer is admitted while there is room, for its origin and for all. When there is none, another connection gives
//! way: of the origin with most connections, the one that can be spared most by its [`Phase`], and of these the one that has
//! been in its phase longest. [`Rules`] say in which phases a connection gives way, after how long, and to whom. If no
//! connection may give way, the newcomer is refused.
//!
//! So an origin that fills the table loses its own connections first.
//!
//! # Limits
//! Connections are looked at one by one only when a newcomer finds no room.

use std::cmp::Reverse;
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

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The peer has asked for nothing since it connected.
    Silent,
    /// The connection waits for a request.
    Idle,
    /// The peer is sending a request, or receiving a response.
    Transferring,
    /// The server works on the request.
    Serving,
}

/// A connection that may give way: its name, and the facts by which one is chosen.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<K, O> {
    /// Names the connection.
    pub key: K,
    /// The origin of the peer: connections of one origin share a limit.
    pub origin: O,
    /// The phase of the connection.
    pub phase: Phase,
    /// How long the phase has lasted.
    pub lasted: Duration,
}

/// In which phases connections give way.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Those whose peers have asked for nothing.
    pub silent: Option<Grace>,
    /// Those that wait for a request.
    pub idle: Option<Grace>,
    /// Those of which a request or a response is under way.
    pub transferring: Option<Grace>,
    /// Those whose request is being served.
    pub serving: Option<Grace>,
}

/// How long a phase lasts before a connection gives way, and to whom.
#[derive(Clone, Copy, Debug)]
pub struct Grace {
    /// How long the phase has lasted at least.
    pub after: Duration,
    /// To whom.
    pub to: To,
}

/// To whom a connection gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// To any newcomer.
    Any,
    /// To one of its own origin, or of an origin with fewer connections.
    OwnOrFewer,
    /// To one of an origin with fewer connections.
    Fewer,
}

impl Rules {
    /// The rules for ports over TCP: a client may connect again and repeat what it has asked for.
    pub const TCP: Self = {
        let at_once = Some(Grace { after: Duration::ZERO, to: To::Any });
        let slow = Some(Grace { after: SLOW, to: To::Fewer });
        Self { silent: at_once, idle: at_once, transferring: at_once, serving: slow }
    };

    const fn of(&self, phase: Phase) -> Option<Grace> {
        match phase {
            Phase::Silent => self.silent,
            Phase::Idle => self.idle,
            Phase::Transferring => self.transferring,
            Phase::Serving => self.serving,
        }
    }
}

/// The numbers of connections, by origin.
#[derive(Debug)]
pub struct Occupancy<O> {
    all: u32,
    by_origin: BTreeMap<O, u32>,
}

impl<O> Default for Occupancy<O> {
    fn default() -> Self {
        Self { all: 0, by_origin: BTreeMap::new() }
    }
}

impl<O: Ord + Copy> Occupancy<O> {
    /// Counts a connection.
    pub fn enter(&mut self, origin: O) {
        self.all += 1;
        *self.by_origin.entry(origin).or_default() += 1;
    }

    /// Stops counting a connection.
    pub fn leave(&mut self, origin: O) {
        self.all -= 1;
        if let Some(count) = self.by_origin.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.by_origin.remove(&origin);
            }
        }
    }

    /// Returns how many connections there are.
    pub const fn all(&self) -> u32 {
        self.all
    }

    /// Returns the number of connections of one origin.
    pub fn of(&self, origin: O) -> u32 {
        self.by_origin.get(&origin).copied().unwrap_or(0)
    }

    /// Judges a newcomer where there may be `all_max` connections, `each_max` of them of one origin.
    pub fn judge(&self, newcomer: O, all_max: u32, each_max: u32) -> Verdict {
        if self.of(newcomer) >= each_max {
            Verdict::Replace(Scope::Own)
        } else if self.all >= all_max {
            Verdict::Replace(Scope::Any)
        } else {
            Verdict::Admit
        }
    }

    /// Chooses which of the candidates gives way to a newcomer, if any does. Of equals, the first does.
    pub fn victim<K>(
        &self,
        (newcomer, scope): (O, Scope),
        rules: &Rules,
        candidates: impl Iterator<Item = Candidate<K, O>>,
    ) -> Option<K> {
        let own = self.of(newcomer);
        let may_go = |candidate: &Candidate<K, O>| {
            let grace = rules.of(candidate.phase).filter(|grace| candidate.lasted >= grace.after);
            let is_own = candidate.origin == newcomer;
            let has_more = || self.of(candidate.origin) > own;
            grace.is_some_and(|grace| {
                let gives_way = match grace.to {
                    To::Any => true,
                    To::OwnOrFewer => is_own || has_more(),
                    To::Fewer => has_more(),
                };
                gives_way && (is_own || scope == Scope::Any)
            })
        };
        let rank = |(at, candidate): &(usize, Candidate<K, O>)| {
            let phase = match candidate.phase {
                Phase::Silent if candidate.lasted >= SETTLING_MAX => 3,
                Phase::Idle => 2,
                // Requests that are served for ever would fill the table if those under way went first.
                Phase::Transferring | Phase::Serving => 1,
                // A connection that has just come may be about to make its first request, and goes last.
                Phase::Silent => 0,
            };
            (self.of(candidate.origin), phase, candidate.lasted, Reverse(*at))
        };
        let candidates = candidates.filter(may_go).enumerate();
        candidates.max_by_key(rank).map(|(_, candidate)| candidate.key)
    }
}

/// The verdict on a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is room.
    Admit,
    /// A connection of this kind has to go first.
    Replace(Scope),
}

/// Connections that may give way to a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Connections of the newcomer's origin, which has reached its limit.
    Own,
    /// Any: there is room for no more.
    Any,
}

/// The decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice<K> {
    /// Admit: there is room.
    Welcome,
    /// Admit, and close this connection to make room.
    Replace(K),
    /// Refuse: there is no room.
    Refuse,
}

/// Decides about a new connection over TCP of the origin `newcomer`, beside all that there are.
pub fn choose<K: Copy, O: Ord + Copy>(
    all: &[Candidate<K, O>],
    newcomer: O,
    limits: CrowdLimits,
) -> Choice<K> {
    let mut occupancy = Occupancy::default();
    all.iter().for_each(|candidate| occupancy.enter(candidate.origin));
    let [all_max, each_max] = [limits.connections_max, limits.each_max]
        .map(|limit| u32::try_from(limit).unwrap_or(u32::MAX));
    match occupancy.judge(newcomer, all_max, each_max) {
        Verdict::Admit => Choice::Welcome,
        Verdict::Replace(scope) => {
            let victim = occupancy.victim((newcomer, scope), &Rules::TCP, all.iter().copied());
            victim.map_or(Choice::Refuse, Choice::Replace)
        }
    }
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

/// How long a connection has for its first request before it goes sooner than idle ones.
const SETTLING_MAX: Duration = Duration::from_secs(5);
