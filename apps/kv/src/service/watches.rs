//! Clients that watch keys, and what they are still to be told.
//!
//! # Normal operation
//! A watch that was told everything, and whose Calls are answered, is idle: it is found by the first change of its keys
//! ([`Idle`]). From then on it reads the [`Log`], which all watches share, from a place of its own until it has told everything
//! again. So a change costs the same however many watches there are. In a turn those that may make a Call read on, a bounded
//! part of the log together, and tell what they find. A watch whose Call is under way is not looked at until that is
//! answered, unless the Call had no room for all there was to tell: then further Calls follow it.
//!
//! # Limits
//! If the log has more than [`KEPT_OCTETS_MAX`], the watches with the most to read end: their clients are told that the
//! rest is lost. So clients that do not answer take no more than that, however long they are connected. A connection
//! has one watch and at most [`CALLS_MAX`] Calls under way, however often it watches anew. The connections of one
//! origin have at most half of all watches, and of the Calls beyond one for each watch.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use haulage::core::Cx;
use haulage::service::{CallError, ConnectionId, InlineRoom, Request};
use haulage::shares::Shares;
use haulage_proto::xdr::Writer;

use self::idle::Idle;
use self::log::{Log, Place, Reader};
use crate::index::Seed;
use crate::protocol::watch::{CALLS_MAX, CHANGED, Heading, State, length_max};
use crate::protocol::{KEY_MAX, Refusal};

mod idle;
mod log;

/// The watches of a core.
#[derive(Debug)]
pub(super) struct Watches {
    /// The watches, by their numbers, which are the tokens of their Calls, too.
    list: BTreeMap<Reader, Watch>,
    next_number: Reader,
    idle: Idle,
    log: Log,
    /// The seed of the hashes by which the log finds keys.
    seed: Seed,
    /// What origins have of the watches, each with one Call.
    shares: Shares,
    /// What origins have of the further Calls.
    further: Shares,
    /// Watches that may make a Call and have something to read, each once.
    ready: VecDeque<Reader>,
    /// Watches without a Call under way that found no place for one, until another Call has ended.
    kept_waiting: VecDeque<Reader>,
    /// Calls under way, also those of watches that have ended.
    calls: usize,
    counts: Counts,
}

/// What became of changes to watched keys. A change that two clients watch counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changes told to clients.
    pub told: u64,
    /// Changes that are not told, since another one of the same key followed, as far as clients were told their number.
    pub merged: u64,
    /// Watches that ended for lack of room.
    pub ended: u64,
}

/// A client that watches the keys with a prefix.
#[derive(Debug)]
struct Watch {
    connection: ConnectionId,
    origin: u64,
    prefix: Rc<[u8]>,
    stage: Stage,
    /// Changes that were merged, for the next Call to tell.
    merged: u64,
    /// Calls under way.
    calls: usize,
}

/// What a watch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It has told everything, and no Call is under way.
    Idle,
    /// It has told what is before this place in the log.
    Reads(Place),
    /// It has ended for lack of room, which its client is to be told.
    Lost,
    /// Its client was told that it has ended.
    Over,
}

impl Watches {
    /// Makes an empty list of watches, whose log finds keys by hashes with this seed.
    pub(super) fn new(seed: Seed) -> Self {
        Self {
            list: BTreeMap::new(),
            next_number: 0,
            idle: Idle::default(),
            log: Log::default(),
            seed,
            shares: Shares::new(WATCHES_MAX),
            further: Shares::new(FURTHER_MAX),
            ready: VecDeque::new(),
            kept_waiting: VecDeque::new(),
            calls: 0,
            counts: Counts::default(),
        }
    }

    /// Has a connection of an origin be told of changes to keys with a prefix from now on, instead of the prefix that it
    /// had. Calls that tell it of earlier changes stay under way, and count as its own.
    pub(super) fn begin(
        &mut self,
        (connection, origin): (ConnectionId, u64),
        prefix: &[u8],
    ) -> Result<(), Refusal> {
        let number = match self.number_of(connection) {
            Some(number) => number,
            None if !self.shares.has_room(origin, 1) => {
                return Err(Refusal::Crowded { max: self.list.len() as u64 });
            }
            None => {
                self.shares.take(origin, 1);
                self.next_number += 1;
                self.next_number
            }
        };
        let calls = self.list.remove(&number).map_or(0, |former| {
            self.withdraw(number, &former);
            former.calls
        });
        let (prefix, merged) = (prefix.into(), 0);
        // With Calls under way, it may make another one as soon as one is answered.
        let stage = if calls == 0 { Stage::Idle } else { Stage::Reads(self.log.join(number)) };
        if stage == Stage::Idle {
            self.idle.insert(&prefix, number);
        }
        self.list.insert(number, Watch { connection, origin, prefix, stage, merged, calls });
        Ok(())
    }

    /// Ends the watch of a connection, if it has one.
    pub(super) fn end(&mut self, connection: ConnectionId) {
        if let Some(number) = self.number_of(connection) {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: Reader) {
        let Some(watch) = self.list.remove(&number) else { return };
        self.shares.give_back(watch.origin, 1);
        self.further.give_back(watch.origin, watch.calls.saturating_sub(1));
        self.withdraw(number, &watch);
    }

    /// Has nothing more become of a watch.
    fn withdraw(&mut self, number: Reader, watch: &Watch) {
        match watch.stage {
            Stage::Idle => self.idle.remove(&watch.prefix, number),
            Stage::Reads(place) => self.log.leave(place, number),
            Stage::Lost | Stage::Over => {}
        }
        self.ready.retain(|other| *other != number);
        self.kept_waiting.retain(|other| *other != number);
    }

    fn number_of(&self, connection: ConnectionId) -> Option<Reader> {
        let mut all = self.list.iter();
        all.find(|(_, watch)| watch.connection == connection).map(|(number, _)| *number)
    }

    /// Returns whether a connection has a watch.
    pub(super) fn is_of(&self, connection: ConnectionId) -> bool {
        self.number_of(connection).is_some()
    }

    /// Returns the number of watches.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    /// Takes in that a key has changed.
    #[inline]
    pub(super) fn changed(&mut self, key: &[u8], state: State) {
        if !self.list.is_empty() {
            self.keep(key, state);
        }
    }

    fn keep(&mut self, key: &[u8], state: State) {
        for number in self.idle.take(key) {
            if let Some(watch) = self.list.get_mut(&number) {
                watch.stage = Stage::Reads(self.log.join(number));
                self.ready.push_back(number);
            }
        }
        if !self.log.is_read() {
            return;
        }
        self.log.changed(self.seed.hash(key), key, state);
        while self.log.octets() > KEPT_OCTETS_MAX {
            for (place, number) in self.log.last_readers() {
                self.log.leave(place, number);
                self.counts.ended += 1;
                if let Some(watch) = self.list.get_mut(&number) {
                    watch.stage = Stage::Lost;
                }
            }
        }
    }

    /// Ends all watches, which have missed a change: their clients are told that the rest is lost.
    pub(super) fn lose_all(&mut self) {
        let Self { list, idle, log, ready, counts, .. } = self;
        for (number, watch) in list {
            match watch.stage {
                Stage::Idle => {
                    idle.remove(&watch.prefix, *number);
                    ready.push_back(*number);
                }
                Stage::Reads(place) => log.leave(place, *number),
                Stage::Lost | Stage::Over => continue,
            }
            watch.stage = Stage::Lost;
            counts.ended += 1;
        }
    }

    /// Has watches that may make a Call read on, and tell what they find. Returns whether anything was done.
    #[inline]
    pub(super) fn tell(&mut self, cx: &mut Cx<'_>) -> bool {
        !self.ready.is_empty() && self.tell_each(cx)
    }

    fn tell_each(&mut self, cx: &mut Cx<'_>) -> bool {
        let mut left = PLACES_PER_TURN;
        for _ in 0..self.ready.len() {
            if left == 0 {
                break;
            }
            let Some(number) = self.ready.pop_front() else { break };
            let Some(watch) = self.list.get_mut(&number) else { continue };
            let is_further = watch.calls > 0;
            // An answer to a Call that it has under way has it go on.
            if is_further && (watch.calls == CALLS_MAX || !self.further.has_room(watch.origin, 1)) {
                continue;
            }
            match watch.tell(cx, &mut self.log, number) {
                Ok(Told { places, is_call, changes, merged }) => {
                    left = left.saturating_sub(places.max(PLACES_LEAST));
                    self.further.take(watch.origin, usize::from(is_call && is_further));
                    self.calls += usize::from(is_call);
                    self.counts.told += changes;
                    self.counts.merged += merged;
                    let Stage::Reads(place) = watch.stage else { continue };
                    if place < self.log.end() {
                        self.ready.push_back(number);
                    } else if watch.calls == 0 {
                        self.log.leave(place, number);
                        self.idle.insert(&watch.prefix, number);
                        watch.stage = Stage::Idle;
                    }
                }
                Err(CallError::Busy) if is_further => {}
                // Other Calls are under way, of which one ends first.
                Err(CallError::Busy) if self.calls > 0 => self.kept_waiting.push_back(number),
                Err(CallError::Busy) => self.ready.push_back(number),
                Err(_) => self.remove(number),
            }
        }
        true
    }

    /// Takes in the end of a Call. A client that cannot be told of changes has no watch any more.
    pub(super) fn told(&mut self, number: Reader, is_answered: Result<(), CallError>) {
        self.calls -= 1;
        self.ready.append(&mut self.kept_waiting);
        let Some(watch) = self.list.get_mut(&number) else { return };
        if is_answered.is_err() || (watch.stage == Stage::Over && watch.calls == 1) {
            return self.remove(number);
        }
        watch.calls -= 1;
        self.further.give_back(watch.origin, usize::from(watch.calls > 0));
        if !self.ready.contains(&number) {
            self.ready.push_back(number);
        }
    }
}

/// What came of a watch's turn.
#[derive(Debug)]
struct Told {
    /// Number of places that were read.
    places: usize,
    /// Whether a Call was made.
    is_call: bool,
    changes: u64,
    merged: u64,
}

impl Watch {
    /// Reads on in the log. If it finds anything to tell, it makes a Call that tells as much as there is room for.
    fn tell(&mut self, cx: &mut Cx<'_>, log: &mut Log, number: Reader) -> Result<Told, CallError> {
        let room = cx.inline_room(self.connection).unwrap_or(InlineRoom::MIN);
        let mut room = room.arguments.saturating_sub(Heading::LENGTH);
        let (mut merged, mut changes, mut next) = (self.merged, Vec::new(), self.stage);
        let mut places = 0;
        match self.stage {
            Stage::Reads(from) => {
                for (place, met) in log.read(from).take(PLACES_PER_READ) {
                    if met.key.starts_with(&self.prefix) {
                        if let Some(state) = met.state {
                            let length = length_max(met.key.len());
                            let Some(rest) = room.checked_sub(length) else { break };
                            room = rest;
                            changes.push((met.key, state));
                        }
                        merged += met.merged;
                    }
                    next = Stage::Reads(place + 1);
                    places += 1;
                }
            }
            Stage::Lost => next = Stage::Over,
            Stage::Idle | Stage::Over => {}
        }
        let (count, is_over) = (changes.len(), self.stage == Stage::Lost);
        let is_call = count > 0 || is_over;
        if is_call {
            let heading = Heading { merged, is_over };
            let request = Request::new(CHANGED).within(PATIENCE);
            let encode = |w: &mut Writer<'_>| heading.encode(count, changes.into_iter(), w);
            cx.call(self.connection, request, number, encode).map_err(|(error, _)| error)?;
            self.calls += 1;
        }
        if let (Stage::Reads(from), Stage::Reads(to)) = (self.stage, next) {
            log.pass(number, from, to);
        }
        self.stage = next;
        let told = if is_call { merged } else { 0 };
        self.merged = merged - told;
        Ok(Told { places, is_call, changes: count as u64, merged: told })
    }
}

/// Maximum number of watches.
pub(super) const WATCHES_MAX: usize = 256;

/// Calls that all watches have under way at most: one each, and further ones.
#[expect(clippy::cast_possible_truncation, reason = "it is a few hundred")]
pub(super) const CALLS_OUT_MAX: u32 = (WATCHES_MAX + FURTHER_MAX) as u32;

/// Maximum number of Calls under way beyond the first one of each watch.
pub(super) const FURTHER_MAX: usize = 128;

/// Maximum octets of all changes that are kept: those of tens of thousands of keys.
pub(super) const KEPT_OCTETS_MAX: usize = 8 << 20;

/// Places in the log that watches read in a turn, beyond which no other one reads.
const PLACES_PER_TURN: usize = 1024;

/// Maximum number of places that one of them reads: as many as a Call has room for if keys are short.
const PLACES_PER_READ: usize = 256;

/// Number of places that are as much work as a Call.
const PLACES_LEAST: usize = 8;

/// Maximum time of a Call. A client does not answer while its user does not read: a watch, with the Calls that it has under
/// way, lasts as long as its connection.
const PATIENCE: Duration = Duration::MAX;

const _: () = assert!(
    Heading::LENGTH + length_max(KEY_MAX) <= InlineRoom::MIN.arguments,
    "every change has room in a Call"
);
