//! A core's seat in its group: where it finds the peers that it is dealt, and from where the first core deals.

use std::cell::Cell;
use std::sync::{Arc, OnceLock};

use crossbeam_queue::ArrayQueue;
use haulage_proto::time::Instant;

use super::deal::{Deal, Place, Places, Slots};
use crate::origin::Origin;
use crate::provider::{ADOPTED_MAX, Arrival, Provider};
use crate::sys::wake::Waker;

/// A core's seat for peers of one kind. A core that is alone has the only one of its group.
#[derive(Debug)]
pub(crate) struct Seat<I> {
    deal: Arc<Deal>,
    /// The core's number in the group. The first deals.
    at: usize,
    doors: Arc<[Door<I>]>,
    /// A peer that was dealt while no slot was free, and turns in which it is tried again: a setup gives way, whose slot may be
    /// free only once the system has let go of it.
    back: Option<((I, Place), u32)>,
    /// Peers wait at the ports for a place of any core.
    is_waiting: bool,
}

/// How the dealer reaches one core.
#[derive(Debug)]
struct Door<I> {
    dealt: ArrayQueue<(I, Place)>,
    waker: OnceLock<Waker>,
}

impl<I: Arrival> Seat<I> {
    /// Makes the seats of a group with `cores` cores, by their numbers. `seed` decides between cores that are alike.
    pub(crate) fn of_all(cores: usize, seed: u64) -> Vec<Self> {
        let deal = Deal::new(cores, seed);
        // Nobody deals to a core that is alone.
        let room = if cores > 1 { DEALT_MAX } else { 1 };
        let door = |_| Door { dealt: ArrayQueue::new(room), waker: OnceLock::new() };
        let doors: Arc<[_]> = (0..cores).map(door).collect();
        let seat = |at| Self {
            deal: Arc::clone(&deal),
            at,
            doors: Arc::clone(&doors),
            back: None,
            is_waiting: false,
        };
        (0..cores).map(seat).collect()
    }

    /// Makes the only seat of a core that is in no group.
    pub(crate) fn alone() -> Self {
        let mut seats = Self::of_all(1, 0);
        seats.pop().expect("there is one")
    }

    /// Has the core be dealt peers from now on, as many as it has slots. `waker` ends its sleep.
    pub(crate) fn open(&self, slots: Slots, waker: Waker) {
        if let Some(door) = self.doors.get(self.at) {
            // A waker that is known is the same one.
            let _ = door.waker.set(waker);
        }
        self.deal.open(self.at, slots);
    }

    /// Returns the places that peers have at the cores of the group.
    pub(crate) fn places(&self) -> Places {
        self.deal.places()
    }

    /// Returns the number of cores in the group.
    pub(crate) fn cores(&self) -> usize {
        self.doors.len()
    }

    /// Takes the next peer that this core was dealt by another.
    #[inline]
    pub(crate) fn next_dealt(&mut self) -> Option<(I, Place)> {
        let door = self.doors.get(self.at).filter(|door| !door.dealt.is_empty())?;
        door.dealt.pop()
    }

    /// Deals one peer. Returns it with its place if it is dealt to this core. One that no core takes is dropped, and so
    /// refused.
    pub(crate) fn deal(&self, incoming: I) -> Option<(I, Place)> {
        let origin = Origin::of(incoming.peer(), incoming.process());
        let (at, place) = self.deal.choose(origin)?;
        if at == self.at {
            return Some((incoming, place));
        }
        let door = self.doors.get(at)?;
        match door.dealt.push((incoming, place)) {
            Ok(()) => {
                door.waker.get().into_iter().for_each(Waker::wake);
                None
            }
            // A core that has not looked at so many peers stands still. This one turns.
            Err((incoming, place)) => {
                drop(place);
                Some((incoming, self.deal.take(self.at, origin)?))
            }
        }
    }

    /// Adopts peers that this core was dealt, and, as the first core, deals those that wait at the provider's ports: as many
    /// of either as one turn may. Returns how many there were.
    #[inline]
    pub(crate) fn adopt(
        &mut self,
        provider: &mut impl Provider<Incoming = I>,
        now: Instant,
    ) -> usize {
        let dealt = if self.doors.len() > 1 { self.adopt_dealt(provider, now) } else { 0 };
        if self.at == 0 { dealt + self.deal_out(provider, now) } else { dealt }
    }

    fn adopt_dealt(&mut self, provider: &mut impl Provider<Incoming = I>, now: Instant) -> usize {
        let mut adopted = 0;
        while adopted < ADOPTED_MAX {
            let back = self.back.take();
            let Some(((incoming, place), turns)) =
                back.or_else(|| self.next_dealt().map(|dealt| (dealt, TURNS)))
            else {
                break;
            };
            adopted += 1;
            if let Err(again) = provider.adopt(now, incoming, place) {
                // After so many turns without a slot the peer is dropped, and so refused.
                self.back = turns.checked_sub(1).map(|turns| (again, turns));
                break;
            }
        }
        adopted
    }

    #[inline]
    fn deal_out(&mut self, provider: &mut impl Provider<Incoming = I>, now: Instant) -> usize {
        if self.is_waiting && !self.deal.is_awaited() {
            self.is_waiting = false;
            provider.look_again();
        }
        let lacks_room = Cell::new(false);
        let has_room_beside = || {
            let has_room = self.doors.len() > 1 && self.deal.has_room_beside(self.at);
            lacks_room.set(!has_room);
            has_room
        };
        let mut taken = 0;
        while taken < ADOPTED_MAX
            && self.back.is_none()
            && let Some(incoming) = provider.next_incoming(now, has_room_beside)
        {
            taken += 1;
            if let Some((incoming, place)) = self.deal(incoming)
                && let Err(again) = provider.adopt(now, incoming, place)
            {
                // A core that is alone took it because it had a slot.
                self.back = (self.doors.len() > 1).then_some((again, TURNS));
            }
        }
        if lacks_room.get() && self.doors.len() > 1 {
            self.is_waiting = self.deal.await_place(self.at, provider.waker());
            if !self.is_waiting {
                provider.look_again();
                taken += 1;
            }
        }
        taken
    }
}

/// Turns in which a peer is tried again for which a core has no slot.
const TURNS: u32 = 16;
/// Peers that wait for one core to adopt them, at most.
pub(super) const DEALT_MAX: usize = 1024;
