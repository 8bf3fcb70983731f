//! The program as a transport sees it: octets in, octets out, and each Call carried out once.
//!
//! # Normal operation
//! A transport hands over the octets of a Call's arguments, and the lease that a reduced one was placed
//! in. The results are written behind its RPC header; what [`Ended::Done`] holds follows them, by
//! direct data placement or inline. A Call answered with [`Ended::Later`] comes out of
//! [`Program::poll`].
//!
//! # Recovery
//! Results of procedures that are not idempotent are kept, under what names the Call on every
//! connection of its client. A Call that comes again while it is being carried out gets the ticket of the
//! first one, and both callers get the one Reply. To tell the second to come later would do harm: the
//! client would make the Call again under another XID, and it would be carried out twice.

use std::collections::BTreeMap;

use haulage_mr_pool::Local;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::{AcceptStat, Credential};
use haulage_proto::time::Instant;
use haulage_proto::xdr::Writer;

use crate::backend::{Backend, Ticket};
use crate::nfs3::binding::is_idempotent;
use crate::nfs3::{Arguments, Procedure, Status};
use crate::replays::{CallKey, End, Replays, Seen, hash};
use crate::service::{Answer, Call, LateReply, Service, Surroundings};
use haulage_mr_pool::Pieces;

/// NFS version 3, over one backend.
#[derive(Debug)]
pub struct Program<B> {
    service: Service<B>,
    replays: Replays,
    /// Calls that wait for the backend and must not be carried out twice.
    waiting: BTreeMap<Ticket, CallKey>,
}

/// Where a Call comes from.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// The client's address, without the port.
    pub client: u128,
    /// The Call's XID.
    pub xid: u32,
    /// Who says they call.
    pub credential: Credential<'a>,
}

/// What became of a Call.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a READ takes nothing from the heap")]
pub enum Ended {
    /// Its results are written; these octets follow them.
    Done(Pieces),
    /// There are no results; the RPC layer says why.
    Failed(AcceptStat),
    /// It ends in a later turn. A Call that came before may have the same ticket: the Reply is for both.
    Later(Ticket),
}

impl<B: Backend> Program<B> {
    /// Joins a service to what remembers its Replies.
    pub const fn new(service: Service<B>, replays: Replays) -> Self {
        Self { service, replays, waiting: BTreeMap::new() }
    }

    /// Carries out a Call, or answers it as it was answered before. `arguments` is all that is left of
    /// the stream, `placed` what a reduced argument was placed in. Results are appended to `w`.
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
        let Origin { client, xid, credential } = *origin;
        let digest = hash(arguments.rest());
        let key = CallKey { client, xid, procedure: number, digest };
        let key = (!is_idempotent(procedure)).then_some(key);
        match key.map(|key| self.replays.begin(&key, around.clock)) {
            None | Some(Seen::New) => {}
            Some(Seen::Answered(results)) => return ended(w.put(results), Pieces::default()),
            Some(Seen::Pending(ticket)) => return Ended::Later(ticket),
        }
        let Ok(arguments) = Arguments::decode(procedure, &mut arguments) else {
            return Ended::Failed(AcceptStat::GarbageArgs);
        };
        match self.service.call(around, Call { credential, arguments, placed }) {
            Answer::Later(ticket) => {
                if let Some(key) = key {
                    self.replays.wait(key, ticket);
                    self.waiting.insert(ticket, key);
                }
                Ended::Later(ticket)
            }
            Answer::Now(reply) => {
                let start = w.position();
                let written = reply.results.encode(w);
                if let Some(key) = key {
                    let results = w.written().get(start..).filter(|_| written.is_ok());
                    remember(&mut self.replays, &key, around.clock, results);
                }
                ended(written, reply.data)
            }
        }
    }

    /// Begins a turn of the core. Returns whether the backend has work that outlasts it.
    pub fn turn(&mut self) -> bool {
        self.service.turn()
    }

    /// Returns whether another turn is needed, whatever comes.
    pub fn has_work(&self) -> bool {
        self.service.has_work()
    }

    /// Returns the next Reply that was to come later.
    pub fn poll(&mut self, around: Surroundings<'_>) -> Option<(Ticket, LateReply)> {
        let (ticket, reply) = self.service.poll(around)?;
        if let Some(key) = self.waiting.remove(&ticket) {
            // Whether its connection is still there or not, it was carried out.
            let mut memory = [0; RESULTS_KEPT];
            let mut w = Writer::new(&mut memory);
            let written = reply.encode(&mut w);
            let results = Some(w.written()).filter(|_| written.is_ok());
            remember(&mut self.replays, &key, around.clock, results);
        }
        Some((ticket, reply))
    }

    /// Returns the service, for MOUNT.
    pub const fn service_mut(&mut self) -> &mut Service<B> {
        &mut self.service
    }
}

/// Keeps the results of a Call that ended at `now`, if they are an answer. Whoever was told to come later
/// was told nothing, and is answered when they come.
fn remember(replays: &mut Replays, key: &CallKey, now: Instant, results: Option<&[u8]>) {
    let Some((results, status)) = results.and_then(|all| Some((all, all.first_chunk()?))) else {
        return replays.forget(key);
    };
    match Status::from_number(u32::from_be_bytes(*status)) {
        Some(Status::Ok) => replays.keep(key, now, End::Success, results),
        Some(Status::Jukebox) | None => replays.forget(key),
        Some(_) => replays.keep(key, now, End::Failure, results),
    }
}

fn ended<E>(written: Result<(), E>, data: Pieces) -> Ended {
    match written {
        Ok(()) => Ended::Done(data),
        Err(_) => Ended::Failed(AcceptStat::SystemErr),
    }
}

/// Octets of the longest results that are kept: those of CREATE are the longest there are of a
/// procedure that is not idempotent.
pub const RESULTS_KEPT: usize = 4 + (4 + 4 + 64) + (4 + 84) + (4 + 24 + 4 + 84);

#[cfg(test)]
mod tests;
