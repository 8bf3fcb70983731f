//! Admission: which peers may connect when a core is full, and which connection goes in favour of a newcomer.
//!
//! # Normal operation
//!
//! A newcomer is admitted while there is room, for its address and for all. When there is none, one connection with
//! nothing under way goes in its favour: one that never made a Call, or else one that has been idle for [`IDLE_MIN`].
//! Of several, one of the address with the most connections goes, and of these the one that has been idle longest. If
//! none may go, the newcomer is rejected.
//!
//! An address never gains by this: a newcomer takes the place of an idle connection of its own address, or of one with
//! more connections than its own. So an attacker loses its own connections first.
//!
//! # Limits
//!
//! Connections are looked at one by one only when a newcomer finds no room.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use haulage_proto::time::Instant;

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

/// The numbers of connections, without those that are closing. Those that are over count as long as their peer may
/// still touch memory.
#[derive(Debug, Default)]
pub(crate) struct Occupancy {
    all: u32,
    by_origin: BTreeMap<Origin, u32>,
}

impl Occupancy {
    /// Counts a connection.
    pub(crate) fn enter(&mut self, origin: Origin) {
        self.all += 1;
        *self.by_origin.entry(origin).or_default() += 1;
    }

    /// Stops counting a connection.
    pub(crate) fn leave(&mut self, origin: Origin) {
        self.all -= 1;
        if let Some(count) = self.by_origin.get_mut(&origin) {
            *count -= 1;
            if *count == 0 {
                self.by_origin.remove(&origin);
            }
        }
    }

    /// Returns how many connections there are.
    pub(crate) const fn all(&self) -> u32 {
        self.all
    }

    /// Returns the number of connections of one origin.
    pub(crate) fn of(&self, origin: Origin) -> u32 {
        self.by_origin.get(&origin).copied().unwrap_or(0)
    }

    /// Judges a newcomer where there may be `all_max` connections, `each_max` of them of one origin.
    pub(crate) fn judge(&self, newcomer: Origin, all_max: u32, each_max: u32) -> Verdict {
        if self.of(newcomer) >= each_max {
            Verdict::Replace(Scope::Own)
        } else if self.all >= all_max {
            Verdict::Replace(Scope::Any)
        } else {
            Verdict::Admit
        }
    }
}

/// The verdict on a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is room.
    Admit,
    /// A connection of this kind has to go first.
    Replace(Scope),
}

/// Connections that may go in favour of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Connections of the newcomer's origin, which has reached its limit.
    Own,
    /// Any: the core is full.
    Any,
}

/// A connection with nothing under way, for which nothing is promised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate<K> {
    pub(crate) key: K,
    pub(crate) origin: Origin,
    pub(crate) calls: Calls,
    /// When it was last active, or when it was made.
    pub(crate) active: Instant,
}

/// Whether a peer ever made a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Calls {
    /// The peer has made no Call.
    Never,
    /// The peer has made at least one Call.
    Some,
}

/// Chooses which of the candidates goes in favour of a newcomer, if any does.
pub(crate) fn victim<K>(
    now: Instant,
    (newcomer, scope): (Origin, Scope),
    occupancy: &Occupancy,
    candidates: impl Iterator<Item = Candidate<K>>,
) -> Option<K> {
    let own = occupancy.of(newcomer);
    let may_go = |candidate: &Candidate<K>| {
        let silent = candidate.calls == Calls::Never;
        let idle = now.saturating_since(candidate.active) >= IDLE_MIN;
        let is_own = candidate.origin == newcomer;
        let crowded = silent || occupancy.of(candidate.origin) > own;
        (silent || idle) && (is_own || scope == Scope::Any && crowded)
    };
    let rank = |candidate: &Candidate<K>| {
        let idle = now.saturating_since(candidate.active);
        // A connection that has just come may be about to make its first Call, and goes last.
        let reason = match candidate.calls {
            Calls::Never if idle < SETTLING_MAX => 0,
            Calls::Some => 1,
            Calls::Never => 2,
        };
        (reason, occupancy.of(candidate.origin), idle)
    };
    candidates.filter(may_go).max_by_key(rank).map(|candidate| candidate.key)
}

/// How long a connection has for its first Call before it goes sooner than idle ones.
const SETTLING_MAX: Duration = Duration::from_secs(5);

/// How long a connection that made Calls is idle before it may go in favour of another.
pub(crate) const IDLE_MIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1000;
    const A: Origin = Origin::V4([10, 0, 0, 1]);
    const B: Origin = Origin::V4([10, 0, 0, 2]);
    const C: Origin = Origin::V4([10, 0, 0, 3]);

    fn at(second: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(second))
    }

    /// Each row: the origin of a connection, whether it made Calls, the seconds it has been idle.
    type Rows = [(Origin, Calls, u64)];

    fn chosen(newcomer: Origin, scope: Scope, rows: &Rows) -> Option<usize> {
        let mut occupancy = Occupancy::default();
        rows.iter().for_each(|(origin, ..)| occupancy.enter(*origin));
        let candidates = rows.iter().enumerate().map(|(key, (origin, calls, idle))| Candidate {
            key,
            origin: *origin,
            calls: *calls,
            active: at(NOW - idle),
        });
        victim(at(NOW), (newcomer, scope), &occupancy, candidates)
    }

    #[test]
    fn who_goes_in_favour_of_a_newcomer() {
        use Calls::{Never, Some as Made};
        use Scope::{Any, Own};
        for (what, newcomer, scope, rows, expected) in [
            ("nobody is there", C, Any, &[][..], None),
            ("all were active lately", C, Any, &[(A, Made, 59), (A, Made, 0)], None),
            ("one was idle long enough", C, Any, &[(A, Made, 59), (A, Made, 60)], Some(1)),
            ("the longest idle", C, Any, &[(A, Made, 70), (A, Made, 90), (A, Made, 80)], Some(1)),
            ("one without Calls first", C, Any, &[(A, Made, 900), (A, Never, 5)], Some(1)),
            ("one that has just come last", C, Any, &[(A, Made, 900), (A, Never, 4)], Some(0)),
            ("unless it is alone", C, Any, &[(A, Made, 9), (A, Never, 0)], Some(1)),
            (
                "the oldest of these",
                C,
                Any,
                &[(A, Never, 1), (A, Never, 3), (A, Never, 2)],
                Some(1),
            ),
            (
                "of the most crowded",
                C,
                Any,
                &[(B, Made, 900), (A, Made, 61), (A, Made, 62)],
                Some(2),
            ),
            (
                "of the most crowded of these",
                C,
                Any,
                &[(B, Never, 9), (A, Never, 6), (A, Made, 100)],
                Some(1),
            ),
            ("not of one with no more than its own", B, Any, &[(A, Made, 900), (B, Made, 1)], None),
            ("its own", B, Any, &[(A, Made, 900), (B, Made, 61)], Some(1)),
            ("its own alone", B, Own, &[(A, Never, 9), (A, Made, 900), (B, Made, 61)], Some(2)),
            ("its own are active", B, Own, &[(A, Never, 9), (B, Made, 1)], None),
        ] {
            assert_eq!(chosen(newcomer, scope, rows), expected, "{what}");
        }
    }

    #[test]
    fn a_newcomer_needs_room_for_all_and_for_its_own_address() {
        let mut occupancy = Occupancy::default();
        let judge = |occupancy: &Occupancy, newcomer| occupancy.judge(newcomer, 4, 2);
        occupancy.enter(A);
        assert_eq!(judge(&occupancy, A), Verdict::Admit);
        occupancy.enter(A);
        assert_eq!(judge(&occupancy, A), Verdict::Replace(Scope::Own));
        assert_eq!(judge(&occupancy, B), Verdict::Admit);
        occupancy.enter(B);
        occupancy.enter(C);
        assert_eq!(judge(&occupancy, B), Verdict::Replace(Scope::Any));
        occupancy.leave(A);
        assert_eq!((judge(&occupancy, A), occupancy.all()), (Verdict::Admit, 3));
        occupancy.leave(A);
        assert_eq!((occupancy.of(A), occupancy.by_origin.len()), (0, 2));
    }

    #[test]
    fn an_origin_is_an_address_a_network_of_64_bits_or_a_process() {
        let of = |text: &str, process| Origin::of(text.parse().unwrap(), process);
        assert_eq!(of("10.0.0.1:5", None), A);
        assert_eq!(of("[::ffff:10.0.0.1]:5", None), A, "an IPv4 address all the same");
        assert_eq!(of("[2001:db8::1]:5", None), of("[2001:db8::ffff:1]:6", None));
        assert_ne!(of("[2001:db8::1]:5", None), of("[2001:db8:0:1::1]:5", None));
        assert_eq!(of("127.0.0.1:0", Some(7)), Origin::Process(7));
    }
}
