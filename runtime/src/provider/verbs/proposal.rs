//! What one end says while a connection is set up.

use std::net::SocketAddr;

use crate::sys::ibverbs::PeerParameters;

/// The numbers of Reads and the private data for the peer, and how often it was asked.
#[derive(Debug, Default)]
pub(super) struct Proposal {
    /// The Reads we proposed, or, once the peer has answered, those granted.
    ord: u8,
    ird: u8,
    /// The peer's address, until the route to it is found.
    to: Option<SocketAddr>,
    /// The private data for the peer, sent when asking or answering it.
    private_data: Box<[u8]>,
    /// The number of times that the peer was asked.
    tries: u8,
}

impl Proposal {
    /// Begins with what a peer asks for.
    pub(super) fn of_peer(ord: u8, ird: u8) -> Self {
        Self { ord, ird, ..Self::default() }
    }

    /// Begins to ask the peer at `to` for `ord` and `ird` Reads.
    pub(super) fn to_peer(to: SocketAddr, (ord, ird): (u8, u8), private_data: &[u8]) -> Self {
        Self { ord, ird, to: Some(to), private_data: private_data.into(), tries: 0 }
    }

    /// Lowers the numbers of Reads that the peer asked for to those that we take, and answers with `private_data`.
    pub(super) fn answer(&mut self, (ord, ird): (u8, u8), private_data: &[u8]) {
        self.lower(ord, ird);
        self.private_data = private_data.into();
    }

    /// Lowers the numbers of Reads to those that the peer's answer grants.
    pub(super) fn granted(&mut self, answer: &PeerParameters) {
        self.lower(answer.ord, answer.ird);
    }

    fn lower(&mut self, ord: u8, ird: u8) {
        (self.ord, self.ird) = (self.ord.min(ord), self.ird.min(ird));
    }

    /// Counts that the peer is asked.
    pub(super) const fn ask(&mut self) {
        self.tries += 1;
    }

    /// Notes that the route to the peer is found.
    pub(super) const fn found(&mut self) {
        self.to = None;
    }

    /// Has the route to the peer at `to` found again.
    pub(super) const fn find_again(&mut self, to: SocketAddr) {
        self.to = Some(to);
    }

    /// Takes the private data, which may have to be sent again, and is put back for that.
    pub(super) fn take_private_data(&mut self) -> Box<[u8]> {
        std::mem::take(&mut self.private_data)
    }

    /// Puts back the private data.
    pub(super) fn keep_private_data(&mut self, private_data: Box<[u8]>) {
        self.private_data = private_data;
    }

    /// Returns the address of a peer to which no route is found yet.
    pub(super) const fn to(&self) -> Option<SocketAddr> {
        self.to
    }

    /// Returns the numbers of Reads that we may have outstanding, and that we serve.
    pub(super) const fn reads(&self) -> (u8, u8) {
        (self.ord, self.ird)
    }

    /// Returns whether the peer may be asked once more.
    pub(super) const fn may_be_repeated(&self) -> bool {
        self.tries < TRIES_MAX
    }
}

/// The most times that a peer is asked: enough while half of our ports are taken.
const TRIES_MAX: u8 = 20;
