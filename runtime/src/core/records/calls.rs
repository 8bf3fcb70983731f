//! Serves the Calls of connections over TCP, and queues their Replies.

use haulage_proto::negotiate::Version;
use haulage_proto::rpc::{AcceptStat, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Role;

use crate::core::common::Common;
use crate::core::inner::Inner;
use crate::core::program::Programs;
use crate::core::responder::{Body, ServedCall};
use crate::core::runs::{Answered, Asked, Carrier, Own, Runs, Sender, Taken};
use crate::core::serve::Acted;
use crate::core::service::Service;
use crate::core::streams::Standing;
use crate::core::streams::inflow::{Inflow, Next};
use crate::key::ConnectionKey;
use crate::limits::INLINE_SIZE;
use crate::service::Reply;

/// Whether a connection is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Go {
    /// In the next turn: more may be there.
    Again,
    /// Once the system tells that there is more.
    Told,
    /// Once it has fewer Calls in service, or less to send.
    Less,
    /// Once others have less memory for long records, or fewer Calls in service.
    Room,
}

/// What came of reading a connection.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// How much was done.
    pub(super) worked: usize,
    /// Why the connection has to end, if it has to.
    pub(super) ended: Option<&'static str>,
}

/// Reads a connection, and serves the Calls that have arrived whole.
pub(super) fn read<S: Service>(
    inner: &mut Inner,
    service: &mut S,
    reply: &mut Option<Reply>,
    now: Instant,
    key: ConnectionKey,
) -> Read {
    let Some(stream) = inner.common.streams.get_mut(key) else { return Read::default() };
    stream.begin_reading();
    let mut inflow = stream.take_inflow();
    let mut reading = Reading { inner, service, reply, now, key, worked: 0, calls: 0 };
    let gone_on = reading.go(&mut inflow);
    let mut read = Read { worked: reading.worked, ended: gone_on.err() };
    let streams = &mut inner.common.streams;
    let Some((stream, spare)) = streams.with_spare(key) else { return read };
    inflow.rest(spare);
    stream.restore(inflow, now);
    if stream.is_done() {
        read.ended.get_or_insert("the peer closed it");
    }
    if gone_on == Ok(Go::Less) {
        stream.hold();
    }
    let due = stream.due();
    match gone_on {
        Ok(Go::Again) => streams.be_readable(key),
        Ok(Go::Room) => streams.wait_for_room(key),
        Ok(Go::Told | Go::Less) | Err(_) => {}
    }
    due.into_iter().for_each(|due| inner.common.wake_by(due));
    read
}

/// How far records were taken.
#[derive(Clone, Copy, Debug)]
struct Passed {
    /// Records that are taken, or kept.
    records: usize,
    /// Whether the last of them is kept.
    is_kept: bool,
    /// Why no more were, if more are there.
    stop: Option<Stop>,
}

/// Why a Call is neither taken nor kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// There is no send buffer for its Reply now.
    NoBuffer,
    /// As many Calls are in service as there may be.
    Crowded,
    /// Its connection has too much under way.
    Held,
    /// Its connection has to end.
    Ends(&'static str),
}

/// The reading of one connection.
struct Reading<'a, S> {
    inner: &'a mut Inner,
    service: &'a mut S,
    reply: &'a mut Option<Reply>,
    now: Instant,
    key: ConnectionKey,
    worked: usize,
    /// Calls that were taken.
    calls: usize,
}

impl<S: Service> Reading<'_, S> {
    /// Serves and receives by turns, until it has served [`CALLS_MAX`] Calls.
    ///
    /// # Errors
    /// Why the connection has to end.
    fn go(&mut self, inflow: &mut Inflow) -> Result<Go, &'static str> {
        for _ in 0..READS_MAX {
            match self.serve_held(inflow)? {
                Go::Told => {}
                go => return Ok(go),
            }
            let Common { streams, arrivals, .. } = &mut self.inner.common;
            *arrivals += 1;
            match streams.receive(self.key, inflow, self.now) {
                Ok(Some(0)) | Err(_) => {
                    self.worked += 1;
                    return Ok(Go::Told);
                }
                Ok(Some(_)) => self.worked += 1,
                Ok(None) => return Ok(Go::Told),
            }
            if streams.get(self.key).is_some_and(|stream| stream.will_be_told(inflow)) {
                return self.serve_held(inflow);
            }
        }
        Ok(match self.serve_held(inflow)? {
            Go::Told => Go::Again,
            go => go,
        })
    }

    /// Serves the Calls that lie in `inflow`, as far as may be.
    fn serve_held(&mut self, inflow: &mut Inflow) -> Result<Go, &'static str> {
        loop {
            let Some(stream) = self.inner.common.streams.get(self.key) else { return Ok(Go::Less) };
            if !stream.may_be_read() {
                return Ok(Go::Less);
            }
            let record_max = stream.record_max();
            let stop = match inflow.next(record_max) {
                Next::More => return Ok(Go::Told),
                Next::Broken(why) => return Err(why),
                Next::Wants(octets) => {
                    if !self.inner.common.streams.take_memory(self.key, octets - inflow.held()) {
                        return Ok(Go::Room);
                    }
                    inflow.provide(octets);
                    continue;
                }
                Next::Records => {
                    let most = CALLS_MAX - self.calls;
                    let passed = self.take(inflow.records(record_max, most), 0);
                    inflow.pass(passed.records);
                    passed.stop
                }
                Next::Long(long) => {
                    let (held, copied) = (long.held(), long.octets().len());
                    let passed = self.take(std::iter::once(long.octets()), copied);
                    let streams = &mut self.inner.common.streams;
                    match passed {
                        // The copy takes the place of the record.
                        Passed { is_kept: true, .. } => streams.give_back(self.key, held - copied),
                        Passed { records: 0, .. } => inflow.put_back(long),
                        Passed { .. } => streams.give_back(self.key, held),
                    }
                    passed.stop
                }
            };
            match stop {
                None if self.calls >= CALLS_MAX => return Ok(Go::Again),
                None => {}
                Some(Stop::NoBuffer) => return Ok(Go::Again),
                Some(Stop::Crowded) => return Ok(Go::Room),
                Some(Stop::Held) => return Ok(Go::Less),
                Some(Stop::Ends(why)) => return Err(why),
            }
        }
    }

    /// Takes the Calls in records, up to the first one that lacks something. That one is kept, if it can wait in the table,
    /// with memory of `held` octets that the connection took for it.
    fn take<'r>(
        &mut self,
        mut records: impl ExactSizeIterator<Item = &'r [u8]> + Clone,
        held: usize,
    ) -> Passed {
        let Some(programs) = self.inner.responder.accepted.serves.clone() else {
            return Passed { records: 0, is_kept: false, stop: Some(Stop::Ends(STRANGER)) };
        };
        let calls = records.clone().map(Taken::whole);
        let Self { inner, service, reply, now, key, .. } = self;
        // As in version 1, every Call has a Reply.
        let (role, version) = (Role::Server, Version::One);
        let from = Sender { key: *key, role, version, unchunked_reply_max: INLINE_SIZE };
        let mut runs = Runs { inner, service: *service, now: *now, reply, is_in_place: false };
        let done = runs.take_calls(&from, &programs, calls, Records);
        let kept = records.nth(done).map(|record| self.keep(&programs, record, held));
        let is_kept = kept == Some(Ok(()));
        let stop = kept.and_then(Result::err);
        let records = done + usize::from(is_kept);
        self.worked += records;
        self.calls += records;
        Passed { records, is_kept, stop }
    }

    /// Keeps a Call that was not taken: it waits in the table for what it lacks.
    ///
    /// # Errors
    /// Why it cannot be kept.
    fn keep(&mut self, programs: &Programs, record: &[u8], held: usize) -> Result<(), Stop> {
        if !self.reply.as_ref().is_some_and(|making| making.message.owns_buffer()) {
            return Err(Stop::NoBuffer);
        }
        let Inner { responder, common, .. } = &mut *self.inner;
        if responder.calls.next_key().is_none() {
            return Err(Stop::Crowded);
        }
        admit(common, programs, self.key, record)?;
        common.streams.begin_call(self.key);
        responder.on_record(
            common,
            self.key,
            programs,
            Body::Record { octets: record.into(), held },
        );
        Ok(())
    }
}

/// The records of a connection over TCP, as a carrier of Calls.
struct Records;

impl Carrier for Records {
    const LENDS: bool = true;

    /// The connection.
    type Way = ConnectionKey;

    fn in_place_max(from: &Sender) -> usize {
        from.unchunked_reply_max
    }

    fn begin(_: &mut Common, from: &Sender, _: usize) -> ConnectionKey {
        from.key
    }

    fn provide(
        &mut self,
        common: &mut Common,
        from: &Sender,
        asked: &Asked<'_, '_>,
        reply: &mut Reply,
        own: &mut Own,
    ) -> Option<()> {
        let Asked { programs, payload, .. } = *asked;
        admit(common, programs, from.key, payload).ok()?;
        let octets = programs.result_over_tcp(payload);
        own.charge = common.promise_some(from.key, octets)?;
        common.streams.begin_call(from.key);
        reply.begin(from.unchunked_reply_max, None);
        Some(())
    }

    fn leave(
        &mut self,
        common: &mut Common,
        key: &mut ConnectionKey,
        answered: &Answered<'_>,
        reply: &mut Reply,
        own: &mut Own,
    ) -> bool {
        let header = match *answered.acted {
            Acted::Results(_) | Acted::Long => {
                ReplyHeader::accepted(answered.xid, AcceptStat::Success)
            }
            Acted::Verdict(header) => {
                reply.forget_results();
                header
            }
            _ => return false,
        };
        common.send_record(*key, &header, reply, std::mem::take(&mut own.charge));
        true
    }

    fn park(common: &mut Common, key: &mut ConnectionKey, call: ServedCall) -> ServedCall {
        common.streams.keep_call(*key, 0);
        call
    }

    fn end(_: &mut Common, _: &Sender, _: &ConnectionKey, _: u32) {}
}

/// Sees whether a peer may make another Call, which lies in `record`, and whether it may be in service.
///
/// # Errors
/// Why not.
fn admit(
    common: &Common,
    programs: &Programs,
    key: ConnectionKey,
    record: &[u8],
) -> Result<(), Stop> {
    let Some(stream) = common.streams.get(key) else { return Err(Stop::Held) };
    if !stream.may_be_read() {
        return Err(Stop::Held);
    }
    if !common.streams.take_calls(key) {
        return Err(Stop::Crowded);
    }
    if stream.standing() == Standing::Stranger && !programs.may_be_open_to_all(record) {
        return Err(Stop::Ends(STRANGER));
    }
    if stream.may_call() { Ok(()) } else { Err(Stop::Ends(TOO_MANY)) }
}

/// Calls of a connection that are taken in one turn, at most.
const CALLS_MAX: usize = 32;
/// How often a connection is read in one turn, at most.
const READS_MAX: usize = 4;
const STRANGER: &str = "the service does not admit the peer";
const TOO_MANY: &str =
    "the service does not admit the peer, which has made all the Calls that it may";
