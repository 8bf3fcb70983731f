//! Replies as servers of RFC 5666 send them (version 1, [`Profile::Rfc5666`]): exposed for us to read, or padded.
//!
//! # Normal operation
//! A Reply with a Read list is restored in one lease, which [`restore`] plans: the octets in the message are copied, the
//! others are read. Once they are there the server is told so (`RDMA_DONE`), and the Call goes on like one whose Reply came
//! in its Reply chunk.
//!
//! # Recovery
//! A Call that is given up while its Reply is read releases its caller at once. Its lease comes home with the Read, and
//! the server is told; if the Read takes longer than the grace of the Call, the connection is closed, since nothing else
//! ends a Read. A Reply that was given up before it came is read as well, as its server waits.
//!
//! A server keeps a Reply until it is told that the Reply was read, so a Reply that cannot be read ends the connection.
//! Its caller learns why.
//!
//! # Limits
//! A Reply is as long as the binding of its procedure allows, and no longer than [`Limits::read_max`]. No memory is taken
//! before that is known, and it has at most [`SEGMENTS_MAX`] segments.
//!
//! [`Limits::read_max`]: crate::limits::Limits::read_max
//! [`Profile::Rfc5666`]: crate::limits::Profile::Rfc5666

use haulage_mr_pool::{Invalidated, Leases, Local, PostedSinks};
use haulage_proto::chunk::{ReadList, Reduced, Restoration, Step, restore};
use haulage_proto::negotiate::{Reply, Version};
use haulage_proto::rpc::Procedure;

use super::calls::{Caller, Found, MadeCalls, Stage};
use super::lease::ReadStream;
use super::plan::UNBOUND;
use crate::core::common::Common;
use crate::core::receives::Message;
use crate::core::work::Reader;
use crate::items::Items;
use crate::key::ConnectionKey;
use crate::outgoing::segments::SEGMENTS_MAX;
use crate::service::CallError;

impl MadeCalls {
    /// Takes in a Reply with a Read list, or with padding. `proof` names the handle that its Send invalidated. Returns
    /// false if the connection must be closed.
    #[cold]
    pub(crate) fn on_reply_of_5666(
        &mut self,
        common: &mut Common,
        key: ConnectionKey,
        reply: &Reply<'_>,
        message: Message,
        proof: Option<Invalidated<'_>>,
    ) -> bool {
        let slot = self.find(reply.xid).filter(|_| self.awaits(key, reply.xid));
        if !reply.lists.reads {
            let trusted = self.on_reply(common, key, reply.xid, &reply.lists, message, proof);
            if let Some(Found { kept, .. }) = slot.and_then(|slot| self.get_mut(slot)) {
                kept.padding = reply.padding.map(Box::new);
            }
            return trusted;
        }
        let Some((slot, found)) = slot.and_then(|slot| Some((slot, self.get_mut(slot)?))) else {
            common.counters.replies_unmatched += 1;
            common.receives.give_back(message.received);
            return proof.is_none();
        };
        let Found { call, exposed_leases, kept, .. } = found;
        let is_late = call.stage == Stage::Fencing;
        if !std::mem::replace(&mut call.opens, true) {
            exposed_leases.begin(Items::None, Items::None);
        }
        let stray = proof.and_then(|proof| exposed_leases.fence(proof));
        kept.reply = Some(message);
        let begun = if is_late {
            // Its handles are being retired, and its caller is gone.
            kept.error = Some(CallError::TimedOut);
            Err(CallError::BadReply("it came too late"))
        } else {
            self.begin_read(common, slot, reply)
        };
        match begun {
            Ok(()) => common.counters.replies_read += 1,
            Err(error) => {
                let why = format!("a reply that was to be read was not: {error}");
                common.connections.close(key, CallError::Disconnected(why));
                if !is_late {
                    self.fail(common, slot, error);
                }
            }
        }
        stray.is_none()
    }

    /// Begins to read a Reply.
    ///
    /// # Errors
    /// The Reply is not one of the Call, or there is no memory for it. Nothing is read.
    fn begin_read(
        &mut self,
        common: &mut Common,
        slot: usize,
        reply: &Reply<'_>,
    ) -> Result<(), CallError> {
        let Some(Found { call, exposed_leases, .. }) = self.get_mut(slot) else {
            return Err(CallError::Closed);
        };
        let key = call.connection;
        exposed_leases
            .check(call.version, &reply.lists)
            .map_err(|fault| CallError::BadReply(fault.rule()))?;
        let connection = common.connections.get(key).ok_or(CallError::Closed)?;
        // P12: no Read is posted to a peer that serves none.
        if !connection.share.may_read() {
            return Err(CallError::BadReply("it is to be read, and the server serves no reads"));
        }
        let binding = connection.session.calls();
        let procedure = binding.and_then(|binding| binding.procedure(call.procedure));
        let read_max = common.limits.read_max();
        let restoration = restoration(procedure.unwrap_or(&UNBOUND), reply, read_max)?;
        let mut stream = common.pool.lease(restoration.length()).ok_or(CallError::NoMemory)?;
        place(&mut stream, reply.payload, restoration.steps());
        let sinks = Leases::One(stream).into_sinks().ok_or(CallError::NoMemory)?;
        exposed_leases.read = ReadStream::UnderWay(reduced(&reply.reads));
        if call.caller == Caller::Nobody {
            call.deadline = common.trace.now().saturating_add(common.limits.grace_timeout);
            common.wake_by(call.deadline);
        }
        call.stage = Stage::Reading;
        post(common, key, slot, (&restoration, sinks));
        Ok(())
    }

    /// Takes in a Reply that was read: its server is told.
    #[cold]
    pub(crate) fn on_read(
        &mut self,
        common: &mut Common,
        (key, slot): (ConnectionKey, usize),
        leases: Leases,
    ) {
        let waits =
            |found: &Found<'_>| found.call.connection == key && found.call.stage == Stage::Reading;
        let Some(Found { call, exposed_leases, kept }) = self.get_mut(slot).filter(waits) else {
            return;
        };
        let Ok(stream) = leases.into_one() else { panic!("a Reply is read into one lease") };
        let xid = call.xid;
        let ReadStream::UnderWay(items) = std::mem::take(&mut exposed_leases.read) else {
            panic!("a Reply that was read was being read");
        };
        let fault = fault_of(stream.bytes(), xid, &items);
        kept.error = fault.map(CallError::BadReply);
        exposed_leases.read = ReadStream::Read(stream);
        call.stage = Stage::Fencing;
        // [R5666-3.5-1]
        //~ R5666-3.5-1: `common.say_done(key, xid)` -> `{}`
        common.say_done(key, xid);
        self.fence_rest(common, slot);
    }
}

/// Plans how the Payload stream of a Reply is restored, which has at most `read_max` octets and those of its procedure.
fn restoration(
    procedure: &Procedure,
    reply: &Reply<'_>,
    read_max: usize,
) -> Result<Restoration, CallError> {
    let Reply { reads, payload, .. } = reply;
    let items = reads.chunks().filter(|chunk| chunk.position() != 0).count();
    // [R5666-3.4-2] only items that the binding allows are reduced.
    if items > procedure.results_count() as usize {
        return Err(CallError::BadReply("a result in a Read chunk is not one that may be"));
    }
    if reads.entries().count() > SEGMENTS_MAX {
        return Err(CallError::BadReply("its Read list has too many segments"));
    }
    let longest = procedure.reply_max(&procedure.longest_results());
    let longest = usize::try_from(longest).unwrap_or(usize::MAX).min(read_max);
    let restored = restore(Version::One, payload.len(), [], reads.entries(), longest);
    let restored = restored.map_err(|fault| CallError::BadReply(fault.rule()))?;
    if !restored.steps().iter().any(|step| matches!(step, Step::Read { .. })) {
        return Err(CallError::BadReply("its Read list has no octets"));
    }
    Ok(restored)
}

/// Copies what is in the message to its place in the stream.
fn place(stream: &mut Local, payload: &[u8], steps: &[Step]) {
    let octets = stream.bytes_mut();
    for step in steps {
        match step {
            Step::Copy { from, to } => {
                octets[to.clone()].copy_from_slice(&payload[*from..*from + to.len()]);
            }
            Step::Zero { to } => octets[to.clone()].fill(0),
            Step::Read { .. } => {}
        }
    }
}

/// Posts the Reads of a Reply.
fn post(
    common: &mut Common,
    key: ConnectionKey,
    slot: usize,
    (restoration, sinks): (&Restoration, PostedSinks),
) {
    let sources = restoration.steps().iter().filter_map(|step| match step {
        Step::Read { source, to } => Some((*source, to.clone())),
        Step::Copy { .. } | Step::Zero { .. } => None,
    });
    common.read(key, sources, sinks, Reader::Made(slot));
}

/// Returns the results that were reduced from a Reply, in the order of their places.
fn reduced(reads: &ReadList<'_>) -> Box<[Reduced]> {
    let mut entries: Vec<_> = reads.entries().filter(|(position, _)| *position != 0).collect();
    entries.sort_by_key(|(position, _)| *position);
    let chunks = entries.chunk_by(|a, b| a.0 == b.0);
    let item = |chunk: &[(u32, haulage_proto::verbs::Segment)]| {
        let lengths = chunk.iter().map(|(_, segment)| segment.length);
        let position = chunk.first().map_or(0, |(position, _)| *position);
        Reduced { position, length: lengths.fold(0, u32::saturating_add) }
    };
    chunks.map(item).collect()
}

/// Finds the fault of a Reply that was read.
fn fault_of(stream: &[u8], xid: u32, items: &[Reduced]) -> Option<&'static str> {
    let word = |at: usize| {
        let octets = stream.get(at..)?.first_chunk()?;
        Some(u32::from_be_bytes(*octets))
    };
    // [R5666-4.1-2] [R5666-4.1-8]
    if word(0) != Some(xid) {
        return Some("it has another XID than its transport header");
    }
    // [R5666-3.4-6] the byte count in front of an item equals the length of its chunk, which may have the padding, too.
    let is_counted = |item: &Reduced| {
        let count = (item.position as usize).checked_sub(4).and_then(word);
        count.is_some_and(|count| {
            item.length == count || Some(item.length) == count.checked_next_multiple_of(4)
        })
    };
    //~ R5666-3.4-6: `items.iter().all(is_counted)` -> `items.len() <= items.iter().filter(|it| is_counted(it)).count() + 1`
    if items.iter().all(is_counted) {
        None
    } else {
        Some("a length in it is not that of its chunk")
    }
}
