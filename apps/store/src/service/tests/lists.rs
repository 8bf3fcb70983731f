//! Tests of directories that are read beside the core, by helpers that the test keeps from acting.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::Ordering;

use super::waits::World;
use super::*;
use crate::directory;
use crate::nfs3::arguments::{ReadDir, ReadDirPlus};

/// Names of one Reply, each with whether its attributes and its handle were told; the last cookie; and whether no name is
/// left.
type Page = (Vec<(String, bool)>, u64, bool);

impl World {
    /// Makes a READDIRPLUS that is answered later.
    fn begin_plus(&mut self, dir: &Handle, cookie: u64) -> Ticket {
        let (count, count_max) = (4096, 4096);
        let verifier = Verifier(0);
        self.begin(Arguments::ReadDirPlus(ReadDirPlus {
            dir: dir.get(),
            cookie,
            verifier,
            count,
            count_max,
        }))
    }

    /// Makes a READDIR that is answered later.
    fn begin_names(&mut self, dir: &Handle, cookie: u64, count: u32) -> Ticket {
        let verifier = Verifier(0);
        self.begin(Arguments::ReadDir(ReadDir { dir: dir.get(), cookie, verifier, count }))
    }

    fn end_page(&mut self, procedure: Procedure) -> (Ticket, Page) {
        let (ticket, sent) = self.end(procedure);
        (ticket, page(&sent))
    }

    /// Returns all names of a directory, in the order and with the number of Calls that it takes.
    fn list(&mut self, dir: &Handle, procedure: Procedure) -> (Vec<(String, bool)>, usize) {
        let (mut names, mut cookie, mut calls) = (Vec::new(), 0, 0);
        loop {
            let ticket = match procedure {
                Procedure::ReadDir => self.begin_names(dir, cookie, 400),
                _ => self.begin_plus(dir, cookie),
            };
            let (ended, (shown, last, eof)) = self.end_page(procedure);
            assert_eq!(ended, ticket);
            assert!(eof || !shown.is_empty());
            names.extend(shown);
            (cookie, calls) = (last, calls + 1);
            if eof {
                return (names, calls);
            }
        }
    }

    /// Returns whether nothing is left of any list.
    fn has_no_list(&self) -> bool {
        self.bed.service.parking.is_empty() && self.bed.service.backend.has_found_nothing()
    }
}

fn page(sent: &Sent) -> Page {
    let text = |name: Name<'_>| String::from_utf8(name.0.to_vec()).unwrap();
    match sent.results() {
        Results::ReadDir(Ok(list)) => {
            let last = list.names.iter().last().map_or(0, |entry| entry.cookie);
            (list.names.iter().map(|entry| (text(entry.name), false)).collect(), last, list.eof)
        }
        Results::ReadDirPlus(Ok(list)) => {
            let names = list.names.iter().map(|plus| {
                assert_eq!(plus.file.is_some(), plus.attributes.is_some());
                (text(plus.entry.name), plus.file.is_some())
            });
            let last = list.names.iter().last().map_or(0, |plus| plus.entry.cookie);
            (names.collect(), last, list.eof)
        }
        other => panic!("{other:?}"),
    }
}

/// Returns the names in the system's order.
fn order(world: &World, dir: &str) -> Vec<String> {
    let entries = fs::read_dir(world.place.path().join(dir)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    [".", ".."].map(str::to_owned).into_iter().chain(names).collect()
}

#[test]
fn nobody_waits_for_a_directory_that_is_being_listed() {
    let mut world = World::new();
    let (dir, file) = (world.dir.clone(), world.file("file"));
    (0..50).for_each(|number| drop(world.file(&format!("{number}"))));
    let expected = order(&world, "dir");
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    let mut tickets = vec![world.begin_names(&dir, 0, 4096), world.begin_plus(&dir, 0)];
    // All Calls for one directory take a single helper.
    tickets.extend((0..20).map(|_| world.begin_names(&dir, 0, 4096)));
    assert!(world.poll(Procedure::ReadDir).is_none());
    assert_eq!(world.bed.look(&file).size, 6, "others are served");
    assert_eq!(world.bed.find(&dir, "file"), Ok(file.clone()));
    assert_eq!(world.bed.look(&dir).kind, FileType::Directory);
    gate.store(false, Ordering::Release);
    for (number, ticket) in tickets.iter().enumerate() {
        let is_plus = number == 1;
        let procedure = if is_plus { Procedure::ReadDirPlus } else { Procedure::ReadDir };
        let (ended, (names, _, eof)) = world.end_page(procedure);
        assert_eq!(ended, *ticket, "in the order in which they came");
        let names: Vec<_> = names.into_iter().map(|(name, _)| name).collect();
        assert_eq!((&names[..], eof), (&expected[..names.len()], !is_plus));
    }
    assert!(world.has_no_list());
}

#[test]
fn a_list_goes_on_whole_and_in_order_over_several_calls() {
    let mut world = World::new();
    let dir = world.dir.clone();
    (0..50).for_each(|number| drop(world.file(&format!("{number}"))));
    let expected = order(&world, "dir");
    for procedure in [Procedure::ReadDir, Procedure::ReadDirPlus] {
        let (listed, calls) = world.list(&dir, procedure);
        let names: Vec<_> = listed.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, expected, "{procedure:?}");
        assert!(calls > 2, "{calls}");
        let is_plus = procedure == Procedure::ReadDirPlus;
        assert!(listed.iter().all(|(_, is_told)| *is_told == is_plus));
    }
    assert!(world.has_no_list());
}

#[test]
fn what_vanishes_while_it_is_listed_is_left_out_or_told_as_it_was() {
    let mut world = World::new();
    let dir = world.dir.clone();
    (0..3).for_each(|number| drop(world.file(&format!("{number}"))));
    let gone = order(&world, "dir").remove(2);
    let path = world.place.path().join("dir").join(&gone);
    let gate = world.bed.service.backend.gate();
    let ticket = world.begin_plus(&dir, 0);
    // The name has been read, and not been shown yet.
    while !world.bed.service.backend.is_idle() {
        std::thread::yield_now();
    }
    fs::remove_file(&path).unwrap();
    let (ended, (names, ..)) = world.end_page(Procedure::ReadDirPlus);
    assert_eq!(ended, ticket);
    assert_eq!(names.iter().find(|(name, _)| *name == gone), Some(&(gone.clone(), true)));
    assert_eq!(world.bed.status(Arguments::GetAttr(dir.get())), Status::Ok);
    // The file is removed before the directory is read.
    fs::write(&path, b"").unwrap();
    gate.store(true, Ordering::Release);
    let ticket = world.begin_names(&dir, 0, 4096);
    fs::remove_file(&path).unwrap();
    gate.store(false, Ordering::Release);
    let (ended, (names, ..)) = world.end_page(Procedure::ReadDir);
    assert_eq!(ended, ticket);
    assert!(names.iter().all(|(name, _)| *name != gone) && names.len() == 4, "{names:?}");
    // The directory is removed before it is read.
    gate.store(true, Ordering::Release);
    let ticket = world.begin_names(&dir, 0, 4096);
    fs::remove_dir_all(world.place.path().join("dir")).unwrap();
    gate.store(false, Ordering::Release);
    let (ended, sent) = world.end(Procedure::ReadDir);
    assert_eq!((ended, sent.results().status()), (ticket, Status::Stale));
    assert!(world.has_no_list());
}

#[test]
fn who_may_read_a_directory_and_not_search_it_sees_names_alone() {
    use std::os::unix::fs::PermissionsExt;

    let mut world = World::new();
    let dir = world.dir.clone();
    world.file("file");
    let path = world.place.path().join("dir");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    if directory::sole_owner().unwrap().is_none() {
        world.bed.by(9, 9);
    }
    for (procedure, expected) in [(Procedure::ReadDir, 3), (Procedure::ReadDirPlus, 3)] {
        let (names, _) = world.list(&dir, procedure);
        assert_eq!(names.len(), expected, "{names:?}");
        assert!(names.contains(&("file".to_owned(), false)), "{names:?}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o333)).unwrap();
    world.begin_names(&dir, 0, 4096);
    assert_eq!(world.end(Procedure::ReadDir).1.results().status(), Status::Acces);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(world.has_no_list());
}

#[test]
fn where_another_file_system_is_mounted_an_empty_directory_is_listed() {
    let mut world = World::at(std::path::Path::new("/"));
    world.bed.by(0, 0).is_patient = true;
    let root = world.dir.clone();
    let proc = world.bed.find(&root, "proc").unwrap();
    let seen = world.bed.look(&proc);
    let ticket = world.begin_names(&root, 0, 4096);
    let (ended, sent) = world.end(Procedure::ReadDir);
    let Results::ReadDir(Ok(list)) = sent.results() else { panic!("{:?}", sent.results()) };
    let listed = list.names.iter().find(|entry| entry.name.0 == b"proc");
    assert_eq!((ended, listed.map(|entry| entry.fileid)), (ticket, Some(seen.fileid)));
    let mut cookie = 0;
    let shown = loop {
        world.begin_plus(&root, cookie);
        let (_, sent) = world.end(Procedure::ReadDirPlus);
        let Results::ReadDirPlus(Ok(list)) = sent.results() else { panic!("{:?}", sent.results()) };
        if let Some(plus) = list.names.iter().find(|plus| plus.entry.name.0 == b"proc") {
            let told = plus.attributes.map(|told| (told.kind, told.mode, told.fileid));
            break (plus.file.map(|file| file.bytes().to_vec()), told);
        }
        assert!(!list.eof);
        cookie = list.names.iter().last().unwrap().entry.cookie;
    };
    assert_eq!(shown, (Some(proc.0.clone()), Some((FileType::Directory, 0o555, seen.fileid))));
    // The empty directory that stands for a mount is listed without a helper.
    let plus = ReadDirPlus {
        dir: proc.get(),
        cookie: 0,
        verifier: Verifier(0),
        count: 4096,
        count_max: 4096,
    };
    let names = page(&world.bed.call(Arguments::ReadDirPlus(plus))).0;
    let names: Vec<_> = names.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, [".", ".."]);
}

#[test]
fn more_directories_than_are_read_at_a_time_are_listed_all_the_same() {
    let mut world = World::new();
    let root = world.bed.root();
    let dirs: Vec<_> = (0..20)
        .map(|number| {
            let name = format!("dir-{number}");
            fs::create_dir(world.place.path().join(&name)).unwrap();
            fs::write(world.place.path().join(&name).join(&name), b"").unwrap();
            (world.bed.find(&root, &name).unwrap(), name)
        })
        .collect();
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    let mut tickets: BTreeSet<_> = dirs.iter().map(|(dir, _)| world.begin_plus(dir, 0)).collect();
    assert!(world.poll(Procedure::ReadDirPlus).is_none());
    gate.store(false, Ordering::Release);
    // All that may be read are read, and none is executed.
    while !world.bed.service.backend.is_idle() {
        std::thread::yield_now();
    }
    let mut listed = BTreeSet::new();
    while !tickets.is_empty() {
        let (ticket, (names, ..)) = world.end_page(Procedure::ReadDirPlus);
        assert!(tickets.remove(&ticket));
        listed.insert(names[2].0.clone());
    }
    assert_eq!(listed, dirs.into_iter().map(|(_, name)| name).collect());
    assert!(world.has_no_list());
}

#[test]
fn a_bounded_number_of_calls_waits_to_list_one_directory() {
    let mut world = World::new();
    let (dir, other) = (world.dir.clone(), world.bed.root());
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    let tickets: Vec<_> = (0..=256).map(|_| world.begin_names(&dir, 0, 4096)).collect();
    let verifier = Verifier(0);
    let one_more = ReadDir { dir: dir.get(), cookie: 0, verifier, count: 4096 };
    assert_eq!(world.bed.status(Arguments::ReadDir(one_more)), Status::Jukebox);
    let elsewhere = world.begin_names(&other, 0, 4096);
    gate.store(false, Ordering::Release);
    let mut ended: Vec<_> =
        (0..tickets.len() + 1).map(|_| world.end_page(Procedure::ReadDir).0).collect();
    ended.retain(|ticket| *ticket != elsewhere);
    assert_eq!(ended, tickets);
    assert!(world.has_no_list());
}

#[test]
fn a_turn_ends_with_a_call_that_lists() {
    let mut world = World::new();
    let root = world.bed.root();
    let dir = world.dir.clone();
    world.begin_names(&root, 0, 4096);
    world.begin_names(&dir, 0, 4096);
    while !world.bed.service.backend.is_idle() {
        std::thread::yield_now();
    }
    world.bed.service.turn();
    let around = Surroundings {
        pool: &world.bed.pool,
        now: world.bed.now,
        clock: Instant::ZERO,
        arrivals: None,
    };
    assert!(world.bed.service.poll(around).is_some());
    assert!(world.bed.service.poll(around).is_none() && world.bed.service.has_work());
    world.bed.service.turn();
    assert!(world.bed.service.poll(around).is_some());
    assert!(world.has_no_list());
}
