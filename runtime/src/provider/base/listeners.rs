//! The listeners of a provider in software, and the peers that have not sent their requests.

use std::collections::VecDeque;
use std::io;

use haulage_proto::verbs::QpNum;

/// The name of a listener of a provider in software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub(crate) u16);

/// The listeners `L` of one provider, by their names.
#[derive(Debug)]
pub(crate) struct Listeners<L> {
    all: Vec<Listening<L>>,
    /// Open listeners at which an accept is to be tried, and closed ones, in the order of their turns.
    waiting: VecDeque<ListenerId>,
    /// Peers of the first of these accepted in its turn.
    in_turn: u32,
    /// Connections that may still be in their handshake at the passive end, oldest first.
    awaiting: VecDeque<QpNum>,
}

#[derive(Debug)]
struct Listening<L> {
    /// `None` once we stopped listening.
    listener: Option<L>,
    peers: Peers,
}

/// The peers of a listener.
///
/// | from | to | when |
/// |---|---|---|
/// | any | `Announced` | a readiness event came |
/// | `Announced`, `Waiting` | `Expected` | none was left to be accepted |
/// | `Announced`, `Waiting` | `Paused` | there was no room for the next, or the system refused it |
/// | `Paused` | `Waiting` | there is room again, or it is time to ask the system again |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peers {
    /// A readiness event will announce the next one.
    Expected,
    /// A readiness event has announced some, and an accept has not been tried since.
    Announced,
    /// Some may wait that no readiness event will announce.
    Waiting,
    /// Some may wait, but an accept is not to be tried now.
    Paused,
}

impl<L> Listeners<L> {
    /// Makes an empty table.
    pub(crate) const fn new() -> Self {
        Self { all: Vec::new(), waiting: VecDeque::new(), in_turn: 0, awaiting: VecDeque::new() }
    }

    /// Returns the name that the next listener gets.
    /// # Errors
    ///
    /// No names are left.
    pub(crate) fn next(&self) -> io::Result<ListenerId> {
        let next = u16::try_from(self.all.len());
        next.map(ListenerId).map_err(|_| io::ErrorKind::QuotaExceeded.into())
    }

    /// Adds a listener under the next name.
    pub(crate) fn add(&mut self, listener: L) {
        self.all.push(Listening { listener: Some(listener), peers: Peers::Expected });
    }

    /// Removes a listener. Its name is never used again.
    pub(crate) fn close(&mut self, name: ListenerId) -> Option<L> {
        self.all.get_mut(usize::from(name.0))?.listener.take()
    }

    /// Finds a listener.
    pub(crate) fn get(&self, name: ListenerId) -> Option<&L> {
        self.all.get(usize::from(name.0))?.listener.as_ref()
    }

    /// Returns whether any listener is open.
    pub(crate) fn is_any_open(&self) -> bool {
        self.all.iter().any(|own| own.listener.is_some())
    }

    /// Notes that a readiness event has announced peers of a listener.
    pub(crate) fn announce(&mut self, name: ListenerId) {
        self.set(name, Peers::Announced);
        if !self.waiting.contains(&name) {
            self.waiting.push_back(name);
        }
    }

    /// Has accepts be tried again where they were paused.
    pub(crate) fn resume(&mut self) {
        for (name, own) in (0_u16..).zip(&mut self.all) {
            if own.peers == Peers::Paused && own.listener.is_some() {
                own.peers = Peers::Waiting;
                self.waiting.push_back(ListenerId(name));
            }
        }
    }

    /// Takes the next open listener whose peers may wait, and how they do. The caller calls
    /// [`Self::accepted`] or [`Self::leave`] afterwards.
    pub(crate) fn next_waiting(&mut self) -> Option<(ListenerId, Peers)> {
        while let Some(name) = self.waiting.pop_front() {
            if let Some(own) =
                self.all.get(usize::from(name.0)).filter(|own| own.listener.is_some())
            {
                return Some((name, own.peers));
            }
        }
        None
    }

    /// Notes that a peer of a listener was accepted, behind which others wait as before. The listener keeps its turn for
    /// some more.
    pub(crate) fn accepted(&mut self, name: ListenerId) {
        self.in_turn += 1;
        if self.in_turn < ACCEPTS_A_TURN {
            self.waiting.push_front(name);
        } else {
            self.in_turn = 0;
            self.waiting.push_back(name);
        }
    }

    /// Notes how peers of a listener wait after an accept was tried and yielded none.
    pub(crate) fn leave(&mut self, name: ListenerId, peers: Peers) {
        self.in_turn = 0;
        self.set(name, peers);
        if matches!(peers, Peers::Announced | Peers::Waiting) {
            self.waiting.push_back(name);
        }
    }

    /// Returns whether an accept is to be tried.
    #[inline]
    pub(crate) fn is_any_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns whether accepts are paused at an open listener.
    pub(crate) fn is_any_paused(&self) -> bool {
        self.all.iter().any(|own| own.peers == Peers::Paused && own.listener.is_some())
    }

    fn set(&mut self, name: ListenerId, peers: Peers) {
        self.all.get_mut(usize::from(name.0)).into_iter().for_each(|own| own.peers = peers);
    }

    /// Notes a connection whose request has not arrived. `in_use` is the number of slots in use: the list is never
    /// longer.
    pub(crate) fn await_question(&mut self, qp: QpNum, in_use: usize) {
        self.awaiting.push_back(qp);
        while self.awaiting.len() > in_use {
            self.awaiting.pop_front();
        }
    }

    /// Takes the connection that was noted first; its request may have arrived since.
    pub(crate) fn longest_awaited(&mut self) -> Option<QpNum> {
        self.awaiting.pop_front()
    }
}

/// Peers of one listener that are accepted before other listeners have their turn.
const ACCEPTS_A_TURN: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts peers until none waits. `left` has the number of peers at each of two listeners. Returns the listener of each
    /// peer, in the order in which they were accepted.
    fn accept(listeners: &mut Listeners<()>, mut left: [u32; 2]) -> Vec<u16> {
        let mut order = Vec::new();
        while let Some((name, _)) = listeners.next_waiting() {
            let left = &mut left[usize::from(name.0)];
            match left.checked_sub(1) {
                None => listeners.leave(name, Peers::Expected),
                Some(rest) => {
                    *left = rest;
                    order.push(name.0);
                    listeners.accepted(name);
                }
            }
        }
        order
    }

    #[test]
    fn listeners_have_turns_and_closed_ones_none() {
        let mut listeners = Listeners::new();
        for name in [0, 1].map(ListenerId) {
            assert_eq!(listeners.next().unwrap(), name);
            listeners.add(());
            listeners.announce(name);
            listeners.announce(name);
        }
        let turns: Vec<u16> = [vec![0; 64], vec![1; 2], vec![0; 36]].concat();
        assert_eq!(accept(&mut listeners, [100, 2]), turns);
        assert!(!listeners.is_any_waiting());
        listeners.announce(ListenerId(0));
        listeners.close(ListenerId(0));
        assert_eq!(accept(&mut listeners, [1, 1]), []);
    }

    #[test]
    fn a_listener_that_is_paused_waits_to_be_resumed() {
        let (mut listeners, name) = (Listeners::new(), ListenerId(0));
        listeners.add(());
        listeners.announce(name);
        assert_eq!(listeners.next_waiting(), Some((name, Peers::Announced)));
        listeners.leave(name, Peers::Paused);
        assert!(listeners.is_any_paused() && listeners.next_waiting().is_none());
        listeners.resume();
        listeners.resume();
        assert_eq!(listeners.next_waiting(), Some((name, Peers::Waiting)));
        assert!(!listeners.is_any_paused() && !listeners.is_any_waiting());
        listeners.leave(name, Peers::Paused);
        listeners.announce(name);
        assert_eq!(listeners.next_waiting(), Some((name, Peers::Announced)), "one more has come");
        listeners.leave(name, Peers::Paused);
        listeners.close(name);
        assert!(!listeners.is_any_paused(), "it is closed");
    }
}
