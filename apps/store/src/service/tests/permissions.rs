//! Permission tests: a row for each procedure, with the permission bits of its file and the callers that are allowed.

use super::*;
use crate::nfs3::arguments::{Access, Commit, Link, ReadDir};
use crate::nfs3::rights;

/// The owner of all created files, a member of its group, and another user.
const OWNER: (u32, u32) = (1, 2);
const OTHER: (u32, u32) = (9, 9);
const ROOT: (u32, u32) = (0, 0);

impl Bed {
    fn as_user(&mut self, (uid, gid): (u32, u32), arguments: Arguments<'_>) -> Status {
        self.by(uid, gid).status(arguments)
    }
}

#[test]
fn files_open_to_those_whom_their_bits_let_in() {
    for (bits, read, write) in [
        (0o600, Status::Acces, Status::Acces),
        (0o604, Status::Ok, Status::Acces),
        (0o602, Status::Acces, Status::Ok),
        (0o601, Status::Ok, Status::Acces), // to execute it is to read it
        (0o606, Status::Ok, Status::Ok),
    ] {
        let mut bed = bed();
        let root = bed.root();
        let file = bed.create(&root, "f", How::Guarded(mode(bits))).unwrap();
        let reading = Arguments::Read(Read { file: file.get(), offset: 0, count: 1 });
        let writing = Arguments::Write(super::write(&file, 0, Item::Unreduced(b"x")));
        let commit = Arguments::Commit(Commit { file: file.get(), offset: 0, count: 0 });
        let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
        let cutting = Arguments::SetAttr(SetAttr { file: file.get(), to: cut, guard: None });
        assert_eq!(bed.as_user(OTHER, reading), read, "{bits:o}");
        for changing in [writing, commit, cutting] {
            assert_eq!(bed.as_user(OTHER, changing), write, "{bits:o} {changing:?}");
            assert_eq!(bed.as_user(OWNER, changing), Status::Ok, "{bits:o} {changing:?}");
            assert_eq!(bed.as_user(ROOT, changing), Status::Ok, "{bits:o} {changing:?}");
        }
    }
}

#[test]
fn directories_open_to_those_whom_their_bits_let_in() {
    for (bits, find, list, change) in [
        (0o700, Status::Acces, Status::Acces, Status::Acces),
        (0o701, Status::Ok, Status::Acces, Status::Acces),
        (0o704, Status::Acces, Status::Ok, Status::Acces),
        (0o702, Status::Acces, Status::Acces, Status::Acces), // to change names is to find them
        (0o703, Status::Ok, Status::Acces, Status::Ok),
    ] {
        let mut bed = bed();
        let root = bed.root();
        let dir = bed.dir(&root, "d", bits);
        bed.file(&dir, "f");
        bed.dir(&dir, "empty", 0o777);
        let outside = bed.file(&root, "outside");
        let (dir_handle, verifier) = (dir.get(), Verifier(0));
        let readdir = ReadDir { dir: dir_handle, cookie: 0, verifier, count: 999 };
        assert_eq!(bed.as_user(OTHER, Arguments::Lookup(dir.at("f"))), find, "{bits:o}");
        assert_eq!(bed.as_user(OTHER, Arguments::ReadDir(readdir)), list, "{bits:o}");
        let attributes = SetAttributes::default();
        let path = Path(Item::Unreduced(b"to"));
        let what = Special::Fifo(attributes);
        for changing in [
            Arguments::Create(Create { at: dir.at("1"), how: How::Guarded(attributes) }),
            Arguments::MkDir(MkDir { at: dir.at("2"), attributes }),
            Arguments::Symlink(Symlink { at: dir.at("3"), attributes, path }),
            Arguments::MkNod(MkNod { at: dir.at("4"), what }),
            Arguments::Link(Link { file: outside.get(), at: dir.at("5") }),
            Arguments::Rename(Rename { from: dir.at("f"), to: dir.at("g") }),
            Arguments::Rename(Rename { from: dir.at("g"), to: root.at("h") }),
            Arguments::RmDir(dir.at("empty")),
        ] {
            assert_eq!(bed.as_user(OTHER, changing), change, "{bits:o} {changing:?}");
        }
        let gone = if change == Status::Ok { Status::NoEnt } else { change };
        assert_eq!(bed.as_user(OTHER, Arguments::Remove(dir.at("f"))), gone, "{bits:o}");
    }
}

#[test]
fn a_name_that_is_taken_is_taken_for_those_who_may_not_change_the_directory_too() {
    let mut bed = bed();
    let root = bed.root();
    let dir = bed.dir(&root, "d", 0o755);
    let file = bed.create(&dir, "f", How::Guarded(mode(0o666))).unwrap();
    // An existing file can be opened by CREATE in a directory that others own.
    let how = How::Unchecked(mode(0o600));
    assert_eq!(bed.by(9, 9).create(&dir, "f", how), Ok(file));
    assert_eq!(bed.create(&dir, "g", how), Err(Status::Acces));
}

#[test]
fn attributes_are_their_owners_to_set() {
    let keep = SetAttributes::default();
    let past = SetTime::To(Time { seconds: 1, nanoseconds: 0 });
    let (perm, acces) = (Status::Perm, Status::Acces);
    for (to, owner, other) in [
        (mode(0o777), Status::Ok, perm),
        (SetAttributes { uid: Some(5), ..keep }, perm, perm),
        (SetAttributes { uid: Some(1), ..keep }, Status::Ok, perm),
        (SetAttributes { gid: Some(5), ..keep }, perm, perm),
        (SetAttributes { gid: Some(2), ..keep }, Status::Ok, perm),
        (SetAttributes { mtime: past, ..keep }, Status::Ok, perm),
        (SetAttributes { atime: past, ..keep }, Status::Ok, perm),
        (SetAttributes { mtime: SetTime::ToServer, ..keep }, Status::Ok, acces),
        (SetAttributes { size: Some(1), ..keep }, Status::Ok, acces),
        (keep, Status::Ok, Status::Ok),
    ] {
        let mut bed = bed();
        let root = bed.root();
        let file = bed.file(&root, "f");
        let set = Arguments::SetAttr(SetAttr { file: file.get(), to, guard: None });
        assert_eq!(bed.as_user(OTHER, set), other, "{to:?}");
        assert_eq!(bed.as_user(OWNER, set), owner, "{to:?}");
        assert_eq!(bed.as_user(ROOT, set), Status::Ok, "{to:?}");
    }
    // A caller that may write a file may set its times to now, and to no other time.
    let mut bed = bed();
    let root = bed.root();
    let file = bed.create(&root, "f", How::Guarded(mode(0o602))).unwrap();
    bed.by(9, 9);
    assert_eq!(bed.set(&file, SetAttributes { mtime: SetTime::ToServer, ..keep }), Status::Ok);
    assert_eq!(bed.set(&file, SetAttributes { mtime: past, ..keep }), Status::Perm);
}

#[test]
fn in_a_sticky_directory_names_are_their_owners() {
    let mut bed = bed();
    let root = bed.root(); // it is one
    bed.file(&root, "f");
    bed.by(9, 9).file(&root, "mine");
    let rename = |from, to| Arguments::Rename(Rename { from: root.at(from), to: root.at(to) });
    assert_eq!(bed.as_user(OTHER, Arguments::Remove(root.at("f"))), Status::Perm);
    assert_eq!(bed.as_user(OTHER, rename("f", "g")), Status::Perm);
    assert_eq!(bed.as_user(OTHER, rename("mine", "f")), Status::Perm);
    assert_eq!(bed.as_user(OTHER, rename("mine", "other")), Status::Ok);
    assert_eq!(bed.as_user(ROOT, rename("other", "f")), Status::Ok);
    assert_eq!(bed.as_user(OTHER, Arguments::Remove(root.at("f"))), Status::Ok);
}

#[test]
fn a_directory_moves_only_for_those_who_may_change_it() {
    let mut bed = bed();
    let root = bed.root();
    let (from, to) = (bed.dir(&root, "from", 0o777), bed.dir(&root, "to", 0o777));
    bed.dir(&from, "shut", 0o755);
    bed.dir(&from, "open", 0o777);
    let rename = |name| Arguments::Rename(Rename { from: from.at(name), to: to.at(name) });
    assert_eq!(bed.as_user(OTHER, rename("shut")), Status::Acces);
    assert_eq!(bed.as_user(OTHER, rename("open")), Status::Ok);
    let stays = Rename { from: from.at("shut"), to: from.at("renamed") };
    assert_eq!(bed.as_user(OTHER, Arguments::Rename(stays)), Status::Ok);
}

#[test]
fn the_superuser_is_nobody_where_it_is_squashed() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    bed.service.config.policy.squash = Squash::Root;
    let read = Arguments::Read(Read { file: file.get(), offset: 0, count: 1 });
    assert_eq!((bed.as_user(ROOT, read), bed.as_user(OWNER, read)), (Status::Acces, Status::Ok));
    let made = bed.by(0, 0).file(&root, "squashed");
    assert_eq!((bed.look(&made).uid, bed.look(&made).gid), (65_534, 65_534));
}

#[test]
fn rights_are_told_as_they_are() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.create(&root, "f", How::Guarded(mode(0o645))).unwrap();
    let asked = Arguments::Access(Access { file: file.get(), rights: rights::ALL });
    for ((uid, gid), expected) in [
        (OWNER, rights::READ | rights::MODIFY | rights::EXTEND),
        (OTHER, rights::READ | rights::EXECUTE),
        ((9, 2), rights::READ),
        (ROOT, rights::READ | rights::MODIFY | rights::EXTEND | rights::EXECUTE),
    ] {
        let sent = bed.by(uid, gid).call(asked);
        let Results::Access(Ok(granted)) = sent.results() else { panic!("{:?}", sent.results()) };
        assert_eq!(
            (granted.rights, granted.attributes),
            (expected, Some(bed.look(&file))),
            "{uid}"
        );
    }
}
