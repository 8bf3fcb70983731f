//! Tests with a backend that answers in a later turn.

use std::collections::VecDeque;

use super::*;
use crate::backend::*;
use haulage_mr_pool::Piece;

/// A backend that holds back the results of READ, WRITE and COMMIT until it releases them.
pub(crate) struct Slow {
    inner: Memory,
    held: VecDeque<Finished>,
    is_open: bool,
    /// Files that have to be searched for.
    pub(super) lost: Vec<FileId>,
    sought: VecDeque<FileId>,
    /// Whether the backend accepts no more searches.
    pub(super) is_busy: bool,
}

impl Slow {
    pub(crate) const fn new(inner: Memory) -> Self {
        let held = VecDeque::new();
        let sought = VecDeque::new();
        Self { inner, held, is_open: false, lost: Vec::new(), sought, is_busy: false }
    }

    /// Releases all results, present and future.
    pub(crate) const fn open(&mut self) {
        self.is_open = true;
    }

    /// Holds back future results again.
    pub(super) const fn close(&mut self) {
        self.is_open = false;
    }

    /// Loses a file until it is searched for.
    pub(crate) fn lose(&mut self, file: FileId) {
        if !self.lost.contains(&file) {
            self.lost.push(file);
        }
    }

    /// Ends all searches.
    pub(crate) fn find_all(&mut self) {
        self.lost.retain(|file| !self.sought.contains(file));
        self.held.extend(self.sought.drain(..).map(Finished::Located));
    }

    fn hold<T>(
        &mut self,
        progress: Progress<T>,
        finished: impl FnOnce(Result<T, Status>) -> Finished,
    ) -> Progress<T> {
        match progress {
            Progress::Ended(end) => self.held.push_back(finished(end)),
            Progress::Later => unreachable!("memory answers at once"),
        }
        Progress::Later
    }
}

impl Backend for Slow {
    fn root(&self) -> FileId {
        self.inner.root()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    /// Returns room of which one octet and one file are reserved.
    fn room(&mut self, cx: &Context<'_>) -> Result<Room, Status> {
        self.inner.room(cx).map(|room| Room {
            available_bytes: room.free_bytes - 1,
            available_files: room.free_files - 1,
            ..room
        })
    }

    fn attributes(&mut self, cx: &Context<'_>, file: FileId) -> Result<Attributes, Status> {
        self.inner.attributes(cx, file)
    }

    fn change(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        setting: &Setting,
    ) -> Progress<()> {
        self.inner.change(cx, ticket, file, setting)
    }

    fn lookup(&mut self, cx: &Context<'_>, dir: FileId, name: Name<'_>) -> Result<FileId, Status> {
        self.inner.lookup(cx, dir, name)
    }

    fn make(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        at: (FileId, Name<'_>),
        new: New<'_>,
    ) -> Progress<FileId> {
        self.inner.make(cx, ticket, at, new)
    }

    fn link(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        at: (FileId, Name<'_>),
    ) -> Progress<()> {
        self.inner.link(cx, ticket, file, at)
    }

    fn remove(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        dir: FileId,
        name: Name<'_>,
    ) -> Progress<()> {
        self.inner.remove(cx, ticket, dir, name)
    }

    fn remove_dir(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        dir: FileId,
        name: Name<'_>,
    ) -> Progress<()> {
        self.inner.remove_dir(cx, ticket, dir, name)
    }

    fn rename(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        from: (FileId, Name<'_>),
        to: (FileId, Name<'_>),
    ) -> Progress<()> {
        self.inner.rename(cx, ticket, from, to)
    }

    fn list(
        &mut self,
        cx: &Context<'_>,
        dir: FileId,
        after: u64,
        show: &mut dyn FnMut(Shown<'_>) -> bool,
    ) -> Result<bool, Status> {
        self.inner.list(cx, dir, after, show)
    }

    fn read_link(&mut self, cx: &Context<'_>, link: FileId) -> Result<Piece, Status> {
        self.inner.read_link(cx, link)
    }

    fn read(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        offset: u64,
        count: usize,
    ) -> Progress<ReadDone> {
        let progress = self.inner.read(cx, ticket, file, offset, count);
        self.hold(progress, |end| Finished::Read(ticket, end))
    }

    fn write(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        write: Incoming<'_>,
    ) -> Progress<WriteDone> {
        let progress = self.inner.write(cx, ticket, file, write);
        self.hold(progress, |end| Finished::Write(ticket, end))
    }

    fn commit(
        &mut self,
        cx: &Context<'_>,
        ticket: Ticket,
        file: FileId,
        offset: u64,
        count: u32,
    ) -> Progress<Verifier> {
        let progress = self.inner.commit(cx, ticket, file, offset, count);
        self.hold(progress, |end| Finished::Commit(ticket, end))
    }

    fn is_at_hand(&self, file: FileId) -> bool {
        !self.lost.contains(&file)
    }

    fn locate(&mut self, file: FileId) -> Located {
        if self.is_at_hand(file) {
            return Located::Now;
        }
        if self.is_busy {
            return Located::Busy;
        }
        self.sought.push_back(file);
        Located::Later
    }

    fn poll(&mut self) -> Option<Finished> {
        let is_located = |finished: &Finished| matches!(finished, Finished::Located(_));
        let at = self.held.iter().position(|finished| self.is_open || is_located(finished));
        at.and_then(|at| self.held.remove(at))
    }
}

fn slow() -> Bed<Slow> {
    bed_of(|pool, now| Slow::new(memory(pool, now)))
}

impl Bed<Slow> {
    /// Makes a Call that is answered later.
    fn begin(&mut self, arguments: Arguments<'_>) -> Ticket {
        let credential = Credential::Sys(AuthSys::new(0, b"tests", self.uid, self.gid));
        let around =
            Surroundings { pool: &self.pool, now: self.now, clock: Instant::ZERO, arrivals: None };
        match self.service.call(
            around,
            Call { credential, arguments, placed: None, room: usize::MAX, network: 0 },
        ) {
            Answer::Later(ticket) => ticket,
            Answer::Now(reply) => panic!("{:?}", reply.results),
        }
    }

    /// Returns the next Reply.
    fn end(&mut self, procedure: Procedure) -> Option<(Ticket, Sent)> {
        let around =
            Surroundings { pool: &self.pool, now: self.now, clock: Instant::ZERO, arrivals: None };
        let (ticket, reply) = self.service.poll(around)?;
        let bytes = written(|w| reply.encode_inline(w));
        Some((ticket, Sent { procedure, bytes }))
    }
}

#[test]
fn replies_come_later_under_their_tickets() {
    let mut bed = slow();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let writing = bed.begin(Arguments::Write(write(&file, 0, Item::Unreduced(b"hello"))));
    let read = Read { file: file.get(), offset: 1, count: 9 };
    let reading = bed.begin(Arguments::Read(read));
    let committing = bed.begin(Arguments::Commit(Commit { file: file.get(), offset: 0, count: 0 }));
    assert!(bed.end(Procedure::Write).is_none());
    bed.service.backend.open();

    let (ticket, sent) = bed.end(Procedure::Write).unwrap();
    let Results::Write(Ok(done)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((ticket, done.count), (writing, 5));
    assert_eq!(done.file, Wcc { before: None, after: Some(bed.look(&file)) });

    let (ticket, sent) = bed.end(Procedure::Read).unwrap();
    let Results::Read(Ok(contents)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((ticket, contents.data), (reading, Data(Item::Unreduced(b"ello"))));
    assert_eq!((contents.eof, contents.attributes), (true, Some(bed.look(&file))));

    let (ticket, sent) = bed.end(Procedure::Commit).unwrap();
    let Results::Commit(Ok(committed)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((ticket, committed.verifier), (committing, done.verifier));
    assert!(bed.end(Procedure::Commit).is_none());
    assert!(bed.service.pending.is_empty());
}

#[test]
fn a_failure_that_comes_later_is_told_as_one_that_comes_at_once() {
    let mut bed = slow();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let far = write(&file, u64::MAX - 2, Item::Unreduced(b"x"));
    let ticket = bed.begin(Arguments::Write(far));
    bed.service.backend.open();
    let after = bed.look(&file);
    let (ended, sent) = bed.end(Procedure::Write).unwrap();
    let rest = Wcc { before: None, after: Some(after) };
    let failure = Failure { status: Status::FBig, rest };
    assert_eq!((ended, sent.results()), (ticket, Results::Write(Err(failure))));
}

#[test]
fn what_was_before_is_not_told_where_another_write_may_have_come_between() {
    let mut bed = slow();
    let root = bed.root();
    let (file, other) = (bed.file(&root, "f"), bed.file(&root, "g"));
    let before_of = |bed: &mut Bed<Slow>, file: &Handle| {
        let chmod = SetAttr { file: file.get(), to: mode(0o640), guard: None };
        let sent = bed.call(Arguments::SetAttr(chmod));
        let Results::SetAttr(Ok(wcc)) = sent.results() else { panic!("{:?}", sent.results()) };
        assert!(wcc.after.is_some());
        wcc.before
    };
    bed.begin(Arguments::Read(Read { file: file.get(), offset: 0, count: 9 }));
    assert!(before_of(&mut bed, &file).is_some(), "a READ changes nothing");
    bed.begin(Arguments::Write(write(&file, 0, Item::Unreduced(b"hello"))));
    assert!(before_of(&mut bed, &file).is_none());
    assert!(before_of(&mut bed, &other).is_some());
    bed.service.backend.open();
    bed.end(Procedure::Read).unwrap();
    bed.end(Procedure::Write).unwrap();
    assert!(before_of(&mut bed, &file).is_some());
}

#[test]
fn what_the_file_system_reserves_is_free_and_not_available() {
    let mut bed = slow();
    let root = bed.root();
    let sent = bed.call(Arguments::FsStat(root.get()));
    let Results::FsStat(Ok(stat)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((stat.free_bytes - stat.available_bytes, stat.free_files), (1, 999));
    assert_eq!(stat.available_files, 998);
}

#[test]
fn a_file_that_goes_while_it_is_read_is_read_and_has_no_attributes() {
    let mut bed = slow();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let ticket = bed.begin(Arguments::Read(Read { file: file.get(), offset: 0, count: 9 }));
    assert_eq!(bed.status(Arguments::Remove(root.at("f"))), Status::Ok);
    bed.service.backend.open();
    let (ended, sent) = bed.end(Procedure::Read).unwrap();
    let Results::Read(Ok(contents)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((ended, contents.attributes, contents.count), (ticket, None, 0));
}

#[test]
fn an_end_of_nothing_is_passed_over() {
    let mut bed = slow();
    let root = bed.root();
    let file = bed.file(&root, "f");
    bed.service
        .backend
        .held
        .push_back(Finished::Commit(Ticket { number: 99, network: 0 }, Ok(Verifier(0))));
    let ticket = bed.begin(Arguments::Commit(Commit { file: file.get(), offset: 0, count: 0 }));
    bed.service.backend.open();
    assert_eq!(bed.end(Procedure::Commit).map(|(ended, _)| ended), Some(ticket));
}
