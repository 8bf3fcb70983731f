//! A Call that has a Reply, and how the Reply came about.

use haulage::service::ConnectionId;
use haulage_proto::time::Instant;

/// Identifies a Call on all connections of its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallKey {
    /// The client's address, without the port. IPv4 addresses are mapped to IPv6.
    pub client: u128,
    /// The Call's XID.
    pub xid: u32,
    /// The Call's procedure number.
    pub procedure: u32,
    /// The digest of the Call's caller and arguments by a [`Digester`](super::Digester): a client may use an XID again.
    pub digest: u64,
}

/// Names a connection, over RDMA or TCP, by its number ([`ConnectionId::number`]). No two connections of a server have the
/// same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection(pub u64);

impl From<ConnectionId> for Connection {
    fn from(connection: ConnectionId) -> Self {
        Self(connection.number())
    }
}

/// A Reply to a Call that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// The connection on which the Call came.
    pub connection: Connection,
    /// When the Call ended.
    pub now: Instant,
    /// How it ended.
    pub end: End,
    /// The results.
    pub reply: &'a [u8],
}

/// The outcome of a Call, which decides about the part of the cache that keeps its Reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The Call succeeded.
    Success,
    /// The Call failed and changed nothing.
    Failure,
}
