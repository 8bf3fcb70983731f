//! What a directory does for a server.

use haulage::service::ResultSource;
use haulage_mr_pool::Piece;
use rustix::fs::{self, AtFlags};

use super::Directory;
use super::changes::ACROSS;
use super::data::{FileData, progress, transferred};
use super::system::look::{FILE_MAX, Look};
use crate::access::WRITE;
use crate::backend::{
    Backend, Capabilities, Context, Finished, Incoming, Listing, Located, Names, New, Progress,
    ReadDone, Room, Setting, Shown, Ticket, WriteDone,
};
use crate::handle::FileId;
use crate::nfs3::{Attributes, FileType, Name, Status, Time, Verifier};

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
        let changed = &mut self.tree.files.shared.changed;
        self.lists.recent.note_told(changed, (id, attributes.ctime), cx.now);
        Ok(attributes)
    }

    fn check(
        &mut self,
        cx: &Context<'_>,
        file: FileId,
        attributes: &Attributes,
        wanted: u32,
    ) -> Result<(), Status> {
        if self.plain.has(file, attributes.ctime) {
            return cx.caller.check(attributes, wanted);
        }
        let (node, look) = self.tree.find(file)?;
        if wanted & WRITE != 0 && look.is_held() {
            return Err(Status::Perm);
        }
        let may = node.acl.allows((cx.caller, wanted), attributes, &node.place)?;
        if node.acl.is_none(attributes.ctime) && !look.is_held() {
            self.plain.note(file, attributes.ctime);
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
        let plan = self.changes.set(&mut self.tree, cx.caller, file, setting);
        progress(plan.and_then(|plan| self.begin(ticket, plan)).map(nothing))
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
        self.lists.tell_read(&mut self.tree, dir, name.0)
    }

    fn make(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        at: (FileId, Name<'_>),
        new: New<'_>,
    ) -> Progress<FileId> {
        let plan = self.changes.make(&mut self.tree, cx.caller, at, &new);
        progress(plan.and_then(|plan| self.begin(ticket, plan)).map(Option::flatten))
    }

    fn link(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        (dir, name): (FileId, Name<'_>),
    ) -> Progress<()> {
        let plan = self.changes.link(&mut self.tree, cx.caller, file, (dir, name));
        progress(plan.and_then(|plan| self.begin(ticket, plan)).map(nothing))
    }

    fn remove(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        dir: FileId,
        name: Name<'_>,
    ) -> Progress<()> {
        self.unlink((cx, ticket), (dir, name), AtFlags::empty())
    }

    fn remove_dir(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        dir: FileId,
        name: Name<'_>,
    ) -> Progress<()> {
        self.unlink((cx, ticket), (dir, name), AtFlags::REMOVEDIR)
    }

    fn rename(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Progress<()> {
        let plan = self.changes.rename(&mut self.tree, cx.caller, from, to);
        progress(plan.and_then(|plan| self.begin(ticket, plan)).map(nothing))
    }

    fn list(
        &mut self,
        _: &Context<'_>,
        dir: FileId,
        after: u64,
        show: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> Result<bool, Status> {
        let dir = self.tree.directory(dir)?;
        self.lists.show_read(dir.id, after, show)
    }

    fn read_link(&mut self, cx: &Context<'_>, link: FileId) -> Result<Piece, Status> {
        let (node, look) = self.tree.find(link)?;
        if look.attributes.kind != FileType::Symlink {
            return Err(Status::Inval);
        }
        let path = fs::readlinkat(&node.place, "", Vec::new())?;
        if self.tree.files.notes_reading(&look.attributes, cx.now) {
            self.tree.files.note_change([link]);
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
        progress(self.data.read(&mut self.tree, (cx, ticket), file, (offset, count)))
    }

    fn write(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        write: Incoming<'_>,
    ) -> Progress<WriteDone> {
        // A WRITE of a file that is being cut is refused at once, because its data would hold memory while it waits.
        let uncut = self.changes.check_uncut(file);
        progress(uncut.and_then(|()| self.data.write(&mut self.tree, (cx, ticket), file, write)))
    }

    fn commit(
        &mut self,
        _: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        _: u64,
        _: u32,
    ) -> Progress<Verifier> {
        progress(self.data.commit(&mut self.tree, ticket, file))
    }

    fn is_unsettled(&self, file: FileId) -> bool {
        self.settling.is_unsettled(file)
    }

    fn settle(&mut self, ticket: Ticket, files: [Option<FileId>; 3]) -> Result<(), Status> {
        self.settling.settle_others(ticket, files)
    }

    fn look_up(&mut self, ticket: Ticket, names: [Option<(FileId, Name<'_>)>; 2]) -> Names {
        if let [Some((from, _)), Some((to, _))] = names
            && from != to
            && self.changes.is_changing(ACROSS, None)
        {
            return Names::Behind(ACROSS);
        }
        self.lists.leave(&self.tree.files.helpers, ticket);
        self.look_ups.look_up(&mut self.tree, ticket, names)
    }

    fn look_into(&mut self, ticket: Ticket, listing: &Listing) -> Names {
        self.lists.look_into(&mut self.tree, ticket, listing)
    }

    fn is_changing(&self, file: FileId, name: Option<Name<'_>>) -> bool {
        self.changes.is_changing(file, name.map(|name| name.0))
    }

    fn expect(&mut self, dir: FileId, name: Name<'_>) {
        self.look_ups.expect(&mut self.tree, dir, name);
    }

    fn named_changing(&self) -> Option<FileId> {
        self.changes.named(&self.tree)
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
        self.lists.turn();
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
            let ended = self.tree.files.helpers.next_ended();
            let finished = if let Some(ended) = ended {
                self.ended(ended)
            } else {
                let Self { tree, settling, data: FileData { transfers, .. }, .. } = self;
                self.look_ups.look_ahead(tree);
                settling.begin_syncs(&mut tree.files, transfers);
                match settling.next_ended() {
                    Some(settled) => Some(settled),
                    None => transferred(&mut tree.files, settling, transfers.poll()?),
                }
            };
            if finished.is_some() {
                return finished;
            }
        }
    }
}

impl Directory {
    fn unlink(
        &mut self,
        (cx, ticket): (&Context<'_>, Ticket),
        at: (FileId, Name<'_>),
        flags: AtFlags,
    ) -> Progress<()> {
        let plan = self.changes.unlink(&mut self.tree, cx.caller, at, flags);
        progress(plan.and_then(|plan| self.begin(ticket, plan)).map(nothing))
    }
}

/// Returns nothing for a change that makes no file.
fn nothing(done: Option<Option<FileId>>) -> Option<()> {
    done.map(drop)
}

/// Maximum number of names of a file: the limit of ext4, the least of the common file systems.
const LINKS_MAX: u32 = 65_000;
