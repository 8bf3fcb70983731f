//! Requests to a provider, the runs of messages that it delivers without Receives, and the reasons it refuses.

use haulage_mr_pool::{Exposed, Local, Sink, Source};
use haulage_proto::verbs as alphabet;
use haulage_proto::verbs::{Access, Handle, HeaderPatch, NamedTemplate, Segment};

/// The queue has no room; post again after completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// Messages of one queue pair, in order of arrival: at least one, at most [`RUN_MAX`].
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The octets of each message; behind its template, if the messages have one.
    pub octets: &'a [&'a [u8]],
    /// The property that the messages share.
    pub kind: RunKind<'a>,
}

/// The property that the messages of a [`Run`] share.
#[derive(Clone, Copy, Debug)]
pub enum RunKind<'a> {
    /// The messages share no property: the octets of each are the whole message.
    Whole,
    /// Each message was sent with this template and the patch at its index. On one queue pair a number always stands
    /// for the same template.
    Like(NamedTemplate<'a>, &'a [HeaderPatch]),
    /// Each message invalidates the handle at its index.
    Invalidating(&'a [Handle]),
}

/// The most messages in one [`Run`].
pub const RUN_MAX: usize = 16;

/// A lease that is open to the peer, with the segment that names it; or the lease, and why it is not open.
pub type OpenResult = Result<(Exposed, Segment), (Local, Refused)>;

/// The reason that a [`Port`](super::Port) refused an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room now, or an earlier entry waits and goes first.
    Full,
    /// The octets are more than can be sent, written or read at once.
    TooLong,
    /// The peer's memory is not open to the operation.
    NotOpen,
    /// The operations of this turn have used up its budget.
    NotNow,
    /// The connection is not open.
    Gone,
}

/// Answers a peer that wants a connection.
#[derive(Clone, Copy, Debug)]
pub enum ConnectionAnswer<'a> {
    /// Accepts the connection.
    Accept(ConnectionParams<'a>),
    /// Rejects the connection, with this private data for the peer.
    Reject(&'a [u8]),
}

/// The terms that one end proposes for a connection, or grants.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionParams<'a> {
    /// Private data for the peer, carried during connection setup.
    pub private_data: &'a [u8],
    /// RDMA Reads we want to have outstanding.
    pub ord: u32,
    /// RDMA Reads we can serve at once.
    pub ird: u32,
}

/// Exposes a lease for the peer to read, or to write, under a handle. Also returns the view that its registration
/// takes.
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
