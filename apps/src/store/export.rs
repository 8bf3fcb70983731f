//! What is served: a backend, and what has to be known before its core starts.

use std::io::{self, ErrorKind};
use std::path::Path;

use haulage::limits::LIMITS_DEFAULT;
use haulage::pool::Pool;
use haulage::provider::Waker;
use haulage_store::directory::{self, Config, Directory, Kept, Owner, Ring, State};
use haulage_store::memory::{Limits, Memory};
use haulage_store::nfs3::Time;
use haulage_store::program::RESULTS_KEPT;
use haulage_store::replays::{self, End};

use super::secrets::Secrets;
use crate::cli::bytes;
use crate::failure::Failure;
use crate::output::Output;

/// Makes a backend in the memory of its core, which the waker wakes.
type Make<B> = Box<dyn FnOnce(&Pool, &Waker) -> Result<B, Failure> + Send>;

/// What is served, until it is made on its core.
pub(super) struct Export<B> {
    /// Octets for it in the core's memory.
    pub(super) room: usize,
    /// Whose its files are, if they are all of one user.
    pub(super) owner: Option<Owner>,
    /// Its key and its numbers.
    pub(super) secrets: Secrets,
    /// Makes the backend.
    pub(super) make: Make<B>,
}

/// Serves so much memory.
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
    Ok(Export { room, owner: None, secrets, make: Box::new(make) })
}

/// How the files of a directory are treated.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    /// Whether changes of names are stable before they are answered.
    pub(super) stable: bool,
    /// Whether data goes around the system's cache.
    pub(super) direct: bool,
}

/// Serves the files of a directory.
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
        let (run, open_max, search_max) = (secrets.run, OPEN_MAX, SEARCH_MAX);
        let How { stable, direct } = how;
        let config = Config {
            run,
            open_max,
            search_max,
            search_turn_max: SEARCH_TURN_MAX,
            known_octets_max: NAMES_ROOM,
            stable,
            direct,
        };
        // Without one, files are read and written at once.
        let ring = Ring::new(pool, waker).ok();
        Directory::open(&path, state, ring, config)
            .map_err(|error| Failure::failed(format!("cannot serve {}: {error}", path.display())))
    };
    let owner = directory::sole_owner();
    Ok(Export { room: DIRECTORY_ROOM, owner, secrets, make: Box::new(make) })
}

/// Takes the server's own directory, and the key and the number that were kept there.
fn keep(state: &Path, export: &Path, secrets: &mut Secrets) -> Result<State, Failure> {
    let failed = |error: io::Error| {
        let what = match error.kind() {
            ErrorKind::WouldBlock => "another server uses it".to_owned(),
            _ => error.to_string(),
        };
        Failure::failed(format!("cannot keep state in {}: {what}", state.display()))
    };
    // Who could read the key could make handles for every file.
    if is_within(state, export).map_err(failed)? {
        return Err(Failure::usage("--state is in what --export serves; keep it elsewhere"));
    }
    let kept = State::open(state).map_err(failed)?;
    let fresh = Kept { key: secrets.key, fsid: secrets.fsid };
    Kept { key: secrets.key, fsid: secrets.fsid } = kept.keep(fresh).map_err(failed)?;
    Ok(kept)
}

/// Returns whether a path, of which not all may exist yet, is in a directory.
fn is_within(path: &Path, dir: &Path) -> io::Result<bool> {
    let path = std::path::absolute(path)?;
    let there = path.ancestors().find_map(|above| above.canonicalize().ok());
    Ok(there.is_some_and(|above| above.starts_with(dir)))
}

/// Of the memory, there may be one file for so many octets.
const OCTETS_PER_FILE: usize = 1024;

/// Less would be hardly a file.
const MEMORY_MIN: usize = 4 << 20;

/// What READs and WRITEs of a directory's files have in flight at once.
const DIRECTORY_ROOM: usize = 64 << 20;

/// What may be known of where a directory's files are: as much as for data, for some 400,000 files. All
/// that a directory's server takes besides the transport is twice this, a 64th of it for Replies that may
/// be asked for again, and what waits for searches.
const NAMES_ROOM: usize = DIRECTORY_ROOM;

/// Addresses that have this much room each in the duplicate request cache of a directory, at the least: for
/// the Replies to twice the Calls that a connection may have under way. More addresses have less each.
const ADDRESSES_MIN: usize = 6;

const _: () = {
    let replies = replays::Limits::of_memory(DIRECTORY_ROOM, RESULTS_KEPT).replies(End::Success);
    assert!(replies / ADDRESSES_MIN >= 2 * LIMITS_DEFAULT.credits_max as usize);
};

/// Files of a directory kept open.
const OPEN_MAX: usize = 1024;

/// Names looked at to find files that were renamed behind our back: a fraction of a second in all, which
/// is spread over turns.
const SEARCH_MAX: usize = 100_000;

/// Names looked at in one turn: others wait no longer than for a few of their own Calls.
const SEARCH_TURN_MAX: usize = 128;
