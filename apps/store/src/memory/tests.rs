use haulage_mr_pool::{PagePreference, PoolConfig};

use super::*;
use crate::access::Caller;
use crate::backend::{COOKIE_MIN, Octets};
use crate::nfs3::Device;
use crate::testing::Rng;

/// A file system, and what surrounds Calls to it. The clock stands still unless it is moved.
struct Bed {
    memory: Memory,
    now: Time,
    caller: Caller,
    pool: Pool,
}

fn bed() -> Bed {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let now = Time { seconds: 1000, nanoseconds: 0 };
    let limits = Limits { files_max: 100, names_max: 100 };
    let memory = Memory::new(&pool, limits, 77, now).unwrap();
    Bed { memory, now, caller: Caller::new(1, 2, []), pool }
}

impl Bed {
    fn with<T>(&mut self, act: impl FnOnce(&mut Memory, &Context<'_>) -> T) -> T {
        let cx = Context { pool: &self.pool, now: self.now, caller: &self.caller };
        act(&mut self.memory, &cx)
    }

    fn make(&mut self, dir: FileId, name: &str, kind: NewKind<'_>) -> Result<FileId, Status> {
        let new = New { kind, mode: 0o755, uid: 1, gid: 2 };
        self.with(|memory, cx| memory.make(cx, dir, Name(name.as_bytes()), new))
    }

    fn file(&mut self, dir: FileId, name: &str) -> FileId {
        self.make(dir, name, NewKind::Regular).unwrap()
    }

    fn dir(&mut self, dir: FileId, name: &str) -> FileId {
        self.make(dir, name, NewKind::Directory).unwrap()
    }

    fn look(&mut self, file: FileId) -> Attributes {
        self.with(|memory, cx| memory.attributes(cx, file)).unwrap()
    }

    fn find(&mut self, dir: FileId, name: &str) -> Result<FileId, Status> {
        self.with(|memory, cx| memory.lookup(cx, dir, Name(name.as_bytes())))
    }

    fn link(&mut self, file: FileId, dir: FileId, name: &str) -> Result<(), Status> {
        self.with(|memory, cx| memory.link(cx, file, dir, Name(name.as_bytes())))
    }

    fn remove(&mut self, dir: FileId, name: &str) -> Result<(), Status> {
        self.with(|memory, cx| memory.remove(cx, dir, Name(name.as_bytes())))
    }

    fn remove_dir(&mut self, dir: FileId, name: &str) -> Result<(), Status> {
        self.with(|memory, cx| memory.remove_dir(cx, dir, Name(name.as_bytes())))
    }

    fn rename(&mut self, from: (FileId, &str), to: (FileId, &str)) -> Result<(), Status> {
        let (from, to) = ((from.0, Name(from.1.as_bytes())), (to.0, Name(to.1.as_bytes())));
        self.with(|memory, cx| memory.rename(cx, from, to))
    }

    /// At most `count` names behind a place, and their cookies, and whether these are the last.
    fn list(&mut self, dir: FileId, after: u64, count: usize) -> (Vec<(String, u64)>, bool) {
        let mut shown = Vec::new();
        let last = self.with(|memory, cx| {
            memory.list(cx, dir, after, &mut |name| {
                if shown.len() == count {
                    return false;
                }
                shown.push((String::from_utf8(name.name.0.to_vec()).unwrap(), name.cookie));
                true
            })
        });
        (shown, last.unwrap())
    }

    fn write(&mut self, file: FileId, offset: u64, octets: &[u8]) -> Result<WriteDone, Status> {
        let data = Octets::Inline(octets);
        let write = Incoming { offset, data, stable: Stable::Unstable };
        match self.with(|memory, cx| memory.write(cx, Ticket(0), file, write)) {
            Progress::Ended(end) => end,
            Progress::Later => unreachable!("memory answers at once"),
        }
    }

    fn read(&mut self, file: FileId, offset: u64, count: usize) -> Result<Vec<u8>, Status> {
        match self.with(|memory, cx| memory.read(cx, Ticket(0), file, offset, count)) {
            Progress::Ended(end) => {
                end.map(|done| done.data.iter().flat_map(Piece::bytes).copied().collect())
            }
            Progress::Later => unreachable!("memory answers at once"),
        }
    }

    /// Checks that links and names are what a walk from the top counts.
    fn check(&mut self) {
        let (mut names, mut pending) = (0, vec![self.memory.root]);
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
        assert_eq!(self.memory.names, names);
    }
}

#[test]
fn each_kind_of_file_is_made_as_asked() {
    let mut bed = bed();
    let root = bed.memory.root();
    let device = Device { major: 1, minor: 3 };
    for (name, kind, size, links) in [
        ("file", NewKind::Regular, 0, 1),
        ("dir", NewKind::Directory, 0, 2),
        ("link", NewKind::Symlink(b"to/there"), 8, 1),
        ("null", NewKind::Special(FileType::Character, device), 0, 1),
        ("pipe", NewKind::Special(FileType::Fifo, Device::default()), 0, 1),
    ] {
        let made = bed.make(root, name, kind).unwrap();
        let attributes = bed.look(made);
        assert_eq!((attributes.kind, attributes.size), (kind.file_type(), size), "{name}");
        assert_eq!((attributes.links, attributes.fileid), (links, made.inode), "{name}");
        assert_eq!((attributes.mode, attributes.uid, attributes.gid), (0o755, 1, 2), "{name}");
        assert_eq!(bed.find(root, name), Ok(made));
        assert_eq!(bed.make(root, name, NewKind::Regular), Err(Status::Exist), "{name}");
    }
    let null = bed.find(root, "null").unwrap();
    assert_eq!(bed.look(null).device, device);
    let bad = NewKind::Special(FileType::Regular, device);
    assert_eq!(bed.make(root, "bad", bad), Err(Status::BadType));
    let link = bed.find(root, "link").unwrap();
    let path = bed.with(|memory, cx| memory.read_link(cx, link)).unwrap();
    assert_eq!(path.bytes(), b"to/there");
    assert_eq!(bed.with(|memory, cx| memory.read_link(cx, null)).err(), Some(Status::Inval));
    bed.check();
}

#[test]
fn what_is_no_directory_has_no_names() {
    let mut bed = bed();
    let root = bed.memory.root();
    let file = bed.file(root, "f");
    assert_eq!(bed.find(file, "x"), Err(Status::NotDir));
    assert_eq!(bed.find(file, "."), Err(Status::NotDir));
    assert_eq!(bed.make(file, "x", NewKind::Regular), Err(Status::NotDir));
    assert_eq!(bed.link(file, file, "x"), Err(Status::NotDir));
    assert_eq!(bed.remove(file, "x"), Err(Status::NotDir));
    assert_eq!(bed.remove_dir(file, "x"), Err(Status::NotDir));
    assert_eq!(bed.rename((file, "x"), (root, "y")), Err(Status::NotDir));
    assert_eq!(bed.rename((root, "f"), (file, "y")), Err(Status::NotDir));
    let listed = bed.with(|memory, cx| memory.list(cx, file, 0, &mut |_| true));
    assert_eq!(listed, Err(Status::NotDir));
    let dir = bed.dir(root, "d");
    assert_eq!(bed.read(dir, 0, 1), Err(Status::Inval));
    assert_eq!(bed.write(dir, 0, b"x"), Err(Status::Inval));
    assert_eq!(bed.link(dir, root, "again"), Err(Status::Inval));
}

#[test]
fn a_file_is_stale_once_its_last_name_is_gone() {
    let mut bed = bed();
    let root = bed.memory.root();
    let file = bed.file(root, "a");
    bed.write(file, 0, b"kept").unwrap();
    bed.link(file, root, "b").unwrap();
    bed.remove(root, "a").unwrap();
    assert_eq!((bed.read(file, 0, 9), bed.look(file).links), (Ok(b"kept".to_vec()), 1));
    bed.remove(root, "b").unwrap();
    assert_eq!(bed.read(file, 0, 9), Err(Status::Stale));
    assert_eq!(bed.remove(root, "b"), Err(Status::NoEnt));
    // Its number is used again, and it does not come back with it.
    let next = bed.file(root, "c");
    assert_eq!(next.inode, file.inode);
    assert_eq!(bed.with(|memory, cx| memory.attributes(cx, file)), Err(Status::Stale));
    let strange = FileId { inode: 0, generation: 77 };
    assert_eq!(bed.with(|memory, cx| memory.attributes(cx, strange)), Err(Status::Stale));
    let strange = FileId { inode: u64::MAX, generation: 77 };
    assert_eq!(bed.with(|memory, cx| memory.attributes(cx, strange)), Err(Status::Stale));
    let stale = Err(Status::Stale);
    assert_eq!((bed.link(file, root, "d"), bed.rename((file, "x"), (root, "y"))), (stale, stale));
    bed.check();
}

#[test]
fn only_empty_directories_are_removed() {
    let mut bed = bed();
    let root = bed.memory.root();
    let outer = bed.dir(root, "outer");
    bed.dir(outer, "inner");
    bed.file(root, "file");
    assert_eq!(bed.remove(root, "outer"), Err(Status::IsDir));
    assert_eq!(bed.remove_dir(root, "file"), Err(Status::NotDir));
    assert_eq!(bed.remove_dir(root, "outer"), Err(Status::NotEmpty));
    assert_eq!(bed.remove_dir(root, "none"), Err(Status::NoEnt));
    assert_eq!(bed.look(outer).links, 3);
    bed.remove_dir(outer, "inner").unwrap();
    assert_eq!(bed.look(outer).links, 2);
    bed.remove_dir(root, "outer").unwrap();
    assert_eq!(bed.make(outer, "x", NewKind::Regular), Err(Status::Stale));
    bed.check();
}

#[test]
fn a_rename_replaces_what_is_of_its_kind() {
    let mut bed = bed();
    let root = bed.memory.root();
    let (file, other) = (bed.file(root, "file"), bed.file(root, "other"));
    let (dir, empty) = (bed.dir(root, "dir"), bed.dir(root, "empty"));
    let inside = bed.file(dir, "inside");
    assert_eq!(bed.rename((root, "none"), (root, "x")), Err(Status::NoEnt));
    for (from, to) in [("file", "dir"), ("file", "empty"), ("dir", "file"), ("empty", "dir")] {
        assert_eq!(bed.rename((root, from), (root, to)), Err(Status::Exist), "{from} {to}");
    }
    bed.rename((root, "file"), (root, "other")).unwrap();
    assert_eq!((bed.find(root, "other"), bed.find(root, "file")), (Ok(file), Err(Status::NoEnt)));
    assert_eq!(bed.with(|memory, cx| memory.attributes(cx, other)), Err(Status::Stale));
    bed.rename((root, "dir"), (root, "empty")).unwrap();
    assert_eq!((bed.find(root, "empty"), bed.find(dir, "inside")), (Ok(dir), Ok(inside)));
    assert_eq!(bed.with(|memory, cx| memory.attributes(cx, empty)), Err(Status::Stale));
    bed.check();
}

#[test]
fn a_rename_onto_itself_does_nothing() {
    let mut bed = bed();
    let root = bed.memory.root();
    let file = bed.file(root, "a");
    bed.link(file, root, "b").unwrap();
    let before = bed.look(root);
    bed.rename((root, "a"), (root, "a")).unwrap();
    bed.rename((root, "a"), (root, "b")).unwrap();
    assert_eq!((bed.find(root, "a"), bed.find(root, "b")), (Ok(file), Ok(file)));
    assert_eq!(bed.look(root), before);
}

#[test]
fn a_directory_moves_with_all_in_it_but_never_into_itself() {
    let mut bed = bed();
    let root = bed.memory.root();
    let (a, b) = (bed.dir(root, "a"), bed.dir(root, "b"));
    let c = bed.dir(a, "c");
    assert_eq!(bed.rename((root, "a"), (a, "x")), Err(Status::Inval));
    assert_eq!(bed.rename((root, "a"), (c, "x")), Err(Status::Inval));
    bed.rename((root, "a"), (b, "a")).unwrap();
    assert_eq!((bed.find(a, ".."), bed.find(c, "..")), (Ok(b), Ok(a)));
    assert_eq!((bed.look(root).links, bed.look(b).links), (3, 3));
    assert_eq!(bed.find(root, ".."), Ok(root));
    bed.check();
}

#[test]
fn a_listing_goes_on_where_it_stopped_whatever_changed() {
    let mut bed = bed();
    let root = bed.memory.root();
    for name in ["a", "b", "c", "d", "e"] {
        bed.file(root, name);
    }
    let (first, last) = bed.list(root, 0, 2);
    let names = |shown: &[(String, u64)]| shown.iter().map(|(n, _)| n.clone()).collect::<String>();
    assert_eq!((names(&first), last), ("ab".to_owned(), false));
    assert!(first.iter().all(|(_, cookie)| *cookie >= COOKIE_MIN));
    // What was shown last goes, what was not shown yet goes, and others come and are renamed.
    bed.remove(root, "b").unwrap();
    bed.remove(root, "d").unwrap();
    bed.file(root, "aa");
    bed.rename((root, "a"), (root, "z")).unwrap();
    let (rest, last) = bed.list(root, first[1].1, 9);
    assert_eq!((names(&rest), last), ("ceaaz".to_owned(), true));
    assert_eq!(bed.list(root, u64::MAX, 9), (Vec::new(), true));
}

#[test]
fn every_change_shows_in_the_ctime_though_the_clock_stands_still() {
    let mut bed = bed();
    let root = bed.memory.root();
    let file = bed.file(root, "f");
    let mut seen = vec![bed.look(file).ctime];
    let chmod = SetAttributes { mode: Some(0o100_600), ..SetAttributes::default() };
    for _ in 0..2 {
        bed.write(file, 0, b"x").unwrap();
        seen.push(bed.look(file).ctime);
        bed.with(|memory, cx| memory.set_attributes(cx, file, &chmod)).unwrap();
        seen.push(bed.look(file).ctime);
    }
    bed.link(file, root, "g").unwrap();
    seen.push(bed.look(file).ctime);
    bed.write(file, 9, b"").unwrap();
    assert_eq!((bed.look(file).ctime, bed.look(file).size), (seen[5], 1));
    assert!(seen.is_sorted_by(|a, b| a < b), "{seen:?}");
    assert_eq!(bed.look(file).mode, 0o600);
    let before = bed.look(root).mtime;
    bed.remove(root, "g").unwrap();
    assert!(bed.look(root).mtime > before);
    // Over the end of a second.
    let last = Time { seconds: 5, nanoseconds: 999_999_999 };
    assert!(inodes::successor(last) == Time { seconds: 6, nanoseconds: 0 });
}

#[test]
fn attributes_are_set_as_asked_and_times_last() {
    let mut bed = bed();
    let root = bed.memory.root();
    let file = bed.file(root, "f");
    bed.write(file, 0, b"0123456789").unwrap();
    bed.now = Time { seconds: 2000, nanoseconds: 0 };
    let old = Time { seconds: 1, nanoseconds: 2 };
    let to = SetAttributes {
        mode: Some(0o4711),
        uid: Some(8),
        gid: Some(9),
        size: Some(4),
        atime: SetTime::ToServer,
        mtime: SetTime::To(old),
    };
    bed.with(|memory, cx| memory.set_attributes(cx, file, &to)).unwrap();
    let now = bed.look(file);
    assert_eq!((now.mode, now.uid, now.gid, now.size, now.used), (0o4711, 8, 9, 4, 4));
    assert_eq!((now.atime, now.mtime), (bed.now, old));
    assert!(now.ctime >= bed.now);
    assert_eq!(bed.read(file, 0, 99), Ok(b"0123".to_vec()));
    let size = SetAttributes { size: Some(1), ..SetAttributes::default() };
    let dir = bed.with(|memory, cx| memory.set_attributes(cx, root, &size));
    assert_eq!(dir, Err(Status::Inval));
    let huge = SetAttributes { size: Some(u64::MAX), mode: Some(0), ..SetAttributes::default() };
    let refused = bed.with(|memory, cx| memory.set_attributes(cx, file, &huge));
    assert_eq!((refused, bed.look(file)), (Err(Status::FBig), now));
}

#[test]
fn files_and_names_are_bounded() {
    let mut bed = bed();
    let root = bed.memory.root();
    let file = bed.file(root, "first");
    for number in 1..99 {
        bed.file(root, &format!("{number}"));
    }
    assert_eq!(bed.make(root, "one more", NewKind::Regular), Err(Status::NoSpc));
    bed.link(file, root, "a name is left").unwrap();
    assert_eq!(bed.link(file, root, "one more"), Err(Status::NoSpc));
    let room = bed.with(|memory, cx| memory.room(cx)).unwrap();
    assert_eq!((room.total_files, room.free_files), (100, 0));
    assert_eq!(room.total_bytes, 1 << 20);
    bed.remove(root, "1").unwrap();
    bed.file(root, "one more");
    bed.check();
}

#[test]
fn a_full_pool_takes_no_link() {
    let mut bed = bed();
    let root = bed.memory.root();
    let mut held = Vec::new();
    held.extend(std::iter::from_fn(|| bed.pool.lease(1 << 12)));
    let made = bed.make(root, "l", NewKind::Symlink(&[b'x'; 4000]));
    assert_eq!((made, bed.find(root, "l")), (Err(Status::NoSpc), Err(Status::NoEnt)));
    drop(held);
    assert!(bed.make(root, "l", NewKind::Symlink(&[b'x'; 4000])).is_ok());
    bed.check();
}

#[test]
fn names_and_links_agree_after_anything() {
    let mut bed = bed();
    let mut rng = Rng::new(21);
    let names = ["a", "b", "c", "d", "e"];
    let mut dirs = vec![bed.memory.root()];
    for step in 0..4_000 {
        let (dir, other) = (rng.of(&dirs), rng.of(&dirs));
        let (name, second) = (rng.of(&names), rng.of(&names));
        match rng.below(8) {
            0 | 1 => {
                let _ = bed.make(dir, name, NewKind::Regular);
            }
            2 | 3 => dirs.extend(bed.make(dir, name, NewKind::Directory)),
            4 => {
                let _ = bed.remove(dir, name).or_else(|_| bed.remove_dir(dir, name));
            }
            5 => {
                let _ = bed.find(dir, name).and_then(|file| bed.link(file, other, second));
            }
            _ => {
                let _ = bed.rename((dir, name), (other, second));
            }
        }
        // Directories that are gone are asked for now and then.
        if dirs.len() > 30 {
            dirs.remove(rng.below(29) + 1);
        }
        if step % 20 == 0 {
            bed.check();
        }
    }
    assert!(bed.memory.names > 10);
}

#[test]
fn all_memory_comes_home() {
    let mut bed = bed();
    let root = bed.memory.root();
    let empty = bed.pool.gauges().leased_bytes;
    let file = bed.file(root, "f");
    bed.write(file, 0, &[1; 100_000]).unwrap();
    bed.make(root, "l", NewKind::Symlink(&[b'x'; 4000])).unwrap();
    assert!(bed.pool.gauges().leased_bytes > empty);
    bed.remove(root, "f").unwrap();
    bed.remove(root, "l").unwrap();
    assert_eq!(bed.pool.gauges().leased_bytes, empty);
    let Bed { memory, pool, .. } = bed;
    drop(memory);
    assert_eq!(pool.gauges().leased_bytes, 0);
}
