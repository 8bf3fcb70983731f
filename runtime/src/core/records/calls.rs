//! Serves the Calls of connections over TCP, and queues their Replies.

use haulage_proto::negotiate::Version;
use haulage_proto::time::Instant;

use crate::core::common::Common;
use crate::core::cx::Cx;
use crate::core::inner::Inner;
use crate::core::memory::Charge;
use crate::core::program::{Header, Room, Unserved};
use crate::core::responder::{Body, ServedCall};
use crate::core::runs::with_buffer;
use crate::core::serve::{Acted, Whole, outcome, serve};
use crate::core::service::Service;
use crate::core::streams::Standing;
use crate::core::streams::inflow::{Inflow, Next};
use crate::key::{CallKey, ConnectionKey};
use crate::limits::INLINE_SIZE;
use crate::service::Reply;

/// What became of a record.
#[derive(Debug)]
enum Taken {
    /// The Call is answered, or it waits for the service, and its record is not needed any more.
    Done,
    /// The Call waits for its turn or for memory, with a copy of its record.
    Kept,
    /// There is no send buffer for it now.
    Waits,
    /// Others have as many Calls in service as there may be.
    Crowded,
    /// The connection has to end.
    Ends(&'static str),
}

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
    stream.unmark_readable();
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

/// The reading of one connection.
struct Reading<'a, S> {
    inner: &'a mut Inner,
    service: &'a mut S,
    reply: &'a mut Option<Reply>,
    now: Instant,
    key: ConnectionKey,
    worked: usize,
    /// Calls that were taken.
    calls: u32,
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
            let taken = match inflow.next(stream.record_max()) {
                Next::More => return Ok(Go::Told),
                Next::Broken(why) => return Err(why),
                Next::Wants(octets) => {
                    if !self.inner.common.streams.take_memory(self.key, octets - inflow.held()) {
                        return Ok(Go::Room);
                    }
                    inflow.provide(octets);
                    continue;
                }
                Next::Record(range) => {
                    let end = range.end;
                    let taken = self.call(inflow.octets(range), 0);
                    if let Taken::Done | Taken::Kept = taken {
                        inflow.pass(end);
                    }
                    taken
                }
                Next::Long(long) => {
                    let copied = long.octets().len();
                    let taken = self.call(long.octets(), copied);
                    let streams = &mut self.inner.common.streams;
                    match taken {
                        Taken::Waits | Taken::Crowded => inflow.put_back(long),
                        // The copy takes the place of the record.
                        Taken::Kept => streams.give_back(self.key, long.held() - copied),
                        Taken::Done | Taken::Ends(_) => streams.give_back(self.key, long.held()),
                    }
                    taken
                }
            };
            match taken {
                Taken::Done | Taken::Kept => {
                    self.worked += 1;
                    self.calls += 1;
                    if self.calls == CALLS_MAX {
                        return Ok(Go::Again);
                    }
                }
                Taken::Waits => return Ok(Go::Again),
                Taken::Crowded => return Ok(Go::Room),
                Taken::Ends(why) => return Err(why),
            }
        }
    }

    /// Serves the Call in a record. If the Call is kept, so is the memory of `held` octets that the connection took for it.
    fn call(&mut self, record: &[u8], held: usize) -> Taken {
        let Self { inner, service, reply, now, key, .. } = self;
        let Inner { responder, common, .. } = &mut **inner;
        let Some(programs) = responder.accepted.serves.clone() else {
            return Taken::Ends("it serves nothing");
        };
        let Some(xid) = record.first_chunk().map(|octets| u32::from_be_bytes(*octets)) else {
            return Taken::Ends("its record is no Call");
        };
        let Some(making) = with_buffer(common, *key, reply) else { return Taken::Waits };
        making.begin(INLINE_SIZE, None);
        let Some(stream) = common.streams.get(*key) else { return Taken::Done };
        let standing = stream.standing();
        let (asked, header) = match programs.read_header(xid, record) {
            Ok(asked) => asked,
            Err(unserved) => return self.answer_unserved(unserved),
        };
        let served = programs.of(header);
        if standing == Standing::Stranger && !served.is_open_to_all() {
            return Taken::Ends("the service does not admit the peer");
        }
        let room = served.room_over_tcp(header.procedure, record.get(header.arguments_at..));
        let name = responder.calls.next_key().filter(|_| common.streams.take_calls(*key));
        let Some(name) = name else { return Taken::Crowded };
        if common.streams.get_mut(*key).is_some_and(|stream| !stream.begin_call()) {
            return Taken::Ends(TOO_MANY);
        }
        common.streams.counters.calls += 1;
        let waits = served.is_costly(header.procedure) || room.body > 0;
        let promised = if waits { None } else { common.promise_some(*key, room.result) };
        let Some(charge) = promised else {
            let call = ServedCall::with(*key, xid, None).in_record(header, room);
            common.streams.keep_call(*key, room.body);
            responder.keep(common, call, Body::Record { octets: record.into(), held });
            return Taken::Kept;
        };
        let whole = Whole {
            programs: &programs,
            connection: *key,
            version: Version::One,
            xid,
            name,
            header,
            credential: asked.credential,
            payload: record,
            placed: None,
            others: &mut [],
        };
        let acted = serve(&mut Cx::new(*now, inner), *service, whole, making);
        inner.responder.running = None;
        let charge = inner.responder.with_leased(charge);
        self.settle((name, xid), header, charge, acted);
        Taken::Done
    }

    /// Answers a Call that no program serves.
    #[cold]
    fn answer_unserved(&mut self, unserved: Unserved) -> Taken {
        let Common { streams, .. } = &mut self.inner.common;
        let Unserved::Verdict(header) = unserved.in_version(Version::One) else {
            return Taken::Ends("its record is no Call");
        };
        if streams.get_mut(self.key).is_some_and(|stream| !stream.begin_call()) {
            return Taken::Ends(TOO_MANY);
        }
        streams.counters.calls += 1;
        if let Some(making) = self.reply {
            // Some verdicts are shorter than the header of results.
            making.forget_results();
            self.inner.common.send_record(self.key, &header, making, Charge::default());
        }
        Taken::Done
    }

    /// Sends the Reply to the Call that the service acted on, or enters the Call in the table under the `name` that it was
    /// promised.
    #[inline(always)]
    fn settle(
        &mut self,
        (name, xid): (CallKey, u32),
        header: Header,
        charge: Charge,
        acted: Acted,
    ) {
        let Inner { responder, common, .. } = &mut *self.inner;
        let Some(making) = self.reply else { panic!("the Call was served with a Reply at hand") };
        let Acted::Later(deferred) = acted else {
            common.counters.calls_served += 1;
            match outcome(acted, xid, making) {
                Some(header) => common.send_record(self.key, &header, making, charge),
                None => common.discharge(self.key, charge),
            }
            return;
        };
        // The next Call is answered in the same Reply.
        making.forget_results();
        let (header, is_resumed) =
            deferred.map_or((header, false), |deferred| (deferred.header, deferred.is_resumed));
        let call = ServedCall::with(self.key, xid, None).charged(charge);
        let inserted = responder.insert(call.in_record(header, Room::default()));
        assert!(inserted == name, "nothing else entered meanwhile");
        common.streams.keep_call(self.key, 0);
        if is_resumed {
            responder.resume(common, name);
        }
    }
}

/// Calls of a connection that are taken in one turn, at most.
const CALLS_MAX: u32 = 32;
/// How often a connection is read in one turn, at most.
const READS_MAX: usize = 4;
const TOO_MANY: &str =
    "the service does not admit the peer, which has made all the Calls that it may";
