//! Listeners, and the peers that have reached them.

use std::collections::VecDeque;

use super::connection::Incoming;
use super::names::ListenerId;
use crate::sys::ibverbs::CmId;

/// The listeners of one provider, and the peers that reached one and were not taken from it.
#[derive(Debug, Default)]
pub(super) struct Listening {
    listeners: Vec<(ListenerId, CmId)>,
    /// The listeners named so far.
    named: u32,
    /// Oldest first.
    arrivals: VecDeque<Incoming>,
}

impl Listening {
    /// Returns a name that no listener had before.
    pub(super) const fn name(&mut self) -> ListenerId {
        self.named += 1;
        ListenerId(self.named)
    }

    /// Begins to take peers that reach `id`.
    pub(super) fn open(&mut self, listener: ListenerId, id: CmId) {
        self.listeners.push((listener, id));
    }

    /// Closes a listener. Its peers are refused as they are found.
    pub(super) fn close(&mut self, listener: ListenerId) {
        self.listeners.retain(|(own, _)| *own != listener);
    }

    /// Keeps a peer until it is taken.
    pub(super) fn arrive(&mut self, incoming: Incoming) {
        self.arrivals.push_back(incoming);
    }

    /// Drops the peer whose id an event is about, if it was not taken yet. Returns how many that were.
    pub(super) fn drop_peer(&mut self, about: usize) -> u64 {
        let before = self.arrivals.len();
        self.arrivals.retain(|incoming| !incoming.id.is(about));
        (before - self.arrivals.len()) as u64
    }

    /// Takes the next peer. Refuses those of listeners that are closed, and adds them to `refused`.
    pub(super) fn next(&mut self, refused: &mut u64) -> Option<Incoming> {
        while let Some(incoming) = self.arrivals.pop_front() {
            if self.listeners.iter().any(|(own, _)| *own == incoming.listener) {
                return Some(incoming);
            }
            *refused += 1;
        }
        None
    }

    /// Returns whether a peer waits to be taken.
    pub(super) fn has_peers(&self) -> bool {
        !self.arrivals.is_empty()
    }
}
