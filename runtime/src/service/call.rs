//! The types of the Calls that a service serves or makes.

use std::net::SocketAddr;
use std::slice;
use std::time::Duration;

use haulage_mr_pool::{Leases, Local};
use haulage_proto::chunk::{DataItem, Item as PayloadItem, Kind, PayloadReader};
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::{Binding, CallHeader, Credential, Procedure, ReplyHeader};
use haulage_proto::v2::connection::Role;
use haulage_proto::xdr::Truncated;

use super::error::CallError;
use crate::core_number::CoreNumber;
use crate::items::Items;
use crate::key::{CallKey, ConnectionKey};
use crate::provider::PeerUser;

/// Where the DDP-eligible result of a procedure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultSource {
    /// The result comes from memory that the service holds whether it is called or not.
    Resident,
    /// The result comes from memory of the core's pool that the service leases as it is called, for this Call alone.
    /// The core calls the service once the pool has room for the longest result that the Requester takes, and charges
    /// the room to the connection until the Reply has left.
    Leased,
}

/// The leases that the DDP-eligible argument of a procedure may lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentLeases {
    /// One lease if one of its length is free, otherwise several: it fits if its octets are free in the pool.
    Any,
    /// One lease, because the service needs its octets in one slice. An argument is refused if no free memory of the
    /// pool is long enough in one piece.
    One,
}

/// Names a connection of one core. No other core of the server finds anything by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) ConnectionKey);

impl ConnectionId {
    /// Returns a number that no other connection of any core of the server has, those that have ended included.
    pub const fn number(self) -> u64 {
        self.0.number()
    }

    /// Returns the number of the core that has the connection.
    pub const fn core(self) -> CoreNumber {
        self.0.core()
    }
}

/// The other end of a connection that became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The connection.
    pub connection: ConnectionId,
    /// The address of the peer.
    pub address: SocketAddr,
    /// The user at the other end of an accepted connection, if
    /// [`Service::identifies_peers`](crate::core::Service::identifies_peers) returns true.
    pub user: PeerUser,
    /// The version of RPC-over-RDMA that both ends settled on; `None` over TCP.
    pub version: Option<Version>,
    /// Our role: a client connected, a server accepted.
    pub role: Role,
}

/// A connection that has ended, which the service does not know yet.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) peer: Peer,
    pub(crate) why: CallError,
    /// Whether the peer closed it in order, having every Reply.
    pub(crate) has_all: bool,
}

/// Names a Call that a service has not answered yet. No other core of the server finds anything by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallToken(pub(crate) CallKey);

impl CallToken {
    /// Returns the number of the core that serves the Call.
    pub const fn core(self) -> CoreNumber {
        self.0.core()
    }
}

/// A Call that has arrived and is not served yet, as it is shown to [`Service::foresee`](crate::core::Service::foresee).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreseen<'a> {
    /// The position of the program among those that the service serves.
    pub program: usize,
    /// Procedure number, of which the program need not have one.
    pub procedure: u32,
    /// The arguments, but for data items in chunks. They may be malformed.
    pub arguments: &'a [u8],
}

/// A Call being served.
#[derive(Debug)]
pub struct Call<'a> {
    /// The XID that the Requester gave the Call: the same if it is sent again on another connection.
    pub xid: u32,
    /// Program number: with the version, always that of a program that the service serves.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number: always one of the program's binding.
    pub procedure: u32,
    /// The identity that the caller claims.
    pub credential: Credential<'a>,
    /// The connection it came on.
    pub connection: ConnectionId,
    /// The name of the Call, for [`Outcome::Later`](super::Outcome::Later).
    pub token: CallToken,
    /// The arguments.
    pub arguments: Arguments<'a>,
}

/// The arguments of a Call: the Payload stream of the message, and the data items that the peer reduced, which are already
/// in their places.
#[derive(Debug)]
pub struct Arguments<'a> {
    pub(crate) reader: PayloadReader<'a>,
    /// The place of the first reduced argument, until it is taken.
    pub(crate) placed: Option<&'a mut Placement>,
    /// The further reduced arguments that were not taken yet.
    pub(crate) others: slice::IterMut<'a, ReducedArgument>,
}

/// A reduced argument, which may still have to be read.
#[derive(Debug)]
pub(crate) struct ReducedArgument {
    /// Where it belongs in the Payload stream.
    pub(crate) position: u32,
    /// Octets that the Requester offered.
    pub(crate) length: u64,
    pub(crate) placed: Placement,
}

impl ReducedArgument {
    /// Returns whether the argument is still to be read.
    pub(crate) const fn is_awaited(&self) -> bool {
        matches!(self.placed, Placement::None)
    }
}

/// The place of a reduced argument.
#[derive(Debug)]
pub(crate) enum Placement {
    /// The argument is still to be read, or it has been taken.
    None,
    /// The argument was read into these leases.
    Placed(Leases),
    /// The argument was not fetched.
    Refused(Refusal),
}

impl Placement {
    #[inline]
    const fn take(&mut self) -> Self {
        std::mem::replace(self, Self::None)
    }
}

/// Why a reduced argument was not fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The argument is longer than the binding allows.
    TooLarge,
    /// The pool has no room for the argument, and none is to be expected.
    NoMemory,
    /// Other Calls hold the memory that the argument waited for, and have held it for too long.
    Busy,
}

/// A DDP-eligible argument.
#[derive(Debug)]
pub enum Argument<'a> {
    /// The argument was not reduced: it came in the message, and has to be copied to be kept.
    Unreduced(&'a [u8]),
    /// The argument came by direct data placement and stays where it is: in one lease, unless there was none of its
    /// length and the service takes several ([`Program::argument_leases`](super::Program::argument_leases)).
    Placed(Leases),
    /// The argument was not fetched; the peer offered `length` octets.
    Refused {
        /// Octets offered.
        length: u64,
        /// Why it was not fetched.
        why: Refusal,
    },
}

impl<'a> Arguments<'a> {
    /// Takes the arguments apart, for a service with its own decoder: the Payload stream, and the leases of each reduced
    /// argument, or why one was not fetched.
    pub fn into_parts(self) -> (PayloadReader<'a>, Result<Items<Leases>, Refusal>) {
        let first = match self.placed.map_or(Placement::None, Placement::take) {
            Placement::None => Items::None,
            Placement::Placed(leases) => Items::One(leases),
            Placement::Refused(why) => return (self.reader, Err(why)),
        };
        let others = self.others;
        (self.reader, if others.len() == 0 { Ok(first) } else { Self::join(first, others) })
    }

    #[cold]
    fn join(
        mut all: Items<Leases>,
        others: slice::IterMut<'_, ReducedArgument>,
    ) -> Result<Items<Leases>, Refusal> {
        for argument in others {
            match argument.placed.take() {
                Placement::None => {}
                Placement::Placed(leases) => all.push(leases),
                Placement::Refused(why) => return Err(why),
            }
        }
        Ok(all)
    }

    /// Takes an unsigned integer.
    pub fn u32(&mut self) -> Result<u32, Truncated> {
        self.reader.u32()
    }

    /// Returns whether everything has been taken, reduced items included.
    pub fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// Takes an opaque that is never reduced, of at most `max` octets.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8], Truncated> {
        self.reader.opaque(max)
    }

    /// Takes `length` octets without a length word, and their padding: an opaque of a fixed length, or an item of another
    /// type that [`Self::item_data`] has found unreduced.
    pub fn fixed(&mut self, length: usize) -> Result<&'a [u8], Truncated> {
        self.reader.fixed(length)
    }

    /// Takes the next DDP-eligible opaque, wherever it is. Unreduced, it has at most `max` octets.
    pub fn item(&mut self, max: usize) -> Result<Argument<'a>, Truncated> {
        let at = self.reader.position();
        match self.reader.eligible_opaque(max)? {
            PayloadItem::Unreduced(bytes) => Ok(Argument::Unreduced(bytes)),
            PayloadItem::Reduced { length } => self.reduced(length, at),
        }
    }

    /// Takes the octets of the next DDP-eligible argument of any other type: an array or optional data, behind the word that
    /// was just taken, the arm of a union, or an opaque of a fixed length. `None` if they were not reduced: then they are
    /// the next in the stream.
    pub fn item_data(&mut self) -> Result<Option<Argument<'a>>, Truncated> {
        let at = self.reader.position();
        let length = self.reader.eligible()?;
        length.map(|length| self.reduced(length, at)).transpose()
    }

    /// Takes the next reduced argument, which has `length` octets and belongs at offset `at`.
    #[inline]
    fn reduced(&mut self, length: u64, at: usize) -> Result<Argument<'a>, Truncated> {
        let others = &mut self.others;
        let next = self.placed.take().or_else(|| others.next().map(|next| &mut next.placed));
        match next.map_or(Placement::None, Placement::take) {
            Placement::Placed(mut leases) => {
                // On version 1 an item's padding may have been placed behind it.
                leases.truncate(usize::try_from(length).unwrap_or(usize::MAX));
                Ok(Argument::Placed(leases))
            }
            Placement::Refused(why) => Ok(Argument::Refused { length, why }),
            Placement::None => Err(Truncated { at }),
        }
    }
}

/// The octets that one message of a connection has room for, without a chunk and beside its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineRoom {
    /// Octets of the arguments of a Call.
    pub arguments: usize,
    /// Octets of the results of a Reply.
    pub results: usize,
}

impl InlineRoom {
    /// The room that every connection has, whatever its peer and the identity of its Calls.
    pub const MIN: Self = {
        let headers = HEADER_MAX + AUTH_MAX;
        Self {
            arguments: MESSAGE_MIN - headers - CallHeader::PLAIN_LEN,
            results: MESSAGE_MIN - headers - ReplyHeader::SUCCESS_LEN,
        }
    };
}

/// Octets of the longest message that every peer takes.
const MESSAGE_MIN: usize = 1024;
/// Octets of the longest transport header without chunks.
const HEADER_MAX: usize = 32;
/// Octets of the longest body of a credential or verifier (RFC 5531 section 8.2).
const AUTH_MAX: usize = 400;

/// One Call of a client to a server.
///
/// A procedure that never has a Reply takes no leases.
#[derive(Debug)]
pub struct Request {
    /// Procedure number.
    pub procedure: u32,
    /// The DDP-eligible arguments, moved by RDMA Read, in stream order: at most
    /// [`CHUNKS_MAX`](crate::limits::CHUNKS_MAX), as the binding declares them.
    pub arguments: Items<ArgumentItem>,
    /// Room for each DDP-eligible result, moved by RDMA Write, in the order of the binding: at most
    /// [`CHUNKS_MAX`](crate::limits::CHUNKS_MAX). On version 2 a peer may say that a result is longer: if
    /// the Call is idempotent, the binding allows as much and the pool has it, the Call goes again with a longer lease,
    /// which comes home in place of this one. A version 1 server is offered the first room alone.
    pub rooms: Items<Local>,
    /// How long to wait; `None` for the core's `call_timeout`.
    pub timeout: Option<Duration>,
}

/// A DDP-eligible argument of a Call of ours.
#[derive(Debug)]
pub struct ArgumentItem {
    /// Its octets.
    pub lease: Local,
    /// Where it belongs among the arguments.
    pub place: Place,
}

/// The place of a DDP-eligible argument among the arguments that `encode` writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the last argument, an opaque. The core appends the length word.
    Last,
    /// It is of this type and begins at this offset of what `encode` writes, in octets: a multiple of four. The word that
    /// stays is written there, the length of an opaque, the count of an array, the discriminator of optional data or of a
    /// union; the octets of the item follow it elsewhere. An opaque of a fixed length has no such word.
    At(Kind, usize),
}

impl Request {
    /// Makes a Call without leases, which may take as long as the core lets Calls take.
    #[inline]
    pub const fn new(procedure: u32) -> Self {
        Self { procedure, arguments: Items::None, rooms: Items::None, timeout: None }
    }

    /// Adds the last argument, an opaque, if there is a lease.
    #[inline]
    #[must_use]
    pub fn argument(self, lease: impl Into<Option<Local>>) -> Self {
        match lease.into() {
            Some(lease) => self.argument_at(Place::Last, lease),
            None => self,
        }
    }

    /// Adds a DDP-eligible argument, behind those added before.
    #[inline]
    #[must_use]
    pub fn argument_at(mut self, place: Place, lease: Local) -> Self {
        self.arguments.push(ArgumentItem { lease, place });
        self
    }

    /// Adds room for the next DDP-eligible result, if there is a lease.
    #[inline]
    #[must_use]
    pub fn room(mut self, lease: impl Into<Option<Local>>) -> Self {
        if let Some(lease) = lease.into() {
            self.rooms.push(lease);
        }
        self
    }

    /// Says how long to wait.
    #[inline]
    #[must_use]
    pub const fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Returns whether it has leases, which are exposed to the server.
    #[inline]
    pub(crate) const fn opens(&self) -> bool {
        !self.arguments.is_empty() || !self.rooms.is_empty()
    }

    /// Returns the octets of an argument that is the last one: the core appends its length word.
    #[inline]
    pub(crate) fn last_length(&self) -> Option<usize> {
        let last = self.arguments.as_slice().last()?;
        (last.place == Place::Last).then(|| last.lease.len())
    }

    /// Takes the only lease, as [`Self::only`] returns it.
    #[inline]
    pub(crate) fn take_only(&mut self) -> Option<Local> {
        if self.arguments.is_empty() {
            return self.rooms.take().into_first();
        }
        self.arguments.take().into_first().map(|argument| argument.lease)
    }

    /// Returns the only lease, if there is one alone: the last argument, or the room for the first result.
    #[inline]
    pub(crate) const fn only(&self) -> Option<&Local> {
        match (&self.arguments, &self.rooms) {
            (Items::One(ArgumentItem { lease, place: Place::Last }), Items::None)
            | (Items::None, Items::One(lease)) => Some(lease),
            _ => None,
        }
    }
}

impl Items<ArgumentItem> {
    /// Takes the leases out, without their places.
    pub fn into_leases(self) -> Items<Local> {
        self.into_iter().map(|argument| argument.lease).collect()
    }
}

impl From<Local> for Items<ArgumentItem> {
    #[inline]
    fn from(lease: Local) -> Self {
        Self::One(ArgumentItem { lease, place: Place::Last })
    }
}

impl From<Option<Local>> for Items<ArgumentItem> {
    #[inline]
    fn from(lease: Option<Local>) -> Self {
        lease.map_or(Self::None, Self::from)
    }
}

/// How a Call of ours ended.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The results, without the RPC header; of a reduced result they hold only the length. They are empty if the procedure
    /// never has a Reply: then the Call has ended because it was sent, and nothing says whether it was carried out.
    pub results: Result<PayloadReader<'a>, CallError>,
    /// The leases of the arguments; none if the peer may still read one of them.
    pub arguments: Items<Local>,
    /// The rooms for results: each as long as the octets that were written, or as it was if the Call failed or its result
    /// is among the others. Either way the peer may have changed any octet that it had. None if the peer may still write
    /// one of them.
    pub rooms: Items<Local>,
}

impl<'a> Finished<'a> {
    /// Tells of a Call without leases.
    #[inline]
    pub(crate) const fn without_leases(results: Result<PayloadReader<'a>, CallError>) -> Self {
        Self { results, arguments: Items::None, rooms: Items::None }
    }
}

/// Returns whether the binding allows the reductions that `request`, which has leases, asks for.
pub(crate) fn allows_to_reduce(binding: &Binding, request: &Request) -> bool {
    let Some(procedure) = binding.procedure(request.procedure) else { return true };
    // [V2-4.7-1] no Reply would say when the peer is done with the memory.
    //~ V2-4.7-1: `procedure.call_only` -> `procedure.call_only && procedure.arguments.is_empty()`
    if procedure.call_only {
        return false;
    }
    match (&request.arguments, &request.rooms) {
        (Items::One(ArgumentItem { lease, place: Place::Last }), Items::None) => {
            procedure.allows_arguments(&[DataItem::opaque(0, lease.len())])
        }
        (Items::None, Items::One(room)) => {
            u32::try_from(room.len()).is_ok_and(|length| procedure.allows_results(&[length]))
        }
        _ => allows_several(procedure, request),
    }
}

/// Returns whether a procedure allows the reductions that `request`, which has several leases, asks for.
#[cold]
fn allows_several(procedure: &Procedure, request: &Request) -> bool {
    let item = |argument: &ArgumentItem| match argument.place {
        Place::Last => DataItem::opaque(0, argument.lease.len()),
        Place::At(kind, _) => DataItem::new(kind, 0, argument.lease.len()),
    };
    let arguments: Items<_> = request.arguments.iter().map(item).collect();
    let length = |room: &Local| u32::try_from(room.len()).unwrap_or(u32::MAX);
    let rooms: Items<_> = request.rooms.iter().map(length).collect();
    //~ V2-4.5.3.4-2: `procedure.allows_arguments` -> `arguments.iter().all(|it| it.kind() != Kind::Arm) && procedure.allows_arguments`
    procedure.allows_arguments(arguments.as_slice()) && procedure.allows_results(rooms.as_slice())
}
