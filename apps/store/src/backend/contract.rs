//! The contract tests of [`Backend`](super::Backend), run on every backend.

use haulage::provider::Waker;

use super::bed::Bed;
use super::{Backend, COOKIE_MIN, NewKind, Octets};
use crate::access::Caller;
use crate::directory::{self, Directory, Ring};
use crate::handle::FileId;
use crate::memory::{self, Memory};
use crate::nfs3::arguments::Stable;
use crate::nfs3::{Device, FileType, SetAttributes, SetTime, Status, Time};
use crate::testing::{Rng, TempDir};

/// Declares contract tests, each run on every named backend.
macro_rules! behaviours {
    ([$(($module:ident, $bed:expr)),*], $behaviours:tt) => {
        $(behaviours!($module, $bed, $behaviours);)*
    };
    ($module:ident, $bed:expr, [$($behaviour:ident),*]) => {
        mod $module {
            use super::*;

            $(#[test]
            fn $behaviour() {
                super::$behaviour($bed);
            })*
        }
    };
}

behaviours!(
    [(names_in_memory, in_memory()), (names_in_a_directory, in_directory(false, false))],
    [
        each_kind_of_file_is_made_as_asked,
        what_is_no_directory_has_no_names,
        a_file_is_stale_once_its_last_name_is_gone,
        only_empty_directories_are_removed,
        a_rename_replaces_what_is_of_its_kind,
        a_rename_onto_itself_does_nothing,
        a_directory_moves_with_all_in_it_but_never_into_itself,
        a_listing_goes_on_where_it_stopped_whatever_changed,
        a_long_listing_shows_each_name_once,
        attributes_are_set_as_asked_and_times_last,
        names_and_links_agree_after_anything
    ]
);

behaviours!(
    [
        (data_in_memory, in_memory()),
        (data_in_a_directory, in_directory(false, false)),
        (data_by_a_ring, in_directory(true, false)),
        (data_around_the_cache, in_directory(true, true))
    ],
    [what_is_written_is_read, a_file_ends_somewhere]
);

fn in_memory() -> Bed<Memory> {
    let limits = memory::Limits { files_max: 6_000, names_max: 6_000 };
    Bed::new(|pool, now| Memory::new(pool, limits, 77, now).unwrap())
}

/// Returns a bed on a directory; `ring` has no effect where the system lacks io_uring.
fn in_directory(ring: bool, direct: bool) -> Bed<Directory> {
    let place = TempDir::new();
    let config = directory::Config { open_max: 16, direct, ..crate::testing::CONFIG };
    let waker = Waker::new().unwrap();
    let mut bed = Bed::new(|pool, _| {
        let ring = ring.then(|| Ring::new(pool, &waker).ok()).flatten();
        Directory::open(place.path(), None, ring, config).unwrap()
    });
    if let Some(owner) = directory::sole_owner().unwrap() {
        bed.owner = (owner.uid, owner.gid);
    }
    // The top of the tree belongs to the server's user.
    bed.caller = Caller::new(0, 0, []);
    bed.place = Some(place);
    bed
}

fn each_kind_of_file_is_made_as_asked(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    let device = Device { major: 1, minor: 3 };
    for (name, kind, size, links) in [
        ("file", NewKind::Regular, 0, 1),
        ("dir", NewKind::Directory, 0, 2),
        ("link", NewKind::Symlink(b"to/there"), 8, 1),
        ("pipe", NewKind::Special(FileType::Fifo, Device::default()), 0, 1),
    ] {
        let made = bed.make(root, name, kind).unwrap();
        let attributes = bed.look(made);
        // The size of a directory depends on its file system.
        let size = if name == "dir" { attributes.size } else { size };
        assert_eq!((attributes.kind, attributes.size), (kind.file_type(), size), "{name}");
        assert_eq!((attributes.links, attributes.fileid), (links, made.inode), "{name}");
        // Systems keep no permission bits of links.
        let mode = if name == "link" { attributes.mode } else { 0o755 };
        assert_eq!(attributes.mode, mode, "{name}");
        assert_eq!((attributes.uid, attributes.gid), bed.owner, "{name}");
        assert_eq!(bed.find(root, name), Ok(made));
        assert_eq!(bed.make(root, name, NewKind::Regular), Err(Status::Exist), "{name}");
    }
    let pipe = bed.find(root, "pipe").unwrap();
    // Only the privileged make devices.
    if bed.owner == (1, 2) {
        let null = bed.make(root, "null", NewKind::Special(FileType::Character, device)).unwrap();
        assert_eq!((bed.look(null).kind, bed.look(null).device), (FileType::Character, device));
    }
    let bad = NewKind::Special(FileType::Regular, device);
    assert_eq!(bed.make(root, "bad", bad), Err(Status::BadType));
    let link = bed.find(root, "link").unwrap();
    let path = bed.with(|backend, cx| backend.read_link(cx, link)).unwrap();
    assert_eq!(path.bytes(), b"to/there");
    assert_eq!(bed.with(|backend, cx| backend.read_link(cx, pipe)).err(), Some(Status::Inval));
    bed.check();
}

fn what_is_no_directory_has_no_names(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    let file = bed.file(root, "f");
    assert_eq!(bed.find(file, "x"), Err(Status::NotDir));
    assert_eq!(bed.find(file, "."), Err(Status::NotDir));
    assert_eq!(bed.make(file, "x", NewKind::Regular), Err(Status::NotDir));
    assert_eq!(bed.link(file, file, "x"), Err(Status::NotDir));
    assert_eq!(bed.remove(file, "x"), Err(Status::NotDir));
    assert_eq!(bed.remove_dir(file, "x"), Err(Status::NotDir));
    assert_eq!(bed.rename((file, "x"), (root, "y")), Err(Status::NotDir));
    assert_eq!(bed.rename((root, "f"), (file, "y")), Err(Status::NotDir));
    let listed = bed.with(|backend, cx| backend.list(cx, file, 0, &mut |_| true));
    assert_eq!(listed, Err(Status::NotDir));
    let dir = bed.dir(root, "d");
    assert_eq!(bed.read(dir, 0, 1), Err(Status::Inval));
    assert_eq!(bed.write(dir, 0, b"x"), Err(Status::Inval));
    assert_eq!(bed.link(dir, root, "again"), Err(Status::Inval));
}

fn a_file_is_stale_once_its_last_name_is_gone(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    let file = bed.file(root, "a");
    bed.write(file, 0, b"kept").unwrap();
    bed.link(file, root, "b").unwrap();
    bed.remove(root, "a").unwrap();
    assert_eq!((bed.read(file, 0, 9), bed.look(file).links), (Ok(b"kept".to_vec()), 1));
    bed.remove(root, "b").unwrap();
    assert_eq!(bed.read(file, 0, 9), Err(Status::Stale));
    assert_eq!(bed.remove(root, "b"), Err(Status::NoEnt));
    // The file's number may be used again, but the removed file stays stale.
    assert_ne!(bed.file(root, "c"), file);
    assert_eq!(bed.with(|backend, cx| backend.attributes(cx, file)), Err(Status::Stale));
    let strange = FileId { inode: 0, generation: 77 };
    bed.locate(strange);
    assert_eq!(bed.with(|backend, cx| backend.attributes(cx, strange)), Err(Status::Stale));
    let strange = FileId { inode: u64::MAX, generation: 77 };
    bed.locate(strange);
    assert_eq!(bed.with(|backend, cx| backend.attributes(cx, strange)), Err(Status::Stale));
    let stale = Err(Status::Stale);
    assert_eq!((bed.link(file, root, "d"), bed.rename((file, "x"), (root, "y"))), (stale, stale));
    bed.check();
}

fn only_empty_directories_are_removed(mut bed: Bed<impl Backend>) {
    let root = bed.root();
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

fn a_rename_replaces_what_is_of_its_kind(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    let (file, other) = (bed.file(root, "file"), bed.file(root, "other"));
    let (dir, empty) = (bed.dir(root, "dir"), bed.dir(root, "empty"));
    let inside = bed.file(dir, "inside");
    assert_eq!(bed.rename((root, "none"), (root, "x")), Err(Status::NoEnt));
    for (from, to) in [("file", "dir"), ("file", "empty"), ("dir", "file"), ("empty", "dir")] {
        assert_eq!(bed.rename((root, from), (root, to)), Err(Status::Exist), "{from} {to}");
    }
    bed.rename((root, "file"), (root, "other")).unwrap();
    assert_eq!((bed.find(root, "other"), bed.find(root, "file")), (Ok(file), Err(Status::NoEnt)));
    assert_eq!(bed.with(|backend, cx| backend.attributes(cx, other)), Err(Status::Stale));
    bed.rename((root, "dir"), (root, "empty")).unwrap();
    assert_eq!((bed.find(root, "empty"), bed.find(dir, "inside")), (Ok(dir), Ok(inside)));
    assert_eq!(bed.with(|backend, cx| backend.attributes(cx, empty)), Err(Status::Stale));
    bed.check();
}

fn a_rename_onto_itself_does_nothing(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    let file = bed.file(root, "a");
    bed.link(file, root, "b").unwrap();
    let before = bed.look(root);
    bed.rename((root, "a"), (root, "a")).unwrap();
    bed.rename((root, "a"), (root, "b")).unwrap();
    assert_eq!((bed.find(root, "a"), bed.find(root, "b")), (Ok(file), Ok(file)));
    assert_eq!(bed.look(root), before);
}

fn a_directory_moves_with_all_in_it_but_never_into_itself(mut bed: Bed<impl Backend>) {
    let root = bed.root();
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

fn a_listing_goes_on_where_it_stopped_whatever_changed(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    for name in ["a", "b", "c", "d", "e"] {
        bed.file(root, name);
    }
    let (first, last) = bed.list(root, 0, 2);
    assert_eq!((first.len(), last), (2, false));
    assert!(first.iter().all(|(_, cookie)| *cookie >= COOKIE_MIN));
    let all = ["a", "b", "c", "d", "e"];
    let left: Vec<_> = all.into_iter().filter(|a| first.iter().all(|(b, _)| a != b)).collect();
    // The last name shown and one not shown yet are removed, and a new one is made.
    bed.remove(root, &first[1].0).unwrap();
    bed.remove(root, left[1]).unwrap();
    bed.file(root, "aa");
    let (rest, last) = bed.list(root, first[1].1, 9);
    let mut rest: Vec<_> = rest.iter().map(|(name, _)| name.as_str()).collect();
    // The new name may be anywhere in the order.
    rest.retain(|name| *name != "aa");
    rest.sort_unstable();
    assert_eq!((rest, last), (vec![left[0], left[2]], true));
    assert_eq!(bed.list(root, u64::MAX, 9), (Vec::new(), true));
}

fn a_long_listing_shows_each_name_once(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    for number in 0..5_000 {
        bed.file(root, &format!("file {number}"));
    }
    let (mut seen, mut after, mut removed) = (Vec::new(), 0, 0);
    loop {
        let (shown, last) = bed.list(root, after, 300);
        after = shown.last().map_or(after, |(_, cookie)| *cookie);
        // Names that were shown are removed, as when a client empties a directory.
        for (name, _) in shown.iter().step_by(7) {
            bed.remove(root, name).unwrap();
            removed += 1;
        }
        seen.extend(shown.into_iter().map(|(name, _)| name));
        if last {
            break;
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 5_000);
    assert_eq!(bed.list(root, 0, usize::MAX).0.len(), 5_000 - removed);
}

fn attributes_are_set_as_asked_and_times_last(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    let file = bed.file(root, "f");
    bed.write(file, 0, b"0123456789").unwrap();
    let old = Time { seconds: 1, nanoseconds: 2 };
    let gives = bed.owner == (1, 2);
    // Only the superuser gives files away.
    bed.caller = Caller::new(0, 0, []);
    let to = SetAttributes {
        mode: Some(0o4711),
        uid: gives.then_some(8),
        gid: gives.then_some(9),
        size: Some(4),
        atime: SetTime::To(Time { seconds: 3, nanoseconds: 4 }),
        mtime: SetTime::To(old),
    };
    bed.set(file, to).unwrap();
    let now = bed.look(file);
    let owner = if gives { (8, 9) } else { bed.owner };
    assert_eq!((now.mode, (now.uid, now.gid), now.size), (0o4711, owner, 4));
    assert_eq!((now.atime, now.mtime), (Time { seconds: 3, nanoseconds: 4 }, old));
    let touch = SetAttributes { atime: SetTime::ToServer, ..SetAttributes::default() };
    bed.set(file, touch).unwrap();
    let now = bed.look(file);
    assert!(now.atime >= bed.now && now.mtime == old);
    assert_eq!(bed.read(file, 0, 99), Ok(b"0123".to_vec()));
    let size = SetAttributes { size: Some(1), ..SetAttributes::default() };
    let dir = bed.set(root, size);
    assert_eq!(dir, Err(Status::Inval));
    let huge = SetAttributes { size: Some(u64::MAX), mode: Some(0), ..SetAttributes::default() };
    let refused = bed.set(file, huge);
    assert_eq!((refused, bed.look(file).mode), (Err(Status::FBig), now.mode));
}

fn what_is_written_is_read(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    let file = bed.file(root, "f");
    let octets: Vec<u8> = (0..200_000_u32).map(|at| (at / 3).to_le_bytes()[0]).collect();
    let mut kept = Vec::new();
    // The parts come placed and unreduced. Some overlap, one leaves a hole, and their ends are not aligned.
    for (step, (offset, length)) in
        [(0, 5_000), (4_096, 8_192), (100_001, 77), (90_000, 70_000), (1, 1)]
            .into_iter()
            .enumerate()
    {
        let part = &octets[step..step + length];
        let stable = [Stable::Unstable, Stable::DataSync, Stable::FileSync][step % 3];
        let mut lease = bed.pool.lease(length).unwrap();
        lease.bytes_mut().copy_from_slice(part);
        let placed = step % 2 == 0;
        let data = if placed { Octets::Placed(lease) } else { Octets::Unreduced(part) };
        let done = bed.write_stable(file, offset, data, stable).unwrap();
        assert_eq!(done.count as usize, length);
        assert!(done.stable >= stable);
        let end = usize::try_from(offset).unwrap() + length;
        kept.resize(end.max(kept.len()), 0);
        kept[end - length..end].copy_from_slice(part);
        assert_eq!(Ok(done.verifier), bed.commit(file));
        assert_eq!(bed.look(file).size, kept.len() as u64);
    }
    for (offset, count) in [(0, 200_000), (4_999, 3), (89_990, 20), (159_999, 5), (3, 65_536)] {
        let end = kept.len().min(offset + count);
        let done = bed.read_pieces(file, offset as u64, count).unwrap();
        let read: Vec<u8> = done.data.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
        assert!(read == kept[offset..end], "{count} at {offset}");
        assert_eq!(done.eof, end == kept.len());
    }
    bed.set(file, SetAttributes { size: Some(10), ..SetAttributes::default() }).unwrap();
    assert_eq!(bed.read(file, 5, 100), Ok(kept[5..10].to_vec()));
}

fn a_file_ends_somewhere(mut bed: Bed<impl Backend>) {
    let root = bed.root();
    let file = bed.file(root, "f");
    let empty = bed.read_pieces(file, 0, 100).unwrap();
    assert!(empty.data.is_empty() && empty.eof);
    let written = bed.write(file, 3, b"").unwrap();
    assert_eq!((written.count, bed.look(file).size), (0, 0));
    let far = bed.read_pieces(file, u64::MAX, 100).unwrap();
    assert!(far.data.is_empty() && far.eof);
    assert_eq!(bed.write(file, u64::MAX, b"x"), Err(Status::FBig));
    assert_eq!(bed.write(file, i64::MAX.cast_unsigned(), b"x"), Err(Status::FBig));
    bed.write(file, 0, b"0123").unwrap();
    let middle = bed.read_pieces(file, 1, 2).unwrap();
    assert_eq!((middle.data.len(), middle.eof), (2, false));
    assert!(bed.read_pieces(file, 1, 3).unwrap().eof);
    let nothing = bed.read_pieces(file, 1, 0).unwrap();
    assert!(nothing.data.is_empty() && !nothing.eof);
}

fn names_and_links_agree_after_anything(mut bed: Bed<impl Backend>) {
    let mut rng = Rng::new(21);
    let names = ["a", "b", "c", "d", "e"];
    let mut dirs = vec![bed.root()];
    for step in 0..1_000 {
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
        if step % 50 == 0 {
            bed.check();
        }
    }
    assert!(bed.check() > 10);
}
