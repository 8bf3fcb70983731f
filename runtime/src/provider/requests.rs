//! What a provider is asked for, and what it gives while messages are taken.

use haulage_mr_pool::{Exposed, Local, Sink, Source};
use haulage_proto::verbs as alphabet;
use haulage_proto::verbs::{Access, Handle, Label, NamedTemplate, Segment};

/// A send queue entry over leased memory.
pub type WorkRequest = alphabet::WorkRequest<Source, Sink>;
/// What a send queue entry over leased memory does.
pub type Operation = alphabet::Operation<Source, Sink>;
/// A receive queue entry over leased memory.
pub type Receive = alphabet::Receive<Sink>;

/// Entries waiting to be posted on one send queue, oldest first.
pub type WorkQueue = std::collections::VecDeque<WorkRequest>;

/// The queue has no room; post again after completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// Messages of one queue pair, in order of arrival: at least one, at most [`RUN_MAX`].
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The octets of each message; behind its template, if the messages have one.
    pub octets: &'a [&'a [u8]],
    /// What the messages have in common.
    pub kind: RunKind<'a>,
}

/// What the messages of a [`Run`] have in common.
#[derive(Clone, Copy, Debug)]
pub enum RunKind<'a> {
    /// Nothing: each is all of its octets.
    Whole,
    /// Each was sent with this template, and the label at its place. On one queue pair a number always stands for
    /// the same template.
    Like(NamedTemplate<'a>, &'a [Label]),
    /// Each invalidates the handle at its place.
    Invalidating(&'a [Handle]),
}

/// Messages of a [`Run`] at most.
pub const RUN_MAX: usize = 16;

/// A lease that is open to the peer, and where it is in the peer's terms; or the lease, and why it is not open.
pub type OpenResult = Result<(Exposed, Segment), (Local, Refused)>;

/// Why a [`Port`](super::Port) did not do at once what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for it now, or something waits that goes first.
    Full,
    /// It is longer than what goes so.
    TooLong,
    /// The peer's memory is not open to it.
    NotOpen,
    /// Enough was done for one turn.
    NotNow,
    /// The connection is not open.
    Gone,
}

/// Answers a peer that wants a connection.
#[derive(Clone, Copy, Debug)]
pub enum ConnectionAnswer<'a> {
    /// The connection is to be.
    Accept(ConnectionParams<'a>),
    /// It is not; the peer is told this.
    Reject(&'a [u8]),
}

/// What one end proposes for a connection, or grants.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionParams<'a> {
    /// Carried to the peer during connection setup.
    pub private_data: &'a [u8],
    /// RDMA Reads we want to have outstanding.
    pub ord: u32,
    /// RDMA Reads we can serve at once.
    pub ird: u32,
}

/// Gives up a lease for the peer to read, or to write, under a handle. Returns the view that its registration
/// takes, too.
pub(crate) fn expose(
    lease: Local,
    handle: Handle,
    access: Access,
) -> (Exposed, alphabet::Exposure<Source, Sink>) {
    match access {
        Access::RemoteRead => {
            let (exposed, source) = lease.expose_read(handle);
            (exposed, alphabet::Exposure::RemoteRead(source))
        }
        Access::RemoteWrite => {
            let (exposed, sink) = lease.expose_write(handle);
            (exposed, alphabet::Exposure::RemoteWrite(sink))
        }
    }
}
