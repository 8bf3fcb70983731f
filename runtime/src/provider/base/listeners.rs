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
    /// Connections that may still be in their handshake at the passive end, oldest first.
    awaiting: VecDeque<QpNum>,
}

#[derive(Debug)]
struct Listening<L> {
    /// `None` once we stopped listening.
    listener: Option<L>,
    /// Peers may be waiting that no readiness event will announce: there was no room for them.
    paused: bool,
}

impl<L> Listeners<L> {
    /// Makes an empty table.
    pub(crate) const fn new() -> Self {
        Self { all: Vec::new(), awaiting: VecDeque::new() }
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
        self.all.push(Listening { listener: Some(listener), paused: false });
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

    /// Notes that peers of a listener wait for room.
    pub(crate) fn pause(&mut self, name: ListenerId) {
        self.all.get_mut(usize::from(name.0)).into_iter().for_each(|own| own.paused = true);
    }

    /// Notes that readiness events will announce the next peers of a listener.
    pub(crate) fn resume(&mut self, name: ListenerId) {
        self.all.get_mut(usize::from(name.0)).into_iter().for_each(|own| own.paused = false);
    }

    /// Returns the next open listener, from `from` on, whose peers wait for room.
    pub(crate) fn paused(&self, from: u16) -> Option<ListenerId> {
        let all = (0_u16..).zip(&self.all).skip(usize::from(from));
        all.into_iter()
            .find(|(_, own)| own.paused && own.listener.is_some())
            .map(|(name, _)| ListenerId(name))
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
