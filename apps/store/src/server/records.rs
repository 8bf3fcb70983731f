//! Room for the Calls and Replies of all TCP connections.
//!
//! # Normal operation
//! A Call of at most [`SMALL`] octets needs no room, nor does such a Reply. The thread that reads a longer Call takes room
//! for it first, and more if the Reply may be longer still. It gives it back when
//! the Reply has left. The room is [shared](crate::shares) by network.

use std::net::IpAddr;
use std::sync::{Arc, Condvar, PoisonError};
#[expect(
    clippy::disallowed_types,
    reason = "threads of TCP connections share it; no core does"
)]
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::crowd::network;
use crate::shares::Shares;

/// Octets for the records of all connections.
#[derive(Clone, Debug)]
pub(super) struct Records(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    #[expect(
        clippy::disallowed_types,
        reason = "threads of TCP connections share it; no core does"
    )]
    held: Mutex<Shares>,
    freed: Condvar,
}

/// Octets held for the record of one connection. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Room {
    records: Records,
    network: u64,
    octets: usize,
}

impl Records {
    /// Makes room for `octets_max` octets of long records.
    pub(super) fn new(octets_max: usize) -> Self {
        #[expect(clippy::disallowed_types, reason = "see above")]
        let held = Mutex::new(Shares::new(octets_max));
        Self(Arc::new(Shared { held, freed: Condvar::new() }))
    }

    /// Begins a record from `peer`, without room.
    pub(super) fn begin(&self, peer: IpAddr) -> Room {
        Room { records: self.clone(), network: network(peer), octets: 0 }
    }

    fn held(&self) -> MutexGuard<'_, Shares> {
        // A panic leaves the sums consistent, so a poisoned lock is used on.
        self.0.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    /// Takes what is missing for a record of `octets` octets, and waits for it at most for `time`. Returns whether there
    /// is room.
    pub(super) fn grow(&mut self, octets: usize, time: Duration) -> bool {
        let more = octets.saturating_sub(self.octets);
        if octets <= SMALL || more == 0 {
            return true;
        }
        let shared = &*self.records.0;
        let exceeds = |held: &mut Shares| !held.has_room(self.network, more);
        let waited = shared.freed.wait_timeout_while(self.records.held(), time, exceeds);
        let (mut held, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return false;
        }
        held.take(self.network, more);
        self.octets += more;
        true
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.octets == 0 {
            return;
        }
        let mut held = self.records.held();
        held.give_back(self.network, self.octets);
        drop(held);
        self.records.0.freed.notify_all();
    }
}

/// Octets of the longest record that needs no room.
const SMALL: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const MIB: usize = 1 << 20;
    const LONG: Duration = Duration::from_secs(60);

    fn address(last: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, last])
    }

    #[test]
    fn one_network_leaves_as_much_as_it_holds() {
        let records = Records::new(8 * MIB);
        let take = |last, octets| {
            let mut room = records.begin(address(last));
            room.grow(octets, Duration::ZERO).then_some(room)
        };
        let held: Vec<_> = (0..9).map_while(|_| take(1, MIB)).collect();
        assert_eq!(held.len(), 4);
        assert!(take(1, SMALL).is_some(), "short records need no room");
        let other = take(2, 4 * MIB).unwrap();
        assert!(take(3, MIB).is_none(), "all is taken");
        drop(other);
        assert!(take(3, MIB).is_some());
        drop(held);
        // A record in fragments takes what each of them needs.
        let mut room = records.begin(address(1));
        assert!(room.grow(SMALL, Duration::ZERO) && room.grow(4 * MIB, Duration::ZERO));
        assert!(!room.grow(5 * MIB, Duration::ZERO), "more than it leaves");
        drop(room);
        assert!(take(1, 8 * MIB).is_some());
    }

    #[test]
    fn a_record_waits_for_room() {
        let records = Records::new(MIB);
        let mut first = records.begin(address(1));
        assert!(first.grow(MIB, Duration::ZERO));
        thread::scope(|scope| {
            let second = scope.spawn(|| records.begin(address(2)).grow(MIB, LONG));
            drop(first);
            assert!(second.join().unwrap());
        });
    }
}
