//! What an engineer writes: a service, its binding, and what it sees of a Call.

use std::fmt;
use std::net::SocketAddr;

use haulage_mr_pool::{Local, PIECES_MAX, Piece, Pieces, Shared};
use haulage_proto::chunk::{DataItem, Item as PayloadItem, PayloadReader};
use haulage_proto::exchange::{Shortage, padded};
pub use haulage_proto::negotiate::{Refusal as TransportError, Version};
pub use haulage_proto::rpc::auth::{AUTH_NONE, AUTH_SYS};
use haulage_proto::rpc::{AcceptStat, Credential, ReplyHeader};
pub use haulage_proto::rpc::{Binding, Eligible, Procedure};
pub use haulage_proto::v2::connection::Role;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::xdr::{Truncated, Writer};

use crate::core::connection::Connection;
use crate::core::inbound::{InboundCall, Segments};
use crate::core::table::Key;
use crate::core::{Cx, Unsupported};
use crate::limits::HEADER_ROOM;
use crate::provider::PeerUser;

/// Returns whether a Call may reduce what `request` wants to have reduced.
pub(crate) fn allows_to_reduce(binding: &Binding, request: &Request) -> bool {
    let Some(procedure) = binding.procedure(request.procedure) else { return true };
    let argument = request.argument.as_ref().map(|lease| DataItem::opaque(0, lease.len()));
    let result = request.result.as_ref().map(|lease| u32::try_from(lease.len()));
    let argument = procedure.allows_arguments(argument.as_slice());
    argument && result.is_none_or(|length| length.is_ok_and(|l| procedure.allows_results(&[l])))
}

/// A server's program, or the calling half of a client, or both. Lives on one core.
///
/// Every method runs to completion on the core's thread: it must not block.
pub trait Service {
    /// Returns what may be moved by direct data placement. Asked once.
    fn binding(&self) -> Binding;

    /// Returns the authentication flavors (RFC 5531 section 8.2) of the Calls that the service takes. A Call of
    /// another flavor is denied with `AUTH_ERROR` and never reaches the service. Asked once.
    fn flavors(&self) -> &[u32] {
        &[AUTH_NONE, AUTH_SYS]
    }

    /// Returns where the DDP-eligible result of a procedure comes from. Asked once for each procedure.
    fn result_source(&self, procedure: u32) -> ResultSource {
        let _ = procedure;
        ResultSource::Resident
    }

    /// Returns whether a peer may connect.
    fn admits(&self, peer: SocketAddr) -> bool {
        let _ = peer;
        true
    }

    /// Returns whether the user at the other end of each accepted connection is to be looked up, for
    /// [`Cx::peer_user`]. The lookup takes system calls, once a connection.
    fn identifies_peers(&self) -> bool {
        false
    }

    /// Returns whether the peer of a connection was promised something that it does not ask for again, such
    /// as a callback. Its connection is not closed for being idle.
    fn has_promised(&self, connection: ConnectionId) -> bool {
        let _ = connection;
        false
    }

    /// Learns that a connection is ready, in either role, before any Call on it is served. Told once for each
    /// connection that becomes ready.
    fn opened(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        let _ = (cx, peer);
    }

    /// Learns that a connection has ended that it was told of by [`Self::opened`]; told once, unless the core is
    /// dropped before. [`CallError::Closed`] says that this end closed it. Nothing more comes of the connection: how
    /// Calls on it ended has been told.
    fn closed(&mut self, cx: &mut Cx<'_>, peer: &Peer, why: &CallError) {
        let _ = (cx, peer, why);
    }

    /// Acts on one Call. The results go into `reply`.
    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome;

    /// Finishes a Call for which [`Outcome::Later`] was returned, after [`Cx::resume`].
    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let _ = (cx, token, reply);
        Outcome::Failed(AcceptStat::SystemErr)
    }

    /// Learns how a Call made through [`Cx::call`] ended.
    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let _ = (cx, token, finished);
    }

    /// Runs once a turn, for services that act on their own. Returns whether anything was done.
    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let _ = cx;
        false
    }
}

/// The service of a core that only calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoService;

impl Service for NoService {
    fn binding(&self) -> Binding {
        Binding { program: 0, version: 0, procedures: Vec::new() }
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, _: &mut Reply) -> Outcome {
        Outcome::Failed(AcceptStat::ProcUnavail)
    }
}

/// Where the DDP-eligible result of a procedure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultSource {
    /// From memory that the service holds whether it is asked or not.
    Resident,
    /// From memory of the core's pool that the service leases as it is called, for this Call alone. The core calls
    /// the service once the pool has room for as long a result as the Requester takes, and counts the room as the
    /// connection's until the Reply has left.
    Leased,
}

/// Names a connection of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionId(pub(crate) Key<Connection>);

/// The other end of a connection that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The connection.
    pub connection: ConnectionId,
    /// Where the peer is.
    pub address: SocketAddr,
    /// The user there, where [`Service::identifies_peers`] wanted the user of a client looked up.
    pub user: PeerUser,
    /// The version of RPC-over-RDMA that both ends settled on.
    pub version: Version,
    /// Our role: a client connected, a server accepted.
    pub role: Role,
}

/// A connection that has ended, of which the service is still to be told.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) peer: Peer,
    pub(crate) why: CallError,
}

/// Names a Call that a service has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallToken(pub(crate) Key<InboundCall>);

/// A Call being served.
#[derive(Debug)]
pub struct Call<'a> {
    /// What the Requester calls it: the same if it is sent again on another connection.
    pub xid: u32,
    /// Procedure number; bound, or the runtime had answered it.
    pub procedure: u32,
    /// Who says they call.
    pub credential: Credential<'a>,
    /// The connection it came on.
    pub connection: ConnectionId,
    /// Its name, for [`Outcome::Later`].
    pub token: CallToken,
    /// The arguments.
    pub arguments: Arguments<'a>,
}

/// The arguments of a Call: the inline Payload stream and, if the peer reduced it, one data item that
/// is already in its place.
#[derive(Debug)]
pub struct Arguments<'a> {
    pub(crate) reader: PayloadReader<'a>,
    pub(crate) placed: Placement,
}

/// What became of a reduced argument.
#[derive(Debug)]
pub(crate) enum Placement {
    /// There is none, or it has been taken.
    None,
    /// It was read into this lease.
    Placed(Local),
    /// It was left where it is.
    Refused(Refusal),
}

/// Why a reduced argument was not fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is longer than the binding allows.
    TooLarge,
    /// The pool has no room for it.
    NoMemory,
}

/// A DDP-eligible argument.
#[derive(Debug)]
pub enum Argument<'a> {
    /// It came inline, and has to be copied to be kept.
    Inline(&'a [u8]),
    /// It came by direct data placement and stays where it is.
    Placed(Local),
    /// It was not fetched; `length` is what the peer offered.
    Refused {
        /// Octets offered.
        length: u64,
        /// Why.
        why: Refusal,
    },
}

impl<'a> Arguments<'a> {
    /// Gives up what there is, for a service that reads it in its own way: the stream, and where a
    /// reduced argument was placed, or why it was not.
    pub fn into_parts(self) -> (PayloadReader<'a>, Result<Option<Local>, Refusal>) {
        let placed = match self.placed {
            Placement::None => Ok(None),
            Placement::Placed(lease) => Ok(Some(lease)),
            Placement::Refused(why) => Err(why),
        };
        (self.reader, placed)
    }

    /// Takes an unsigned integer.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.reader.u32()
    }

    /// Returns whether everything has been taken, the reduced item included.
    pub fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// Takes an opaque that is never reduced, of at most `max` octets.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Truncated> {
        self.reader.opaque(max)
    }

    /// Takes the DDP-eligible opaque, wherever it is. Inline, it has at most `max` octets.
    pub fn item(&mut self, max: usize) -> Result<Argument<'a>, Truncated> {
        let at = self.reader.position();
        Ok(match self.reader.eligible_opaque(max)? {
            PayloadItem::Inline(bytes) => Argument::Inline(bytes),
            PayloadItem::Reduced { length } => {
                match std::mem::replace(&mut self.placed, Placement::None) {
                    Placement::Placed(mut lease) => {
                        // On version 1 its padding may have come with it.
                        lease.set_len(usize::try_from(length).unwrap_or(usize::MAX));
                        Argument::Placed(lease)
                    }
                    Placement::Refused(why) => Argument::Refused { length, why },
                    Placement::None => return Err(Truncated { at }),
                }
            }
        })
    }
}

/// What a service did with a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply is complete.
    Done,
    /// No results; the RPC layer says why.
    Failed(AcceptStat),
    /// The reply comes in a later turn: keep the token, then [`Cx::resume`] it.
    Later,
}

/// A Reply under construction, in the registered memory it leaves from.
#[derive(Debug)]
pub struct Reply {
    /// The message: room for its transport header, then the Payload stream unless `body` has it.
    pub(crate) buffer: Local,
    /// The Payload stream, where it may go into a Reply chunk.
    pub(crate) body: Option<Local>,
    /// Where in the Payload stream the next result goes.
    pub(crate) at: usize,
    /// Octets the Payload stream may have.
    length_max: usize,
    /// What the peer offered for the reduced result.
    pub(crate) offered: Option<u64>,
    pub(crate) data: Data,
    /// The results that fit neither a Write chunk nor the Payload stream.
    unplaced: Option<Unplaced>,
    /// Octets of eligible items that went into the Payload stream, padding included.
    inlined: usize,
    /// What became of the Write chunk.
    chunk: ChunkUse,
}

/// Results of one Reply for which the Requester offered too little room.
#[derive(Clone, Copy, Debug)]
struct Unplaced {
    /// Octets of the first such result.
    length: u32,
    /// Octets all of them add to the Payload stream.
    stream: u32,
}

/// What became of the Write chunk that a peer offered for a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkUse {
    /// No item has gone into it.
    Unused,
    /// One item goes into it.
    Used,
}

/// A result that leaves straight from where it lives.
#[derive(Debug)]
pub enum Data {
    /// No octets.
    Empty,
    /// A lease that goes home once it is sent.
    Local(Local),
    /// One reference to memory that many Replies may be sending.
    Shared(Shared),
    /// Parts of such memory, one behind the other.
    Pieces(Box<Pieces>),
}

impl Data {
    /// Returns how many octets there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Local(lease) => lease.len(),
            Self::Shared(shared) => shared.len(),
            Self::Pieces(pieces) => pieces.len(),
        }
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lends the octets, part by part, to `f`; no part is empty.
    #[inline]
    pub(crate) fn with_parts<R>(&self, f: impl FnOnce(&[&[u8]]) -> R) -> R {
        match self {
            Self::Empty => f(&[]),
            Self::Local(lease) => f(&[lease.bytes()]),
            Self::Shared(shared) => f(&[shared.bytes()]),
            Self::Pieces(pieces) => {
                let mut parts = [&[][..]; PIECES_MAX];
                let mut count = 0;
                for part in pieces.iter().map(Piece::bytes).filter(|part| !part.is_empty()) {
                    if let Some(place) = parts.get_mut(count) {
                        *place = part;
                        count += 1;
                    }
                }
                f(parts.get(..count).unwrap_or_default())
            }
        }
    }

    /// Returns the octets, part by part.
    fn parts(&self) -> impl Iterator<Item = &[u8]> {
        let (one, pieces) = match self {
            Self::Empty => (None, None),
            Self::Local(lease) => (Some(lease.bytes()), None),
            Self::Shared(shared) => (Some(shared.bytes()), None),
            Self::Pieces(pieces) => (None, Some(pieces.iter().map(Piece::bytes))),
        };
        one.into_iter().chain(pieces.into_iter().flatten())
    }

    /// Appends the octets, their padding with them.
    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.parts().try_for_each(|part| w.put(part))?;
        w.pad(self.len())
    }
}

impl Reply {
    /// Makes one whose RPC header is still to be written; `write` is the Write chunk that was offered.
    pub(crate) fn new(
        buffer: Local,
        body: Option<Local>,
        length_max: usize,
        write: Option<&Segments>,
    ) -> Self {
        let offered = write.map(Segments::length);
        let (at, data, unplaced) = (ReplyHeader::SUCCESS_LEN, Data::Empty, None);
        let (inlined, chunk) = (0, ChunkUse::Unused);
        Self { buffer, body, at, length_max, offered, data, unplaced, inlined, chunk }
    }

    /// Begins another in the same buffer, of whose results so many octets may go into a chunk.
    #[inline]
    pub(crate) const fn begin(&mut self, length_max: usize, offered: Option<u64>) {
        self.at = ReplyHeader::SUCCESS_LEN;
        self.length_max = length_max;
        self.offered = offered;
        self.unplaced = None;
        self.inlined = 0;
        self.chunk = ChunkUse::Unused;
    }

    /// Has every result go inline: the Call's credential forbids to reduce.
    pub(crate) const fn unreduced(&mut self) {
        self.offered = None;
    }

    /// Returns whether the results are those that the binding declares: at most `results_max` octets beside
    /// eligible items, and at most one item in the Write chunk.
    pub(crate) const fn keeps_to(&self, results_max: u32) -> bool {
        let length = self.at.saturating_sub(ReplyHeader::SUCCESS_LEN + self.inlined);
        length <= results_max as usize
    }

    /// Appends results that are never reduced.
    pub fn results<R>(&mut self, encode: impl FnOnce(&mut Writer<'_>) -> R) -> R {
        let stream = match &mut self.body {
            Some(body) => body.bytes_mut(),
            None => self.buffer.bytes_mut().get_mut(HEADER_ROOM..).unwrap_or_default(),
        };
        let end = self.length_max.min(stream.len());
        let room = stream.get_mut(self.at..end).unwrap_or_default();
        let mut writer = Writer::new(room);
        let result = encode(&mut writer);
        self.at += writer.position();
        result
    }

    /// Appends the DDP-eligible result: by RDMA Write if the peer offered a Write chunk, else inline.
    ///
    /// If it fits neither way the Requester is told how much room it needs, in place of the Reply. A Write chunk
    /// takes one item: a second one for it makes the Reply a system error.
    pub fn item(&mut self, data: Data) {
        // No data is longer than ITEM_MAX.
        let word = u32::try_from(data.len()).unwrap_or(u32::MAX);
        // [V2-4.5.3.1-1] the length stays; reduced, the octets and their padding go.
        match self.results(|w| w.u32(word)) {
            Ok(()) => self.item_data(data),
            Err(_) => self.leave_out(word, LENGTH_WORD),
        }
    }

    /// Appends the DDP-eligible result like [`Self::item`], behind a length word that is already there.
    pub fn item_data(&mut self, data: Data) {
        let (length, at) = (data.len(), self.at);
        if self.offered.is_some_and(|offered| offered >= length as u64) {
            match self.chunk {
                ChunkUse::Unused => self.chunk = ChunkUse::Used,
                // Longer than any binding declares: [`Self::keeps_to`] does not hold.
                ChunkUse::Used => self.at = usize::MAX,
            }
            self.data = data;
        } else if self.results(|w| data.encode(w)).is_ok() {
            self.inlined += self.at - at;
        } else {
            // Some parts of it may have fit.
            self.at = at;
            self.leave_out(u32::try_from(length).unwrap_or(u32::MAX), 0);
        }
    }

    /// Returns the error to send in place of this Reply, if one of its results has no room.
    ///
    /// The error names the room that the whole Reply takes, with all that was appended to it, so that a
    /// Requester that offers as much receives the Reply.
    #[inline]
    pub(crate) fn refusal(&self) -> Option<ErrorBody> {
        let Unplaced { length, stream } = self.unplaced?;
        let offered = self.offered.unwrap_or(0).try_into().unwrap_or(u32::MAX);
        // [V2-7.3.5-2] the Payload stream as it would be with every result in it.
        let rest = u32::try_from(self.at).unwrap_or(u32::MAX).saturating_add(stream);
        // [V2-7.3.4-1] [V2-7.3.4-2] [V2-7.3.4-3] the only Write chunk is the first.
        Some(Shortage::of_result(1, offered, length, rest).report())
    }

    /// Notes a result of `length` octets that has no room. `before` octets that belong in front of it
    /// have none either.
    #[cold]
    fn leave_out(&mut self, length: u32, before: u32) {
        let unplaced = self.unplaced.get_or_insert(Unplaced { length, stream: 0 });
        let adds = padded(length).saturating_add(before);
        unplaced.stream = unplaced.stream.saturating_add(adds);
    }
}

/// Octets of the word in front of an opaque that tells its length.
const LENGTH_WORD: u32 = 4;

/// What a client asks of a server in one Call.
#[derive(Debug)]
pub struct Request {
    /// Procedure number.
    pub procedure: u32,
    /// The DDP-eligible argument, moved by RDMA Read. It must be the last argument.
    pub argument: Option<Local>,
    /// Where the DDP-eligible result goes, moved by RDMA Write; its length is what it may hold.
    pub result: Option<Local>,
    /// When to stop waiting; the core's `call_timeout` unless given.
    pub timeout: Option<std::time::Duration>,
}

impl Request {
    /// Returns whether it has leases, which are opened to the server.
    #[inline]
    pub(crate) const fn opens(&self) -> bool {
        self.argument.is_some() || self.result.is_some()
    }
}

/// How a Call of ours ended.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The results, without the RPC header; a reduced result left only its length here.
    pub results: Result<PayloadReader<'a>, CallError>,
    /// The argument's lease, ours again.
    pub argument: Option<Local>,
    /// The result's lease, ours again: as long as what was written, or as it was if the Call failed. Either way
    /// the peer may have changed any octet that the lease had.
    pub result: Option<Local>,
}

/// Why a Call of ours failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// Nothing was heard in time. Whether the Call was carried out is unknown.
    TimedOut,
    /// The connection could not be made.
    Connect(crate::provider::ConnectError),
    /// The connection was lost. Whether the Call was carried out is unknown.
    Disconnected(String),
    /// The server's RPC layer did not accept the Call.
    Rejected(AcceptStat),
    /// The server's RPC layer denied the Call.
    Denied,
    /// The peer's transport could not act on the Call.
    Refused(TransportError),
    /// The Reply makes no sense: the rule it breaks.
    BadReply(&'static str),
    /// The caller asked for something the binding does not allow.
    NotEligible,
    /// The arguments fit neither a message nor a Call chunk.
    TooLong,
    /// The longest Reply fits neither a message nor a Reply chunk.
    ReplyTooLong,
    /// Every slot, buffer or registration is in use; try again after a Reply.
    Busy,
    /// The core's pool has no room for a lease that the Call needs; try again when leases have gone home.
    NoMemory,
    /// [`RemoteClient::ended`](crate::remote::RemoteClient::ended) was asked while no Call was under way.
    NothingBegun,
    /// The core is shutting down or gone.
    Closed,
    /// The peer made the connection, and Calls go from the end that connects: reverse-direction Calls are not built.
    NoReverse,
    /// The connection's binding declares something that this runtime does not do.
    Unsupported(Unsupported),
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut => f.write_str("no reply in time"),
            Self::Connect(reason) => write!(f, "cannot connect: {reason}"),
            Self::Disconnected(reason) => write!(f, "disconnected: {reason}"),
            Self::Rejected(AcceptStat::ProgUnavail) => {
                f.write_str("the server does not serve this program")
            }
            Self::Rejected(AcceptStat::ProgMismatch { low, high }) => {
                write!(f, "the server serves versions {low} to {high} of this program")
            }
            Self::Rejected(AcceptStat::ProcUnavail) => {
                f.write_str("the server does not know this procedure")
            }
            Self::Rejected(AcceptStat::GarbageArgs) => {
                f.write_str("the server could not parse the arguments")
            }
            Self::Rejected(_) => f.write_str("the server failed"),
            Self::Denied => f.write_str("the server denied the call"),
            Self::Refused(error) => write!(f, "the peer's transport refused the call: {error}"),
            Self::BadReply(rule) => write!(f, "bad reply: {rule}"),
            Self::NotEligible => f.write_str("the binding does not allow this item to be reduced"),
            Self::TooLong => f.write_str("the arguments are longer than one message can be"),
            Self::ReplyTooLong => f.write_str("the reply may be longer than can be conveyed"),
            Self::Busy => f.write_str("too many calls in flight"),
            Self::NoMemory => f.write_str("the core's memory pool has no room"),
            Self::NothingBegun => f.write_str("no call is under way"),
            Self::Closed => f.write_str("the core is shut down"),
            Self::NoReverse => f.write_str(
                "this end accepted the connection, and only the end that connects makes calls",
            ),
            Self::Unsupported(what) => what.fmt(f),
        }
    }
}

impl std::error::Error for CallError {}
