//! LOOKUP, CREATE, MKDIR, REMOVE, RMDIR, RENAME, LINK.

use super::*;
use crate::nfs3::results::{Linked, Renamed};

#[test]
fn a_lookup_tells_of_the_file_and_the_directory() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let sent = bed.call(Arguments::Lookup(root.at("f")));
    let Results::Lookup(Ok(found)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!(found.file, file.get());
    assert_eq!((found.attributes, found.dir), (Some(bed.look(&file)), Some(bed.look(&root))));
    let sent = bed.call(Arguments::Lookup(root.at("none")));
    let failure = Failure { status: Status::NoEnt, rest: Some(bed.look(&root)) };
    assert_eq!(sent.results(), Results::Lookup(Err(failure)));
}

#[test]
fn what_is_made_is_told_with_its_directory_before_and_after() {
    let mut bed = bed();
    let root = bed.root();
    let before = bed.look(&root);
    let how = How::Unchecked(mode(0o640));
    let sent = bed.call(Arguments::Create(Create { at: root.at("f"), how }));
    let Results::Create(Ok(made)) = sent.results() else { panic!("{:?}", sent.results()) };
    let file = Handle(made.file.unwrap().bytes().to_vec());
    let attributes = bed.look(&file);
    assert_eq!(made.attributes, Some(attributes));
    assert_eq!((attributes.mode, attributes.uid, attributes.gid), (0o640, 1, 2));
    assert_eq!(made.dir, Wcc { before: Some(before.wcc()), after: Some(bed.look(&root)) });
    assert!(bed.look(&root).mtime > before.mtime);
}

#[test]
fn an_unchecked_create_takes_the_file_that_is_there() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    bed.dir(&root, "d", 0o700);
    bed.write(&file, 0, b"content");
    assert_eq!(bed.create(&root, "f", How::Unchecked(mode(0o777))), Ok(file.clone()));
    assert_eq!((bed.look(&file).size, bed.look(&file).mode), (7, 0o600));
    let cut = SetAttributes { size: Some(0), ..SetAttributes::default() };
    assert_eq!(bed.create(&root, "f", How::Unchecked(cut)), Ok(file.clone()));
    assert_eq!(bed.look(&file).size, 0);
    assert_eq!(bed.by(9, 9).create(&root, "f", How::Unchecked(cut)), Err(Status::Acces));
    assert_eq!(bed.create(&root, "d", How::Unchecked(cut)), Err(Status::Exist));
    assert_eq!(bed.create(&root, "f", How::Guarded(cut)), Err(Status::Exist));
}

#[test]
fn an_exclusive_create_is_told_from_another() {
    let mut bed = bed();
    let root = bed.root();
    let exclusive = |verifier| How::Exclusive(Verifier(verifier));
    let file = bed.create(&root, "f", exclusive(0x8000_0001_8000_0002)).unwrap();
    assert_eq!(bed.create(&root, "f", exclusive(0x8000_0001_8000_0002)), Ok(file.clone()));
    assert_eq!(bed.create(&root, "f", exclusive(0x8000_0001_8000_0003)), Err(Status::Exist));
    assert_eq!(bed.create(&root, "f", exclusive(0x8000_0002_8000_0002)), Err(Status::Exist));
    assert_eq!(bed.create(&root, "f", exclusive(0x0000_0001_8000_0002)), Err(Status::Exist));
    assert_eq!(bed.create(&root, "f", exclusive(0x8000_0001_0000_0002)), Err(Status::Exist));
    // A file whose times are whole seconds was made by an earlier server, or its file system keeps no others.
    let old = bed.file(&root, "old");
    let second = |seconds| SetTime::To(Time { seconds, nanoseconds: 0 });
    let (atime, mtime) = (second(1), second(2));
    let times = SetAttributes { atime, mtime, ..SetAttributes::default() };
    assert_eq!(bed.set(&old, times), Status::Ok);
    assert_eq!(bed.create(&root, "old", exclusive(0x8000_0001_8000_0002)), Ok(old));
    assert_eq!(bed.create(&root, "old", exclusive(0x8000_0001_8000_0003)), Err(Status::Exist));
    // Once its maker has used it, the file is like any other, whatever its times; so is a directory.
    let size = SetAttributes { size: Some(5), ..times };
    assert_eq!(bed.set(&file, size), Status::Ok);
    assert_eq!(bed.create(&root, "f", exclusive(0x8000_0001_8000_0002)), Err(Status::Exist));
    let dir = bed.dir(&root, "d", 0o700);
    assert_eq!(bed.set(&dir, SetAttributes { size: None, ..size }), Status::Ok);
    assert_eq!(bed.create(&root, "d", exclusive(0x8000_0001_8000_0002)), Err(Status::Exist));
}

#[test]
fn what_is_made_belongs_to_its_maker_and_gets_the_group_of_a_directory_that_says_so() {
    makers_own_what_they_make(&mut bed());
}

/// The top is the caller's.
pub(super) fn makers_own_what_they_make(bed: &mut Bed<impl Backend>) {
    let root = bed.root();
    let claim = SetAttributes { uid: Some(50), gid: Some(60), ..mode(0o6755) };
    let file = bed.create(&root, "mine", How::Guarded(claim)).unwrap();
    let mine = bed.look(&file);
    assert_eq!((mine.uid, mine.gid, mine.mode), (1, 2, 0o6755));
    let file = bed.by(0, 0).create(&root, "given", How::Guarded(claim)).unwrap();
    let given = bed.look(&file);
    assert_eq!((given.uid, given.gid), (50, 60));
    let group = SetAttributes { gid: Some(60), ..mode(0o2777) };
    let arguments = MkDir { at: root.at("group"), attributes: group };
    let group = made(&bed.call(Arguments::MkDir(arguments))).unwrap();
    bed.by(1, 2);
    let (file, dir) = (bed.file(&group, "f"), bed.dir(&group, "d", 0o755));
    assert_eq!((bed.look(&file).gid, bed.look(&dir).gid), (60, 60));
    assert_eq!((bed.look(&file).mode, bed.look(&dir).mode), (0o600, 0o2755));
    // A program of a group that its maker is not of does not act as it.
    let file = bed.create(&group, "program", How::Guarded(mode(0o2755))).unwrap();
    assert_eq!(bed.look(&file).mode, 0o755);
    let dir = bed.dir(&group, "shared", 0o2755);
    let file = bed.by(0, 0).create(&group, "system", How::Guarded(mode(0o2755))).unwrap();
    assert_eq!((bed.look(&dir).mode, bed.look(&file).mode), (0o2755, 0o2755));
}

#[test]
fn what_cannot_be_made_as_asked_is_not_made() {
    let mut bed = bed();
    let root = bed.root();
    let huge = SetAttributes { size: Some(u64::MAX), ..mode(0o600) };
    assert_eq!(bed.create(&root, "f", How::Guarded(huge)), Err(Status::FBig));
    assert_eq!(bed.find(&root, "f"), Err(Status::NoEnt));
    let sized = SetAttributes { size: Some(10), mtime: SetTime::ToServer, ..mode(0o600) };
    let file = bed.create(&root, "f", How::Guarded(sized)).unwrap();
    assert_eq!((bed.look(&file).size, bed.look(&file).mtime), (10, bed.now));
}

#[test]
fn a_removal_is_told_with_the_directory_before_and_after() {
    let mut bed = bed();
    let root = bed.root();
    bed.file(&root, "f");
    let before = bed.look(&root);
    let sent = bed.call(Arguments::Remove(root.at("f")));
    let after = bed.look(&root);
    let wcc = Wcc { before: Some(before.wcc()), after: Some(after) };
    assert_eq!(sent.results(), Results::Remove(Ok(wcc)));
    let sent = bed.call(Arguments::Remove(root.at("f")));
    let rest = Wcc { before: Some(after.wcc()), after: Some(after) };
    assert_eq!(sent.results(), Results::Remove(Err(Failure { status: Status::NoEnt, rest })));
    let dir = bed.dir(&root, "d", 0o700);
    bed.file(&dir, "inside");
    assert_eq!(bed.status(Arguments::RmDir(root.at("d"))), Status::NotEmpty);
    assert_eq!(bed.status(Arguments::Remove(root.at("d"))), Status::IsDir);
}

#[test]
fn a_rename_is_told_with_both_directories() {
    let mut bed = bed();
    let root = bed.root();
    let (a, b) = (bed.dir(&root, "a", 0o700), bed.dir(&root, "b", 0o700));
    let file = bed.file(&a, "f");
    let before = (bed.look(&a), bed.look(&b));
    let rename = Arguments::Rename(Rename { from: a.at("f"), to: b.at("g") });
    let sent = bed.call(rename);
    let after = (bed.look(&a), bed.look(&b));
    let wcc = |before: Attributes, after| Wcc { before: Some(before.wcc()), after: Some(after) };
    let renamed = Renamed { from: wcc(before.0, after.0), to: wcc(before.1, after.1) };
    assert_eq!(sent.results(), Results::Rename(Ok(renamed)));
    assert_eq!((bed.find(&a, "f"), bed.find(&b, "g")), (Err(Status::NoEnt), Ok(file)));
    let rest = Renamed { from: wcc(after.0, after.0), to: wcc(after.1, after.1) };
    let failure = Failure { status: Status::NoEnt, rest };
    assert_eq!(bed.call(rename).results(), Results::Rename(Err(failure)));
    let mut gone = root.clone();
    gone.0[0] ^= 1;
    let sent = bed.call(Arguments::Rename(Rename { from: a.at("f"), to: gone.at("g") }));
    let rest = Renamed { from: wcc(after.0, after.0), to: Wcc::default() };
    let failure = Failure { status: Status::BadHandle, rest };
    assert_eq!(sent.results(), Results::Rename(Err(failure)));
}

#[test]
fn a_link_is_told_with_the_file_and_the_directory() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let before = bed.look(&root);
    let link = Arguments::Link(Link { file: file.get(), at: root.at("g") });
    let sent = bed.call(link);
    let (attributes, after) = (Some(bed.look(&file)), bed.look(&root));
    let dir = Wcc { before: Some(before.wcc()), after: Some(after) };
    assert_eq!(sent.results(), Results::Link(Ok(Linked { attributes, dir })));
    assert_eq!((bed.look(&file).links, bed.find(&root, "g")), (2, Ok(file.clone())));
    let dir = Wcc { before: Some(after.wcc()), after: Some(after) };
    let failure = Failure { status: Status::Exist, rest: Linked { attributes, dir } };
    assert_eq!(bed.call(link).results(), Results::Link(Err(failure)));
}
