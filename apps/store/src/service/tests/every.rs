//! Tests of properties that every procedure has.

use super::*;
use crate::nfs3::Device;
use crate::nfs3::arguments::{Access, Commit, Link, ReadDir, ReadDirPlus, Rename};

/// Arguments of each procedure but NULL, about one file or a name in it.
fn all<'a>(file: &'a Handle, name: &'a str) -> Vec<Arguments<'a>> {
    let (fh, at) = (file.get(), file.at(name));
    let (cookie, verifier) = (0, Verifier(0));
    let what = Special::Fifo(SetAttributes::default());
    let path = Path(Item::Unreduced(b"to"));
    let attributes = SetAttributes::default();
    vec![
        Arguments::GetAttr(fh),
        Arguments::SetAttr(SetAttr { file: fh, to: mode(0o600), guard: None }),
        Arguments::Lookup(at),
        Arguments::Access(Access { file: fh, rights: 1 }),
        Arguments::ReadLink(fh),
        Arguments::Read(Read { file: fh, offset: 0, count: 1 }),
        Arguments::Write(write(file, 0, Item::Unreduced(b"x"))),
        Arguments::Create(Create { at, how: How::Guarded(attributes) }),
        Arguments::MkDir(MkDir { at, attributes }),
        Arguments::Symlink(Symlink { at, attributes, path }),
        Arguments::MkNod(MkNod { at, what }),
        Arguments::Remove(at),
        Arguments::RmDir(at),
        Arguments::Rename(Rename { from: at, to: at }),
        Arguments::Link(Link { file: fh, at }),
        Arguments::ReadDir(ReadDir { dir: fh, cookie, verifier, count: 999 }),
        Arguments::ReadDirPlus(ReadDirPlus {
            dir: fh,
            cookie,
            verifier,
            count: 999,
            count_max: 999,
        }),
        Arguments::FsStat(fh),
        Arguments::FsInfo(fh),
        Arguments::PathConf(fh),
        Arguments::Commit(Commit { file: fh, offset: 0, count: 0 }),
    ]
}

#[test]
fn null_does_nothing() {
    assert_eq!(bed().call(Arguments::Null).bytes, b"");
}

#[test]
fn a_forged_handle_opens_nothing() {
    let mut bed = bed();
    let mut forged = bed.root();
    forged.0[20] ^= 1;
    let calls = all(&forged, "name");
    assert_eq!(calls.len(), Procedure::ALL.len() - 1);
    for arguments in calls {
        assert_eq!(bed.status(arguments), Status::Stale, "{arguments:?}");
    }
}

#[test]
fn a_file_that_is_gone_is_stale() {
    let mut bed = bed();
    let root = bed.root();
    let (dir, file) = (bed.dir(&root, "dir", 0o700), bed.file(&root, "file"));
    assert_eq!(bed.status(Arguments::RmDir(root.at("dir"))), Status::Ok);
    assert_eq!(bed.status(Arguments::Remove(root.at("file"))), Status::Ok);
    for gone in [&dir, &file] {
        for arguments in all(gone, "name") {
            assert_eq!(bed.status(arguments), Status::Stale, "{arguments:?}");
        }
    }
}

#[test]
fn names_stand_in_directories_only() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "file");
    for arguments in all(&file, "name") {
        let names = !matches!(
            arguments.procedure(),
            Procedure::GetAttr
                | Procedure::SetAttr
                | Procedure::Access
                | Procedure::Read
                | Procedure::Write
                | Procedure::FsStat
                | Procedure::FsInfo
                | Procedure::PathConf
                | Procedure::Commit
        );
        let expected = match arguments.procedure() {
            Procedure::ReadLink => Status::Inval,
            _ if names => Status::NotDir,
            _ => Status::Ok,
        };
        assert_eq!(bed.status(arguments), expected, "{arguments:?}");
    }
}

#[test]
fn nothing_changes_what_is_served_read_only() {
    let mut bed = bed();
    let root = bed.root();
    bed.dir(&root, "name", 0o777);
    let file = bed.file(&root, "file");
    bed.service.config.read_only = true;
    bed.by(0, 0);
    let (before, before_file) = (bed.look(&root), bed.look(&file));
    let mut refused = 0;
    for arguments in all(&root, "name").into_iter().chain(all(&file, "name")) {
        let changes = !crate::nfs3::binding::is_idempotent(arguments.procedure());
        let commits = arguments.procedure() == Procedure::Commit;
        let status = bed.status(arguments);
        assert_eq!(status == Status::RoFs, changes || commits, "{arguments:?}: {status:?}");
        refused += u32::from(changes);
    }
    assert_eq!(refused, 20);
    let same = |a: Attributes, b: Attributes| a.wcc() == b.wcc() && a.mode == b.mode;
    assert!(same(bed.look(&root), before) && same(bed.look(&file), before_file));
    let asked = Access { file: root.get(), rights: crate::nfs3::rights::ALL };
    let sent = bed.call(Arguments::Access(asked));
    let Results::Access(Ok(granted)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!(granted.rights, crate::nfs3::rights::READ | crate::nfs3::rights::LOOKUP);
}

#[test]
fn what_is_not_a_name_names_nothing() {
    let mut bed = bed();
    let root = bed.root();
    let long = "n".repeat(256);
    for (name, expected) in [
        ("", Status::Acces),
        ("a/b", Status::Acces),
        ("/", Status::Acces),
        ("a\0b", Status::Acces),
        (long.as_str(), Status::NameTooLong),
    ] {
        for arguments in all(&root, name) {
            let takes_name = matches!(
                arguments.procedure(),
                Procedure::Lookup
                    | Procedure::Create
                    | Procedure::MkDir
                    | Procedure::Symlink
                    | Procedure::MkNod
                    | Procedure::Remove
                    | Procedure::RmDir
                    | Procedure::Rename
                    | Procedure::Link
            );
            if takes_name {
                assert_eq!(bed.status(arguments), expected, "{arguments:?}");
            }
        }
    }
    let longest = "n".repeat(255);
    assert!(bed.create(&root, &longest, How::Guarded(mode(0o600))).is_ok());
}

#[test]
fn dots_are_found_and_neither_made_nor_removed() {
    let mut bed = bed();
    let root = bed.root();
    let dir = bed.dir(&root, "dir", 0o700);
    assert_eq!((bed.find(&dir, "."), bed.find(&dir, "..")), (Ok(dir.clone()), Ok(root.clone())));
    assert_eq!(bed.find(&root, ".."), Ok(root.clone()));
    for name in [".", ".."] {
        for arguments in all(&dir, name) {
            let expected = match arguments.procedure() {
                Procedure::Create | Procedure::MkDir | Procedure::Symlink | Procedure::MkNod => {
                    Status::Exist
                }
                Procedure::Link => Status::Exist,
                Procedure::Remove | Procedure::Rename => Status::Inval,
                Procedure::RmDir if name == "." => Status::Inval,
                Procedure::RmDir => Status::Exist,
                _ => continue,
            };
            assert_eq!(bed.status(arguments), expected, "{arguments:?}");
        }
        bed.file(&dir, "f");
        for (from, to) in [(name, "g"), ("f", name)] {
            let rename = Rename { from: dir.at(from), to: dir.at(to) };
            assert_eq!(bed.status(Arguments::Rename(rename)), Status::Inval, "{from} {to}");
        }
        assert_eq!(bed.status(Arguments::Remove(dir.at("f"))), Status::Ok);
    }
}

#[test]
fn only_the_superuser_makes_devices_and_nobody_what_has_its_own_procedure() {
    let mut bed = bed();
    let root = bed.root();
    let device = Device { major: 1, minor: 3 };
    let mut mk_nod = |name: &str, uid, what| {
        bed.by(uid, 2);
        made(&bed.call(Arguments::MkNod(MkNod { at: root.at(name), what })))
    };
    let character = Special::Character(mode(0o666), device);
    assert_eq!(mk_nod("null", 1, character), Err(Status::Perm));
    assert_eq!(mk_nod("block", 1, Special::Block(mode(0o666), device)), Err(Status::Perm));
    assert_eq!(mk_nod("file", 0, Special::Ordinary(FileType::Regular)), Err(Status::BadType));
    let null = mk_nod("null", 0, character).unwrap();
    mk_nod("socket", 1, Special::Socket(mode(0o666))).unwrap();
    mk_nod("fifo", 1, Special::Fifo(mode(0o666))).unwrap();
    let made = bed.look(&null);
    assert_eq!((made.kind, made.device, made.mode), (FileType::Character, device, 0o666));
}
