//! The limits of one core, fixed before any of its memory is reserved.

use std::time::Duration;

use haulage_mr_pool::Pool;
use haulage_proto::negotiate;
use haulage_proto::rtrext::properties::{Offer, RTRS_XCONT, RTRS_XREQ, RTRS_XRESP};
use haulage_proto::rtrext::structure::{BufferSegment, FLAG_TARGETABLE, Structure};
use haulage_proto::v1;
use haulage_proto::v1::connection::{CallLimits, Late, Reverse};
use haulage_proto::v1::private_data::PrivateData;
use haulage_proto::v2;
use haulage_proto::v2::connection::{ChunkLimits, Role};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::credit::WINDOW_MIN;
use haulage_proto::v2::host_auth::Policy;
use haulage_proto::v2::properties::{Properties, REVERSE_GENL, REVERSE_NONE};
use haulage_proto::v2::requester::SLOTS_MAX;
use haulage_proto::verbs::Segment;
use haulage_proto::xdr::Writer;

pub use crate::outgoing::segments::SEGMENTS_MAX;
use crate::provider::{Caps, Promises};

/// Which versions of RPC-over-RDMA a core speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// Version 1 alone.
    OnlyOne,
    /// Version 2 alone.
    OnlyTwo,
    /// Both: a client begins with version 2 and goes on with version 1 where the server asks for it, or on a new
    /// connection if the server does not answer. For ten minutes it then begins with version 1 at that address. A server
    /// follows its clients.
    Both,
}

/// The text of version 1 that a core follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// RFC 8166, which all deployed peers follow.
    Rfc8166,
    /// RFC 5666, for peers of its time, as far as RFC 8166 took it out of version 1: messages may be padded (`RDMA_MSGP`),
    /// and a Reply that has no other room is exposed for the client to read, until it says `RDMA_DONE`.
    ///
    /// Such Replies of a server are at most [`HELD_MAX`] on a connection, and the connection ends if one is not released
    /// within [`Limits::progress_timeout`]. A client reads those of at most [`Limits::read_max`] octets that are no longer
    /// than the binding allows. One that it cannot read, for whatever reason, ends the connection: the server keeps it
    /// until then. Our ends pad nothing themselves.
    ///
    /// Between a server and clients of ours, Calls in reverse direction are as ever. Calls of version 1 that a server with
    /// this profile takes go the longer way through a core; version 2 stays as it is.
    Rfc5666,
}

/// The directions in which Calls go on a connection, by what this end serves and calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallsGo {
    /// From the end that connected.
    Forward,
    /// From both ends.
    BothWays,
}

/// The bounds of one core.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Versions of RPC-over-RDMA that the core speaks.
    pub versions: Versions,
    /// The text of version 1 that the core follows.
    pub profile: Profile,
    /// Connections, in both roles together.
    pub connections_max: u32,
    /// Accepted connections from one address (IPv6: from one network of 64 bits; `shm`: from one process).
    pub connections_each_max: u32,
    /// How long an accepted connection may be idle before it is closed; `None` for ever.
    pub idle_timeout: Option<Duration>,
    /// Credits that a busy client may be granted; its unanswered Calls count against them. A server may be granted one
    /// more ([`Self::receives_each`]).
    pub credits_max: u32,
    /// Receives in the shared queue. Inbound Calls in progress are bounded by it too: each holds the
    /// Receive buffer it arrived in until it is answered.
    pub receives_max: u32,
    /// Our own Calls that have not ended.
    pub calls_out_max: u32,
    /// Replies and Calls encoded and not yet sent. The Replies of one connection hold at most
    /// [`Self::replies_each`] of them, and those of one origin at most as many as they leave free.
    pub send_buffers_max: u32,
    /// Octets of one Receive: at least [`INLINE_SIZE`]. If there are more, peers of version 2 may send the data items of a
    /// Call along with its message, where that is no longer (round-trip extensions, Send-based placement): a Call with a
    /// short item then takes one round trip instead of two. Each Receive takes as much memory, also where no peer ever uses
    /// it.
    pub receive_size: u32,
    /// Octets of the longest message that this core sends: at least [`INLINE_SIZE`]. If there are more, its Calls bring their
    /// data items along with their messages, where these are no longer and the peer takes them. The core then has
    /// [`PLACING_BUFFERS`] buffers of this length; a Call that finds too few goes by chunks.
    pub send_size: u32,
    /// Messages that may bring one Call, or one Reply, with its data items (a group of transmissions), from peers and to them:
    /// one, up to [`TRANSMISSIONS_MAX`]. A group takes one round trip where a Call by chunks takes two, if there are credits
    /// for all of it; its octets are copied once more. So it pays where the peer is far away, and not on one machine.
    pub transmissions_max: u32,
    /// Whether Calls direct how their results come (round-trip extensions, responses), those of this core and those of peers.
    /// A result comes along with its Reply where its messages have the room: nothing is exposed for it, and its octets are
    /// copied once at each end. A core that serves such Calls takes memory of [`Self::send_size`] for each of these messages,
    /// charged to its connection. Without room for data items in messages, all results are written as before.
    pub responses: bool,
    /// Octets of the longest segment of a chunk that peers of version 2 are told to offer. A longer item comes in several, of
    /// which a direction of an RPC has [`SEGMENTS_MAX`] at most: so this bounds the items that peers can send and fetch.
    pub segment_size_max: u32,
    /// Octets of the longest Call or Reply that may come in several messages (version 2, continued messages). Memory for
    /// all of it is taken when the first one arrives; that of a Call is charged to its connection.
    pub message_max: u32,
    /// Threads outside the core that may hold a client of it.
    pub remote_clients_max: u32,
    /// How long connection setup may take: the transport's part, and the first messages, each. A server that has not spoken
    /// version 2 after a third of the latter is called in version 1 on a new connection, for which there is the rest.
    pub setup_timeout: Duration,
    /// How long a peer may leave an RDMA Read unanswered, output untaken or a message incomplete without any progress
    /// before its connection ends. Providers enforce this, and are configured with it as well; RDMA devices have
    /// retries of their own instead.
    pub progress_timeout: Duration,
    /// How long a Call may take before its caller is told that it timed out.
    pub call_timeout: Duration,
    /// How long the memory of a Call that was given up stays exposed to the peer at least. It is taken back when such
    /// memory of the connection exceeds an eighth of the memory that is free; the connection is closed if the peer,
    /// which may be copying, does not let go of it for as long again.
    pub grace_timeout: Duration,
    /// How long Replies may wait, none of them finding credit of the peer, before the connection is closed.
    pub stall_timeout: Duration,
    /// How long a Call may wait for memory of the pool before it is refused.
    pub memory_timeout: Duration,
    /// How long a shutdown waits for Calls in flight, and then again for peers that may still touch memory of
    /// connections that are over. That memory is not used again.
    pub drain_timeout: Duration,
}

/// Bounds for a server core or a client core on an ordinary machine.
pub const LIMITS_DEFAULT: Limits = Limits {
    versions: Versions::Both,
    profile: Profile::Rfc8166,
    connections_max: 256,
    connections_each_max: 128,
    idle_timeout: None,
    credits_max: 128,
    receives_max: 2048,
    calls_out_max: 256,
    send_buffers_max: 512,
    receive_size: wire(INLINE_SIZE),
    send_size: wire(INLINE_SIZE),
    transmissions_max: 1,
    responses: false,
    segment_size_max: SEGMENT_SIZE_MAX,
    message_max: 1 << 20,
    remote_clients_max: 16,
    setup_timeout: Duration::from_secs(5),
    progress_timeout: Duration::from_secs(10),
    call_timeout: Duration::from_secs(2),
    grace_timeout: Duration::from_secs(2),
    stall_timeout: Duration::from_secs(10),
    memory_timeout: Duration::from_secs(20),
    drain_timeout: Duration::from_secs(5),
};

/// Receives reserved for every connection, however quiet it is.
///
/// Decision P4 says one credit and one for `RDMA2_GRANT`. A peer that takes Calls of ours keeps one credit from its own
/// (decision P2), so with a single credit it could never make one; and the peer's own grants use credits that it is not
/// told of at once: the minimum is two credits more.
pub const RECEIVES_IDLE: u32 = {
    let mut receives = 0;
    receives += 1; // a Call
    receives += 1; // the one that P2 keeps for Replies and errors
    receives += 1; // the one that a grant of the peer used
    receives += 1; // an asynchronous RDMA2_GRANT (E3)
    receives
};

/// Replies of one connection that its client may be reading ([`Profile::Rfc5666`]).
pub const HELD_MAX: u32 = 8;

/// Connections that may still be closing while others have taken their places.
pub const LEAVING_MAX: u32 = 8;

/// Octets of one Receive buffer, and of the largest message we send inline: a page of payload, and the headers before
/// it. Private data counts in units of 1024 octets.
pub const INLINE_SIZE: usize = 5 << 10;

/// Octets of one Receive, and of a message, that has room for 16 KiB of data items behind 4 KiB of headers and Payload
/// stream.
pub const PLACING_SIZE: u32 = 20 << 10;

/// Buffers of a core for messages with data items. A message has one until the provider has taken its octets, which is at
/// once unless its peer is slow.
pub const PLACING_BUFFERS: u32 = 16;

/// The most that [`Limits::transmissions_max`] can be: as many messages as 64 KiB take.
pub const TRANSMISSIONS_MAX: u32 = 4;

/// Where data items may start in a message with data items: the octets of the parts of each Receive before the last, which
/// has the rest. The first has no data items.
const PARTS: [u32; 4] = [256, 256, 512, 4096];

/// [`SEGMENTS_MAX`], as the type of the fields on the wire.
pub(crate) const SEGMENTS_MAX_WIRE: u32 = 16;

/// Data items reduced in one direction of one RPC. Their chunks have at most [`SEGMENTS_MAX`] segments in all.
pub const CHUNKS_MAX: u32 = 4;

/// Leases that each Call of ours can expose to the peer, whatever other Calls expose: argument, Payload stream, result and
/// Reply.
pub const ITEMS_MAX: u32 = 4;

/// Leases that one Call of ours exposes to the peer at most: each argument and result, the Payload stream and the Reply.
pub(crate) const LEASES_MAX: u32 = 2 * CHUNKS_MAX + 2;

/// Calls of our own that one core can have in flight: as many as its XIDs tell apart.
#[expect(clippy::cast_possible_truncation, reason = "a slot takes a part of an XID's 32 bits")]
pub const CALLS_OUT_MAX: u32 = SLOTS_MAX as u32;

/// Room for a transport header in front of the Payload stream in a send buffer.
pub const HEADER_ROOM: usize = {
    let mut room = 0;
    room += 16; // the common prefix
    room += 4; // rdma_inv_handle
    room += SEGMENTS_MAX * (4 + 4 + Segment::WIRE_LEN) + 4; // Call chunk
    room += SEGMENTS_MAX * (4 + 4 + Segment::WIRE_LEN) + 4; // Read list
    room += (4 + 4) * CHUNKS_MAX as usize + SEGMENTS_MAX * Segment::WIRE_LEN + 4; // Write list
    room += 4 + 4 + SEGMENTS_MAX * Segment::WIRE_LEN; // Reply chunk
    room.next_multiple_of(64)
};

/// Octets of one send buffer.
pub const SEND_BUFFER: usize = HEADER_ROOM + INLINE_SIZE;

/// Limits for the chunks of a Call received on version 2.
pub const CHUNK_LIMITS: ChunkLimits = ChunkLimits {
    read_chunks_max: CHUNKS_MAX,
    write_chunks_max: CHUNKS_MAX,
    segments_max: SEGMENTS_MAX_WIRE,
};

/// Limits for the chunks of a Call received on version 1.
const CALL_LIMITS: CallLimits = CallLimits {
    read_chunks_max: CHUNKS_MAX,
    write_chunks_max: CHUNKS_MAX,
    segments_max: SEGMENTS_MAX_WIRE,
};

/// Octets of the longest Payload stream that is fetched as a whole.
pub const BODY_MAX: usize = 256 << 10;

/// Octets of the longest segment that peers are told to offer, unless [`Limits::segment_size_max`] says otherwise.
pub const SEGMENT_SIZE_MAX: u32 = 64 << 20;

/// Octets of the largest data item that one RPC moves: as many as a chunk of [`SEGMENTS_MAX`] of the longest segments has.
/// Larger values and files take several RPCs.
pub const ITEM_MAX: usize = SEGMENTS_MAX * SEGMENT_SIZE_MAX as usize;

/// Returns the private data about version 1 that every peer is told while connecting, also as the octets that the
/// connection manager carries.
///
/// A server can always send with invalidation. Each registration of a client is for one Call, so all may be invalidated
/// (P8), if the provider promises to report that.
pub(crate) fn our_private_data(
    role: Role,
    promises: &Promises,
) -> (PrivateData, [u8; PrivateData::WIRE_LEN]) {
    let (send_size, receive_size) = (wire(INLINE_SIZE), wire(INLINE_SIZE));
    let invalidation = role == Role::Server || promises.remote_invalidation;
    let ours = PrivateData { invalidation, send_size, receive_size };
    let mut octets = [0; PrivateData::WIRE_LEN];
    let encoded = ours.encode(&mut Writer::new(&mut octets));
    debug_assert!(encoded.is_ok(), "it has one length");
    (ours, octets)
}

impl Limits {
    /// Returns whether a version may be spoken that has what this policy asks for: version 1 has no host authentication (P9).
    pub(crate) fn serve_under(&self, policy: Policy) -> bool {
        !policy.requires() || self.versions != Versions::OnlyOne
    }

    /// Returns the properties that a peer is told (P7: segments cover the largest item). `serves` are the Calls of its server
    /// that a client serves.
    fn properties(&self, serves: Reverse, send_size_max: u32) -> Properties {
        Properties {
            // Whatever a provider moves for a server, it moves for a client.
            reverse: if serves == Reverse::None { REVERSE_NONE } else { REVERSE_GENL },
            send_size_max,
            receive_buffer_size: self.receive_size,
            segment_size_max: self.segment_size_max,
            segment_count_max: SEGMENTS_MAX_WIRE,
        }
    }

    /// Returns the profile of RFC 5666 for connections; `None` without it.
    fn held(&self) -> Option<v1::connection::Profile> {
        // [R5666-3.8-2] [R5666-3.8-3] only where it is asked for.
        //~ R5666-3.8-3: `self.profile == Profile::Rfc5666` -> `false`
        let is_wanted = self.profile == Profile::Rfc5666;
        is_wanted.then_some(v1::connection::Profile {
            held_max: HELD_MAX as usize,
            done_timeout: self.progress_timeout,
            // [R5666-3.8-1] [R5666-11-8]
            late: Late::Close,
        })
    }

    /// The most Replies that clients may be reading, on all connections together.
    pub(crate) fn held_max(&self) -> u32 {
        match self.profile {
            Profile::Rfc8166 => 0,
            Profile::Rfc5666 => (self.connections_max + LEAVING_MAX).saturating_mul(HELD_MAX),
        }
    }

    /// The most Replies that may be being read, on all connections together.
    pub(crate) fn replies_read_max(&self) -> u32 {
        match self.profile {
            Profile::Rfc8166 => 0,
            Profile::Rfc5666 => self.calls_out_max,
        }
    }

    /// The octets of the longest Reply that is read: those of the longest message, and what is in front of an item of that
    /// length.
    pub const fn read_max(&self) -> usize {
        (self.message_max as usize).saturating_add(INLINE_SIZE)
    }

    /// Returns what an end of a connection offers of the round-trip extensions; `None` if that is nothing. `calls_go` are the
    /// directions of Calls.
    pub(crate) fn extension(&self, role: Role, calls_go: CallsGo) -> Option<Offer> {
        let (calls, serves) = match role {
            Role::Client => (true, calls_go == CallsGo::BothWays),
            Role::Server => (calls_go == CallsGo::BothWays, true),
        };
        let sends = calls && self.send_size > wire(INLINE_SIZE);
        let structure = self.structure();
        (sends || serves && structure.is_some() || self.responses).then(|| Offer {
            support: RTRS_XREQ
                | if self.responses { RTRS_XRESP } else { 0 }
                | if self.transmissions_max > 1 { RTRS_XCONT } else { 0 },
            structure,
            request_receive_max: self.transmissions_max.min(TRANSMISSIONS_MAX),
            response_send_max: self.response_messages(),
        })
    }

    /// The most messages of one Reply with data items.
    fn response_messages(&self) -> u32 {
        if self.responses { self.transmissions_max.min(TRANSMISSIONS_MAX) } else { 1 }
    }

    /// Returns the parts of each Receive; `None` if it has no room for data items.
    fn structure(&self) -> Option<Structure> {
        let rest = self.receive_size.checked_sub(PARTS.iter().sum()).filter(|rest| *rest > 0)?;
        let flags = |nth| if nth == 0 { 0 } else { FLAG_TARGETABLE };
        let parts = PARTS.into_iter().chain([rest]).enumerate();
        let parts =
            parts.map(|(nth, length)| BufferSegment { length, align: 64, flags: flags(nth) });
        let parts: Vec<_> = parts.collect();
        Structure::new(&parts)
    }

    /// Returns the configuration of a connection's engine.
    pub(crate) fn engine(
        &self,
        (role, calls_go): (Role, CallsGo),
        first_xid: u32,
        auth: Policy,
    ) -> negotiate::Config {
        let (serves, calls) = match (role, calls_go) {
            (Role::Client, CallsGo::Forward) => (Reverse::None, true),
            // Nothing on version 1 says what a client takes: all ends take Calls without chunks, and Linux no others.
            (Role::Client, CallsGo::BothWays) => (Reverse::Inline, true),
            (Role::Server, CallsGo::Forward) => (Reverse::None, false),
            (Role::Server, CallsGo::BothWays) => (Reverse::None, true),
        };
        let takes_calls = role == Role::Server || serves != Reverse::None;
        // Replies are no longer than other ends expect them.
        let sends_items = calls || self.responses;
        let send_size = if sends_items { self.send_size } else { wire(INLINE_SIZE) };
        let one = v1::connection::Config {
            role,
            credits_wanted: self.credits_max,
            credits_max: self.credits_max,
            calls: CALL_LIMITS,
            reverse: serves,
            profile: self.held(),
        };
        let two = v2::connection::Config {
            role,
            properties: self.properties(serves, send_size),
            first_xid,
            chunks: CHUNK_LIMITS,
            continued_call_max: if takes_calls { self.message_max } else { 0 },
            continued_reply_max: if calls { self.message_max } else { 0 },
            shares_credits: calls_go == CallsGo::BothWays,
            // A client takes Calls without chunks alone.
            continues_replies: role == Role::Server,
            setup_timeout: self.setup_timeout,
        };
        let one = Some(one).filter(|_| self.versions != Versions::OnlyTwo);
        let two = Some(two).filter(|_| self.versions != Versions::OnlyOne);
        negotiate::Config { one, two, auth }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "sizes of messages are far shorter than 4 GiB")]
const fn wire(size: usize) -> u32 {
    size as u32
}

impl Limits {
    /// Octets of the pool that the core keeps for itself; the rest is for data items.
    pub const fn transport_bytes(&self) -> usize {
        let mut bytes = 0;
        bytes += self.receives_max as usize * (self.receive_size as usize).next_multiple_of(1024);
        // One more buffer is for Replies that are made to leave at once.
        let send_buffers = self.send_buffers_max as usize + 1;
        bytes += send_buffers * SEND_BUFFER.next_multiple_of(1024);
        bytes += self.placing_buffers() as usize * self.placing_buffer().next_multiple_of(1024);
        bytes
    }

    /// Buffers for messages with data items; none if messages are no longer than others.
    pub(crate) const fn placing_buffers(&self) -> u32 {
        if self.send_size as usize > INLINE_SIZE { PLACING_BUFFERS } else { 0 }
    }

    /// Octets of a buffer for a message with data items.
    pub(crate) const fn placing_buffer(&self) -> usize {
        HEADER_ROOM + self.send_size as usize
    }

    /// Octets of the memory for a Reply that brings data items. A send buffer is shorter, and others have another length.
    pub(crate) const fn response_buffer(&self) -> usize {
        let octets = self.send_size as usize;
        if octets > SEND_BUFFER { octets } else { SEND_BUFFER + 1 }
    }

    /// Returns these limits, reduced to the abilities of the provider.
    #[must_use]
    pub fn within(mut self, caps: &Caps) -> Self {
        let receives = u32::try_from(caps.receive_queue_max).unwrap_or(u32::MAX);
        let calls = u32::try_from(caps.registrations_max).unwrap_or(u32::MAX) / ITEMS_MAX;
        self.receives_max = self.receives_max.min(receives);
        self.calls_out_max = self.calls_out_max.min(calls).min(CALLS_OUT_MAX);
        for size in [&mut self.receive_size, &mut self.send_size] {
            *size = (*size).min(caps.placing_max).max(wire(INLINE_SIZE)).next_multiple_of(64);
        }
        if caps.placing_max <= wire(INLINE_SIZE) {
            self.responses = false;
        }
        let wanted = self.connections_max.max(1);
        self.connections_max = self.connections_max.min(self.receives_max / RECEIVES_IDLE);
        // The provider is never full before the core is: which connection gives way is decided here.
        let pairs = u32::try_from(caps.queue_pairs_max).unwrap_or(u32::MAX);
        let pairs = pairs.saturating_sub(LEAVING_MAX).max(pairs.div_ceil(2));
        self.connections_max = self.connections_max.min(pairs);
        // If there are fewer connections than wanted, the share of one address shrinks in proportion.
        let each = u64::from(self.connections_each_max) * u64::from(self.connections_max);
        let each = u32::try_from(each.div_ceil(u64::from(wanted))).unwrap_or(u32::MAX);
        self.connections_each_max = self.connections_each_max.min(each.max(1));
        let each =
            caps.receives_each.map_or(u32::MAX, |each| u32::try_from(each).unwrap_or(u32::MAX));
        let most = self.receives_max.min(each);
        let beside = self.receives_each(Role::Client) - self.credits_max;
        self.credits_max = self.credits_max.min(most.saturating_sub(beside));
        self
    }

    /// The most Receives that are reserved for the peer of one connection, of which this end is the `role`.
    ///
    /// A server's own grants use credits that it is not told of at once. Without a Receive for one of them, a client
    /// whose Calls use all credits would have Replies wait.
    pub const fn receives_each(&self, role: Role) -> u32 {
        let mut receives = self.credits_max;
        receives = receives.saturating_add(1); // an asynchronous RDMA2_GRANT (E3)
        if matches!(role, Role::Client) {
            receives = receives.saturating_add(1); // the one that a grant of the server used
        }
        receives
    }

    /// The most send buffers that the Replies of one connection hold: an eighth, or an equal part for each connection
    /// that an origin may have if these are fewer. So if some connections of an origin do not take their Replies, the
    /// others still have theirs.
    pub fn replies_each(&self) -> u32 {
        (self.send_buffers_max / self.connections_each_max.clamp(1, REPLY_PARTS)).max(1)
    }
}

impl Limits {
    /// The most messages of one Reply on the connection of this engine.
    pub(crate) fn reply_messages_max(&self, engine: &negotiate::Connection) -> u32 {
        engine.messages_max(Kind::Reply).min(self.replies_each()).max(1)
    }
}

/// Parts of the send buffers, of which the Replies of one connection have one.
pub const REPLY_PARTS: u32 = 8;

const _: () = {
    // Every connection can have its minimum of Receives (P4), and as many are left for the busy ones.
    assert!(LIMITS_DEFAULT.connections_max * RECEIVES_IDLE * 2 <= LIMITS_DEFAULT.receives_max);
    assert!(RECEIVES_IDLE > WINDOW_MIN);
    // [V2-4.2.1-6] credit limits stay below 2^31 - 1.
    assert!(LIMITS_DEFAULT.receives_max < (1 << 31) - 1);
    assert!(SEGMENTS_MAX_WIRE as usize == SEGMENTS_MAX);
    // An item that is exposed lies in one lease, and its length is one word.
    assert!(ITEM_MAX <= Pool::LEASE_MAX);
    assert!(ITEM_MAX <= u32::MAX as usize);
    // The parts before the last take what a message without data items may have.
    assert!(PARTS[0] + PARTS[1] + PARTS[2] + PARTS[3] == wire(INLINE_SIZE));
    // A client's first message fits the version 1 default (P6), whatever comes after it.
    assert!(INLINE_SIZE >= 1024);
};

#[cfg(test)]
mod tests {
    use haulage_proto::chunk::DataItem;
    use haulage_proto::exchange::{CallFault, CallShape, Format, Terms, plan_call};
    use haulage_proto::rpc::{Eligible, Procedure};
    use haulage_proto::verbs::Handle;

    use super::*;

    #[test]
    fn only_a_client_that_is_told_of_invalidations_asks_for_them() {
        for (role, solicits, says) in [
            (Role::Client, true, true),
            (Role::Client, false, false),
            (Role::Server, true, true),
            (Role::Server, false, true),
        ] {
            let promises = Promises { remote_invalidation: solicits, ..Promises::ALL };
            let (ours, octets) = our_private_data(role, &promises);
            assert_eq!(PrivateData::find(&octets), Some(ours));
            assert_eq!(ours.invalidation, says, "{role:?}, {solicits}");
        }
    }

    #[test]
    fn a_connection_has_an_eighth_of_the_send_buffers_unless_there_are_few_connections() {
        let each = |connections_each_max, send_buffers_max| {
            Limits { connections_each_max, send_buffers_max, ..LIMITS_DEFAULT }.replies_each()
        };
        assert_eq!([each(128, 512), each(8, 512), each(2, 512), each(1, 512)], [64, 64, 256, 512]);
        assert_eq!([each(0, 512), each(128, 7), each(128, 0)], [512, 1, 1]);
    }

    /// Returns the lengths of the segments of a chunk of `length` octets, offered to a peer that was told our properties;
    /// `None` if a Call cannot offer it.
    fn segments(length: usize) -> Option<Vec<u32>> {
        let peer = LIMITS_DEFAULT.properties(Reverse::None, wire(INLINE_SIZE));
        let terms = Terms::version_two(wire(INLINE_SIZE), wire(INLINE_SIZE), &peer);
        let item = Eligible::opaque(usize::MAX);
        let put = Procedure::new("PUT").argument(item).results_max(0);
        let items = [DataItem::opaque(40, length)];
        let shape = CallShape {
            procedure: &put,
            length: 44 + u32::try_from(length.next_multiple_of(4)).unwrap(),
            arguments_at: 40,
            items: &items,
            results: &[],
            reply_max: 24,
            reply_limit: 24,
            may_reduce: true,
        };
        let sent = plan_call(&terms, &shape).map(|plan| {
            let [argument] = *plan.reads else { panic!("it is reduced") };
            assert_eq!((plan.format, argument.length as usize), (Format::Simple, length));
            plan.split(Handle(1), 0, argument.length)
                .map(|segment| segment.length)
                .collect::<Vec<_>>()
        });
        let get = Procedure::new("GET").result(item).results_max(4);
        let results = [wire(length)];
        let reply_max = 24 + 4 + wire(length.next_multiple_of(4));
        let shape = CallShape {
            procedure: &get,
            length: 44,
            items: &[],
            results: &results,
            reply_max,
            reply_limit: reply_max,
            ..shape
        };
        let fetched = plan_call(&terms, &shape).map(|plan| {
            assert_eq!((&*plan.writes, plan.reply), (&[wire(length)][..], None));
            plan.split(Handle(1), 0, wire(length)).map(|segment| segment.length).collect::<Vec<_>>()
        });
        match (sent, fetched) {
            (Ok(sent), Ok(fetched)) => {
                assert_eq!(sent, fetched);
                Some(sent)
            }
            (Err(CallFault::CallTooLong), Err(CallFault::ReplyTooLong)) => None,
            other => panic!("{length}: {other:?}"),
        }
    }

    #[test]
    fn the_segments_that_peers_are_told_of_cover_the_largest_item() {
        // P7
        let Properties { segment_size_max, segment_count_max, .. } =
            LIMITS_DEFAULT.properties(Reverse::None, 0);
        assert!(segment_size_max as usize * segment_count_max as usize >= ITEM_MAX);
        assert!(segment_count_max > 2 * CHUNKS_MAX, "and every chunk of a Call has one");
        let one = SEGMENT_SIZE_MAX as usize;
        assert_eq!(segments(one), Some(vec![SEGMENT_SIZE_MAX]), "one is enough for most items");
        assert_eq!(segments(one + 1), Some(vec![SEGMENT_SIZE_MAX, 1]));
        let mut all = vec![SEGMENT_SIZE_MAX; SEGMENTS_MAX];
        assert_eq!(segments(ITEM_MAX).as_ref(), Some(&all));
        all[SEGMENTS_MAX - 1] -= 1;
        assert_eq!(segments(ITEM_MAX - 1), Some(all));
        assert_eq!(segments(ITEM_MAX + 1), None);
    }
}
