//! The view of a core that its service has while it runs.

use std::fmt;
use std::net::SocketAddr;

use haulage_mr_pool::{Gauges, Local, PageReport, Pool, Strategy};
use haulage_proto::time::Instant;
use haulage_proto::xdr::{Truncated, Writer};

use super::common::Common;
use super::connection::Connection;
use super::counters::{Census, CoreCounters};
use super::inner::Inner;
use super::requester::{Caller, Exit, NewCall, SendGrant};
use super::streams::{Stream, TcpCounters};
use crate::core_number::CoreNumber;
use crate::provider::{Counters, PeerUser, Waker};
use crate::service::{CallError, CallToken, ConnectionId, InlineRoom, Refusal, Request};

/// The view of a core that its service has while it runs.
pub struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) inner: &'a mut Inner,
    /// The open send grant, whose Calls leave at once by `exit`.
    pub(crate) grant: Option<SendGrant>,
    exit: Exit<'a>,
}

impl fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'a> Cx<'a> {
    /// Makes the view of a core for a service whose Calls are queued.
    pub(crate) const fn new(now: Instant, inner: &'a mut Inner) -> Self {
        Self::within(now, inner, None, Exit::Closed)
    }

    /// Makes the view of a core for a service whose Calls can leave at once: by `exit`, under `grant` if one is open
    /// already.
    pub(crate) const fn within(
        now: Instant,
        inner: &'a mut Inner,
        grant: Option<SendGrant>,
        exit: Exit<'a>,
    ) -> Self {
        Self { now, inner, grant, exit }
    }

    /// Makes a Call. `encode` writes the arguments other than the reduced one. The core calls
    /// [`Service::replied`](crate::core::Service::replied) with `token` when the Call has ended.
    ///
    /// # Errors
    /// The request comes back, with its leases, if it cannot be queued.
    #[expect(clippy::result_large_err, reason = "a refused request is moved back once, not boxed")]
    #[inline]
    pub fn call(
        &mut self,
        connection: ConnectionId,
        request: Request,
        token: u64,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<(), (CallError, Request)> {
        if request.opens() {
            return self.call_otherwise(connection, request, token, encode);
        }
        // Without leases there is nothing to move but these, and nothing to drop.
        let Request { procedure, timeout, .. } = request;
        std::mem::forget(request);
        let is_open = self.grant.as_ref().is_some_and(|grant| grant.takes(connection.0));
        if (is_open || self.open_grant(connection))
            && let (Some(grant), Some(port)) = (&mut self.grant, self.exit.port())
        {
            let Inner { requester, common, .. } = &mut *self.inner;
            let caller = Caller::Service(token);
            let new = NewCall { now: self.now, procedure, timeout, caller };
            return requester
                .call_at_once(common, grant, port, new, encode)
                .map_err(|error| (error, Request { timeout, ..Request::new(procedure) }));
        }
        let request = Request { timeout, ..Request::new(procedure) };
        self.call_otherwise(connection, request, token, encode)
    }

    /// Makes a Call that has leases, or cannot leave at once.
    #[expect(clippy::result_large_err, reason = "like `call`")]
    #[inline(never)]
    fn call_otherwise(
        &mut self,
        connection: ConnectionId,
        mut request: Request,
        token: u64,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<(), (CallError, Request)> {
        let Inner { requester, common, .. } = &mut *self.inner;
        let Request { procedure, timeout, .. } = request;
        let caller = Caller::Service(token);
        let new = NewCall { now: self.now, procedure, timeout, caller };
        let grant = self.grant.as_mut();
        let grant = grant.filter(|grant| grant.takes(connection.0) && grant.opens(&request));
        let called = match (grant, &mut self.exit) {
            // A port that can be aimed at any connection exposes no lease.
            (Some(grant), Exit::One(port)) => {
                let port = &mut **port;
                requester.call_opening_at_once(common, grant, port, new, &mut request, encode)
            }
            _ => requester.call(common, connection.0, new, &mut request, encode).map(drop),
        };
        called.map_err(|error| (error, request))
    }

    /// If `exit` serves any connection, closes the open send grant and opens that of `connection`, unless it is the
    /// same. Returns whether the send grant takes a Call.
    #[inline(never)]
    fn open_grant(&mut self, connection: ConnectionId) -> bool {
        let is_another = !self.grant.as_ref().is_some_and(|grant| grant.is_of(connection.0));
        if let Exit::Any(port) = &mut self.exit
            && is_another
        {
            let common = &mut self.inner.common;
            if let Some(grant) = self.grant.take() {
                grant.close(common);
            }
            self.grant = SendGrant::open_by(common, connection.0, *port);
        }
        self.grant.as_ref().is_some_and(|grant| grant.takes(connection.0))
    }

    /// Closes the open send grant, if there is one: no further Call leaves under it.
    #[inline]
    pub(crate) fn close_grant(&mut self) {
        // By reference: the counts in it were just written, and a copy would wait for them to reach the cache.
        if let Some(grant) = &self.grant {
            grant.close(&mut self.inner.common);
        }
    }

    /// Has a Call that was answered with `Later` finished: `Service::resume` runs for it.
    pub fn resume(&mut self, token: CallToken) {
        let Inner { responder, common, .. } = &mut *self.inner;
        responder.resume(common, token.0);
    }

    /// Leases `octets` for a result of a Call that is being served, or will be answered later. The memory is charged to the
    /// connection of the Call until the Reply has left, as memory of
    /// [`ResultSource::Leased`](crate::service::ResultSource::Leased) is, of which the length must be known before the
    /// service is called.
    ///
    /// # Errors
    /// [`Refusal::Busy`] if other Calls hold the memory: a service that answers with
    /// [`Outcome::Later`](crate::service::Outcome::Later) can ask again in a later turn. [`Refusal::NoMemory`] if it will
    /// not come, or if nobody waits for the Call any more.
    pub fn lease_result(&mut self, call: CallToken, octets: usize) -> Result<Local, Refusal> {
        let Inner { responder, common, .. } = &mut *self.inner;
        responder.lease_result(common, call.0, octets)
    }

    /// Closes a connection. Calls on it that have not ended fail, and a Call of the peer that is being served gets no Reply.
    pub fn close(&mut self, connection: ConnectionId) {
        self.inner.common.close(connection.0, CallError::Closed);
    }

    /// Returns whether a Call answered with `Later` still awaits its Reply.
    pub fn awaits(&self, token: CallToken) -> bool {
        self.inner.responder.awaits(token.0)
    }

    /// Returns the address of the other end of a connection, as long as the connection exists.
    pub fn peer(&self, connection: ConnectionId) -> Option<SocketAddr> {
        let Common { connections, streams, .. } = &self.inner.common;
        let over_rdma = connections.get(connection.0).map(Connection::peer);
        over_rdma.or_else(|| streams.get(connection.0).map(Stream::peer))
    }

    /// Returns the number of the origin of a connection, as long as the connection exists: its peer's IPv4 address, IPv6
    /// network of 64 bits, or process over `shm`. No other origin that has connections has this number. A service that
    /// lends something to peers shares it by origin ([`Shares`](crate::shares::Shares)).
    pub fn origin(&self, connection: ConnectionId) -> Option<u64> {
        Some(self.inner.common.origin(connection.0)? as u64)
    }

    /// Returns the user at the other end of a connection, as long as the connection exists. The user is looked up when
    /// the peer connects, and only if [`Service::identifies_peers`](crate::core::Service::identifies_peers) returns
    /// true.
    pub fn peer_user(&self, connection: ConnectionId) -> Option<PeerUser> {
        self.inner.common.connections.get(connection.0).map(Connection::user)
    }

    /// Returns the name of the host that the other end of a connection proved to be ([`hosts`](crate::hosts)): `None` if it
    /// proved none, or the connection does not exist.
    pub fn host(&self, connection: ConnectionId) -> Option<&str> {
        let found = self.inner.common.connections.get(connection.0)?;
        found.proof.host().map(|name| &**name)
    }

    /// Returns whether a connection is still being set up.
    pub fn is_connecting(&self, connection: ConnectionId) -> bool {
        self.inner
            .common
            .connections
            .get(connection.0)
            .is_some_and(|found| found.life.is_connecting())
    }

    /// Returns the room of one message for the arguments of a Call, and for the results of its Reply, as long as the
    /// connection exists.
    pub fn inline_room(&self, connection: ConnectionId) -> Option<InlineRoom> {
        let found = self.inner.common.connections.get(connection.0)?;
        Some(found.session.inline_room())
    }

    /// Returns the number of the core.
    pub const fn core(&self) -> CoreNumber {
        self.inner.common.core
    }

    /// Returns the waker that ends this core's sleep.
    pub fn waker(&self) -> Waker {
        self.inner.common.waker.clone()
    }

    /// Returns the time at which this turn began.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns a number that grows whenever the core takes in what has arrived. Of two Calls that are served under the
    /// same number, the later had arrived before the first was served: what a service reads for the first, such as a
    /// file's attributes, is as current for the other.
    pub const fn arrivals(&self) -> u64 {
        self.inner.common.arrivals
    }

    /// Returns the core's memory pool.
    pub const fn pool(&self) -> &Pool {
        &self.inner.common.pool
    }

    /// Returns the number of connections.
    pub const fn connections(&self) -> u32 {
        self.inner.common.connections.len()
    }

    /// Returns the number of connections over TCP.
    pub const fn tcp_connections(&self) -> u32 {
        self.inner.common.streams.len()
    }

    /// Returns the counters of the connections over TCP.
    pub const fn tcp_counters(&self) -> &TcpCounters {
        &self.inner.common.streams.counters
    }

    /// Returns the pool's gauges.
    pub fn gauges(&self) -> Gauges {
        self.inner.common.pool.gauges()
    }

    /// Returns the octets of the pool that leases can take, after the service has made room where it does that.
    pub fn room_bytes(&self) -> usize {
        let Common { memory, pool, .. } = &self.inner.common;
        if memory.making.is_possible { pool.room_bytes() } else { pool.free_bytes() }
    }

    /// Returns the report on the pool's pages.
    pub fn pages(&self) -> &PageReport {
        self.inner.common.pool.pages()
    }

    /// Returns the core's counters.
    pub const fn counters(&self) -> &CoreCounters {
        &self.inner.common.counters
    }

    /// Returns the provider's name, its strategy for exposing memory, and how it posts, if that can differ.
    pub const fn provider(&self) -> (&'static str, Strategy, Option<&'static str>) {
        self.inner.common.abilities.provider
    }

    /// Returns the provider's counters, as last read in this turn.
    pub const fn moved(&self) -> &Counters {
        &self.inner.common.moved
    }

    /// Returns the memory that the core's connections hold beyond the shared receive buffers.
    pub fn connection_bytes(&self) -> usize {
        let Common { connections, streams, .. } = &self.inner.common;
        connections.iter().map(Connection::bytes).sum::<usize>() + streams.bytes()
    }

    /// Returns how many leases are always `Posted` as Receives, even without any connection.
    pub fn receives_posted(&self) -> usize {
        self.inner.common.receives.count()
    }

    /// Returns how many Receives are reserved for peers, as their credits allow.
    pub fn receives_reserved(&self) -> u32 {
        u32::try_from(self.census().receives_reserved).unwrap_or(0)
    }

    /// Returns the resources that the core holds for Calls that have not ended.
    pub fn census(&self) -> Census {
        self.inner.census()
    }

    /// Counts octets of a data item that were copied because it came or went unreduced.
    pub const fn count_unreduced(&mut self, octets: u64) {
        self.inner.common.counters.bytes_unreduced += octets;
    }
}
