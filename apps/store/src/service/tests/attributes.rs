//! GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO, PATHCONF.

use super::*;

#[test]
fn attributes_are_told_with_the_servers_file_system() {
    let mut bed = bed();
    let root = bed.root();
    let attributes = bed.look(&root);
    assert_eq!((attributes.kind, attributes.mode), (FileType::Directory, 0o1777));
    assert_eq!((attributes.fsid, attributes.fileid), (FSID, 1));
}

#[test]
fn a_guard_lets_through_what_has_not_changed() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let ctime = bed.look(&file).ctime;
    let set = |guard| Arguments::SetAttr(SetAttr { file: file.get(), to: mode(0o640), guard });
    let later = Time { seconds: ctime.seconds + 1, ..ctime };
    assert_eq!(bed.status(set(Some(later))), Status::NotSync);
    assert_eq!(bed.look(&file).mode, 0o600);
    assert_eq!(bed.status(set(Some(ctime))), Status::Ok);
    assert_eq!(bed.status(set(Some(ctime))), Status::NotSync);
    assert_eq!((bed.status(set(None)), bed.look(&file).mode), (Status::Ok, 0o640));
}

#[test]
fn a_change_is_told_with_what_was_before_and_what_is_after() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let before = bed.look(&file);
    let to = SetAttributes { size: Some(10), ..SetAttributes::default() };
    let sent = bed.call(Arguments::SetAttr(SetAttr { file: file.get(), to, guard: None }));
    let Results::SetAttr(Ok(wcc)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!(wcc, Wcc { before: Some(before.wcc()), after: Some(bed.look(&file)) });
    assert_eq!(wcc.after.map(|after| after.size), Some(10));
    // A refused SETATTR returns the attributes as well.
    bed.by(9, 9);
    let sent = bed.call(Arguments::SetAttr(SetAttr { file: file.get(), to, guard: None }));
    let Results::SetAttr(Err(failure)) = sent.results() else { panic!("{:?}", sent.results()) };
    let after = wcc.after.unwrap();
    let rest = Wcc { before: Some(after.wcc()), after: Some(after) };
    assert_eq!(failure, Failure { status: Status::Acces, rest });
}

#[test]
fn only_files_have_a_size_to_set() {
    let mut bed = bed();
    let root = bed.root();
    let size = SetAttributes { size: Some(1), ..SetAttributes::default() };
    let (dir, link) = (bed.dir(&root, "d", 0o700), bed.symlink(&root, "l", b"to").unwrap());
    assert_eq!((bed.set(&dir, size), bed.set(&link, size)), (Status::Inval, Status::Inval));
}

#[test]
fn programs_that_change_hands_do_not_act_as_their_owner() {
    let mut bed = bed();
    let root = bed.root();
    let keep = SetAttributes::default();
    let (give, shrink) =
        (SetAttributes { uid: Some(7), ..keep }, SetAttributes { size: Some(0), ..keep });
    // Giving a program to its own owner or group counts as giving it away, as in chown(2).
    let (owner, group) =
        (SetAttributes { uid: Some(1), ..keep }, SetAttributes { gid: Some(2), ..keep });
    for (uid, to, left) in [
        (0, give, 0o755),
        (1, owner, 0o755),
        (1, group, 0o755),
        (1, shrink, 0o755),
        (0, shrink, 0o6755),
    ] {
        let file = bed.by(1, 2).file(&root, "program");
        assert_eq!(bed.set(&file, mode(0o6755)), Status::Ok);
        assert_eq!(bed.look(&file).mode, 0o6755);
        assert_eq!(bed.by(uid, 2).set(&file, to), Status::Ok);
        assert_eq!(bed.look(&file).mode, left, "{uid} {to:?}");
        assert_eq!(bed.by(0, 0).status(Arguments::Remove(root.at("program"))), Status::Ok);
    }
    let file = bed.by(1, 2).file(&root, "program");
    assert_eq!(bed.set(&file, mode(0o4755)), Status::Ok);
    assert_eq!((bed.write(&file, 0, b"x"), bed.look(&file).mode), (Status::Ok, 0o755));
    assert_eq!((bed.set(&file, mode(0o6777)), bed.look(&file).mode), (Status::Ok, 0o6777));
    let create = Create { at: root.at("program"), how: How::Unchecked(shrink) };
    assert_eq!(bed.by(3, 4).status(Arguments::Create(create)), Status::Ok);
    assert_eq!(bed.look(&file).mode, 0o777);
    bed.by(1, 2);
    // A mode in the same SETATTR is set as asked.
    let both = SetAttributes { uid: Some(1), gid: Some(3), ..mode(0o6755) };
    assert_eq!((bed.by(0, 0).set(&file, both), bed.look(&file).mode), (Status::Ok, 0o6755));
    // Nobody makes a program act as a group that they are not of.
    let foreign = SetAttributes { gid: Some(50), ..keep };
    assert_eq!(bed.by(0, 0).set(&file, foreign), Status::Ok);
    assert_eq!((bed.by(1, 2).set(&file, mode(0o2755)), bed.look(&file).mode), (Status::Ok, 0o755));
}

#[test]
fn times_are_set_to_what_is_asked_or_to_now() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    bed.now = Time { seconds: 2_000, nanoseconds: 5 };
    let past = Time { seconds: 7, nanoseconds: 8 };
    let (atime, mtime) = (SetTime::To(past), SetTime::ToServer);
    let to = SetAttributes { atime, mtime, ..SetAttributes::default() };
    assert_eq!(bed.set(&file, to), Status::Ok);
    let attributes = bed.look(&file);
    assert_eq!((attributes.atime, attributes.mtime), (past, bed.now));
}

#[test]
fn nanoseconds_of_a_second_or_more_are_refused() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let before = bed.look(&file);
    // The last two are UTIME_NOW and UTIME_OMIT to the system.
    for nanoseconds in [1_000_000_000, u32::MAX, 0x3fff_ffff, 0x3fff_fffe] {
        let time = SetTime::To(Time { seconds: 7, nanoseconds });
        let keep = SetAttributes::default();
        for to in [SetAttributes { atime: time, ..keep }, SetAttributes { mtime: time, ..keep }] {
            assert_eq!(bed.set(&file, to), Status::Inval, "{to:?}");
            let at = root.at("made");
            let create = Arguments::Create(Create { at, how: How::Guarded(to) });
            assert_eq!(bed.status(create), Status::Inval, "{to:?}");
            let make = Arguments::MkDir(MkDir { at, attributes: to });
            assert_eq!(bed.status(make), Status::Inval, "{to:?}");
            assert_eq!(bed.status(Arguments::Lookup(at)), Status::NoEnt);
        }
    }
    assert_eq!(bed.look(&file), before);
    let last = SetTime::To(Time { seconds: 7, nanoseconds: 999_999_999 });
    assert_eq!(
        bed.set(&file, SetAttributes { mtime: last, ..SetAttributes::default() }),
        Status::Ok
    );
}

#[test]
fn limits_and_room_are_told() {
    let mut bed = bed();
    let root = bed.root();
    let sent = bed.call(Arguments::FsInfo(root.get()));
    let Results::FsInfo(Ok(info)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((info.read_max, info.write_max), (1 << 20, 1 << 16));
    assert_eq!((info.readdir_preferred, info.abilities), (4096, 0x1b));
    let sent = bed.call(Arguments::PathConf(root.get()));
    let Results::PathConf(Ok(conf)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((conf.links_max, conf.name_max), (u32::MAX, 255));
    assert!(conf.no_trunc && conf.chown_restricted && conf.case_preserving);
    assert!(!conf.case_insensitive);
    let file = bed.file(&root, "f");
    assert_eq!(bed.write(&file, 0, &[1; 40_000]), Status::Ok);
    let sent = bed.call(Arguments::FsStat(root.get()));
    let Results::FsStat(Ok(stat)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((stat.total_bytes, stat.free_files), (8 << 20, 998));
    assert_eq!(stat.free_bytes, bed.pool.free_bytes() as u64);
    assert_eq!(stat.attributes, Some(bed.look(&root)));
}
