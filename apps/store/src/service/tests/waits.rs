//! Tests of changes that wait for the system, beside Calls that do not.

use std::fs;
use std::sync::atomic::Ordering;

use haulage::provider::Waker;

use super::*;
use crate::directory::{self, Directory};
use crate::testing::TempDir;

/// A served directory with a directory `dir`, of which the test keeps the helpers from acting.
pub(super) struct World {
    pub(super) bed: Bed<Directory>,
    pub(super) place: TempDir,
    pub(super) dir: Handle,
}

impl World {
    pub(super) fn new() -> Self {
        let place = TempDir::new();
        let served = place.path().to_owned();
        fs::create_dir(served.join("dir")).unwrap();
        let mut world = Self::of(place, &served);
        world.dir = world.bed.find(&world.dir, "dir").unwrap();
        world
    }

    /// Serves another directory, which is `dir` itself.
    pub(super) fn at(path: &std::path::Path) -> Self {
        Self::of(TempDir::new(), path)
    }

    fn of(place: TempDir, served: &std::path::Path) -> Self {
        let waker = Waker::new().unwrap();
        let open = || Directory::open(served, None, None, CONFIG).unwrap();
        let mut bed = bed_of(|_, _| open().woken_by(&waker));
        let (uid, gid) =
            directory::sole_owner().unwrap().map_or((0, 0), |owner| (owner.uid, owner.gid));
        bed.by(uid, gid);
        let dir = bed.root();
        Self { bed, place, dir }
    }

    /// Makes a file of this name in the directory, beside the server.
    pub(super) fn file(&mut self, name: &str) -> Handle {
        fs::write(self.place.path().join("dir").join(name), b"octets").unwrap();
        self.bed.find(&self.dir, name).unwrap()
    }

    /// Makes a Call that is answered later.
    pub(super) fn begin(&mut self, arguments: Arguments<'_>) -> Ticket {
        let (bed, procedure) = (&mut self.bed, arguments.procedure());
        let credential = Credential::Sys(AuthSys::new(0, b"tests", bed.uid, bed.gid));
        let around =
            Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
        let call = Call { credential, arguments, placed: None, room: usize::MAX, network: 0 };
        match bed.service.call(around, call) {
            Answer::Later(ticket) => ticket,
            Answer::Now(_) => panic!("the core made the change of {procedure:?}"),
        }
    }

    /// Returns the next Reply, if there is one.
    pub(super) fn poll(&mut self, procedure: Procedure) -> Option<(Ticket, Sent)> {
        let bed = &mut self.bed;
        bed.service.turn();
        let around =
            Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
        let (ticket, reply) = bed.service.poll(around)?;
        Some((ticket, Sent { procedure, bytes: written(|w| reply.encode_inline(w)) }))
    }

    /// Waits for the next Reply.
    pub(super) fn end(&mut self, procedure: Procedure) -> (Ticket, Sent) {
        loop {
            if let Some(ended) = self.poll(procedure) {
                return ended;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn nobody_waits_for_a_lock_that_keeps_a_change_waiting() {
    let mut world = World::new();
    let (root, dir) = (world.bed.root(), world.dir.clone());
    let (file, other) = (world.file("file"), world.file("other"));
    fs::create_dir(world.place.path().join("dir/sub")).unwrap();
    let to = SetAttributes { size: Some(3), ..mode(0o640) };
    let path = Path(Item::Unreduced(b"to"));
    let all = [
        Arguments::Create(Create { at: dir.at("made"), how: How::Unchecked(to) }),
        Arguments::Create(Create { at: dir.at("made"), how: How::Unchecked(to) }),
        Arguments::MkDir(MkDir { at: dir.at("made-dir"), attributes: mode(0o750) }),
        Arguments::Symlink(Symlink { at: dir.at("made-link"), attributes: mode(0o777), path }),
        Arguments::MkNod(MkNod { at: dir.at("pipe"), what: Special::Fifo(mode(0o620)) }),
        Arguments::SetAttr(SetAttr { file: file.get(), to, guard: None }),
        Arguments::Link(Link { file: file.get(), at: dir.at("linked") }),
        Arguments::Rename(Rename { from: dir.at("linked"), to: root.at("renamed") }),
        Arguments::Remove(dir.at("file")),
        Arguments::RmDir(dir.at("sub")),
    ];
    let gate = world.bed.service.backend.gate();
    for arguments in all {
        gate.store(true, Ordering::Release);
        let ticket = world.begin(arguments);
        let procedure = arguments.procedure();
        assert!(world.poll(procedure).is_none(), "{procedure:?}");
        assert_eq!(world.bed.look(&other).size, 6, "{procedure:?}: others are served");
        assert!(world.bed.find(&dir, "other").is_ok());
        gate.store(false, Ordering::Release);
        let (ended, sent) = world.end(procedure);
        assert_eq!((ended, sent.results().status()), (ticket, Status::Ok), "{procedure:?}");
    }
    world.bed.is_patient = true;
    let made = ["made", "made-dir", "made-link", "pipe"].map(|name| {
        let made = world.bed.find(&dir, name).unwrap();
        let look = world.bed.look(&made);
        (look.kind, look.mode)
    });
    let kinds = [
        (FileType::Regular, 0o640),
        (FileType::Directory, 0o750),
        (FileType::Symlink, 0o777),
        (FileType::Fifo, 0o620),
    ];
    assert_eq!(made, kinds);
    assert_eq!(world.bed.look(&file).size, 3);
    assert_eq!(world.bed.find(&dir, "file"), Err(Status::NoEnt));
    assert_eq!(world.bed.find(&root, "renamed"), Ok(file));
    assert_eq!(world.bed.find(&dir, "sub"), Err(Status::NoEnt));
}

#[test]
fn changes_of_a_directory_keep_their_order_and_tell_what_was_before() {
    let mut world = World::new();
    let dir = world.dir.clone();
    let names: Vec<_> = (0..20).map(|number| format!("{number}")).collect();
    names.iter().for_each(|name| drop(world.file(name)));
    let elsewhere = world.bed.root();
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    let mut tickets: Vec<_> =
        names.iter().map(|name| world.begin(Arguments::Remove(dir.at(name)))).collect();
    // Changes are made in order, so the second REMOVE of a name finds that it is gone. The Replies may come in another order: both
    // wait until `dir` is on stable storage, and that of the first also until the SETATTR of the directory above `dir` is.
    tickets.push(world.begin(Arguments::Remove(dir.at("0"))));
    // Calls for other files do not wait behind them.
    let chmod = SetAttr { file: elsewhere.get(), to: mode(0o755), guard: None };
    let besides = world.begin(Arguments::SetAttr(chmod));
    gate.store(false, Ordering::Release);
    let mut before = None;
    let mut ended = Vec::new();
    while ended.len() < tickets.len() + 1 {
        let (ticket, sent) = world.end(Procedure::Remove);
        ended.push(ticket);
        if ticket == besides {
            continue;
        }
        let wcc = match sent.results() {
            Results::Remove(Ok(wcc)) => wcc,
            Results::Remove(Err(failure)) if ticket == tickets[20] => {
                assert_eq!(failure.status, Status::NoEnt);
                // It has changed nothing, and takes nothing that others changed for its own.
                let Wcc { before, after } = failure.rest;
                assert!(before.is_none_or(|before| Some(before) == after.map(|after| after.wcc())));
                continue;
            }
            other => panic!("{other:?}"),
        };
        assert!(wcc.before.is_some() && (before.is_none() || before == wcc.before));
        before = wcc.after.map(|after| after.wcc());
    }
    let last = tickets.pop().unwrap();
    ended.retain(|ticket| ![besides, last].contains(ticket));
    assert_eq!(ended, tickets);
    assert!(world.bed.service.parking.is_empty() && world.bed.service.pending.is_empty());
}

#[test]
fn nobody_waits_for_a_name_that_the_system_has_not_cached() {
    let mut world = World::new();
    let (dir, known) = (world.dir.clone(), world.file("known"));
    let names: Vec<_> = (0..20).map(|number| format!("absent-{number}")).collect();
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    // All look-ups in one directory take two helpers.
    let mut tickets: Vec<_> =
        names.iter().map(|name| world.begin(Arguments::Lookup(dir.at(name)))).collect();
    let (from, to) = (dir.at("known"), dir.at("renamed"));
    let rename = world.begin(Arguments::Rename(Rename { from, to }));
    assert!(world.poll(Procedure::Lookup).is_none());
    assert_eq!(world.bed.find(&dir, "known"), Ok(known.clone()), "others are served");
    assert_eq!(world.bed.look(&known).size, 6);
    gate.store(false, Ordering::Release);
    tickets.push(rename);
    while !tickets.is_empty() {
        let (ticket, sent) = world.end(Procedure::Lookup);
        if ticket != rename {
            assert_eq!(sent.results().status(), Status::NoEnt);
        }
        let before = tickets.len();
        tickets.retain(|other| *other != ticket);
        assert_eq!(tickets.len(), before - 1);
    }
    assert_eq!(world.bed.find(&dir, "renamed"), Ok(known));
    assert!(world.bed.service.parking.is_empty() && world.bed.service.pending.is_empty());
    assert!(world.bed.service.backend.has_found_nothing());
}

#[test]
fn what_is_written_to_a_file_waits_for_a_change_of_its_attributes() {
    let mut world = World::new();
    let file = world.file("file");
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    let to = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let cut = world.begin(Arguments::SetAttr(SetAttr { file: file.get(), to, guard: None }));
    let written = world.begin(Arguments::Write(super::write(&file, 0, Item::Unreduced(b"new"))));
    gate.store(false, Ordering::Release);
    // The WRITE need not wait until the change is on stable storage.
    for _ in 0..2 {
        let (ended, mut sent) = world.end(Procedure::Write);
        if ended == written {
            continue;
        }
        sent.procedure = Procedure::SetAttr;
        let Results::SetAttr(Ok(wcc)) = sent.results() else { panic!("{:?}", sent.results()) };
        assert_eq!((ended, wcc.before.map(|before| before.size)), (cut, Some(6)));
        assert_eq!(wcc.after.map(|after| after.size), Some(0));
    }
    assert_eq!(world.bed.read(&file, 0, 9), Ok((b"new".to_vec(), true)));
}

/// Makes a Call for each file while the helpers may not act, and then waits for the Replies. Returns the statuses in the
/// order of the files. Meanwhile `other`, which is open, is served.
fn held(world: &mut World, other: &Handle, files: &[&Handle]) -> Vec<Status> {
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    let tickets: Vec<_> =
        files.iter().map(|file| world.begin(Arguments::GetAttr(file.get()))).collect();
    for _ in 0..9 {
        assert!(world.poll(Procedure::GetAttr).is_none());
        assert_eq!(world.bed.look(other).size, 6, "others are served");
    }
    assert!(!world.bed.service.has_work(), "the core waits to be woken");
    gate.store(false, Ordering::Release);
    let mut statuses = vec![None; files.len()];
    while statuses.contains(&None) {
        let (ticket, sent) = world.end(Procedure::GetAttr);
        let at = tickets.iter().position(|other| *other == ticket).unwrap();
        assert_eq!(statuses[at].replace(sent.results().status()), None);
    }
    assert!(world.bed.service.parking.is_empty());
    statuses.into_iter().flatten().collect()
}

#[test]
fn nobody_waits_for_a_file_that_is_found_again() {
    for by_names_alone in [false, true] {
        let mut world = World::new();
        let (root, dir) = (world.bed.root(), world.dir.clone());
        let [file, moved, away, gone] = ["file", "moved", "away", "gone"].map(|n| world.file(n));
        let other = world.file("other");
        let path = |name: &str| world.place.path().join(name);
        fs::create_dir(path("second")).unwrap();
        fs::rename(path("dir/moved"), path("dir/renamed")).unwrap();
        fs::rename(path("dir/away"), path("second/away")).unwrap();
        fs::remove_file(path("dir/gone")).unwrap();
        if by_names_alone {
            world.bed.service.backend.open_by_names_alone();
        }
        world.bed.service.backend.close_all();
        let found = (world.bed.find(&root, "dir"), world.bed.find(&dir, "other"));
        assert_eq!(found, (Ok(dir), Ok(other.clone())));
        let statuses = held(&mut world, &other, &[&file, &moved, &away, &gone]);
        assert_eq!(statuses, [Status::Ok, Status::Ok, Status::Ok, Status::Stale]);
        assert_eq!(world.bed.status(Arguments::GetAttr(gone.get())), Status::Stale);
        // The directory and the way down from it are looked up again.
        world.bed.service.backend.close_all();
        world.bed.is_patient = true;
        assert_eq!([&file, &moved, &away].map(|file| world.bed.look(file).size), [6; 3]);
    }
}

#[test]
fn nobody_waits_for_a_directory_that_is_searched() {
    let mut world = World::new();
    let (root, dir) = (world.bed.root(), world.dir.clone());
    let [moved, gone, other] = ["moved", "gone", "other"].map(|name| world.file(name));
    let path = |name: &str| world.place.path().join("dir").join(name);
    fs::rename(path("moved"), path("renamed")).unwrap();
    fs::remove_file(path("gone")).unwrap();
    world.bed.service.backend.open_by_names_alone();
    // Most file systems cache that there are no such names any more, so that no helper is needed to know it.
    assert!(["moved", "gone"].iter().all(|name| !path(name).exists()));
    let found = (world.bed.find(&root, "dir"), world.bed.find(&dir, "other"));
    assert_eq!(found, (Ok(dir), Ok(other.clone())));
    assert_eq!(held(&mut world, &other, &[&moved, &gone]), [Status::Ok, Status::Stale]);
}

#[test]
fn who_looks_for_files_in_one_directory_leaves_room_for_others() {
    for is_recalled in [false, true] {
        let mut world = World::new();
        let (root, dir) = (world.bed.root(), world.dir.clone());
        let files: Vec<_> = (0..100).map(|number| world.file(&format!("{number}"))).collect();
        let other = world.file("other");
        fs::write(world.place.path().join("elsewhere"), b"octets").unwrap();
        let elsewhere = world.bed.find(&root, "elsewhere").unwrap();
        world.bed.service.backend.close_all();
        world.bed.find(&root, "dir").unwrap();
        world.bed.find(&dir, "other").unwrap();
        let gate = world.bed.service.backend.gate();
        gate.store(true, Ordering::Release);
        // Two helpers look for two of the files, and 62 wait for their turn.
        let mut expected: BTreeMap<_, _> = files[..64]
            .iter()
            .map(|file| (world.begin(Arguments::GetAttr(file.get())), Status::Ok))
            .collect();
        for file in &files[64..] {
            assert_eq!(world.bed.status(Arguments::GetAttr(file.get())), Status::Jukebox);
        }
        // A LOOKUP in the directory waits as well.
        expected.insert(world.begin(Arguments::Lookup(dir.at("absent"))), Status::NoEnt);
        expected.insert(world.begin(Arguments::GetAttr(elsewhere.get())), Status::Ok);
        assert_eq!(world.bed.look(&other).size, 6);
        if is_recalled {
            // The Calls that waited need no helper any more.
            world.bed.service.backend.recall_names();
        }
        gate.store(false, Ordering::Release);
        while !expected.is_empty() {
            let (ticket, sent) = world.end(Procedure::GetAttr);
            let status =
                Status::from_number(u32::from_be_bytes(sent.bytes[..4].try_into().unwrap()));
            assert_eq!(expected.remove(&ticket), status);
        }
        assert!(world.bed.service.parking.is_empty());
        world.bed.is_patient = true;
        assert!(files.iter().all(|file| world.bed.look(file).size == 6));
    }
}

#[test]
fn a_name_that_was_looked_up_before_the_directory_changed_is_looked_up_again() {
    let mut world = World::new();
    let dir = world.dir.clone();
    let gate = world.bed.service.backend.gate();
    for (name, how, second) in [
        ("one", How::Unchecked(mode(0o640)), Status::Ok),
        ("two", How::Guarded(mode(0o640)), Status::Exist),
    ] {
        gate.store(true, Ordering::Release);
        let create = Arguments::Create(Create { at: dir.at(name), how });
        let tickets = [world.begin(create), world.begin(create)];
        gate.store(false, Ordering::Release);
        let mut ended = tickets.map(|_| {
            let (ticket, sent) = world.end(Procedure::Create);
            (ticket, sent.results().status())
        });
        ended.sort_by_key(|(_, status)| *status != Status::Ok);
        assert_eq!(ended.map(|(_, status)| status), [Status::Ok, second], "{name}");
    }
    assert!(world.bed.service.parking.is_empty() && world.bed.service.pending.is_empty());
    assert!(world.bed.service.backend.has_found_nothing());
}

#[test]
fn a_lock_takes_one_helper_however_many_changes_wait_for_it() {
    let mut world = World::new();
    let (root, dir) = (world.bed.root(), world.dir.clone());
    let file = world.file("file");
    world.file("other");
    for name in ["hard", "moved", "second"] {
        fs::hard_link(world.place.path().join("dir/file"), world.place.path().join(name)).unwrap();
        world.bed.find(&root, name).unwrap();
    }
    let to = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    let mut tickets = vec![
        world.begin(Arguments::SetAttr(SetAttr { file: file.get(), to, guard: None })),
        // The following Calls also change the file, or its last name.
        world.begin(Arguments::Create(Create { at: dir.at("file"), how: How::Unchecked(to) })),
        world.begin(Arguments::Remove(root.at("hard"))),
        world.begin(Arguments::Rename(Rename { from: root.at("moved"), to: root.at("new") })),
        world.begin(Arguments::Rename(Rename { from: dir.at("other"), to: root.at("second") })),
    ];
    let look_ups = 1; // of the name that is not there yet
    assert!(world.bed.service.backend.under_way() <= 1 + look_ups);
    gate.store(false, Ordering::Release);
    for _ in 0..tickets.len() {
        let (ticket, sent) = world.end(Procedure::SetAttr);
        assert_eq!(sent.bytes[..4], [0; 4]);
        tickets.retain(|other| *other != ticket);
    }
    assert!(tickets.is_empty());
    assert_eq!(world.bed.find(&root, "hard"), Err(Status::NoEnt));
    assert_eq!(world.bed.find(&root, "new"), Ok(file));
    assert!(world.bed.service.parking.is_empty() && world.bed.service.pending.is_empty());
}

#[test]
fn names_go_to_other_directories_one_by_one() {
    let mut world = World::new();
    let root = world.bed.root();
    let mut served = |number: usize| {
        let name = format!("dir-{number}");
        let path = world.place.path().join(&name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), b"").unwrap();
        let dir = world.bed.find(&root, &name).unwrap();
        world.bed.find(&dir, "file").unwrap();
        dir
    };
    let pairs: Vec<_> = (0..4).map(|number| [served(2 * number), served(2 * number + 1)]).collect();
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    let renames = pairs.iter().map(|[from, to]| {
        let (from, to) = (from.at("file"), to.at("file"));
        world.begin(Arguments::Rename(Rename { from, to }))
    });
    let mut tickets: Vec<_> = renames.collect();
    assert_eq!(world.bed.service.backend.under_way(), 1);
    gate.store(false, Ordering::Release);
    while !tickets.is_empty() {
        let (ticket, sent) = world.end(Procedure::Rename);
        assert_eq!(sent.results().status(), Status::Ok);
        // They are made in order, and settled in any.
        let before = tickets.len();
        tickets.retain(|other| *other != ticket);
        assert_eq!(tickets.len(), before - 1);
        assert!(world.bed.service.backend.under_way() <= 1);
    }
}

const CONFIG: directory::Config =
    directory::Config { open_max: 256, stable: true, ..crate::testing::CONFIG };
