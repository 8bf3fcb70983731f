//! Directories and files that belong to the user of this process, as `sshd(8)` looks at its keys.
//!
//! A path that an operator names may lead where others write, such as to `/tmp`, and they may have been there first: with a
//! key that they know, a link to a file of ours, or a FIFO that holds up who opens it. What is opened here is looked at
//! through its descriptor, so what was judged is what is used. A file is opened in its directory, whose place no other user
//! can change.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use thiserror::Error;

use super::namespace::Ids;

/// A directory that only its owner, this process's user or root, has rights to.
#[derive(Debug)]
pub struct Directory {
    file: File,
    path: PathBuf,
}

/// What users other than the owner may do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Nothing: it is a secret.
    Nothing,
    /// Read and execute it.
    Read,
}

/// Why a file or directory may not be used. Functions of this module return it in an error of the kind
/// [`ErrorKind::PermissionDenied`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The file or directory belongs to another user.
    #[error("{} belongs to user {owner}; remove it, or choose another place", path.display())]
    Foreign {
        /// Path of the file or directory.
        path: PathBuf,
        /// The user ID of its owner.
        owner: u32,
    },
    /// Other users have rights to the file or directory that they must not have.
    #[error("other users have rights to {}; `chmod {fix} {}` takes them away", path.display(), path.display())]
    Open {
        /// Path of the file or directory.
        path: PathBuf,
        /// The mode that takes the rights away, as `chmod` has it.
        fix: &'static str,
    },
    /// The path names something else than a regular file.
    #[error("{} is no regular file; remove it, or choose another place", .0.display())]
    NotAFile(PathBuf),
    /// The path names something else than a directory.
    #[error("{} is no directory, or a symbolic link to one; name the directory itself", .0.display())]
    NotADirectory(PathBuf),
    /// Other users can rename what is in a directory above the path.
    #[error("other users can replace what is in {}; choose another place, or `chmod go-w {}`", .0.display(), .0.display())]
    Replaceable(PathBuf),
}

impl Directory {
    /// Opens the directory at `path`; creates it, and what is missing above it, if it does not exist.
    ///
    /// # Errors
    /// A [`Fault`] if users other than root and this process's have rights to it, or can put another in its place; or the
    /// system's error.
    pub fn open(path: &Path) -> io::Result<Self> {
        // A link with a slash behind its name would be followed; `components` drops the slash.
        let path: PathBuf = std::path::absolute(path)?.components().collect();
        check_above(&path)?;
        match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Others may have made a directory above the new one in the meantime, so those are checked again.
        check_above(&path)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | ALWAYS;
        let file = match openat(CWD, &path, flags, Mode::empty()) {
            Err(Errno::NOTDIR | Errno::LOOP) => return Err(Fault::NotADirectory(path).into()),
            opened => File::from(opened?),
        };
        let found = file.metadata()?;
        check_owner(&path, &found)?;
        check_rights(&path, &found, Others::Nothing)?;
        Ok(Self { file, path })
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// A [`Fault`] if it is no regular file of this user's own; or the system's error.
    pub fn read(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDONLY)
    }

    /// Opens a file for reading and appending; creates it if it does not exist.
    ///
    /// # Errors
    /// Those of [`Self::read`].
    pub fn append(&self, name: &str) -> io::Result<File> {
        self.open_file(name, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)
    }

    /// Creates an empty file for writing, in place of any of that name.
    ///
    /// # Errors
    /// A [`Fault`] if a directory has that name; or the system's error.
    pub fn create(&self, name: &str) -> io::Result<File> {
        match unlinkat(&self.file, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return Err(Fault::NotAFile(self.path(name)).into()),
            Err(error) => return Err(error.into()),
        }
        self.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL)
    }

    /// Renames a file, in place of any of the new name.
    ///
    /// # Errors
    /// The system's error.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.file, from, &self.file, to)?)
    }

    /// Waits until the names of the directory are on stable storage.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Returns the path of a file in it, for messages.
    pub fn path(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    fn open_file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let (path, mode) = (self.path(name), Mode::RUSR | Mode::WUSR);
        open_own(
            openat(&self.file, name, flags | ALWAYS | OFlags::NOFOLLOW, mode),
            path,
            Others::Nothing,
        )
    }
}

/// Opens a file for reading, wherever it is. A symbolic link is followed.
///
/// # Errors
/// A [`Fault`] if it is no regular file, belongs to users other than root and this process's, or gives others more rights
/// than `others`; or the system's error.
pub fn read(path: &Path, others: Others) -> io::Result<File> {
    open_own(openat(CWD, path, OFlags::RDONLY | ALWAYS, Mode::empty()), path.to_owned(), others)
}

/// Judges what was opened at `path`.
fn open_own(
    opened: rustix::io::Result<std::os::fd::OwnedFd>,
    path: PathBuf,
    others: Others,
) -> io::Result<File> {
    let file = match opened {
        // A symbolic link; a socket or the like; a directory.
        Err(Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Err(Fault::NotAFile(path).into()),
        opened => File::from(opened?),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(Fault::NotAFile(path).into());
    }
    check_owner(&path, &found)?;
    check_rights(&path, &found, others)?;
    Ok(file)
}

fn check_owner(path: &Path, found: &Metadata) -> Result<(), Fault> {
    let owner = found.uid();
    if is_trusted(owner) { Ok(()) } else { Err(Fault::Foreign { path: path.to_owned(), owner }) }
}

fn check_rights(path: &Path, found: &Metadata, others: Others) -> Result<(), Fault> {
    let (mask, fix) = match others {
        Others::Nothing if found.is_dir() => (0o077, "700"),
        Others::Nothing => (0o077, "600"),
        Others::Read => (0o022, "go-w"),
    };
    if found.mode() & mask == 0 { Ok(()) } else { Err(Fault::Open { path: path.to_owned(), fix }) }
}

/// Checks what exists above an absolute path, as it is written and as its links lead, up to the root: nobody but root and
/// this process's user may replace what is in it, except where the sticky bit protects what belongs to others.
fn check_above(path: &Path) -> io::Result<()> {
    let users = Ids::users();
    let real = path.ancestors().skip(1).find_map(|above| above.canonicalize().ok());
    let real = real.iter().flat_map(|real| real.ancestors());
    for above in path.ancestors().skip(1).chain(real) {
        let found = match above.symlink_metadata() {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            found => found?,
        };
        // An owner from outside of this user namespace is trusted, as its maker comes from there.
        if users.has(found.uid()) {
            check_owner(above, &found)?;
        }
        // The mode of a symbolic link grants everything and means nothing.
        if found.is_dir() && found.mode() & 0o022 != 0 && found.mode() & STICKY == 0 {
            return Err(Fault::Replaceable(above.to_owned()).into());
        }
    }
    Ok(())
}

fn is_trusted(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw()
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        Self::new(ErrorKind::PermissionDenied, fault)
    }
}

/// The flags of whatever is opened: a FIFO or device holds up nobody, and becomes no terminal of ours.
const ALWAYS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// The bit of a directory by which only an owner renames or removes what is in it.
const STICKY: u32 = 0o1000;

#[cfg(test)]
mod tests;
