//! The types of the Calls that a service serves or makes.

use std::net::SocketAddr;

use haulage_mr_pool::{Leases, Local};
use haulage_proto::chunk::{DataItem, Item as PayloadItem, PayloadReader};
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::{Binding, Credential};
use haulage_proto::v2::connection::Role;
use haulage_proto::xdr::Truncated;

use super::error::CallError;
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

/// Names a connection of one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(pub(crate) ConnectionKey);

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
    /// The version of RPC-over-RDMA that both ends settled on.
    pub version: Version,
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

/// Names a Call that a service has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallToken(pub(crate) CallKey);

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

/// The arguments of a Call: the Payload stream of the message and, if the peer reduced it, one data item that
/// is already in its place.
#[derive(Debug)]
pub struct Arguments<'a> {
    pub(crate) reader: PayloadReader<'a>,
    /// The place of the reduced argument, if there is one.
    pub(crate) placed: Option<&'a mut Placement>,
}

/// The place of a reduced argument.
#[derive(Debug)]
pub(crate) enum Placement {
    /// The Call has no reduced argument, or it has been taken.
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
    /// Takes the arguments apart, for a service with its own decoder: the Payload stream, and the leases of a reduced
    /// argument, or why it was not fetched.
    pub fn into_parts(self) -> (PayloadReader<'a>, Result<Option<Leases>, Refusal>) {
        let placed = match self.placed.map_or(Placement::None, Placement::take) {
            Placement::None => Ok(None),
            Placement::Placed(leases) => Ok(Some(leases)),
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

    /// Takes the DDP-eligible opaque, wherever it is. Unreduced, it has at most `max` octets.
    pub fn item(&mut self, max: usize) -> Result<Argument<'a>, Truncated> {
        let at = self.reader.position();
        Ok(match self.reader.eligible_opaque(max)? {
            PayloadItem::Unreduced(bytes) => Argument::Unreduced(bytes),
            PayloadItem::Reduced { length } => {
                match self.placed.as_deref_mut().map_or(Placement::None, Placement::take) {
                    Placement::Placed(mut leases) => {
                        // On version 1 an item's padding may have been placed behind it.
                        leases.truncate(usize::try_from(length).unwrap_or(usize::MAX));
                        Argument::Placed(leases)
                    }
                    Placement::Refused(why) => Argument::Refused { length, why },
                    Placement::None => return Err(Truncated { at }),
                }
            }
        })
    }
}

/// One Call of a client to a server.
#[derive(Debug)]
pub struct Request {
    /// Procedure number.
    pub procedure: u32,
    /// The DDP-eligible argument, moved by RDMA Read. It must be the last argument. A procedure that never has a Reply
    /// takes no leases.
    pub argument: Option<Local>,
    /// Room for the DDP-eligible result, moved by RDMA Write. On version 2 a peer may say that the result is longer: if
    /// the Call is idempotent, the binding allows as much and the pool has it, the Call goes again with a longer lease,
    /// which comes home in place of this one.
    pub result: Option<Local>,
    /// How long to wait; `None` for the core's `call_timeout`.
    pub timeout: Option<std::time::Duration>,
}

impl Request {
    /// Returns whether it has leases, which are exposed to the server.
    #[inline]
    pub(crate) const fn opens(&self) -> bool {
        self.argument.is_some() || self.result.is_some()
    }
}

/// How a Call of ours ended.
#[derive(Debug)]
pub struct Finished<'a> {
    /// The results, without the RPC header; of a reduced result they hold only the length. They are empty if the procedure
    /// never has a Reply: then the Call has ended because it was sent, and nothing says whether it was carried out.
    pub results: Result<PayloadReader<'a>, CallError>,
    /// The argument's lease; `None` if there was none, or if the peer may still read it.
    pub argument: Option<Local>,
    /// The result's lease: as long as the octets that were written, or as it was if the Call failed. Either way the
    /// peer may have changed any octet that the lease had. `None` if there was none, or if the peer may still write it.
    pub result: Option<Local>,
}

/// Returns whether the binding allows the reductions that `request`, which has leases, asks for.
pub(crate) fn allows_to_reduce(binding: &Binding, request: &Request) -> bool {
    let Some(procedure) = binding.procedure(request.procedure) else { return true };
    // [V2-4.7-1] no Reply would say when the peer is done with the memory.
    //~ V2-4.7-1: `procedure.call_only` -> `procedure.call_only && procedure.arguments.is_empty()`
    if procedure.call_only {
        return false;
    }
    let argument = request.argument.as_ref().map(|lease| DataItem::opaque(0, lease.len()));
    let result = request.result.as_ref().map(|lease| u32::try_from(lease.len()));
    let argument = procedure.allows_arguments(argument.as_slice());
    argument && result.is_none_or(|length| length.is_ok_and(|l| procedure.allows_results(&[l])))
}
