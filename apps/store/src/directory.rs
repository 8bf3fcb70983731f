//! A backend that exports a directory tree of the system.
//!
//! # Normal operation
//! A file is identified by its inode number and its creation time. Every step into the tree opens one name relative to
//! an open directory, never through a symbolic link and never onto another mount, for which an empty directory
//! stands in. So no name and no link leads out of the tree, whoever created it.
//!
//! Attributes of open files are read by blocking system calls: the core waits for the disk if they are not cached. Calls
//! that arrived together share what was read, until the server changes a file. Attributes are changed by helper threads,
//! which also look up names that are not cached, find files that are not open, and list directories. The Reply to a change
//! waits until a sync of all that was changed has ended, and nothing else does. With a [`Ring`], the core never waits for
//! data.
//!
//! # Recovery
//! [`State`] records where files are, so that handles outlive the server. Files that were renamed outside the server
//! are searched for.
//!
//! # Limits
//! Descriptors are bounded by [`Config::open_max`], at most [`DESCRIPTORS_PER_FILE`] for each file, and a few beside.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use haulage::provider::Waker;
use haulage::service::ResultSource;
use haulage::sys::files::FileRing;
use haulage::sys::uring::Unavailable;
use haulage_mr_pool::{Piece, Pool};
use rustix::fs::{self, AtFlags};
use rustix::process::{getegid, geteuid, umask};

use crate::access::WRITE;
use crate::backend::{
    Backend, Capabilities, Context, Finished, Incoming, Listing, Located, New, Progress, ReadDone,
    Room, Setting, Shown, Ticket, WriteDone,
};
use crate::handle::{FileId, scatter};
use crate::nfs3::{Attributes, FileType, Name, Status, Time, Verifier};

mod attributes;
mod changes;
mod closing;
mod config;
mod data;
mod found;
mod helpers;
mod jobs;
mod journal;
mod known;
mod lists;
mod names;
mod node;
mod recent;
mod settling;
mod state;
mod surroundings;
mod system;
mod transfers;
mod tree;

pub use config::Config;
pub use haulage::sys::namespace::{Ids, is_alone};
pub use state::{Kept, State};
pub use surroundings::{Surroundings, surroundings};
pub use system::rights::is_overriding;

use changes::Change;
use data::progress;
use jobs::Ended;
#[cfg(test)]
use jobs::making::Between;
use known::Known;
use lists::{Read, Reading};
use node::Node;
use recent::Recent;
use settling::Settling;
use system::look::{FILE_MAX, Look};
use system::rights::Rights;
use transfers::{Transfers, UnderWay};
use tree::Tree;
use tree::found::Found;

/// The files of a directory tree.
#[derive(Debug)]
pub struct Directory {
    /// Transfers, which have ended before the next server may begin.
    transfers: Transfers,
    /// Holds the lock on the state directory, until all is closed that may take long to close.
    _state: Option<State>,
    tree: Tree,
    rights: Arc<Rights>,
    /// Changes that helpers make.
    changes: BTreeMap<Ticket, Change>,
    /// Changes that are made and not on stable storage yet.
    settling: Settling,
    /// What helpers have looked up for Calls that wait.
    looked: BTreeMap<Ticket, Vec<Found>>,
    /// Names that Calls will take which wait for changes of these directories.
    expected: BTreeMap<FileId, Vec<Box<[u8]>>>,
    /// Directories that are read for Calls that wait.
    lists: BTreeMap<Ticket, Reading>,
    /// What was read for the Call that is executed.
    listed: Option<Read>,
    /// What was read for the Calls before.
    recent: Recent,
    /// Files that their permission bits alone allow what they allow, each with the `ctime` with which they do.
    plain: Box<[(FileId, Time)]>,
    direct: bool,
    stable: bool,
    run: u64,
    /// Number of failures to make something stable.
    failures: u64,
    name_max: u32,
    #[cfg(test)]
    between: Between,
}

impl Directory {
    /// Opens the tree below `path`. `state` holds where files were seen by earlier runs. Data is transferred by `ring`,
    /// or by blocking calls if there is none.
    ///
    /// # Errors
    /// `path` is no directory, the system is too old, or `/proc` is missing.
    pub fn open(
        path: &Path,
        state: Option<State>,
        ring: Option<Ring>,
        config: Config,
    ) -> io::Result<Self> {
        let known = match &state {
            Some(state) => Known::from_journal(state.journal()?, config.known_octets_max)?,
            None => Known::new(config.known_octets_max),
        };
        let tree = Tree::new(path, known, &config)?;
        let names = fs::fstatvfs(&tree.files.root().place)?.f_namemax;
        let name_max = u32::try_from(names).unwrap_or(NAME_MAX).min(NAME_MAX);
        // The permission bits of new files are those that callers ask for.
        umask(fs::Mode::empty());
        let rights = Arc::new(Rights::find()?);
        let ring = ring.map(|ring| ring.0);
        let transfers = Transfers::new(
            ring,
            Arc::clone(&rights),
            (&tree.files.root().place, &tree.files.helpers),
        )?;
        let Config { run, stable, direct, .. } = config;
        let (failures, _state) = (0, state);
        Ok(Self {
            transfers,
            _state,
            tree,
            rights,
            changes: BTreeMap::new(),
            settling: Settling::new(),
            looked: BTreeMap::new(),
            expected: BTreeMap::new(),
            lists: BTreeMap::new(),
            listed: None,
            recent: Recent::new(config.lists_kept),
            plain: vec![(FileId { inode: 0, generation: 0 }, Time::default()); PLAIN].into(),
            direct,
            stable,
            run,
            failures,
            name_max,
            #[cfg(test)]
            between: Between(Arc::new(|| ())),
        })
    }
}

impl Directory {
    /// Has files and names changed beside the core, which `waker` wakes then.
    #[must_use]
    pub fn woken_by(self, waker: &Waker) -> Self {
        self.tree.files.helpers.wake_by(waker.clone());
        self
    }

    /// Keeps a file of the top directory open, by a descriptor that the caller opened with `O_PATH`, as a LOOKUP does that
    /// finds it by `name`. Returns its ID. `benches/counts` has READs by it: valgrind 3.19 knows no `openat2`, by which
    /// names are looked up.
    ///
    /// # Errors
    /// The system does not tell the file's attributes.
    #[doc(hidden)]
    pub fn keep_open(&mut self, place: OwnedFd, name: &[u8]) -> io::Result<FileId> {
        let (node, _) = Node::new(place, &self.tree.files.helpers)?;
        let id = node.id;
        self.tree.files.keep(node, self.tree.files.root().id, name);
        Ok(id)
    }
}

#[cfg(test)]
impl Directory {
    /// Closes all files, and from now on opens files only by name, like a server without privileges.
    pub(crate) fn open_by_names_alone(&mut self) {
        self.tree.files.close_mount();
        self.tree.files.close_all();
    }

    /// Closes all files, and from now on has the system know no name on the way to a file without waiting.
    pub(crate) fn close_all(&mut self) {
        self.tree.files.close_all();
        self.tree.files.forget_names();
    }

    /// Has the system know names without waiting again.
    pub(crate) fn recall_names(&mut self) {
        self.tree.files.recall_names();
    }

    /// Returns what keeps every helper from acting while it is true, like the lock of an inode.
    pub(crate) fn gate(&self) -> Arc<std::sync::atomic::AtomicBool> {
        self.tree.files.helpers.gate()
    }

    /// Returns what keeps every helper from syncing while it is true.
    pub(crate) fn sync_gate(&self) -> Arc<std::sync::atomic::AtomicBool> {
        self.tree.files.helpers.sync_gate()
    }

    /// Returns what keeps every helper from closing a file while it is true.
    pub(crate) fn close_gate(&self) -> Arc<std::sync::atomic::AtomicBool> {
        self.tree.files.helpers.close_gate()
    }

    /// Returns the number of WRITEs and changes that wait for room.
    pub(crate) fn roomless(&self) -> usize {
        self.transfers.roomless() + self.tree.files.helpers.roomless()
    }

    /// Returns how often a file, or a directory, was synced, or began to be.
    pub(crate) fn syncs_of(&self, file: FileId) -> usize {
        self.settling.syncs_of(file)
    }

    /// Returns the number of helpers that have something to do other than to list.
    pub(crate) fn busy(&self) -> usize {
        self.tree.files.helpers.busy()
    }

    /// Returns whether no Call waits for stable storage.
    pub(crate) fn is_settled(&self) -> bool {
        self.settling.is_settled()
    }

    /// Has all syncs fail that begin from now on.
    pub(crate) const fn fail_syncs(&mut self) {
        self.settling.fail();
    }

    /// Returns the number of changes and look-ups that helpers are to make.
    pub(crate) fn under_way(&self) -> usize {
        self.changes.len()
    }

    /// Returns whether nothing is kept of what helpers looked up.
    pub(crate) fn has_found_nothing(&self) -> bool {
        self.looked.is_empty() && self.lists.is_empty()
    }

    /// Returns whether the helpers have nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.tree.files.helpers.is_idle()
    }

    /// Has another process act whenever a file was created by its name and is not yet opened by it.
    pub(crate) fn between(&mut self, act: impl Fn() + Send + std::marker::Sync + 'static) {
        self.between = Between(Arc::new(act));
    }
}

/// Asynchronous file I/O, by io_uring.
#[derive(Debug)]
pub struct Ring(FileRing<UnderWay>);

impl Ring {
    /// Creates a ring over a core's memory. A completion wakes the core.
    ///
    /// # Errors
    /// io_uring is not available.
    pub fn new(pool: &Pool, waker: &Waker) -> Result<Self, Unavailable> {
        FileRing::new(TRANSFERS_MAX, pool, waker).map(Self)
    }

    /// Returns whether the memory is registered with io_uring, which makes transfers a little faster.
    pub fn is_registered(&self) -> bool {
        self.0.is_registered()
    }
}

/// A user and a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// Returns the owner of all files that this process creates, or `None` if the process may create files for others, give
/// files away, and use files of other users as its own. In a user namespace of one user, or of one group, there is
/// nobody else.
///
/// # Errors
/// The system's, if it starts no thread to find that out.
pub fn sole_owner() -> io::Result<Option<Owner>> {
    let owner = Owner { uid: geteuid().as_raw(), gid: getegid().as_raw() };
    Ok(Rights::find()?.is_sole_owner().then_some(owner))
}

impl Backend for Directory {
    fn root(&self) -> FileId {
        self.tree.files.root().id
    }

    fn read_source(&self) -> ResultSource {
        ResultSource::Leased
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name_max: self.name_max,
            links_max: LINKS_MAX,
            file_max: FILE_MAX,
            time_delta: Time { seconds: 0, nanoseconds: 1 },
        }
    }

    fn room(&mut self, _: &Context<'_>) -> Result<Room, Status> {
        let room = fs::fstatvfs(&self.tree.files.root().place)?;
        let octets = |blocks: u64| blocks.saturating_mul(room.f_frsize);
        Ok(Room {
            total_bytes: octets(room.f_blocks),
            free_bytes: octets(room.f_bfree),
            available_bytes: octets(room.f_bavail),
            total_files: room.f_files,
            free_files: room.f_ffree,
            available_files: room.f_favail,
        })
    }

    fn attributes(&mut self, cx: &Context<'_>, file: FileId) -> Result<Attributes, Status> {
        let (_, Look { id, attributes, .. }) = self.tree.find(file)?;
        self.recent.note_told(id, attributes.ctime, cx.now);
        Ok(attributes)
    }

    fn check(
        &mut self,
        cx: &Context<'_>,
        file: FileId,
        attributes: &Attributes,
        wanted: u32,
    ) -> Result<(), Status> {
        let known = scatter(file.inode, PLAIN);
        if self.plain.get(known) == Some(&(file, attributes.ctime)) {
            return cx.caller.check(attributes, wanted);
        }
        let (node, look) = self.tree.find(file)?;
        if wanted & WRITE != 0 && look.is_held() {
            return Err(Status::Perm);
        }
        let may = node.acl.allows((cx.caller, wanted), attributes, &node.place)?;
        if node.acl.is_none(attributes.ctime)
            && !look.is_held()
            && let Some(known) = self.plain.get_mut(known)
        {
            *known = (file, attributes.ctime);
        }
        if may { Ok(()) } else { Err(Status::Acces) }
    }

    fn change(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        setting: &Setting,
    ) -> Progress<()> {
        progress(self.begin_set((cx.caller, ticket), file, setting))
    }

    fn lookup(&mut self, _: &Context<'_>, dir: FileId, name: Name<'_>) -> Result<FileId, Status> {
        let dir = self.tree.directory(dir)?;
        match name.0 {
            b"." => Ok(dir.id),
            b".." => self.tree.files.parent(&dir),
            name => self.tree.child(&dir, name).map(|(node, _)| node.id),
        }
    }

    fn listed(
        &mut self,
        dir: FileId,
        name: Name<'_>,
    ) -> Option<Result<(FileId, Attributes), Status>> {
        self.tell_read(dir, name.0)
    }

    fn make(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        at: (FileId, Name<'_>),
        new: New<'_>,
    ) -> Progress<FileId> {
        progress(self.begin_make((cx.caller, ticket), at, &new))
    }

    fn link(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        (dir, name): (FileId, Name<'_>),
    ) -> Progress<()> {
        progress(self.begin_link((cx.caller, ticket), file, (dir, name)))
    }

    fn remove(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        dir: FileId,
        name: Name<'_>,
    ) -> Progress<()> {
        progress(self.begin_unlink((cx.caller, ticket), (dir, name), AtFlags::empty()))
    }

    fn remove_dir(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        dir: FileId,
        name: Name<'_>,
    ) -> Progress<()> {
        progress(self.begin_unlink((cx.caller, ticket), (dir, name), AtFlags::REMOVEDIR))
    }

    fn rename(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Progress<()> {
        progress(self.begin_rename((cx.caller, ticket), from, to))
    }

    fn list(
        &mut self,
        _: &Context<'_>,
        dir: FileId,
        after: u64,
        show: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> Result<bool, Status> {
        let dir = self.tree.directory(dir)?;
        self.show_read(dir.id, after, show)
    }

    fn read_link(&mut self, cx: &Context<'_>, link: FileId) -> Result<Piece, Status> {
        let (node, look) = self.tree.find(link)?;
        if look.attributes.kind != FileType::Symlink {
            return Err(Status::Inval);
        }
        let path = fs::readlinkat(&node.place, "", Vec::new())?;
        if self.tree.files.notes_reading(&look.attributes, cx.now) {
            self.note_change([link]);
        }
        let mut lease = cx.pool.lease(path.as_bytes().len()).ok_or(Status::Jukebox)?;
        lease.bytes_mut().copy_from_slice(path.as_bytes());
        Ok(Piece::whole(lease.share()))
    }

    fn read(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        offset: u64,
        count: usize,
    ) -> Progress<ReadDone> {
        progress(self.begin_read(cx, ticket, file, offset, count))
    }

    fn write(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        write: Incoming<'_>,
    ) -> Progress<WriteDone> {
        progress(self.begin_write(cx, ticket, file, write))
    }

    fn commit(
        &mut self,
        _: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        _: u64,
        _: u32,
    ) -> Progress<Verifier> {
        progress(self.begin_commit(ticket, file))
    }

    fn is_unsettled(&self, file: FileId) -> bool {
        self.settling.is_unsettled(file)
    }

    fn settle(&mut self, ticket: Ticket, files: [Option<FileId>; 3]) -> Result<(), Status> {
        self.settle_others(ticket, files)
    }

    fn look_up(
        &mut self,
        ticket: Ticket,
        names: [Option<(FileId, Name<'_>)>; 2],
    ) -> crate::backend::Names {
        self.look_up(ticket, names)
    }

    fn look_into(&mut self, ticket: Ticket, listing: &Listing) -> crate::backend::Names {
        self.look_into(ticket, listing)
    }

    fn is_changing(&self, file: FileId, name: Option<Name<'_>>) -> bool {
        self.is_changing(file, name.map(|name| name.0))
    }

    fn expect(&mut self, dir: FileId, name: Name<'_>) {
        self.expect(dir, name);
    }

    fn named_changing(&self) -> Option<FileId> {
        self.named_changing()
    }

    fn is_read_only(&self, file: FileId) -> bool {
        self.tree.files.is_stand_in(file)
    }

    fn is_mounted_read_only(&self) -> bool {
        let mounted = fs::fstatvfs(&self.tree.files.root().place);
        mounted.is_ok_and(|mounted| mounted.f_flag.contains(fs::StatVfsMountFlags::RDONLY))
    }

    fn forget_attributes(&mut self) {
        self.tree.files.forget_looks();
    }

    fn turn(&mut self) -> bool {
        self.listed = None;
        self.recent.turn();
        self.tree.turn()
    }

    fn has_work(&self) -> bool {
        self.tree.is_searching() || self.settling.has_ended()
    }

    fn is_at_hand(&self, file: FileId) -> bool {
        self.tree.files.is_at_hand(file)
    }

    fn locate(&mut self, file: FileId) -> Located {
        self.tree.locate(file)
    }

    fn poll(&mut self) -> Option<Finished> {
        loop {
            if let Some(file) = self.tree.next_searched() {
                return Some(Finished::Located(file));
            }
            if let Some(dir) = self.tree.next_left() {
                return Some(Finished::LookedUp(None, dir));
            }
            match self.tree.files.helpers.next_ended() {
                Some(Ended::Changed(ticket, done)) => {
                    let finished = self.changed(ticket, done);
                    if finished.is_some() {
                        return finished;
                    }
                }
                Some(Ended::LookedUp(ticket, found)) => {
                    let finished = self.looked_up(ticket, found);
                    if finished.is_some() {
                        return finished;
                    }
                }
                Some(Ended::Listed(ticket, names)) => {
                    if let Some(dir) = self.finish_list(ticket, names) {
                        return Some(Finished::Listed(ticket, dir));
                    }
                }
                Some(Ended::Stepped(file, done)) => self.tree.stepped(file, done),
                Some(Ended::Searched(part)) => self.tree.searched(*part),
                Some(Ended::Synced(target, done)) => self.synced(target, done),
                None => {
                    self.look_ahead();
                    self.begin_syncs();
                    let settled = self.settling.next_ended();
                    if settled.is_some() {
                        return settled;
                    }
                    let ended = self.transfers.poll()?;
                    let finished = self.transferred(ended);
                    if finished.is_some() {
                        return finished;
                    }
                }
            }
        }
    }
}

/// Maximum number of descriptors for each file that may stay open: its place, and those for reading and writing with and
/// without the page cache.
pub const DESCRIPTORS_PER_FILE: usize = 5;

/// Maximum number of transfers between files and memory in flight: 128 READs, WRITEs and syncs each.
const TRANSFERS_MAX: u16 = 384;
/// Number of places for files that have no ACL.
const PLAIN: usize = 1 << 8;
/// Maximum length of a name on Linux, in octets.
const NAME_MAX: u32 = 255;
/// Maximum number of names of a file: the limit of ext4, the least of the common file systems.
const LINKS_MAX: u32 = 65_000;

#[cfg(test)]
mod tests;
