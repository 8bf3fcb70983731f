//! Admission: when a connection over RDMA gives way to a newcomer.

use std::time::Duration;

use crate::crowd::{Grace, Rules, To};

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
    use crate::origin::Origin;

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
}
