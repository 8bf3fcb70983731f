//! The server: keys and values in registered memory.
//!
//! # Memory ownership
//! A value is the lease into which the RDMA Read of its PUT placed the data, or several where no run of free pages was
//! long enough. A GET sends by RDMA Write from references to them, so that overwriting or deleting a key never disturbs
//! a GET in progress. Keys and values are moved together when a lease finds no room, so that all free memory is of use
//! whatever lengths there were before.

use std::ops::ControlFlow;

use haulage::core::{CoreNumber, Cx, Service};
use haulage::cores::entries::Key as _;
use haulage::pool::{Density, Leases, Local, Mover, Pool, Step};
use haulage::provider::Counters;
use haulage::service::{
    Argument, Arguments, Binding, Call, CallError, CallToken, ConnectionId, Eligible, Finished,
    Foreseen, Outcome, Peer, Procedure as Bound, Program, Refusal as NotFetched, Reply,
};
use haulage::sys::shared::prefetch_value;
use haulage_proto::rpc::AcceptStat;
use haulage_proto::xdr::{Reader, Truncated};

pub use self::answered::Answered;
use self::leases::{KeyLease, Value};
use self::others::{Others, What};
use self::waiting::{Given, Waiter, Waiting};
pub use self::watches::Counts;
use self::watches::Watches;
use crate::index::{self, Index, Seed, Stored};
use crate::protocol::encode_too_long;
use crate::protocol::many::{CHUNKS_MAX, RESULTS_MAX};
use crate::protocol::watch::{self, State};
use crate::protocol::{Answer, KEY_MAX, Key, PROGRAM, Procedure, Refusal, VERSION};

mod answered;
mod asked;
mod later;
mod leases;
mod many;
mod others;
mod waiting;
mod watches;

/// Returns the binding. Its DDP-eligible items are the values of the results of GET and MGET, and of the arguments of PUT
/// and MPUT.
pub fn binding(value_max: usize) -> Binding {
    let value = Eligible::opaque(value_max);
    let values = Eligible { count_max: CHUNKS_MAX, ..value };
    let procedures = vec![
        Bound::new("NULL").idempotent(),
        Bound::new("GET").result(value).idempotent(),
        Bound::new("PUT").argument(value).idempotent(),
        Bound::new("DEL"),
        Bound::new("STAT").idempotent(),
        Bound::new("FIGURES").idempotent(),
        Bound::new("KEYS").results_max(KEYS_RESULTS_MAX).idempotent(),
        Bound::new("MGET").result(values).results_max(RESULTS_MAX).idempotent(),
        Bound::new("MPUT").argument(values).results_max(RESULTS_MAX).idempotent(),
        Bound::new("WATCH").idempotent(),
    ];
    Binding { program: PROGRAM, version: VERSION, procedures }
}

/// The service, on one core. All cores of a server have the same keys and values.
#[derive(Debug)]
pub struct KvService {
    index: Index<KeyLease, Value>,
    mover: Mover,
    watches: Watches,
    answered: Answered,
    /// Octets of the values that this core stored, less those that it removed, modulo 2^64.
    value_bytes: u64,
    value_max: usize,
    memory: u64,
    /// The other cores, if there are any.
    others: Option<Others>,
    waiting: Waiting,
}

/// What one core of a server has of its keys and values, to be taken to the thread of that core.
#[derive(Debug)]
pub struct KvPart {
    index: Index<KeyLease, Value>,
    seed: Seed,
    value_max: usize,
    memory: u64,
    others: Option<Others>,
}

impl KvService {
    /// Octets of the index for each key of its capacity.
    pub const OCTETS_PER_KEY: usize = Index::<KeyLease, Value>::OCTETS_PER_KEY;

    /// Calls that the service may have under way, for [`Limits::calls_out_max`](haulage::limits::Limits::calls_out_max): those
    /// that tell clients of changes.
    pub const CALLS_OUT_MAX: u32 = watches::CALLS_OUT_MAX;

    /// Creates an empty service for at most `keys_max` keys. `memory` is the total that statistics report.
    ///
    /// # Panics
    /// If there is no memory for the index.
    pub fn new(keys_max: u32, seed: Seed, value_max: usize, memory: u64) -> Self {
        let index = Index::new(keys_max, &seed);
        Self::of(KvPart { index, seed, value_max, memory, others: None })
    }

    /// Creates an empty service for a server of `cores` cores, and returns the part of each, by its number. `memory` is the total that
    /// statistics report, of all cores together. Returns `None` if there is no memory for the index.
    pub fn parts(
        cores: usize,
        keys_max: u32,
        seed: &Seed,
        value_max: usize,
        memory: u64,
    ) -> Option<Vec<KvPart>> {
        let others: Vec<_> = match cores {
            1 => vec![None],
            _ => Others::all(cores).into_iter().map(Some).collect(),
        };
        let all = Index::all(cores, keys_max, seed)?.into_iter().zip(others);
        let part =
            |(index, others)| KvPart { index, seed: seed.clone(), value_max, memory, others };
        Some(all.map(part).collect())
    }

    /// Creates the service of one core.
    pub fn of(part: KvPart) -> Self {
        let KvPart { index, seed, value_max, memory, others } = part;
        let (mover, watches, answered) = (Mover::new(), Watches::new(seed), Answered::default());
        let (value_bytes, waiting) = Default::default();
        Self { index, mover, watches, answered, value_bytes, value_max, memory, others, waiting }
    }

    /// Returns the octets of keys and values that were moved since the start.
    pub const fn moved_bytes(&self) -> u64 {
        self.mover.moved().octets
    }

    /// Returns what became of changes to watched keys since the start.
    pub const fn watched(&self) -> Counts {
        self.watches.counts()
    }

    /// Returns what became of the keys in Calls since the start.
    pub const fn answered(&self) -> Answered {
        self.answered
    }

    /// Returns the number of keys, on all cores as of the end of their last turns.
    pub fn keys_count(&self) -> u64 {
        let own = self.index.balance().cast_unsigned();
        self.others.as_ref().map_or(own, |others| others.shown().0)
    }

    /// Returns the maximum number of keys.
    pub const fn keys_max(&self) -> u64 {
        self.index.capacity() as u64
    }

    /// Returns the octets of all values, on all cores as of the end of their last turns.
    pub fn value_bytes(&self) -> u64 {
        self.others.as_ref().map_or(self.value_bytes, |others| others.shown().1)
    }

    /// Returns the octets that all values may have, if the memory of all cores has so much room for others.
    pub fn value_bytes_max(&self, value_bytes: u64, usable_bytes: u64) -> u64 {
        // The pool has room for messages, too.
        value_bytes.saturating_add(usable_bytes).min(self.room())
    }

    /// Returns how much memory keys and values can take that this core tells of, in octets: free pages, and those that moving makes
    /// free. Of those that no core has the first one tells.
    pub fn usable_bytes(&self, cx: &Cx<'_>) -> u64 {
        let pool = cx.pool();
        let is_first = cx.core() == CoreNumber::FIRST;
        (if is_first { pool.room_bytes() } else { pool.own_room_bytes() }) as u64
    }

    /// Returns the octets of free pages that this core tells of. Of those that no core has the first one tells.
    fn unmoved_bytes(&self, cx: &Cx<'_>) -> u64 {
        let pool = cx.pool();
        let is_first = cx.core() == CoreNumber::FIRST;
        (if is_first { pool.free_bytes() } else { pool.own_free_bytes() }) as u64
    }

    /// Returns whether the server has no other core.
    pub const fn is_alone(&self) -> bool {
        self.others.is_none()
    }

    /// Returns the memory for values and index, in octets.
    pub const fn memory(&self) -> u64 {
        self.memory
    }

    /// Returns the number of clients that are told of changes.
    pub fn watches_count(&self) -> u64 {
        self.watches.len() as u64
    }

    /// Returns the maximum heap octets of an index for `keys_max` keys, shared by `cores` cores.
    pub const fn index_octets_max(cores: usize, keys_max: u32) -> usize {
        Index::<KeyLease, Value>::octets_max(cores, keys_max)
    }

    /// Returns the part of the memory that is not for the index, in octets.
    fn room(&self) -> u64 {
        let cores = self.others.as_ref().map_or(1, Others::cores);
        self.memory.saturating_sub(Self::index_octets_max(cores, self.index.capacity()) as u64)
    }

    /// Has the processor fetch what Calls with these keys read.
    fn fetch<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.index.foresee(keys, |value| {
            value.octets().and_then(<[u8]>::first).into_iter().for_each(prefetch_value);
        });
    }

    fn get(
        &mut self,
        cx: &Cx<'_>,
        arguments: &mut Arguments<'_>,
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        let key = key(arguments)?;
        let Some(value) = self.index.get(key) else { return Err(self.miss(key).into()) };
        let length = value.len();
        if reply.item_room().is_some() {
            let data = value.data(cx.pool()).ok_or(Refusal::NoSpace)?;
            self.answered.hits += 1;
            reply.results(|w| w.u32(OK));
            reply.item(data);
        } else if has_room(reply, length, 0) {
            put_inline(reply, cx.pool(), value)?;
            self.answered.hits += 1;
        } else {
            // The client expected a short value, and asks again.
            reply.results(|w| encode_too_long(length, w));
        }
        Ok(())
    }

    /// Says why no value is found under these octets, and counts that if they are a key.
    #[cold]
    fn miss(&mut self, bytes: &[u8]) -> Refusal {
        let why = no_value(bytes);
        self.answered.misses += u64::from(why == Refusal::NotFound);
        why
    }

    fn put(
        &mut self,
        cx: &mut Cx<'_>,
        token: CallToken,
        arguments: &mut Arguments<'_>,
        reply: &mut Reply,
    ) -> Result<Outcome, Stop> {
        let key = arguments.opaque(KEY_MAX)?;
        let value = self.take_value(arguments)??;
        end(arguments)?;
        match self.keep(cx, key, value) {
            Ok(()) => {
                reply.results(|w| w.u32(OK));
                Ok(Outcome::Done)
            }
            Err(Unkept::Refused(refusal)) => Err(refusal.into()),
            Err(Unkept::Lacks(value)) => {
                let mut waiter = Waiter::new(cx, (token, Procedure::Put), Vec::new());
                waiter.push(key, Ok(value));
                Ok(self.wait(waiter, reply))
            }
        }
    }

    /// Takes a value out of the arguments.
    fn take_value<'a>(
        &self,
        arguments: &mut Arguments<'a>,
    ) -> Result<Result<Given<'a>, Refusal>, Truncated> {
        let too_large = Err(Refusal::TooLarge { max: self.value_max as u64 });
        Ok(match arguments.item(usize::MAX)? {
            Argument::Placed(leases) => {
                Value::new(leases).map(Given::Value).ok_or(Refusal::NoSpace)
            }
            Argument::Unreduced([]) => Ok(Given::Value(Value::Empty)),
            Argument::Unreduced(bytes) if bytes.len() > self.value_max => too_large,
            Argument::Unreduced(bytes) => Ok(Given::Octets(bytes)),
            Argument::Refused { why: NotFetched::TooLarge, .. } => too_large,
            Argument::Refused { why: NotFetched::NoMemory | NotFetched::Busy, .. } => {
                Err(Refusal::NoSpace)
            }
        })
    }

    /// Keeps a value under a key, if it is one, in place of the value that was there.
    fn keep<'a>(
        &mut self,
        cx: &mut Cx<'_>,
        key: &[u8],
        value: Given<'a>,
    ) -> Result<(), Unkept<'a>> {
        let value = match value {
            Given::Value(value) => value,
            Given::Octets(bytes) => {
                let mut leases = self.leases(cx, bytes.len()).map_err(|lack| match lack {
                    Lack::Now => Unkept::Lacks(Given::Octets(bytes)),
                    Lack::Final => Unkept::Refused(Refusal::NoSpace),
                })?;
                leases.copy_from_slice(bytes);
                cx.count_unreduced(bytes.len() as u64);
                Value::new(leases).ok_or(Unkept::Refused(Refusal::NoSpace))?
            }
        };
        let added = value.len();
        let Stored { before } = self.store(cx, key, value)?;
        self.value_bytes = self.value_bytes.wrapping_add(added).wrapping_sub(before.unwrap_or(0));
        self.answered.stored += 1;
        self.changed(key, State::Set { length: added });
        Ok(())
    }

    /// Has watches hear of a key that was changed.
    #[inline]
    fn changed(&mut self, key: &[u8], state: State) {
        self.watches.changed(key, state);
        self.others.iter().for_each(|others| others.changed(key));
    }

    /// Stores a value, if there is room for its key. Only octets under which nothing is stored need to be told from a key.
    fn store<'a>(
        &mut self,
        cx: &Cx<'_>,
        key: &[u8],
        value: Value,
    ) -> Result<Stored<u64>, Unkept<'a>> {
        let filled = |lease: Option<Local>| {
            let mut lease = lease?;
            lease.bytes_mut().copy_from_slice(key);
            Some(Some(lease))
        };
        let at_once = |key: &[u8]| {
            Key::new(key).ok()?;
            filled(cx.pool().lease_as(key.len(), Density::Full))
        };
        let tag = |place, key: Option<&KeyLease>, value: &Value| {
            value.tag(place);
            if let Some(Some(key)) = key {
                key.tag(place);
            }
        };
        let unkept = match self.index.put(key, value, at_once, Value::len, tag) {
            Ok(stored) => return Ok(stored),
            Err(unkept) => unkept,
        };
        Key::new(key)?;
        let value = match unkept {
            index::Unkept::NoKey(value) => value,
            index::Unkept::Full(value) => return Err(self.full(value)),
        };
        let lease = match self.leases(cx, key.len()) {
            Ok(leases) => leases.into_one().ok(),
            Err(Lack::Now) => return Err(Unkept::Lacks(Given::Value(value))),
            Err(Lack::Final) => None,
        };
        let stored = self.index.put(key, value, |_| filled(lease), Value::len, tag);
        stored.map_err(|unkept| match unkept {
            index::Unkept::Full(value) => self.full(value),
            index::Unkept::NoKey(_) => Unkept::Refused(Refusal::NoSpace),
        })
    }

    /// Says what becomes of a value for whose key there is no room: there may be some once other cores have turned.
    #[cold]
    fn full<'a>(&self, value: Value) -> Unkept<'a> {
        if self.index.is_awaiting() {
            return Unkept::Lacks(Given::Value(value));
        }
        Unkept::Refused(Refusal::KeysFull { max: self.keys_max() })
    }

    /// Leases memory for what came in a message, and makes room for it if need be.
    fn leases(&mut self, cx: &Cx<'_>, length: usize) -> Result<Leases, Lack> {
        for step in 0..STEPS_PER_CALL {
            if let Some(leases) = cx.pool().leases(length, Density::Full) {
                return Ok(leases);
            }
            match self.make_more(cx, length) {
                Step::Full => break,
                // What was replaced may have been free by the first try. All else takes the turns of other cores.
                Step::More if step > 0 && !self.is_alone() => return Err(Lack::Now),
                Step::More | Step::Room => {}
            }
        }
        cx.pool().leases(length, Density::Any).ok_or(Lack::Final)
    }

    /// Does something to make room for a lease of `octets`.
    fn make_more(&mut self, cx: &Cx<'_>, octets: usize) -> Step {
        let passes = self.index.pass();
        let step = self.mover.step(cx.pool(), &mut self.index, octets);
        let others = self.others.as_mut();
        if step == Step::Full && (passes || others.is_some_and(|others| others.want(cx.now()))) {
            return Step::More;
        }
        step
    }

    fn del(&mut self, arguments: &mut Arguments<'_>, reply: &mut Reply) -> Result<(), Stop> {
        let key = key(arguments)?;
        let removed = self.index.remove(key, Value::len).ok_or_else(|| no_value(key))?;
        self.value_bytes = self.value_bytes.wrapping_sub(removed);
        self.answered.deleted += 1;
        self.changed(key, State::Deleted);
        reply.results(|w| w.u32(OK));
        Ok(())
    }

    fn watch(
        &mut self,
        cx: &Cx<'_>,
        connection: ConnectionId,
        arguments: &mut Arguments<'_>,
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        let prefix = arguments.opaque(KEY_MAX)?;
        end(arguments)?;
        // A connection that has ended is told nothing.
        let origin = cx.origin(connection).unwrap_or_default();
        self.watches.begin((connection, origin), prefix)?;
        let count = self.watches.len();
        self.others.iter_mut().for_each(|others| others.show_watches(count));
        reply.results(|w| w.u32(OK));
        Ok(())
    }

    fn keys(&self, arguments: &mut Arguments<'_>, reply: &mut Reply) -> Result<(), Stop> {
        let at = arguments.u32()?;
        end(arguments)?;
        reply.results(|w| w.u32(OK));
        let room = reply.room().saturating_sub(KEYS_END as usize);
        let mut room = room.min(KEYS_OCTETS as usize);
        let mut listed = 0;
        let next = self.index.visit(at, SLOTS_PER_CALL, |key| {
            let key = key.octets();
            let length = 4 + 4 + key.len().next_multiple_of(4);
            // The first key is listed whatever the room, so that a Requester without room for it is told of that.
            if listed > 0 && length > room {
                return ControlFlow::Break(());
            }
            listed += 1;
            room = room.saturating_sub(length);
            reply.results(|w| w.u32(1).and_then(|()| w.opaque(key)));
            ControlFlow::Continue(())
        });
        reply.results(|w| w.u32(0).and_then(|()| w.u32(next.unwrap_or(0))));
        Ok(())
    }
}

impl Service for KvService {
    fn programs(&self) -> Vec<Program> {
        let costly = [Procedure::Keys, Procedure::Stat].map(|procedure| procedure as u32);
        vec![Program::new(binding(self.value_max)).costly(costly)]
    }

    fn callbacks(&self) -> Option<Binding> {
        Some(watch::binding())
    }

    fn has_promised(&self, connection: ConnectionId) -> bool {
        self.watches.is_of(connection)
    }

    fn closed(&mut self, _: &mut Cx<'_>, peer: &Peer, _: &CallError) {
        self.watches.end(peer.connection);
    }

    fn replied(&mut self, _: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        self.watches.told(token, finished.results.map(drop));
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let worked = !self.is_alone() && self.index.pass() | self.hear(cx) | self.go_on(cx);
        self.watches.tell(cx) | worked
    }

    fn sleeps(&mut self) {
        self.index.rest();
    }

    fn makes_room(&self) -> bool {
        true
    }

    fn make_room(&mut self, cx: &mut Cx<'_>, octets: usize) -> bool {
        self.make_more(cx, octets) == Step::More
    }

    fn foresee<'a>(&mut self, calls: impl Iterator<Item = Foreseen<'a>>) {
        let keyed = [Procedure::Get, Procedure::Put, Procedure::Del].map(|one| one as u32);
        let keyed = calls.filter(|call| keyed.contains(&call.procedure));
        self.fetch(keyed.filter_map(|call| Reader::new(call.arguments).opaque(KEY_MAX).ok()));
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        let arguments = &mut call.arguments;
        let done = match Procedure::from_number(call.procedure) {
            Some(Procedure::Null) => end(arguments),
            Some(Procedure::Get) => self.get(cx, arguments, reply),
            Some(which @ (Procedure::Put | Procedure::MPut)) => {
                let stored = match which {
                    Procedure::Put => self.put(cx, call.token, arguments, reply),
                    _ => self.put_many(cx, call.token, arguments, reply),
                };
                match stored {
                    Ok(Outcome::Later) => return Outcome::Later,
                    stored => stored.map(drop),
                }
            }
            Some(Procedure::Del) => self.del(arguments, reply),
            Some(which @ (Procedure::Stat | Procedure::Figures)) => match end(arguments) {
                Ok(()) => {
                    let what = if which == Procedure::Stat { What::Stat } else { What::Figures };
                    return self.answer_for_all(cx, (what, call.token), reply);
                }
                stop => stop,
            },
            Some(Procedure::Keys) => self.keys(arguments, reply),
            Some(Procedure::MGet) => self.get_many(cx, arguments, reply),
            Some(Procedure::Watch) => self.watch(cx, call.connection, arguments, reply),
            None => return Outcome::Failed(AcceptStat::ProcUnavail),
        };
        match done {
            Ok(()) => Outcome::Done,
            Err(Stop::Garbage) => Outcome::Failed(AcceptStat::GarbageArgs),
            Err(Stop::Refused(refusal)) => {
                self.answered.refuse(&refusal);
                let answer = Answer::Refused(refusal);
                reply.results(|w| answer.encode(Procedure::Get, w));
                Outcome::Done
            }
        }
    }

    fn resume(&mut self, _: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        if let Some(told) = self.others.as_mut().and_then(|others| others.told(token)) {
            return self.tell(told, reply);
        }
        match self.waited(token) {
            Some(call) => self.answer_waiter(call, reply),
            None => Outcome::Later,
        }
    }
}

/// Returns the octets of data items that user space copied, at this end of the connection.
pub fn copied_user(moved: &Counters) -> u64 {
    moved.tagged_copied.saturating_sub(copied_system(moved))
}

/// Returns the octets of data items that the system copied between memory and sockets: each octet sent or received
/// counts once, if the provider uses sockets.
pub fn copied_system(moved: &Counters) -> u64 {
    (moved.tagged_sent + moved.tagged_received).min(moved.bytes_system)
}

/// Answers with a value for which there is no chunk, and which has room in the message.
#[inline]
fn put_inline(reply: &mut Reply, pool: &Pool, value: &Value) -> Result<(), Refusal> {
    match value.octets() {
        // The octets are at hand: counting another reference to them would touch more memory.
        Some(octets) => reply.results_and_item(|w| w.u32(OK), octets),
        None => {
            let data = value.data(pool).ok_or(Refusal::NoSpace)?;
            reply.results(|w| w.u32(OK));
            reply.item(data);
        }
    }
    Ok(())
}

/// Returns whether the message has room for a status, a value of `length` octets, and `rest` octets behind it.
fn has_room(reply: &Reply, length: u64, rest: u64) -> bool {
    4 + 4 + length.next_multiple_of(4) + rest <= reply.room() as u64
}

/// Decodes what may be a key, which must be all of the arguments.
fn key<'a>(arguments: &mut Arguments<'a>) -> Result<&'a [u8], Stop> {
    let bytes = arguments.opaque(KEY_MAX)?;
    end(arguments)?;
    Ok(bytes)
}

/// Says why no value is stored under these octets: only those that are no key need to be told from one, as a value is stored
/// under a key alone.
#[cold]
fn no_value(bytes: &[u8]) -> Refusal {
    Key::new(bytes).err().unwrap_or(Refusal::NotFound)
}

/// Checks that nothing is left of the arguments.
fn end(arguments: &Arguments<'_>) -> Result<(), Stop> {
    if arguments.is_empty() { Ok(()) } else { Err(Stop::Garbage) }
}

/// The reason that a Call was not executed.
#[derive(Debug)]
enum Stop {
    /// The arguments are malformed.
    Garbage,
    /// The program refuses the Call.
    Refused(Refusal),
}

/// The reason that a value was not stored.
#[derive(Debug)]
enum Unkept<'a> {
    Refused(Refusal),
    /// There may be memory for it later.
    Lacks(Given<'a>),
}

impl From<Refusal> for Unkept<'_> {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The reason that there is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lack {
    /// There is none now.
    Now,
    /// There is none, and none is to be expected.
    Final,
}

impl From<Truncated> for Stop {
    fn from(_: Truncated) -> Self {
        Self::Garbage
    }
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

const OK: u32 = 0;

const _: () = assert!(CHUNKS_MAX <= haulage::limits::CHUNKS_MAX, "every value may have a chunk");

/// Maximum octets of the encoded keys in one Reply: a few of the longest.
const KEYS_OCTETS: u32 = 2048;

const _: () = assert!(KEYS_OCTETS as usize > 2 * KEY_MAX);

/// Octets behind the encoded keys: the end of the list, and where to continue.
const KEYS_END: u32 = 4 + 4;

/// Maximum length of the results of KEYS, in octets: status, keys, and what is behind them.
const KEYS_RESULTS_MAX: u32 = 4 + KEYS_OCTETS + KEYS_END;

/// Maximum number of slots examined in one Call, most of which may be free.
const SLOTS_PER_CALL: usize = 4096;

/// Maximum number of steps to make room that one Call takes: each moves at most some 64 KiB. What came in a message is in
/// a slab of at most 7 pages: while a twentieth of the memory is free, as many pages are free in 140, which 9 steps move,
/// or more of very short values. After the last step a value takes a page of its own.
const STEPS_PER_CALL: usize = 16;

#[cfg(test)]
mod tests;
