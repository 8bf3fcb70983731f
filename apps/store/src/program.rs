//! The NFS program for a transport: encoded Calls in, encoded Replies out, each Call executed once.
//!
//! # Normal operation
//! A transport passes the octets of a Call's arguments, and the lease into which a reduced argument was placed. The
//! program writes the results after the RPC header. The data in [`Ended::Done`] follows them, by direct data placement
//! or unreduced. For [`Ended::Later`], [`Program::poll`] returns the Reply.
//!
//! # Recovery
//! The Replies of procedures that are not idempotent are cached under a key that identifies the Call on every
//! connection of its client. A Call that is repeated while it is being executed gets the ticket of the first, and both
//! callers get the same Reply. JUKEBOX would be wrong there: the client would repeat the Call under another XID, and it
//! would be executed twice.

use std::collections::BTreeMap;
use std::net::IpAddr;

use haulage::crowd::network;
use haulage_mr_pool::Local;
use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::rpc::{AcceptStat, Credential};
use haulage_proto::time::Instant;
use haulage_proto::xdr::{Truncated, Writer};

use crate::backend::{Backend, Ticket};
use crate::nfs3::binding::is_idempotent;
use crate::nfs3::{Arguments, Procedure, Status};
use crate::replays::{CallKey, Connection, End, Given, Replays, Said, Seen};
use crate::service::{Answer, Call, LateReply, Service, Surroundings};
use haulage_mr_pool::Pieces;

/// NFS version 3, over one backend.
#[derive(Debug)]
pub struct Program<B> {
    service: Service<B>,
    replays: Replays,
    /// Calls that wait for the backend and must not be executed twice.
    waiting: BTreeMap<Ticket, (CallKey, Connection)>,
}

/// The origin of a Call: client, connection, XID and credential.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The client's address, without the port.
    pub client: u128,
    /// The connection on which the Call came.
    pub connection: Connection,
    /// The Call's XID.
    pub xid: u32,
    /// The credential of the Call.
    pub credential: Credential<'a>,
}

/// The state of a Call after [`Program::call`].
#[derive(Debug)]
pub enum Ended {
    /// The results are written; these octets follow them.
    Done(Pieces),
    /// There are no results; the RPC layer reports this error.
    Failed(AcceptStat),
    /// The Call ends in a later turn. An earlier Call may have the same ticket; the Reply is for both.
    Later(Ticket),
}

impl<B: Backend> Program<B> {
    /// Creates a program from a service and a duplicate request cache.
    pub const fn new(service: Service<B>, replays: Replays) -> Self {
        Self { service, replays, waiting: BTreeMap::new() }
    }

    /// Executes a Call, or repeats its cached Reply. `arguments` is the rest of the stream, `placed` the lease of a
    /// reduced argument. Results are appended to `w`.
    #[inline(always)]
    pub fn call(
        &mut self,
        around: Surroundings<'_>,
        origin: &Origin<'_>,
        number: u32,
        (mut arguments, placed): (PayloadReader<'_>, Option<Local>),
        w: &mut Writer<'_>,
    ) -> Ended {
        let Some(procedure) = Procedure::from_number(number) else {
            return Ended::Failed(AcceptStat::ProcUnavail);
        };
        let Origin { client, connection, xid, credential } = *origin;
        let stream = arguments.rest();
        let Ok(arguments) = Arguments::decode(procedure, &mut arguments) else {
            return Ended::Failed(AcceptStat::GarbageArgs);
        };
        let key = (!is_idempotent(procedure)).then(|| {
            let (arguments, data) = apart(stream, &arguments, placed.as_ref());
            let said = Said { credential: &credential, arguments, data };
            CallKey {
                client,
                xid,
                procedure: number,
                digest: self.replays.digester().digest(&said),
            }
        });
        match key.map(|key| self.replays.begin(&key, around.clock)) {
            None | Some(Seen::New) => {}
            Some(Seen::Answered(results)) => return ended(w.put(results), Pieces::default()),
            Some(Seen::Pending(ticket)) => return Ended::Later(ticket),
        }
        let network = network(IpAddr::from(client.to_be_bytes()));
        let call = Call { credential, arguments, placed, room: w.room(), network };
        match self.service.call(around, call) {
            Answer::Later(ticket) => {
                if let Some(key) = key {
                    self.replays.wait(key, ticket);
                    self.waiting.insert(ticket, (key, connection));
                }
                Ended::Later(ticket)
            }
            Answer::Now(reply) => {
                let start = w.position();
                let written = reply.results.encode(w);
                let call = key.map(|key| (key, connection));
                match (call, w.written().get(start..).filter(|_| written.is_ok())) {
                    (None, _) => {}
                    (Some(call), Some(results @ [_, ..])) => {
                        remember(&mut self.replays, call, around.clock, results);
                    }
                    // The Call was executed, even if its results have no room.
                    (Some(call), _) => {
                        let encode = |w: &mut Writer<'_>| reply.results.encode(w);
                        remember_encoded(&mut self.replays, call, around.clock, encode);
                    }
                }
                ended(written, reply.data)
            }
        }
    }

    /// Begins a turn of the core. Returns whether the backend has background work left.
    pub fn turn(&mut self) -> bool {
        self.service.turn()
    }

    /// Returns whether another turn is needed even if no Call comes.
    pub fn has_work(&self) -> bool {
        self.service.has_work()
    }

    /// Returns the next Reply of a Call that returned [`Ended::Later`].
    pub fn poll(&mut self, around: Surroundings<'_>) -> Option<(Ticket, LateReply)> {
        let (ticket, reply) = self.service.poll(around)?;
        if let Some(call) = self.waiting.remove(&ticket) {
            // The Call was executed, even if its connection is gone.
            remember_encoded(&mut self.replays, call, around.clock, |w| reply.encode(w));
        }
        Some((ticket, reply))
    }

    /// Takes in that a client has closed a connection in order after it had received every Reply.
    pub fn left(&mut self, connection: Connection) {
        self.replays.forget_connection(connection);
    }

    /// Returns the service, for MOUNT.
    pub const fn service_mut(&mut self) -> &mut Service<B> {
        &mut self.service
    }
}

/// Caches the results of a Call that ended at `now`. JUKEBOX is not cached, since a repeated Call must be executed.
fn remember(
    replays: &mut Replays,
    (key, connection): (CallKey, Connection),
    now: Instant,
    reply: &[u8],
) {
    let status = reply.first_chunk().copied().map(u32::from_be_bytes);
    let end = match status.and_then(Status::from_number) {
        Some(Status::Ok) => End::Success,
        Some(Status::Jukebox) | None => return replays.forget(&key),
        Some(_) => End::Failure,
    };
    replays.keep(&key, &Given { connection, now, end, reply });
}

/// Encodes and caches the results of a Call that ended at `now`.
fn remember_encoded(
    replays: &mut Replays,
    call: (CallKey, Connection),
    now: Instant,
    encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
) {
    let mut memory = [0; RESULTS_KEPT];
    let mut w = Writer::new(&mut memory);
    match encode(&mut w) {
        Ok(()) => remember(replays, call, now, w.written()),
        Err(_) => replays.forget(&call.0),
    }
}

/// Takes the octets of arguments apart into what is never reduced, and the data item at their end, if there is one.
fn apart<'a>(
    stream: &'a [u8],
    arguments: &Arguments<'a>,
    placed: Option<&'a Local>,
) -> (&'a [u8], &'a [u8]) {
    match (arguments.item(), placed) {
        (Some(Item::Unreduced(data)), _) => {
            let padded = data.len().next_multiple_of(4);
            (stream.get(..stream.len().saturating_sub(padded)).unwrap_or(stream), data)
        }
        // On version 1 an item's padding may have been placed with it.
        (Some(Item::Reduced { length }), Some(lease)) => {
            let data = usize::try_from(length).ok().and_then(|length| lease.bytes().get(..length));
            (stream, data.unwrap_or_else(|| lease.bytes()))
        }
        (Some(Item::Reduced { .. }) | None, _) => (stream, &[]),
    }
}

fn ended<E>(written: Result<(), E>, data: Pieces) -> Ended {
    match written {
        Ok(()) => Ended::Done(data),
        Err(_) => Ended::Failed(AcceptStat::SystemErr),
    }
}

/// Maximum length of cached results, in octets: those of CREATE, the longest of all procedures that are not idempotent.
pub const RESULTS_KEPT: usize = 4 + (4 + 4 + 64) + (4 + 84) + (4 + 24 + 4 + 84);

#[cfg(test)]
mod tests;
