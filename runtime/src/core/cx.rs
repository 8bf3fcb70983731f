//! What a service may do with its core while it runs.

use std::fmt;
use std::net::SocketAddr;

use haulage_mr_pool::{Gauges, PageReport, Pool, Strategy};
use haulage_proto::time::Instant;
use haulage_proto::xdr::{Truncated, Writer};

use super::connection::Connection;
use super::counters::{Census, CoreCounters};
use super::inner::Inner;
use super::requester::{Caller, Exit, Lane, NewCall};
use crate::provider::{Counters, PeerUser};
use crate::service::{CallError, CallToken, ConnectionId, Request};

/// What a service may do with its core while it runs.
pub struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) inner: &'a mut Inner,
    /// Takes Calls at once, which leave by `exit`.
    pub(crate) lane: Option<Lane>,
    exit: Exit<'a>,
}

impl fmt::Debug for Cx<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'a> Cx<'a> {
    /// Shows a service its core.
    pub(crate) const fn new(now: Instant, inner: &'a mut Inner) -> Self {
        Self::within(now, inner, None, Exit::Closed)
    }

    /// Shows a service its core while its Calls can leave at once: by `exit`, on `lane` if that is open already.
    pub(crate) const fn within(
        now: Instant,
        inner: &'a mut Inner,
        lane: Option<Lane>,
        exit: Exit<'a>,
    ) -> Self {
        Self { now, inner, lane, exit }
    }

    /// Makes a Call. `encode` writes the arguments other than the reduced one. How it ended is told
    /// to [`Service::replied`](crate::service::Service::replied) with `token`.
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
        // By parts, so that without leases the request need not be in memory.
        let Request { procedure, argument, result, timeout } = request;
        let caller = Caller::Service(token);
        if argument.is_none() && result.is_none() {
            if !self.lane.as_ref().is_some_and(|lane| lane.takes(connection.0)) {
                self.open_lane(connection);
            }
            if let Some((lane, port)) = self.exit.way(&mut self.lane, connection.0) {
                let Inner { requester, common, .. } = &mut *self.inner;
                let new = NewCall { now: self.now, procedure, timeout, caller };
                return requester.call_at_once(common, lane, port, new, encode).map_err(|error| {
                    (error, Request { procedure, argument: None, result: None, timeout })
                });
            }
        }
        let request = Request { procedure, argument, result, timeout };
        self.call_otherwise(connection, request, caller, encode)
    }

    /// Makes a Call that has leases, or does not leave at once.
    #[expect(clippy::result_large_err, reason = "as of `call`")]
    #[inline(never)]
    fn call_otherwise(
        &mut self,
        connection: ConnectionId,
        mut request: Request,
        caller: Caller,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<(), (CallError, Request)> {
        let Inner { requester, common, .. } = &mut *self.inner;
        let Request { procedure, timeout, .. } = request;
        let new = NewCall { now: self.now, procedure, timeout, caller };
        let way = self.exit.way_of_opening(&mut self.lane, connection.0);
        let called = match way.filter(|(lane, _)| lane.opens(&request)) {
            Some((lane, port)) => {
                requester.call_opening_at_once(common, lane, port, new, &mut request, encode)
            }
            None => requester.call(common, connection.0, new, &mut request, encode).map(drop),
        };
        called.map_err(|error| (error, request))
    }

    /// Opens the lane of a connection, if there may be others than the one there is.
    #[inline(never)]
    fn open_lane(&mut self, connection: ConnectionId) {
        let is_another = !self.lane.as_ref().is_some_and(|lane| lane.is_of(connection.0));
        if let Exit::Any(port) = &mut self.exit
            && is_another
        {
            let common = &mut self.inner.common;
            if let Some(lane) = self.lane.take() {
                lane.close(common);
            }
            self.lane = Lane::open_by(common, connection.0, *port);
        }
    }

    /// Notes what left on the lane there is: no other Call does.
    #[inline]
    pub(crate) fn close_lane(&mut self) {
        // Where it is: what it counted was just written, and a copy would wait for that to reach the cache.
        if let Some(lane) = &self.lane {
            lane.close(&mut self.inner.common);
        }
    }

    /// Lets a Call answered with `Later` be finished: `Service::resume` runs for it.
    pub fn resume(&mut self, token: CallToken) {
        self.inner.responder.resume(token.0);
    }

    /// Returns whether a Call answered with `Later` still awaits its Reply.
    pub fn awaits(&self, token: CallToken) -> bool {
        self.inner.responder.awaits(token.0)
    }

    /// Returns where the other end of a connection is, while there is one.
    pub fn peer(&self, connection: ConnectionId) -> Option<SocketAddr> {
        self.inner.common.connections.get(connection.0).map(|connection| connection.peer)
    }

    /// Returns the user at the other end of a connection, while there is one. It was asked for when the peer
    /// connected, and only if [`Service::identifies_peers`](crate::service::Service::identifies_peers) wanted it.
    pub fn peer_user(&self, connection: ConnectionId) -> Option<PeerUser> {
        self.inner.common.connections.get(connection.0).map(|connection| connection.user)
    }

    /// Returns whether it is not known yet whether there is anybody to talk to on a connection.
    pub fn is_connecting(&self, connection: ConnectionId) -> bool {
        self.inner.common.connections.get(connection.0).is_some_and(Connection::is_connecting)
    }

    /// Returns the time at which this turn began.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the core's memory.
    pub const fn pool(&self) -> &Pool {
        &self.inner.common.pool
    }

    /// Returns how many connections there are.
    pub const fn connections(&self) -> u32 {
        self.inner.common.connections.len()
    }

    /// Returns the pool's gauges.
    pub fn gauges(&self) -> Gauges {
        self.inner.common.pool.gauges()
    }

    /// Returns what the pool's pages are.
    pub fn pages(&self) -> &PageReport {
        self.inner.common.pool.pages()
    }

    /// Returns what the core did so far.
    pub const fn counters(&self) -> &CoreCounters {
        &self.inner.common.counters
    }

    /// Returns the provider's name, how it opens memory to peers, and how it posts, if that can differ.
    pub const fn provider(&self) -> (&'static str, Strategy, Option<&'static str>) {
        self.inner.common.abilities.provider
    }

    /// Returns what the provider moved until this turn.
    pub const fn moved(&self) -> &Counters {
        &self.inner.common.moved
    }

    /// Returns the memory that the core's connections hold beyond the shared receive buffers.
    pub fn connection_bytes(&self) -> usize {
        self.inner.common.connections.iter().map(Connection::bytes).sum()
    }

    /// Returns how many leases are `Posted` as Receives, as they are with no connection at all.
    pub fn receives_posted(&self) -> usize {
        self.inner.common.receives.count()
    }

    /// Returns how many Receives are reserved for peers: what their credits let them use at once.
    pub fn receives_reserved(&self) -> u32 {
        u32::try_from(self.census().receives_reserved).unwrap_or(0)
    }

    /// Returns what the core holds for Calls that have not ended.
    pub fn census(&self) -> Census {
        self.inner.census()
    }

    /// Counts octets of a data item that were copied because it came or went inline.
    pub const fn count_inline(&mut self, octets: u64) {
        self.inner.common.counters.bytes_inline += octets;
    }
}
