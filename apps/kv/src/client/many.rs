//! MGET and MPUT: several keys in one Call, and several Calls under way.
//!
//! # Memory ownership
//! A Call has a lease for each of its values that does not go in the message: fewer keys go in one Call while the core has no
//! memory for more. What a Call brought is passed on, and its leases are free again, before another one begins in its place.
//! Chunks are for the first keys of a Call, so that a short value before a long one has a chunk, too.

use std::collections::{HashMap, VecDeque};
use std::ops::{ControlFlow, Range};

use haulage::limits::{ITEM_MAX, SEGMENTS_MAX};
use haulage::pool::Local;
use haulage::proto::chunk::{Item, Kind};
use haulage::proto::rpc::AcceptStat;
use haulage::proto::xdr::Writer;
use haulage::remote::{CALLS_MAX, Failed, RemoteClient, RemoteReply};
use haulage::service::{CallError, Place};

use super::{Client, ClientError, Fetched};
use crate::protocol::many::{self, Found, KEYS_MAX, RESULTS_MAX};
use crate::protocol::{Key, Procedure, Refusal, Value, opaque_len};

impl Client<'_> {
    /// Fetches the values of `keys`, several in one Call. Passes what became of each key to `sink`, in order, until it
    /// breaks: its value, or [`ClientError::Refused`], or [`ClientError::Room`] if the core lacks the memory for the value.
    /// Where a value is expected to be long, the memory has at least `room` octets; a longer value is fetched again, alone.
    ///
    /// A server of a release without MGET is asked for one key at a time. No Call of the caller's own may be under way.
    ///
    /// # Errors
    /// A Call failed, or there is no memory at this end. `sink` knows of the keys before it.
    pub fn get_many(
        &mut self,
        keys: &[Key<'_>],
        room: usize,
        mut sink: impl FnMut(Result<Fetched, ClientError>) -> ControlFlow<()>,
    ) -> Result<(), ClientError> {
        let mut calls = Calls::default();
        let done = self.get_each(&mut calls, (keys, room), &mut sink);
        calls.end(self.remote);
        done
    }

    /// Stores each value under its key, several in one Call. Passes what became of each pair to `sink`, in order. If a key
    /// is among them twice, its last value stays.
    ///
    /// A server of a release without MPUT is sent one pair at a time. No Call of the caller's own may be under way.
    ///
    /// # Errors
    /// A Call failed, or there is no memory at this end. `sink` knows of the pairs before it.
    pub fn put_many(
        &mut self,
        pairs: &[(Key<'_>, &[u8])],
        mut sink: impl FnMut(Result<(), Refusal>),
    ) -> Result<(), ClientError> {
        let mut calls = Calls::default();
        let done = self.put_each(&mut calls, pairs, &mut sink);
        calls.end(self.remote);
        done
    }

    fn get_each(
        &mut self,
        calls: &mut Calls,
        (keys, room): (&[Key<'_>], usize),
        sink: &mut impl FnMut(Result<Fetched, ClientError>) -> ControlFlow<()>,
    ) -> Result<(), ClientError> {
        loop {
            while calls.may_begin(keys.len()) && self.begin_get(calls, (keys, room))? {}
            let Some((range, reply)) = calls.next(self.remote, keys.len())? else { return Ok(()) };
            let keys = keys.get(range).unwrap_or_default();
            let passed = match reply {
                Some(reply) => self.pass_values(reply, keys, sink)?,
                None => self.pass_alone((keys, room), sink)?,
            };
            if passed.is_break() {
                return Ok(());
            }
        }
    }

    /// Begins an MGET of the next keys. Returns whether there is memory for the value of one of them.
    fn begin_get(
        &mut self,
        calls: &mut Calls,
        (keys, room): (&[Key<'_>], usize),
    ) -> Result<bool, ClientError> {
        let keys = keys.get(calls.begun..).unwrap_or_default();
        let mut keys = keys.get(..keys.len().min(KEYS_MAX)).unwrap_or_default();
        let (mut request, mut leased) = (self.request(Procedure::MGet), 0);
        for (at, key) in keys.iter().take(self.chunks(keys)).enumerate() {
            let expected = self.lengths.expected(*key);
            if at > 0 && leased + expected.max(room) > ROOMS_AT_ONCE {
                keys = keys.get(..at).unwrap_or_default();
                break;
            }
            let lease = match self.lease(expected.max(room))? {
                // The server tells how much memory it really takes.
                None if expected > room => self.lease(room)?,
                lease => lease,
            };
            let Some(lease) = lease else {
                keys = keys.get(..at).unwrap_or_default();
                break;
            };
            leased += lease.len();
            request = request.room(lease);
        }
        if keys.is_empty() {
            return Ok(false);
        }
        let token = self.remote.begin(request, |w| many::encode_keys(keys, w));
        calls.begin(token, keys.len(), leased)
    }

    /// Returns how many of the first `keys` have a chunk: all up to the last one whose value is expected to have no room in
    /// the message, beside the others that are in it.
    fn chunks(&self, keys: &[Key<'_>]) -> usize {
        let room = self.remote.inline_room();
        let mut left = (room.results as u64).saturating_sub(RESULTS_MAX.into());
        let mut chunks = 0;
        for (key, at) in keys.iter().zip(1..) {
            let octets = (self.lengths.expected(*key) as u64).next_multiple_of(4);
            match left.checked_sub(octets) {
                Some(rest) if self.expects_chunk(*key).is_none() => left = rest,
                _ => chunks = at,
            }
        }
        chunks
    }

    /// Fetches the values of keys one by one, and passes them to `sink`.
    fn pass_alone(
        &mut self,
        (keys, room): (&[Key<'_>], usize),
        sink: &mut impl FnMut(Result<Fetched, ClientError>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ClientError> {
        for key in keys {
            if sink(alone(self.get(*key, room))?).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Passes the values that an MGET of `keys` brought to `sink`, and fetches those that were too long for their room.
    fn pass_values(
        &mut self,
        mut reply: RemoteReply,
        keys: &[Key<'_>],
        sink: &mut impl FnMut(Result<Fetched, ClientError>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, ClientError> {
        let mut rooms = reply.rooms.take().into_iter();
        let found = many::decode_found(reply.results(), keys.len())?;
        for (key, found) in keys.iter().zip(found) {
            let room = rooms.next();
            if let Some(length) = found.length() {
                self.lengths.remember(*key, usize::try_from(length).unwrap_or(usize::MAX));
            }
            let value = match found {
                Found::Value(Item::Reduced { length }) => Ok(super::placed(room, length)?),
                Found::Value(Item::Unreduced(octets)) => Ok(Fetched::Inline(octets.to_vec())),
                Found::TooLong { length } => {
                    drop(room);
                    self.get_long(*key, length)?
                }
                Found::Refused(refusal) => Err(refusal.into()),
            };
            if sink(value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        self.remote.recycle(reply);
        Ok(ControlFlow::Continue(()))
    }

    /// Fetches a value of which the server told the length.
    fn get_long(
        &mut self,
        key: Key<'_>,
        length: u64,
    ) -> Result<Result<Fetched, ClientError>, ClientError> {
        let needed = usize::try_from(length).ok();
        match needed.filter(|needed| *needed <= ITEM_MAX) {
            None => Ok(Err(ClientError::Room { needed })),
            Some(room) => match self.get(key, room.max(1)) {
                Err(ClientError::Call(CallError::NoMemory)) => {
                    Ok(Err(ClientError::Room { needed }))
                }
                value => alone(value),
            },
        }
    }

    fn put_each(
        &mut self,
        calls: &mut Calls,
        pairs: &[(Key<'_>, &[u8])],
        sink: &mut impl FnMut(Result<(), Refusal>),
    ) -> Result<(), ClientError> {
        let mut last = HashMap::with_capacity(pairs.len());
        let earlier = pairs.iter().zip(0..).map(|((key, _), at)| last.insert(key.bytes(), at));
        let earlier: Vec<_> = earlier.collect();
        loop {
            while calls.may_begin(pairs.len()) && self.begin_put(calls, pairs, &earlier)? {}
            let Some((range, reply)) = calls.next(self.remote, pairs.len())? else {
                return Ok(());
            };
            let pairs = pairs.get(range).unwrap_or_default();
            let stored = match reply {
                Some(reply) => {
                    let stored = many::decode_stored(reply.results(), pairs.len())?;
                    self.remote.recycle(reply);
                    stored.into_iter().map(Some).collect()
                }
                None => vec![None; pairs.len()],
            };
            for ((key, value), stored) in pairs.iter().zip(stored) {
                let stored = match stored {
                    // The memory may suffice for each value, though not for all at once.
                    Some(Err(Refusal::NoSpace)) if pairs.len() > 1 => None,
                    stored => stored,
                };
                sink(match stored {
                    Some(stored) => {
                        if stored.is_ok() {
                            self.lengths.remember(*key, value.len());
                        }
                        stored
                    }
                    None => match self.put(*key, value) {
                        Err(ClientError::Refused(refusal)) => Err(refusal),
                        stored => Ok(stored?),
                    },
                });
            }
        }
    }

    /// Begins an MPUT of the next pairs. Returns whether one of them can be sent now: the server may carry out the Calls
    /// that are under way in any order, so that none of them may have the same key. `earlier` says of each pair which one
    /// before it has its key.
    fn begin_put(
        &mut self,
        calls: &mut Calls,
        pairs: &[(Key<'_>, &[u8])],
        earlier: &[Option<usize>],
    ) -> Result<bool, ClientError> {
        let first = calls.first();
        let mut room = self.remote.inline_room();
        room.arguments = room.arguments.saturating_sub(COUNT);
        let (mut values, mut leases) = (Vec::with_capacity(KEYS_MAX), Vec::new());
        let (mut end, mut octets) = (calls.begun, 0);
        while values.len() < KEYS_MAX
            && let Some((key, value)) = pairs.get(end)
        {
            octets += value.len();
            let is_much = octets > OCTETS_AT_ONCE && !values.is_empty();
            let is_under_way = earlier.get(end).is_some_and(|at| at.is_some_and(|at| at >= first));
            if is_much || is_under_way {
                break;
            }
            let value = if self.lengths.stores_inline(*key, value.len(), room) {
                Value::Unreduced(value)
            } else {
                let Some(mut lease) = self.lease(value.len())? else { break };
                lease.bytes_mut().copy_from_slice(value);
                leases.push(lease);
                Value::Reduced { length: u32::try_from(value.len()).unwrap_or(u32::MAX) }
            };
            let taken = opaque_len(key.bytes().len()) + value.encoded_len();
            room.arguments = room.arguments.saturating_sub(taken);
            values.push((*key, value));
            end += 1;
        }
        if values.is_empty() {
            return Ok(false);
        }
        let offsets = many::length_offsets(values.iter().copied()).zip(&values);
        let reduced = offsets.filter(|(_, (_, value))| matches!(value, Value::Reduced { .. }));
        let leased = leases.iter().map(Local::len).sum();
        let request =
            reduced.zip(leases).fold(self.request(Procedure::MPut), |request, ((at, _), lease)| {
                request.argument_at(Place::At(Kind::Opaque, at), lease)
            });
        let encode = |w: &mut Writer<'_>| many::encode_pairs(values.iter().copied(), w);
        let token = self.remote.begin(request, encode);
        calls.begin(token, values.len(), leased)
    }

    /// Takes a lease, or returns `None` if the core has no memory for it now.
    fn lease(&mut self, length: usize) -> Result<Option<Local>, ClientError> {
        match self.remote.lease(length) {
            Ok(lease) => Ok(Some(lease)),
            Err(CallError::NoMemory) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Tells what concerns the key of a Call from what would concern any other key, too.
fn alone<T>(done: Result<T, ClientError>) -> Result<Result<T, ClientError>, ClientError> {
    match done {
        Err(error @ (ClientError::Refused(_) | ClientError::Room { .. })) => Ok(Err(error)),
        done => done.map(Ok),
    }
}

/// The Calls for several keys.
#[derive(Debug)]
struct Calls {
    /// Those whose outcome was not passed on, in the order of their keys.
    under_way: VecDeque<UnderWay>,
    /// Keys for which a Call was begun.
    begun: usize,
    /// Whether the server lacks the procedure, or does not take such Calls.
    is_lacking: bool,
    /// How many may be under way: at first [`CALLS_MOST`], then as many as the core had room for.
    most: usize,
}

impl Default for Calls {
    fn default() -> Self {
        Self { under_way: VecDeque::new(), begun: 0, is_lacking: false, most: CALLS_MOST as usize }
    }
}

#[derive(Debug)]
struct UnderWay {
    token: u64,
    keys: Range<usize>,
    leased: usize,
    outcome: Option<Result<RemoteReply, Failed>>,
}

impl UnderWay {
    /// Returns whether the core had no room for the Call.
    const fn was_refused_room(&self) -> bool {
        matches!(self.outcome, Some(Err(Failed { error: CallError::Busy, .. })))
    }
}

impl Calls {
    /// Adds a Call for the next `count` keys, with `leased` octets of leases. Returns whether the core took it: if not, there
    /// is room once another one has ended.
    fn begin(
        &mut self,
        token: Result<u64, Failed>,
        count: usize,
        leased: usize,
    ) -> Result<bool, ClientError> {
        match token {
            Ok(token) => {
                let keys = self.skip(count);
                self.under_way.push_back(UnderWay { token, keys, leased, outcome: None });
                Ok(true)
            }
            Err(Failed { error: CallError::Busy | CallError::NoMemory, .. })
                if !self.under_way.is_empty() =>
            {
                self.most = self.under_way.len();
                Ok(false)
            }
            Err(failed) => Err(CallError::from(failed).into()),
        }
    }

    /// Returns the next `count` keys, which need no other Call.
    const fn skip(&mut self, count: usize) -> Range<usize> {
        let first = self.begun;
        self.begun += count;
        first..self.begun
    }

    /// Waits for the Call of the first keys that were not passed on, and returns those keys and the Reply.
    ///
    /// The keys come without a Reply, and have to be asked for one by one, if the server lacks the procedure or does not take
    /// such Calls, if the core had no room for this Call, and, then one key alone, if no Call could be begun. Returns `None`
    /// when none of `all` keys is left.
    #[expect(clippy::type_complexity, reason = "the one caller takes it apart at once")]
    fn next(
        &mut self,
        remote: &mut RemoteClient,
        all: usize,
    ) -> Result<Option<(Range<usize>, Option<RemoteReply>)>, ClientError> {
        while self.under_way.front().is_some_and(|call| call.outcome.is_none()) {
            self.wait(remote)?;
        }
        let Some(UnderWay { keys, outcome, .. }) = self.under_way.pop_front() else {
            return Ok((self.begun < all).then(|| (self.skip(1), None)));
        };
        match outcome {
            // On version 1, a server that lacks the procedure says so only of Calls without a chunk.
            Some(Err(Failed {
                error: CallError::Rejected(AcceptStat::ProcUnavail) | CallError::Refused(_),
                ..
            })) => {
                self.is_lacking = true;
                Ok(Some((keys, None)))
            }
            Some(Err(Failed { error: CallError::Busy, .. })) => {
                // There is room once the others have ended.
                self.wait_for_all(remote)?;
                let were_made = self.under_way.iter().filter(|call| !call.was_refused_room());
                self.most = self.most.min(were_made.count()).max(1);
                Ok(Some((keys, None)))
            }
            Some(Err(failed)) => Err(CallError::from(failed).into()),
            Some(Ok(reply)) => Ok(Some((keys, Some(reply)))),
            None => Ok(None),
        }
    }

    /// Waits until the Calls under way have ended, whatever became of them.
    fn end(mut self, remote: &mut RemoteClient) {
        // An error says that the core is gone, or will never tell.
        let _ = self.wait_for_all(remote);
    }

    /// Waits for the end of all Calls under way.
    fn wait_for_all(&mut self, remote: &mut RemoteClient) -> Result<(), CallError> {
        while self.under_way.iter().any(|call| call.outcome.is_none()) {
            self.wait(remote)?;
        }
        Ok(())
    }

    /// Waits for the end of any of the Calls.
    fn wait(&mut self, remote: &mut RemoteClient) -> Result<(), CallError> {
        let (token, outcome) = remote.ended()?;
        if let Some(call) = self.under_way.iter_mut().find(|call| call.token == token) {
            call.outcome = Some(outcome);
        }
        Ok(())
    }

    /// Returns whether another Call may begin, for some of `all` keys.
    fn may_begin(&self, all: usize) -> bool {
        let leased: usize = self.under_way.iter().map(|call| call.leased).sum();
        let most = if leased < LEASED_MOST { self.most } else { self.most.min(CALLS_LEAST) };
        self.begun < all && self.under_way.len() < most && !self.is_lacking
    }

    /// Returns the first key whose outcome was not passed on.
    fn first(&self) -> usize {
        self.under_way.front().map_or(self.begun, |call| call.keys.start)
    }
}

/// Octets of the number of pairs in front of the arguments of an MPUT.
const COUNT: usize = 4;

/// The most Calls that an MGET or MPUT of many keys has under way, while the leases for their values have less than 1 MiB. With
/// fewer, the time in which the caller's thread and the core's wake each other is longer than the Calls take. A core with room
/// for fewer Calls is given fewer.
pub const CALLS_MOST: u32 = 32;

const _: () = assert!(CALLS_MOST as usize <= CALLS_MAX);

/// The most Calls under way while the leases for their values have 1 MiB or more: the server works on one as others travel.
const CALLS_LEAST: usize = 4;

/// Octets of leases with which no more than [`CALLS_LEAST`] Calls are under way: other clients share the core's memory.
const LEASED_MOST: usize = 1 << 20;

/// Octets of values in one MPUT, if there is more than one: longer values gain nothing from each other's company, and a
/// server has memory for all of a Call or for none.
const OCTETS_AT_ONCE: usize = 256 << 10;

/// Octets of the rooms for values in one MGET, if there is more than one: longer values gain nothing from each other's company,
/// and those of a Call share 16 segments, which have 1 MiB in version 1.
const ROOMS_AT_ONCE: usize = 8 << 20;

const _: () = assert!((ROOMS_AT_ONCE >> 20) + KEYS_MAX <= SEGMENTS_MAX);
