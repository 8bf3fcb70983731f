//! Everything a core owns apart from its provider and its service, and what a service sees of it.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use haulage_mr_pool::{Gauges, Local, PageReport, Pool, Strategy};
use haulage_proto::rpc::auth::AUTH_NONE;
use haulage_proto::rpc::{PlainCalls, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v2::requester::Xids;
use haulage_proto::xdr::{Truncated, Writer};

use crate::core::admission::Occupancy;
use crate::core::connection::Connection;
use crate::core::inbound::{InboundCall, Running};
use crate::core::memory::Memory;
use crate::core::outbound::{Caller, Exit, Lane, Opened, OutboundCall, Planned};
use crate::core::receives::Receives;
use crate::core::table::{Key, OwnedTable, Table};
use crate::core::templates::Bound;
use crate::core::trace::Trace;
use crate::core::work::WorkTable;
use crate::limits::{CHUNKS_MAX, ITEMS_MAX, LEAVING_MAX, Limits, SEND_BUFFER};
use crate::provider::{Caps, Counters, PeerUser};
use crate::service::{
    Binding, CallError, CallToken, ConnectionId, Ended, Peer, Request, ResultSource,
};

/// A core's tables.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) limits: Limits,
    /// Of these, how long a Call may take unless it says otherwise.
    pub(crate) call_timeout_nanos: u64,
    pub(crate) binding: Rc<Bound>,
    /// That of the connection we made last: those to one service share one.
    bound: Rc<Bound>,
    /// The authentication flavors that the service declares.
    pub(crate) flavors: Box<[u32]>,
    /// Where the results of each procedure come from.
    pub(crate) sources: Rc<[ResultSource]>,
    /// What its commonest Calls begin with.
    pub(crate) plain_calls: PlainCalls,
    pub(crate) receives: Receives,
    pub(crate) buffers: SendBuffers,
    pub(crate) connections: Table<Connection>,
    pub(crate) occupancy: Occupancy,
    /// Connections that became ready, of which the service is still to be told.
    pub(crate) peers_ready: VecDeque<Peer>,
    /// Of these, and of those it was told of, the connections that have ended.
    pub(crate) peers_gone: VecDeque<Ended>,
    /// Why the last connections ended, for those who still call on them.
    pub(crate) ended: VecDeque<(Key<Connection>, CallError)>,
    /// Indexed by queue pair slot.
    pub(crate) by_queue_pair: Vec<Option<Key<Connection>>>,
    pub(crate) inbound: OwnedTable<InboundCall>,
    /// The memory that they take.
    pub(crate) memory: Memory,
    /// Where the Payload stream of a Reply may end whatever its procedure: behind the shortest results that the
    /// binding declares as the longest of a procedure.
    pub(crate) results_end_min: usize,
    /// Calls whose arguments are complete, oldest first.
    pub(crate) ready: VecDeque<Key<InboundCall>>,
    /// The Call the service is acting on, while that is not in `inbound`.
    pub(crate) running: Option<Running>,
    pub(crate) xids: Xids,
    /// Indexed by slot.
    pub(crate) outbound: Vec<Option<OutboundCall>>,
    /// Beside those, for the Calls that have anything open.
    pub(crate) opened: Box<[Opened]>,
    /// How the last Call that opened anything was planned.
    pub(crate) planned: Option<Planned>,
    /// Calls of ours that have ended and whose callers do not know yet, by slot.
    pub(crate) finished: VecDeque<usize>,
    /// Callers of Calls that were given up, who do not know yet.
    pub(crate) released: VecDeque<Caller>,
    pub(crate) work: WorkTable,
    /// Its entries for Writes whose Replies left inline.
    pub(crate) written: u32,
    /// Connections with something to post.
    pub(crate) dirty: VecDeque<Key<Connection>>,
    /// Connections to be closed at the end of the turn.
    pub(crate) closing: Vec<Key<Connection>>,
    /// The earliest moment at which a deadline may have passed.
    pub(crate) next_deadline: Option<Instant>,
    /// When a shutdown stops waiting.
    pub(crate) drain_by: Option<Instant>,
    /// Octets of the longest message that the provider sends inline.
    pub(crate) inline_max: usize,
    /// Octets of the longest argument that the provider reads at once.
    pub(crate) read_max: u32,
    /// The provider's name, how it opens memory to peers, and how it posts, if that can differ.
    pub(crate) provider: (&'static str, Strategy, Option<&'static str>),
    /// Whether peers are asked to invalidate: the provider reports it when they do.
    pub(crate) solicits: bool,
    /// Whether a peer loses what it was opened when its handle is closed; else when its connection is.
    pub(crate) handles_end: bool,
    /// The provider counts the octets that peers place in exposed leases.
    pub(crate) counts_placed: bool,
    /// Where connections' first XIDs come from.
    pub(crate) seed: u64,
    pub(crate) counters: CoreCounters,
    /// Tells operators what happens.
    pub(crate) trace: Trace,
    /// What the provider moved until this turn.
    pub(crate) moved: Counters,
    /// Last, so that whatever the other fields lease is home when it goes.
    pub(crate) pool: Pool,
}

/// What a core's service declares when the core starts.
#[derive(Debug)]
pub(crate) struct Serves {
    /// Its procedures, and what they may reduce.
    pub(crate) binding: Rc<Bound>,
    /// The authentication flavors that it takes.
    pub(crate) flavors: Box<[u32]>,
    /// Where the results of each procedure come from.
    pub(crate) sources: Rc<[ResultSource]>,
}

/// What a core did since it started. Plain integers of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreCounters {
    /// Calls served.
    pub calls_served: u64,
    /// Calls answered with a transport error.
    pub calls_refused: u64,
    /// Calls of ours that ended.
    pub calls_made: u64,
    /// Replies that matched no Call.
    pub replies_unmatched: u64,
    /// Messages that could not be decoded.
    pub messages_bad: u64,
    /// Calls received that were to be fetched as a whole.
    pub call_chunks: u64,
    /// Arguments received that were to be fetched.
    pub read_chunks: u64,
    /// Calls received that offered a place for a result.
    pub write_chunks: u64,
    /// Calls received that offered a place for the whole Reply.
    pub reply_chunks: u64,
    /// Octets of data items copied because they came or went inline.
    pub bytes_inline: u64,
    /// Calls answered with a system error because their results broke the service's own binding: longer than
    /// declared, or with more items than one Write chunk takes.
    pub results_misdeclared: u64,
    /// Connections that were opened.
    pub connections_opened: u64,
    /// Connections that were turned away.
    pub connections_rejected: u64,
    /// Connections that were closed in favour of others, as there was no room for both.
    pub connections_replaced: u64,
    /// Connections that were closed because they were idle for too long.
    pub connections_idle: u64,
}

/// What a core holds for Calls that have not ended. All of it but `receives_unreserved` is zero once every
/// connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Census {
    /// Receives that hold messages.
    pub receives_held: u32,
    /// Receives that are reserved for connections. A peer that sent more than was reserved for it counts as less
    /// than none, until its connection is gone.
    pub receives_reserved: i64,
    /// Receives that are reserved for no connection and hold no message. With the reserved ones and those that hold
    /// messages they are all there are. Negative while messages are held that lost connections sent beyond their
    /// reservations.
    pub receives_unreserved: i64,
    /// Calls of peers that wait: for memory, for an RDMA Read, for the service, or for credit.
    pub calls_served: u32,
    /// Leases, and invalidations, that the provider has not reported as done.
    pub work_requests: u32,
    /// Octets of memory that Calls hold.
    pub memory_charged: usize,
}

impl State {
    /// Makes the tables of an idle core; `None` if the pool cannot hold the transport's own buffers.
    pub(crate) fn new(
        limits: Limits,
        pool: Pool,
        serves: Serves,
        caps: &Caps,
        seed: u64,
    ) -> Option<Self> {
        let Serves { binding, flavors, sources } = serves;
        let plain_calls = PlainCalls::of(&binding);
        let results_min = binding.procedures.iter().map(|procedure| procedure.results_max).min();
        // What is posted to one connection's own queue is no other's, so all is.
        let few = caps.promises.sends_wait && caps.receives_each.is_none();
        let receives = Receives::new(&pool, &limits, few)?;
        let buffers = (0..limits.send_buffers_max)
            .map(|_| pool.lease(SEND_BUFFER))
            .collect::<Option<Vec<_>>>()?;
        let calls_out = limits.calls_out_max as usize;
        let entries_max = limits.connections_max + LEAVING_MAX;
        let mut work = 0;
        work += limits.send_buffers_max; // messages being sent
        work += limits.send_buffers_max; // Writes whose Replies left inline
        work += limits.receives_max * CHUNKS_MAX; // arguments being read
        work += limits.calls_out_max * ITEMS_MAX; // invalidations
        work += limits.connections_max; // control messages sent when every send buffer is in use
        let mut calls = 0;
        calls += limits.receives_max; // not answered: each holds a Receive
        calls += limits.send_buffers_max; // answered, their Replies waiting for credit
        let call_timeout_nanos = Instant::ZERO.saturating_add(limits.call_timeout).as_nanos();
        Some(Self {
            limits,
            call_timeout_nanos,
            plain_calls: if flavors.contains(&AUTH_NONE) {
                plain_calls
            } else {
                plain_calls.refused()
            },
            flavors,
            sources,
            memory: Memory::default(),
            results_end_min: ReplyHeader::SUCCESS_LEN + results_min.unwrap_or(0) as usize,
            bound: Rc::clone(&binding),
            binding,
            receives,
            buffers: SendBuffers { free: buffers, spares: 0 },
            connections: Table::new(entries_max),
            occupancy: Occupancy::default(),
            peers_ready: VecDeque::with_capacity(caps.turn_events),
            peers_gone: VecDeque::with_capacity(caps.turn_events),
            ended: VecDeque::with_capacity(ENDED_MAX),
            by_queue_pair: vec![None; caps.queue_pairs_max],
            inbound: OwnedTable::new(calls),
            ready: VecDeque::with_capacity(limits.receives_max as usize),
            running: None,
            xids: Xids::new(calls_out, seed),
            outbound: std::iter::repeat_with(|| None).take(calls_out).collect(),
            opened: std::iter::repeat_with(Opened::default).take(calls_out).collect(),
            planned: None,
            finished: VecDeque::with_capacity(calls_out),
            released: VecDeque::with_capacity(calls_out),
            work: OwnedTable::new(work),
            written: 0,
            dirty: VecDeque::with_capacity(entries_max as usize),
            closing: Vec::with_capacity(entries_max as usize),
            next_deadline: None,
            drain_by: None,
            inline_max: caps.inline_max,
            read_max: caps.read_max,
            provider: (caps.name, caps.strategy, caps.posting),
            solicits: caps.promises.remote_invalidation,
            handles_end: caps.promises.handles_end,
            counts_placed: caps.promises.counts_placed,
            seed,
            counters: CoreCounters::default(),
            trace: Trace::new(caps.name),
            moved: Counters::default(),
            pool,
        })
    }

    /// Remembers that a connection has something to post.
    #[inline]
    pub(crate) fn touch(&mut self, key: Key<Connection>) {
        if let Some(connection) = self.connections.get_mut(key)
            && !std::mem::replace(&mut connection.dirty, true)
        {
            self.dirty.push_back(key);
        }
    }

    /// Returns what a connection that we make is bound to.
    pub(crate) fn bind(&mut self, binding: Binding) -> Rc<Bound> {
        if **self.bound != binding {
            self.bound = Rc::new(Bound::new(binding));
        }
        Rc::clone(&self.bound)
    }

    /// Makes sure that deadlines are looked at no later than `at`.
    #[inline]
    pub(crate) fn wake_by(&mut self, at: Instant) {
        if self.next_deadline.is_none_or(|next| at < next) {
            self.next_deadline = Some(at);
        }
    }

    /// Takes a send buffer for a control message, or leases one when all are in use: one for each
    /// connection at most.
    pub(crate) fn control_buffer(&mut self) -> Option<Local> {
        let SendBuffers { free, spares } = &mut self.buffers;
        if let Some(buffer) = free.pop() {
            return Some(buffer);
        }
        let more = *spares < self.limits.connections_max;
        let buffer = self.pool.lease(SEND_BUFFER).filter(|_| more)?;
        *spares += 1;
        Some(buffer)
    }

    /// Puts a send buffer back.
    #[inline]
    pub(crate) fn recycle(&mut self, buffer: Local) {
        self.buffers.recycle(buffer);
    }
}

/// What messages are sent from.
#[derive(Debug)]
pub(crate) struct SendBuffers {
    /// Those not in use, the one used last on top.
    free: Vec<Local>,
    /// Those in use beyond the ones there are to be.
    spares: u32,
}

impl SendBuffers {
    /// Returns how many are not in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.free.len()
    }

    /// Borrows the one that would be taken next.
    #[inline]
    pub(crate) fn top(&mut self) -> Option<&mut Local> {
        self.free.last_mut()
    }

    /// Takes one that is not in use.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Local> {
        self.free.pop()
    }

    /// Puts one back. One more than there are to be goes home instead.
    #[inline]
    pub(crate) fn recycle(&mut self, mut buffer: Local) {
        if self.spares > 0 {
            self.spares -= 1;
            return;
        }
        if buffer.len() != SEND_BUFFER {
            buffer.set_len(SEND_BUFFER);
        }
        self.free.push(buffer);
    }
}

/// Connections whose end is remembered.
pub(crate) const ENDED_MAX: usize = 32;

/// What a service may do with its core while it runs.
pub struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) state: &'a mut State,
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
    pub(crate) const fn new(now: Instant, state: &'a mut State) -> Self {
        Self::within(now, state, None, Exit::Closed)
    }

    /// Does the same while Calls can leave at once.
    pub(crate) const fn within(
        now: Instant,
        state: &'a mut State,
        lane: Option<Lane>,
        exit: Exit<'a>,
    ) -> Self {
        Self { now, state, lane, exit }
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
            if let Some(way) = self.exit.way(&mut self.lane, connection.0, false) {
                let asked = (procedure, timeout);
                return self.state.call_at_once(self.now, way, asked, caller, encode).map_err(
                    |error| (error, Request { procedure, argument: None, result: None, timeout }),
                );
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
        let (now, state) = (self.now, &mut *self.state);
        let way = self.exit.way(&mut self.lane, connection.0, true);
        let called = match way.filter(|(lane, _)| lane.opens(&request)) {
            Some(way) => state.call_opening_at_once(now, way, &mut request, caller, encode),
            None => state.call(now, connection.0, &mut request, caller, encode).map(drop),
        };
        called.map_err(|error| (error, request))
    }

    /// Opens the lane of a connection, if there may be others than the one there is.
    #[inline(never)]
    fn open_lane(&mut self, connection: ConnectionId) {
        let is_another = !self.lane.as_ref().is_some_and(|lane| lane.is_of(connection.0));
        if let Exit::Any(outlet) = &mut self.exit
            && is_another
        {
            if let Some(lane) = self.lane.take() {
                self.state.close_lane(&lane);
            }
            self.lane = self.state.open_lane_by(connection.0, *outlet);
        }
    }

    /// Notes what left on the lane there is: no other Call does.
    #[inline]
    pub(crate) fn close_lane(&mut self) {
        // Where it is: what it counted was just written, and a copy would wait for that to reach the cache.
        if let Some(lane) = &self.lane {
            self.state.close_lane(lane);
        }
    }

    /// Lets a Call answered with `Later` be finished: `Service::resume` runs for it.
    pub fn resume(&mut self, token: CallToken) {
        self.state.resume(token.0);
    }

    /// Returns whether a Call answered with `Later` still awaits its Reply.
    pub fn awaits(&self, token: CallToken) -> bool {
        let runs = self.state.running.as_ref().is_some_and(|running| running.key == token.0);
        runs || self.state.inbound.get(token.0).is_some()
    }

    /// Returns where the other end of a connection is, while there is one.
    pub fn peer(&self, connection: ConnectionId) -> Option<SocketAddr> {
        self.state.connections.get(connection.0).map(|connection| connection.peer)
    }

    /// Returns the user at the other end of a connection, while there is one. It was asked for when the peer
    /// connected, and only if [`Service::identifies_peers`](crate::service::Service::identifies_peers) wanted it.
    pub fn peer_user(&self, connection: ConnectionId) -> Option<PeerUser> {
        self.state.connections.get(connection.0).map(|connection| connection.user)
    }

    /// Returns whether it is not known yet whether there is anybody to talk to on a connection.
    pub fn is_connecting(&self, connection: ConnectionId) -> bool {
        self.state.connections.get(connection.0).is_some_and(Connection::is_connecting)
    }

    /// Returns the time at which this turn began.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Returns the core's memory.
    pub const fn pool(&self) -> &Pool {
        &self.state.pool
    }

    /// Returns how many connections there are.
    pub const fn connections(&self) -> u32 {
        self.state.connections.len()
    }

    /// Returns the pool's gauges.
    pub fn gauges(&self) -> Gauges {
        self.state.pool.gauges()
    }

    /// Returns what the pool's pages are.
    pub fn pages(&self) -> &PageReport {
        self.state.pool.pages()
    }

    /// Returns what the core did so far.
    pub const fn counters(&self) -> &CoreCounters {
        &self.state.counters
    }

    /// Returns the provider's name, how it opens memory to peers, and how it posts, if that can differ.
    pub const fn provider(&self) -> (&'static str, Strategy, Option<&'static str>) {
        self.state.provider
    }

    /// Returns what the provider moved until this turn.
    pub const fn moved(&self) -> &Counters {
        &self.state.moved
    }

    /// Returns the memory that the core's connections hold beyond the shared receive buffers.
    pub fn connection_bytes(&self) -> usize {
        self.state.connections.iter().map(Connection::bytes).sum()
    }

    /// Returns how many leases are `Posted` as Receives, as they are with no connection at all.
    pub fn receives_posted(&self) -> usize {
        self.state.receives.count()
    }

    /// Returns how many Receives are reserved for peers: what their credits let them use at once.
    pub fn receives_reserved(&self) -> u32 {
        u32::try_from(self.census().receives_reserved).unwrap_or(0)
    }

    /// Returns what the core holds for Calls that have not ended.
    pub fn census(&self) -> Census {
        let State { receives, inbound, work, memory, connections, .. } = &*self.state;
        // Of a peer that sent more than was reserved for it, the number is next to 2^32.
        let reserved = |connection: &Connection| connection.engine.reserved().cast_signed();
        Census {
            receives_reserved: connections.iter().map(|one| i64::from(reserved(one))).sum(),
            receives_held: receives.held(),
            receives_unreserved: receives.unreserved(),
            calls_served: inbound.len(),
            work_requests: work.len(),
            memory_charged: memory.held(),
        }
    }

    /// Counts octets of a data item that were copied because it came or went inline.
    pub const fn count_inline(&mut self, octets: u64) {
        self.state.counters.bytes_inline += octets;
    }
}
