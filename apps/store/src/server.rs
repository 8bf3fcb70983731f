//! A server of NFS version 3 over RDMA and over TCP, and of MOUNT version 3 over TCP.
//!
//! # Normal operation
//! The server is a service of one core: Calls that come over RDMA are handed to it by the runtime.
//! Those that come over TCP are collected by threads ([`tcp`]) that wake the core; it answers them in
//! its [`turn`](haulage::service::Service::turn). Both are carried out by the same
//! [`Service`](crate::service::Service), one at a time.
//!
//! # Recovery
//! A Call that comes twice, on whichever connection, is answered as it was the first time
//! ([`Replays`]).

mod mount;
mod program;
pub mod tcp;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use haulage::core::Cx;
use haulage::service::{
    self as runtime, Binding, Call, CallToken, Data, Outcome, Refusal, Reply as RuntimeReply,
};
use haulage_proto::rpc::AcceptStat;
use haulage_proto::time::Instant;
use haulage_proto::xdr::Writer;

use crate::backend::{Backend, Ticket};
use crate::nfs3::binding::{Limits, binding, is_idempotent};
use crate::nfs3::{Arguments, Failure, Procedure, Results, Status, Time, Wcc};
use crate::replays::{CallKey, Replays, Seen};
use crate::service::{self as nfs, Answer, Reply, Surroundings};

use tcp::{TcpCall, Waiting};

/// The server, as a service of one core.
#[derive(Debug)]
pub struct Server<B> {
    nfs: nfs::Service<B>,
    limits: Limits,
    admission: Admission,
    replays: Replays,
    /// Calls whose Replies come later.
    later: BTreeMap<Ticket, (Caller, Option<CallKey>)>,
    /// Replies that came later, until the runtime asks for them.
    ended: Vec<(CallToken, Reply<'static>)>,
    /// Calls that came over TCP.
    calls: Receiver<TcpCall>,
    time: TimeOfDay,
    /// Room for the Replies of Calls that came over TCP.
    room: Vec<u8>,
}

/// Who may connect.
#[derive(Clone, Debug, Default)]
pub struct Admission {
    /// Networks: an address, and how many of its bits count. None means everybody.
    pub networks: Vec<(IpAddr, u8)>,
}

/// Who waits for a Reply.
#[derive(Debug)]
enum Caller {
    Rdma(CallToken),
    Tcp(Waiting),
}

/// What the time of day is, by the clock that cores go by.
#[derive(Clone, Copy, Debug)]
struct TimeOfDay {
    /// The time of day when the clock began.
    origin: Duration,
    /// When that was looked at.
    looked: Instant,
}

impl<B: Backend> Server<B> {
    /// Makes a server of `nfs`, within these limits, that also answers what comes out of `calls`.
    pub fn new(
        nfs: nfs::Service<B>,
        limits: Limits,
        admission: Admission,
        calls: Receiver<TcpCall>,
    ) -> Self {
        Self {
            nfs,
            limits,
            admission,
            replays: Replays::new(REPLAYS_MAX, REPLAY_LEN_MAX),
            later: BTreeMap::new(),
            ended: Vec::new(),
            calls,
            time: TimeOfDay::look(haulage::sys::clock::now()),
            room: Vec::new(),
        }
    }

    fn surroundings<'a>(&self, cx: &'a Cx<'_>) -> Surroundings<'a> {
        Surroundings { pool: cx.pool(), now: self.time.at(cx.now()) }
    }

    /// Answers a Call that came over RDMA.
    fn answer(
        &mut self,
        cx: &Cx<'_>,
        call: Call<'_>,
        reply: &mut RuntimeReply,
    ) -> Result<Outcome, AcceptStat> {
        let procedure = Procedure::from_number(call.procedure).ok_or(AcceptStat::ProcUnavail)?;
        let peer = cx.peer(call.connection).map(|peer| peer.ip());
        let (mut reader, placed) = call.arguments.into_parts();
        let key = peer.and_then(|peer| key(procedure, call.xid, peer, reader.rest()));
        let arguments = Arguments::decode(procedure, &mut reader);
        let arguments = arguments.map_err(|_| AcceptStat::GarbageArgs)?;
        let placed = match placed {
            Ok(placed) => placed,
            Err(Refusal::NoMemory) => None,
            // Longer than we said that we take.
            Err(Refusal::TooLarge) => return Err(AcceptStat::GarbageArgs),
        };
        match key.map(|key| self.replays.begin(key)) {
            None | Some(Seen::New) => {}
            Some(Seen::Answered(results)) => {
                let fits = reply.results(|w| w.put(results));
                return fits.map(|()| Outcome::Done).map_err(|_| AcceptStat::SystemErr);
            }
            Some(Seen::Pending) => return fill(reply, busy()),
        }
        let around = self.surroundings(cx);
        let asked = nfs::Call { credential: call.credential, arguments, placed };
        match self.nfs.call(around, asked) {
            Answer::Now(answer) => {
                remember(&mut self.replays, key, &answer);
                fill(reply, answer)
            }
            Answer::Later(ticket) => {
                self.later.insert(ticket, (Caller::Rdma(call.token), key));
                Ok(Outcome::Later)
            }
        }
    }

    /// Hands out Replies that came later. Returns whether there were any.
    fn deliver(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut worked = false;
        loop {
            let around = self.surroundings(cx);
            let Some((ticket, reply)) = self.nfs.poll(around) else { break };
            worked = true;
            let Some((caller, key)) = self.later.remove(&ticket) else { continue };
            remember(&mut self.replays, key, &reply);
            match caller {
                Caller::Rdma(token) => {
                    self.ended.push((token, reply));
                    cx.resume(token);
                }
                Caller::Tcp(waiting) => waiting.reply(&mut self.room, &reply),
            }
        }
        if !self.ended.is_empty() {
            // A Reply to a connection that is gone is wanted by nobody.
            self.ended.retain(|(token, _)| cx.awaits(*token));
        }
        worked
    }
}

impl<B: Backend> runtime::Service for Server<B> {
    fn binding(&self) -> Binding {
        binding(&self.limits)
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        self.admission.admits(peer.ip())
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut RuntimeReply) -> Outcome {
        self.answer(cx, call, reply).unwrap_or_else(Outcome::Failed)
    }

    fn resume(&mut self, _: &mut Cx<'_>, token: CallToken, reply: &mut RuntimeReply) -> Outcome {
        let Some(at) = self.ended.iter().position(|(waiting, _)| *waiting == token) else {
            return Outcome::Later;
        };
        let (_, answer) = self.ended.swap_remove(at);
        fill(reply, answer).unwrap_or_else(Outcome::Failed)
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.time.keep(cx.now());
        let mut worked = false;
        for _ in 0..TCP_CALLS_PER_TURN {
            let Ok(call) = self.calls.try_recv() else { break };
            self.on_tcp(cx, call);
            worked = true;
        }
        worked | self.deliver(cx)
    }
}

/// Puts an answer into a Reply over RDMA.
fn fill(reply: &mut RuntimeReply, answer: Reply<'_>) -> Result<Outcome, AcceptStat> {
    let written = reply.results(|w| answer.results.encode(w));
    written.map_err(|_| AcceptStat::SystemErr)?;
    let data =
        if answer.data.is_empty() { Data::Empty } else { Data::Pieces(Box::new(answer.data)) };
    reply.item_data(data);
    Ok(Outcome::Done)
}

/// Returns what is said to a Call whose first coming is still being carried out: ask again. Only WRITE
/// takes so long.
fn busy() -> Reply<'static> {
    Results::Write(Err(Failure { status: Status::Jukebox, rest: Wcc::default() })).into()
}

/// Names a Call that must not be carried out twice.
fn key(procedure: Procedure, xid: u32, client: IpAddr, arguments: &[u8]) -> Option<CallKey> {
    let client = match client {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let key = || CallKey {
        client: client.to_bits(),
        xid,
        procedure: procedure.number(),
        digest: digest(arguments),
    };
    (!is_idempotent(procedure)).then(key)
}

/// FNV-1a: tells a Call from an old one of the same XID. Nobody gains by making two collide: their own
/// Call would be answered like their other one.
fn digest(arguments: &[u8]) -> u64 {
    arguments.iter().fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Keeps a Reply for a Call that must not be carried out twice; such have no data.
fn remember(replays: &mut Replays, key: Option<CallKey>, reply: &Reply<'_>) {
    let Some(key) = key else { return };
    let mut kept = [0; REPLAY_LEN_MAX];
    let mut w = Writer::new(&mut kept);
    let fits = reply.encode_inline(&mut w).is_ok();
    replays.end(key, fits.then_some(w.written()));
}

impl Admission {
    /// Returns whether somebody at this address may connect.
    pub fn admits(&self, address: IpAddr) -> bool {
        // A socket for both families gives IPv4 addresses in IPv6 clothes.
        let address = address.to_canonical();
        self.networks.is_empty() || self.networks.iter().any(|net| contains(net, address))
    }
}

/// Returns whether the first bits of a network's address are those of `address`.
fn contains((network, bits): &(IpAddr, u8), address: IpAddr) -> bool {
    let (ours, theirs, width) = match (network, address) {
        (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
            (u128::from(ours.to_bits()), u128::from(theirs.to_bits()), 32)
        }
        (IpAddr::V6(ours), IpAddr::V6(theirs)) => (ours.to_bits(), theirs.to_bits(), 128),
        _ => return false,
    };
    let rest = u32::from(width - (*bits).min(width));
    ours.checked_shr(rest).unwrap_or(0) == theirs.checked_shr(rest).unwrap_or(0)
}

impl TimeOfDay {
    fn look(now: Instant) -> Self {
        let since = now.saturating_since(Instant::ZERO);
        Self { origin: haulage::sys::clock::time_of_day().saturating_sub(since), looked: now }
    }

    /// Follows the system where it sets its clock.
    fn keep(&mut self, now: Instant) {
        if now.saturating_since(self.looked) >= LOOK_AGAIN {
            *self = Self::look(now);
        }
    }

    fn at(&self, now: Instant) -> Time {
        let time = self.origin.saturating_add(now.saturating_since(Instant::ZERO));
        Time {
            // Until 2106, as the protocol has it.
            seconds: u32::try_from(time.as_secs()).unwrap_or(u32::MAX),
            nanoseconds: time.subsec_nanos(),
        }
    }
}

/// How often the time of day is looked at.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Calls over TCP answered in one turn.
const TCP_CALLS_PER_TURN: usize = 64;

/// Replies kept for Calls that come twice.
const REPLAYS_MAX: usize = 4096;

/// Octets of the longest Reply of a procedure that is not idempotent.
const REPLAY_LEN_MAX: usize = 512;

#[cfg(test)]
mod tests;
