//! Tests that all that changes nothing goes on, whatever state the file system is in.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use haulage::provider::Waker;
use haulage::sys::clock::now;

use super::elsewhere::{Mounted, serve_with};
use super::*;
use crate::directory::Directory;
use crate::nfs3::arguments::{Access, ReadDir};
use crate::nfs3::rights;
use crate::testing::CONFIG;

/// A served file system with a file, which is open and cached, and a directory.
struct Served {
    bed: Bed<Directory>,
    file: Handle,
    dir: Handle,
}

impl Served {
    fn new(path: &Path) -> Self {
        fs::write(path.join("file"), b"kept").unwrap();
        fs::create_dir(path.join("dir")).unwrap();
        let waker = Waker::new().unwrap();
        let config = CONFIG;
        let mut bed = serve_with(path, &waker, config);
        let root = bed.root();
        let [file, dir] = ["file", "dir"].map(|name| bed.find(&root, name).unwrap());
        let mut served = Self { bed, file, dir };
        served.goes_on();
        served
    }

    /// Calls that change nothing are answered, each within two seconds.
    fn goes_on(&mut self) {
        let Self { bed, file, dir } = self;
        let root = bed.root();
        let mut last = now();
        let mut promptly = |what| {
            assert!(now().saturating_since(last) < Duration::from_secs(2), "{what} waits");
            last = now();
        };
        assert_eq!(bed.status(Arguments::Null), Status::Ok);
        promptly("NULL");
        assert_eq!(bed.look(file).size, 4);
        promptly("GETATTR");
        assert_eq!(bed.read(file, 0, 9), Ok((b"kept".to_vec(), true)));
        promptly("READ");
        assert_eq!(bed.find(&root, "dir").as_ref(), Ok(&*dir));
        assert_eq!(bed.find(&root, "none"), Err(Status::NoEnt));
        promptly("LOOKUP");
        for of in [&root, &*dir] {
            let list = ReadDir { dir: of.get(), cookie: 0, verifier: Verifier(0), count: 999 };
            assert_eq!(bed.status(Arguments::ReadDir(list)), Status::Ok);
        }
        promptly("READDIR");
        assert_eq!(bed.status(Arguments::FsStat(root.get())), Status::Ok);
        promptly("FSSTAT");
        let around =
            Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
        let walked = bed.service.directory(around, (9, &Credential::None), b"/");
        assert!(matches!(walked, Walked::Ended(Ok(_))));
        promptly("MNT");
    }

    /// Changes are all refused with this status, each within two seconds.
    fn refuses(&mut self, status: Status, changes: &[Arguments<'_>]) {
        for arguments in changes {
            let begun = now();
            assert_eq!(self.bed.status(*arguments), status, "{arguments:?}");
            assert!(now().saturating_since(begun) < Duration::from_secs(2), "{arguments:?}");
        }
    }

    fn rights_of(&mut self, of: &Handle) -> u32 {
        let asked = Access { file: of.get(), rights: rights::ALL };
        match self.bed.call(Arguments::Access(asked)).results() {
            Results::Access(Ok(granted)) => granted.rights,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_file_system_that_is_mounted_read_only_shows_no_right_to_change() {
    let changes = rights::MODIFY | rights::EXTEND | rights::DELETE;
    for mounted in [Mounted::new(), Mounted::in_memory(4 << 20)] {
        let Some(mounted) = mounted else { return };
        let mut served = Served::new(&mounted.path());
        let (root, file) = (served.bed.root(), served.file.clone());
        assert_eq!(served.rights_of(&file) & changes, changes & !rights::DELETE);
        assert_eq!(served.rights_of(&root) & changes, changes);
        let remount = |how| {
            let done = Command::new("mount").args(["-o", how]).arg(mounted.path()).output();
            assert!(done.unwrap().status.success());
        };
        remount("remount,ro");
        for of in [&file, &root] {
            let shown = served.rights_of(of);
            assert_eq!(shown & changes, 0);
            assert_ne!(shown & rights::READ, 0);
        }
        served.refuses(
            Status::RoFs,
            &[
                Arguments::Write(super::write(&file, 0, Item::Unreduced(b"new!"))),
                Arguments::SetAttr(SetAttr { file: file.get(), to: mode(0o600), guard: None }),
                Arguments::Create(Create { at: root.at("made"), how: How::Guarded(mode(0o600)) }),
                Arguments::MkDir(MkDir { at: root.at("made"), attributes: mode(0o700) }),
                Arguments::Remove(root.at("file")),
                Arguments::RmDir(root.at("dir")),
                Arguments::Link(Link { file: file.get(), at: root.at("linked") }),
                Arguments::Rename(Rename { from: root.at("file"), to: root.at("moved") }),
            ],
        );
        served.goes_on();
        remount("remount,rw");
        assert_eq!(served.rights_of(&root) & changes, changes);
        assert_eq!(served.bed.write(&file, 0, b"kept"), Status::Ok);
    }
}

#[test]
fn a_full_file_system_refuses_at_once_what_takes_room() {
    let few_inodes = ["-N", "16", "-m", "0"];
    for (mounted, is_of_names) in
        [(Mounted::in_memory(1 << 20), false), (Mounted::of_image(&few_inodes), true)]
    {
        let Some(mounted) = mounted else { return };
        fs::write(mounted.path().join("filler"), b"").unwrap();
        let mut served = Served::new(&mounted.path());
        let root = served.bed.root();
        let filler = served.bed.find(&root, "filler").unwrap();
        if is_of_names {
            let name = |name: &u32| mounted.path().join(name.to_string());
            assert!((0..).any(|number| fs::write(name(&number), b"").is_err()));
            let create = Create { at: root.at("made"), how: How::Guarded(mode(0o600)) };
            let make = MkDir { at: root.at("made"), attributes: mode(0o700) };
            served.refuses(Status::NoSpc, &[Arguments::Create(create), Arguments::MkDir(make)]);
        } else {
            super::room::fill(&mut served.bed, &filler);
            let write = super::write(&filler, 1 << 30, Item::Unreduced(b"x"));
            served.refuses(Status::NoSpc, &[Arguments::Write(write)]);
        }
        served.goes_on();
    }
}
