//! Tests of files that are found again, by searches.

use super::*;

#[test]
fn what_was_renamed_behind_our_back_is_searched_for() {
    let mut world = World::new();
    let mut bed = world.start();
    let root = bed.root();
    let (a, b) = (bed.dir(root, "a"), bed.dir(root, "b"));
    let (near, far) = (bed.file(a, "near"), bed.file(a, "far"));
    let deep = bed.dir(b, "deep");
    let inside = bed.file(deep, "inside");
    let (replaced, removed) = (bed.file(a, "replaced"), bed.file(a, "removed"));
    drop(bed);
    behind(&world, "a/near", "a/nearer");
    behind(&world, "a/far", "b/farther");
    behind(&world, "b/deep", "a/deep");
    std::fs::remove_file(world.path("served/a/removed")).unwrap();
    std::fs::remove_file(world.path("served/a/replaced")).unwrap();
    std::fs::write(world.path("served/a/replaced"), b"another").unwrap();
    let mut bed = world.start();
    let found = [near, far, deep, inside].map(|file| bed.look(file).fileid);
    assert_eq!(found, [near, far, deep, inside].map(|file| file.inode));
    assert_eq!(bed.find(inside, "."), Err(Status::NotDir));
    for gone in [replaced, removed] {
        assert_eq!(bed.read(gone, 0, 1), Err(Status::Stale));
        assert_eq!(bed.read(gone, 0, 1), Err(Status::Stale));
    }
    // Once found, a file is known under its new name, even if another file takes the old one.
    bed.backend.tree.files.close_all();
    std::fs::write(world.path("served/a/near"), b"not it").unwrap();
    assert_eq!(bed.read(near, 0, 9), Ok(Vec::new()));
}

/// Creates `count` files in a directory of the export, outside the server.
fn crowd(world: &World, dir: &str, count: usize) {
    for number in 0..count {
        std::fs::write(world.path("served").join(dir).join(format!("{number}")), b"").unwrap();
    }
}

/// Removes a file of the export, outside the server, and returns it open. A file that is open keeps its inode number: in
/// the moment when a new file is given that number, Linux returns ENOMEM for the handle of the removed one.
fn remove(world: &World, path: &str) -> std::fs::File {
    let path = world.path("served").join(path);
    let open = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    open
}

/// Turns until no search is left. Returns the number of names examined in each turn, and the files reported as located.
fn search(bed: &mut Bed<Directory>) -> (Vec<usize>, Vec<FileId>) {
    let (mut looked_at, mut located) = (Vec::new(), Vec::new());
    let mut goes_on = true;
    while goes_on {
        goes_on = bed.backend.turn();
        looked_at.push(bed.backend.tree.looked_at());
        while let Some(finished) = bed.backend.poll() {
            let Finished::Located(file) = finished else { panic!("{finished:?}") };
            located.push(file);
        }
        assert!(looked_at.len() < 10_000, "it ends");
    }
    (looked_at, located)
}

#[test]
fn a_turn_looks_at_a_bounded_number_of_names_for_all_stale_handles_together() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let dir = bed.dir(root, "dir");
    crowd(&world, "dir", 950);
    let gone: Vec<_> = (0..40).map(|n| bed.file(dir, &format!("gone-{n}"))).collect();
    let moved = bed.file(dir, "moved");
    for number in 0..40 {
        std::fs::remove_file(world.path("served/dir").join(format!("gone-{number}"))).unwrap();
    }
    behind(&world, "dir/moved", "elsewhere");
    bed.backend.open_by_names_alone();
    let all: Vec<_> = gone.iter().chain([&moved]).copied().collect();
    for file in &all {
        // A file that is asked for twice is searched for once.
        for _ in 0..2 {
            assert_eq!(bed.backend.locate(*file), Located::Later);
        }
    }
    let (looked_at, mut located) = search(&mut bed);
    assert!(looked_at.iter().all(|names| *names <= CONFIG.search_turn_max), "{looked_at:?}");
    // One pass looks for all of them: at the 950 names, the directory, and the moved file.
    assert_eq!(looked_at.iter().sum::<usize>(), 952);
    located.sort();
    let mut expected = all;
    expected.sort();
    assert_eq!(located, expected);
    for file in &gone {
        assert_eq!(bed.backend.locate(*file), Located::Now);
        assert_eq!(bed.read(*file, 0, 1), Err(Status::Stale));
    }
    assert_eq!(bed.read(moved, 0, 1), Ok(Vec::new()));
    assert_eq!(search(&mut bed), (vec![0], Vec::new()), "all of that is remembered");
}

#[test]
fn what_is_gone_is_searched_for_again_where_it_was_if_that_has_changed() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let dir = bed.dir(root, "dir");
    bed.dir(root, "crowd");
    crowd(&world, "crowd", 300);
    let file = bed.file(dir, "file");
    behind(&world, "dir/file", "../away");
    bed.backend.open_by_names_alone();
    bed.locate(dir);
    assert_eq!(bed.backend.locate(file), Located::Later);
    let (looked_at, _) = search(&mut bed);
    assert_eq!(looked_at.iter().sum::<usize>(), 302);
    assert_eq!(bed.backend.locate(file), Located::Now);
    // The clock of the file system moves on before the directory changes.
    let before = bed.look(dir).ctime;
    for number in 0.. {
        std::fs::write(world.path("served/dir").join(format!("{number}")), b"").unwrap();
        if bed.look(dir).ctime != before {
            break;
        }
    }
    behind(&world, "../away", "dir/back");
    assert_eq!(bed.backend.locate(file), Located::Later);
    let (looked_at, located) = search(&mut bed);
    assert!(looked_at.iter().sum::<usize>() < 302, "{looked_at:?}");
    assert_eq!((located, bed.read(file, 0, 1)), (vec![file], Ok(Vec::new())));
}

#[test]
fn a_way_down_that_is_long_is_gone_in_several_turns() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let mut dirs = vec![bed.root()];
    for level in 0..200 {
        dirs.push(bed.dir(dirs[level], "d"));
    }
    bed.backend.open_by_names_alone();
    assert_eq!(bed.backend.locate(dirs[200]), Located::Later);
    let (turns, located) = search(&mut bed);
    assert_eq!((turns, located), (vec![0; 12], vec![dirs[200]]));
    assert_eq!(bed.find(dirs[200], ".."), Ok(dirs[199]));
}

#[test]
fn what_is_not_known_any_more_is_found_by_a_search() {
    let mut world = World::new();
    let config = Config { known_octets_max: 8 << 10, ..CONFIG };
    let mut bed = world.serve(None, config);
    let root = bed.root();
    let files: Vec<_> = (0..500).map(|number| bed.file(root, &format!("{number}"))).collect();
    let (count, octets) = bed.backend.tree.files.known_len();
    assert!((40..100).contains(&count) && octets <= 8 << 10, "{count} in {octets}");
    bed.backend.open_by_names_alone();
    for file in &files {
        assert_eq!(bed.look(*file).fileid, file.inode);
    }
    drop(bed);
    // Reading the journal keeps to the bound on memory, too.
    let mut bed = world.start();
    for number in 0..500 {
        bed.find(root, &format!("{number}")).unwrap();
    }
    assert_eq!(bed.backend.tree.files.known_len().0, 500);
    drop(bed);
    let state = State::open(&world.path("state")).unwrap();
    let mut bed = world.serve(Some(state), config);
    let (count, octets) = bed.backend.tree.files.known_len();
    assert!((40..100).contains(&count) && octets <= 8 << 10, "{count} in {octets}");
    assert_eq!(bed.look(files[0]).fileid, files[0].inode);
}

#[test]
fn a_bounded_number_of_files_is_searched_for() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    bed.backend.open_by_names_alone();
    let file = |inode| FileId { inode, generation: 1 };
    let begun: Vec<_> = (0..300).map(|inode| bed.backend.locate(file(inode))).collect();
    assert!(begun[..256].iter().all(|located| *located == Located::Later));
    assert!(begun[256..].iter().all(|located| *located == Located::Busy));
    let (_, located) = search(&mut bed);
    assert_eq!(located.len(), 256);
    assert_eq!(bed.backend.locate(file(299)), Located::Later);
}

#[test]
fn a_search_that_ends_early_gives_up_only_what_may_be_gone() {
    for has_helpers in [false, true] {
        let world = World::new();
        let mut bed = world.serve(None, Config { search_max: 3, ..CONFIG });
        if has_helpers {
            bed.backend.tree.files.helpers.wake_by(Waker::new().unwrap());
        }
        let root = bed.root();
        let (a, b) = (bed.dir(root, "a"), bed.dir(root, "b"));
        let (kept, gone) = (bed.file(a, "kept"), bed.file(a, "gone"));
        for number in 0..10 {
            bed.file(b, &format!("{number}"));
        }
        behind(&world, "a/kept", "b/moved");
        let open = remove(&world, "a/gone");
        bed.backend.tree.files.close_all();
        // A file that the file system opens by its handle is taken to be in the tree.
        let privileged = bed.backend.tree.files.opens_by_name();
        let expected = if privileged { Ok(Vec::new()) } else { Err(Status::Stale) };
        assert_eq!(bed.read(kept, 0, 1), expected);
        assert_eq!(bed.read(gone, 0, 1), Err(Status::Stale));
        drop(open);
    }
}

#[test]
fn files_that_the_system_takes_long_to_remove_keep_nobody_from_finding_others() {
    for is_held in [false, true] {
        let world = World::new();
        let mut bed = world.serve(None, CONFIG);
        bed.backend.tree.files.helpers.wake_by(Waker::new().unwrap());
        let root = bed.root();
        let (moved, gone) = (bed.file(root, "moved"), bed.file(root, "gone"));
        behind(&world, "moved", "renamed");
        let open = remove(&world, "gone");
        bed.backend.close_all();
        if is_held {
            bed.backend.tree.hold_handles();
        }
        let is_asked = bed.backend.tree.files.opens_by_name() && !is_held;
        for (file, is_searched) in [(moved, true), (gone, !is_asked)] {
            assert_eq!(bed.backend.locate(file), Located::Later);
            let (mut names, mut is_located) = (0, false);
            while !is_located {
                bed.backend.turn();
                while let Some(finished) = bed.backend.poll() {
                    is_located |= matches!(finished, Finished::Located(found) if found == file);
                }
                names += bed.backend.tree.looked_at();
                std::thread::yield_now();
            }
            assert_eq!(names > 0, is_searched, "{is_held}");
            assert_eq!(bed.backend.locate(file), Located::Now);
        }
        assert_eq!(bed.read(moved, 0, 1), Ok(Vec::new()));
        assert_eq!(bed.read(gone, 0, 1), Err(Status::Stale));
        drop(open);
    }
}

#[test]
fn who_asks_for_a_file_that_is_searched_for_waits_for_that_search() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    bed.backend.tree.files.helpers.wake_by(Waker::new().unwrap());
    let root = bed.root();
    let file = bed.file(root, "file");
    behind(&world, "file", "renamed");
    bed.backend.open_by_names_alone();
    let gate = bed.backend.gate();
    let mut is_searched = false;
    while !is_searched {
        bed.backend.poll();
        assert_eq!(bed.backend.locate(file), Located::Later);
        is_searched = bed.backend.tree.is_sought(file);
    }
    gate.store(true, Ordering::Release);
    bed.backend.turn();
    for _ in 0..2 {
        assert_eq!(bed.backend.locate(file), Located::Later);
        assert!(bed.backend.tree.is_sought(file) && !bed.backend.tree.is_on_the_way(file));
        bed.backend.close_all();
    }
    gate.store(false, Ordering::Release);
    assert_eq!(bed.read(file, 0, 1), Ok(Vec::new()));
}

#[test]
fn nothing_is_gone_after_a_search_that_the_system_failed() {
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO] {
        let world = World::new();
        let mut bed = world.serve(None, CONFIG);
        let root = bed.root();
        let file = bed.file(root, "file");
        crowd(&world, ".", 300);
        behind(&world, "file", "../away");
        bed.backend.open_by_names_alone();
        assert_eq!(bed.backend.locate(file), Located::Later);
        assert!(bed.backend.turn(), "it goes on");
        bed.backend.tree.miss(errno);
        assert_eq!(search(&mut bed).1, [file]);
        assert_eq!(bed.backend.locate(file), Located::Later, "{errno:?}");
        behind(&world, "../away", "back");
        assert_eq!(search(&mut bed).1, [file]);
        assert_eq!(bed.read(file, 0, 1), Ok(Vec::new()));
    }
}

#[test]
fn what_is_gone_is_searched_for_again_once_the_directory_it_was_in_was_closed() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let dir = bed.dir(root, "dir");
    let file = bed.file(dir, "file");
    behind(&world, "dir/file", "../away");
    bed.backend.open_by_names_alone();
    bed.locate(dir);
    assert_eq!(bed.backend.locate(file), Located::Later);
    search(&mut bed);
    assert_eq!(bed.backend.locate(file), Located::Now);
    behind(&world, "../away", "dir/back");
    bed.backend.tree.files.close_all();
    assert_eq!(bed.backend.locate(file), Located::Later);
    assert_eq!(search(&mut bed).1, [file]);
    assert_eq!(bed.read(file, 0, 1), Ok(Vec::new()));
}
