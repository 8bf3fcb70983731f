//! Storing a file by its path.

use std::io::{self, ErrorKind};

use super::*;
use crate::client::put::New;
use crate::nfs3::arguments::Link;
use crate::nfs3::{Failure, FileType, Wcc};

const NEW: New = New { mode: 0o640, number: 7 };

/// Returns a source of these octets that fails at its end.
fn failing(octets: Vec<u8>) -> impl FnMut(&mut [u8]) -> io::Result<usize> {
    let mut at = 0;
    move |room| match io::Read::read(&mut &octets[at..], room)? {
        0 => Err(ErrorKind::IsADirectory.into()),
        length => {
            at += length;
            Ok(length)
        }
    }
}

fn put(client: &mut Client<Near>, path: &str, octets: &[u8]) -> Result<u64, Error> {
    let mut rest = octets;
    client.put(path.as_bytes(), NEW, |room| io::Read::read(&mut rest, room))
}

/// Returns a file's octets.
fn stored(client: &mut Client<Near>, path: &str) -> Vec<u8> {
    let found = client.find_file(path.as_bytes(), Last::Follow).unwrap();
    client.contents(&found.file, found.attributes.size).unwrap()
}

/// Returns the names in the directory at the top.
fn names(client: &mut Client<Near>) -> Vec<String> {
    let mut listing = crate::client::listing::Listing::new(client.root);
    let mut names = Vec::new();
    while let Some(entry) = listing.next(client).unwrap() {
        names.push(String::from_utf8(entry.name).unwrap());
    }
    names.sort_unstable();
    names
}

fn give(client: &mut Client<Near>, file: &File, to: SetAttributes) {
    client.set(file, to).unwrap();
    client.requester.asked.clear();
}

#[test]
fn a_source_that_cannot_be_read_changes_nothing() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    client.make_file(&root, "there", b"old");
    client.requester.asked.clear();
    for path in ["there", "free", "none/free"] {
        let put = client.put(path.as_bytes(), NEW, failing(Vec::new()));
        assert!(matches!(put, Err(Error::Local(_))), "{path}: {put:?}");
        assert_eq!(client.requester.asked, [], "{path}");
    }
}

#[test]
fn a_source_that_fails_later_leaves_what_was_there() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    client.make_file(&root, "there", b"old");
    for path in ["there", "free"] {
        let put = client.put(path.as_bytes(), NEW, failing(pattern(300_000)));
        assert!(matches!(put, Err(Error::Local(_))), "{path}: {put:?}");
    }
    assert_eq!(names(&mut client), ["there"]);
    assert_eq!(stored(&mut client, "there"), b"old");
}

#[test]
fn a_server_that_refuses_half_way_keeps_what_was_there() {
    for refused in [Procedure::Write, Procedure::Rename] {
        let mut client = Near::new(LIMITS).client();
        let root = client.root;
        client.make_file(&root, "there", b"old");
        client.requester.instead = Box::new(move |arguments| {
            let failure = Failure { status: Status::NoSpc, rest: Wcc::default() };
            match arguments {
                _ if arguments.procedure() != refused => None,
                Arguments::Write(_) => refusal(&Results::Write(Err(failure))),
                _ => {
                    let rest = Default::default();
                    refusal(&Results::Rename(Err(Failure { status: Status::NoSpc, rest })))
                }
            }
        });
        for path in ["there", "free"] {
            let put = put(&mut client, path, &pattern(300_000)).unwrap_err();
            assert_eq!(put.status(), Some(Status::NoSpc), "{path}, {refused:?}");
        }
        client.requester.instead = Box::new(|_| None);
        assert_eq!(names(&mut client), ["there"], "{refused:?}");
        assert_eq!(stored(&mut client, "there"), b"old");
    }
}

#[test]
fn a_file_takes_its_name_when_it_is_complete() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    let old = client.make_file(&root, "there", b"old");
    let mode = SetAttributes { mode: Some(0o604), ..SetAttributes::default() };
    give(&mut client, &old.file, mode);
    for (path, mode) in [("there", 0o604), ("free", 0o640), (&*"n".repeat(255), 0o640)] {
        for length in [0, 5, 64 << 10, 300_000] {
            assert_eq!(put(&mut client, path, &pattern(length)).unwrap(), length as u64);
            assert!(stored(&mut client, path) == pattern(length), "{path}, {length}");
            let found = client.find_file(path.as_bytes(), Last::Keep).unwrap();
            assert_eq!((found.attributes.mode & 0o7777, found.attributes.links), (mode, 1));
        }
    }
    assert_eq!(names(&mut client), ["free", &*"n".repeat(255), "there"]);
    assert_eq!(client.requester.count(Procedure::Rename), 12);
    assert!(client.attributes(&old.file).is_err(), "another file has its name");
}

#[test]
fn a_file_of_which_others_know_is_written_in_place() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    let linked = client.make_file(&root, "linked", &pattern(5000));
    let at = DirName { dir: root.handle(), name: Name(b"other") };
    let link = Arguments::Link(Link { file: linked.file.handle(), at });
    assert_eq!(client.ask(&link).unwrap().status(), Some(Status::Ok));
    client.make_file(&root, "theirs", &pattern(5000));
    client.make_link(&root, "link", "linked");
    // A server that gives new files to somebody else.
    client.requester.edit = Box::new(|arguments, results| match (arguments, results) {
        (Arguments::Create(_), Results::Create(Ok(made))) => {
            let attributes = made.attributes.map(|of| Attributes { uid: 5, ..of });
            refusal(&Results::Create(Ok(crate::nfs3::results::Made { attributes, ..*made })))
        }
        _ => None,
    });
    for (path, same) in [("linked", "other"), ("link", "linked"), ("theirs", "theirs")] {
        let before = client.find_file(path.as_bytes(), Last::Follow).unwrap().file;
        put(&mut client, path, b"new").unwrap();
        assert_eq!(stored(&mut client, same), b"new", "{path}");
        assert!(client.find_file(path.as_bytes(), Last::Follow).unwrap().file == before);
    }
    assert_eq!(names(&mut client), ["link", "linked", "other", "theirs"]);
    assert_eq!(client.requester.count(Procedure::Rename), 0);
}

#[test]
fn a_symbolic_link_stays_and_its_target_is_replaced() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    let dir = client.make_dir(&root, "dir");
    client.make_file(&dir, "file", b"old");
    client.make_link(&root, "link", "dir/file");
    client.make_link(&root, "free", "dir/new");
    for (link, target) in [("link", "dir/file"), ("free", "dir/new")] {
        put(&mut client, link, b"new").unwrap();
        let found = client.find_file(link.as_bytes(), Last::Keep).unwrap();
        assert_eq!(found.attributes.kind, FileType::Symlink);
        assert_eq!(stored(&mut client, target), b"new");
    }
    assert_eq!(names(&mut client), ["dir", "free", "link"]);
}

#[test]
fn a_directory_that_takes_no_file_has_the_old_one_written() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    client.make_file(&root, "there", &pattern(5000));
    client.requester.instead = Box::new(|arguments| {
        let failure = Failure { status: Status::Acces, rest: Wcc::default() };
        let is_create = matches!(arguments, Arguments::Create(_));
        is_create.then(|| refusal(&Results::Create(Err(failure)))).flatten()
    });
    put(&mut client, "there", b"new").unwrap();
    assert_eq!(stored(&mut client, "there"), b"new");
    assert_eq!(put(&mut client, "free", b"new").unwrap_err().status(), Some(Status::Acces));
}

#[test]
fn a_name_that_another_process_left_is_passed_over() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    client.make_file(&root, "file.7.part", b"left");
    put(&mut client, "file", b"new").unwrap();
    assert_eq!(names(&mut client), ["file", "file.7.part"]);
    assert_eq!(
        (stored(&mut client, "file"), stored(&mut client, "file.7.part")),
        (b"new".into(), b"left".into())
    );
    // A server on which every name is taken is not asked for ever.
    client.requester.instead = Box::new(|arguments| {
        let failure = Failure { status: Status::Exist, rest: Wcc::default() };
        let is_create = matches!(arguments, Arguments::Create(_));
        is_create.then(|| refusal(&Results::Create(Err(failure)))).flatten()
    });
    assert_eq!(put(&mut client, "another", b"new").unwrap_err().status(), Some(Status::Exist));
}
