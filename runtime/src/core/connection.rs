//! One connection as a core sees it: the protocol engine, and the messages that wait.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use haulage_proto::exchange::{self, UnchunkedMax};
use haulage_proto::negotiate::{Connection as Engine, Engine as Spoken, ReplyChunks, Version};
use haulage_proto::time::Instant;
use haulage_proto::v1::private_data::{Agreement, PrivateData};
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::header::Returned;
use haulage_proto::v2::thresholds::Thresholds;
use haulage_proto::verbs::QpNum;

use super::admission::Origin;
use super::memory::Share;
use super::receives::{Part, Receives};
use super::templates::{Bound, Meanings};
use super::trace::{Agreed, Manner, Subject, Traffic};
use crate::identity::Identity;
use crate::key::{CallKey, ConnectionKey};
use crate::limits::{CHUNKS_MAX, HEADER_ROOM, SEGMENTS_MAX_WIRE, SEND_BUFFER, our_private_data};
use crate::outgoing::segments::Segments;
use crate::provider::{Clock, PeerUser, Promises, Provider, WorkQueue, WorkRequest};
use crate::service::{CallError, ConnectionId, Peer};

/// A connection of this core, in either role.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) qp: QpNum,
    pub(crate) role: Role,
    /// The address of the other end.
    pub(crate) peer: SocketAddr,
    /// The user at the other end, if the service of a server asked for it.
    pub(crate) user: PeerUser,
    /// The origin that this connection counts against; `None` while it is closing.
    pub(crate) origin: Option<Origin>,
    /// The origin of a connection that is closing.
    pub(crate) left: Option<Origin>,
    /// The time of the last activity.
    pub(crate) active: Instant,
    /// Whether the peer has made a Call.
    pub(crate) called: bool,
    pub(crate) state: SessionState,
    pub(crate) engine: Engine,
    /// The terms for version 1, from the private data of both ends.
    pub(crate) agreed: Agreement,
    /// The binding of our Calls on this connection, if we make any.
    pub(crate) binding: Option<Rc<Bound>>,
    /// The identity that our Calls claim.
    pub(crate) identity: Rc<Identity>,
    pub(crate) terms: Terms,
    /// The meanings of the peer's header templates.
    pub(crate) meanings: Meanings,
    /// The memory that its Calls hold and wait for.
    pub(crate) share: Share,
    /// Replies that wait for credit, in the order they became ready.
    pub(crate) replies: VecDeque<CallKey>,
    /// Calls of ours that wait for credit, by slot.
    pub(crate) calls: VecDeque<usize>,
    /// Work requests for the next doorbell.
    pub(crate) queue: WorkQueue,
    /// Whether the port has messages that wait for a doorbell.
    pub(crate) rings: bool,
    /// Receives reserved for the peer that the provider does not know of yet.
    pub(crate) reserved: u32,
    /// The connection's part of the core's Receives.
    pub(crate) part: Part,
    /// The Replies that found credit.
    pub(crate) answered: Clock,
    /// When the peer is to be checked, while Replies wait for credit.
    pub(crate) check_at: Option<Instant>,
    /// Whether it is on the core's list of connections with something to post.
    pub(crate) dirty: bool,
    /// Whether the connection became ready. Only then does the service learn of its end.
    pub(crate) was_ready: bool,
    /// Whether the peer has closed it in order, having every Reply.
    pub(crate) has_all: bool,
    /// Counts of the RPC messages received on it.
    pub(crate) traffic: Traffic,
    /// Whether its end is ordinary, unless we close it in order.
    pub(crate) manner: Manner,
    /// Why it is going away, for the callers of its Calls.
    pub(crate) failure: Option<CallError>,
}

/// The ends of a new connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) qp: QpNum,
    /// Our role.
    pub(crate) role: Role,
    /// The address of the other end.
    pub(crate) peer: SocketAddr,
}

/// The terms that both ends agreed on, once the connection is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) version: Version,
    /// Limits for our Calls.
    pub(crate) calls: exchange::Terms,
    /// Limits for our Calls without chunks, from `calls`.
    pub(crate) unchunked_max: UnchunkedMax,
    /// Limits for our Replies.
    pub(crate) replies: exchange::Terms,
    /// Octets of the longest Payload stream of a Reply in one message without chunks.
    pub(crate) unchunked_reply_max: usize,
}

impl Terms {
    /// Settles the terms: on version 2 by the properties, on version 1 by the private data of both ends.
    pub(crate) fn of(engine: &Spoken, role: Role, agreed: &Agreement) -> Self {
        let (version, calls, replies) = match engine {
            Spoken::One(_) => {
                let Agreement { client_to_server, server_to_client, .. } = *agreed;
                let (send, receive) = match role {
                    Role::Client => (client_to_server, server_to_client),
                    Role::Server => (server_to_client, client_to_server),
                };
                let calls = exchange::Terms::version_one(send, receive);
                let replies = exchange::Terms::version_one(receive, send);
                (Version::One, calls, replies)
            }
            Spoken::Two(two) => {
                let Thresholds { send, receive } = two.thresholds();
                let peer = two.peer_properties();
                let calls = exchange::Terms::version_two(send, receive, peer);
                let replies = exchange::Terms::version_two(receive, send, peer);
                (Version::Two, calls, replies)
            }
        };
        let within_ours = |terms: exchange::Terms| exchange::Terms {
            chunk_segments_max: terms.chunk_segments_max.min(SEGMENTS_MAX_WIRE),
            read_chunks_max: CHUNKS_MAX,
            write_chunks_max: CHUNKS_MAX,
            ..terms
        };
        let header = ReplyChunks::default().wire_len(version);
        let threshold = usize::try_from(replies.reply_threshold).unwrap_or(usize::MAX);
        let unchunked_reply_max = threshold.min(SEND_BUFFER - HEADER_ROOM).saturating_sub(header);
        let (calls, replies) = (within_ours(calls), within_ours(replies));
        let unchunked_max = UnchunkedMax::of(&calls);
        Self { version, calls, unchunked_max, replies, unchunked_reply_max }
    }

    /// Returns the octets of the longest Payload stream of a Reply in one message that returns the Write chunk `write`.
    pub(crate) fn reply_max(&self, write: Option<&Segments>) -> usize {
        let write = write.map(|write| [Returned { offered: write.as_slice(), length: 0 }]);
        let writes = write.as_ref().map_or(&[][..], |writes| writes.as_slice());
        let header = ReplyChunks { writes, reply: None }.wire_len(self.version);
        let threshold = usize::try_from(self.replies.reply_threshold).unwrap_or(usize::MAX);
        threshold.min(SEND_BUFFER - HEADER_ROOM).saturating_sub(header)
    }

    /// Returns how many of the `offered` Write chunks of a Call are checked against the binding.
    pub(crate) const fn write_chunks_judged(&self, offered: u32) -> u32 {
        match self.version {
            // [R5666-3.4-7] a Write chunk that no result can take is returned unused.
            //~ R5666-3.4-7: `One => 0` -> `One => offered`
            Version::One => 0,
            Version::Two => offered,
        }
    }
}

/// The states of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    /// Transport setup is under way.
    New,
    /// The first messages are under way.
    Negotiating,
    /// RPC messages flow.
    Ready,
    /// We asked the provider to close it.
    Draining,
    /// The connection is gone; the provider may still hold memory of it.
    Closed,
}

/// The events that change the state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The provider says that messages can be carried.
    Established,
    /// The engine says that RPC messages may flow.
    Opened,
    /// We want it closed.
    Closing,
    /// The provider says that it is gone.
    Gone,
}

impl SessionState {
    /// The whole transition table; anything not listed is a bug in this crate.
    pub(crate) fn on(self, change: Change) -> Option<Self> {
        use Change::{Closing, Established, Gone, Opened};
        Some(match (self, change) {
            (Self::New, Established) => Self::Negotiating,
            (Self::Negotiating, Opened) => Self::Ready,
            (Self::New | Self::Negotiating | Self::Ready | Self::Draining, Closing) => {
                Self::Draining
            }
            (Self::New | Self::Negotiating | Self::Ready | Self::Draining, Gone) => Self::Closed,
            _ => return None,
        })
    }
}

impl Connection {
    /// Makes the entry of a connection whose transport setup is under way.
    pub(crate) fn new(
        Link { qp, role, peer }: Link,
        engine: Engine,
        (part, share): (Part, Share),
        agreed: Agreement,
        binding: Option<Rc<Bound>>,
    ) -> Self {
        let terms = Terms::of(engine.engine(), role, &agreed);
        Self {
            qp,
            role,
            peer,
            user: PeerUser::Unknown,
            origin: None,
            left: None,
            active: Instant::ZERO,
            called: false,
            state: SessionState::New,
            engine,
            agreed,
            binding,
            identity: Rc::default(),
            terms,
            meanings: Meanings::default(),
            share,
            replies: VecDeque::new(),
            calls: VecDeque::new(),
            queue: WorkQueue::new(),
            rings: false,
            reserved: 0,
            part,
            answered: Clock::default(),
            check_at: None,
            dirty: false,
            was_ready: false,
            has_all: false,
            traffic: Traffic::default(),
            manner: Manner::Broken,
            failure: None,
        }
    }

    /// Reserves Receives for the peer: replaces those that it used, and adds some if it is busy. `leaving` Replies are
    /// about to be sent, if credit allows; `touched` connections have work this turn.
    #[inline]
    pub(crate) fn replenish(&mut self, receives: &mut Receives, leaving: usize, touched: usize) {
        // A connection that is to close is given no new credits.
        if !self.is_up() {
            return;
        }
        // The Replies about to leave hold no Receive any more, and are not owed for long.
        let leaving = u32::try_from(leaving).unwrap_or(u32::MAX).min(self.engine.replies_left());
        let owed = self.engine.owed().saturating_sub(leaving);
        let mut more = receives.grow(&mut self.part, (self.engine.reserved(), owed), touched);
        // [V2-4.2.1.1-2]
        if more == 0 && self.engine.lacks_receive_for_grant() {
            more = receives.replace_grant(&mut self.part);
        }
        self.engine.reserve(more);
        self.reserved += more;
    }

    /// Grants the peer credits to replace those that the `messages` of a run used; our next message advertises them.
    /// `leaving` Replies are about to be sent, and `touched` connections have work this turn.
    #[inline(always)]
    pub(crate) fn give_credits(
        &mut self,
        receives: &mut Receives,
        touched: usize,
        messages: usize,
        leaving: usize,
    ) {
        // For a single message the grant can wait until the turn ends; the answer to the message cannot.
        if messages > 1 || self.engine.reserved() < PLENTY {
            self.replenish(receives, leaving, touched);
        }
    }

    /// Tells the provider how many Receives are reserved for the peer, before the peer learns of them.
    #[inline]
    pub(crate) fn provide<P: Provider>(&mut self, provider: &mut P) {
        let reserved = std::mem::take(&mut self.reserved);
        if reserved > 0 {
            //~ R5666-6-2: `reserved` -> `reserved - 1`
            provider.reserve_receives(self.qp, reserved);
        }
    }

    /// Returns whether anything waits to be sent, or has waited.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.replies.is_empty()
            || !self.calls.is_empty()
            || self.check_at.is_some()
            || !self.engine.is_at_rest()
    }

    /// Gives back the memory of a queue that was long, once it is empty.
    #[inline]
    pub(crate) fn shrink(&mut self) {
        if self.queue.is_empty() && self.queue.capacity() > QUEUE_KEPT {
            self.queue = WorkQueue::new();
        }
    }

    /// Takes in the private data that a server sent when it accepted. `promises` are those of our provider.
    pub(crate) fn heard(&mut self, private_data: &[u8], promises: &Promises) {
        if self.role == Role::Client {
            let (ours, _) = our_private_data(self.role, promises);
            //~ R8797-1-1: `PrivateData::find(private_data)` -> `Some(PrivateData::find(private_data).unwrap_or(ours))`
            //~ R8797-4-1: `PrivateData::find(private_data)` -> `{
            //~     use std::{cell::RefCell, collections::HashMap};
            //~     thread_local! {
            //~       static SAID: RefCell<HashMap<SocketAddr, Option<PrivateData>>> = RefCell::default();
            //~     }
            //~     SAID.with_borrow_mut(|said| *said.entry(self.peer)
            //~       .or_insert_with(|| PrivateData::find(private_data)))
            //~   }`
            self.agreed = Agreement::new(Some(ours), PrivateData::find(private_data));
        }
    }

    /// Describes the other end for the service. `key` is the name of the connection in the core.
    pub(crate) const fn described(&self, key: ConnectionKey) -> Peer {
        let Self { peer: address, user, role, .. } = *self;
        let (connection, version) = (ConnectionId(key), self.terms.version);
        Peer { connection, address, user, version, role }
    }

    /// Returns the fields by which an event identifies this connection, which the core knows as `key`.
    pub(crate) const fn subject<'a>(&self, key: &'a ConnectionKey) -> Subject<'a> {
        Subject { conn: key, peer: self.peer, role: self.role }
    }

    /// Returns the terms that both ends agreed on, as the event `connection.ready` reports them.
    pub(crate) fn agreed_terms(&self) -> Agreed {
        let Terms { version, calls, replies, .. } = self.terms;
        Agreed {
            version,
            // Our Calls and our Replies go one way, the peer's the other.
            send_max: calls.call_threshold.min(replies.reply_threshold),
            receive_max: calls.reply_threshold.min(replies.call_threshold),
            receives: self.engine.reserved(),
        }
    }

    /// Applies one change; an impossible one is our own bug.
    pub(crate) fn change(&mut self, change: Change) {
        let Some(next) = self.state.on(change) else { panic!("{change:?} in {:?}", self.state) };
        self.state = next;
    }

    /// Returns the octets of memory that the connection takes: its entry, and its queues.
    pub(crate) fn bytes(&self) -> usize {
        let mut bytes = 0;
        bytes += size_of::<Self>();
        bytes += self.replies.capacity() * size_of::<CallKey>();
        bytes += self.calls.capacity() * size_of::<usize>();
        bytes += self.queue.capacity() * size_of::<WorkRequest>();
        bytes += self.share.bytes();
        bytes
    }

    /// Returns whether the connection is still being set up.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.state, SessionState::New | SessionState::Negotiating)
    }

    /// Returns whether the peer serves RDMA Reads.
    #[inline]
    pub(crate) const fn may_read(&self) -> bool {
        self.share.reading_max > 0
    }

    /// Returns whether the connection is neither closing nor gone.
    pub(crate) const fn is_up(&self) -> bool {
        matches!(self.state, SessionState::New | SessionState::Negotiating | SessionState::Ready)
    }

    /// Returns whether Calls of ours may be queued on the connection, now or for when it is ready. Calls go from
    /// the end that connected.
    pub(crate) fn takes_calls(&self) -> bool {
        self.is_up() && self.binding.is_some()
    }
}

/// Receives that suffice a peer for a turn: for a Call, for the credit that it leaves, and for a grant.
const PLENTY: u32 = 3;
/// Work requests that an empty queue keeps the memory for: those of an item in one lease, many times.
const QUEUE_KEPT: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_matrix_is_the_reviewed_one() {
        use Change::{Closing, Established, Gone, Opened};
        let mut matrix = String::new();
        for state in [
            SessionState::New,
            SessionState::Negotiating,
            SessionState::Ready,
            SessionState::Draining,
            SessionState::Closed,
        ] {
            for change in [Established, Opened, Closing, Gone] {
                let next = state.on(change).map_or("-".into(), |next| format!("{next:?}"));
                matrix += &format!("{state:?} {change:?} {next}\n");
            }
        }
        assert_eq!(matrix, include_str!("connection.snapshot"));
    }
}
