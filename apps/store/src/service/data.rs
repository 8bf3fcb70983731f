//! The procedures on data: READ, WRITE, COMMIT, READLINK. All but READLINK may end in a later turn.

use haulage_mr_pool::Local;
use haulage_proto::chunk::Item;

use super::pending::Pending;
use super::{Answer, LateReply, Reply, Service, Surroundings, allow, row};
use crate::backend::{
    Around, Backend, Context, Finished, Incoming, Octets, Progress, ReadDone, Ticket, WriteDone,
};
use crate::nfs3::arguments::{Commit, Read, Write};
use crate::nfs3::results::{Committed, Contents, Linked, Renamed, Target, Written};
use crate::nfs3::{
    Attributes, Data, Failure, FileHandle, FileType, Outcome, Path, Procedure, Results, Status,
    Verifier, Wcc,
};

impl<B: Backend> Service<B> {
    pub(super) fn read_link(&mut self, cx: &Context<'_>, link: FileHandle<'_>) -> Reply<'static> {
        let outcome = self.on_file(cx, link, |service, link, attributes| {
            allow(attributes.kind == FileType::Symlink, Status::Inval)?;
            service.backend.read_link(cx, link)
        });
        match outcome {
            Err(failure) => Results::ReadLink(Err(failure)).into(),
            Ok((held, attributes)) => {
                let path = Path(Item::Reduced { length: held.len() as u64 });
                let results = Results::ReadLink(Ok(Target { attributes, path }));
                Reply { results, data: row(held) }
            }
        }
    }

    pub(super) fn read(&mut self, cx: &Context<'_>, asked: &Read<'_>) -> Answer<'static> {
        let count = asked.count.min(self.config.limits.read_max) as usize;
        let ticket = self.ticket();
        let begun = self.on_file(cx, asked.file, |service, file, attributes| {
            allow(attributes.kind == FileType::Regular, Status::Inval)?;
            service.check_read(cx, file, attributes)?;
            let pending = Pending::new(Procedure::Read, file, cx);
            Ok(match service.backend.read(cx, ticket, file, asked.offset, count) {
                Progress::Ended(end) => Some(end?),
                Progress::Later => service.wait(ticket, pending),
            })
        });
        match begun {
            Ok((None, _)) => Answer::Later(ticket),
            Ok((Some(done), attributes)) => Answer::Now(read_reply(done, attributes)),
            Err(failure) => Answer::Now(Results::Read(Err(failure)).into()),
        }
    }

    pub(super) fn write(
        &mut self,
        cx: &Context<'_>,
        asked: &Write<'_>,
        placed: Option<Local>,
    ) -> Answer<'static> {
        let ticket = self.ticket();
        let begun = self.changing(cx, asked.file, |service, file, before| {
            allow(before.kind == FileType::Regular, Status::Inval)?;
            service.check_write(cx, file, before)?;
            allow(asked.data.length() == u64::from(asked.count), Status::Inval)?;
            let pending = Pending::new(Procedure::Write, file, cx);
            let write_max = service.config.limits.write_max as usize;
            let data = service.octets(asked.data.0, placed, write_max)?;
            let write = Incoming { offset: asked.offset, data, stable: asked.stable };
            Ok(match service.backend.write(cx, ticket, file, write) {
                Progress::Ended(end) => Some(end?),
                Progress::Later => service.wait(ticket, pending),
            })
        });
        match begun {
            Ok((None, _)) => Answer::Later(ticket),
            Ok((Some(done), wcc)) => Answer::Now(write_results(done, wcc).into()),
            Err(failure) => Answer::Now(Results::Write(Err(failure)).into()),
        }
    }

    pub(super) fn commit(&mut self, cx: &Context<'_>, asked: &Commit<'_>) -> Answer<'static> {
        let ticket = self.ticket();
        let begun = self.changing(cx, asked.file, |service, file, before| {
            allow(before.kind == FileType::Regular, Status::Inval)?;
            service.check_write(cx, file, before)?;
            let pending = Pending::new(Procedure::Commit, file, cx);
            let (offset, count) = (asked.offset, asked.count);
            Ok(match service.backend.commit(cx, ticket, file, offset, count) {
                Progress::Ended(end) => Some(end?),
                Progress::Later => service.wait(ticket, pending),
            })
        });
        match begun {
            Ok((None, _)) => Answer::Later(ticket),
            Ok((Some(verifier), wcc)) => Answer::Now(commit_results(verifier, wcc).into()),
            Err(failure) => Answer::Now(Results::Commit(Err(failure)).into()),
        }
    }

    /// Creates the Reply of a Call that has ended. Returns `None` if the Call is unknown.
    pub(super) fn finish(
        &mut self,
        around: Surroundings<'_>,
        finished: Finished,
    ) -> Option<(Ticket, LateReply)> {
        let ticket = match finished {
            Finished::Read(ticket, _)
            | Finished::Write(ticket, _)
            | Finished::Commit(ticket, _)
            | Finished::Made(ticket, ..)
            | Finished::Changed(ticket, ..) => ticket,
            Finished::LookedUp(ticket, dir) => {
                if let Some(ticket) = ticket
                    && !self.parking.wake_looking(ticket)
                {
                    // The Call was refused meanwhile, so its found names are dropped.
                    self.backend.look_up(ticket, [None; 2]);
                }
                self.parking.wake_first(dir);
                return None;
            }
            Finished::Listed(ticket, dir) => {
                if !self.parking.wake_looking(ticket) {
                    self.backend.look_up(ticket, [None; 2]);
                    self.parking.wake_lister(dir);
                }
                return None;
            }
            Finished::Located(file) => {
                self.parking.wake(file);
                return None;
            }
            Finished::Free(ticket, files, seen) => {
                self.note_after(around, ticket, seen);
                files.iter().for_each(|file| self.parking.wake_first(*file));
                return None;
            }
        };
        if let Some(reply) = self.finish_held(ticket, &finished) {
            return Some((ticket, reply));
        }
        let pending = self.pending.remove(&ticket)?;
        let cx = &Context { pool: around.pool, now: around.now, caller: &pending.caller };
        let after = match pending.after {
            Some([after, _]) => after,
            None => self.look(cx, pending.file).ok(),
        };
        // Other Calls may have written to the file since this one began to write, and the caller would take their changes
        // for its own (RFC 1813 section 2.6).
        let wcc = Wcc { before: pending.before, after };
        let failed = |status| Failure { status, rest: wcc };
        if let Finished::Made(_, made) = finished {
            return Some((ticket, self.made_later(cx, pending.procedure, wcc, made)));
        }
        if let Finished::Changed(_, ended) = finished {
            return Some((ticket, self.changed(cx, &pending, wcc, ended)));
        }
        let reply = match finished {
            Finished::Read(_, Ok(done)) => read_reply(done, after),
            Finished::Read(_, Err(status)) => {
                Results::Read(Err(Failure { status, rest: after })).into()
            }
            Finished::Write(_, Ok(done)) => write_results(done, wcc).into(),
            Finished::Write(_, Err(status)) => Results::Write(Err(failed(status))).into(),
            Finished::Commit(_, Ok(verifier)) => commit_results(verifier, wcc).into(),
            Finished::Commit(_, Err(status)) => Results::Commit(Err(failed(status))).into(),
            Finished::Made(..)
            | Finished::Changed(..)
            | Finished::Free(..)
            | Finished::LookedUp(..)
            | Finished::Listed(..)
            | Finished::Located(_) => return None,
        };
        Some((ticket, LateReply::from(reply)))
    }

    /// Creates the Reply of a Call that has changed a file or names. `wcc` is of the Call's first file.
    fn changed(
        &mut self,
        cx: &Context<'_>,
        pending: &Pending,
        wcc: Wcc,
        ended: Result<(), Status>,
    ) -> LateReply {
        let other = pending.other.map(|(other, before)| {
            let after = match pending.after {
                Some([_, after]) => after,
                None => self.look(cx, other).ok(),
            };
            (other, Wcc { before, after })
        });
        let of_one = ended.map(|()| wcc).map_err(|status| Failure { status, rest: wcc });
        Reply::from(match (pending.procedure, other) {
            (Procedure::Create, Some((_, wcc))) => {
                return self.made_later(cx, pending.procedure, wcc, ended.map(|()| pending.file));
            }
            (Procedure::Rename, Some((_, to))) => {
                let both = Renamed { from: wcc, to };
                Results::Rename(
                    ended.map(|()| both).map_err(|status| Failure { status, rest: both }),
                )
            }
            (Procedure::Link, Some((_, file))) => {
                let linked = Linked { attributes: file.after, dir: wcc };
                Results::Link(
                    ended.map(|()| linked).map_err(|status| Failure { status, rest: linked }),
                )
            }
            (Procedure::Remove, _) => Results::Remove(of_one),
            (Procedure::RmDir, _) => Results::RmDir(of_one),
            _ => Results::SetAttr(of_one),
        })
        .into()
    }

    /// Notes the attributes of the files of a Call after it has changed them, before another Call does.
    fn note_after(&mut self, around: Surroundings<'_>, ticket: Ticket, seen: Option<Around>) {
        let Some(pending) = self.pending.get(&ticket) else { return };
        let (file, other, caller) = (pending.file, pending.other, pending.caller);
        let cx = &Context { pool: around.pool, now: around.now, caller: &caller };
        let first = match seen {
            Some(seen) => Some(Attributes { fsid: self.sealer.fsid(), ..seen.after }),
            None => self.look(cx, file).ok(),
        };
        let second = other.and_then(|(other, _)| self.look(cx, other).ok());
        if let Some(pending) = self.pending.get_mut(&ticket) {
            pending.before = seen.map_or(pending.before, |seen| Some(seen.before.wcc()));
            pending.after = Some([first, second]);
        }
    }

    /// Returns whether a change has ended. If not, the Call is kept until it has.
    pub(super) fn until<T>(
        &mut self,
        progress: Progress<T>,
        ticket: Ticket,
        pending: Pending,
    ) -> Result<Option<T>, Status> {
        match progress {
            Progress::Ended(end) => end.map(Some),
            Progress::Later => Ok(self.wait(ticket, pending)),
        }
    }

    /// Answers a Call that has changed one file, or names in one directory, or will have.
    pub(super) fn answer(
        &mut self,
        ticket: Ticket,
        outcome: Outcome<(Option<()>, Wcc), Wcc>,
        results: impl FnOnce(Outcome<Wcc, Wcc>) -> Results<'static>,
    ) -> Answer<'static> {
        Answer::Now(match outcome {
            Ok((None, wcc)) => {
                self.note_before(ticket, wcc);
                return Answer::Later(ticket);
            }
            Ok((Some(()), wcc)) => results(Ok(wcc)).into(),
            Err(failure) => results(Err(failure)).into(),
        })
    }

    /// Notes the attributes of the first file of a Call before it was changed.
    pub(super) fn note_before(&mut self, ticket: Ticket, wcc: Wcc) {
        if let Some(pending) = self.pending.get_mut(&ticket) {
            pending.before = wcc.before;
        }
    }

    /// Notes the attributes of the other file of a Call before it was changed.
    pub(super) fn note_before_other(&mut self, ticket: Ticket, wcc: Wcc) {
        let pending = self.pending.get_mut(&ticket);
        if let Some((_, before)) = pending.and_then(|pending| pending.other.as_mut()) {
            *before = wcc.before;
        }
    }

    /// Returns the data of a Call, at most `max` octets.
    pub(super) fn octets<'a>(
        &self,
        item: Item<'a>,
        placed: Option<Local>,
        max: usize,
    ) -> Result<Octets<'a>, Status> {
        match (item, placed) {
            (Item::Unreduced(bytes), _) => Ok(Octets::Unreduced(bytes.get(..max).unwrap_or(bytes))),
            (Item::Reduced { length }, Some(mut lease)) => {
                // On version 1, padding may follow the data.
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                lease.set_len(lease.len().min(length).min(max));
                Ok(Octets::Placed(lease))
            }
            // The item is too long, so that it was not placed; a repetition would not help.
            (Item::Reduced { length }, None) if length > max as u64 => Err(Status::Inval),
            (Item::Reduced { .. }, None) => Err(self.backend.exhausted()),
        }
    }

    /// Returns the ticket for the backend's operation: a resumed Call's own, or a new one.
    pub(super) const fn ticket(&mut self) -> Ticket {
        if let Some(ticket) = self.resumed.take() {
            return ticket;
        }
        self.next_ticket += 1;
        Ticket { number: self.next_ticket, network: self.network }
    }

    /// Keeps a Call until the backend's operation ends.
    pub(super) fn wait<T>(&mut self, ticket: Ticket, pending: Pending) -> Option<T> {
        self.pending.insert(ticket, pending);
        None
    }
}

/// Returns the Reply of a READ. A client that believes the attributes takes the file to be as long as they say, so that the
/// Reply says that the file ends behind the octets exactly if they say so (RFC 1813 section 3.3.6).
pub(super) fn read_reply(done: ReadDone, mut attributes: Option<Attributes>) -> Reply<'static> {
    let length = done.data.len();
    let mut eof = done.eof;
    if let Some(told) = &attributes {
        let is_end = done.end >= told.size;
        // Octets that were added after there was none to read are the next READ's, with attributes of then.
        if !is_end && eof && length == 0 {
            attributes = None;
        } else {
            eof = is_end;
        }
    }
    // A READ never exceeds its limit, which is 32 bits.
    let count = u32::try_from(length).unwrap_or(u32::MAX);
    let data = Data(Item::Reduced { length: length as u64 });
    let results = Results::Read(Ok(Contents { attributes, count, eof, data }));
    Reply { results, data: done.data }
}

const fn write_results(done: WriteDone, file: Wcc) -> Results<'static> {
    let WriteDone { count, stable: committed, verifier } = done;
    Results::Write(Ok(Written { file, count, committed, verifier }))
}

const fn commit_results(verifier: Verifier, file: Wcc) -> Results<'static> {
    Results::Commit(Ok(Committed { file, verifier }))
}
