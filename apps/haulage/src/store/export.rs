//! The exported backend, and the facts about it that are needed before its core starts.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use haulage::limits::LIMITS_DEFAULT;
use haulage::pool::Pool;
use haulage::provider::Waker;
use haulage_store::directory::{
    self, Config, DESCRIPTORS_PER_FILE, Directory, Kept, Owner, Ring, State, Surroundings,
};
use haulage_store::memory::{Limits, Memory};
use haulage_store::nfs3::Time;
use haulage_store::program::RESULTS_KEPT;
use haulage_store::replays::{self, End};

use super::secrets::Secrets;
use crate::cli::bytes;
use crate::cli::perf::Count;
use crate::failure::Failure;
use crate::open_files;
use crate::output::Output;

/// A function that creates a backend in the memory of its core, which the waker wakes.
type Make<B> = Box<dyn FnOnce(&Pool, &Waker) -> Result<B, Failure> + Send>;

/// An export whose backend is created later, on its core.
pub(super) struct Export<B> {
    /// Octets for the backend in the core's memory.
    pub(super) room: usize,
    /// Octets that the user asked for, if so.
    pub(super) asked: Option<u64>,
    /// The owner of all created files, if the server cannot give files away.
    pub(super) owner: Option<Owner>,
    /// The key of file handles, and other random numbers.
    pub(super) secrets: Secrets,
    /// The function that creates the backend.
    pub(super) make: Make<B>,
}

/// Returns an export of `octets` of memory.
pub(super) fn memory(octets: u64) -> Result<Export<Memory>, Failure> {
    let room = usize::try_from(octets).unwrap_or(usize::MAX);
    if room < MEMORY_MIN {
        let least = bytes::format(MEMORY_MIN as u64);
        return Err(Failure::usage(format!("--export memory: at least {least} of it")));
    }
    let secrets = Secrets::draw()?;
    let make = move |pool: &Pool, _: &Waker| {
        let files_max = (room / OCTETS_PER_FILE) as u64;
        let limits = Limits { files_max, names_max: files_max };
        let backend = Memory::new(pool, limits, secrets.run, Time::default());
        backend.ok_or_else(|| Failure::failed("no memory for the first block"))
    };
    Ok(Export { room, asked: Some(octets), owner: None, secrets, make: Box::new(make) })
}

/// Options of a directory export.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// Whether changes of names are stable before the Reply.
    pub(super) stable: bool,
    /// Whether data bypasses the page cache where possible.
    pub(super) direct: bool,
    /// How long a list of a directory is kept for the next Call.
    pub(super) lists_kept: Duration,
    /// The maximum number of connections, whose descriptors are not to be had for files.
    pub(super) connections: Count,
}

/// Returns an export of a directory.
pub(super) fn directory(
    path: &Path,
    state: Option<&Path>,
    how: How,
    output: &Output,
) -> Result<Export<Directory>, Failure> {
    let failed = |error| Failure::failed(format!("cannot serve {}: {error}", path.display()));
    let path = path.canonicalize().map_err(failed)?;
    if !path.is_dir() {
        return Err(failed(ErrorKind::NotADirectory.into()));
    }
    warn_of_place(&path, output);
    let mut secrets = Secrets::draw()?;
    let state = match state {
        Some(state) => Some(keep(state, &path, &mut secrets)?),
        None => {
            output
                .note("clients lose their files when the server is restarted; --state keeps them");
            None
        }
    };
    let make = move |pool: &Pool, waker: &Waker| {
        let How { stable, direct, lists_kept, connections } = how;
        let config = Config {
            run: secrets.run,
            open_max: open_max(open_files::for_files(connections)),
            search_max: SEARCH_MAX,
            search_turn_max: SEARCH_TURN_MAX,
            known_octets_max: NAMES_ROOM,
            lists_kept,
            stable,
            direct,
        };
        // Without a ring, blocking calls read and write files.
        let ring = Ring::new(pool, waker).ok();
        Directory::open(&path, state, ring, config)
            .map(|directory| directory.woken_by(waker))
            .map_err(|error| Failure::failed(format!("cannot serve {}: {error}", path.display())))
    };
    let owner = directory::sole_owner()
        .map_err(|error| Failure::failed(format!("cannot start a thread: {error}")))?;
    let (room, make) = (DIRECTORY_ROOM, Box::new(make));
    Ok(Export { room, asked: None, owner, secrets, make })
}

/// Says what clients will miss because of the file systems at the place of an export.
fn warn_of_place(path: &Path, output: &Output) {
    // If the system does not say what is mounted, there is nothing to warn of.
    let Ok(place) = directory::surroundings(path) else { return };
    let Surroundings { is_overlay, is_fuse, mounted } = place;
    if is_fuse {
        output.note(&format!(
            "{} is on a file system in user space: all clients wait while the process behind it does not answer",
            path.display()
        ));
    }
    if is_overlay {
        output.note(&format!(
            "{} is on an overlay file system: clients lose a file when it is first changed, and `rm -r` may miss \
             names; serve a directory of a volume",
            path.display()
        ));
    }
    if let Some(first) = mounted.first() {
        let others = mounted.len() - 1;
        let others = if others == 0 { String::new() } else { format!(" (and {others} more)") };
        output.note(&format!(
            "{}{others} is mounted inside the export and not served: clients see an empty directory there, which \
             nobody may change",
            first.display()
        ));
    }
}

/// Returns the maximum number of files that stay open, if there are `descriptors` descriptors for them.
fn open_max(descriptors: u64) -> usize {
    let files = usize::try_from(descriptors).unwrap_or(usize::MAX) / DESCRIPTORS_PER_FILE;
    files.clamp(OPEN_MIN, OPEN_MAX)
}

/// Opens the state directory, and replaces the key and the file system ID in `secrets` by those stored there.
fn keep(state: &Path, export: &Path, secrets: &mut Secrets) -> Result<State, Failure> {
    let failed = |error: io::Error| {
        let what = match error.kind() {
            ErrorKind::WouldBlock => "another server uses it".to_owned(),
            _ => error.to_string(),
        };
        Failure::failed(format!("cannot keep state in {}: {what}", state.display()))
    };
    // A client that reads the key could forge handles of every file.
    if is_within(state, export).map_err(failed)? {
        return Err(Failure::usage(
            "--state is inside what --export serves; choose a directory outside",
        ));
    }
    let kept = State::open(state).map_err(failed)?;
    let fresh = Kept { key: secrets.key, fsid: secrets.fsid };
    Kept { key: secrets.key, fsid: secrets.fsid } = kept.keep(fresh).map_err(failed)?;
    Ok(kept)
}

/// Returns whether a path, which need not exist, is in a directory.
fn is_within(path: &Path, dir: &Path) -> io::Result<bool> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find_map(|above| above.canonicalize().ok());
    Ok(there.is_some_and(|above| above.starts_with(dir)))
}

/// Octets of the memory for each file of the maximum number of files.
const OCTETS_PER_FILE: usize = 1024;

/// Minimum memory of an export, in octets.
const MEMORY_MIN: usize = 4 << 20;

/// Octets for the READs and WRITEs in flight of a directory export.
pub(crate) const DIRECTORY_ROOM: usize = 64 << 20;

/// Octets of the table of where files are: as much as for data, enough for some 400,000 files. Besides the transport, a
/// directory server takes twice this, a 64th of it for the duplicate request cache, a fourth of it for lists that are
/// kept, and the Calls that wait for searches.
const NAMES_ROOM: usize = DIRECTORY_ROOM;

/// Number of client addresses for which the duplicate request cache of a directory holds the Replies to twice the Calls
/// that a connection may have in flight. With more addresses, each has less.
const ADDRESSES_MIN: usize = 5;

const _: () = {
    let replies = replays::Limits::of_memory(DIRECTORY_ROOM, RESULTS_KEPT).replies(End::Success);
    assert!(replies / ADDRESSES_MIN >= 2 * LIMITS_DEFAULT.credits_max as usize);
};

/// Maximum number of files of a directory kept open. A low limit of open files makes it fewer.
const OPEN_MAX: usize = 1024;

/// Number of files that may be open whatever the limit of open files is.
const OPEN_MIN: usize = 5;

/// Minimum descriptors for the files of a directory.
pub(super) const DESCRIPTORS_MIN: u64 = (OPEN_MIN * DESCRIPTORS_PER_FILE) as u64;

/// Maximum number of names examined in one search for files that were renamed outside the server: a fraction of a
/// second in total, spread over turns.
const SEARCH_MAX: usize = 100_000;

/// Maximum number of names examined in one turn, which delays other clients by no more than a few Calls would.
const SEARCH_TURN_MAX: usize = 128;
