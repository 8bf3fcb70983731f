//! Tests of clients next to one whose handles are stale.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::directory::{self, Directory};
use crate::replays::Connection;
use crate::testing::TempDir;

const CONFIG: directory::Config = crate::testing::CONFIG;

/// Serves a directory of this many files without privileges. Also returns the handle of a removed file.
fn world(place: &TempDir, files: usize) -> (World<Directory>, Vec<u8>) {
    let served = place.path();
    std::fs::set_permissions(served, Permissions::from_mode(0o777)).unwrap();
    let open = |_: &Pool| Directory::open(served, None, None, CONFIG).unwrap();
    let gate = Gate::new(Admission::default(), Trust::ALL);
    let mut world = World::of(Versions::OnlyTwo, gate, TCP_LIMITS, open);
    let root = world.root();
    let (made, _) = world.ask(&create(&root, b"gone"), [None, None]);
    let made = made.unwrap();
    let made =
        Results::decode(Procedure::Create, &mut PayloadReader::call(&made, 0, None)).unwrap();
    let Results::Create(Ok(made)) = made else { panic!("{made:?}") };
    let gone = made.file.unwrap().bytes().to_vec();
    std::fs::remove_file(served.join("gone")).unwrap();
    for number in 0..files {
        std::fs::write(served.join(format!("{number}")), b"").unwrap();
    }
    let (_, server) = world.server.cx(world.now);
    server.nfs.service_mut().backend_mut().open_by_names_alone();
    (world, gone)
}

fn status(ended: Ended) -> u32 {
    u32::from_be_bytes(ended.0.unwrap()[..4].try_into().unwrap())
}

#[test]
fn a_stale_handle_keeps_nobody_waiting_but_who_has_it() {
    let place = TempDir::new();
    let (mut world, gone) = world(&place, 3000);
    let root = world.root();
    world.begin(1, &Arguments::GetAttr(handle(&gone)), [None, None]);
    // The search takes thirty turns; none of these Calls waits for its end.
    for number in 2..7 {
        world.begin(number, &Arguments::GetAttr(handle(&root)), [None, None]);
        let (ended, end) = world.end();
        assert_eq!((ended, status(end)), (number, 0));
    }
    let (ended, end) = world.end();
    assert_eq!((ended, status(end)), (1, Status::Stale.number()));
    // The file is known to be gone by now.
    world.begin(7, &Arguments::GetAttr(handle(&gone)), [None, None]);
    world.begin(8, &Arguments::GetAttr(handle(&root)), [None, None]);
    assert_eq!([world.end().0, world.end().0], [7, 8]);
}

#[test]
fn what_a_directory_was_in_one_turn_says_nothing_of_the_next() {
    let (place, elsewhere) = (TempDir::new(), TempDir::new());
    let (mut world, _) = world(&place, 0);
    let root = world.root();
    let made = Arguments::MkDir(nfs3::arguments::MkDir {
        at: DirName { dir: handle(&root), name: Name(b"dir") },
        attributes: SetAttributes { mode: Some(0o777), ..SetAttributes::default() },
    });
    let (made, _) = world.ask(&made, [None, None]);
    let made = made.unwrap();
    let made = Results::decode(Procedure::MkDir, &mut PayloadReader::call(&made, 0, None)).unwrap();
    let Results::MkDir(Ok(made)) = made else { panic!("{made:?}") };
    let dir = made.file.unwrap().bytes().to_vec();
    assert_eq!(status(world.ask(&create(&dir, b"first"), [None, None])), 0);
    std::fs::rename(place.path().join("dir"), elsewhere.path().join("dir")).unwrap();
    let ended = world.ask(&create(&dir, b"second"), [None, None]);
    assert_eq!(status(ended), Status::Stale.number());
    assert_eq!(std::fs::read_dir(elsewhere.path().join("dir")).unwrap().count(), 1);
}

#[test]
fn a_call_that_waits_for_two_searches_needs_nothing_to_come_in_between() {
    let place = TempDir::new();
    let (mut world, _) = world(&place, 10);
    let root = world.root();
    let made = |made: Ended| {
        let octets = made.0.unwrap();
        octets[12..12 + crate::handle::SealedHandle::WIRE_LEN].to_vec()
    };
    let file = made(world.ask(&create(&root, b"file"), [None, None]));
    let dir = Arguments::MkDir(nfs3::arguments::MkDir {
        at: DirName { dir: handle(&root), name: Name(b"dir") },
        attributes: SetAttributes { mode: Some(0o777), ..SetAttributes::default() },
    });
    let dir = made(world.ask(&dir, [None, None]));
    for name in ["file", "dir"] {
        std::fs::rename(place.path().join(name), place.path().join(format!("{name}-moved")))
            .unwrap();
    }
    world.server.cx(world.now).1.nfs.service_mut().backend_mut().open_by_names_alone();
    let link = Arguments::Link(nfs3::arguments::Link {
        file: handle(&file),
        at: DirName { dir: handle(&dir), name: Name(b"linked") },
    });
    let mut w = [0; 1024];
    let (mut cx, server) = world.server.cx(world.now);
    let around = server.surroundings(&cx);
    let credential = Credential::Sys(AuthSys::new(0, b"tests", 0, 0));
    let origin = Origin { client: 1, connection: Connection(0), xid: 1, credential };
    let octets = written(|w| link.encode(w));
    let arguments = (PayloadReader::call(&octets, 0, None), None);
    let number = Procedure::Link.number();
    let ended = server.nfs.call(around, &origin, number, arguments, &mut Writer::new(&mut w));
    assert!(matches!(ended, crate::program::Ended::Later(_)), "{ended:?}");
    // A core sleeps as soon as a turn has nothing to do.
    while haulage::core::Service::turn(server, &mut cx) {}
    assert!(place.path().join("dir-moved/linked").exists());
}
