//! The state that the Responder and the Requester share: connections, Receives, send buffers, posted work, memory, and
//! the time.

use haulage_mr_pool::{Density, Invalidated, Local, Pool, PostedSource, Strategy};
use haulage_proto::negotiate::{
    CloseReason, Connection as Engine, Control, CreditGrant, Engine as Spoken, Output, Remembered,
};
use haulage_proto::rpc::{AcceptStat, ReplyHeader};
use haulage_proto::rtrext::Extension;
use haulage_proto::rtrext::group::{self, Transmission};
use haulage_proto::time::Instant;
use haulage_proto::v1::private_data::{Agreement, PrivateData};
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::continuation::{Kind, Part};
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::host_auth::Policy;
use haulage_proto::verbs::{Flags, QpNum, WrId};
use haulage_proto::xdr::Writer;

use super::buffers::SendBuffers;
use super::connection::{Brought, Connection, Directions, Link, Proof, Session};
use super::connections::Connections;
use super::counters::CoreCounters;
use super::gathered::Gathered;
use super::memory::{Charge, Memory, MemoryGrant, Purpose, Share, Until, Wanted};
use super::receives::{Posting, ReceivedRun, Receives};
use super::servers::OldServers;
use super::streams::Streams;
use super::streams::outflow::Record;
use super::trace::Trace;
use super::turns::Turns;
use super::work::{Held, Posted, Work};
use crate::core_number::{CoreIdentity, CoreNumber};
use crate::hosts::HostAuth;
use crate::key::{ConnectionKey, Transport};
use crate::limits::{CallsGo, LEASES_MAX, LEAVING_MAX, Limits, RECEIVES_IDLE, our_private_data};
use crate::origin::Origin;
use crate::provider::{Caps, Clock, Counters, Done, Operation, Promises, Waker, WorkRequest};
use crate::service::{CallError, Reply};
use crate::sys::complete;

/// The state that both halves of a core use.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) limits: Limits,
    /// The number of the core.
    pub(crate) core: CoreNumber,
    /// Ends the core's sleep.
    pub(crate) waker: Waker,
    pub(crate) abilities: Abilities,
    pub(crate) connections: Connections,
    /// The connections over TCP.
    pub(crate) streams: Streams,
    pub(crate) old_servers: OldServers,
    /// The host authentication of connections that peers make.
    pub(crate) hosts: Option<HostAuth>,
    pub(crate) receives: Receives,
    /// Messages in Receives that wait for their turns, by the slots of their queue pairs.
    pub(crate) arrived: Turns<ReceivedRun>,
    pub(crate) buffers: SendBuffers,
    pub(crate) posted: Posted,
    /// The memory that Calls of peers take.
    pub(crate) memory: Memory,
    /// The earliest moment at which a deadline may have passed.
    pub(crate) next_deadline: Option<Instant>,
    pub(crate) counters: CoreCounters,
    /// Reports events to operators.
    pub(crate) trace: Trace,
    /// The provider's counters, as last read in this turn.
    pub(crate) moved: Counters,
    /// How many times messages were taken from a provider, or octets from a connection over TCP.
    pub(crate) arrivals: u64,
    /// Seed of the connections' first XIDs.
    seed: u64,
    /// Declared last, so that every lease of the other fields is home when the pool is dropped.
    pub(crate) pool: Pool,
}

/// Where a new connection comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whence {
    /// A peer of this origin asked for it, with this private data.
    Accepted { origin: Origin, theirs: Option<PrivateData> },
    /// This end makes it, to a server of which this is known.
    Made { remembered: Remembered },
}

/// The abilities of the provider that a core looks up often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Octets of the longest argument that the provider reads at once.
    pub(crate) read_max: u32,
    pub(crate) promises: Promises,
    /// The provider's name, its strategy for exposing memory, and how it posts, if that can differ.
    pub(crate) provider: (&'static str, Strategy, Option<&'static str>),
}

impl Common {
    /// Returns the number of the origin of a connection, over RDMA or TCP.
    pub(crate) fn origin(&self, key: ConnectionKey) -> Option<usize> {
        let over_rdma = self.connections.get(key).map(|connection| connection.share.origin());
        over_rdma.or_else(|| self.streams.get(key).map(|stream| stream.share.origin()))
    }

    /// Makes the state of an idle core; `None` if the pool cannot hold the transport's own buffers.
    pub(crate) fn new(
        limits: Limits,
        pool: Pool,
        (caps, waker): (&Caps, Waker),
        identity: CoreIdentity,
    ) -> Option<Self> {
        let CoreIdentity { number: core, seed } = identity;
        // Receives in a connection's own queue serve no other connection, so all of them are posted.
        let may_be_few = caps.promises.sends_wait && caps.receives_each.is_none();
        let posting = if may_be_few { Posting::AsManyAsUsed } else { Posting::All };
        let receives = Receives::new(&pool, &limits, posting)?;
        let buffers = SendBuffers::new(&pool, &limits)?;
        let mut work = 0;
        work += limits.send_buffers_max; // messages being sent
        work += limits.placing_buffers(); // messages with data items being sent
        work += 1; // a Reply in the buffer for those that leave at once, being sent
        work += limits.send_buffers_max; // Writes ahead of messages that were copied
        work += limits.receives_max; // Payload streams and arguments being read
        work += limits.calls_out_max * LEASES_MAX; // invalidations
        work += limits.held_max(); // invalidations of Replies that were read
        work += limits.replies_read_max(); // Replies being read
        work += limits.connections_max; // control messages sent when every send buffer is in use
        let connections_max = limits.connections_max + LEAVING_MAX;
        let (queue_pairs, events) = (caps.queue_pairs_max, caps.turn_events);
        Some(Self {
            core,
            waker,
            abilities: Abilities {
                read_max: caps.read_max,
                promises: caps.promises,
                provider: (caps.name, caps.strategy, caps.posting),
            },
            connections: Connections::new(core, connections_max, queue_pairs, events),
            streams: Streams::new(core, connections_max),
            arrivals: 0,
            old_servers: OldServers::default(),
            hosts: None,
            receives,
            arrived: Turns::default(),
            buffers,
            posted: Posted::new(work, limits.send_buffers_max),
            memory: Memory::default(),
            next_deadline: None,
            counters: CoreCounters::default(),
            trace: Trace::new(core, caps.name),
            moved: Counters::default(),
            seed,
            limits,
            pool,
        })
    }

    /// Makes sure that deadlines are checked no later than `at`.
    #[inline]
    pub(crate) fn wake_by(&mut self, at: Instant) {
        if self.next_deadline.is_none_or(|next| at < next) {
            self.next_deadline = Some(at);
        }
    }

    /// Makes the entry of a new connection; `None` if the core is full. `auth` says what the ends prove about their hosts.
    pub(crate) fn open(
        &mut self,
        peer: Link,
        whence: Whence,
        directions: Directions,
        auth: Option<HostAuth>,
    ) -> Option<ConnectionKey> {
        let is_full = self.connections.occupancy().all() >= self.limits.connections_max;
        if is_full || !self.connections.has_place(peer.qp) {
            return None;
        }
        let calls_go = directions.calls_go();
        let (ours, _) = our_private_data(peer.role, &self.abilities.promises);
        let (origin, remembered, client, server) = match whence {
            Whence::Made { remembered } => (Origin::Ours, remembered, Some(ours), None),
            Whence::Accepted { origin, theirs } => {
                (origin, Remembered::Nothing, theirs, Some(ours))
            }
        };
        let proof = Proof::new(auth, client);
        let engine = self.engine((peer.role, calls_go), remembered, proof.policy())?;
        let agreed = Agreement::new(client, server);
        let session = Session::new(engine.engine(), peer.role, agreed, directions);
        let share = self.memory.enter(origin);
        let Some(part) = self.receives.admit(peer.role, share.origin()) else {
            self.memory.leave(&share);
            return None;
        };
        let connection = Connection::new(peer, engine, (part, share), session, proof);
        self.connections.enter(connection, origin)
    }

    /// Has a connection of ours, of which the provider holds nothing any more, begin anew on another queue pair; `None`
    /// if the core is full. `remembered` is what is known about the server.
    pub(crate) fn renew(
        &mut self,
        key: ConnectionKey,
        qp: QpNum,
        remembered: Remembered,
    ) -> Option<()> {
        let connection = self.connections.get(key)?;
        let (calls_go, policy) = (connection.session.calls_go(), connection.proof.policy());
        let engine = self.engine((Role::Client, calls_go), remembered, policy)?;
        let (ours, _) = our_private_data(Role::Client, &self.abilities.promises);
        let agreed = Agreement::new(Some(ours), None);
        let Self { connections, receives, memory, .. } = self;
        if !connections.names_queue_pair(qp) {
            return None;
        }
        let connection = connections.get_mut(key)?;
        connection.renew(qp, engine, agreed, receives)?;
        let share = memory.enter(Origin::Ours);
        memory.leave(&std::mem::replace(&mut connection.share, share));
        connections.enter_queue_pair(key, qp);
        Some(())
    }

    /// Makes the engine of a connection, with the Receives that every peer has.
    fn engine(
        &mut self,
        end: (Role, CallsGo),
        remembered: Remembered,
        policy: Policy,
    ) -> Option<Engine> {
        self.seed = self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let first_xid = (self.seed >> 33) as u32 | 1;
        let config = self.limits.engine(end, first_xid, policy);
        let mut engine = Engine::new(config, remembered).ok()?;
        engine.reserve(RECEIVES_IDLE - engine.reserved());
        let (role, calls_go) = end;
        if let Some(offer) = self.limits.extension(role, calls_go)
            && let Spoken::Two(two) = engine.engine_mut()
        {
            let responses_max = offer.response_send_max;
            two.extend(offer, responses_max);
        }
        Some(engine)
    }

    /// Notes the terms that both ends of a connection agreed on: RPC messages may flow now.
    pub(crate) fn on_ready(&mut self, key: ConnectionKey) -> Option<()> {
        // Calls may have waited until the connection was ready: touched, it sends them in this turn.
        let connection = self.connections.get_touched(key)?;
        let opened = match connection.open() {
            Ok(opened) => opened,
            Err(refusal) => {
                self.connections.close(key, CallError::Host(refusal));
                return Some(());
            }
        };
        if opened {
            let described = connection.described(key);
            self.trace.ready(connection.subject(&key), &connection.agreed_terms());
            self.connections.ready.push_back(described);
            self.counters.connections_opened += 1;
        }
        Some(())
    }

    /// Starts closing a connection whose engine says why.
    pub(crate) fn close_as_engine_says(&mut self, key: ConnectionKey, reason: CloseReason) {
        let Some(connection) = self.connections.get(key) else { return };
        let why = connection.why_closed(reason);
        self.connections.close(key, why);
    }

    /// Starts closing a connection: it goes with the turn.
    pub(crate) fn close(&mut self, key: ConnectionKey, why: CallError) {
        match key.transport() {
            Transport::Rdma => self.connections.close(key, why),
            Transport::Tcp if self.streams.close(key, why) => self.connections.close_later(key),
            Transport::Tcp => {}
        }
    }

    /// Reserves Receives for a connection: replaces those that it used, and adds some if it is busy.
    pub(crate) fn replenish(&mut self, key: ConnectionKey) {
        let touched = self.connections.touched();
        if let Some(connection) = self.connections.get_mut(key) {
            let leaving = connection.outbox.replies();
            connection.replenish(&mut self.receives, leaving, touched);
        }
    }

    /// Asks for memory on behalf of a Call of a connection. `lease` takes it from the pool, if there is room.
    pub(super) fn grant<L>(
        &mut self,
        key: ConnectionKey,
        wanted: &Wanted,
        lease: impl FnOnce(&Pool, usize, Density) -> Option<L>,
    ) -> MemoryGrant<L> {
        match self.connections.get_mut(key) {
            None => match self.streams.get_mut(key) {
                Some(stream) => self.memory.grant(&mut stream.share, &self.pool, wanted, lease),
                None => MemoryGrant::Never,
            },
            // The Calls of a connection that closes end with it.
            Some(connection) if !connection.life.is_up() => MemoryGrant::Waits(Until::Reads),
            Some(connection) => self.memory.grant(&mut connection.share, &self.pool, wanted, lease),
        }
    }

    /// Gives back a charge to a connection, which may be gone.
    #[inline]
    pub(crate) fn discharge(&mut self, key: ConnectionKey, charge: Charge) {
        if charge.octets() == 0 {
            return;
        }
        let share = share(&mut self.connections, &mut self.streams, key);
        self.memory.discharge(share, charge);
    }

    /// Gives back the charges that were dropped although they were not empty, and tells of the first.
    pub(crate) fn discharge_lost(&mut self) {
        while let Some(charge) = Memory::next_lost() {
            if self.counters.charges_lost == 0 {
                self.trace.charge_lost(charge.octets());
            }
            self.counters.charges_lost += 1;
            self.memory.discharge(None, charge);
        }
    }

    /// Charges a connection for octets that the service leases in this turn, if it does; `None` if there is no memory for
    /// them now.
    pub(crate) fn promise_some(&mut self, key: ConnectionKey, later: usize) -> Option<Charge> {
        if later == 0 { Some(Charge::default()) } else { self.promise(key, later) }
    }

    /// Charges a connection for the octets that the service leases in this turn; `None` if there is no memory for them now.
    #[inline(never)]
    pub(crate) fn promise(&mut self, key: ConnectionKey, later: usize) -> Option<Charge> {
        // Calls that wait for memory go first.
        if self.memory.is_awaited() {
            return None;
        }
        let wanted = Wanted { lease: 0, later, own: 0, purpose: Purpose::Reply };
        let MemoryGrant::Taken((), mut charge) = self.grant(key, &wanted, |_, _, _| Some(()))
        else {
            return None;
        };
        self.memory.keep_promise(&mut charge);
        Some(charge)
    }

    /// Queues the Reply to a Call over TCP: `header`, and the results in `reply`. Results without room make it a system error.
    pub(crate) fn send_record(
        &mut self,
        key: ConnectionKey,
        header: &ReplyHeader,
        reply: &mut Reply,
        charge: Charge,
    ) {
        let failed = ReplyHeader::accepted(header.xid, AcceptStat::SystemErr);
        let header = if reply.is_whole() { header } else { &failed };
        if !reply.is_whole() {
            reply.forget_results();
        }
        let (front, data, back) = reply.as_record(header);
        let Self { connections, streams, memory, pool, .. } = self;
        let Some(stream) = streams.get_mut(key) else { return self.discharge(key, charge) };
        let octets = data.len();
        let rest = stream.reply(Record { front, data, back }, charge);
        if stream.begin_sending() {
            connections.queue().push_back(key);
        }
        match rest {
            Some(charge) if charge.octets() == 0 => {}
            Some(charge) => memory.discharge(Some(&mut stream.share), charge),
            None => memory.begin_transfer(&mut stream.share, octets, pool.free_bytes()),
        }
    }

    /// Enters a work request that is about to be posted. Returns its identifier.
    pub(crate) fn enter_work(&mut self, key: ConnectionKey, held: Held) -> WrId {
        if let Some(connection) = self.connections.get_mut(key) {
            let octets = held.charged();
            if octets > 0 {
                let free = self.pool.free_bytes();
                self.memory.begin_transfer(&mut connection.share, octets, free);
            }
            if held.is_send() {
                self.memory.begin_sending(&mut connection.share);
            }
            if matches!(held, Held::Control(_)) {
                connection.outbox.begin_control();
            }
        }
        self.posted.enter(key, held)
    }

    /// Notes that a work request has completed.
    #[inline]
    pub(crate) fn leave_work(&mut self, work: &Work) {
        let Some(connection) = self.connections.get_mut(work.connection) else { return };
        if work.held.charged() > 0 {
            connection.share.end_transfer();
        }
        if work.held.is_send() {
            self.memory.end_sending(&mut connection.share);
        }
    }

    /// Takes a Reply back that the peer has read: invalidates its handle.
    #[cold]
    pub(crate) fn release_held(&mut self, key: ConnectionKey, xid: u32) {
        let Some(connection) = self.connections.get_touched(key) else { return };
        let Some(handle) = connection.held.release(xid) else { return };
        let id = self.posted.enter(key, Held::Release);
        let flags = Flags { signaled: true, ..Flags::default() };
        connection.outbox.push(WorkRequest {
            id,
            flags,
            operation: Operation::LocalInv { handle },
        });
    }

    /// Tells the peer that a Reply of its own was read, as soon as another control message may leave.
    #[cold]
    pub(crate) fn say_done(&mut self, key: ConnectionKey, xid: u32) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.held.owe_done(xid);
        }
        self.send_dones(key);
    }

    /// Tells the peer which Replies of its own were read, as far as control messages may leave.
    #[cold]
    fn send_dones(&mut self, key: ConnectionKey) {
        while let Some(connection) = self.connections.get_touched(key)
            && may_send_control(&self.memory, &self.buffers, connection)
            && let Some(xid) = connection.held.next_done()
        {
            // [R5666-3.5-1] the DONE leaves once the Reply was read, and whatever the credits.
            if let Spoken::One(one) = connection.engine.engine_mut()
                && let Some(done) = one.done(xid)
            {
                self.send_control(key, &Control::One(done));
            }
        }
    }

    /// Takes back the memory of a Reply that the peer has read, and to which it has lost access.
    #[cold]
    pub(crate) fn end_held(&mut self, key: ConnectionKey, proof: Invalidated<'_>) {
        let connection = self.connections.get_mut(key);
        let charge = connection.and_then(|connection| connection.held.fence(proof));
        self.discharge(key, charge.unwrap_or_default());
    }

    /// Takes the buffer of a message home that has left.
    #[inline]
    pub(crate) fn take_home(&mut self, buffer: Option<PostedSource<Local>>, done: &Done) {
        if let Some(buffer) = buffer.and_then(|posted| complete::source(posted, done)) {
            self.buffers.recycle(buffer);
        }
    }

    /// Notes that a control message has left, for which others may wait.
    #[cold]
    pub(crate) fn on_control_left(
        &mut self,
        key: ConnectionKey,
        buffer: Option<PostedSource<Local>>,
        done: &Done,
    ) {
        self.take_home(buffer, done);
        if let Some(connection) = self.connections.get_touched(key) {
            connection.outbox.end_control();
        }
        self.send_dones(key);
    }

    /// Returns whether a connection may have another send buffer for a Reply, of those that are free and `taken` more.
    #[inline]
    pub(crate) fn may_reply(&self, key: ConnectionKey, taken: usize) -> bool {
        let free = self.buffers.len() + taken;
        let each = self.limits.replies_each() as usize;
        let found = self.connections.get(key);
        found.is_none_or(|connection| self.memory.may_send(&connection.share, free, each))
    }

    /// Gives back the credits of messages that did not leave.
    #[inline]
    pub(crate) fn settle_grant(&mut self, key: ConnectionKey, grant: &CreditGrant) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.engine.settle(grant);
            if grant.posted() > 0 {
                connection.outbox.ring();
            }
        }
    }

    /// Has a connection's engine learn that `count` Calls of the peer have no Reply, by their procedures: the peer
    /// gets their credits with whatever leaves next, a grant if there is nothing else.
    #[cold]
    pub(crate) fn owe_no_replies(&mut self, key: ConnectionKey, count: u32) {
        if let Some(connection) = self.connections.get_touched(key) {
            (0..count).for_each(|_| connection.engine.no_reply());
        }
    }

    /// Checks whether Replies of a connection, some of which wait, have found credit. Closes the connection if none has
    /// in all the time that its peer has.
    pub(crate) fn check_replies(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if connection.outbox.has_run_out() {
            let why = "the peer granted no credit for replies in time";
            //~ V2-7.4-2: `return self.connections.close(key, CallError::Disconnected(why.into()))` ->
            //~   `return drop(why)`
            return self.connections.close(key, CallError::Disconnected(why.into()));
        }
        let check_at = now.saturating_add(Clock::interval(self.limits.stall_timeout));
        connection.outbox.check_by(check_at);
        self.wake_by(check_at);
    }

    /// Takes in that the message at hand is a part of a continued one.
    pub(crate) fn on_part(&mut self, now: Instant, key: ConnectionKey, part: &Part) {
        let total = usize::try_from(part.total).unwrap_or(usize::MAX);
        let brought = Brought { payload: part.length as usize, behind: 0 };
        self.on_brought(now, key, part.is_first.then_some(total), brought);
    }

    /// Takes in that the message at hand is a transmission of a group, behind which others are still to arrive.
    #[cold]
    pub(crate) fn on_transmission(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        sent: &Transmission,
    ) {
        let each = self.limits.receive_size as usize;
        let total = (sent.count as usize).saturating_mul(each);
        self.on_brought(now, key, (sent.seq == 0).then_some(total), brought_by(sent.part));
    }

    /// Takes in what the message at hand brings of one in several transport messages. The first brings memory for
    /// `total` octets, in place of what another one had; if there is none now, the message is given up.
    fn on_brought(
        &mut self,
        now: Instant,
        key: ConnectionKey,
        total: Option<usize>,
        brought: Brought,
    ) {
        if let Some(lease) = total {
            self.drop_continued(key);
            let wanted = Wanted { lease, later: 0, own: 0, purpose: Purpose::Reply };
            match self.grant(key, &wanted, Pool::lease_as) {
                MemoryGrant::Taken(octets, charge) => {
                    if let Some(connection) = self.connections.get_mut(key) {
                        connection.continued.begin(octets, charge);
                    }
                }
                MemoryGrant::Waits(_) | MemoryGrant::Never => return self.give_up_continued(key),
            }
        }
        self.counters.parts_received += 1;
        self.counters.part_bytes += (brought.payload + brought.behind) as u64;
        let due = now.saturating_add(self.limits.progress_timeout);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.continued.expect(brought, due);
        }
        self.wake_by(due);
    }

    /// Takes in that the message at hand is the last transmission of a group, if one is under way.
    pub(crate) fn end_group(&mut self, now: Instant, key: ConnectionKey) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        if let (true, Spoken::Two(two)) =
            (connection.continued.is_begun(), connection.engine.engine())
            && let Some(last) = two.extension().and_then(Extension::last)
        {
            let brought = brought_by(last);
            self.on_brought(now, key, None, brought);
        }
    }

    /// Gives up the continued message of a connection: its caller is told.
    pub(crate) fn give_up_continued(&mut self, key: ConnectionKey) {
        self.drop_continued(key);
        let Some(connection) = self.connections.get_touched(key) else { return };
        if let Some((Kind::Call, xid, error)) = connection.engine.break_off(ErrorBody::System) {
            self.counters.calls_refused += 1;
            self.trace.call_refused(connection.subject(&key), (xid, &error));
        }
    }

    /// Gives up the continued message of a connection if its peer has not gone on with it in time.
    /// Returns whether it did.
    pub(crate) fn expire_continued(&mut self, now: Instant, key: ConnectionKey) -> bool {
        let due = self.connections.get(key).and_then(|connection| connection.continued.due());
        let is_over = due.is_some_and(|due| due <= now);
        match due {
            Some(_) if is_over => self.give_up_continued(key),
            Some(due) => self.wake_by(due),
            None => {}
        }
        is_over
    }

    /// Takes out the octets of a message in several transport messages that has arrived, with their charge.
    pub(crate) fn take_continued(&mut self, key: ConnectionKey) -> Option<(Gathered, Charge)> {
        self.connections.get_mut(key)?.continued.take()
    }

    /// Takes back the memory of the continued message of a connection.
    pub(crate) fn drop_continued(&mut self, key: ConnectionKey) {
        self.take_continued(key).into_iter().for_each(|(_, charge)| self.discharge(key, charge));
    }

    /// Answers a Call with a transport error. Over TCP there are none: the connection ends.
    pub(crate) fn refuse(&mut self, key: ConnectionKey, xid: u32, error: ErrorBody) {
        if key.transport() == Transport::Tcp {
            let why = CallError::Disconnected("its record is no Call".to_owned());
            return self.close(key, why);
        }
        self.counters.calls_refused += 1;
        let Some(connection) = self.connections.get_mut(key) else { return };
        self.trace.call_refused(connection.subject(&key), (xid, &error));
        connection.engine.refuse(xid, error);
        while let Some(output) = self.next_output(key) {
            match output {
                Output::Post(control) => self.send_control(key, &control),
                Output::Close(reason) => self.close_as_engine_says(key, reason),
                Output::Event(_) => panic!("a refusal is about no message just received"),
            }
        }
        self.connections.touch(key);
    }

    /// Returns the next thing that a connection's engine asks for. One control message can always leave; others wait in
    /// the engine while its origin holds as many send buffers as it leaves to others, and the engine ends the connection
    /// when too many wait.
    pub(crate) fn next_output(&mut self, key: ConnectionKey) -> Option<Output> {
        let connection = self.connections.get_mut(key)?;
        if may_send_control(&self.memory, &self.buffers, connection) {
            connection.engine.poll()
        } else {
            connection.engine.poll_event()
        }
    }

    /// Encodes and queues a message without payload.
    pub(crate) fn send_control(&mut self, key: ConnectionKey, control: &Control) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let Some(mut buffer) = self.buffers.pop_or_lease(&self.pool) else {
            let reason = "there is no memory for a control message";
            return self.connections.close(key, CallError::Disconnected(reason.into()));
        };
        let mut writer = Writer::new(buffer.bytes_mut());
        let encoded = connection.engine.encode(control, &mut writer);
        assert!(encoded.is_ok(), "a control message fits a send buffer");
        let length = writer.position();
        self.queue_control(key, length, buffer);
    }
}

/// Returns what a transmission of a group brings.
const fn brought_by(part: group::Part) -> Brought {
    Brought { payload: part.end - part.start, behind: part.length - part.end }
}

/// Returns whether another control message may leave on a connection.
#[inline]
fn may_send_control(memory: &Memory, buffers: &SendBuffers, connection: &Connection) -> bool {
    memory.leaves_others(&connection.share, buffers.len()) || !connection.outbox.has_controls()
}

/// Finds what a connection holds, over RDMA or TCP.
pub(super) fn share<'a>(
    connections: &'a mut Connections,
    streams: &'a mut Streams,
    key: ConnectionKey,
) -> Option<&'a mut Share> {
    match connections.get_mut(key) {
        Some(connection) => Some(&mut connection.share),
        None => streams.get_mut(key).map(|stream| &mut stream.share),
    }
}
