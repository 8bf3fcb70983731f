//! A test bed: a backend under test, with the context of its Calls.

use haulage_mr_pool::{PagePreference, Piece, Pool, PoolConfig};

use crate::access::Caller;
use crate::backend::{
    Backend, Context, Finished, Incoming, Listing, ListingKind, Located, Names, New, NewKind,
    Octets, Progress, ReadDone, Setting, Ticket, WriteDone,
};
use crate::handle::FileId;
use crate::nfs3::arguments::Stable;
use crate::nfs3::{Attributes, FileType, Name, SetAttributes, SetTime, Status, Time, Verifier};
use crate::testing::TempDir;

/// A backend under test with the context of its Calls. The clock stands still unless a test moves it.
pub(crate) struct Bed<B> {
    pub(crate) backend: B,
    pub(crate) now: Time,
    pub(crate) caller: Caller,
    /// The user and group of created files.
    pub(crate) owner: (u32, u32),
    pub(crate) pool: Pool,
    /// The directory of the files, for a backend that has one.
    pub(crate) place: Option<TempDir>,
}

impl<B: Backend> Bed<B> {
    /// Creates a bed around the backend that `make` returns.
    pub(crate) fn new(make: impl FnOnce(&Pool, Time) -> B) -> Self {
        let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&config).unwrap();
        let now = Time { seconds: 1000, nanoseconds: 0 };
        let backend = make(&pool, now);
        Self { backend, now, caller: Caller::new(1, 2, []), owner: (1, 2), pool, place: None }
    }

    pub(crate) fn root(&self) -> FileId {
        self.backend.root()
    }

    /// Runs `act` in a turn of its own.
    pub(crate) fn with<T>(&mut self, act: impl FnOnce(&mut B, &Context<'_>) -> T) -> T {
        self.backend.turn();
        let cx = Context { pool: &self.pool, now: self.now, caller: &self.caller };
        act(&mut self.backend, &cx)
    }

    /// Waits until a file is at hand, or known not to be.
    pub(crate) fn locate(&mut self, file: FileId) {
        for _ in 0..4 {
            if self.with(|backend, _| backend.locate(file)) == Located::Now {
                return;
            }
            let polls = (0..1_000_000).map(|_| self.with(|backend, _| backend.poll()));
            assert!({ polls }.any(|ended| ended.is_some()), "a search ends");
        }
    }

    pub(crate) fn make(
        &mut self,
        dir: FileId,
        name: &str,
        kind: NewKind<'_>,
    ) -> Result<FileId, Status> {
        self.locate(dir);
        let (uid, gid) = self.owner;
        let (atime, mtime) = (SetTime::Keep, SetTime::Keep);
        let new = New { kind, mode: 0o755, uid, gid, size: None, atime, mtime };
        let at = (dir, Name(name.as_bytes()));
        match self.with(|backend, cx| backend.make(cx, TICKET, at, new)) {
            Progress::Ended(end) => end,
            Progress::Later => match self.wait() {
                Finished::Made(TICKET, end) => end,
                other => panic!("{other:?}"),
            },
        }
    }

    pub(crate) fn file(&mut self, dir: FileId, name: &str) -> FileId {
        self.make(dir, name, NewKind::Regular).unwrap()
    }

    pub(crate) fn dir(&mut self, dir: FileId, name: &str) -> FileId {
        self.make(dir, name, NewKind::Directory).unwrap()
    }

    pub(crate) fn look(&mut self, file: FileId) -> Attributes {
        self.locate(file);
        self.with(|backend, cx| backend.attributes(cx, file)).unwrap()
    }

    pub(crate) fn find(&mut self, dir: FileId, name: &str) -> Result<FileId, Status> {
        self.locate(dir);
        self.with(|backend, cx| backend.lookup(cx, dir, Name(name.as_bytes())))
    }

    pub(crate) fn link(&mut self, file: FileId, dir: FileId, name: &str) -> Result<(), Status> {
        let at = (dir, Name(name.as_bytes()));
        self.change(|backend, cx| backend.link(cx, TICKET, file, at))
    }

    pub(crate) fn remove(&mut self, dir: FileId, name: &str) -> Result<(), Status> {
        self.change(|backend, cx| backend.remove(cx, TICKET, dir, Name(name.as_bytes())))
    }

    pub(crate) fn remove_dir(&mut self, dir: FileId, name: &str) -> Result<(), Status> {
        self.change(|backend, cx| backend.remove_dir(cx, TICKET, dir, Name(name.as_bytes())))
    }

    pub(crate) fn rename(
        &mut self,
        from: (FileId, &str),
        to: (FileId, &str),
    ) -> Result<(), Status> {
        let (from, to) = ((from.0, Name(from.1.as_bytes())), (to.0, Name(to.1.as_bytes())));
        self.change(|backend, cx| backend.rename(cx, TICKET, from, to))
    }

    /// Returns at most `count` names after a cookie, each with its cookie, and whether they are the last.
    pub(crate) fn list(
        &mut self,
        dir: FileId,
        after: u64,
        count: usize,
    ) -> (Vec<(String, u64)>, bool) {
        self.locate(dir);
        let mut shown = Vec::new();
        let kind = ListingKind::Names;
        let listing =
            Listing { dir, after, names_max: count, octets_max: usize::MAX, octets_each: 0, kind };
        let last = self.with(|backend, cx| {
            assert_eq!(backend.look_into(TICKET, &listing), Names::Known);
            backend.list(cx, dir, after, &mut |name| {
                if shown.len() == count {
                    return false;
                }
                shown.push((String::from_utf8(name.name.0.to_vec()).unwrap(), name.cookie));
                true
            })
        });
        (shown, last.unwrap())
    }

    pub(crate) fn write(
        &mut self,
        file: FileId,
        offset: u64,
        octets: &[u8],
    ) -> Result<WriteDone, Status> {
        self.write_stable(file, offset, Octets::Unreduced(octets), Stable::Unstable)
    }

    pub(crate) fn write_stable(
        &mut self,
        file: FileId,
        offset: u64,
        data: Octets<'_>,
        stable: Stable,
    ) -> Result<WriteDone, Status> {
        self.locate(file);
        let write = Incoming { offset, data, stable };
        match self.with(|backend, cx| backend.write(cx, TICKET, file, write)) {
            Progress::Ended(end) => end,
            Progress::Later => match self.wait() {
                Finished::Write(TICKET, end) => end,
                other => panic!("{other:?}"),
            },
        }
    }

    pub(crate) fn set(&mut self, file: FileId, to: SetAttributes) -> Result<(), Status> {
        self.change(|backend, cx| backend.change(cx, TICKET, file, &Setting::from(to)))
    }

    pub(crate) fn commit(&mut self, file: FileId) -> Result<Verifier, Status> {
        match self.with(|backend, cx| backend.commit(cx, TICKET, file, 0, 0)) {
            Progress::Ended(end) => end,
            Progress::Later => match self.wait() {
                Finished::Commit(TICKET, end) => end,
                other => panic!("{other:?}"),
            },
        }
    }

    pub(crate) fn read(
        &mut self,
        file: FileId,
        offset: u64,
        count: usize,
    ) -> Result<Vec<u8>, Status> {
        let done = self.read_pieces(file, offset, count)?;
        Ok(done.data.iter().flat_map(Piece::bytes).copied().collect())
    }

    pub(crate) fn read_pieces(
        &mut self,
        file: FileId,
        offset: u64,
        count: usize,
    ) -> Result<ReadDone, Status> {
        self.locate(file);
        match self.with(|backend, cx| backend.read(cx, TICKET, file, offset, count)) {
            Progress::Ended(end) => end,
            Progress::Later => match self.wait() {
                Finished::Read(TICKET, end) => end,
                other => panic!("{other:?}"),
            },
        }
    }

    /// Changes something, and waits until that has ended.
    fn change(
        &mut self,
        act: impl FnOnce(&mut B, &Context<'_>) -> Progress<()>,
    ) -> Result<(), Status> {
        match self.with(act) {
            Progress::Ended(end) => end,
            Progress::Later => match self.wait() {
                Finished::Changed(TICKET, end) => end,
                other => panic!("{other:?}"),
            },
        }
    }

    /// Polls until something ends.
    pub(crate) fn wait(&mut self) -> Finished {
        loop {
            match self.backend.poll() {
                Some(Finished::Free(..)) => continue,
                Some(finished) => return finished,
                None => {}
            }
            std::thread::yield_now();
        }
    }

    /// Checks the link counts against a walk from the top. Returns the number of names.
    pub(crate) fn check(&mut self) -> u64 {
        let (mut names, mut pending) = (0_u64, vec![self.backend.root()]);
        let mut counted = std::collections::BTreeMap::new();
        while let Some(dir) = pending.pop() {
            let shown = self.list(dir, 0, usize::MAX).0;
            let mut links = 2;
            for (name, _) in shown {
                names += 1;
                let file = self.find(dir, &name).unwrap();
                if self.look(file).kind == FileType::Directory {
                    links += 1;
                    assert_eq!(self.find(file, ".."), Ok(dir));
                    pending.push(file);
                } else {
                    *counted.entry(file).or_insert(0) += 1;
                }
            }
            assert_eq!(self.look(dir).links, links);
        }
        for (file, links) in counted {
            assert_eq!(self.look(file).links, links);
        }
        names
    }
}

/// The ticket of every operation of the bed.
const TICKET: Ticket = Ticket { number: 7, network: 0 };
