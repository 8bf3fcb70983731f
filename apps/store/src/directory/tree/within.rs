//! The check that a directory is still below the top: the operator may have moved it out.
//!
//! # Normal operation
//! One system call returns the path of an open directory. A directory is in the tree if its path begins with the path
//! of the top, since both are on one mount. If the path is too long for the call, the check uses a directory some
//! levels above, never above the top, for which the answer is the same.
//!
//! # Limits
//! The check runs once for each directory and turn, with at most [`CLIMBS_MAX`] steps up. A directory deeper than that
//! is not served.

use std::collections::BTreeMap;

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

use super::super::node::Node;
use super::super::system::descriptors::Descriptors;
use crate::handle::FileId;
use crate::nfs3::Status;

/// The directories that were checked in this turn.
#[derive(Debug, Default)]
pub(super) struct Within {
    verdicts: BTreeMap<FileId, Verdict>,
    /// The path of the top.
    top: Option<Vec<u8>>,
    /// Number of paths read from the system.
    #[cfg(test)]
    asked: usize,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Inside,
    Outside,
}

impl Within {
    /// Drops the results of the last turn.
    pub(super) fn turn(&mut self) {
        self.verdicts.clear();
        self.top = None;
    }

    /// Checks that a directory is in the tree below `top`.
    ///
    /// # Errors
    /// [`Status::Stale`] if the directory is not in the tree, or the status of the system's error.
    pub(super) fn check(
        &mut self,
        dir: &Node,
        top: &Node,
        open: &Descriptors,
    ) -> Result<(), Status> {
        if dir.id == top.id {
            return Ok(());
        }
        let verdict = match self.verdicts.get(&dir.id) {
            Some(verdict) => *verdict,
            None => {
                let mut verdict = self.look(dir, top, open)?;
                if verdict == Verdict::Outside {
                    // The top itself may have been renamed since its path was looked up.
                    self.top = None;
                    verdict = self.look(dir, top, open)?;
                }
                if self.verdicts.len() >= VERDICTS_MAX {
                    self.verdicts.clear();
                }
                self.verdicts.insert(dir.id, verdict);
                verdict
            }
        };
        match verdict {
            Verdict::Inside => Ok(()),
            Verdict::Outside => Err(Status::Stale),
        }
    }

    fn look(&mut self, dir: &Node, top: &Node, open: &Descriptors) -> Result<Verdict, Errno> {
        let top = match self.top.take() {
            Some(path) => path,
            None => self.ask(open, &top.place)?,
        };
        let verdict = self.look_from(dir, &top, open);
        self.top = Some(top);
        verdict
    }

    fn look_from(&mut self, dir: &Node, top: &[u8], open: &Descriptors) -> Result<Verdict, Errno> {
        // A path that is too long has at least this many names below the top.
        let levels = PATH_TOLD_MAX.saturating_sub(top.len()) / COMPONENT_MAX;
        let up = [b'.', b'.', b'/'].repeat(levels.max(1));
        let mut above: Option<std::os::fd::OwnedFd> = None;
        for _ in 0..CLIMBS_MAX {
            let place = above.as_ref().unwrap_or(&dir.place);
            match self.ask(open, place) {
                Ok(path) => return Ok(compare(&path, top)),
                Err(Errno::NAMETOOLONG) => {}
                Err(errno) => return Err(errno),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            above = Some(fs::openat(place, &*up, flags, Mode::empty())?);
        }
        Ok(Verdict::Outside)
    }

    fn ask(&mut self, open: &Descriptors, place: &std::os::fd::OwnedFd) -> Result<Vec<u8>, Errno> {
        #[cfg(test)]
        {
            self.asked += 1;
        }
        open.path(place)
    }

    /// Returns the number of paths read from the system, and resets it.
    #[cfg(test)]
    pub(super) const fn take_asked(&mut self) -> usize {
        std::mem::replace(&mut self.asked, 0)
    }
}

/// Compares the path of a directory with the path of the top.
fn compare(path: &[u8], top: &[u8]) -> Verdict {
    let below = path.strip_prefix(top.strip_suffix(b"/").unwrap_or(top));
    match below {
        Some([] | [b'/', ..]) => Verdict::Inside,
        Some(_) | None => Verdict::Outside,
    }
}

/// Maximum length of a path that the system returns in any case, in octets: a page without the NUL.
const PATH_TOLD_MAX: usize = 4095;
/// Maximum length of a name in a path, in octets, with the slash before it.
const COMPONENT_MAX: usize = 256;
/// Maximum number of steps up from a directory whose path is too long, each of up to fifteen levels: some 900 levels
/// more than the system's longest path has.
const CLIMBS_MAX: usize = 64;
/// Maximum number of cached results: more than there are Calls in a turn.
const VERDICTS_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_make_a_path_one_below_another() {
        for (path, top, verdict) in [
            ("/a", "/a", Verdict::Inside),
            ("/a/b", "/a", Verdict::Inside),
            ("/ab", "/a", Verdict::Outside),
            ("/b", "/a", Verdict::Outside),
            ("/", "/a", Verdict::Outside),
            ("/b", "/", Verdict::Inside),
            ("/", "/", Verdict::Inside),
            ("(unreachable)/b", "/", Verdict::Outside),
        ] {
            assert_eq!(compare(path.as_bytes(), top.as_bytes()), verdict, "{path} in {top}");
        }
    }
}
