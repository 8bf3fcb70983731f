//! Tests that a privileged server does for a caller what the system lets him do when it is done, and no more.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use haulage::provider::Waker;
use haulage::sys::file_user::{FileUser, Gid, Judge, Own};
use rustix::fs::{IFlags, XattrFlags, ioctl_getflags, ioctl_setflags, setxattr};

use super::waits::World;
use super::*;
use crate::directory::{self, Directory, Ring};
use crate::nfs3::arguments::{Access, ReadDir};
use crate::nfs3::rights;
use crate::testing::{CONFIG, Rng, TempDir};

const USER: u32 = 1;
const GROUP: u32 = 2;

/// A directory of the user's, served with privileges; none where the tests have none.
fn world(place: &TempDir) -> Option<World> {
    if directory::sole_owner().unwrap().is_some() {
        eprintln!("skipped: only the superuser acts as others");
        return None;
    }
    chown(place.path(), Some(USER), Some(GROUP)).unwrap();
    let mut world = World::at(place.path());
    world.bed.is_patient = true;
    world.bed.by(USER, GROUP);
    Some(world)
}

fn rights_of(path: &Path) -> (u32, u32, u32, u64) {
    let of = fs::metadata(path).unwrap();
    (of.uid(), of.gid(), of.mode() & 0o7777, of.len())
}

/// Runs `act` as a caller, without privileges.
fn locally<T>(caller: (u32, u32, &[u32]), act: impl FnOnce() -> T) -> T {
    let (uid, gid, groups) = caller;
    let own = Own::privileged().unwrap().unwrap();
    let groups: Vec<_> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    let user = FileUser { uid, gid, groups: &groups, judge: Judge::System };
    let _acting = own.act_as(&user).unwrap();
    act()
}

#[test]
fn a_change_that_waits_is_judged_when_it_is_made() {
    let place = TempDir::new();
    let Some(mut world) = world(&place) else { return };
    let path = place.path().join("file");
    let root = world.bed.root();
    let file = world.bed.create(&root, "file", How::Guarded(mode(0o755))).unwrap();
    let keep = SetAttributes::default();
    let past = SetTime::To(Time { seconds: 5, nanoseconds: 0 });
    let gate = world.bed.service.backend.gate();
    for (to, refused) in [
        (mode(0o4755), Status::Perm),
        (SetAttributes { uid: Some(USER), ..keep }, Status::Perm),
        (SetAttributes { gid: Some(GROUP), ..keep }, Status::Perm),
        (SetAttributes { size: Some(0), ..keep }, Status::Acces),
        (SetAttributes { size: Some(0), ..mode(0o4755) }, Status::Acces),
        (SetAttributes { mtime: past, ..keep }, Status::Perm),
        (
            SetAttributes { atime: SetTime::ToServer, mtime: SetTime::ToServer, ..keep },
            Status::Acces,
        ),
    ] {
        for create in [false, true] {
            if create && to.size.is_none() {
                continue;
            }
            fs::write(&path, b"kept").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            chown(&path, Some(USER), Some(GROUP)).unwrap();
            gate.store(true, Ordering::Release);
            let arguments = if create {
                Arguments::Create(Create { at: root.at("file"), how: How::Unchecked(to) })
            } else {
                Arguments::SetAttr(SetAttr { file: file.get(), to, guard: None })
            };
            let procedure = arguments.procedure();
            world.begin(arguments);
            // The superuser takes the file over.
            chown(&path, Some(0), Some(0)).unwrap();
            let before = fs::metadata(&path).unwrap();
            gate.store(false, Ordering::Release);
            let (_, sent) = world.end(procedure);
            assert_eq!(sent.results().status(), refused, "{to:?}");
            assert_eq!(rights_of(&path), (0, 0, 0o755, 4), "{to:?}");
            let after = fs::metadata(&path).unwrap();
            assert_eq!((after.mtime(), after.atime()), (before.mtime(), before.atime()));
        }
    }
    // A guard is compared when the change is made, too.
    chown(&path, Some(USER), Some(GROUP)).unwrap();
    let ctime = world.bed.look(&file).ctime;
    gate.store(true, Ordering::Release);
    world.begin(Arguments::SetAttr(SetAttr {
        file: file.get(),
        to: mode(0o711),
        guard: Some(ctime),
    }));
    let since = fs::metadata(&path).unwrap();
    while fs::metadata(&path).unwrap().ctime_nsec() == since.ctime_nsec() {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    gate.store(false, Ordering::Release);
    let (_, sent) = world.end(Procedure::SetAttr);
    assert_eq!((sent.results().status(), rights_of(&path).2), (Status::NotSync, 0o700));
}

#[test]
fn what_a_caller_may_not_set_leaves_the_data_as_they_are() {
    let place = TempDir::new();
    let Some(mut world) = world(&place) else { return };
    let root = world.bed.root();
    let file = world.bed.create(&root, "file", How::Guarded(mode(0o666))).unwrap();
    assert_eq!(world.bed.write(&file, 0, b"kept"), Status::Ok);
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let past = SetTime::To(Time { seconds: 5, nanoseconds: 0 });
    for to in [
        SetAttributes { mode: Some(0o777), ..cut },
        SetAttributes { uid: Some(9), ..cut },
        SetAttributes { mtime: past, ..cut },
    ] {
        assert_eq!(world.bed.by(9, 9).set(&file, to), Status::Perm, "{to:?}");
        assert_eq!(rights_of(&place.path().join("file")), (USER, GROUP, 0o666, 4));
    }
    // Who opens a file to write it anew, as Linux's client does.
    let anew = SetAttributes { mtime: SetTime::ToServer, ..cut };
    assert_eq!(world.bed.set(&file, anew), Status::Ok);
    // The owner cuts a file that he made read-only, and sets all in one go.
    let all = SetAttributes { size: Some(7), mtime: past, ..mode(0o4444) };
    assert_eq!(world.bed.by(USER, GROUP).set(&file, mode(0o400)), Status::Ok);
    assert_eq!(world.bed.set(&file, all), Status::Ok);
    let path = place.path().join("file");
    assert_eq!(rights_of(&path), (USER, GROUP, 0o4444, 7));
    assert_eq!(fs::metadata(&path).unwrap().mtime(), 5);
    assert_eq!(world.bed.by(9, 9).set(&file, cut), Status::Acces);
}

#[test]
fn a_program_that_is_written_to_loses_its_bits_with_and_without_a_ring() {
    let waker = Waker::new().unwrap();
    for has_ring in [false, true] {
        let place = TempDir::new();
        if world(&place).is_none() {
            return;
        }
        let mut bed = bed_of(|pool, _| {
            let ring = has_ring.then(|| Ring::new(pool, &waker).ok()).flatten();
            Directory::open(place.path(), None, ring, CONFIG).unwrap().woken_by(&waker)
        });
        bed.is_patient = true;
        let root = bed.by(USER, GROUP).root();
        let file = bed.create(&root, "program", How::Guarded(mode(0o6777))).unwrap();
        for caller in [(USER, GROUP), (9, 9)] {
            assert_eq!(bed.by(USER, GROUP).set(&file, mode(0o6777)), Status::Ok);
            assert_eq!(bed.look(&file).mode, 0o6777);
            assert_eq!(bed.by(caller.0, caller.1).write(&file, 0, b"x"), Status::Ok);
            assert_eq!(bed.look(&file).mode, 0o777, "{caller:?}");
        }
        assert_eq!(bed.by(USER, GROUP).set(&file, mode(0o6777)), Status::Ok);
        assert_eq!(bed.by(0, 0).write(&file, 0, b"x"), Status::Ok);
        assert_eq!(bed.look(&file).mode, 0o6777, "the superuser's data are his");
        let sized = SetAttributes { size: Some(5), ..mode(0o4755) };
        let made = bed.by(USER, GROUP).create(&root, "sized", How::Guarded(sized)).unwrap();
        assert_eq!((bed.look(&made).mode, bed.look(&made).size), (0o4755, 5));
    }
}

#[test]
fn a_new_file_that_the_superuser_takes_over_is_left_as_it_is() {
    let place = TempDir::new();
    let Some(mut world) = world(&place) else { return };
    let path = place.path().join("made");
    let root = world.bed.root();
    let keep = SetAttributes::default();
    let past = SetTime::To(Time { seconds: 5, nanoseconds: 0 });
    for to in [
        SetAttributes { size: Some(0), ..mode(0o4755) },
        SetAttributes { gid: Some(GROUP), ..mode(0o2755) },
        SetAttributes { mtime: past, ..keep },
    ] {
        let taken = path.clone();
        world.bed.service.backend_mut().between(move || {
            chown(&taken, Some(0), Some(0)).unwrap();
            fs::set_permissions(&taken, fs::Permissions::from_mode(0o750)).unwrap();
            fs::hard_link(&taken, taken.with_file_name("kept")).unwrap();
        });
        let made = world.bed.create(&root, "made", How::Guarded(to));
        let kept = place.path().join("kept");
        let (rights, mtime) = (rights_of(&kept), fs::metadata(&kept).unwrap().mtime());
        assert_eq!((rights, mtime == 5), ((0, 0, 0o750, 0), false), "{to:?}: {made:?}");
        fs::remove_file(kept).unwrap();
        let _ = fs::remove_file(&path);
    }
}

#[test]
fn a_race_for_files_gives_nothing_away() {
    race(TRIES);
}

#[test]
#[ignore = "it takes most of a minute: tests/check --full runs it"]
fn a_long_race_for_files_gives_nothing_away() {
    race(8 * TRIES);
}

/// Files are made, given, cut and changed, while the superuser takes them over.
fn race(tries: u32) {
    let place = TempDir::new();
    let Some(mut world) = world(&place) else { return };
    let (at, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (now, stop, top) = (Arc::clone(&at), Arc::clone(&over), place.path().to_owned());
    let taker = std::thread::Builder::new().spawn(move || {
        let mut taken = 0;
        while !stop.load(Ordering::Relaxed) {
            let number = now.load(Ordering::Acquire);
            let file = top.join(format!("{number}"));
            if taken < number && chown(&file, Some(0), Some(0)).is_ok() {
                fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
                taken = number;
            }
            std::hint::spin_loop();
        }
    });
    let bed = &mut world.bed;
    let root = bed.root();
    let keep = SetAttributes::default();
    let settings = [
        mode(0o6755),
        SetAttributes { uid: Some(USER), ..mode(0o4755) },
        SetAttributes { gid: Some(GROUP), ..mode(0o2755) },
        SetAttributes { size: Some(3), ..mode(0o6755) },
        SetAttributes { atime: SetTime::ToServer, mtime: SetTime::ToServer, ..keep },
    ];
    for number in 1..=tries {
        let name = number.to_string();
        let to = settings[number as usize % settings.len()];
        let made = if number % 2 == 0 {
            let file = bed.file(&root, &name);
            at.store(number, Ordering::Release);
            file
        } else {
            // The file is taken over while it is made.
            at.store(number, Ordering::Release);
            // What is taken over before it is complete is no longer the caller's to complete.
            let Ok(file) = bed.create(&root, &name, How::Guarded(to)) else { continue };
            file
        };
        for _ in 0..100 {
            bed.set(&made, to);
            if bed.look(&made).uid == 0 {
                break;
            }
        }
        let path: PathBuf = place.path().join(&name);
        while rights_of(&path).0 != 0 || rights_of(&path).2 & 0o777 != 0o755 {
            std::hint::spin_loop();
        }
        bed.set(&made, to);
        let (uid, gid, bits, _) = rights_of(&path);
        assert_eq!((uid, gid, bits), (0, 0, 0o755), "{name}: {to:?}");
    }
    over.store(true, Ordering::Relaxed);
    taker.unwrap().join().unwrap();
}

#[test]
fn what_the_superuser_puts_in_place_of_a_file_stays_his() {
    exchange(TRIES / 10);
}

#[test]
#[ignore = "it takes two minutes: tests/check --full runs it"]
fn what_the_superuser_puts_in_place_of_a_file_stays_his_for_long() {
    exchange(8 * TRIES);
}

/// Each name of the user's is called for in all ways, while the superuser renames a file of his own to it and gives that an
/// ACL, in turn one that lets the user read it and one that does not.
fn exchange(tries: u32) {
    let place = TempDir::new();
    let Some(mut world) = world(&place) else { return };
    let has_acls = has_acls(&place);
    let kept = place.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o700)).unwrap();
    let (at, over) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (now, stop, top) = (Arc::clone(&at), Arc::clone(&over), place.path().to_owned());
    let done = Arc::new(AtomicU32::new(0));
    let told = Arc::clone(&done);
    let exchanger = std::thread::Builder::new().spawn(move || {
        let mut last = 0;
        while !stop.load(Ordering::Relaxed) {
            let number = now.load(Ordering::Acquire);
            let (own, name) = (kept.join(number.to_string()), top.join(number.to_string()));
            if last < number {
                let _ = fs::remove_file(&own);
                fs::write(&own, b"kept").unwrap();
                fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
                let passed = kept.join("passed");
                fs::hard_link(&own, &passed).unwrap();
                // A directory that the user made there keeps the name, and so may he keep it.
                let _ = fs::rename(&passed, &name);
                let _ = fs::remove_file(&passed);
                last = number;
            }
            if has_acls && last > 0 {
                for allowed in [4, 0] {
                    set_acl(&kept.join(last.to_string()), &[(2, USER, allowed)], [7, 5, 5, 5]);
                }
            }
            told.store(last, Ordering::Release);
        }
    });
    let bed = &mut world.bed;
    let root = bed.root();
    let cut = SetAttributes { size: Some(0), ..mode(0o4777) };
    for number in 1..=tries {
        let (name, other) = (number.to_string(), format!("{number}-other"));
        let own = bed.file(&root, &name);
        at.store(number, Ordering::Release);
        let path = || crate::nfs3::Path(Item::Unreduced(b"to"));
        let mut is_last = false;
        loop {
            let found = bed.find(&root, &name).unwrap_or_else(|_| own.clone());
            for file in [&own, &found] {
                for arguments in [
                    Arguments::SetAttr(SetAttr { file: file.get(), to: cut, guard: None }),
                    Arguments::SetAttr(SetAttr { file: file.get(), to: mode(0o4777), guard: None }),
                    Arguments::Write(super::write(file, 0, Item::Unreduced(b"lost"))),
                    Arguments::Create(Create { at: root.at(&name), how: How::Unchecked(cut) }),
                    Arguments::Link(Link { file: file.get(), at: root.at(&other) }),
                    Arguments::Rename(Rename { from: root.at(&other), to: root.at(&name) }),
                    Arguments::Rename(Rename { from: root.at(&name), to: root.at(&other) }),
                    Arguments::Remove(root.at(&name)),
                    Arguments::MkDir(MkDir { at: root.at(&name), attributes: mode(0o777) }),
                    Arguments::RmDir(root.at(&name)),
                    Arguments::Symlink(Symlink {
                        at: root.at(&name),
                        attributes: mode(0o777),
                        path: path(),
                    }),
                    Arguments::Remove(root.at(&name)),
                    Arguments::Rename(Rename { from: root.at(&other), to: root.at(&name) }),
                ] {
                    bed.status(arguments);
                }
            }
            if is_last {
                break;
            }
            is_last = done.load(Ordering::Acquire) == number;
        }
        let kept = place.path().join("kept").join(&name);
        assert_eq!(rights_of(&kept), (0, 0, 0o755, 4), "{name}");
        assert_eq!(fs::read(&kept).unwrap(), b"kept", "{name}");
        for name in [&name, &other] {
            bed.status(Arguments::Remove(root.at(name)));
        }
    }
    over.store(true, Ordering::Relaxed);
    exchanger.unwrap().join().unwrap();
}

/// Number of files that change hands in a race. Judged by what was read before, one in ten was given away.
const TRIES: u32 = 50;

/// Gives a file an ACL: for the owning group, each user and group that is named, the mask, and all others.
fn set_acl(path: &Path, named: &[(u16, u32, u16)], [owner, group, mask, other]: [u16; 4]) {
    let mut entries = vec![(1, owner, u32::MAX)];
    let (users, groups): (Vec<_>, Vec<_>) = named.iter().partition(|(tag, ..)| *tag == 2);
    entries.extend(users.iter().map(|(tag, id, allowed)| (*tag, *allowed, *id)));
    entries.push((4, group, u32::MAX));
    entries.extend(groups.iter().map(|(tag, id, allowed)| (*tag, *allowed, *id)));
    entries.extend([(16, mask, u32::MAX), (32, other, u32::MAX)]);
    let mut octets = 2_u32.to_le_bytes().to_vec();
    for (tag, allowed, id) in entries {
        octets.extend(u16::to_le_bytes(tag));
        octets.extend(allowed.to_le_bytes());
        octets.extend(id.to_le_bytes());
    }
    setxattr(path, "system.posix_acl_access", &octets, XattrFlags::empty()).unwrap();
}

fn has_acls(place: &TempDir) -> bool {
    let has = rustix::fs::getxattr(place.path(), "system.posix_acl_access", &mut [0; 0]);
    if has == Err(rustix::io::Errno::OPNOTSUPP) {
        eprintln!("skipped: the file system has no ACLs");
        return false;
    }
    true
}

#[test]
fn files_and_directories_open_as_the_system_opens_them() {
    let place = TempDir::new();
    let Some(mut world) = world(&place) else { return };
    if !has_acls(&place) {
        return;
    }
    let bed = &mut world.bed;
    let root = bed.root();
    let mut rng = Rng::new(1);
    for number in 0..200 {
        let (file_name, dir_name) = (format!("f{number}"), format!("d{number}"));
        let (file_path, dir_path) = (place.path().join(&file_name), place.path().join(&dir_name));
        let (file, dir) =
            (bed.by(USER, GROUP).file(&root, &file_name), bed.dir(&root, &dir_name, 0o700));
        bed.file(&dir, "inside");
        let mut bits = || u16::try_from(rng.below(8)).unwrap();
        let named = [(2, 2000, bits()), (2, 2001, bits()), (8, 4000, bits()), (8, 4001, bits())];
        let rest = [7, bits(), bits(), bits()];
        set_acl(&file_path, &named, rest);
        set_acl(&dir_path, &named, rest);
        for (uid, gid) in [(2000, 9), (2001, 4000), (9, GROUP), (9, 4000), (9, 4001), (9, 9)] {
            bed.by(uid, gid);
            let local = |act: &dyn Fn() -> bool| locally((uid, gid, &[gid]), act);
            let opens = |path: &Path, write: bool| {
                let mut options = File::options();
                options.read(!write).write(write);
                local(&|| options.open(path).is_ok())
            };
            let what = format!("{uid}:{gid} {named:?} {rest:?}");
            let mut granted = |of: &Handle| {
                let asked = Access { file: of.get(), rights: rights::ALL };
                match bed.call(Arguments::Access(asked)).results() {
                    Results::Access(Ok(granted)) => granted.rights,
                    other => panic!("{other:?}"),
                }
            };
            let (of_file, of_dir) = (granted(&file), granted(&dir));
            let (reads, writes) = (opens(&file_path, false), opens(&file_path, true));
            assert_eq!(of_file & rights::READ != 0, reads, "{what}");
            assert_eq!(of_file & rights::MODIFY != 0, writes, "{what}");
            let executes = of_file & rights::EXECUTE != 0;
            assert_eq!(bed.read(&file, 0, 1).is_ok(), reads || executes, "{what}");
            assert_eq!(bed.write(&file, 0, b"x") == Status::Ok, writes, "{what}");
            let lists = local(&|| fs::read_dir(&dir_path).is_ok());
            let finds = local(&|| fs::symlink_metadata(dir_path.join("inside")).is_ok());
            let changes = local(&|| {
                let made = File::create_new(dir_path.join("new")).is_ok();
                made && fs::remove_file(dir_path.join("new")).is_ok()
            });
            assert_eq!((of_dir & rights::READ != 0, of_dir & rights::LOOKUP != 0), (lists, finds));
            assert_eq!(bed.find(&dir, "inside").is_ok(), finds, "{what}");
            let listing = ReadDir { dir: dir.get(), cookie: 0, verifier: Verifier(0), count: 999 };
            assert_eq!(bed.status(Arguments::ReadDir(listing)) == Status::Ok, lists, "{what}");
            let made = bed.create(&dir, "made", How::Guarded(mode(0o600))).is_ok();
            let removed = bed.status(Arguments::Remove(dir.at("made"))) == Status::Ok;
            assert_eq!((made, removed), (changes, changes), "{what}");
        }
    }
}

#[test]
fn an_acl_that_changes_holds_at_once() {
    let place = TempDir::new();
    let Some(mut world) = world(&place) else { return };
    if !has_acls(&place) {
        return;
    }
    let bed = &mut world.bed;
    let root = bed.root();
    let file = bed.create(&root, "file", How::Guarded(mode(0o640))).unwrap();
    let path = place.path().join("file");
    for number in 0..200 {
        let allowed = if number % 2 == 0 { 4 } else { 0 };
        set_acl(&path, &[(2, 9, allowed)], [6, 4, 4, 0]);
        let read = bed.by(9, 9).read(&file, 0, 1);
        assert_eq!(read.is_ok(), allowed == 4, "{number}: {read:?}");
    }
}

#[test]
fn what_may_not_be_changed_is_not_changed_though_it_is_open() {
    let place = TempDir::new();
    let Some(mut world) = world(&place) else { return };
    let bed = &mut world.bed;
    let root = bed.root();
    for (flag, name) in [(IFlags::IMMUTABLE, "immutable"), (IFlags::APPEND, "append")] {
        let file = bed.by(USER, GROUP).create(&root, name, How::Guarded(mode(0o666))).unwrap();
        assert_eq!(bed.write(&file, 0, b"kept"), Status::Ok);
        let open = File::open(place.path().join(name)).unwrap();
        let set = |flags| {
            ioctl_getflags(&open).and_then(|had| {
                ioctl_setflags(&open, if flags { had | flag } else { had.difference(flag) })
            })
        };
        if set(true).is_err() {
            return eprintln!("skipped: files cannot be made {name} here");
        }
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        for caller in [(USER, GROUP), (9, 9), (0, 0)] {
            bed.by(caller.0, caller.1);
            assert_eq!(bed.write(&file, 0, b"x"), Status::Perm, "{name} {caller:?}");
            assert_eq!(bed.set(&file, cut), Status::Perm, "{name} {caller:?}");
            assert_eq!(bed.set(&file, mode(0o600)), Status::Perm, "{name} {caller:?}");
            let removed = bed.status(Arguments::Remove(root.at(name)));
            assert_eq!(removed, if caller == (9, 9) { Status::Acces } else { Status::Perm });
            assert_eq!(bed.read(&file, 0, 9), Ok((b"kept".to_vec(), true)), "{name}");
            let asked = Access { file: file.get(), rights: rights::ALL };
            let sent = bed.call(Arguments::Access(asked));
            let Results::Access(Ok(granted)) = sent.results() else { panic!("{name}") };
            assert_eq!(granted.rights & (rights::MODIFY | rights::EXTEND), 0, "{name} {caller:?}");
        }
        set(false).unwrap();
        assert_eq!(bed.by(USER, GROUP).write(&file, 0, b"x"), Status::Ok, "{name}");
    }
}
