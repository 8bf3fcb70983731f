//! A server of NFS version 3 and of MOUNT version 3, over RDMA and over TCP.
//!
//! # Normal operation
//! The server is a service of one core, which passes it the Calls received over RDMA and over TCP. One [`Program`] executes
//! both, one Call at a time.

mod admission;
pub mod gate;
mod mounting;
mod told;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use haulage::core::Cx;
use haulage::provider::PeerUser;
use haulage::service::{
    self as runtime, AUTH_NONE, AUTH_SYS, ArgumentLeases, Binding, Call, CallError, CallToken,
    ConnectionId, Outcome, Refusal, Reply as RuntimeReply, ResultSource,
};
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::AcceptStat;
use haulage_proto::time::Instant;

use crate::backend::{Backend, Ticket};
use crate::mount3;
use crate::mounts::{Mounting, Mounts};
use crate::nfs3::binding::{Limits, binding};
use crate::nfs3::{Arguments, Procedure, Results, Status, Time};
use crate::program::{Ended, Origin, Program};
use crate::replays::Replays;
use crate::service::{LateReply, Service, Surroundings, is_costly};
use crate::trust::{GIDS_MAX, Host, Peer};

use gate::{Figures, Gate};

pub use admission::Admission;
pub use told::Told;

/// The storage server, a service of one core.
#[derive(Debug)]
pub struct Server<B> {
    nfs: Program<B>,
    mounts: Mounts,
    /// Calls of MOUNT that wait for a name of their paths.
    mounting: BTreeMap<Ticket, (Mounting, CallToken)>,
    binding: Binding,
    read_source: ResultSource,
    gate: Gate,
    /// Callers that wait for a later Reply.
    later: BTreeMap<Ticket, CallToken>,
    /// Callers that repeated a Call before it ended.
    again: BTreeMap<Ticket, Vec<CallToken>>,
    /// Later Replies that the runtime has not fetched yet.
    replies: Vec<(CallToken, LateReply)>,
    /// The hosts of the peers over TCP.
    hosts: BTreeMap<ConnectionId, Host>,
    time: TimeOfDay,
    told: Told,
}

/// The time of day, derived from the clock of the cores.
#[derive(Clone, Copy, Debug)]
struct TimeOfDay {
    /// The time of day when the clock began.
    origin: Duration,
    /// When the system's time was last read; `None` if it is never read.
    looked: Option<Instant>,
}

impl<B: Backend> Server<B> {
    /// Creates a server for `service` within these limits. `gate` admits clients and checks claims, and `replays` answers
    /// repeated Calls.
    pub fn new(service: Service<B>, limits: &Limits, gate: Gate, replays: Replays) -> Self {
        let hosts =
            gate.admission.networks.iter().map(|(address, bits)| format!("{address}/{bits}"));
        let hosts = hosts.map(|host| host.into_bytes().into()).collect();
        Self {
            read_source: service.read_source(),
            nfs: Program::new(service, replays),
            mounts: Mounts::new(hosts, MOUNTS_KEPT),
            mounting: BTreeMap::new(),
            binding: binding(limits),
            gate,
            later: BTreeMap::new(),
            again: BTreeMap::new(),
            replies: Vec::new(),
            hosts: BTreeMap::new(),
            time: TimeOfDay::look(haulage::sys::clock::now()),
            told: Told::default(),
        }
    }

    /// Sets `origin` as the time of day at which the core's clock began, for a core whose clock is not the system's.
    #[must_use]
    pub const fn with_clock_since(mut self, origin: Duration) -> Self {
        self.time = TimeOfDay { origin, looked: None };
        self
    }

    /// Returns the counters of refused and disbelieved callers.
    pub const fn figures(&self) -> Figures {
        self.gate.figures()
    }

    /// Returns what clients were told.
    pub const fn told(&self) -> &Told {
        &self.told
    }

    fn surroundings<'a>(&self, cx: &'a Cx<'_>) -> Surroundings<'a> {
        let arrivals = Some(cx.arrivals());
        Surroundings { pool: cx.pool(), now: self.time.at(cx.now()), clock: cx.now(), arrivals }
    }

    /// Delivers later Replies to their callers. Returns whether there were any.
    fn deliver(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut worked = false;
        loop {
            let around = self.surroundings(cx);
            let Some((ticket, reply)) = self.nfs.poll(around) else { break };
            worked = true;
            if self.later.contains_key(&ticket) {
                self.told.note_nfs(reply.status());
            }
            for caller in self.again.remove(&ticket).into_iter().flatten() {
                if let Some(reply) = reply.copy() {
                    self.hand_out(cx, caller, reply);
                }
            }
            match self.later.remove(&ticket) {
                Some(caller) => self.hand_out(cx, caller, reply),
                None => self.go_on_mounting(cx, ticket, &reply),
            }
        }
        if !self.replies.is_empty() {
            // Drop Replies to connections that are gone.
            self.replies.retain(|(token, _)| cx.awaits(*token));
        }
        worked
    }

    fn hand_out(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: LateReply) {
        self.replies.push((token, reply));
        cx.resume(token);
    }

    /// Keeps a caller until the Reply of a ticket comes. Returns whether it waits: not if too many wait for that Reply.
    fn keep_waiting(&mut self, cx: &Cx<'_>, ticket: Ticket, token: CallToken) -> bool {
        match self.later.entry(ticket) {
            Entry::Vacant(place) => _ = place.insert(token),
            Entry::Occupied(_) => {
                let again = self.again.entry(ticket).or_default();
                // A caller that repeats a Call has often lost its connection; drop such callers.
                again.retain(|token| cx.awaits(*token));
                if again.len() == AGAIN_MAX {
                    return false;
                }
                again.push(token);
            }
        }
        true
    }

    /// Refuses a Call that is to be made again later.
    fn refuse_for_now(&mut self, procedure: u32, reply: &mut RuntimeReply) -> Outcome {
        let Some(procedure) = Procedure::from_number(procedure) else {
            return Outcome::Failed(AcceptStat::ProcUnavail);
        };
        let refusal = Results::refusal(procedure, Status::Jukebox);
        self.told.note_nfs(Status::Jukebox);
        reply.results(|w| refusal.encode(w));
        Outcome::Done
    }
}

impl<B: Backend> haulage::core::Service for Server<B> {
    fn programs(&self) -> Vec<runtime::Program> {
        let costly = Procedure::ALL.iter().filter(|procedure| is_costly(**procedure));
        let program = runtime::Program::new(self.binding.clone())
            .flavors(&FLAVORS)
            .result_source(Procedure::Read.number(), self.read_source)
            .argument_leases(Procedure::Write.number(), ArgumentLeases::One)
            .asked_by(Procedure::Read.number(), octets_asked)
            .costly(costly.map(|procedure| procedure.number()));
        // An address that may not mount is told so.
        vec![program, runtime::Program::new(mount3::binding()).flavors(&FLAVORS).open_to_all()]
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        self.gate.admission.admits(peer.ip())
    }

    fn identifies_peers(&self) -> bool {
        self.gate.identifies_peers()
    }

    fn opened(&mut self, _: &mut Cx<'_>, peer: &runtime::Peer) {
        if peer.version.is_none() {
            self.hosts.insert(peer.connection, Host::of(peer.address.ip()));
        }
    }

    fn left(&mut self, _: &mut Cx<'_>, peer: &runtime::Peer) {
        self.nfs.left(peer.connection.into());
    }

    fn closed(&mut self, _: &mut Cx<'_>, peer: &runtime::Peer, _: &CallError) {
        self.hosts.remove(&peer.connection);
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut RuntimeReply) -> Outcome {
        let Some(peer) = cx.peer(call.connection) else {
            return Outcome::Failed(AcceptStat::SystemErr);
        };
        let from = match self.hosts.get(&call.connection) {
            Some(host) => Peer::Tcp { port: peer.port(), host: *host },
            None => Peer::Rdma(cx.peer_user(call.connection).unwrap_or(PeerUser::Unknown)),
        };
        let from = (from, peer.ip());
        let mut gids = [[0; 4]; GIDS_MAX];
        let credential = self.gate.believed(cx.now(), from, call.credential, &mut gids);
        if call.program == mount3::PROGRAM {
            return self.on_mount(cx, peer.ip(), credential, call, reply);
        }
        let Call { xid, procedure, .. } = call;
        let (arguments, placed) = match call.arguments.into_parts() {
            (arguments, Ok(placed)) => {
                (arguments, placed.into_first().and_then(|leases| leases.into_one().ok()))
            }
            (arguments, Err(Refusal::NoMemory)) => (arguments, None),
            // The memory comes back, but the caller has waited for long enough.
            (_, Err(Refusal::Busy)) => return self.refuse_for_now(procedure, reply),
            // Longer than the binding allows.
            (_, Err(Refusal::TooLarge)) => return Outcome::Failed(AcceptStat::GarbageArgs),
        };
        let connection = call.connection.into();
        let origin = Origin { client: client(peer.ip()), connection, xid, credential };
        let around = self.surroundings(cx);
        let mut ended = Ended::Failed(AcceptStat::SystemErr);
        reply.results(|w| {
            let start = w.position();
            ended = self.nfs.call(around, &origin, procedure, (arguments, placed), w);
            if matches!(ended, Ended::Done(_)) {
                self.told.note_encoded(w.written().get(start..).unwrap_or_default());
            }
            Ok(())
        });
        match ended {
            Ended::Done(data) => {
                reply.item_data(data.into());
                Outcome::Done
            }
            Ended::Failed(stat) => Outcome::Failed(stat),
            Ended::Later(ticket) if self.keep_waiting(cx, ticket, call.token) => Outcome::Later,
            Ended::Later(_) => self.refuse_for_now(procedure, reply),
        }
    }

    fn resume(&mut self, _: &mut Cx<'_>, token: CallToken, reply: &mut RuntimeReply) -> Outcome {
        let Some(at) = self.replies.iter().position(|(waiting, _)| *waiting == token) else {
            return Outcome::Later;
        };
        let (_, late) = self.replies.swap_remove(at);
        reply.results(|w| late.encode(w));
        reply.item_data(late.data.into());
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.time.keep(cx.now());
        let mut worked = self.nfs.turn();
        worked |= self.deliver(cx);
        // A Call resumed in this turn may have begun a search, or wait for another turn.
        worked | self.nfs.has_work()
    }
}

/// The accepted authentication flavors, over RDMA and over TCP.
const FLAVORS: [u32; 2] = [AUTH_NONE, AUTH_SYS];

/// Returns the octets that a READ with these arguments asks for.
fn octets_asked(arguments: &[u8]) -> usize {
    let mut reader = PayloadReader::call(arguments, 0, None);
    match Arguments::decode(Procedure::Read, &mut reader) {
        Ok(Arguments::Read(read)) => read.count as usize,
        _ => 0,
    }
}

/// Returns the number of a client's address, without the port.
fn client(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl TimeOfDay {
    fn look(now: Instant) -> Self {
        let since = now.saturating_since(Instant::ZERO);
        Self { origin: haulage::sys::clock::time_of_day().saturating_sub(since), looked: Some(now) }
    }

    /// Reads the system's time again, if it is time to, so that changes of its clock take effect.
    fn keep(&mut self, now: Instant) {
        if self.looked.is_some_and(|looked| now.saturating_since(looked) >= LOOK_AGAIN) {
            *self = Self::look(now);
        }
    }

    fn at(&self, now: Instant) -> Time {
        let time = self.origin.saturating_add(now.saturating_since(Instant::ZERO));
        Time {
            // The protocol's times end in 2106.
            seconds: u32::try_from(time.as_secs()).unwrap_or(u32::MAX),
            nanoseconds: time.subsec_nanos(),
        }
    }
}

/// How often the system's time is read.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Maximum number of callers that repeat one Call and wait for the Reply to the first.
const AGAIN_MAX: usize = 4;

/// Maximum number of mounts in the list for operators.
const MOUNTS_KEPT: usize = 256;

#[cfg(test)]
mod tests;
