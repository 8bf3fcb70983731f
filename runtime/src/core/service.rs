//! The interface of a service: its binding, the Calls that it serves, and the Calls that it makes.

use std::net::SocketAddr;

use haulage_proto::rpc::AcceptStat;

use super::cx::Cx;
use crate::service::{
    Binding, Call, CallError, CallToken, ConnectionId, Finished, Foreseen, Outcome, Peer, Program,
    Reply,
};

/// A server's programs, or the calling half of a client, or both. It lives on one core.
///
/// Every method runs to completion on the core's thread: it must not block.
pub trait Service {
    /// Returns the programs that are served on every accepted connection. A Call of another program is answered with
    /// `PROG_UNAVAIL`, and one of another version with `PROG_MISMATCH` and the versions that there are. Called once.
    fn programs(&self) -> Vec<Program> {
        Vec::new()
    }

    /// Returns the binding of the Calls that this end makes on accepted connections (reverse direction): `None` if it makes
    /// none. They are made by [`Cx::call`], as any others. Called once.
    ///
    /// A client of version 2 announces whether it takes such Calls. On version 1 nothing is announced: the service has to
    /// know from its program which clients do. Calls wait until a Call of the client was answered, and have no chunks.
    fn callbacks(&self) -> Option<Binding> {
        None
    }

    /// Returns whether [`Self::make_room`] is called. Called once.
    fn makes_room(&self) -> bool {
        false
    }

    /// Moves or drops leases of the service's own, so that a Call may find memory: `octets`, in one lease or in several.
    /// Called once a turn while a Call waits for memory, if [`Self::makes_room`] returns true; it may take some ten
    /// microseconds. Returns whether anything was done, so that it is worth trying again; otherwise the Call waits for
    /// what other Calls hold, or is refused if that is not enough.
    fn make_room(&mut self, cx: &mut Cx<'_>, octets: usize) -> bool {
        let _ = (cx, octets);
        false
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

    /// Called with Calls of one connection that arrived together, before the first of them is served, so that memory which
    /// they will read is fetched meanwhile. Not all Calls that are served were foreseen, nor are all foreseen ones served: their
    /// arguments have not been checked.
    #[inline]
    fn foresee<'a>(&mut self, calls: impl Iterator<Item = Foreseen<'a>>)
    where
        Self: Sized,
    {
        let _ = calls;
    }

    /// Called once for each connection that becomes ready, in either role, before any Call on it is served.
    fn opened(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        let _ = (cx, peer);
    }

    /// Called once for each connection for which [`Self::opened`] was called, when it has ended, unless the core is
    /// dropped before. [`CallError::Closed`] says that this end closed it. The service has already been told how every
    /// Call on the connection ended.
    fn closed(&mut self, cx: &mut Cx<'_>, peer: &Peer, why: &CallError) {
        let _ = (cx, peer, why);
    }

    /// Called just before [`Self::closed`] if the peer has closed the connection in order and is known to have the
    /// Replies to all its Calls: it will not repeat any. Some RDMA devices do not tell at once what has arrived; then
    /// this is not called.
    fn left(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        let _ = (cx, peer);
    }

    /// Serves one Call of a program of [`Self::programs`], or of one that a connection of ours serves
    /// ([`ConnectOptions::serving`](crate::core::ConnectOptions::serving)). The results go into `reply`.
    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        let _ = (cx, call, reply);
        Outcome::Failed(AcceptStat::ProcUnavail)
    }

    /// Finishes a Call that was answered with [`Outcome::Later`], after [`Cx::resume`].
    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let _ = (cx, token, reply);
        Outcome::Failed(AcceptStat::SystemErr)
    }

    /// Called when a Call made through [`Cx::call`] has ended; `token` is the one that it was made with. A Call of a
    /// procedure without a Reply ends as soon as it is sent.
    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let _ = (cx, token, finished);
    }

    /// Runs once a turn, for services that act on their own. Returns whether anything was done.
    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let _ = cx;
        false
    }

    /// Called before the core sleeps, which may be for long. A service that reads what other cores change lets go of it
    /// ([`Entries::rest`](crate::cores::entries::Entries::rest)).
    fn sleeps(&mut self) {}
}

/// The service of a core that only calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoService;

impl Service for NoService {}
