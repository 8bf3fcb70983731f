//! The interface of a service: its binding, the Calls that it serves, and the Calls that it makes.

use std::net::SocketAddr;

use haulage_proto::rpc::AcceptStat;
use haulage_proto::rpc::auth::{AUTH_NONE, AUTH_SYS};

use super::cx::Cx;
use crate::service::{
    ArgumentLeases, Binding, Call, CallError, CallToken, ConnectionId, Finished, Outcome, Peer,
    Reply, ResultSource,
};

/// A server's program, or the calling half of a client, or both. It lives on one core.
///
/// Every method runs to completion on the core's thread: it must not block.
pub trait Service {
    /// Returns the procedures, and the items that direct data placement may move. Called once.
    fn binding(&self) -> Binding;

    /// Returns the authentication flavors (RFC 5531 section 8.2) of the Calls that the service takes. A Call of another
    /// flavor is denied with `AUTH_ERROR` and never reaches the service. Called once.
    fn flavors(&self) -> &[u32] {
        &[AUTH_NONE, AUTH_SYS]
    }

    /// Returns where the DDP-eligible result of a procedure comes from. Called once for each procedure.
    fn result_source(&self, procedure: u32) -> ResultSource {
        let _ = procedure;
        ResultSource::Resident
    }

    /// Returns the leases that the DDP-eligible argument of a procedure may lie in. Called once for each procedure.
    fn argument_leases(&self, procedure: u32) -> ArgumentLeases {
        let _ = procedure;
        ArgumentLeases::Any
    }

    /// Returns whether a Call of a procedure may take long: more than some ten microseconds, because it lists, searches
    /// or makes system calls. Such a Call has a turn of the core for itself, and connections take turns. Called once
    /// for each procedure. Only the first 64 procedures can be costly.
    fn is_costly(&self, procedure: u32) -> bool {
        let _ = procedure;
        false
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

    /// Serves one Call. The results go into `reply`.
    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome;

    /// Finishes a Call that was answered with [`Outcome::Later`], after [`Cx::resume`].
    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let _ = (cx, token, reply);
        Outcome::Failed(AcceptStat::SystemErr)
    }

    /// Called when a Call made through [`Cx::call`] has ended. `token` is that of the Call.
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
