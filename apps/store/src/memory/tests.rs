use super::*;
use crate::backend::bed;
use crate::nfs3::SetAttributes;

type Bed = bed::Bed<Memory>;

/// A file system of few files and names.
fn bed() -> Bed {
    Bed::new(|pool, now| {
        Memory::new(pool, Limits { files_max: 100, names_max: 100 }, 77, now).unwrap()
    })
}

#[test]
fn every_change_shows_in_the_ctime_though_the_clock_stands_still() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(root, "f");
    let mut seen = vec![bed.look(file).ctime];
    let chmod = SetAttributes { mode: Some(0o100_600), ..SetAttributes::default() };
    for _ in 0..2 {
        bed.write(file, 0, b"x").unwrap();
        seen.push(bed.look(file).ctime);
        bed.set(file, chmod).unwrap();
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
    // The successor of a second's last nanosecond is in the next second.
    let last = Time { seconds: 5, nanoseconds: 999_999_999 };
    assert!(inodes::successor(last) == Time { seconds: 6, nanoseconds: 0 });
}

#[test]
fn files_and_names_are_bounded() {
    let mut bed = bed();
    let root = bed.root();
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
    assert_eq!(bed.check(), bed.backend.names);
}

#[test]
fn a_full_pool_takes_no_link() {
    let mut bed = bed();
    let root = bed.root();
    let mut held = Vec::new();
    held.extend(std::iter::from_fn(|| bed.pool.lease(1 << 12)));
    let made = bed.make(root, "l", NewKind::Symlink(&[b'x'; 4000]));
    assert_eq!((made, bed.find(root, "l")), (Err(Status::NoSpc), Err(Status::NoEnt)));
    drop(held);
    assert!(bed.make(root, "l", NewKind::Symlink(&[b'x'; 4000])).is_ok());
    bed.check();
}

#[test]
fn all_memory_comes_home() {
    let mut bed = bed();
    let root = bed.root();
    let empty = bed.pool.gauges().leased_bytes;
    let file = bed.file(root, "f");
    bed.write(file, 0, &[1; 100_000]).unwrap();
    bed.make(root, "l", NewKind::Symlink(&[b'x'; 4000])).unwrap();
    assert!(bed.pool.gauges().leased_bytes > empty);
    bed.remove(root, "f").unwrap();
    bed.remove(root, "l").unwrap();
    assert_eq!(bed.pool.gauges().leased_bytes, empty);
    let Bed { backend, pool, .. } = bed;
    drop(backend);
    assert_eq!(pool.gauges().leased_bytes, 0);
}
