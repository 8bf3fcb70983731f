//! What goes in each direction of a connection, and the terms that both ends agreed on.

use std::rc::Rc;

use haulage_proto::exchange::{self, UnchunkedMax};
use haulage_proto::negotiate::{Engine as Spoken, ReplyChunks, Version};
use haulage_proto::rpc::{CallHeader, ReplyHeader};
use haulage_proto::rtrext::{Extension, XMTREQ, XMTRESP};
use haulage_proto::v1::private_data::Agreement;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::reverse::Level;
use haulage_proto::v2::thresholds::Thresholds;
use haulage_proto::verbs::NamedTemplate;
use haulage_proto::xdr::Writer;

use crate::core::program::Programs;
use crate::core::templates::{Bound, Meaning, Meanings};
use crate::identity::Identity;
use crate::items::Items;
use crate::limits::{
    CHUNKS_MAX, CallsGo, HEADER_ROOM, INLINE_SIZE, SEGMENTS_MAX_WIRE, SEND_BUFFER,
    TRANSMISSIONS_MAX,
};
use crate::outgoing::segments::Segments;
use crate::service::InlineRoom;

/// What a connection serves and calls.
#[derive(Clone, Debug)]
pub(crate) struct Directions {
    /// The programs that this end serves on it, if it serves any.
    pub(crate) serves: Option<Rc<Programs>>,
    /// The binding of our Calls on it, if we make any.
    pub(crate) calls: Option<Rc<Bound>>,
}

impl Directions {
    /// Returns the directions in which Calls go: a client calls in any case, and a server serves.
    pub(crate) const fn calls_go(&self) -> CallsGo {
        match (&self.serves, &self.calls) {
            (Some(_), Some(_)) => CallsGo::BothWays,
            _ => CallsGo::Forward,
        }
    }
}

/// What goes in each direction of a connection, and its terms.
#[derive(Debug)]
pub(crate) struct Session {
    directions: Directions,
    /// The terms for version 1, from the private data of both ends.
    agreed: Agreement,
    terms: Terms,
    /// The identity that our Calls claim.
    identity: Rc<Identity>,
    /// The meanings of the peer's header templates.
    meanings: Meanings,
}

impl Session {
    /// Begins a session with the terms that `engine` starts with.
    pub(crate) fn new(
        engine: &Spoken,
        role: Role,
        agreed: Agreement,
        directions: Directions,
    ) -> Self {
        let terms = Terms::of(engine, role, &agreed);
        let (identity, meanings) = (Rc::default(), Meanings::default());
        Self { directions, agreed, terms, identity, meanings }
    }

    /// Settles the terms: the engine of this `role` has negotiated.
    pub(super) fn settle(&mut self, engine: &Spoken, role: Role) {
        self.terms = Terms::of(engine, role, &self.agreed);
    }

    /// Begins anew with the terms that `engine` starts with. What goes in each direction, and the identity, stay.
    pub(super) fn renew(&mut self, engine: &Spoken, role: Role, agreed: Agreement) {
        self.agreed = agreed;
        self.meanings = Meanings::default();
        self.settle(engine, role);
    }

    /// Takes the terms for version 1 from the private data of both ends.
    pub(super) const fn agree(&mut self, agreed: Agreement) {
        self.agreed = agreed;
    }

    /// Has our Calls claim an identity.
    pub(crate) fn claim(&mut self, identity: Identity) {
        self.identity = Rc::new(identity);
    }

    /// Has our Calls go without round-trip extensions from now on: the peer takes none.
    pub(crate) const fn stop_placing(&mut self) {
        (self.terms.placing_max, self.terms.grouping_max) = (0, 0);
        self.terms.directs = false;
    }

    /// Returns the terms for version 1.
    pub(crate) const fn agreed(&self) -> &Agreement {
        &self.agreed
    }

    /// Returns the terms that both ends agreed on.
    #[inline]
    pub(crate) const fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Returns the directions in which Calls go.
    pub(crate) const fn calls_go(&self) -> CallsGo {
        self.directions.calls_go()
    }

    /// Returns the programs that this end serves, if it serves any.
    #[inline]
    pub(crate) const fn serves(&self) -> Option<&Rc<Programs>> {
        self.directions.serves.as_ref()
    }

    /// Returns the binding of our Calls, if we make any.
    #[inline]
    pub(crate) const fn calls(&self) -> Option<&Rc<Bound>> {
        self.directions.calls.as_ref()
    }

    /// Returns the identity that our Calls claim.
    #[inline]
    pub(crate) const fn identity(&self) -> &Rc<Identity> {
        &self.identity
    }

    /// Has Calls of ours made with a binding, whichever end this is.
    #[cfg(test)]
    pub(crate) fn bind(&mut self, calls: Rc<Bound>) {
        self.directions.calls = Some(calls);
    }

    /// Returns whether our Calls without chunks may begin with a template.
    #[inline]
    pub(crate) fn has_templates(&self) -> bool {
        self.terms.version == Version::Two && *self.identity == Identity::Anonymous
    }

    /// Returns the room of a message without chunks, for the arguments of our Calls and for the results of their Replies.
    pub(crate) fn inline_room(&self) -> InlineRoom {
        let Self { terms: Terms { unchunked_max, .. }, identity, .. } = self;
        // The body of the credential takes the place of none.
        let mut counting = Writer::counting(&mut []);
        let counted = identity.credential().encode(&mut counting);
        let credential = if counted.is_ok() { counting.position() } else { usize::MAX };
        let header = (CallHeader::PLAIN_LEN - NO_CREDENTIAL).saturating_add(credential);
        InlineRoom {
            arguments: (unchunked_max.call() as usize).saturating_sub(header),
            results: (unchunked_max.reply() as usize).saturating_sub(ReplyHeader::SUCCESS_LEN),
        }
    }

    /// Returns the meaning of a template that arrived. Only version 2 has templates.
    #[inline]
    pub(crate) fn meaning(&mut self, like: NamedTemplate<'_>) -> Meaning {
        self.meanings.of(like, self.directions.serves.as_deref())
    }
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
    /// Octets of the longest Payload stream of a Reply that the peer reads; none if it reads no Replies.
    pub(crate) read_reply_max: usize,
    /// Octets of the longest message of a Call of ours whose data items come along with it; none if the peer takes no such
    /// Calls.
    pub(crate) placing_max: usize,
    /// Octets of the longest such Call in several messages; none if the peer takes none.
    pub(crate) grouping_max: usize,
    /// Whether Calls of ours may direct how their results come (round-trip extensions).
    pub(crate) directs: bool,
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
                // What is longer has its data items along.
                let [send, receive] = [send, receive].map(|most| most.min(INLINE));
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
        let (mut calls, replies) = (within_ours(calls), within_ours(replies));
        if !Self::takes_chunks(engine, role) {
            (calls.read_chunks_max, calls.write_chunks_max) = (0, 0);
            calls.chunk_segments_max = 0;
        }
        let unchunked_max = UnchunkedMax::of(&calls);
        let read_reply_max = match engine {
            Spoken::One(one) if one.holds_replies() => usize::MAX,
            _ => 0,
        };
        let (placing_max, grouping_max) = match engine {
            Spoken::Two(two) if Self::takes_chunks(engine, role) => two
                .extension()
                .and_then(Extension::terms)
                .filter(|terms| terms.allows(XMTREQ) && terms.theirs.targetable_count() > 0)
                .map_or((0, 0), |terms| {
                    let messages = terms.request_send_max.min(TRANSMISSIONS_MAX) as usize;
                    (terms.message_max, terms.message_max.saturating_mul(messages))
                }),
            _ => (0, 0),
        };
        let directs = match engine {
            Spoken::Two(two) if Self::takes_chunks(engine, role) => {
                let terms = two.extension().and_then(Extension::terms);
                terms.is_some_and(|terms| terms.allows(XMTREQ) && terms.allows(XMTRESP))
            }
            _ => false,
        };
        Self {
            version,
            calls,
            unchunked_max,
            replies,
            unchunked_reply_max,
            read_reply_max,
            placing_max,
            grouping_max,
            directs,
        }
    }

    /// Returns whether the peer of a connection of this `role` said that it takes Calls with chunks, or does so anyhow.
    pub(crate) fn takes_chunks(engine: &Spoken, role: Role) -> bool {
        match (role, engine) {
            (Role::Client, _) => true,
            // [R8167-5.3-2] nothing says that a client of version 1 takes chunks.
            (Role::Server, Spoken::One(_)) => false,
            // [V2-4.6.3-1]
            (Role::Server, Spoken::Two(two)) => {
                Level::of(two.peer_properties().reverse).allows_chunks()
            }
        }
    }

    /// Returns the octets of the longest Payload stream of a Reply in one message that returns these Write chunks.
    pub(crate) fn reply_max(&self, writes: &[Segments]) -> usize {
        let writes: Items<_> = writes.iter().map(|write| write.returned(0)).collect();
        let header = ReplyChunks { writes: writes.as_slice(), reply: None }.wire_len(self.version);
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

/// Octets of the longest message without data items.
#[expect(clippy::cast_possible_truncation, reason = "a message is far shorter than 4 GiB")]
const INLINE: u32 = INLINE_SIZE as u32;
/// Octets of a credential without a body: its flavor and its length.
const NO_CREDENTIAL: usize = 8;
