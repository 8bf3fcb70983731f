//! The procedures on names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK.

use haulage_mr_pool::Local;

use super::pending::Pending;
use super::{Answer, LateReply, Service, allow};
use crate::access::{EXECUTE, SET_GID};
use crate::backend::{Backend, Context, New, NewKind, Setting, Ticket};
use crate::handle::FileId;
use crate::nfs3::arguments::{Create, How, Link, MkDir, MkNod, Rename, Special, Symlink};
use crate::nfs3::results::{Found, Linked, Made, Renamed};
use crate::nfs3::{
    Attributes, DirName, Failure, FileType, Name, Outcome, PATH_MAX, Procedure, Results,
    SetAttributes, SetTime, Status, Time, Verifier, Wcc,
};

impl<B: Backend> Service<B> {
    pub(super) fn lookup(&mut self, cx: &Context<'_>, at: &DirName<'_>) -> Results<'_> {
        let outcome = self.on_file(cx, at.dir, |service, dir, attributes| {
            service.check_in(cx, dir, attributes, EXECUTE)?;
            service.check_name(at.name)?;
            let file = service.backend.lookup(cx, dir, at.name)?;
            Ok((file, service.look(cx, file).ok()))
        });
        Results::Lookup(outcome.map(|((file, attributes), dir)| {
            self.sealed = self.sealer.seal(file);
            Found { file: self.sealed.as_file_handle(), attributes, dir }
        }))
    }

    pub(super) fn create(&mut self, cx: &Context<'_>, asked: &Create<'_>) -> Answer<'_> {
        let ticket = self.ticket();
        let outcome = self.changing(cx, asked.at.dir, |service, dir, attributes| {
            let (wanted, exclusive) = match asked.how {
                How::Unchecked(wanted) | How::Guarded(wanted) => (wanted, None),
                How::Exclusive(verifier) => (marked(verifier), Some(verifier)),
            };
            let entry = NewEntry { dir, attributes, name: asked.at.name };
            let what = (NewKind::Regular, &wanted);
            let made = service.make(cx, (Procedure::Create, ticket), &entry, what);
            match (made, asked.how) {
                (Err(Status::Exist), How::Unchecked(_)) => {
                    service.reuse(cx, ticket, &entry, &wanted)
                }
                (Err(Status::Exist), How::Exclusive(_)) => {
                    let file = service.backend.lookup(cx, dir, asked.at.name)?;
                    let found = service.look(cx, file)?;
                    // A file with this verifier was created by the same Call, which is repeated.
                    allow(exclusive.is_some_and(|v| is_marked(&found, v)), Status::Exist)?;
                    Ok(Some(file))
                }
                (made, _) => made,
            }
        });
        self.making(cx, (Procedure::Create, ticket), outcome)
    }

    pub(super) fn mk_dir(&mut self, cx: &Context<'_>, asked: &MkDir<'_>) -> Answer<'_> {
        let ticket = self.ticket();
        let outcome = self.changing(cx, asked.at.dir, |service, dir, attributes| {
            let entry = NewEntry { dir, attributes, name: asked.at.name };
            let at = (Procedure::MkDir, ticket);
            service.make(cx, at, &entry, (NewKind::Directory, &asked.attributes))
        });
        self.making(cx, (Procedure::MkDir, ticket), outcome)
    }

    pub(super) fn symlink(
        &mut self,
        cx: &Context<'_>,
        asked: &Symlink<'_>,
        placed: Option<Local>,
    ) -> Answer<'_> {
        let ticket = self.ticket();
        let outcome = self.changing(cx, asked.at.dir, |service, dir, attributes| {
            let entry = NewEntry { dir, attributes, name: asked.at.name };
            allow(asked.path.length() <= PATH_MAX as u64, Status::NameTooLong)?;
            let path = service.octets(asked.path.0, placed, PATH_MAX)?;
            allow(!path.bytes().is_empty() && !path.bytes().contains(&0), Status::Inval)?;
            let what = (NewKind::Symlink(path.bytes()), &asked.attributes);
            service.make(cx, (Procedure::Symlink, ticket), &entry, what)
        });
        self.making(cx, (Procedure::Symlink, ticket), outcome)
    }

    pub(super) fn mk_nod(&mut self, cx: &Context<'_>, asked: &MkNod<'_>) -> Answer<'_> {
        let ticket = self.ticket();
        let outcome = self.changing(cx, asked.at.dir, |service, dir, attributes| {
            let entry = NewEntry { dir, attributes, name: asked.at.name };
            let (wanted, device) = match asked.what {
                Special::Character(wanted, device) | Special::Block(wanted, device) => {
                    allow(cx.caller.is_root(), Status::Perm)?;
                    (wanted, device)
                }
                Special::Socket(wanted) | Special::Fifo(wanted) => (wanted, Default::default()),
                Special::Ordinary(_) => return Err(Status::BadType),
            };
            let what = (NewKind::Special(asked.what.kind(), device), &wanted);
            service.make(cx, (Procedure::MkNod, ticket), &entry, what)
        });
        self.making(cx, (Procedure::MkNod, ticket), outcome)
    }

    pub(super) fn remove(&mut self, cx: &Context<'_>, at: &DirName<'_>) -> Answer<'static> {
        let ticket = self.ticket();
        let outcome = self.changing(cx, at.dir, |service, dir, attributes| {
            allow(!is_dots(at.name), Status::Inval)?;
            service.check_in(cx, dir, attributes, EXECUTE)?;
            service.check_name(at.name)?;
            let progress = service.backend.remove(cx, ticket, dir, at.name);
            service.until(progress, ticket, Pending::new(Procedure::Remove, dir, cx))
        });
        self.answer(ticket, outcome, Results::Remove)
    }

    pub(super) fn rm_dir(&mut self, cx: &Context<'_>, at: &DirName<'_>) -> Answer<'static> {
        let ticket = self.ticket();
        let outcome = self.changing(cx, at.dir, |service, dir, attributes| {
            allow(at.name.0 != b".", Status::Inval)?;
            allow(at.name.0 != b"..", Status::Exist)?;
            service.check_in(cx, dir, attributes, EXECUTE)?;
            service.check_name(at.name)?;
            let progress = service.backend.remove_dir(cx, ticket, dir, at.name);
            service.until(progress, ticket, Pending::new(Procedure::RmDir, dir, cx))
        });
        self.answer(ticket, outcome, Results::RmDir)
    }

    pub(super) fn rename(&mut self, cx: &Context<'_>, asked: &Rename<'_>) -> Answer<'static> {
        let ticket = self.ticket();
        let (from, to) = (asked.from, asked.to);
        let outcome = self.changing(cx, from.dir, |service, from_dir, from_attributes| {
            let inner = service.changing(cx, to.dir, |service, to_dir, to_attributes| {
                allow(!is_dots(from.name) && !is_dots(to.name), Status::Inval)?;
                service.check_in(cx, from_dir, from_attributes, EXECUTE)?;
                service.check_in(cx, to_dir, to_attributes, EXECUTE)?;
                service.check_name(from.name)?;
                service.check_name(to.name)?;
                let (from, to) = ((from_dir, from.name), (to_dir, to.name));
                let progress = service.backend.rename(cx, ticket, from, to);
                let mut pending = Pending::new(Procedure::Rename, from_dir, cx);
                pending.other = Some((to_dir, None));
                service.until(progress, ticket, pending)
            });
            Ok(inner)
        });
        let results = Results::Rename(match outcome {
            Err(failure) => Err(Failure {
                status: failure.status,
                rest: Renamed { from: failure.rest, to: Wcc::default() },
            }),
            Ok((Ok((None, to)), from)) => {
                self.note_before(ticket, from);
                self.note_before_other(ticket, to);
                return Answer::Later(ticket);
            }
            Ok((Ok((Some(()), to)), from)) => Ok(Renamed { from, to }),
            Ok((Err(failure), from)) => {
                let rest = Renamed { from, to: failure.rest };
                Err(Failure { status: failure.status, rest })
            }
        });
        Answer::Now(results.into())
    }

    pub(super) fn link(&mut self, cx: &Context<'_>, asked: &Link<'_>) -> Answer<'static> {
        let ticket = self.ticket();
        let mut attributes = None;
        let outcome = self.changing(cx, asked.at.dir, |service, dir, dir_attributes| {
            let file = service.sealer.open(asked.file)?;
            attributes = Some(service.look(cx, file)?);
            service.check_in(cx, dir, dir_attributes, EXECUTE)?;
            service.check_name(asked.at.name)?;
            allow(!is_dots(asked.at.name), Status::Exist)?;
            let progress = service.backend.link(cx, ticket, file, (dir, asked.at.name));
            let mut pending = Pending::new(Procedure::Link, dir, cx);
            pending.other = Some((file, None));
            let done = service.until(progress, ticket, pending)?;
            attributes = service.look(cx, file).ok();
            Ok(done)
        });
        let results = Results::Link(match outcome {
            Ok((None, dir)) => {
                self.note_before(ticket, dir);
                return Answer::Later(ticket);
            }
            Ok((Some(()), dir)) => Ok(Linked { attributes, dir }),
            Err(Failure { status, rest: dir }) => {
                Err(Failure { status, rest: Linked { attributes, dir } })
            }
        });
        Answer::Now(results.into())
    }

    /// Creates a file with the attributes that the caller may set.
    fn make(
        &mut self,
        cx: &Context<'_>,
        (procedure, ticket): (Procedure, Ticket),
        entry: &NewEntry<'_>,
        (kind, wanted): (NewKind<'_>, &SetAttributes),
    ) -> Result<Option<FileId>, Status> {
        self.check_in(cx, entry.dir, entry.attributes, EXECUTE)?;
        self.check_name(entry.name)?;
        allow(!is_dots(entry.name), Status::Exist)?;
        if self.backend.lookup(cx, entry.dir, entry.name).is_ok() {
            return Err(Status::Exist);
        }
        allow(wanted.has_valid_times(), Status::Inval)?;
        let new = entry.owned(cx, kind, wanted);
        let progress = self.backend.make(cx, ticket, (entry.dir, entry.name), new);
        self.until(progress, ticket, Pending::new(procedure, entry.dir, cx))
    }

    /// Returns the existing regular file of this name; truncates it if a size is set, and returns none if that ends later.
    fn reuse(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        entry: &NewEntry<'_>,
        wanted: &SetAttributes,
    ) -> Result<Option<FileId>, Status> {
        let file = self.backend.lookup(cx, entry.dir, entry.name)?;
        let found = self.look(cx, file)?;
        allow(found.kind == FileType::Regular, Status::Exist)?;
        if wanted.size.is_some() {
            let to = SetAttributes { size: wanted.size, ..SetAttributes::default() };
            let progress = self.backend.change(cx, ticket, file, &Setting::from(to));
            let mut pending = Pending::new(Procedure::Create, file, cx);
            pending.other = Some((entry.dir, None));
            return Ok(self.until(progress, ticket, pending)?.map(|()| file));
        }
        Ok(Some(file))
    }

    /// Answers a Call that has created a file, or will have.
    fn making(
        &mut self,
        cx: &Context<'_>,
        (procedure, ticket): (Procedure, Ticket),
        outcome: Outcome<(Option<FileId>, Wcc), Wcc>,
    ) -> Answer<'_> {
        let outcome = match outcome {
            Ok((None, dir)) => {
                self.note_before_making(ticket, dir);
                return Answer::Later(ticket);
            }
            Ok((Some(file), dir)) => Ok((file, dir)),
            Err(failure) => Err(failure),
        };
        Answer::Now(self.made(cx, procedure, outcome).into())
    }

    /// Notes the attributes of a directory before a file was created in it, or before one that was there is cut.
    fn note_before_making(&mut self, ticket: Ticket, dir: Wcc) {
        match self.pending.get(&ticket) {
            Some(Pending { other: Some(_), .. }) => self.note_before_other(ticket, dir),
            _ => self.note_before(ticket, dir),
        }
    }

    /// Returns the Reply of a Call that created a file, or cut the one that a CREATE found.
    pub(super) fn made_later(
        &mut self,
        cx: &Context<'_>,
        procedure: Procedure,
        dir: Wcc,
        made: Result<FileId, Status>,
    ) -> LateReply {
        let outcome = match made {
            Ok(file) => Ok((file, dir)),
            // Another process made a file of this name after the CREATE had looked for one.
            Err(Status::Exist) if procedure == Procedure::Create => {
                Err(Failure { status: Status::Jukebox, rest: dir })
            }
            Err(status) => Err(Failure { status, rest: dir }),
        };
        let results = self.made(cx, procedure, outcome);
        LateReply::of(procedure, &results)
    }

    /// Creates the results of a procedure that creates a file.
    fn made(
        &mut self,
        cx: &Context<'_>,
        procedure: Procedure,
        outcome: Outcome<(FileId, Wcc), Wcc>,
    ) -> Results<'_> {
        let made = outcome.map(|(file, dir)| {
            let attributes = self.look(cx, file).ok();
            self.sealed = self.sealer.seal(file);
            Made { file: Some(self.sealed.as_file_handle()), attributes, dir }
        });
        match procedure {
            Procedure::MkDir => Results::MkDir(made),
            Procedure::Symlink => Results::Symlink(made),
            Procedure::MkNod => Results::MkNod(made),
            _ => Results::Create(made),
        }
    }
}

/// A directory entry to be created: the directory, and the name of the new file.
struct NewEntry<'a> {
    dir: FileId,
    attributes: &'a Attributes,
    name: Name<'a>,
}

impl NewEntry<'_> {
    /// Returns the file to be created, with the owner and the group that the caller may give it.
    fn owned<'k>(&self, cx: &Context<'_>, kind: NewKind<'k>, wanted: &SetAttributes) -> New<'k> {
        let caller = cx.caller;
        let inherits = self.attributes.mode & SET_GID != 0;
        let own = if inherits { self.attributes.gid } else { caller.gid };
        let may_give = |gid: &u32| caller.is_root() || caller.is_of(*gid);
        let gid = wanted.group().filter(may_give).unwrap_or(own);
        let uid = wanted.owner().filter(|_| caller.is_root()).unwrap_or(caller.uid);
        let is_dir = matches!(kind, NewKind::Directory);
        let mode = wanted.mode.unwrap_or(if is_dir { 0o700 } else { 0o600 });
        let keeps = is_dir || caller.is_root() || caller.is_of(gid);
        let mode = if keeps { mode } else { mode & !SET_GID };
        let mode = if is_dir && inherits { mode | SET_GID } else { mode };
        let size = wanted.size.filter(|_| matches!(kind, NewKind::Regular));
        New { kind, mode, uid, gid, size, atime: wanted.atime, mtime: wanted.mtime }
    }
}

/// Returns the attributes that mark a file as created with this verifier, in its times. The client sets the real times
/// once it knows that the file is its own (RFC 1813 section 3.3.8).
const fn marked(verifier: Verifier) -> SetAttributes {
    let (atime, mtime) = marks(verifier);
    SetAttributes {
        mode: None,
        uid: None,
        gid: None,
        size: None,
        atime: SetTime::To(atime),
        mtime: SetTime::To(mtime),
    }
}

/// Returns whether a file was created with this verifier and not changed since.
fn is_marked(file: &Attributes, verifier: Verifier) -> bool {
    let is_new = file.kind == FileType::Regular && file.size == 0;
    let (atime, mtime) = marks(verifier);
    is_new && has_mark(file.atime, atime) && has_mark(file.mtime, mtime)
}

/// Returns two times that encode the verifier, half of it each: 31 bits in the seconds, as many as all file systems
/// keep, and the first bit in the nanoseconds.
#[expect(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
const fn marks(verifier: Verifier) -> (Time, Time) {
    (mark((verifier.0 >> 32) as u32), mark(verifier.0 as u32))
}

const fn mark(half: u32) -> Time {
    Time { seconds: half & (FIRST_BIT - 1), nanoseconds: NANOSECONDS[(half / FIRST_BIT) as usize] }
}

/// Returns whether a file has one of the times of a verifier. Earlier servers left the nanoseconds at zero, and a file
/// system of whole seconds does: the seconds have to do there.
fn has_mark(found: Time, mark: Time) -> bool {
    found.seconds == mark.seconds
        && (found.nanoseconds == mark.nanoseconds || found.nanoseconds == 0)
}

fn is_dots(name: Name<'_>) -> bool {
    matches!(name.0, b"." | b"..")
}

/// The first bit of half a verifier.
const FIRST_BIT: u32 = 1 << 31;
/// The nanoseconds of a time that has half a verifier, by the first bit of that half. No file system rounds one to the
/// other, or to zero, unless it keeps only whole seconds.
const NANOSECONDS: [u32; 2] = [250_000_000, 750_000_000];
