//! Tests of what helper threads do for a backend.

use super::*;

#[test]
fn a_helper_closes_what_is_large_and_has_no_name_left() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let has_started = |bed: &Bed<Directory>| bed.backend.tree.files.helpers.has_started();
    let large = vec![b'x'; 100_000];
    let make = |bed: &mut Bed<Directory>, name: &str, octets: &[u8]| {
        let file = bed.file(root, name);
        bed.write(file, 0, octets).unwrap();
        // The file system counts the room of a file once it is written.
        bed.commit(file).unwrap();
        file
    };
    make(&mut bed, "small", b"x");
    bed.remove(root, "small").unwrap();
    make(&mut bed, "kept", b"x");
    make(&mut bed, "linked", &large);
    std::fs::hard_link(world.path("served/linked"), world.path("kept")).unwrap();
    bed.remove(root, "linked").unwrap();
    bed.backend.tree.files.close_all();
    assert!(!has_started(&bed), "the core closes what is small, and what has another name");
    for act in ["remove", "rename", "outside"] {
        let bed = &mut world.serve(None, CONFIG);
        make(bed, act, &large);
        match act {
            "remove" => bed.remove(root, act).unwrap(),
            "rename" => {
                make(bed, "other", b"x");
                bed.rename((root, "other"), (root, act)).unwrap();
            }
            _ => {
                std::fs::remove_file(world.path("served").join(act)).unwrap();
                bed.backend.tree.files.close_all();
            }
        }
        assert!(has_started(bed), "{act}");
        while !bed.backend.tree.files.helpers.is_idle() {
            std::thread::yield_now();
        }
        // A large file that no helper has room to close is not removed.
        make(bed, "again", &large);
        bed.backend.tree.files.helpers.fill();
        assert_eq!(bed.remove(root, "again"), Err(Status::Jukebox), "{act}");
        assert_eq!(bed.rename((root, "kept"), (root, "again")), Err(Status::Jukebox), "{act}");
        let (again, cut) = (
            bed.find(root, "again").unwrap(),
            SetAttributes { size: Some(0), ..SetAttributes::default() },
        );
        let cut = bed.with(|directory, cx| {
            directory.change(cx, Ticket { number: 1, network: 0 }, again, &cut.into())
        });
        assert!(matches!(cut, Progress::Ended(Err(Status::Jukebox))), "{act}");
        assert_eq!(bed.look(again).size, 100_000, "{act}");
        // A file removed beside the server is closed by a helper all the same.
        let gate = bed.backend.gate();
        gate.store(true, Ordering::Release);
        std::fs::remove_file(world.path("served/again")).unwrap();
        bed.backend.tree.files.close_all();
        assert!(!bed.backend.tree.files.helpers.is_idle(), "{act}");
        gate.store(false, Ordering::Release);
    }
}

#[test]
fn a_helper_closes_a_directory_that_was_large() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    for dir in ["first", "second"] {
        let made = bed.dir(root, dir);
        let names: Vec<_> = (0..2_000).map(|n| format!("served/{dir}/{n:0>100}")).collect();
        for name in &names {
            std::fs::write(world.path(name), b"").unwrap();
        }
        for name in &names {
            std::fs::remove_file(world.path(name)).unwrap();
        }
        if bed.look(made).used < closing::DEAR {
            return eprintln!("skipped: directories take no room here");
        }
    }
    bed.remove_dir(root, "first").unwrap();
    assert!(bed.backend.tree.files.helpers.has_started());
    while !bed.backend.tree.files.helpers.is_idle() {
        std::thread::yield_now();
    }
    bed.backend.tree.files.helpers.fill();
    assert_eq!(bed.remove_dir(root, "second"), Err(Status::Jukebox));
}

#[test]
fn nobody_waits_for_a_file_that_the_helper_cuts() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    bed.backend.tree.files.helpers.wake_by(Waker::new().unwrap());
    let root = bed.root();
    let file = bed.file(root, "cut");
    bed.write(file, 0, &vec![b'x'; 100_000]).unwrap();
    // The file system counts the room of a file once it is written.
    bed.commit(file).unwrap();
    bed.file(root, "other");
    let to = SetAttributes { size: Some(1), ..SetAttributes::default() };
    let resize = |bed: &mut Bed<Directory>| {
        bed.with(|directory, cx| {
            directory.change(cx, Ticket { number: 1, network: 0 }, file, &to.into())
        })
    };
    assert!(matches!(resize(&mut bed), Progress::Later));
    let acts: [(&str, &Act<'_>); 6] = [
        ("SETATTR", &|bed| {
            let to = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
            bed.set(file, to)
        }),
        ("WRITE", &|bed| bed.write(file, 0, b"y").map(drop)),
        ("LINK", &|bed| bed.link(file, root, "linked")),
        ("RENAME", &|bed| bed.rename((root, "cut"), (root, "renamed"))),
        ("RENAME over it", &|bed| bed.rename((root, "other"), (root, "cut"))),
        ("REMOVE", &|bed| bed.remove(root, "renamed").or_else(|_| bed.remove(root, "cut"))),
    ];
    for (name, act) in acts {
        assert_eq!(act(&mut bed), Err(Status::Jukebox), "{name}");
    }
    assert!(matches!(resize(&mut bed), Progress::Ended(Err(Status::Jukebox))));
    let ended = bed.wait();
    assert!(matches!(ended, Finished::Changed(Ticket { number: 1, network: 0 }, Ok(()))));
    for (name, act) in acts {
        assert_eq!(act(&mut bed), Ok(()), "{name}");
    }
}

#[test]
fn at_the_end_the_next_server_may_begin_and_what_no_helper_has_begun_is_not_done() {
    let mut world = World::new();
    let mut bed = world.start();
    bed.backend.tree.files.helpers.wake_by(Waker::new().unwrap());
    let (root, gate) = (bed.root(), bed.backend.gate());
    let names: Vec<_> = (0..8).map(|number| format!("{number}")).collect();
    let files: Vec<_> = names.iter().map(|name| bed.file(root, name)).collect();
    for file in &files {
        bed.write(*file, 0, &[b'x'; 100_000]).unwrap();
        bed.commit(*file).unwrap();
    }
    gate.store(true, Ordering::Release);
    for (file, number) in files.iter().zip(1..) {
        let to = SetAttributes { size: Some(1), ..SetAttributes::default() };
        let begun = bed.with(|directory, cx| {
            directory.change(cx, Ticket { number, network: 0 }, *file, &to.into())
        });
        assert!(matches!(begun, Progress::Later), "{begun:?}");
    }
    drop(bed);
    State::open(&world.path("state")).unwrap();
    gate.store(false, Ordering::Release);
    // The gate is shared until all helpers have ended.
    while Arc::strong_count(&gate) > 1 {
        std::thread::yield_now();
    }
    let length = |name: &String| std::fs::metadata(world.path("served").join(name)).unwrap().len();
    let cut = names.iter().filter(|name| length(name) == 1).count();
    let kept = names.iter().filter(|name| length(name) == 100_000).count();
    // One network may take only half of the helpers that cut files.
    let begun = helpers::DEAR_THREADS_MAX / 2;
    assert_eq!((cut, kept), (begun, 8 - begun));
}

#[test]
fn a_network_leaves_helpers_to_others() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    bed.backend.tree.files.helpers.wake_by(Waker::new().unwrap());
    let (root, gate) = (bed.root(), bed.backend.gate());
    let files: Vec<_> = (0..300).map(|number| bed.file(root, &format!("{number}"))).collect();
    let to = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    gate.store(true, Ordering::Release);
    let mut begin = |number: usize, network| {
        let ticket = Ticket { number: number as u64, network };
        let begun =
            bed.with(|directory, cx| directory.change(cx, ticket, files[number], &to.into()));
        (matches!(begun, Progress::Later), bed.backend.tree.files.helpers.busy())
    };
    let greedy: Vec<_> = (0..200).map(|number| begin(number, 1)).collect();
    let taken = greedy.iter().filter(|(is_taken, _)| *is_taken).count();
    assert_eq!((taken, greedy[199].1), (8 + 128, 8), "of 16 helpers, and 256 that wait for one");
    assert_eq!(begin(200, 2), (true, 9));
    assert_eq!(begin(201, 3), (true, 10));
    let last = (202..300).map(|number| begin(number, 2)).filter(|(is_taken, _)| *is_taken).count();
    assert!((40..98).contains(&last), "{last}");
    gate.store(false, Ordering::Release);
    while !bed.backend.tree.files.helpers.is_idle() {
        std::thread::yield_now();
    }
}
