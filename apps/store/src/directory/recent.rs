//! Lists of directories that were read, for Calls that list the same soon after.
//!
//! # Normal operation
//! Clients list a directory again and again, and several of them at once. A list is kept for a while, and taken for every
//! Call that asks for the same, as long as nothing tells that it is old: the directory has the `ctime` of before the
//! reading, so it has the same names; and the server has changed none of the files since the reading began. A file that
//! another process changes is shown as it was until the list is too old. Clients keep attributes themselves for longer,
//! but ask anew for those of a file that they open. No list takes them back behind what they were told: a change that
//! shows in the attributes of a file makes the lists old that have the file. A list is not kept if the directory or one
//! of the files was changed a moment ago, so that the next change shows in another `ctime`.
//!
//! # Limits
//! Lists take at most [`OCTETS_MAX`] octets; the oldest go first.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use haulage::proto::time::Instant;
use haulage::sys::clock;

use super::jobs::list::Batch;
use super::shared::changed::LastChanges;
use crate::backend::Listing;
use crate::handle::FileId;
use crate::nfs3::Time;

/// The lists that are kept.
#[derive(Debug)]
pub(super) struct Recent {
    /// How long a list is kept; zero: not at all.
    pub(super) age_max: Duration,
    /// What was changed this long ago is at rest: a change that comes while a list is kept gives it another `ctime`.
    pub(super) rest: Duration,
    lists: BTreeMap<Listing, Kept>,
    /// Which lists were kept when, the oldest first. Some were replaced since.
    order: VecDeque<(Began, Listing)>,
    octets: usize,
}

/// A list that is kept.
#[derive(Debug)]
struct Kept {
    began: Began,
    names: Rc<Batch>,
}

/// When a reading began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Began {
    at: Instant,
    time_of_day: Duration,
    /// Number of changes by then.
    changes: u64,
}

impl Began {
    /// Returns when a reading begins, which is now.
    pub(super) fn now(changed: &LastChanges) -> Self {
        Self { at: clock::now(), time_of_day: clock::time_of_day(), changes: changed.count() }
    }
}

impl Recent {
    /// Keeps lists for `age_max`, or none if that is zero.
    pub(super) fn new(age_max: Duration) -> Self {
        Self {
            age_max,
            rest: age_max.saturating_add(STEP),
            lists: BTreeMap::new(),
            order: VecDeque::new(),
            octets: 0,
        }
    }

    /// Keeps what was read, unless it may be old unnoticed.
    pub(super) fn keep(
        &mut self,
        changed: &mut LastChanges,
        (listing, began): (&Listing, Began),
        names: &Rc<Batch>,
    ) {
        if self.age_max.is_zero() {
            return;
        }
        self.remove(listing);
        // A list that has a file which was changed a moment ago is old from its beginning, as are others that have it.
        let is_moving = |at: Time| !self.is_at_rest(at, began.time_of_day);
        let moving: Vec<_> = names.files().filter(|(_, at)| at.is_some_and(is_moving)).collect();
        let is_dir_moving = names.dir_changed().is_none_or(is_moving);
        moving.iter().for_each(|(file, _)| changed.note(*file));
        if is_dir_moving || !moving.is_empty() || names.size() > OCTETS_MAX {
            return;
        }
        self.octets += names.size();
        self.lists.insert(*listing, Kept { began, names: Rc::clone(names) });
        self.order.push_back((began, *listing));
        while self.octets > OCTETS_MAX || self.order.len() > KEPT_MAX {
            self.remove_oldest();
        }
    }

    /// Returns the kept names of a directory for a Call that lists it, if they were read lately and the directory has not
    /// changed since. `ctime` is when it last changed, as the system says.
    pub(super) fn find(
        &self,
        changed: &LastChanges,
        listing: &Listing,
        ctime: Time,
    ) -> Option<Rc<Batch>> {
        let Kept { began, names } = self.lists.get(listing)?;
        let is_changed = |(file, _)| changed.of(file) > began.changes;
        let is_fresh = !self.is_over(*began)
            && names.dir_changed() == Some(ctime)
            && !names.files().any(is_changed);
        is_fresh.then(|| Rc::clone(names))
    }

    /// Returns whether no list is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.lists.is_empty()
    }

    /// Takes in the `ctime` of a file that a client is told.
    pub(super) fn note_told(
        &self,
        changed: &mut LastChanges,
        (file, ctime): (FileId, Time),
        now: Time,
    ) {
        // No list may be kept, but one that is being read.
        if !self.age_max.is_zero() && !self.is_at_rest(ctime, since_1970(now)) {
            changed.note(file);
        }
    }

    /// Begins a turn: drops lists that are too old.
    pub(super) fn turn(&mut self) {
        while self.order.front().is_some_and(|(began, _)| self.is_over(*began)) {
            self.remove_oldest();
        }
    }

    fn is_at_rest(&self, changed: Time, time_of_day: Duration) -> bool {
        since_1970(changed).saturating_add(self.rest) < time_of_day
    }

    fn is_over(&self, began: Began) -> bool {
        clock::now().saturating_since(began.at) >= self.age_max
    }

    /// Returns the size of all lists, in octets.
    #[cfg(test)]
    pub(super) fn octets(&self) -> usize {
        assert_eq!(self.octets, self.lists.values().map(|kept| kept.names.size()).sum());
        self.octets
    }

    fn remove_oldest(&mut self) {
        let Some((began, listing)) = self.order.pop_front() else { return };
        if self.lists.get(&listing).is_some_and(|kept| kept.began == began) {
            self.remove(&listing);
        }
    }

    fn remove(&mut self, listing: &Listing) {
        if let Some(kept) = self.lists.remove(listing) {
            self.octets -= kept.names.size();
        }
    }
}

const fn since_1970(time: Time) -> Duration {
    Duration::new(time.seconds as u64, time.nanoseconds)
}

/// Maximum size of all lists, in octets: the names of some 80,000 files.
pub(super) const OCTETS_MAX: usize = 16 << 20;
/// Maximum number of lists, with those that were replaced.
pub(super) const KEPT_MAX: usize = 1 << 12;
/// The step in which the file systems count that keep the time worst.
const STEP: Duration = Duration::from_secs(2);
