//! The way to a file that is not open.
//!
//! # Normal operation
//! A descent goes down along the names where the file was last seen, from the nearest directory above it that is open.
//! A name that the system has cached is a step of the core; another is looked up by a helper, which may have to wait for
//! the lock of the directory, and the descent goes on when it is told of that.
//!
//! # Recovery
//! If a name leads elsewhere by now, the file is opened by its file system's handle, or else a directory above it, from
//! which the descent begins once more. Helpers open them: the system has everybody wait for a file that it is removing.
//!
//! # Limits
//! At most [`DESCENTS_MAX`] descents wait, [`BEHIND_MAX`] of them to look up a name of the same directory. At most
//! [`HANDLES_MAX`] helpers open files by handle. While they do, other files are searched for, so that files which the
//! system takes long to remove keep nobody from finding what is elsewhere.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use haulage::sys::by_handle::FileName;
use rustix::io::Errno;

use super::super::closing::PathDescriptor;
use super::super::gone::Searched;
use super::super::helpers::Cost;
use super::super::jobs::steps::{LookUp, Open, Step, Stepped};
use super::super::node::Node;
use super::super::system::look::Look;
use super::Tree;
use super::search::{Absence, Scope};
use crate::backend::Located;
use crate::handle::FileId;
use crate::nfs3::Status;

/// The descents under way.
#[derive(Debug, Default)]
pub(super) struct Descents {
    /// The descents that go on in the next turn.
    ready: VecDeque<Box<Descent>>,
    /// The descents of which a helper takes a step, by the file at their end, with what the step may wait for.
    under_way: BTreeMap<FileId, (Box<Descent>, Lock)>,
    /// The descents that wait until fewer names are looked up in a directory.
    behind: BTreeMap<FileId, VecDeque<Box<Descent>>>,
    /// The descents that settle what a search left open, and wait until fewer files are opened by handle.
    unsettled: VecDeque<Box<Descent>>,
    /// Directories in which names were looked up, until that is reported.
    left: VecDeque<FileId>,
    /// Whether a test has the system know no name without waiting.
    #[cfg(test)]
    is_cold: bool,
}

/// The rest of a descent.
#[derive(Debug)]
pub(super) struct Descent {
    /// The file at the end of the descent.
    file: FileId,
    at: At,
    /// The steps left, the last one first: the file that each name led to, and the name.
    steps: Vec<(FileId, Box<[u8]>)>,
    /// Number of steps that may still be taken in this turn.
    levels_left: usize,
    /// The outcome of the step under way, once it has ended.
    done: Option<Stepped>,
    otherwise: Otherwise,
}

/// The place of a descent in the tree.
#[derive(Clone, Debug)]
enum At {
    /// A directory that was found by its name.
    Named(Rc<Node>),
    /// A directory that was found by its handle, or below such a one.
    Handled(Rc<Node>),
    /// The file, or a directory above it, which is to be opened by its handle.
    Shut(FileId),
}

/// What is done if a descent does not lead to its file.
#[derive(Clone, Copy, Debug)]
pub(super) enum Otherwise {
    /// The file is searched for.
    Search(Scope),
    /// The file was searched for in a part of the tree; without a handle, it counts as gone.
    Settle(Option<Searched>),
    /// The file is not known to be gone: the system failed to show a part of the tree in which it was searched for.
    LeaveOpen,
}

/// What a step may have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// The lock of a directory.
    Directory(FileId),
    /// The removal of a file.
    Removal,
}

/// The result of a descent.
#[derive(Debug)]
pub(super) enum Reached {
    /// The file.
    File(Rc<Node>),
    /// No file: it is not in the tree any more.
    Gone,
    /// A directory above the file; the rest of the descent is left.
    Partway(Box<Descent>),
    /// A step that may have to wait.
    Step(Box<Descent>, Box<Step>, Lock),
    /// A name that no longer leads to the same file.
    Nothing(Box<Descent>),
}

/// The result of opening a file by its handle.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once")]
enum Opened {
    Found(Node, Look),
    /// The file is no longer in the tree.
    Gone,
    /// The file has no handle, or may not be opened by it.
    Unknown,
    /// The machine lacked a resource, or failed.
    Failed,
}

impl Tree {
    /// Goes down towards a file, as far as this turn allows. A step that may have to wait is left to a helper. If the file
    /// was neither found nor found to be gone, [`Finished::Located`](crate::backend::Finished::Located) follows.
    pub(super) fn go_on(&mut self, mut descent: Box<Descent>) -> Located {
        loop {
            descent = match self.go_at_once(descent) {
                Reached::File(_) | Reached::Gone => return Located::Now,
                Reached::Partway(rest) => return self.descend_later(rest),
                Reached::Nothing(rest) => return self.give_up(&rest),
                Reached::Step(rest, step, lock) => match self.leave(rest, step, lock) {
                    Ok(located) => return located,
                    Err(rest) => rest,
                },
            };
        }
    }

    /// Takes a descent as far as it goes in this turn without a helper. Without helpers, it goes to its end.
    pub(super) fn go_at_once(&mut self, mut descent: Box<Descent>) -> Reached {
        loop {
            match self.go_down(descent) {
                Reached::Step(mut rest, step, _) if !self.helpers.has_waker() => {
                    rest.done = Some(step.run());
                    descent = rest;
                }
                reached => return reached,
            }
        }
    }

    /// Goes on with a descent for nobody in particular: reports its end.
    pub(super) fn proceed(&mut self, mut descent: Box<Descent>) {
        let file = descent.file;
        descent.levels_left = LEVELS_MAX;
        if self.go_on(descent) != Located::Later {
            // If there is no room for a search, the Calls that wait for the file are answered with JUKEBOX.
            self.searches.ended.push_back(file);
        }
    }

    /// Goes on with the next descent that waited for this turn.
    pub(super) fn proceed_with_next(&mut self) {
        if let Some(descent) = self.descents.ready.pop_front() {
            self.proceed(descent);
        }
    }

    /// Takes in what became of a step on the way to a file.
    pub(in super::super) fn stepped(&mut self, file: FileId, done: Stepped) {
        let Some((mut descent, lock)) = self.descents.under_way.remove(&file) else { return };
        descent.done = Some(done);
        self.proceed(descent);
        match lock {
            Lock::Directory(dir) => {
                self.looked_in(dir);
                self.descents.left.push_back(dir);
            }
            Lock::Removal => {
                while self.descents.may_open()
                    && let Some(next) = self.descents.unsettled.pop_front()
                {
                    self.proceed(next);
                }
            }
        }
    }

    /// Has descents go on that wait to look up a name of a directory, as long as one may.
    pub(super) fn go_on_in(&mut self, dir: FileId) {
        while self.may_look_in(dir)
            && let Some(next) = self.descents.behind.get_mut(&dir).and_then(VecDeque::pop_front)
        {
            self.proceed(next);
        }
        if self.descents.behind.get(&dir).is_some_and(VecDeque::is_empty) {
            self.descents.behind.remove(&dir);
        }
    }

    /// Returns the next directory in which a name was looked up on the way to a file: Calls may wait to look up one there.
    pub(in super::super) fn next_left(&mut self) -> Option<FileId> {
        self.descents.left.pop_front()
    }

    /// Returns whether descents go on in the next turn.
    pub(super) fn is_descending(&self) -> bool {
        !self.descents.ready.is_empty()
    }

    /// Returns whether a descent to a file is under way.
    pub(in super::super) fn is_on_the_way(&self, file: FileId) -> bool {
        let Descents { ready, under_way, behind, unsettled, .. } = &self.descents;
        let mut others = ready.iter().chain(unsettled).chain(behind.values().flatten());
        under_way.contains_key(&file) || others.any(|other| other.file == file)
    }

    /// Begins a descent to a file from the nearest directory above it that is open. If it is not known where the file was
    /// seen, only its handle is left.
    pub(super) fn set_out(&mut self, file: FileId, otherwise: Otherwise) -> Box<Descent> {
        let mut steps = Vec::new();
        let mut dir = file;
        let at = loop {
            if dir != file
                && let Some(node) = self.at_hand(dir)
            {
                break At::Named(node);
            }
            let Some(seen) = self.known.find(dir).filter(|_| steps.len() < DEPTH_MAX) else {
                steps.clear();
                break At::Shut(file);
            };
            steps.push((dir, seen.name.into()));
            dir = seen.dir;
        };
        Box::new(Descent { file, at, steps, levels_left: LEVELS_MAX, done: None, otherwise })
    }

    /// Goes down without a wait.
    fn go_down(&mut self, mut descent: Box<Descent>) -> Reached {
        loop {
            let gone_on = match descent.at.clone() {
                At::Named(dir) | At::Handled(dir) => self.go_by_name(descent, &dir),
                At::Shut(file) => self.go_by_handle(descent, file),
            };
            descent = match gone_on {
                Ok(rest) => rest,
                Err(reached) => return reached,
            };
        }
    }

    /// Goes down by the next name in a directory.
    fn go_by_name(
        &mut self,
        mut descent: Box<Descent>,
        dir: &Rc<Node>,
    ) -> Result<Box<Descent>, Reached> {
        let done = descent.done.take();
        let Some((wanted, name)) = descent.steps.last() else {
            return Err(Reached::File(Rc::clone(dir)));
        };
        let found = match done {
            Some(done) => self.named(dir, name, done),
            None if descent.levels_left == 0 => return Err(Reached::Partway(descent)),
            None => match self.cached(dir, name) {
                Some(Ok(place)) => Node::of_place(place, &self.helpers).ok().map(|(node, _)| node),
                Some(Err(errno)) => self.named(dir, name, Err(errno)),
                None => return Err(step_in(dir, descent)),
            },
        };
        descent.levels_left = descent.levels_left.saturating_sub(1);
        let next = found.filter(|found| found.id == *wanted);
        let next = next.map(|found| self.keep(found, dir.id, name));
        let was_handled = matches!(descent.at, At::Handled(_));
        descent.at = match next {
            Some(next) => {
                descent.steps.pop();
                if was_handled { At::Handled(next) } else { At::Named(next) }
            }
            None if was_handled => return Err(Reached::Nothing(descent)),
            None => {
                descent.steps.clear();
                At::Shut(descent.file)
            }
        };
        Ok(descent)
    }

    /// Opens a file by its handle: the file at the end of a descent, or a directory above it.
    fn go_by_handle(
        &mut self,
        mut descent: Box<Descent>,
        id: FileId,
    ) -> Result<Box<Descent>, Reached> {
        let opened = match (descent.done.take(), self.handle_of(id)) {
            (Some(done), _) => self.opened(id, done),
            (None, None) => Opened::Unknown,
            (None, Some(step)) => {
                return Err(Reached::Step(descent, Box::new(step), Lock::Removal));
            }
        };
        let settles = !matches!(descent.otherwise, Otherwise::Search(_));
        match opened {
            Opened::Gone if id == descent.file => {
                self.known.forget(id);
                self.gone.insert(id, None);
                Err(Reached::Gone)
            }
            Opened::Found(node, look) if settles || look.is_directory() => {
                descent.at = At::Handled(self.open.keep(node));
                Ok(descent)
            }
            Opened::Failed if settles => {
                descent.otherwise = Otherwise::LeaveOpen;
                Err(Reached::Nothing(descent))
            }
            _ if settles => Err(Reached::Nothing(descent)),
            // For a file that is no directory, the handle does not tell whether it is in the tree.
            _ => self.climb(descent, id),
        }
    }

    /// Takes a descent from a file that cannot be opened by its handle to the directory above it, if a handle is left to be
    /// tried.
    fn climb(&mut self, mut descent: Box<Descent>, from: FileId) -> Result<Box<Descent>, Reached> {
        let is_left = descent.steps.len() < BY_HANDLE_MAX;
        let Some(seen) = self.known.find(from).filter(|_| is_left) else {
            return Err(Reached::Nothing(descent));
        };
        descent.steps.push((from, seen.name.into()));
        descent.at = At::Shut(seen.dir);
        // A descent from an open directory was tried already.
        if self.is_at_hand(seen.dir) { Err(Reached::Nothing(descent)) } else { Ok(descent) }
    }

    /// Returns what a name in a directory leads to, if the system knows without waiting.
    fn cached(&self, dir: &Node, name: &[u8]) -> Option<Result<PathDescriptor, Errno>> {
        #[cfg(test)]
        if self.descents.is_cold {
            return None;
        }
        dir.cached_place(name)
    }

    /// Has the system know no name without waiting.
    #[cfg(test)]
    pub(in super::super) const fn forget_names(&mut self) {
        self.descents.is_cold = true;
    }

    /// Has the system know names without waiting again.
    #[cfg(test)]
    pub(in super::super) const fn recall_names(&mut self) {
        self.descents.is_cold = false;
    }

    /// Has as many helpers wait for the removal of files as may.
    #[cfg(test)]
    pub(in super::super) fn hold_handles(&mut self) {
        for inode in 0..HANDLES_MAX as u64 {
            let file = FileId { inode, generation: 1 };
            let descent = Descent::by_handle(file, Otherwise::LeaveOpen);
            self.descents.under_way.insert(file, (descent, Lock::Removal));
        }
    }

    /// Takes in what a name in a directory leads to.
    fn named(&self, dir: &Node, name: &[u8], done: Stepped) -> Option<Node> {
        match done {
            Ok(fresh) => Some(Node::from_fresh(*fresh, &self.helpers)),
            // The system keeps the names where other file systems are mounted.
            Err(Errno::XDEV) => dir.child(name).ok().map(|(node, _)| node),
            Err(_) => None,
        }
    }

    /// Returns what opens a file by its handle, if it has one that may be used.
    fn handle_of(&self, file: FileId) -> Option<Step> {
        let mount = Arc::clone(self.mount.as_ref()?);
        let called = FileName::from_bytes(self.known.find(file)?.called)?;
        Some(Step::Open(Open { mount, called }))
    }

    /// Takes in what a file's handle leads to. A directory that was moved out of the tree counts as gone.
    fn opened(&mut self, id: FileId, done: Stepped) -> Opened {
        let fresh = match done {
            Ok(fresh) => fresh,
            Err(Errno::STALE) => return Opened::Gone,
            Err(errno) if Absence::of(errno) == Absence::Unknown => {
                return Opened::Failed;
            }
            _ => return Opened::Unknown,
        };
        let look = fresh.look;
        let node = Node::from_fresh(*fresh, &self.helpers);
        if node.id != id || look.attributes.links == 0 {
            return Opened::Gone;
        }
        if look.is_directory() {
            match self.check_within(&node) {
                Ok(()) => {}
                Err(Status::Stale) => return Opened::Gone,
                Err(_) => return Opened::Failed,
            }
        }
        Opened::Found(node, look)
    }

    /// Leaves a step to a helper, or to a helper once fewer are needed for steps like it. Returns the descent as the error
    /// if it goes on: the step is not to be waited for, or was the core's to take.
    fn leave(
        &mut self,
        mut rest: Box<Descent>,
        step: Box<Step>,
        lock: Lock,
    ) -> Result<Located, Box<Descent>> {
        let has_room = self.descents.has_room_for(&rest);
        match lock {
            Lock::Removal if self.descents.may_open() => {}
            Lock::Removal if matches!(rest.otherwise, Otherwise::Search(_)) => {
                rest.done = Some(Err(Errno::AGAIN));
                return Err(rest);
            }
            Lock::Removal if self.descents.unsettled.len() >= UNSETTLED_MAX => {
                return Ok(Located::Busy);
            }
            Lock::Removal => {
                self.descents.unsettled.push_back(rest);
                return Ok(Located::Later);
            }
            Lock::Directory(dir) if self.may_look_in(dir) => {}
            Lock::Directory(dir) => {
                let behind = self.descents.behind.entry(dir).or_default();
                if !has_room || behind.len() >= BEHIND_MAX {
                    return Ok(Located::Busy);
                }
                behind.push_back(rest);
                return Ok(Located::Later);
            }
        }
        if !has_room || self.helpers.is_full_for_us(Cost::Little) {
            return Ok(Located::Busy);
        }
        if let Some(step) = self.helpers.step(step, rest.file) {
            rest.done = Some(step.run());
            return Err(rest);
        }
        if let Lock::Directory(dir) = lock {
            self.looks_in(dir);
        }
        self.descents.under_way.insert(rest.file, (rest, lock));
        Ok(Located::Later)
    }

    /// Queues a descent to continue in later turns, if there is room.
    fn descend_later(&mut self, rest: Box<Descent>) -> Located {
        let has_room = self.descents.has_room_for(&rest);
        if has_room {
            self.descents.ready.push_back(rest);
        }
        if has_room { Located::Later } else { Located::Busy }
    }

    /// Ends a descent that has not led to its file.
    fn give_up(&mut self, descent: &Descent) -> Located {
        let file = descent.file;
        match descent.otherwise {
            Otherwise::Search(scope) if self.search_for(file, scope) => Located::Later,
            Otherwise::Search(_) | Otherwise::LeaveOpen => Located::Busy,
            Otherwise::Settle(searched) => {
                self.known.forget(file);
                self.gone.insert(file, searched);
                Located::Now
            }
        }
    }
}

impl Descents {
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
}

impl Descent {
    /// Returns the descent to a file that was searched for in a part of the tree: it exists if it can be opened by its
    /// handle, and is assumed to be in the other part.
    pub(super) fn by_handle(file: FileId, otherwise: Otherwise) -> Box<Self> {
        let (at, steps, done) = (At::Shut(file), Vec::new(), None);
        Box::new(Self { file, at, steps, levels_left: LEVELS_MAX, done, otherwise })
    }
}

/// Returns the step of a descent by the next name in a directory.
fn step_in(dir: &Node, descent: Box<Descent>) -> Reached {
    let Some((_, name)) = descent.steps.last() else { return Reached::Nothing(descent) };
    let Ok(place) = dir.another_place() else { return Reached::Nothing(descent) };
    let step = Step::LookUp(LookUp { dir: place, name: name.clone() });
    Reached::Step(descent, Box::new(step), Lock::Directory(dir.id))
}

/// Maximum depth of a descent, in directories.
const DEPTH_MAX: usize = 1024;
/// Maximum number of levels descended in one turn.
pub(super) const LEVELS_MAX: usize = 16;
/// Maximum number of directories above a file that are tried by their handles. A directory that cannot be opened was moved
/// out of the tree or removed, and those above it rarely were.
const BY_HANDLE_MAX: usize = 8;
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
