//! Where Calls wait until one of their files is found, or until a change of it has ended.

use std::collections::{BTreeMap, VecDeque};

use haulage::shares::Shares;
use haulage_mr_pool::Local;

use crate::access::Caller;
use crate::backend::Ticket;
use crate::handle::FileId;
use crate::nfs3::Procedure;

/// The waiting Calls.
#[derive(Debug)]
pub(super) struct Parking {
    waiting: BTreeMap<FileId, VecDeque<Parked>>,
    /// Calls that wait until a directory has been read for another Call, by directory.
    listing: BTreeMap<FileId, VecDeque<Parked>>,
    /// Calls of which a name is looked up, or for which a directory is read.
    looking: BTreeMap<Ticket, Parked>,
    /// Calls that are ready to be resumed.
    ready: VecDeque<Parked>,
    calls: Shares,
    octets: Shares,
    /// Number of Calls that may still be resumed in this turn.
    resumes_left: usize,
}

/// A waiting Call.
#[derive(Debug)]
pub(super) struct Parked {
    pub(super) ticket: Ticket,
    /// The file that it waits for.
    pub(super) file: FileId,
    pub(super) procedure: Procedure,
    pub(super) arguments: Box<[u8]>,
    pub(super) placed: Option<Local>,
    /// Octets of results that the Reply has room for.
    pub(super) room: usize,
    pub(super) caller: Caller,
    /// Number of searches that the Call has waited for.
    pub(super) waits: usize,
}

impl Default for Parking {
    fn default() -> Self {
        Self {
            waiting: BTreeMap::new(),
            listing: BTreeMap::new(),
            looking: BTreeMap::new(),
            ready: VecDeque::new(),
            calls: Shares::new(CALLS_MAX),
            octets: Shares::new(OCTETS_MAX),
            resumes_left: 0,
        }
    }
}

impl Parking {
    /// Begins a turn. Returns whether Calls are to be resumed.
    pub(super) fn turn(&mut self) -> bool {
        self.resumes_left = RESUMES_PER_TURN;
        !self.ready.is_empty()
    }

    /// Returns whether Calls are to be resumed.
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Makes the Calls that wait for a file ready.
    pub(super) fn wake(&mut self, file: FileId) {
        self.ready.extend(self.waiting.remove(&file).into_iter().flatten());
    }

    /// Makes the first Call that waits for a file ready.
    pub(super) fn wake_first(&mut self, file: FileId) {
        let Some(waiting) = self.waiting.get_mut(&file) else { return };
        self.ready.extend(waiting.pop_front());
        if waiting.is_empty() {
            self.waiting.remove(&file);
        }
    }

    /// Returns whether Calls wait for a file.
    pub(super) fn is_awaited(&self, file: FileId) -> bool {
        self.waiting.contains_key(&file)
    }

    /// Returns the number of Calls that wait to list a directory.
    pub(super) fn listers(&self, dir: FileId) -> usize {
        self.listing.get(&dir).map_or(0, VecDeque::len)
    }

    /// Returns whether a Call waits for a file.
    pub(super) fn holds(&self, file: FileId, ticket: Ticket) -> bool {
        let waiting = self.waiting.get(&file);
        waiting.is_some_and(|waiting| waiting.iter().any(|parked| parked.ticket == ticket))
    }

    /// Has a Call wait once more: for the same file as before, before all that came behind it.
    pub(super) fn add_again(&mut self, wait: Wait, parked: Parked, before: FileId) {
        let (file, number) = (parked.file, parked.ticket.number);
        self.add(wait, parked);
        if wait != Wait::Change || file != before {
            return;
        }
        let Some(waiting) = self.waiting.get_mut(&file) else { return };
        let behind = waiting.iter().position(|other| other.ticket.number > number);
        if let Some(behind) = behind
            && let Some(parked) = waiting.pop_back()
        {
            waiting.insert(behind, parked);
        }
    }

    /// Makes the Call ready of which a name was looked up. Returns whether it waits.
    pub(super) fn wake_looking(&mut self, ticket: Ticket) -> bool {
        let parked = self.looking.remove(&ticket);
        let waits = parked.is_some();
        self.ready.extend(parked);
        waits
    }

    /// Has a Call wait.
    pub(super) fn add(&mut self, wait: Wait, parked: Parked) {
        let network = parked.ticket.network;
        self.calls.take(network, 1);
        self.octets.take(network, parked.octets());
        match wait {
            Wait::Name(ticket) => _ = self.looking.insert(ticket, parked),
            Wait::List => self.listing.entry(parked.file).or_default().push_back(parked),
            Wait::Search | Wait::Change | Wait::TooMany => {
                self.waiting.entry(parked.file).or_default().push_back(parked);
            }
        }
    }

    /// Makes the first Call ready that waits to list a directory.
    pub(super) fn wake_lister(&mut self, dir: FileId) {
        let Some(waiting) = self.listing.get_mut(&dir) else { return };
        self.ready.extend(waiting.pop_front());
        if waiting.is_empty() {
            self.listing.remove(&dir);
        }
    }

    /// Returns whether a directory is read for this Call, or will be after it was read for another one.
    pub(super) fn is_to_list(&self, dir: FileId, ticket: Ticket) -> bool {
        let last = self.listing.get(&dir).and_then(VecDeque::back);
        self.looking.contains_key(&ticket) || last.is_some_and(|last| last.ticket == ticket)
    }

    /// Takes the next Call that is to be resumed in this turn.
    pub(super) fn next(&mut self) -> Option<Parked> {
        self.resumes_left = self.resumes_left.checked_sub(1)?;
        let parked = self.ready.pop_front()?;
        // A Call that takes long is the last one of its turn.
        if is_costly(parked.procedure) {
            self.resumes_left = 0;
        }
        self.leave(&parked);
        Some(parked)
    }

    fn leave(&mut self, parked: &Parked) {
        let network = parked.ticket.network;
        self.calls.give_back(network, 1);
        self.octets.give_back(network, parked.octets());
    }

    /// Returns whether one more Call of a network may wait, with this many octets.
    pub(super) fn has_room(&self, network: u64, octets: usize) -> bool {
        self.calls.has_room(network, 1) && self.octets.has_room(network, octets)
    }

    /// Returns whether a Call waits.
    #[cfg(test)]
    pub(super) fn has_any(&self) -> bool {
        self.calls.held() > 0
    }

    /// Returns whether no Call waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        (self.calls.held(), self.octets.held()) == (0, 0)
            && self.waiting.is_empty()
            && self.listing.is_empty()
            && self.looking.is_empty()
            && self.ready.is_empty()
    }
}

impl Parked {
    /// Returns whether the Call may wait for one more search.
    pub(super) const fn may_search(&self) -> bool {
        self.waits < WAITS_MAX
    }

    fn octets(&self) -> usize {
        self.arguments.len() + self.placed.as_ref().map_or(0, Local::len)
    }
}

/// The reason why a Call waits for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// The file is searched for.
    Search,
    /// The file is changed, or names in it are looked up for other Calls.
    Change,
    /// A name of the Call with this ticket is looked up, or its directory is read for it.
    Name(Ticket),
    /// The directory is read for another Call.
    List,
    /// Too many other files are searched for.
    TooMany,
}

impl Wait {
    /// Returns whether the wait is for what was begun, and ends without another one like it.
    pub(super) const fn is_bounded(self) -> bool {
        matches!(self, Self::Change | Self::Name(_) | Self::List)
    }
}

/// Returns whether a Call may take long: it lists names.
pub(crate) const fn is_costly(procedure: Procedure) -> bool {
    matches!(procedure, Procedure::ReadDir | Procedure::ReadDirPlus)
}

/// Maximum number of waiting Calls: more than there are Receives.
const CALLS_MAX: usize = 4096;
/// Maximum octets of waiting arguments and placed data.
const OCTETS_MAX: usize = 8 << 20;
/// Maximum number of searches that a Call waits for. A Call names one or two files, and each may be renamed meanwhile.
const WAITS_MAX: usize = 4;
/// Maximum number of Calls resumed in one turn.
const RESUMES_PER_TURN: usize = 32;
