use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haulage::sys::lease::{self, Lease};
use rustix::io::Errno;

use super::*;
use crate::access::Caller;
use crate::backend::bed::Bed;
use crate::backend::{Backend, Listing, ListingKind, Located, NewKind, Progress, Shown};
use crate::nfs3::arguments::Stable;
use crate::nfs3::{FileType, NO_ID, Name, SetAttributes, Time};
use crate::testing::TempDir;

mod helping;
mod recent;
mod searching;
mod stable;

/// A directory to export, with the state directory of its server.
struct World {
    place: TempDir,
    run: u64,
}

impl World {
    fn new() -> Self {
        let place = TempDir::new();
        fs::mkdir(place.path().join("served"), fs::Mode::RWXU).unwrap();
        Self { place, run: 0 }
    }

    /// Starts a server; the one before must have ended.
    fn start(&mut self) -> Bed<Directory> {
        self.run += 1;
        let state = State::open(&self.path("state")).unwrap();
        self.serve(Some(state), CONFIG)
    }

    fn serve(&self, state: Option<State>, config: Config) -> Bed<Directory> {
        let config = Config { run: self.run, ..config };
        let served = self.path("served");
        let mut bed = Bed::new(|_, _| Directory::open(&served, state, None, config).unwrap());
        bed.owner = sole_owner().unwrap().map_or((1, 2), |owner| (owner.uid, owner.gid));
        bed.caller = Caller::new(0, 0, []);
        bed
    }

    fn path(&self, below: &str) -> PathBuf {
        self.place.path().join(below)
    }
}

/// The client is to ask again later.
const JUKEBOX: Result<Vec<u8>, Status> = Err(Status::Jukebox);

const CONFIG: Config = Config { run: 0, open_max: 8, ..crate::testing::CONFIG };

/// All names of a directory.
const fn all_of(dir: FileId) -> Listing {
    let kind = ListingKind::Names;
    Listing { dir, after: 0, names_max: 99, octets_max: usize::MAX, octets_each: 0, kind }
}

/// A Call that changes something.
type Act<'a> = dyn Fn(&mut Bed<Directory>) -> Result<(), Status> + 'a;

/// Changes to files outside the server.
fn behind(world: &World, from: &str, to: &str) {
    std::fs::rename(world.path("served").join(from), world.path("served").join(to)).unwrap();
}

#[test]
fn no_link_leads_anywhere() {
    let world = World::new();
    std::fs::write(world.path("secret"), b"not served").unwrap();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    for (name, to) in [
        ("up", ".."),
        ("file", "../secret"),
        ("top", "/"),
        ("self", "/proc/self/root"),
        ("here", "."),
    ] {
        symlink(to, world.path("served").join(name)).unwrap();
        let link = bed.find(root, name).unwrap();
        assert_eq!(bed.look(link).kind, FileType::Symlink, "{name}");
        assert_eq!(bed.find(link, "secret"), Err(Status::NotDir), "{name}");
        assert_eq!(bed.find(link, ".."), Err(Status::NotDir), "{name}");
        assert_eq!(bed.make(link, "x", NewKind::Regular), Err(Status::NotDir), "{name}");
        assert_eq!(bed.read(link, 0, 10), Err(Status::Inval), "{name}");
        assert_eq!(bed.write(link, 0, b"x"), Err(Status::Inval), "{name}");
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        let cut = bed.set(link, cut);
        assert_eq!(cut, Err(Status::Inval), "{name}");
        assert_eq!(bed.make(root, name, NewKind::Regular), Err(Status::Exist), "{name}");
        // A change of the link's attributes changes the link itself.
        let mode = SetAttributes { mode: Some(0), ..SetAttributes::default() };
        bed.set(link, mode).unwrap();
        bed.link(link, root, "second").unwrap();
        assert_eq!(bed.find(root, "second"), Ok(link), "{name}");
        bed.remove(root, "second").unwrap();
        bed.remove(root, name).unwrap();
    }
    let secret = std::fs::metadata(world.path("secret")).unwrap();
    assert_ne!(secret.permissions().mode() & 0o777, 0);
    assert_eq!((secret.len(), secret.nlink()), (10, 1));
}

#[test]
fn a_file_that_cannot_be_given_away_is_not_truncated() {
    let mut world = World::new();
    let mut bed = world.start();
    let root = bed.root();
    let file = bed.file(root, "f");
    bed.write(file, 0, b"hello").unwrap();
    let before = bed.look(file);
    // The system takes this user ID for "do not change".
    let to = SetAttributes { uid: Some(NO_ID), size: Some(0), ..SetAttributes::default() };
    let refused = bed.set(file, to);
    assert_eq!((refused, bed.look(file)), (Err(Status::Inval), before));
}

#[test]
fn what_the_file_system_reserves_is_not_available() {
    let mut world = World::new();
    let mut bed = world.start();
    let reserved = {
        let room = fs::statvfs(world.path("served")).unwrap();
        ((room.f_bfree - room.f_bavail) * room.f_frsize, room.f_ffree - room.f_favail)
    };
    let room = bed.with(|directory, cx| directory.room(cx)).unwrap();
    let told = (room.free_bytes - room.available_bytes, room.free_files - room.available_files);
    assert_eq!(told, reserved);
}

#[test]
fn no_name_is_a_path() {
    let world = World::new();
    std::fs::write(world.path("secret"), b"not served").unwrap();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    bed.dir(root, "dir");
    assert_eq!(bed.find(root, ".."), Ok(root));
    // A server passes on no such names; a backend does not rely on it.
    for name in ["../secret", "dir/../../secret", "/", "/proc", "..//secret"] {
        assert!(bed.find(root, name).is_err(), "{name}");
    }
}

#[test]
fn what_is_mounted_below_is_an_empty_directory() {
    let config = Config { run: 0, ..CONFIG };
    let mut bed = Bed::new(|_, _| Directory::open(Path::new("/"), None, None, config).unwrap());
    let root = bed.root();
    let proc = bed.find(root, "proc").unwrap();
    let seen = bed.look(proc);
    assert_eq!((seen.kind, seen.mode, seen.fileid), (FileType::Directory, 0o555, proc.inode));
    assert_eq!(bed.list(proc, 0, usize::MAX), (Vec::new(), true));
    assert_eq!(bed.find(proc, "self"), Err(Status::NoEnt));
    assert_eq!(bed.find(proc, ".."), Ok(root));
    assert!(bed.with(|directory, _| directory.is_read_only(proc) && !directory.is_read_only(root)));
    // The service asks for no changes of a read-only directory; the backend refuses them all the same.
    assert_eq!(bed.make(proc, "new", NewKind::Directory), Err(Status::RoFs));
    let mode = SetAttributes { mode: Some(0), ..SetAttributes::default() };
    let changed = bed.set(proc, mode);
    assert_eq!(changed, Err(Status::RoFs));
    assert_eq!(bed.remove_dir(root, "proc"), Err(Status::Acces));
    assert_eq!(bed.rename((root, "proc"), (root, "moved")), Err(Status::Acces));
    let listed = bed.list(root, 0, usize::MAX).0;
    assert!(listed.iter().any(|(name, _)| name == "proc"), "{listed:?}");
}

#[test]
fn what_is_above_a_mount_is_not_asked() {
    let (top, _) = node::open_top(Path::new("/proc"), &jobs::Helpers::default()).unwrap();
    // The directory above is on another mount, perhaps that of a server that is gone.
    assert_eq!(top.above().map(drop).unwrap_err(), Errno::STALE);
    let (below, _) = top.child(b"sys").unwrap();
    assert_eq!(below.above().unwrap().0.id, top.id);
}

#[test]
fn a_directory_that_turns_into_a_link_leads_nowhere() {
    let world = World::new();
    std::fs::create_dir(world.path("outside")).unwrap();
    std::fs::write(world.path("outside/secret"), b"not served").unwrap();
    let served = world.path("served");
    std::fs::create_dir(served.join("turning")).unwrap();
    symlink("../outside", served.join("link")).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let (stop, place) = (Arc::clone(&over), served.clone());
    let turner = std::thread::Builder::new().spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let (place, flags) = (&place, fs::RenameFlags::EXCHANGE);
            fs::renameat_with(fs::CWD, place.join("turning"), fs::CWD, place.join("link"), flags)
                .unwrap();
        }
    });
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let (mut dirs, mut links) = (0, 0);
    while dirs < 500 || links < 500 {
        bed.backend.tree.files.close_all();
        let found = bed.find(root, "turning").unwrap();
        assert!(bed.find(found, "secret").is_err());
        match bed.look(found).kind {
            FileType::Directory => {
                dirs += 1;
                bed.file(found, "made");
                bed.remove(found, "made").unwrap();
                assert_eq!(bed.find(found, ".."), Ok(root));
            }
            _ => {
                links += 1;
                assert_eq!(bed.make(found, "made", NewKind::Regular), Err(Status::NotDir));
            }
        }
    }
    over.store(true, Ordering::Relaxed);
    turner.unwrap().join().unwrap();
    assert_eq!(std::fs::read_dir(world.path("outside")).unwrap().count(), 1);
}

#[test]
fn what_is_moved_out_of_the_tree_has_nothing_above_it() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let outer = bed.dir(root, "outer");
    let inner = bed.dir(outer, "inner");
    behind(&world, "outer", "../moved");
    assert_eq!(bed.find(outer, ".."), Err(Status::Stale));
    assert_eq!(bed.find(inner, ".."), Err(Status::Stale));
    bed.backend.tree.files.close_all();
    assert_eq!(bed.find(inner, "."), Err(Status::Stale));
    assert_eq!(bed.find(root, "outer"), Err(Status::NoEnt));
}

#[test]
fn where_a_directory_is_costs_a_few_questions_a_turn_however_deep_it_lies() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let name = |level: usize| format!("{level:0>250}");
    let mut dirs = vec![root];
    for level in 0..60 {
        dirs.push(bed.dir(dirs[level], &name(level)));
    }
    let (deep, above) = (dirs[60], dirs[59]);
    let questions = |bed: &mut Bed<Directory>, dir, times| {
        bed.backend.tree.files.take_asked();
        bed.with(|directory, cx| {
            for _ in 0..times {
                let found = directory.lookup(cx, dir, Name(b".."));
                directory.look_into(Ticket { number: 1, network: 0 }, &all_of(dir));
                directory.list(cx, dir, 0, &mut |_| true).unwrap();
                assert!(found.is_ok());
            }
        });
        bed.backend.tree.files.take_asked()
    };
    // The three questions are about the top, the directory, and the one above it.
    assert_eq!(questions(&mut bed, dirs[2], 1), 3);
    assert_eq!(questions(&mut bed, dirs[2], 100), 3);
    // A path of 15,000 octets: up to fifteen names are climbed by each question.
    let asked = questions(&mut bed, deep, 100);
    assert!((4..=20).contains(&asked), "{asked}");
    assert_eq!(questions(&mut bed, deep, 1), asked);
    assert_eq!(bed.find(deep, ".."), Ok(above));
    behind(&world, &name(0), "../moved");
    assert_eq!(bed.find(deep, ".."), Err(Status::Stale));
}

#[test]
fn what_is_served_may_be_renamed_while_it_is() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let (dir, second) = (bed.dir(root, "dir"), bed.dir(root, "second"));
    bed.with(|directory, cx| {
        assert_eq!(directory.lookup(cx, dir, Name(b"..")), Ok(root));
        std::fs::rename(world.path("served"), world.path("other")).unwrap();
        assert_eq!(directory.lookup(cx, dir, Name(b"..")), Ok(root));
        assert_eq!(directory.lookup(cx, second, Name(b"..")), Ok(root));
    });
    let inner = bed.dir(dir, "inner");
    assert_eq!(bed.find(inner, ".."), Ok(dir));
}

#[test]
fn files_are_found_again_after_a_restart() {
    let mut world = World::new();
    let mut bed = world.start();
    let root = bed.root();
    let a = bed.dir(root, "a");
    let b = bed.dir(a, "b");
    let file = bed.file(b, "file");
    bed.write(file, 0, b"kept").unwrap();
    let other = bed.dir(root, "other");
    bed.rename((a, "b"), (other, "moved")).unwrap();
    let removed = bed.file(root, "removed");
    bed.remove(root, "removed").unwrap();
    drop(bed);
    let mut bed = world.start();
    assert_eq!(bed.root(), root);
    assert_eq!(bed.read(file, 0, 9), Ok(b"kept".to_vec()));
    assert_eq!((bed.find(b, ".."), bed.find(b, "file")), (Ok(other), Ok(file)));
    bed.locate(removed);
    let gone = bed.with(|directory, cx| directory.attributes(cx, removed));
    assert_eq!(gone, Err(Status::Stale));
    drop(bed);
    // A start without Calls forgets no file.
    drop(world.start());
    assert_eq!(world.start().find(other, "moved"), Ok(b));
}

#[test]
fn what_is_removed_behind_our_back_is_stale_though_it_is_open() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let (file, dir) = (bed.file(root, "file"), bed.dir(root, "dir"));
    bed.write(file, 0, b"x").unwrap();
    std::fs::remove_file(world.path("served/file")).unwrap();
    std::fs::remove_dir(world.path("served/dir")).unwrap();
    assert_eq!(bed.read(file, 0, 9), Err(Status::Stale));
    assert_eq!(bed.write(file, 0, b"x"), Err(Status::Stale));
    assert_eq!(bed.make(dir, "x", NewKind::Regular), Err(Status::Stale));
}

#[test]
fn what_comes_back_is_no_longer_gone() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let file = bed.file(root, "file");
    behind(&world, "file", "../away");
    bed.backend.tree.files.close_all();
    assert_eq!(bed.read(file, 0, 1), Err(Status::Stale));
    behind(&world, "../away", "back");
    assert_eq!(bed.find(root, "back"), Ok(file));
    bed.backend.tree.files.close_all();
    assert_eq!(bed.read(file, 0, 1), Ok(Vec::new()));
}

#[test]
fn a_crash_in_the_middle_of_a_record_costs_that_record() {
    let mut world = World::new();
    let mut bed = world.start();
    let root = bed.root();
    let dir = bed.dir(root, "dir");
    let files: Vec<_> = (0..20).map(|number| bed.file(dir, &format!("{number}"))).collect();
    drop(bed);
    let path = world.path("state/names");
    let whole = std::fs::read(&path).unwrap();
    for cut in [1, 7, 38, 39, 200] {
        std::fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        let mut bed = world.start();
        for file in &files {
            assert_eq!(bed.look(*file).fileid, file.inode, "cut by {cut}");
        }
    }
    std::fs::write(&path, b"something else").unwrap();
    let state = State::open(&world.path("state")).unwrap();
    let config = Config { run: 9, ..CONFIG };
    let refused = Directory::open(&world.path("served"), Some(state), None, config);
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn the_journal_stays_short() {
    let mut world = World::new();
    let mut bed = world.start();
    let root = bed.root();
    bed.file(root, "0");
    for number in 0..70_000 {
        let (from, to) = (format!("{number}"), format!("{}", number + 1));
        bed.rename((root, &from), (root, &to)).unwrap();
    }
    let file = bed.find(root, "70000").unwrap();
    let length = || std::fs::metadata(world.path("state/names")).unwrap().len();
    assert!(length() < 1_000_000, "{}", length());
    drop(bed);
    let mut bed = world.start();
    assert!(std::fs::metadata(world.path("state/names")).unwrap().len() < 200);
    assert_eq!(bed.find(root, "70000"), Ok(file));
}

#[test]
fn the_key_is_kept_and_is_nobody_elses() {
    let world = World::new();
    let path = world.path("state");
    let state = State::open(&path).unwrap();
    assert_eq!(State::open(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let first = state.keep(Kept { key: [1; 32], fsid: 2 }).unwrap();
    drop(state);
    let state = State::open(&path).unwrap();
    let second = state.keep(Kept { key: [3; 32], fsid: 4 }).unwrap();
    assert_eq!((second.key, second.fsid), (first.key, 2));
    let mode = |name: &str| std::fs::metadata(path.join(name)).unwrap().permissions().mode();
    assert_eq!((mode("key") & 0o777, mode(".") & 0o777), (0o600, 0o700));
    assert!(!format!("{first:?}").contains('1'));
    std::fs::write(path.join("key"), [0; 39]).unwrap();
    let damaged = state.keep(first).unwrap_err();
    assert_eq!(damaged.kind(), io::ErrorKind::InvalidData);
}

#[test]
fn nobody_waits_for_a_local_process_to_give_up_its_lease() {
    let world = World::new();
    let mut bed = world.serve(None, Config { direct: true, ..CONFIG });
    let root = bed.root();
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    for (name, kind) in [("read", lease::Kind::Read), ("write", lease::Kind::Write)] {
        let path = world.path("served").join(name);
        std::fs::write(&path, b"kept").unwrap();
        let lease = match Lease::take(std::fs::File::open(&path).unwrap(), kind) {
            Ok(lease) => lease,
            Err(error) => return eprintln!("skipped: no leases here: {error}"),
        };
        let file = bed.find(root, name).unwrap();
        let read = if kind == lease::Kind::Read { Ok(b"kept".to_vec()) } else { JUKEBOX };
        assert_eq!(bed.read(file, 0, 9), read, "{name}");
        assert_eq!(bed.write(file, 0, b"x").map(|done| done.count), Err(Status::Jukebox), "{name}");
        let set = bed.set(file, cut);
        assert_eq!((set, bed.look(file).size), (Err(Status::Jukebox), 4), "{name}");
        drop(lease);
        assert_eq!(bed.write(file, 0, b"x").map(|done| done.count), Ok(1), "{name}");
        assert_eq!(bed.read(file, 0, 9), Ok(b"xept".to_vec()), "{name}");
    }
}

#[test]
fn a_bounded_number_of_files_is_open() {
    let world = World::new();
    let mut bed = world.serve(None, Config { open_max: 4, ..CONFIG });
    let root = bed.root();
    let files: Vec<_> = (0..50).map(|number| bed.file(root, &format!("{number}"))).collect();
    for file in files.iter().chain(files.iter().rev()) {
        bed.write(*file, 0, b"x").unwrap();
        assert_eq!(bed.read(*file, 0, 9), Ok(b"x".to_vec()));
        assert!(bed.backend.tree.files.open_len() <= 4);
    }
}

#[test]
fn an_owner_goes_on_writing_what_was_made_read_only() {
    let world = World::new();
    let mut bed = world.serve(None, Config { open_max: 1, ..CONFIG });
    let root = bed.root();
    let file = bed.file(root, "file");
    let mode = SetAttributes { mode: Some(0o040), ..SetAttributes::default() };
    bed.set(file, mode).unwrap();
    bed.file(root, "other");
    bed.write(file, 0, b"x").unwrap();
    bed.file(root, "another");
    assert_eq!(bed.read(file, 0, 9), Ok(b"x".to_vec()));
    assert_eq!(bed.look(file).mode, 0o040);
}

/// Takes the privilege from this thread, and from those that it starts, to open files whatever their bits are.
fn lose_overriding() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    let mut sets = capabilities(None).unwrap();
    let overriding = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
    sets.effective = sets.effective.difference(overriding);
    set_capabilities(None, sets).unwrap();
}

#[test]
fn nobody_waits_for_a_file_that_its_owner_may_not_open() {
    lose_overriding();
    for is_helped in [true, false] {
        let world = World::new();
        let mut bed = world.serve(None, Config { stable: true, ..CONFIG });
        if is_helped {
            bed.backend.tree.files.helpers.wake_by(Waker::new().unwrap());
        }
        let root = bed.root();
        let (file, dir) = ("served/file", "served/dir");
        std::fs::write(world.path(file), b"octets").unwrap();
        std::fs::create_dir(world.path(dir)).unwrap();
        for (path, mode) in [(file, 0o040), (dir, 0o300)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(world.path(path), mode).unwrap();
        }
        let (file, dir) = (bed.find(root, "file").unwrap(), bed.find(root, "dir").unwrap());
        let gate = bed.backend.gate();
        let acts: [(&str, &Act<'_>); 3] = [
            ("READ", &|bed| bed.read(file, 0, 9).map(|octets| assert_eq!(octets, b"octets"))),
            ("WRITE", &|bed| bed.write(file, 0, b"o").map(drop)),
            ("COMMIT", &|bed| bed.commit(file).map(drop)),
        ];
        for (name, act) in acts {
            // The file that WRITE opened serves COMMIT, too.
            if is_helped && name != "COMMIT" {
                gate.store(true, Ordering::Release);
                for _ in 0..3 {
                    assert_eq!(act(&mut bed), Err(Status::Jukebox), "{name}");
                    assert_eq!(bed.look(file).mode, 0o040);
                }
                gate.store(false, Ordering::Release);
                while !bed.backend.is_idle() {
                    std::thread::yield_now();
                }
            }
            assert_eq!(act(&mut bed), Ok(()), "{name}");
        }
        // A directory is opened by the helper that changes it.
        if is_helped {
            gate.store(true, Ordering::Release);
            std::fs::write(world.path("served/dir/old"), b"").unwrap();
            let (at, before) = (Name(b"old"), bed.look(dir));
            let begun = bed.with(|directory, cx| {
                directory.remove(cx, Ticket { number: 1, network: 0 }, dir, at)
            });
            assert!(matches!(begun, Progress::Later));
            assert_eq!(bed.look(dir), before, "its bits were not touched");
            gate.store(false, Ordering::Release);
            assert!(matches!(bed.wait(), Finished::Changed(_, Ok(()))));
            assert!(!world.path("served/dir/old").exists());
        }
        bed.file(dir, "made");
        bed.remove(dir, "made").unwrap();
        assert_eq!((bed.look(file).mode, bed.look(dir).mode), (0o040, 0o300));
    }
}

#[test]
fn what_its_owner_could_not_open_again_stays_open() {
    let world = World::new();
    let mut bed = world.serve(None, Config { open_max: 4, ..CONFIG });
    let root = bed.root();
    let (shut, plain) = (bed.file(root, "shut"), bed.file(root, "plain"));
    let mode = SetAttributes { mode: Some(0o444), ..SetAttributes::default() };
    bed.set(shut, mode).unwrap();
    let kept = bed.with(|directory, _| {
        let node = directory.tree.find(shut).unwrap().0;
        node.writer(&directory.tree.files.descriptors).unwrap()
    });
    for number in 0..20 {
        bed.file(root, &format!("{number}"));
    }
    assert!(!bed.backend.is_at_hand(plain));
    bed.write(shut, 0, b"x").unwrap();
    let now = bed.with(|directory, _| {
        let node = directory.tree.find(shut).unwrap().0;
        node.writer(&directory.tree.files.descriptors).unwrap()
    });
    assert!(Arc::ptr_eq(&kept, &now), "it was not opened again");
    // If all open files are irreplaceable, the oldest is closed.
    for number in 0..5 {
        let file = bed.file(root, &format!("shut-{number}"));
        bed.set(file, mode).unwrap();
    }
    assert!(!bed.backend.is_at_hand(shut));
    assert_eq!((bed.backend.tree.files.open_len(), bed.look(shut).mode), (4, 0o444));
}

#[test]
fn only_the_privileged_give_files_away() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let root = bed.root();
    let file = bed.file(root, "file");
    let mut give = |uid| {
        let to = SetAttributes { uid: Some(uid), ..SetAttributes::default() };
        bed.set(file, to)
    };
    let given = if sole_owner().unwrap().is_none() { Ok(()) } else { Err(Status::Perm) };
    assert_eq!(give(4321), given);
    // The system takes an owner of all ones for "do not change".
    assert_eq!(give(u32::MAX), Err(Status::Inval));
}

#[test]
fn another_run_has_another_verifier() {
    let mut world = World::new();
    let mut bed = world.start();
    let root = bed.root();
    let file = bed.file(root, "file");
    let write = |bed: &mut Bed<Directory>, stable| {
        let data = crate::backend::Octets::Unreduced(b"x");
        bed.write_stable(file, 0, data, stable).unwrap().verifier
    };
    let first = write(&mut bed, Stable::Unstable);
    assert_eq!((write(&mut bed, Stable::FileSync), bed.commit(file)), (first, Ok(first)));
    drop(bed);
    let mut bed = world.start();
    let second = write(&mut bed, Stable::Unstable);
    assert_ne!(second, first);
    assert_eq!(bed.commit(file), Ok(second));
}

#[test]
fn the_verifier_changes_when_data_may_be_lost_and_not_when_a_write_is_refused() {
    let world = World::new();
    let mut bed = world.serve(None, CONFIG);
    let mut changes = |act: &dyn Fn(&mut Directory) -> Result<(), Status>| {
        bed.with(|directory, _| {
            let before = directory.tree.files.shared.verifier.get();
            act(directory).unwrap_err();
            directory.tree.files.shared.verifier.get() != before
        })
    };
    for (errno, lost) in
        [(Errno::IO, true), (Errno::NOSPC, true), (Errno::FBIG, false), (Errno::INVAL, false)]
    {
        let written = |stable| {
            move |directory: &mut Directory| {
                data::written(&mut directory.tree.files, None, (stable, Err(errno))).map(drop)
            }
        };
        assert_eq!(changes(&written(Stable::FileSync)), lost, "{errno}");
        assert!(!changes(&written(Stable::Unstable)), "{errno}: nothing was promised");
    }
    // A pipe stands for a file that cannot be synced: a change of its attributes may be the first to find a lost write.
    let pipe = Arc::new(std::os::fd::OwnedFd::from(io::pipe().unwrap().0));
    assert!(changes(&|directory| {
        let id = directory.tree.files.root().id;
        settle_at_once(
            &mut directory.tree.files.shared,
            &[jobs::syncing::Sync::File(id, Arc::clone(&pipe))],
        )
    }));
}

#[test]
fn a_program_that_runs_can_be_read_past_the_page_cache() {
    let world = World::new();
    let mut bed = world.serve(None, Config { direct: true, ..CONFIG });
    let path = world.path("served/program");
    std::fs::copy("/bin/sleep", &path).unwrap();
    let program = std::fs::read(&path).unwrap();
    let Ok(mut running) = std::process::Command::new(&path).arg("600").spawn() else {
        return eprintln!("skipped: no program runs from the directory for temporary files");
    };
    let root = bed.root();
    let read = bed.find(root, "program").and_then(|file| bed.read(file, 0, program.len()));
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(read.unwrap() == program);
}

#[test]
fn a_client_is_not_told_to_try_again_what_never_works() {
    // A mount point where a name is to be removed or replaced.
    assert_eq!(Status::from(Errno::BUSY), Status::Acces);
    assert_eq!(Status::from(Errno::MFILE), Status::Jukebox);
}

#[test]
fn all_kinds_of_change_can_be_stable() {
    let world = World::new();
    let mut bed = world.serve(None, Config { stable: true, ..CONFIG });
    let root = bed.root();
    let dir = bed.dir(root, "dir");
    for (name, kind) in [
        ("file", NewKind::Regular),
        ("link", NewKind::Symlink(b"to")),
        ("pipe", NewKind::Special(FileType::Fifo, crate::nfs3::Device::default())),
    ] {
        let made = bed.make(root, name, kind).unwrap();
        let to = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        bed.set(made, to).unwrap();
        bed.link(made, dir, name).unwrap();
        bed.rename((dir, name), (root, "other")).unwrap();
        bed.remove(root, "other").unwrap();
        assert_eq!((bed.find(root, name), bed.look(made).links), (Ok(made), 1));
    }
    bed.remove_dir(root, "dir").unwrap();
}
