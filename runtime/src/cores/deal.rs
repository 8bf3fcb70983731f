//! How peers come to the cores of a group: one core takes them from the ports, and deals them by value.
//!
//! # Normal operation
//! Whoever is dealt has a [`Place`] of its core from then on, until its setup has failed or its connection is over. The
//! dealer chooses, of the cores with room for a connection, that with the fewest peers of the same origin, then with the
//! fewest of all, and by chance among those that are alike. The first connection of a client is often the busiest: of cores
//! that are alike, a new origin's goes to one with the fewest of these. By rotation it would always meet the same core.
//!
//! # Limits
//! A core takes as many peers as it has slots. Where setups hold some of them, it takes one more, for which its oldest setup
//! gives way; over TCP a connection may give way, too, by the rules of its port. While no core takes any, peers wait in the system's queues; the first place that is given back wakes the
//! dealer. The table has a lock, which is taken when a setup begins, when it becomes a connection, and at the end of either.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};

use crate::origin::Origin;
use crate::sys::wake::Waker;

/// A lock that is taken when connections begin and end.
#[expect(clippy::disallowed_types, reason = "connections begin and end seldom")]
type Lock<T> = std::sync::Mutex<T>;

/// The places of all cores of a group.
#[derive(Debug)]
pub(crate) struct Deal {
    table: Lock<Table>,
    /// Whether the table has a waker. It is written under the lock.
    is_awaited: AtomicBool,
}

#[derive(Debug)]
struct Table {
    /// By the numbers of the cores.
    cores: Box<[Taken]>,
    /// The origins that have places.
    origins: BTreeMap<Origin, Own>,
    /// The waker of the dealer, while it waits for a place.
    awaited_by: Option<Waker>,
    /// The state of the generator by which cores that are alike are chosen.
    chance: u64,
}

/// The places of one core.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    slots: Slots,
    setups: u32,
    connections: u32,
    /// Origins whose first peer was dealt to this core.
    firsts: u32,
}

/// The places of one origin.
#[derive(Debug)]
struct Own {
    /// By the numbers of the cores.
    each: Box<[u32]>,
    /// The core to which the first peer was dealt.
    first: usize,
}

/// How many peers a core takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slots {
    /// Setups and connections at once.
    pub(crate) count: u32,
    /// Connections at once: beyond them a newcomer takes the place of another, or is refused.
    pub(crate) connections_max: u32,
    /// Whether the core finds out itself which connection gives way to one more.
    pub(crate) connections_give_way: bool,
}

/// The places that peers have at the cores of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Peers of each core that are being set up, by the numbers of the cores.
    pub setups: Vec<u32>,
    /// Connections of each core, by the numbers of the cores.
    pub connections: Vec<u32>,
    /// Origins that have a place.
    pub origins: usize,
}

/// A place of one core, which a peer has from the deal on. Dropping it gives it back.
#[derive(Debug, Default)]
pub struct Place(Option<Held>);

#[derive(Debug)]
struct Held {
    deal: Arc<Deal>,
    at: usize,
    origin: Origin,
    is_connection: bool,
}

impl Deal {
    /// Makes the table of a group with `cores` cores, which have no slots yet. `seed` decides between cores that are alike.
    pub(crate) fn new(cores: usize, seed: u64) -> Arc<Self> {
        let table = Table {
            cores: vec![Taken::default(); cores].into(),
            origins: BTreeMap::new(),
            awaited_by: None,
            chance: seed | 1,
        };
        Arc::new(Self { table: Lock::new(table), is_awaited: AtomicBool::new(false) })
    }

    /// Gives the core of this number its slots.
    pub(crate) fn open(&self, at: usize, slots: Slots) {
        self.table().cores.get_mut(at).into_iter().for_each(|taken| taken.slots = slots);
    }

    /// Returns a place for a peer of an origin, and the number of the core that is to have it; `None` if no core takes any.
    pub(crate) fn choose(self: &Arc<Self>, origin: Origin) -> Option<(usize, Place)> {
        let mut table = self.table();
        let Table { cores, origins, chance, .. } = &mut *table;
        let own = origins.get(&origin);
        let rank = |at: usize, taken: &Taken| {
            let of_origin = own.and_then(|own| own.each.get(at)).copied().unwrap_or(0);
            let firsts = if own.is_none() { taken.firsts } else { 0 };
            let is_full = taken.all() >= taken.slots.connections_max;
            (!taken.has_slot(), is_full, of_origin, taken.all(), firsts)
        };
        let takes = || cores.iter().enumerate().filter(|(_, taken)| taken.takes_more());
        let best = takes().map(|(at, taken)| rank(at, taken)).min()?;
        let alike = || takes().filter(|(at, taken)| rank(*at, taken) == best);
        let which = next(chance) % alike().count() as u64;
        let at = alike().nth(usize::try_from(which).ok()?)?.0;
        Some((at, self.enter(&mut table, at, origin)?))
    }

    /// Returns a place at the core of this number for a peer of an origin.
    pub(crate) fn take(self: &Arc<Self>, at: usize, origin: Origin) -> Option<Place> {
        self.enter(&mut self.table(), at, origin)
    }

    fn enter(self: &Arc<Self>, table: &mut Table, at: usize, origin: Origin) -> Option<Place> {
        let Table { cores, origins, .. } = table;
        let count = cores.len();
        let taken = cores.get_mut(at)?;
        taken.setups += 1;
        let own = origins.entry(origin).or_insert_with(|| {
            taken.firsts += 1;
            Own { each: vec![0; count].into(), first: at }
        });
        own.each.get_mut(at).into_iter().for_each(|own| *own += 1);
        let held = Held { deal: Arc::clone(self), at, origin, is_connection: false };
        Some(Place(Some(held)))
    }

    /// Returns whether some core but the one of this number takes a peer.
    pub(crate) fn has_room_beside(&self, dealer: usize) -> bool {
        self.table().has_room_beside(dealer)
    }

    /// Has `waker` woken by the next place that is given back, unless some core but the one of this number takes a peer by now.
    /// Returns whether it waits.
    pub(crate) fn await_place(&self, dealer: usize, waker: Waker) -> bool {
        let mut table = self.table();
        let waits = !table.has_room_beside(dealer);
        if waits {
            table.awaited_by = Some(waker);
            self.is_awaited.store(true, Ordering::Release);
        }
        waits
    }

    /// Returns whether no place was given back since one was awaited.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Acquire)
    }

    /// Returns the places that peers have.
    pub(crate) fn places(&self) -> Places {
        let table = self.table();
        let setups = table.cores.iter().map(|taken| taken.setups).collect();
        let connections = table.cores.iter().map(|taken| taken.connections).collect();
        Places { setups, connections, origins: table.origins.len() }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // What a panic leaves is whole: each change of the table is one of numbers.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn has_room_beside(&self, dealer: usize) -> bool {
        self.cores.iter().enumerate().any(|(at, taken)| at != dealer && taken.takes_more())
    }
}

impl Taken {
    const fn all(&self) -> u32 {
        self.setups + self.connections
    }

    const fn has_slot(&self) -> bool {
        self.all() < self.slots.count
    }

    /// Returns whether the core takes a peer, if need be in place of another.
    const fn takes_more(&self) -> bool {
        self.has_slot() || self.setups > 0 || self.slots.connections_give_way
    }
}

impl Place {
    /// Makes a place at a core that is alone, and what tells the places that peers have there: for tests of providers.
    pub fn watched() -> (Self, impl Fn() -> Places) {
        let deal = Deal::new(1, 1);
        deal.open(0, Slots { count: 1, connections_max: 1, connections_give_way: false });
        let dealt = deal.choose(Origin::Ours);
        (dealt.map(|(_, place)| place).unwrap_or_default(), move || deal.places())
    }

    /// Notes that the setup has become a connection.
    pub(crate) fn become_connection(&mut self) {
        let Some(held) = &mut self.0 else { return };
        if !std::mem::replace(&mut held.is_connection, true) {
            let mut table = held.deal.table();
            if let Some(taken) = table.cores.get_mut(held.at) {
                taken.setups -= 1;
                taken.connections += 1;
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut table = self.deal.table();
        let Table { cores, origins, awaited_by, .. } = &mut *table;
        let at = self.at;
        if let Some(taken) = cores.get_mut(at) {
            let of = if self.is_connection { &mut taken.connections } else { &mut taken.setups };
            *of -= 1;
        }
        if let Some(own) = origins.get_mut(&self.origin) {
            own.each.get_mut(at).into_iter().for_each(|own| *own -= 1);
            if own.each.iter().all(|own| *own == 0) {
                cores.get_mut(own.first).into_iter().for_each(|first| first.firsts -= 1);
                origins.remove(&self.origin);
            }
        }
        if let Some(waker) = awaited_by.take() {
            self.deal.is_awaited.store(false, Ordering::Release);
            waker.wake();
        }
    }
}

/// Returns the next number of a generator (xorshift, 64 bits), whose state is not zero.
const fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn origin(number: u8) -> Origin {
        Origin::V4([10, 0, 0, number])
    }

    fn deal(slots: &[u32]) -> Arc<Deal> {
        let deal = Deal::new(slots.len(), 7);
        for (at, count) in slots.iter().enumerate() {
            let connections_give_way = false;
            deal.open(at, Slots { count: *count, connections_max: *count, connections_give_way });
        }
        deal
    }

    fn spread(deal: &Deal) -> Vec<u32> {
        let places = deal.places();
        let both = places.setups.iter().zip(&places.connections);
        both.map(|(setups, connections)| setups + connections).collect()
    }

    #[test]
    fn the_peers_of_each_origin_are_spread_over_all_cores() {
        let deal = deal(&[100; 4]);
        let mut places = Vec::new();
        for number in 0..8 {
            for _ in 0..8 {
                places.push(deal.choose(origin(number)).unwrap());
            }
            let own = places.iter().filter(|(_, place)| {
                place.0.as_ref().is_some_and(|held| held.origin == origin(number))
            });
            let mut of_origin = [0; 4];
            own.for_each(|(core, _)| of_origin[*core] += 1);
            assert_eq!(of_origin, [2; 4]);
        }
        assert_eq!(spread(&deal), [16; 4]);
    }

    #[test]
    fn the_first_connections_of_many_clients_meet_all_cores() {
        let deal = deal(&[10_000; 4]);
        let mut first = [0_u32; 4];
        let mut places = Vec::new();
        for number in 0..1000_u16 {
            let [high, low] = number.to_be_bytes();
            let origin = Origin::V4([10, 1, high, low]);
            for at in 0..8 {
                let (core, place) = deal.choose(origin).unwrap();
                first[core] += u32::from(at == 0);
                places.push(place);
            }
        }
        assert!(first.iter().all(|count| (200..300).contains(count)), "{first:?}");
    }

    #[test]
    fn a_place_is_counted_as_a_setup_then_as_a_connection_then_not_at_all() {
        let deal = deal(&[1]);
        let (_, mut place) = deal.choose(origin(1)).unwrap();
        let places = |setups, connections| Places {
            setups: vec![setups],
            connections: vec![connections],
            origins: usize::from(setups + connections > 0),
        };
        assert_eq!(deal.places(), places(1, 0));
        place.become_connection();
        place.become_connection();
        assert_eq!(deal.places(), places(0, 1));
        assert!(deal.choose(origin(2)).is_none(), "no setup can give way");
        drop(place);
        assert_eq!(deal.places(), places(0, 0));
    }

    #[test]
    fn a_core_with_all_its_connections_is_dealt_none_while_another_has_room() {
        let deal = deal(&[2, 4]);
        deal.open(0, Slots { count: 100, connections_max: 2, connections_give_way: false });
        let mut places = Vec::new();
        let mut homes = |number, count| {
            let dealt = (0..count).map(|_| deal.choose(origin(number)).unwrap());
            let (homes, mut dealt): (Vec<_>, Vec<_>) = dealt.unzip();
            places.append(&mut dealt);
            homes.iter().filter(|core| **core == 0).count()
        };
        assert_eq!(homes(1, 4), 2);
        assert_eq!(homes(2, 2), 0, "although the first has fewer of this origin");
        assert_eq!(homes(3, 2), 2, "it has slots, and knows who gives way");
    }

    #[test]
    fn a_place_that_was_given_back_before_it_was_awaited_is_not_missed() {
        let deal = deal(&[1, 1]);
        let mut places = [(); 2].map(|()| deal.choose(origin(1)).unwrap());
        places.iter_mut().for_each(|(_, place)| place.become_connection());
        assert!(!deal.has_room_beside(0));
        let waker = Waker::new().unwrap();
        let [mut first, mut second] = places;
        if first.0 != 0 {
            std::mem::swap(&mut first, &mut second);
        }
        drop(second);
        assert!(!deal.await_place(0, waker.clone()), "there is room already");
        let taken = deal.choose(origin(1)).unwrap();
        assert_eq!((taken.0, deal.places().setups[1]), (1, 1));
        let (_, mut place) = taken;
        place.become_connection();
        assert!(deal.await_place(0, waker.clone()) && deal.is_awaited());
        drop(place);
        assert!(waker.take() && !deal.is_awaited(), "the first that is given back wakes");
        drop(first);
        assert!(!waker.take(), "and no other");
    }

    #[test]
    fn where_no_slot_is_free_a_setup_gives_way_and_no_connection() {
        let deal = deal(&[1, 1]);
        let [(first, mut busy), (second, silent)] =
            [(); 2].map(|()| deal.choose(origin(1)).unwrap());
        assert_ne!(first, second);
        busy.become_connection();
        let (third, newcomer) = deal.choose(origin(2)).unwrap();
        assert_eq!(third, second, "the core with a setup");
        assert!(deal.has_room_beside(first) && !deal.has_room_beside(second));
        drop((silent, newcomer));
        assert_eq!(spread(&deal).iter().sum::<u32>(), 1);
    }
}
