//! Admission: which origins connections over RDMA have, and when one of them gives way to a newcomer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::crowd::{Grace, Rules, To};

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

/// In which phases connections of a core over RDMA give way: those with nothing under way, for which nothing is promised.
///
/// An origin never gains by this: a newcomer takes the place of an idle connection of its own origin, or of one with more
/// connections than its own.
pub(crate) const RULES: Rules = Rules {
    silent: Some(Grace { after: Duration::ZERO, to: To::Any }),
    idle: Some(Grace { after: IDLE_MIN, to: To::OwnOrFewer }),
    transferring: None,
    serving: None,
};

/// How long a connection that made Calls is idle before it may go in favour of another.
pub(crate) const IDLE_MIN: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use crate::crowd::{Candidate, Occupancy, Phase, Scope, Verdict};

    use super::*;

    const A: Origin = Origin::V4([10, 0, 0, 1]);
    const B: Origin = Origin::V4([10, 0, 0, 2]);
    const C: Origin = Origin::V4([10, 0, 0, 3]);

    /// Each row: the origin of a connection, its phase, the seconds it has been idle.
    type Rows = [(Origin, Phase, u64)];

    fn chosen(newcomer: Origin, scope: Scope, rows: &Rows) -> Option<usize> {
        let mut occupancy = Occupancy::default();
        rows.iter().for_each(|(origin, ..)| occupancy.enter(*origin));
        let candidates = rows.iter().enumerate().map(|(key, &(origin, phase, idle))| Candidate {
            key,
            origin,
            phase,
            lasted: Duration::from_secs(idle),
        });
        occupancy.victim((newcomer, scope), &RULES, candidates)
    }

    #[test]
    fn who_goes_in_favour_of_a_newcomer() {
        use Phase::{Idle as Made, Silent as Never};
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
        let judge = |occupancy: &Occupancy<Origin>, newcomer| occupancy.judge(newcomer, 4, 2);
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
        assert_eq!((occupancy.of(A), occupancy.all()), (0, 2));
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
