//! Clients that watch keys, and what they are still to be told.
//!
//! # Limits
//! What a client was not told is kept by key, in its last state. If all clients together have more of that than
//! [`KEPT_OCTETS_MAX`], the watch with the most ends: its client is told that the rest is lost. So a client that does not
//! answer takes no more than that, however long it is connected. A connection has one watch and at most one Call under way,
//! however often it watches anew, and the connections of one origin have at most half of all watches.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use haulage::core::Cx;
use haulage::service::{CallError, ConnectionId, Request};
use haulage::shares::Shares;

use crate::protocol::watch::{CHANGED, CHANGES_MAX, Heading, State, length_max};
use crate::protocol::{KEY_MAX, Refusal};

/// The watches of a core.
#[derive(Debug)]
pub(super) struct Watches {
    list: Vec<Watch>,
    /// What origins have of the watches.
    shares: Shares,
    /// Whether a watch may have something to tell, and no Call under way.
    is_due: bool,
    /// Whether a watch has something to tell once a Call has ended: as many are under way as may be.
    is_kept_waiting: bool,
    next_token: u64,
    counts: Counts,
}

/// What became of changes to watched keys. A change that two clients watch counts twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Changes told to clients.
    pub told: u64,
    /// Changes that are not told, since another one of the same key followed.
    pub merged: u64,
    /// Watches that ended for lack of room.
    pub ended: u64,
}

/// A client that watches the keys with a prefix.
#[derive(Debug)]
struct Watch {
    connection: ConnectionId,
    origin: u64,
    prefix: Box<[u8]>,
    /// The token of the Call under way.
    calling: Option<u64>,
    /// What is to be told of each key, and the order of the keys.
    states: BTreeMap<Rc<[u8]>, State>,
    order: VecDeque<Rc<[u8]>>,
    /// What else the next Call tells.
    heading: Heading,
    /// Octets of what is kept.
    kept: usize,
    /// Whether the Call under way is the last one.
    is_over: bool,
}

impl Default for Watches {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            shares: Shares::new(WATCHES_MAX),
            is_due: false,
            is_kept_waiting: false,
            next_token: 0,
            counts: Counts::default(),
        }
    }
}

impl Watches {
    /// Has a connection of an origin be told of changes to keys with a prefix from now on, instead of the prefix that it
    /// had. A Call that tells it of earlier changes stays under way, and is the only one until it is answered.
    pub(super) fn begin(
        &mut self,
        (connection, origin): (ConnectionId, u64),
        prefix: &[u8],
    ) -> Result<(), Refusal> {
        if let Some(watch) = self.list.iter_mut().find(|watch| watch.connection == connection) {
            watch.give_up();
            (watch.prefix, watch.heading) = (prefix.into(), Heading::default());
            watch.is_over = false;
            return Ok(());
        }
        if !self.shares.has_room(origin, 1) {
            return Err(Refusal::Crowded { max: self.list.len() as u64 });
        }
        self.shares.take(origin, 1);
        self.list.push(Watch {
            connection,
            origin,
            prefix: prefix.into(),
            calling: None,
            states: BTreeMap::new(),
            order: VecDeque::new(),
            heading: Heading::default(),
            kept: 0,
            is_over: false,
        });
        Ok(())
    }

    /// Ends the watch of a connection, if it has one.
    pub(super) fn end(&mut self, connection: ConnectionId) {
        if let Some(at) = self.list.iter().position(|watch| watch.connection == connection) {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let watch = self.list.swap_remove(at);
        self.shares.give_back(watch.origin, 1);
        // The Call that the watch had under way ends with it.
        self.is_due |= std::mem::take(&mut self.is_kept_waiting);
    }

    /// Returns whether a connection has a watch.
    pub(super) fn is_of(&self, connection: ConnectionId) -> bool {
        self.list.iter().any(|watch| watch.connection == connection)
    }

    /// Returns the number of watches.
    pub(super) const fn len(&self) -> usize {
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
        let mut shared = None;
        for watch in self.list.iter_mut().filter(|watch| watch.tells(key)) {
            if let Some(last) = watch.states.get_mut(key) {
                *last = state;
                watch.heading.merged += 1;
                self.counts.merged += 1;
            } else {
                watch.add(shared.get_or_insert_with(|| Rc::from(key)), state);
                self.is_due = true;
            }
        }
        while self.list.iter().map(|watch| watch.kept).sum::<usize>() > KEPT_OCTETS_MAX
            && let Some(most) = self.list.iter_mut().max_by_key(|watch| watch.kept)
        {
            most.give_up();
            self.counts.ended += 1;
        }
    }

    /// Tells each client that is not being told already. Returns whether any Call was made.
    #[inline]
    pub(super) fn tell(&mut self, cx: &mut Cx<'_>) -> bool {
        self.is_due && self.tell_each(cx)
    }

    fn tell_each(&mut self, cx: &mut Cx<'_>) -> bool {
        let Self { list, shares, is_due, is_kept_waiting, next_token, counts } = self;
        let mut has_told = false;
        *is_due = false;
        list.retain_mut(|watch| {
            if watch.calling.is_some() || watch.has_nothing_to_tell() {
                return true;
            }
            match watch.tell(cx, *next_token) {
                Ok(count) => {
                    counts.told += count;
                    *next_token += 1;
                    has_told = true;
                    true
                }
                // Other Calls are under way, of which one ends first.
                Err(CallError::Busy) => {
                    *is_kept_waiting = true;
                    true
                }
                Err(_) => {
                    shares.give_back(watch.origin, 1);
                    false
                }
            }
        });
        has_told
    }

    /// Takes in the end of a Call. A client that cannot be told of changes has no watch any more.
    pub(super) fn told(&mut self, token: u64, is_answered: Result<(), CallError>) {
        self.is_due |= std::mem::take(&mut self.is_kept_waiting);
        let Some(at) = self.list.iter().position(|watch| watch.calling == Some(token)) else {
            return;
        };
        match (is_answered, self.list.get_mut(at)) {
            (Ok(()), Some(watch)) if !watch.is_over => {
                watch.calling = None;
                self.is_due = true;
            }
            _ => self.remove(at),
        }
    }
}

impl Watch {
    fn tells(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix) && !self.heading.is_over && !self.is_over
    }

    fn has_nothing_to_tell(&self) -> bool {
        self.order.is_empty() && !self.heading.is_over
    }

    /// Keeps the state of a key of which nothing is kept.
    fn add(&mut self, key: &Rc<[u8]>, state: State) {
        self.states.insert(Rc::clone(key), state);
        self.order.push_back(Rc::clone(key));
        self.kept += octets(key);
    }

    /// Drops what is kept: the next Call is the last one.
    fn give_up(&mut self) {
        self.states.clear();
        self.order.clear();
        self.kept = 0;
        self.heading.is_over = true;
    }

    /// Makes a Call that tells as many changes as it has room for. Returns their number.
    fn tell(&mut self, cx: &mut Cx<'_>, token: u64) -> Result<u64, CallError> {
        let Self { states, order, heading, .. } = self;
        let ends = order.iter().scan(0, |end, key| {
            *end += length_max(key.len());
            Some(*end)
        });
        let count = ends.take_while(|end| *end <= CHANGES_MAX).count();
        let changes = order.iter().filter_map(|key| Some((&**key, *states.get(key)?)));
        let request = Request::new(CHANGED).within(PATIENCE);
        let called =
            cx.call(self.connection, request, token, |w| heading.encode(count, changes, w));
        called.map_err(|(error, _)| error)?;
        for key in order.drain(..count) {
            states.remove(&key);
            self.kept -= octets(&key);
        }
        (self.is_over, self.calling) = (self.heading.is_over, Some(token));
        self.heading = Heading::default();
        Ok(count as u64)
    }
}

/// Returns the octets of the heap that a change takes, about.
const fn octets(key: &[u8]) -> usize {
    key.len() + OVERHEAD
}

/// Maximum number of watches.
pub(super) const WATCHES_MAX: usize = 256;

/// Maximum octets of all changes that are kept: those of tens of thousands of keys.
pub(super) const KEPT_OCTETS_MAX: usize = 4 << 20;

/// Octets of a change besides its key: two references, the state, the counts of references, and free room.
const OVERHEAD: usize = 128;

/// Maximum time of a Call. A client does not answer while its user does not read: a watch, with the Call that it has under
/// way, lasts as long as its connection.
const PATIENCE: Duration = Duration::MAX;

const _: () = assert!(length_max(KEY_MAX) <= CHANGES_MAX, "every change has room in a Call");
