//! Entries that all cores of a group look up and change, without locks: each has a key, which stays, and a value.
//!
//! # Normal operation
//! An entry lies in a record, which does not change from the moment at which others find it. A word names the record, and a part of
//! the hash of its key. Eight words are a line of the cache: seven of them name records, and the eighth says how many
//! entries of this line, or of lines before it, lie behind it, since there was no room. A key has one word from its insertion to its removal;
//! another value for it is another record in the same word.
//!
//! Whoever replaces or removes an entry takes its record away, and frees it once every other core has passed a moment at which it reads
//! nothing (`turns.rs`). For [`Entries`] that moment is [`Entries::pass`]: what a core reads it borrows, and `pass` wants all of that
//! back. So nothing is counted, and reading writes nothing that another core reads.
//!
//! # Memory ownership
//! A record is in one place: in a word, in the list of free records of one core, in its list of those that it took away, or in the store of
//! spare ones. Its octets are a key and a value in the first case and in the third. Only who has it in the second case writes it.
//!
//! # Limits
//! All memory is allocated at the start, but for the list of what was taken away, which grows while a core stands still.

use std::cell::{Cell, UnsafeCell};
use std::collections::VecDeque;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use haulage_mr_pool::Local;

use super::shared::prefetch_value;
use super::turns::Turns;
use crate::sync::{AtomicU32, AtomicU64, Zero, flag, wait_a_moment, word, zeroes};

/// The entries, for one core of a group.
pub struct Entries<K, V> {
    shared: Arc<Shared<K, V>>,
    /// Whether this core is noted as one that reads.
    reads: Cell<bool>,
    own: Own,
}

/// What only its core has.
struct Own {
    core: usize,
    /// Whether there is no other core.
    is_alone: bool,
    /// Records that it keeps for values that replace others.
    kept: usize,
    /// Records that it takes from the spare ones, or gives to them, at a time.
    batch: usize,
    /// Records that are free for this core.
    free: Vec<u32>,
    /// Records that this core took away, with the number at which others no longer find them, in order.
    taken: VecDeque<(u64, Taken)>,
    /// How many of these, at the end, have no number yet.
    unnumbered: usize,
}

/// What the cores share.
struct Shared<K, V> {
    turns: Turns,
    lines: Box<[Line]>,
    records: Box<[Place<Entry<K, V>>]>,
    spare: Lock<Spare>,
}

/// A lock that a core takes for a batch of records.
#[expect(
    clippy::disallowed_types,
    reason = "a batch is some dozens, and who has too many does not wait for who has too few"
)]
type Lock<T> = std::sync::Mutex<T>;

/// Memory for a record.
type Place<T> = UnsafeCell<MaybeUninit<T>>;

// SAFETY: other threads get references to keys and values (`Sync`), and drop them (`Send`). All else is shared by atomics and
// locks, or as the ownership of records says.
unsafe impl<K: Send + Sync, V: Send + Sync> Sync for Shared<K, V> {}
// SAFETY: as above.
unsafe impl<K: Send + Sync, V: Send + Sync> Send for Shared<K, V> {}

/// Words for the entries with a home here, and for those that found no room in the lines before.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    words: [AtomicU64; WORDS],
    /// 1 while a core inserts an entry whose home this is.
    locked: AtomicU32,
    /// How many entries lie behind this line that would have been put here.
    passed: AtomicU32,
}

// SAFETY: atomics, of which zero is a value.
unsafe impl Zero for Line {}

impl Default for Line {
    fn default() -> Self {
        let (words, locked, passed) = (std::array::from_fn(|_| word(0)), flag(), flag());
        Self { words, locked, passed }
    }
}

/// A key, which is told from others by its octets.
///
/// # Safety
/// Nothing in a value changes while it is shared: [`Entries`] copies a key from record to record while others read it.
pub unsafe trait Key {
    /// Returns the octets.
    fn octets(&self) -> &[u8];
}

// SAFETY: a shared list of octets stays as it is.
unsafe impl Key for Vec<u8> {
    fn octets(&self) -> &[u8] {
        self
    }
}

// SAFETY: shared octets stay as they are.
unsafe impl<const N: usize> Key for [u8; N] {
    fn octets(&self) -> &[u8] {
        self
    }
}

/// No lease has no octets, as while a key is being moved.
// SAFETY: a lease has pointers, lengths and a place, which stay as they are while it is shared.
unsafe impl Key for Option<Local> {
    #[inline]
    fn octets(&self) -> &[u8] {
        self.as_ref().map_or(&[], Local::bytes)
    }
}

/// A key and its value, as a core reads them.
#[derive(Debug)]
pub struct Entry<K, V> {
    key: K,
    value: V,
}

impl<K, V> Entry<K, V> {
    /// Returns the key.
    #[inline]
    pub const fn key(&self) -> &K {
        &self.key
    }

    /// Returns the value.
    #[inline]
    pub const fn value(&self) -> &V {
        &self.value
    }
}

/// The sizes of a table.
pub(crate) struct Sizes {
    pub(crate) records: usize,
    pub(crate) lines: usize,
    /// Records that each core keeps for values that replace others.
    pub(crate) kept: usize,
    /// Records that a core takes from the spare ones at a time.
    pub(crate) batch: usize,
}

/// Records that no core has.
struct Spare {
    /// Those that were in use, and are free.
    again: Vec<u32>,
    /// The first that never was in use.
    fresh: u32,
    count: u32,
    /// What was taken away by cores that are gone.
    left: Vec<Taken>,
}

/// A record that nobody finds any more.
#[derive(Clone, Copy, Debug)]
struct Taken {
    record: u32,
    /// Whether its key is in another record by now.
    keeps_key: bool,
}

/// The word of an entry, as it was when the entry was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    mark: Mark,
    /// The number of lines before that of the word, from the home of the key on.
    passes: u32,
}

impl At {
    /// Returns the number of the word, which the entry has until it is removed.
    pub const fn place(self) -> u32 {
        self.mark.place
    }
}

/// The word of an entry, as it was when the entry was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    place: u32,
    word: u64,
}

/// What is put in the place of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other<K, V> {
    /// Another value.
    Value(V),
    /// Another key with the same octets, and another value.
    Both(K, V),
}

/// An entry that was found.
#[derive(Debug)]
pub struct Found<'a, K, V> {
    /// Where it is.
    pub at: At,
    /// The key and the value.
    pub entry: &'a Entry<K, V>,
}

/// An entry that was inserted, with the number of its word.
pub type Placed<'a, K, V> = (u32, &'a Entry<K, V>);

/// Why something was not stored, with what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unstored<T> {
    /// Another core was faster: look again.
    Changed(T),
    /// There is no record for it.
    Full(T),
}

impl<K: Key, V> Entries<K, V> {
    /// Heap octets for each entry, at most, beside those of [`octets_of_cores`](Self::octets_of_cores).
    pub const OCTETS_EACH: usize =
        size_of::<Entry<K, V>>() + size_of::<Line>().div_ceil(ENTRIES_PER_LINE) + size_of::<u32>();

    /// Returns the heap octets that `cores` take whatever they store.
    pub const fn octets_of_cores(cores: usize) -> usize {
        size_of::<Line>() + cores * held_back(cores) * Self::OCTETS_EACH
    }

    /// Makes a table for at least `most` entries, and returns what each of `cores` cores has of it.
    ///
    /// One core stores exactly as many. Several store some more, and each may find none free while others have some hundred.
    ///
    /// Returns `None` if there is no memory for it.
    pub fn all(cores: usize, most: u32) -> Option<Vec<Self>> {
        let records = (most as usize).saturating_add(cores * held_back(cores)).min(RECORDS_MAX);
        let (lines, kept) = (records / ENTRIES_PER_LINE + 1, if cores > 1 { KEPT } else { 1 });
        Self::sized(cores, Sizes { records, lines, kept, batch: BATCH })
    }

    /// Makes a table of these sizes.
    pub(crate) fn sized(
        cores: usize,
        Sizes { records, lines, kept, batch }: Sizes,
    ) -> Option<Vec<Self>> {
        let count = u32::try_from(records).unwrap_or(u32::MAX);
        let mut again = Vec::new();
        again.try_reserve_exact(records).ok()?;
        let shared = Arc::new(Shared {
            turns: Turns::new(cores),
            lines: zeroes(lines)?,
            records: uninit(records)?,
            spare: Lock::new(Spare { again, fresh: 0, count, left: Vec::new() }),
        });
        let one = |core| {
            let (free, taken) = (Vec::with_capacity(kept + 2 * batch), VecDeque::new());
            let is_alone = cores == 1;
            let own = Own { core, is_alone, kept, batch, free, taken, unnumbered: 0 };
            Self { shared: Arc::clone(&shared), reads: Cell::new(false), own }
        };
        Some((0..cores).map(one).collect())
    }

    /// Returns the number of places: [`At::place`] is less.
    pub fn places(&self) -> usize {
        self.shared.lines.len() * PLACES
    }

    /// Returns the entry with this hash whose key has these octets.
    #[inline]
    pub fn find(&self, hash: u64, octets: &[u8]) -> Option<Found<'_, K, V>> {
        self.read();
        let shared = &*self.shared;
        let tag = tag(hash);
        let (mut number, mut passes) = (shared.home(hash), 0);
        loop {
            let line = &shared.lines[number];
            for (slot, word) in line.words.iter().enumerate() {
                // Acquire: the record was written before.
                let word = word.load(Ordering::Acquire);
                if (word >> u32::BITS) == u64::from(tag)
                    && let Some(record) = record_of(word)
                {
                    // SAFETY: a word named the record while this core reads, and passing or resting wants `self`, which is
                    // borrowed.
                    let entry = unsafe { shared.record(record) };
                    if entry.key.octets() == octets {
                        let mark = Mark { place: place(number, slot), word };
                        return Some(Found { at: At { mark, passes }, entry });
                    }
                }
            }
            if line.passed.load(Ordering::Acquire) == 0 || passes as usize == shared.lines.len() {
                return None;
            }
            number = shared.behind(number);
            passes += 1;
        }
    }

    /// Returns the entry in a word, if there is one.
    pub fn look(&self, place: u32) -> Option<(Mark, &Entry<K, V>)> {
        self.read();
        let word = self.shared.word(place)?.load(Ordering::Acquire);
        let record = record_of(word)?;
        // SAFETY: a word named the record while this core reads, and passing or resting wants `self`, which is borrowed.
        Some((Mark { place, word }, unsafe { self.shared.record(record) }))
    }

    /// Has the processor fetch what a search for a hash reads first.
    #[inline]
    pub fn foresee(&self, hash: u64) {
        prefetch_value(&self.shared.lines[self.shared.home(hash)]);
    }

    /// Returns the first entry in its own line whose hash may be this one. What it has is not read.
    #[inline]
    pub fn guess(&self, hash: u64) -> Option<&Entry<K, V>> {
        self.read();
        let shared = &*self.shared;
        let words = shared.lines[shared.home(hash)].words.iter();
        // Acquire: the record was written before.
        let mut words = words.map(|word| word.load(Ordering::Acquire));
        let record = record_of(words.find(|word| (word >> u32::BITS) == u64::from(tag(hash)))?)?;
        // SAFETY: a word named the record while this core reads, and passing or resting wants `self`, which is borrowed.
        Some(unsafe { shared.record(record) })
    }

    /// Returns whether there is a record for another entry.
    pub fn has_room(&mut self) -> bool {
        let Self { shared, own, .. } = self;
        own.has_free(shared, own.kept)
    }

    /// Returns whether this core has taken away records that other cores may read still.
    pub fn is_awaiting(&self) -> bool {
        !self.own.taken.is_empty()
    }

    /// Puts another value in the place of the one that was found. Returns the entry, which others find from now on.
    ///
    /// # Errors
    /// The value comes back if the entry is not as it was found any more, or there is no record for it.
    #[inline]
    pub fn replace(&mut self, at: At, value: V) -> Result<&Entry<K, V>, Unstored<V>> {
        self.read();
        let Self { shared, own, .. } = self;
        let Mark { place, word: named_before } = at.mark;
        let (Some(word), Some(old)) = (shared.word(place), record_of(named_before)) else {
            return Err(Unstored::Changed(value));
        };
        let Some(new) = own.take_free(shared, 0) else { return Err(Unstored::Full(value)) };
        // Acquire: the record was written before.
        if word.load(Ordering::Acquire) != named_before {
            own.give_back(shared, new);
            return Err(Unstored::Changed(value));
        }
        // SAFETY: the word named the record just now, while this core reads, and passing wants `self`, which is borrowed.
        let Entry { key, .. } = unsafe { shared.record(old) };
        // SAFETY: a key may be copied as long as one copy is dropped, as nothing in it changes while both are read (`Key`). This
        // one becomes the key if the old record is taken away with its key kept, and is forgotten otherwise.
        let key = unsafe { ptr::read(key) };
        // SAFETY: the record is free, for this core alone.
        unsafe { shared.fill(new, Entry { key, value }) };
        if shared.rename(word, named_before, new) {
            // SAFETY: this core took it out of its word just now, and nothing is borrowed of what it has read.
            unsafe { own.take_away(shared, Taken { record: old, keeps_key: true }) };
            // SAFETY: the word named the record just now, while this core reads, and passing wants `self`, which is borrowed.
            return Ok(unsafe { shared.record(new) });
        }
        // SAFETY: nobody has found the record, which is filled.
        let Entry { key, value } = unsafe { shared.empty(new) };
        // It is the old record's.
        std::mem::forget(key);
        own.give_back(shared, new);
        Err(Unstored::Changed(value))
    }

    /// Puts another value, or another copy of the key and another value, in the place of an entry that was looked at, unless few
    /// records are free: those are left for new values.
    ///
    /// # Errors
    /// What was to be put there comes back if the entry is not as it was any more, or there is no record for it.
    pub fn exchange(&mut self, mark: Mark, with: Other<K, V>) -> Result<(), Unstored<Other<K, V>>> {
        if !self.own.has_free(&self.shared, self.own.kept.div_ceil(2)) {
            return Err(Unstored::Full(with));
        }
        let (key, value) = match with {
            Other::Value(value) => {
                let replaced = self.replace(At { mark, passes: 0 }, value).map(drop);
                return replaced.map_err(|unstored| match unstored {
                    Unstored::Changed(value) => Unstored::Changed(Other::Value(value)),
                    Unstored::Full(value) => Unstored::Full(Other::Value(value)),
                });
            }
            Other::Both(key, value) => (key, value),
        };
        self.read();
        let Self { shared, own, .. } = self;
        let (Some(word), Some(old)) = (shared.word(mark.place), record_of(mark.word)) else {
            return Err(Unstored::Changed(Other::Both(key, value)));
        };
        let Some(new) = own.take_free(shared, 0) else {
            return Err(Unstored::Full(Other::Both(key, value)));
        };
        // SAFETY: the record is free, for this core alone.
        unsafe { shared.fill(new, Entry { key, value }) };
        if shared.rename(word, mark.word, new) {
            // SAFETY: this core took it out of its word just now, and nothing is borrowed of what it has read.
            unsafe { own.take_away(shared, Taken { record: old, keeps_key: false }) };
            return Ok(());
        }
        // SAFETY: nobody has found the record, which is filled.
        let Entry { key, value } = unsafe { shared.empty(new) };
        own.give_back(shared, new);
        Err(Unstored::Changed(Other::Both(key, value)))
    }

    /// Inserts an entry, unless there is one with the same key, whose hash is this. Returns the number of its word, and the entry,
    /// which others find from now on.
    ///
    /// # Errors
    /// The key and the value come back if there is such an entry, or there is no record for them.
    pub fn insert(
        &mut self,
        hash: u64,
        key: K,
        value: V,
    ) -> Result<Placed<'_, K, V>, Unstored<(K, V)>> {
        self.read();
        let kept = self.own.kept;
        let Some(new) = self.own.take_free(&self.shared, kept) else {
            return Err(Unstored::Full((key, value)));
        };
        let home = self.shared.home(hash);
        // Whoever inserts an entry with the same key has the same home.
        self.shared.lines[home].lock();
        let inserted = if self.find(hash, key.octets()).is_some() {
            Err(Unstored::Changed((key, value)))
        } else {
            // SAFETY: the record is free, for this core alone.
            unsafe { self.shared.fill(new, Entry { key, value }) };
            let named = self.shared.name(home, word_of(u64::from(tag(hash)), new));
            named.ok_or_else(|| {
                // SAFETY: nobody has found the record, which is filled.
                let Entry { key, value } = unsafe { self.shared.empty(new) };
                Unstored::Full((key, value))
            })
        };
        self.shared.lines[home].unlock();
        if inserted.is_err() {
            self.own.give_back(&self.shared, new);
        }
        // SAFETY: the word named the record just now, while this core reads, and passing wants `self`, which is borrowed.
        inserted.map(|place| (place, unsafe { self.shared.record(new) }))
    }

    /// Removes the entry that was found. Returns false if it is not as it was found any more.
    pub fn remove(&mut self, at: At) -> bool {
        self.read();
        let Self { shared, own, .. } = self;
        let Mark { place, word: named } = at.mark;
        let (Some(word), Some(record)) = (shared.word(place), record_of(named)) else {
            return false;
        };
        if word.compare_exchange(named, 0, CHANGE, Ordering::Relaxed).is_err() {
            return false;
        }
        let mut number = place as usize / PLACES;
        for _ in 0..at.passes {
            number = number.checked_sub(1).unwrap_or(shared.lines.len() - 1);
            shared.lines[number].passed.fetch_sub(1, Ordering::Relaxed);
        }
        // SAFETY: this core took it out of its word just now, and nothing is borrowed of what it has read.
        unsafe { own.take_away(shared, Taken { record, keeps_key: false }) };
        true
    }

    /// Returns the key and the value in a word, to be changed in place, if there is only one core.
    pub fn alone_mut(&mut self, place: u32) -> Option<(&mut K, &mut V)> {
        if !self.own.is_alone {
            return None;
        }
        let record = record_of(self.shared.word(place)?.load(Ordering::Acquire))?;
        // SAFETY: a word names the record, so it is filled. There is no other core, and `self` is borrowed alone, so that nobody
        // has a reference to it.
        let Entry { key, value } = unsafe { &mut *self.shared.at(record) };
        Some((key, value))
    }

    /// Has this core be noted as one that reads.
    #[inline]
    fn read(&self) {
        if !self.reads.get() {
            self.begin_to_read();
        }
    }

    #[cold]
    fn begin_to_read(&self) {
        self.shared.turns.begin(self.own.core);
        self.reads.set(true);
    }
}

impl<K, V> Entries<K, V> {
    /// Says that this core reads nothing of what it has found so far. To be called once a turn. Frees some of what was taken
    /// away, if no other core reads it any more. Returns whether more is left.
    #[inline]
    pub fn pass(&mut self) -> bool {
        !self.own.is_alone && self.pass_all()
    }

    fn pass_all(&mut self) -> bool {
        let Self { shared, own, reads } = self;
        own.number(&shared.turns);
        if reads.get() {
            shared.turns.pass(own.core);
        }
        if own.taken.is_empty() {
            return false;
        }
        let passed = shared.turns.passed(own.core);
        // SAFETY: nothing is borrowed of what this core has read, and the others have passed the number.
        unsafe { own.free_some(shared, passed) };
        !own.taken.is_empty()
    }

    /// Says that this core reads nothing until it reads something again: others do not wait for it meanwhile. To be called
    /// before a core sleeps.
    pub fn rest(&mut self) {
        if self.own.is_alone {
            return;
        }
        self.pass();
        if self.reads.replace(false) {
            self.shared.turns.rest(self.own.core);
        }
    }
}

impl Own {
    /// Returns whether more than `kept` records are free.
    #[inline]
    fn has_free<K, V>(&mut self, shared: &Shared<K, V>, kept: usize) -> bool {
        if self.free.len() <= kept {
            self.stock(shared);
        }
        self.free.len() > kept
    }

    /// Takes a free record, unless only `kept` are free.
    #[inline]
    fn take_free<K, V>(&mut self, shared: &Shared<K, V>, kept: usize) -> Option<u32> {
        if self.has_free(shared, kept) { self.free.pop() } else { None }
    }

    /// Takes some of the spare records: as many as are wanted to have those that the core keeps, and a batch.
    #[cold]
    fn stock<K, V>(&mut self, shared: &Shared<K, V>) {
        let mut spare = shared.spare.lock().unwrap_or_else(PoisonError::into_inner);
        while self.free.len() < self.kept + self.batch
            && let Some(record) = spare.take()
        {
            self.free.push(record);
        }
    }

    /// Takes back a record that is free now.
    fn give_back<K, V>(&mut self, shared: &Shared<K, V>, record: u32) {
        self.free.push(record);
        if self.free.len() == self.kept + 2 * self.batch {
            let mut spare = shared.spare.lock().unwrap_or_else(PoisonError::into_inner);
            spare.again.extend(self.free.drain(..self.batch));
        }
    }

    /// Takes in a record that nobody finds any more.
    ///
    /// # Safety
    /// The core took it out of its word, and has no reference to it.
    #[inline]
    unsafe fn take_away<K, V>(&mut self, shared: &Shared<K, V>, taken: Taken) {
        if self.is_alone {
            // SAFETY: the only core does not read it.
            return unsafe { self.free(shared, taken) };
        }
        self.taken.push_back((0, taken));
        self.unnumbered += 1;
    }

    /// Gives what was taken away since this was last called a number.
    fn number(&mut self, turns: &Turns) {
        if self.unnumbered > 0 {
            let number = turns.raise();
            let from = self.taken.len() - self.unnumbered;
            self.taken.range_mut(from..).for_each(|(at, _)| *at = number);
            self.unnumbered = 0;
        }
    }

    /// Frees some of what was taken away at the number `passed`, or before.
    ///
    /// # Safety
    /// The core has no reference to any of it, and the other cores have passed the number.
    unsafe fn free_some<K, V>(&mut self, shared: &Shared<K, V>, passed: u64) {
        for _ in 0..FREED_PER_TURN {
            let next = self.taken.pop_front_if(|(number, _)| *number <= passed);
            let Some((_, taken)) = next else { break };
            // SAFETY: no core reads it: others that read now began after it was taken away.
            unsafe { self.free(shared, taken) };
        }
    }

    /// Drops what a record has, and has the record free.
    ///
    /// # Safety
    /// The core took it away, and no core has a reference to it.
    unsafe fn free<K, V>(&mut self, shared: &Shared<K, V>, taken: Taken) {
        // SAFETY: as the caller says.
        unsafe { shared.drop_taken(taken) };
        self.give_back(shared, taken.record);
    }
}

impl<K, V> Shared<K, V> {
    #[inline]
    fn word(&self, place: u32) -> Option<&AtomicU64> {
        let place = place as usize;
        self.lines.get(place / PLACES)?.words.get(place % PLACES)
    }

    /// Has a word name another record, which is filled, if it still is as it was. Returns whether it is.
    #[inline]
    fn rename(&self, word: &AtomicU64, before: u64, record: u32) -> bool {
        let named = word_of(before >> u32::BITS, record);
        word.compare_exchange(before, named, CHANGE, Ordering::Relaxed).is_ok()
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        let lines = self.lines.len() as u64;
        // The upper half, as a fraction of one.
        usize::try_from(((hash >> u32::BITS) * lines) >> u32::BITS).unwrap_or(0)
    }

    #[inline]
    fn behind(&self, line: usize) -> usize {
        if line + 1 == self.lines.len() { 0 } else { line + 1 }
    }

    /// Has the first free word from a home on name a record, and returns its number. Returns `None` if no word is free.
    fn name(&self, home: usize, named: u64) -> Option<u32> {
        let mut number = home;
        for _ in 0..self.lines.len() {
            let line = &self.lines[number];
            for (slot, word) in line.words.iter().enumerate() {
                if word.load(Ordering::Relaxed) == 0
                    && word.compare_exchange(0, named, CHANGE, Ordering::Relaxed).is_ok()
                {
                    return Some(place(number, slot));
                }
            }
            line.passed.fetch_add(1, Ordering::Relaxed);
            number = self.behind(number);
        }
        // All lines have counted it.
        self.lines.iter().for_each(|line| _ = line.passed.fetch_sub(1, Ordering::Relaxed));
        None
    }

    /// Returns where a record is.
    #[inline]
    fn at(&self, record: u32) -> *mut Entry<K, V> {
        self.records[record as usize].get().cast()
    }

    /// Returns what a record has.
    ///
    /// # Safety
    /// A word has named the record since the caller's core last began to read or passed, whichever was later, and the core
    /// does neither pass nor rest while the reference is in use.
    #[inline]
    unsafe fn record(&self, record: u32) -> &Entry<K, V> {
        // SAFETY: a word named the record: it was filled before, and nobody writes it until it is freed. Whoever took it away
        // frees it once the caller's core has passed or rests.
        unsafe { &*self.at(record) }
    }

    /// Fills a record.
    ///
    /// # Safety
    /// The record is free, for the caller alone.
    unsafe fn fill(&self, record: u32, with: Entry<K, V>) {
        // SAFETY: nobody else has it, and it has nothing that is to be dropped.
        unsafe { self.at(record).write(with) };
    }

    /// Takes out what a record has.
    ///
    /// # Safety
    /// The record is filled, and nobody but the caller has it.
    unsafe fn empty(&self, record: u32) -> Entry<K, V> {
        // SAFETY: it is filled, and whoever has it does not read it again.
        unsafe { self.at(record).read() }
    }

    /// Drops what a record has that was taken away.
    ///
    /// # Safety
    /// Nobody reads it any more, and it was not dropped before.
    unsafe fn drop_taken(&self, Taken { record, keeps_key }: Taken) {
        // SAFETY: it is filled, and nobody else has it.
        let Entry { key, value } = unsafe { &mut *self.at(record) };
        // SAFETY: it is dropped once, as the caller says.
        unsafe { ptr::drop_in_place(value) };
        if !keeps_key {
            // SAFETY: as above. Otherwise another record has the key.
            unsafe { ptr::drop_in_place(key) };
        }
    }
}

impl<K, V> Drop for Shared<K, V> {
    fn drop(&mut self) {
        let spare = self.spare.get_mut().unwrap_or_else(PoisonError::into_inner);
        for taken in std::mem::take(&mut spare.left) {
            // SAFETY: no core is left, and each of these was taken away once.
            unsafe { self.drop_taken(taken) };
        }
        for line in &self.lines {
            for word in &line.words {
                if let Some(record) = record_of(word.load(Ordering::Acquire)) {
                    // SAFETY: no core is left, and one word names the record.
                    unsafe { self.drop_taken(Taken { record, keeps_key: false }) };
                }
            }
        }
    }
}

impl<K, V> Drop for Entries<K, V> {
    fn drop(&mut self) {
        self.rest();
        let mut spare = self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.left.extend(self.own.taken.drain(..).map(|(_, taken)| taken));
    }
}

impl<K, V> fmt::Debug for Entries<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").field("core", &self.own.core).finish_non_exhaustive()
    }
}

impl Line {
    /// Has no other core insert an entry whose home this is.
    fn lock(&self) {
        // Acquire: what was inserted before is found.
        while self.locked.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            wait_a_moment();
        }
    }

    fn unlock(&self) {
        self.locked.store(0, Ordering::Release);
    }
}

impl Spare {
    fn take(&mut self) -> Option<u32> {
        self.again.pop().or_else(|| {
            let record = self.fresh;
            (record < self.count).then(|| self.fresh += 1)?;
            Some(record)
        })
    }
}

/// Makes memory for records, which takes none before it is used.
fn uninit<T>(count: usize) -> Option<Box<[Place<T>]>> {
    let mut records: Vec<Place<T>> = Vec::new();
    records.try_reserve_exact(count).ok()?;
    // SAFETY: there is room for as many, and a cell of what may be anything may be anything.
    unsafe { records.set_len(count) };
    Some(records.into_boxed_slice())
}

/// Returns how many records a core may have that no entry has.
const fn held_back(cores: usize) -> usize {
    if cores > 1 { KEPT + 2 * BATCH } else { 1 }
}

/// Returns the record that a word names.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
const fn record_of(word: u64) -> Option<u32> {
    // One more than its number, so that no record is zero.
    (word as u32).checked_sub(1)
}

/// Returns the word that names a record, with a tag.
#[inline]
const fn word_of(tag: u64, record: u32) -> u64 {
    tag << u32::BITS | (record as u64 + 1)
}

/// Returns what a word has of a hash: the half that does not say where its home is.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the lower half is wanted")]
const fn tag(hash: u64) -> u32 {
    hash as u32
}

/// Returns the number of a word.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "there are fewer words than 2^32")]
const fn place(line: usize, slot: usize) -> u32 {
    (line * PLACES + slot) as u32
}

/// The order of every change. Release: the new record was written before, and the lines before its own count it. Acquire: another
/// core may have written the record that goes. And in one order with sequentially consistent loads that follow: a core that
/// looks afterwards whether anybody waits for the change, and one that says first that it waits and passes a fence, do
/// not miss each other.
const CHANGE: Ordering = Ordering::SeqCst;
/// The words of a line that name records.
const WORDS: usize = 7;
/// The places of a line: a word each, and one for what it counts.
const PLACES: usize = WORDS + 1;
/// The entries of a line on average, if there are as many as there may be: so few find no room in their own.
const ENTRIES_PER_LINE: usize = 3;
/// The most records: they have fewer than 2^32 places.
const RECORDS_MAX: usize = 1 << 30;
/// Records that a core of several keeps for values that replace others.
const KEPT: usize = 1024;
/// Records that a core takes from the spare ones, or gives to them, at a time.
const BATCH: usize = 64;
/// The most records that a core frees in a turn.
const FREED_PER_TURN: usize = 64;

#[cfg(test)]
#[path = "entries/tests.rs"]
mod tests;
