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

use std::rc::Rc;

use rustix::io::Errno;

use super::super::jobs::steps::{LookUp, Step, Stepped};
use super::super::node::Node;
use super::super::system::look::Look;
use super::files::Files;
use super::gone::Searched;
use super::sought::Scope;
use crate::handle::FileId;
use crate::nfs3::Status;

/// The rest of a descent.
#[derive(Debug)]
pub(super) struct Descent {
    /// The file at the end of the descent.
    pub(super) file: FileId,
    at: At,
    /// The steps left, the last one first: the file that each name led to, and the name.
    pub(super) steps: Vec<(FileId, Box<[u8]>)>,
    /// Number of steps that may still be taken in this turn.
    pub(super) levels_left: usize,
    /// The outcome of the step under way, once it has ended.
    pub(super) done: Option<Stepped>,
    pub(super) otherwise: Otherwise,
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

impl Descent {
    /// Begins a descent to a file from the nearest directory above it that is open. If it is not known where the file was
    /// seen, only its handle is left.
    pub(super) fn set_out(files: &mut Files, file: FileId, otherwise: Otherwise) -> Box<Self> {
        let mut steps = Vec::new();
        let mut dir = file;
        let at = loop {
            if dir != file
                && let Some(node) = files.at_hand(dir)
            {
                break At::Named(node);
            }
            let Some(seen) = files.known.find(dir).filter(|_| steps.len() < DEPTH_MAX) else {
                steps.clear();
                break At::Shut(file);
            };
            steps.push((dir, seen.name.into()));
            dir = seen.dir;
        };
        Box::new(Self { file, at, steps, levels_left: LEVELS_MAX, done: None, otherwise })
    }

    /// Returns the descent to a file that was searched for in a part of the tree: it exists if it can be opened by its
    /// handle, and is assumed to be in the other part.
    pub(super) fn by_handle(file: FileId, otherwise: Otherwise) -> Box<Self> {
        let (at, steps, done) = (At::Shut(file), Vec::new(), None);
        Box::new(Self { file, at, steps, levels_left: LEVELS_MAX, done, otherwise })
    }

    /// Takes a descent as far as it goes in this turn without a helper. Without helpers, it goes to its end.
    pub(super) fn go_at_once(self: Box<Self>, files: &mut Files) -> Reached {
        let mut descent = self;
        loop {
            match descent.go_down(files) {
                Reached::Step(mut rest, step, _) if !files.helpers.has_waker() => {
                    rest.done = Some(step.run());
                    descent = rest;
                }
                reached => return reached,
            }
        }
    }

    /// Goes down without a wait.
    fn go_down(self: Box<Self>, files: &mut Files) -> Reached {
        let mut descent = self;
        loop {
            let gone_on = match descent.at.clone() {
                At::Named(dir) | At::Handled(dir) => descent.go_by_name(files, &dir),
                At::Shut(file) => descent.go_by_handle(files, file),
            };
            descent = match gone_on {
                Ok(rest) => rest,
                Err(reached) => return reached,
            };
        }
    }

    /// Goes down by the next name in a directory.
    fn go_by_name(
        mut self: Box<Self>,
        files: &mut Files,
        dir: &Rc<Node>,
    ) -> Result<Box<Self>, Reached> {
        let done = self.done.take();
        let Some((wanted, name)) = self.steps.last() else {
            return Err(Reached::File(Rc::clone(dir)));
        };
        let found = match done {
            Some(done) => files.named(dir, name, done),
            None if self.levels_left == 0 => return Err(Reached::Partway(self)),
            None => match files.cached(dir, name) {
                Some(Ok(place)) => Node::of_place(place, &files.helpers).ok().map(|(node, _)| node),
                Some(Err(errno)) => files.named(dir, name, Err(errno)),
                None => return Err(step_in(dir, self)),
            },
        };
        self.levels_left = self.levels_left.saturating_sub(1);
        let next = found.filter(|found| found.id == *wanted);
        let next = next.map(|found| files.keep(found, dir.id, name));
        let was_handled = matches!(self.at, At::Handled(_));
        self.at = match next {
            Some(next) => {
                self.steps.pop();
                if was_handled { At::Handled(next) } else { At::Named(next) }
            }
            None if was_handled => return Err(Reached::Nothing(self)),
            None => {
                self.steps.clear();
                At::Shut(self.file)
            }
        };
        Ok(self)
    }

    /// Opens a file by its handle: the file at the end of a descent, or a directory above it.
    fn go_by_handle(
        mut self: Box<Self>,
        files: &mut Files,
        id: FileId,
    ) -> Result<Box<Self>, Reached> {
        let opened = match (self.done.take(), files.handle_of(id)) {
            (Some(done), _) => opened(files, id, done),
            (None, None) => Opened::Unknown,
            (None, Some(step)) => {
                return Err(Reached::Step(self, Box::new(step), Lock::Removal));
            }
        };
        let settles = !matches!(self.otherwise, Otherwise::Search(_));
        match opened {
            Opened::Gone if id == self.file => {
                files.note_gone(id, None);
                Err(Reached::Gone)
            }
            Opened::Found(node, look) if settles || look.is_directory() => {
                self.at = At::Handled(files.open.keep(node));
                Ok(self)
            }
            Opened::Failed if settles => {
                self.otherwise = Otherwise::LeaveOpen;
                Err(Reached::Nothing(self))
            }
            _ if settles => Err(Reached::Nothing(self)),
            // For a file that is no directory, the handle does not tell whether it is in the tree.
            _ => self.climb(files, id),
        }
    }

    /// Takes a descent from a file that cannot be opened by its handle to the directory above it, if a handle is left to be
    /// tried.
    fn climb(mut self: Box<Self>, files: &mut Files, from: FileId) -> Result<Box<Self>, Reached> {
        let is_left = self.steps.len() < BY_HANDLE_MAX;
        let Some(seen) = files.known.find(from).filter(|_| is_left) else {
            return Err(Reached::Nothing(self));
        };
        self.steps.push((from, seen.name.into()));
        self.at = At::Shut(seen.dir);
        // A descent from an open directory was tried already.
        if files.is_at_hand(seen.dir) { Err(Reached::Nothing(self)) } else { Ok(self) }
    }
}

/// Takes in what a file's handle leads to. A directory that was moved out of the tree counts as gone.
fn opened(files: &mut Files, id: FileId, done: Stepped) -> Opened {
    let fresh = match done {
        Ok(fresh) => fresh,
        Err(Errno::STALE) => return Opened::Gone,
        Err(errno) if Absence::of(errno) == Absence::Unknown => {
            return Opened::Failed;
        }
        _ => return Opened::Unknown,
    };
    let look = fresh.look;
    let node = Node::from_fresh(*fresh, &files.helpers);
    if node.id != id || look.attributes.links == 0 {
        return Opened::Gone;
    }
    if look.is_directory() {
        match files.check_within(&node) {
            Ok(()) => {}
            Err(Status::Stale) => return Opened::Gone,
            Err(_) => return Opened::Failed,
        }
    }
    Opened::Found(node, look)
}

/// Returns the step of a descent by the next name in a directory.
fn step_in(dir: &Node, descent: Box<Descent>) -> Reached {
    let Some((_, name)) = descent.steps.last() else { return Reached::Nothing(descent) };
    let Ok(place) = dir.another_place() else { return Reached::Nothing(descent) };
    let step = Step::LookUp(LookUp { dir: place, name: name.clone() });
    Reached::Step(descent, Box::new(step), Lock::Directory(dir.id))
}

/// The meaning of an error for the file that was to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// The file does not exist, or is not in this tree.
    Absent,
    /// The file may exist, but this server may not open it.
    Forbidden,
    /// The file may exist: the machine lacked a resource, or failed.
    Unknown,
}

impl Absence {
    pub(super) const fn of(errno: Errno) -> Self {
        match errno {
            // ELOOP: a link now stands in place of a directory, and files below a link are not in this tree.
            Errno::NOENT | Errno::NOTDIR | Errno::STALE | Errno::LOOP => Self::Absent,
            Errno::ACCESS | Errno::PERM => Self::Forbidden,
            _ => Self::Unknown,
        }
    }
}

/// Maximum depth of a descent, in directories.
const DEPTH_MAX: usize = 1024;
/// Maximum number of levels descended in one turn.
pub(super) const LEVELS_MAX: usize = 16;
/// Maximum number of directories above a file that are tried by their handles. A directory that cannot be opened was moved
/// out of the tree or removed, and those above it rarely were.
const BY_HANDLE_MAX: usize = 8;
