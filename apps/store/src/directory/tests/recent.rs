//! Tests of lists that are kept for the next Call.

use std::time::Duration;

use super::*;
use crate::backend::{Names, Octets};
use crate::directory::jobs::list::Batch;
use crate::directory::recent::{Began, KEPT_MAX, OCTETS_MAX, Recent};
use crate::directory::shared::changed::LastChanges;

/// Serves a directory, of which every list is kept as long as nothing tells that it is old.
fn keeping(world: &World, lists_kept: Duration) -> Bed<Directory> {
    let mut bed = world.serve(None, Config { lists_kept, ..CONFIG });
    bed.backend.lists.recent.rest = Duration::ZERO;
    bed
}

/// Like [`keeping`], with a ring if the system has rings.
fn keeping_with_ring(world: &World, lists_kept: Duration) -> Bed<Directory> {
    let (served, waker) = (world.path("served"), Waker::new().unwrap());
    let mut bed = Bed::new(|pool, _| {
        let config = Config { lists_kept, ..CONFIG };
        Directory::open(&served, None, Ring::new(pool, &waker).ok(), config).unwrap()
    });
    bed.caller = Caller::new(0, 0, []);
    bed.backend.lists.recent.rest = Duration::ZERO;
    bed
}

/// Lists a directory. Returns its names, with the files' sizes.
fn sizes(bed: &mut Bed<Directory>, dir: FileId) -> Vec<(String, u64)> {
    let listing = Listing { kind: ListingKind::Files, ..all_of(dir) };
    bed.with(|directory, cx| {
        let ticket = Ticket { number: 1, network: 0 };
        assert_eq!(directory.look_into(ticket, &listing), Names::Known);
        let mut names = Vec::new();
        let mut take = |shown: Shown<'_>| {
            names.push(shown.name.0.to_vec());
            true
        };
        assert_eq!(directory.list(cx, dir, 0, &mut take), Ok(true));
        let sizes = names.into_iter().map(|name| {
            let (_, look) = directory.listed(dir, Name(&name)).unwrap().unwrap();
            (String::from_utf8(name).unwrap(), look.size)
        });
        let mut sizes: Vec<_> = sizes.collect();
        sizes.sort_unstable();
        sizes
    })
}

#[test]
fn a_list_is_read_anew_once_something_tells_that_it_is_old() {
    let world = World::new();
    let mut bed = keeping(&world, Duration::from_secs(3600));
    let root = bed.root();
    let (dir, other) = (bed.dir(root, "dir"), bed.dir(root, "other"));
    let (file, below) = (bed.file(dir, "file"), bed.dir(dir, "below"));
    // Another process changes this file, which nothing tells.
    let beside = world.path("served/dir/beside");
    let size = |bed: &mut Bed<Directory>| {
        sizes(bed, dir).into_iter().find(|(name, _)| name == "beside").unwrap().1
    };
    let acts: [(&str, &Act<'_>); 8] = [
        ("WRITE", &|bed| bed.write(file, 0, b"o").map(drop)),
        ("SETATTR", &|bed| {
            let to = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
            bed.set(file, to)
        }),
        ("LINK elsewhere", &|bed| bed.link(file, other, "second")),
        ("REMOVE elsewhere", &|bed| bed.remove(other, "second")),
        ("CREATE in it", &|bed| bed.make(dir, "made", NewKind::Regular).map(drop)),
        ("CREATE below", &|bed| bed.make(below, "made", NewKind::Regular).map(drop)),
        ("REMOVE in it", &|bed| bed.remove(dir, "made")),
        ("a name beside the server", &|bed| {
            // The system's clock may stand still for some milliseconds.
            let before = bed.look(dir).ctime;
            while bed.look(dir).ctime == before {
                std::fs::write(world.path("served/dir/new"), b"").unwrap();
                std::fs::remove_file(world.path("served/dir/new")).unwrap();
            }
            Ok(())
        }),
    ];
    for (number, (act, make)) in acts.into_iter().enumerate() {
        std::fs::write(&beside, "octets").unwrap();
        // What was kept of the round before is not of these names, or not of this clock's tick.
        bed.backend.tree.files.shared.changed.note(file);
        assert_eq!(size(&mut bed), 6, "{act}");
        std::fs::write(&beside, vec![b'-'; 10 + number]).unwrap();
        assert_eq!(size(&mut bed), 6, "before {act} the list is kept");
        assert_eq!(make(&mut bed), Ok(()), "{act}");
        assert_eq!(size(&mut bed), 10 + number as u64, "{act}");
    }
    let names: Vec<_> = sizes(&mut bed, dir).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["below", "beside", "file"]);
}

#[test]
fn a_list_is_read_anew_once_the_ring_has_written_a_file() {
    let world = World::new();
    let mut bed = keeping_with_ring(&world, Duration::from_secs(3600));
    let root = bed.root();
    let file = bed.file(root, "file");
    for (size, stable) in [(1, Stable::FileSync), (2, Stable::DataSync), (3, Stable::Unstable)] {
        let octets = vec![b'-'; size];
        let written = bed.write_stable(file, 0, Octets::Unreduced(&octets), stable).unwrap();
        for _ in 0..2 {
            assert_eq!(sizes(&mut bed, root), [("file".to_owned(), size as u64)], "{written:?}");
        }
        assert!(!bed.backend.lists.recent.is_empty(), "it was kept");
    }
}

#[test]
fn a_list_that_may_be_old_is_not_kept() {
    let world = World::new();
    for (lists_kept, rest) in [(0, 0), (3600, 3600)] {
        let mut bed = keeping(&world, Duration::from_secs(lists_kept));
        // A change soon after another may leave the directory's ctime as it is.
        bed.backend.lists.recent.rest = Duration::from_secs(rest);
        let root = bed.root();
        for size in [1, 2, 3] {
            std::fs::write(world.path("served/file"), vec![b'-'; size]).unwrap();
            assert_eq!(sizes(&mut bed, root), [("file".to_owned(), size as u64)]);
        }
        assert!(bed.backend.lists.recent.is_empty());
    }
}

/// Returns no changes, and a reading that begins then.
fn begin() -> (LastChanges, Began) {
    let changed = LastChanges::new();
    let began = Began::now(&changed);
    (changed, began)
}

#[test]
fn the_names_of_a_directory_that_was_changed_a_moment_ago_are_not_kept() {
    let now = haulage::sys::clock::time_of_day().as_secs().try_into().unwrap();
    let dir = all_of(FileId { inode: 2, generation: 1 });
    // The next change of names may leave this ctime as it is.
    for (seconds, is_kept) in [(now, false), (now - 1, false), (now - 60, true)] {
        let mut recent = Recent::new(Duration::from_secs(5));
        let ctime = Time { seconds, nanoseconds: 0 };
        let (mut changed, began) = begin();
        recent.keep(&mut changed, (&dir, began), &Rc::new(Batch::of_files(ctime, 1)));
        assert_eq!(recent.find(&changed, &dir, ctime).is_some(), is_kept, "{seconds} of {now}");
    }
}

#[test]
fn no_list_shows_what_is_older_than_what_was_told() {
    let world = World::new();
    let mut bed = keeping(&world, Duration::from_secs(3600));
    let root = bed.root();
    let (dir, other) = (bed.dir(root, "dir"), bed.dir(root, "other"));
    let file = bed.file(dir, "file");
    bed.link(file, other, "second").unwrap();
    let path = world.path("served/dir/file");
    std::fs::write(&path, "1").unwrap();
    let expected = |name: &str, size| [(name.to_owned(), size)];
    assert_eq!(sizes(&mut bed, dir), expected("file", 1));
    std::fs::write(&path, "12").unwrap();
    assert_eq!(sizes(&mut bed, dir), expected("file", 1), "it is kept");
    assert_eq!(bed.look(file).size, 2);
    assert_eq!(sizes(&mut bed, dir), expected("file", 2), "GETATTR told of the change");
    std::fs::write(&path, "123").unwrap();
    assert_eq!(sizes(&mut bed, dir), expected("file", 2), "it is kept");
    // That other list is read for the first time, when the file was changed a moment ago.
    bed.backend.lists.recent.rest = Duration::from_secs(3600);
    assert_eq!(sizes(&mut bed, other), expected("second", 3));
    assert_eq!(sizes(&mut bed, dir), expected("file", 3), "another list told of the change");
}

#[test]
fn a_list_is_old_if_a_client_was_told_of_a_change_while_it_was_read() {
    let dir = Listing { ..all_of(FileId { inode: 2, generation: 1 }) };
    let (ctime, now) =
        (Time { seconds: 7, nanoseconds: 0 }, Time { seconds: 1000, nanoseconds: 0 });
    let (changed, another) =
        (FileId { inode: 0, generation: 1 }, FileId { inode: 1, generation: 1 });
    for (file, told, is_old) in
        [(changed, now, true), (changed, ctime, false), (another, now, false)]
    {
        let mut recent = Recent::new(Duration::from_secs(5));
        let (mut changes, began) = begin();
        recent.note_told(&mut changes, (file, told), now);
        recent.keep(&mut changes, (&dir, began), &Rc::new(Batch::of_files(ctime, 1)));
        assert_eq!(recent.find(&changes, &dir, ctime).is_none(), is_old, "{file:?} {told:?}");
    }
}

#[test]
fn lists_take_a_bounded_room_and_time() {
    let dir = |inode| Listing { ..all_of(FileId { inode, generation: 1 }) };
    let ctime = Time { seconds: 7, nanoseconds: 0 };
    for (files, kept) in [(0, KEPT_MAX as u64), (10_000, 0)] {
        let (mut recent, mut changed) =
            (Recent::new(Duration::from_secs(3600)), LastChanges::new());
        let names = Rc::new(Batch::of_files(ctime, files));
        let kept = if kept > 0 { kept } else { (OCTETS_MAX / names.size()) as u64 };
        let number = 2 * kept;
        for inode in 0..number {
            let began = Began::now(&changed);
            recent.keep(&mut changed, (&dir(inode), began), &names);
        }
        let found = |recent: &Recent, changed: &LastChanges, inode| {
            recent.find(changed, &dir(inode), ctime).is_some()
        };
        let left = (0..number).filter(|inode| found(&recent, &changed, *inode)).count() as u64;
        assert_eq!((left, found(&recent, &changed, number - 1)), (kept, true), "{files}");
        // A list that is read again takes no more room.
        for _ in 0..number {
            let began = Began::now(&changed);
            recent.keep(&mut changed, (&dir(number - 1), began), &names);
        }
        assert!(found(&recent, &changed, number - 1));
        recent.age_max = Duration::ZERO;
        assert!(!found(&recent, &changed, number - 1), "it is too old");
        recent.turn();
        assert!(recent.is_empty() && recent.octets() == 0, "{files}");
    }
}
