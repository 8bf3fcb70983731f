//! The ways to files that are not open, which wait for a turn, a helper, or for each other.
//!
//! # Limits
//! At most [`DESCENTS_MAX`] descents wait, [`BEHIND_MAX`] of them to look up a name of the same directory. At most
//! [`HANDLES_MAX`] helpers open files by handle. While they do, other files are searched for, so that files which the
//! system takes long to remove keep nobody from finding what is elsewhere. At most [`LOOK_UPS_MAX`] helpers look up names
//! of one directory, for Calls and on the way to files together.

use std::collections::{BTreeMap, VecDeque};

use rustix::io::Errno;

use super::super::helpers::Cost;
use super::super::jobs::steps::{Step, Stepped};
use super::descent::{Descent, LEVELS_MAX, Lock, Otherwise, Reached};
use super::files::Files;
use super::sought::Sought;
use crate::backend::Located;
use crate::handle::FileId;

/// The descents under way, and the files that are searched for if they lead nowhere.
#[derive(Debug, Default)]
pub(super) struct Ways {
    pub(super) sought: Sought,
    /// The descents that go on in the next turn.
    ready: VecDeque<Box<Descent>>,
    /// The descents of which a helper takes a step, by the file at their end, with what the step may wait for.
    under_way: BTreeMap<FileId, (Box<Descent>, Lock)>,
    /// The descents that wait until fewer names are looked up in a directory.
    behind: BTreeMap<FileId, VecDeque<Box<Descent>>>,
    /// The descents that settle what a search left open, and wait until fewer files are opened by handle.
    unsettled: VecDeque<Box<Descent>>,
    /// Number of names that helpers look up in each directory.
    looking: BTreeMap<FileId, usize>,
    /// Directories in which names were looked up, until that is reported.
    left: VecDeque<FileId>,
}

impl Ways {
    /// Goes down towards a file, as far as this turn allows. A step that may have to wait is left to a helper. If the file
    /// was neither found nor found to be gone, [`Finished::Located`](crate::backend::Finished::Located) follows.
    pub(super) fn go_on(&mut self, files: &mut Files, mut descent: Box<Descent>) -> Located {
        loop {
            descent = match descent.go_at_once(files) {
                Reached::File(_) | Reached::Gone => return Located::Now,
                Reached::Partway(rest) => return self.descend_later(rest),
                Reached::Nothing(rest) => return self.give_up(files, &rest),
                Reached::Step(rest, step, lock) => match self.leave(files, rest, (step, lock)) {
                    Ok(located) => return located,
                    Err(rest) => rest,
                },
            };
        }
    }

    /// Goes on with a descent for nobody in particular: reports its end.
    pub(super) fn proceed(&mut self, files: &mut Files, mut descent: Box<Descent>) {
        let file = descent.file;
        descent.levels_left = LEVELS_MAX;
        if self.go_on(files, descent) != Located::Later {
            // If there is no room for a search, the Calls that wait for the file are answered with JUKEBOX.
            self.sought.ended.push_back(file);
        }
    }

    /// Goes on with the next descent that waited for this turn.
    pub(super) fn proceed_with_next(&mut self, files: &mut Files) {
        if let Some(descent) = self.ready.pop_front() {
            self.proceed(files, descent);
        }
    }

    /// Takes in what became of a step on the way to a file.
    pub(super) fn stepped(&mut self, files: &mut Files, file: FileId, done: Stepped) {
        let Some((mut descent, lock)) = self.under_way.remove(&file) else { return };
        descent.done = Some(done);
        self.proceed(files, descent);
        match lock {
            Lock::Directory(dir) => {
                self.looked_in(files, dir);
                self.left.push_back(dir);
            }
            Lock::Removal => {
                while self.may_open()
                    && let Some(next) = self.unsettled.pop_front()
                {
                    self.proceed(files, next);
                }
            }
        }
    }

    /// Has descents go on that wait to look up a name of a directory, as long as one may.
    pub(super) fn go_on_in(&mut self, files: &mut Files, dir: FileId) {
        while self.may_look_in(dir)
            && let Some(next) = self.behind.get_mut(&dir).and_then(VecDeque::pop_front)
        {
            self.proceed(files, next);
        }
        if self.behind.get(&dir).is_some_and(VecDeque::is_empty) {
            self.behind.remove(&dir);
        }
    }

    /// Takes in that a helper looks up a name in a directory.
    pub(super) fn looks_in(&mut self, dir: FileId) {
        *self.looking.entry(dir).or_default() += 1;
    }

    /// Takes in that a helper has looked up a name in a directory.
    pub(super) fn looked_in(&mut self, files: &mut Files, dir: FileId) {
        if let Some(count) = self.looking.get_mut(&dir) {
            *count -= 1;
            if *count == 0 {
                self.looking.remove(&dir);
            }
        }
        self.go_on_in(files, dir);
    }

    /// Returns the next directory in which a name was looked up on the way to a file: Calls may wait to look up one there.
    pub(super) fn next_left(&mut self) -> Option<FileId> {
        self.left.pop_front()
    }

    /// Returns whether one more name may be looked up in a directory.
    pub(super) fn may_look_in(&self, dir: FileId) -> bool {
        self.looking.get(&dir).is_none_or(|count| *count < LOOK_UPS_MAX)
    }

    /// Returns whether descents go on in the next turn.
    pub(super) fn is_descending(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns whether a descent to a file is under way.
    pub(super) fn is_on_the_way(&self, file: FileId) -> bool {
        let Self { ready, under_way, behind, unsettled, .. } = self;
        let mut others = ready.iter().chain(unsettled).chain(behind.values().flatten());
        under_way.contains_key(&file) || others.any(|other| other.file == file)
    }

    /// Leaves a step to a helper, or to a helper once fewer are needed for steps like it. Returns the descent as the error
    /// if it goes on: the step is not to be waited for, or was the core's to take.
    fn leave(
        &mut self,
        files: &mut Files,
        mut rest: Box<Descent>,
        (step, lock): (Box<Step>, Lock),
    ) -> Result<Located, Box<Descent>> {
        let has_room = self.has_room_for(&rest);
        match lock {
            Lock::Removal if self.may_open() => {}
            Lock::Removal if matches!(rest.otherwise, Otherwise::Search(_)) => {
                rest.done = Some(Err(Errno::AGAIN));
                return Err(rest);
            }
            Lock::Removal if self.unsettled.len() >= UNSETTLED_MAX => {
                return Ok(Located::Busy);
            }
            Lock::Removal => {
                self.unsettled.push_back(rest);
                return Ok(Located::Later);
            }
            Lock::Directory(dir) if self.may_look_in(dir) => {}
            Lock::Directory(dir) => {
                let behind = self.behind.entry(dir).or_default();
                if !has_room || behind.len() >= BEHIND_MAX {
                    return Ok(Located::Busy);
                }
                behind.push_back(rest);
                return Ok(Located::Later);
            }
        }
        if !has_room || files.helpers.is_full_for_us(Cost::Little) {
            return Ok(Located::Busy);
        }
        if let Some(step) = files.helpers.step(step, rest.file) {
            rest.done = Some(step.run());
            return Err(rest);
        }
        if let Lock::Directory(dir) = lock {
            self.looks_in(dir);
        }
        self.under_way.insert(rest.file, (rest, lock));
        Ok(Located::Later)
    }

    /// Queues a descent to continue in later turns, if there is room.
    fn descend_later(&mut self, rest: Box<Descent>) -> Located {
        let has_room = self.has_room_for(&rest);
        if has_room {
            self.ready.push_back(rest);
        }
        if has_room { Located::Later } else { Located::Busy }
    }

    /// Ends a descent that has not led to its file.
    fn give_up(&mut self, files: &mut Files, descent: &Descent) -> Located {
        let file = descent.file;
        match descent.otherwise {
            Otherwise::Search(scope) if self.sought.search_for(file, scope) => Located::Later,
            Otherwise::Search(_) | Otherwise::LeaveOpen => Located::Busy,
            Otherwise::Settle(searched) => {
                files.note_gone(file, searched);
                Located::Now
            }
        }
    }

    /// Returns whether one more descent may wait. One that is long takes much memory.
    fn has_room_for(&self, descent: &Descent) -> bool {
        let behind = self.behind.values().map(VecDeque::len).sum::<usize>();
        let max = if descent.steps.len() > LEVELS_MAX { LONG_MAX } else { DESCENTS_MAX };
        self.ready.len() + self.under_way.len() + behind < max
    }

    /// Returns whether one more file may be opened by its handle.
    fn may_open(&self) -> bool {
        let is_open = |(_, lock): &&(Box<Descent>, Lock)| *lock == Lock::Removal;
        self.under_way.values().filter(is_open).count() < HANDLES_MAX
    }

    /// Has as many helpers wait for the removal of files as may.
    #[cfg(test)]
    pub(super) fn hold_handles(&mut self) {
        for inode in 0..HANDLES_MAX as u64 {
            let file = FileId { inode, generation: 1 };
            let descent = Descent::by_handle(file, Otherwise::LeaveOpen);
            self.under_way.insert(file, (descent, Lock::Removal));
        }
    }
}

/// Maximum number of descents that wait for a turn, a directory or a helper: what may wait for the eight directories in
/// which the helpers can look up names.
const DESCENTS_MAX: usize = 512;
/// The number of descents with which no more begin whose way is longer than [`LEVELS_MAX`].
const LONG_MAX: usize = 64;
/// Maximum number of descents that wait to look up a name of one directory, besides those of which one is being looked up.
const BEHIND_MAX: usize = 62;
/// Maximum number of descents that wait to settle what searches left open: as many files as a search looks for.
const UNSETTLED_MAX: usize = 256;
/// Maximum number of helpers that open files by handle, so that others are free for names and changes.
const HANDLES_MAX: usize = 4;
/// Maximum number of names of one directory that are looked up at a time.
const LOOK_UPS_MAX: usize = 2;
