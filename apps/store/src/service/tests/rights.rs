//! Tests that a privileged server gives away nothing that the caller could not have made himself.

use std::fs::{self, File, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use haulage::sys::file_user::{FileUser, Judge, Own};
use rustix::fs::{
    CWD, FileType as Kind, Mode, RenameFlags, XattrFlags, getxattr, mknodat, renameat_with,
    setxattr,
};
use rustix::io::Errno;

use super::names::makers_own_what_they_make;
use super::*;
use crate::directory::{self, Directory};
use crate::testing::{CONFIG, TempDir};

/// An export that belongs to a user, with what is the superuser's in it; none where the tests are not privileged.
struct World {
    place: TempDir,
    bed: Bed<Directory>,
}

impl World {
    fn new() -> Option<Self> {
        if directory::sole_owner().unwrap().is_some() {
            eprintln!("skipped: only the superuser acts as others");
            return None;
        }
        let place = TempDir::new();
        chown(place.path(), Some(USER), Some(GROUP)).unwrap();
        // Helpers act for callers, as in a server.
        let waker = haulage::provider::Waker::new().unwrap();
        let open = || Directory::open(place.path(), None, None, CONFIG).unwrap();
        let mut bed = bed_of(|_, _| open().woken_by(&waker));
        bed.is_patient = true;
        bed.by(USER, GROUP);
        Some(Self { place, bed })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }
}

/// What the superuser has in a directory of the user's, held open.
struct Foreign {
    dir: File,
    file: File,
}

impl Foreign {
    fn put_in(home: &Path) -> Self {
        fs::create_dir(home.join("dir")).unwrap();
        fs::set_permissions(home.join("dir"), fs::Permissions::from_mode(0o700)).unwrap();
        fs::write(home.join("file"), b"kept").unwrap();
        fs::set_permissions(home.join("file"), fs::Permissions::from_mode(0o4711)).unwrap();
        let (dir, file) = (File::open(home.join("dir")), File::open(home.join("file")));
        Self { dir: dir.unwrap(), file: file.unwrap() }
    }

    fn check(&self) {
        let (dir, file) = (self.dir.metadata().unwrap(), self.file.metadata().unwrap());
        assert_eq!(rights(&dir), (0, 0, 0o700));
        assert_eq!((rights(&file), file.len()), ((0, 0, 0o4711), 4));
    }
}

fn rights(of: &Metadata) -> (u32, u32, u32) {
    (of.uid(), of.gid(), of.mode() & 0o7777)
}

fn exchange(home: &Path, one: &str, other: &str) -> rustix::io::Result<()> {
    renameat_with(CWD, home.join(one), CWD, home.join(other), RenameFlags::EXCHANGE)
}

/// Changes a directory until the clock of its file system has moved on.
fn later(dir: &Path, since: &Metadata) {
    let time = |of: &Metadata| (of.ctime(), of.ctime_nsec());
    while time(&fs::metadata(dir).unwrap()) <= time(since) {
        fs::write(dir.join("new"), b"").unwrap();
        fs::remove_file(dir.join("new")).unwrap();
    }
}

const USER: u32 = 1;
const GROUP: u32 = 2;
/// Number of rounds of the race. Making a directory by its name twice lost it within 200.
const TRIES: u32 = 500;

#[test]
fn the_system_makes_files_as_the_servers_own_rules_have_it() {
    let Some(mut world) = World::new() else { return };
    makers_own_what_they_make(&mut world.bed);
    // After the Calls, this thread has its own rights again.
    assert_eq!(fs::metadata(world.path("mine")).unwrap().uid(), USER);
    fs::write(world.path("own"), b"").unwrap();
    let own = fs::metadata(world.path("own")).unwrap();
    assert_eq!((own.uid(), own.gid()), (0, 0));
}

#[test]
fn what_takes_the_place_of_a_new_file_is_not_given_away() {
    let (atime, mtime) = (SetTime::To(Time { seconds: 5, nanoseconds: 0 }), SetTime::ToServer);
    let plain = SetAttributes { atime, mtime, ..mode(0o2777) };
    // The superuser makes files for others, too.
    let given = SetAttributes { uid: Some(USER), gid: Some(GROUP), ..plain };
    let own = SetAttributes { gid: Some(GROUP), ..plain };
    for (caller, attributes) in [((USER, GROUP), plain), ((0, 0), given), ((0, 0), own)] {
        let Some(mut world) = World::new() else { return };
        let home = world.place.path().to_owned();
        fs::create_dir(home.join("dir")).unwrap();
        mknodat(CWD, home.join("pipe"), Kind::Fifo, Mode::RUSR, 0).unwrap();
        std::os::unix::fs::symlink("to", home.join("link")).unwrap();
        later(&home, &fs::symlink_metadata(home.join("link")).unwrap());
        for (name, kind) in
            [("dir", Kind::Directory), ("pipe", Kind::Fifo), ("link", Kind::Symlink)]
        {
            let at = home.join(name);
            let before = fs::symlink_metadata(&at).unwrap();
            let place = home.clone();
            world.bed.service.backend_mut().between(move || exchange(&place, "x", name).unwrap());
            let bed = world.bed.by(caller.0, caller.1);
            let root = bed.root();
            let at = root.at("x");
            let status = match kind {
                Kind::Directory => bed.status(Arguments::MkDir(MkDir { at, attributes })),
                Kind::Fifo => {
                    bed.status(Arguments::MkNod(MkNod { at, what: Special::Fifo(attributes) }))
                }
                _ => {
                    let path = super::Path(Item::Unreduced(b"to"));
                    bed.status(Arguments::Symlink(Symlink { at, attributes, path }))
                }
            };
            let after = fs::symlink_metadata(home.join("x")).unwrap();
            let all = |of: &Metadata| (of.ino(), rights(of), of.atime(), of.mtime());
            assert_eq!(all(&after), all(&before), "{name}: {status:?} for {caller:?}");
            fs::rename(home.join("x"), home.join(format!("{name}-kept"))).unwrap();
        }
    }
}

#[test]
fn nobody_links_to_a_file_that_he_could_not_link_to_locally() {
    let Some(mut world) = World::new() else { return };
    let is_protected = fs::read("/proc/sys/fs/protected_hardlinks").unwrap() != b"0\n";
    let root = world.bed.root();
    for (name, uid, bits, may) in [
        ("own", USER, 0o4700, true),
        ("secret", 0, 0o600, false),
        ("readable", 0, 0o644, false),
        ("program", 0, 0o4777, false),
        ("shared", 0, 0o666, true),
    ] {
        fs::write(world.path(name), b"").unwrap();
        chown(world.path(name), Some(uid), Some(uid)).unwrap();
        fs::set_permissions(world.path(name), fs::Permissions::from_mode(bits)).unwrap();
        let file = world.bed.find(&root, name).unwrap();
        let to = format!("{name}-linked");
        let link = Arguments::Link(Link { file: file.get(), at: root.at(&to) });
        let expected = if may || !is_protected { Status::Ok } else { Status::Perm };
        let bed = &mut world.bed;
        assert_eq!(bed.by(USER, GROUP).status(link), expected, "{name}");
        let again = if expected == Status::Ok { Status::Exist } else { Status::Ok };
        assert_eq!(bed.by(0, 0).status(link), again, "{name}");
        bed.by(USER, GROUP);
    }
}

/// Capabilities go as the bits SUID and SGID do, and as in chown(2).
#[test]
fn a_file_loses_its_capabilities_to_whom_it_is_given_though_it_is_theirs() {
    let Some(mut world) = World::new() else { return };
    let (owner, group) = (
        SetAttributes { uid: Some(USER), ..SetAttributes::default() },
        SetAttributes { gid: Some(GROUP), ..SetAttributes::default() },
    );
    for (uid, to, left) in [
        (USER, owner, Err(Errno::NODATA)),
        (USER, group, Err(Errno::NODATA)),
        (0, owner, Err(Errno::NODATA)),
        (USER, mode(0o700), Ok(CAPABILITIES.len())),
    ] {
        let root = world.bed.by(USER, GROUP).root();
        let file = world.bed.file(&root, "program");
        let path = world.path("program");
        if setxattr(&path, NAME, &CAPABILITIES, XattrFlags::CREATE).is_err() {
            return eprintln!("skipped: files have no capabilities here");
        }
        assert_eq!(world.bed.by(uid, GROUP).set(&file, to), Status::Ok);
        let found = getxattr(&path, NAME, &mut [0; CAPABILITIES.len()]);
        assert_eq!(found, left, "{uid} {to:?}");
        fs::remove_file(path).unwrap();
    }
}

/// The attribute of a file with the privileges of who runs it, and CAP_NET_RAW among these, as capabilities(7) has it.
const NAME: &str = "security.capability";
const CAPABILITIES: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn a_race_of_names_gives_nothing_away() {
    race(TRIES);
}

#[test]
#[ignore = "it takes most of a minute: tests/check --full runs it"]
fn a_long_race_of_names_gives_nothing_away() {
    race(4 * TRIES);
}

/// The file that is called `x` is made, changed and removed in all ways, while another process of the same user exchanges
/// it for what is the superuser's.
fn race(tries: u32) {
    let Some(mut world) = World::new() else { return };
    let (now, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (at, stop, top) = (Arc::clone(&now), Arc::clone(&over), world.place.path().to_owned());
    let exchanger = std::thread::Builder::new().spawn(move || {
        let own = Own::privileged().unwrap().unwrap();
        let user = FileUser { uid: USER, gid: GROUP, groups: &[], judge: Judge::System };
        let _acting = own.act_as(&user).unwrap();
        let mut exchanged = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let home = top.join(at.load(Ordering::Relaxed).to_string());
            for name in ["dir", "file"] {
                // The exchange mostly fails, because the name does not exist yet.
                exchanged += u64::from(exchange(&home, "x", name).is_ok());
            }
        }
        exchanged
    });
    let bed = &mut world.bed;
    let root = bed.root();
    for number in 0..tries {
        let home = bed.dir(&root, &number.to_string(), 0o755);
        let foreign = Foreign::put_in(&world.place.path().join(number.to_string()));
        now.store(number, Ordering::Relaxed);
        let attributes = mode(0o777);
        for round in 0..4 {
            let at = home.at("x");
            match round {
                0 => drop(bed.status(Arguments::MkDir(MkDir { at, attributes }))),
                1 => {
                    let what = Special::Fifo(attributes);
                    bed.status(Arguments::MkNod(MkNod { at, what }));
                }
                2 => drop(bed.symlink(&home, "x", b"to")),
                _ => {
                    let cut = SetAttributes { size: Some(0), ..attributes };
                    drop(bed.create(&home, "x", How::Unchecked(cut)));
                }
            }
            if let Ok(found) = bed.find(&home, "x") {
                let to = SetAttributes { gid: Some(GROUP), size: Some(0), ..attributes };
                bed.set(&found, to);
                bed.set(&found, attributes);
                let link = Link { file: found.get(), at: home.at("y") };
                bed.status(Arguments::Link(link));
            }
            for (from, to) in [("x", "z"), ("z", "x")] {
                let (from, to) = (home.at(from), home.at(to));
                bed.status(Arguments::Rename(Rename { from, to }));
            }
            for name in ["x", "y", "z"] {
                bed.status(Arguments::Remove(home.at(name)));
                bed.status(Arguments::RmDir(home.at(name)));
            }
            foreign.check();
        }
    }
    over.store(true, Ordering::Relaxed);
    let exchanged = exchanger.unwrap().join().unwrap();
    assert!(exchanged > 0, "nothing was exchanged");
}

#[test]
fn the_cut_of_a_large_file_is_answered_once_it_is_cut() {
    let place = TempDir::new();
    let waker = haulage::provider::Waker::new().unwrap();
    let mut bed =
        bed_of(|_, _| Directory::open(place.path(), None, None, CONFIG).unwrap().woken_by(&waker));
    let (uid, gid) =
        directory::sole_owner().unwrap().map_or((0, 0), |owner| (owner.uid, owner.gid));
    bed.by(uid, gid);
    let path = place.path().join("large");
    fs::write(&path, b"").unwrap();
    let root = bed.root();
    let file = bed.find(&root, "large").unwrap();
    let credential = Credential::Sys(AuthSys::new(0, b"tests", uid, gid));
    for create in [false, true] {
        fs::write(&path, vec![b'x'; 100_000]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let to = SetAttributes { size: Some(10), ..mode(0o640) };
        let arguments = if create {
            Arguments::Create(Create { at: root.at("large"), how: How::Unchecked(to) })
        } else {
            Arguments::SetAttr(SetAttr { file: file.get(), to, guard: None })
        };
        let procedure = arguments.procedure();
        let around =
            Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
        let call = Call { credential, arguments, placed: None, room: usize::MAX, network: 0 };
        let Answer::Later(ticket) = bed.service.call(around, call) else { panic!("at once") };
        let (ended, reply) = loop {
            if let Some(ended) = bed.service.poll(around) {
                break ended;
            }
            std::thread::yield_now();
        };
        assert_eq!(ended, ticket);
        let results = written(|w| reply.encode(w));
        let mut reader = PayloadReader::reply(&results, 0, None);
        let after = match Results::decode(procedure, &mut reader).unwrap() {
            Results::SetAttr(Ok(wcc)) => {
                assert_eq!(wcc.before.map(|before| before.size), Some(100_000));
                wcc.after
            }
            Results::Create(Ok(made)) => {
                assert_eq!(made.file, Some(file.get()));
                assert!(made.dir.after.is_some());
                made.attributes
            }
            other => panic!("{other:?}"),
        };
        // The permission bits of a file that exists stay.
        assert_eq!(after.map(|after| (after.size, after.mode)), Some((10, 0o640)));
    }
}
