//! Tests of what happens to the files beside the server: they grow, are frozen, and are removed as a whole.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use haulage::provider::Waker;

use super::*;
use crate::backend::ReadDone;
use crate::directory::{self, Directory, Ring};
use crate::nfs3::arguments::ReadDir;
use crate::testing::{CONFIG, TempDir};

fn serve(path: &Path, waker: &Waker) -> Bed<Directory> {
    serve_with(path, waker, directory::Config { stable: true, ..CONFIG })
}

/// Serves a directory with a ring, if the system has rings.
pub(super) fn serve_with(path: &Path, waker: &Waker, config: directory::Config) -> Bed<Directory> {
    let mut bed = bed_of(|pool, _| {
        let ring = Ring::new(pool, waker).ok();
        Directory::open(path, None, ring, config).unwrap().woken_by(waker)
    });
    let (uid, gid) = directory::sole_owner().unwrap().map_or((0, 0), |own| (own.uid, own.gid));
    bed.by(uid, gid);
    bed.is_patient = true;
    bed
}

#[test]
fn the_reply_of_a_read_is_of_one_time() {
    let (place, waker) = (TempDir::new(), Waker::new().unwrap());
    let mut bed = serve(place.path(), &waker);
    let path = place.path().join("log");
    fs::write(&path, vec![b'x'; 50_000]).unwrap();
    let root = bed.root();
    let file = bed.find(&root, "log").unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let appender = Builder::new().spawn(move || {
        let mut log = File::options().append(true).open(path).unwrap();
        while !stop.load(Ordering::Relaxed) {
            log.write_all(b"a line that is added\n").unwrap();
        }
    });
    for _ in 0..3_000 {
        let size = bed.look(&file).size;
        for (offset, count) in [(size - 8_192, 16_384), (size - 100, 100), (size, 10)] {
            let sent = bed.call(Arguments::Read(Read { file: file.get(), offset, count }));
            let Results::Read(Ok(read)) = sent.results() else { panic!("{:?}", sent.results()) };
            let end = offset + u64::from(read.count);
            if let Some(attributes) = read.attributes {
                assert_eq!(read.eof, end == attributes.size, "{offset} {count} {read:?}");
            }
            // A client takes a READ of nothing that is not at the end for an error.
            assert!(read.count > 0 || read.eof);
        }
    }
    over.store(true, Ordering::Relaxed);
    appender.unwrap().join().unwrap();
}

#[test]
fn octets_that_came_after_the_end_was_read_are_not_told() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let at = |size| Some(Attributes { size, ..bed.look(&file) });
    let [short, same, long] = [5, 10, 20].map(at);
    for (length, attributes, told, eof) in [
        (0, same, same, true),
        (0, short, short, true),
        (0, long, None, true),
        (4, same, same, true),
        (4, long, long, false),
        (4, None, None, true),
    ] {
        let mut data = Pieces::default();
        if length > 0 {
            data.push(Piece::whole(bed.pool.lease(length).unwrap().share())).unwrap();
        }
        let done = ReadDone { data, end: 10, eof: true };
        let Results::Read(Ok(read)) = super::super::data::read_reply(done, attributes).results
        else {
            panic!()
        };
        assert_eq!((read.attributes, read.eof), (told, eof), "{length} {attributes:?}");
    }
}

#[test]
fn a_top_that_is_removed_is_stale_though_another_has_its_name() {
    let (place, waker) = (TempDir::new(), Waker::new().unwrap());
    let served = place.path().join("served");
    fs::create_dir(&served).unwrap();
    let mut bed = serve(&served, &waker);
    let root = bed.root();
    let around =
        Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
    let caller = (0, &Credential::None);
    assert!(matches!(bed.service.directory(around, caller, b"/"), Walked::Ended(Ok(_))));
    fs::remove_dir(&served).unwrap();
    fs::create_dir(&served).unwrap();
    fs::write(served.join("new"), b"").unwrap();
    let listing = ReadDir { dir: root.get(), cookie: 0, verifier: Verifier(0), count: 999 };
    for stale in [
        Arguments::GetAttr(root.get()),
        Arguments::Lookup(root.at("new")),
        Arguments::ReadDir(listing),
        Arguments::MkDir(MkDir { at: root.at("made"), attributes: mode(0o700) }),
    ] {
        assert_eq!(bed.status(stale), Status::Stale, "{stale:?}");
    }
    let around =
        Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
    let walked = bed.service.directory(around, caller, b"/");
    assert!(matches!(walked, Walked::Ended(Err(crate::mount3::Status::NoEnt))), "{walked:?}");
}

/// A file system of its own, which is unmounted on drop.
pub(super) struct Mounted {
    _place: Option<TempDir>,
    path: PathBuf,
}

impl Mounted {
    /// Mounts an empty ext4; none where that takes privileges that the tests have not.
    pub(super) fn new() -> Option<Self> {
        Self::of_image(&[])
    }

    /// Mounts an empty ext4 that was made with these options.
    pub(super) fn of_image(options: &[&str]) -> Option<Self> {
        let place = TempDir::new();
        let mut mounted = Self::within(place.path(), 64 << 20, options)?;
        mounted._place = Some(place);
        Some(mounted)
    }

    /// Mounts an empty tmpfs that holds `octets` of data. Returns `None` where the process may not mount.
    pub(super) fn in_memory(octets: u64) -> Option<Self> {
        let place = TempDir::new();
        let path = place.path().join("mounted");
        fs::create_dir(&path).unwrap();
        let size = format!("size={octets}");
        if !run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], &path) {
            eprintln!("skipped: no file system can be mounted here");
            return None;
        }
        Some(Self { _place: Some(place), path })
    }

    /// Mounts an empty ext4 of `octets`, made with these options, whose image is a file in `place`. Returns `None` where the
    /// process may not mount.
    pub(super) fn within(place: &Path, octets: u64, options: &[&str]) -> Option<Self> {
        let image = place.join("image");
        File::create(&image).unwrap().set_len(octets).unwrap();
        let mounted = Self { _place: None, path: place.join("mounted") };
        fs::create_dir(mounted.path()).unwrap();
        let is_mounted = run("mkfs.ext4", &[&["-q", "-F"], options].concat(), &image)
            && Command::new("mount")
                .args(["-o", "loop"])
                .args([&image, &mounted.path()])
                .output()
                .is_ok_and(|done| done.status.success());
        if !is_mounted {
            eprintln!("skipped: no file system can be mounted here");
        }
        is_mounted.then_some(mounted)
    }

    pub(super) fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &["-l"], &self.path);
    }
}

pub(super) fn run(program: &str, options: &[&str], of: &Path) -> bool {
    let done = Command::new(program).args(options).arg(of).output();
    done.is_ok_and(|done| done.status.success())
}

/// A file system is frozen while this exists, but not for longer than a test may take.
pub(super) struct Frozen {
    path: PathBuf,
    end: Option<std::sync::mpsc::Sender<()>>,
    guard: Option<JoinHandle<bool>>,
}

impl Frozen {
    pub(super) fn new(path: &Path) -> Self {
        assert!(run("fsfreeze", &["-f"], path));
        let (end, ended) = channel();
        let thawed = path.to_owned();
        let guard = Builder::new().spawn(move || {
            let is_late =
                ended.recv_timeout(Duration::from_secs(20)) == Err(RecvTimeoutError::Timeout);
            run("fsfreeze", &["-u"], &thawed);
            is_late
        });
        Self { path: path.to_owned(), end: Some(end), guard: guard.ok() }
    }

    /// Thaws the file system. Returns whether it was still frozen.
    pub(super) fn thaw(mut self) -> bool {
        self.end.take();
        !self.guard.take().unwrap().join().unwrap()
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if self.guard.is_some() {
            run("fsfreeze", &["-u"], &self.path);
        }
    }
}

#[test]
fn a_frozen_file_system_keeps_only_changes_waiting() {
    let Some(mounted) = Mounted::new() else { return };
    let (waker, path) = (Waker::new().unwrap(), mounted.path());
    let mut bed = serve(&path, &waker);
    if Ring::new(&bed.pool, &waker).is_err() {
        return eprintln!("skipped: there are no rings");
    }
    let root = bed.root();
    let file = bed.file(&root, "file");
    assert_eq!(bed.write(&file, 0, b"kept"), Status::Ok);
    bed.dir(&root, "dir", 0o755);
    let frozen = Frozen::new(&path);
    let credential = Credential::Sys(AuthSys::new(0, b"tests", bed.uid, bed.gid));
    let changes = [
        Arguments::Write(super::write(&file, 0, Item::Unreduced(b"new!"))),
        Arguments::SetAttr(SetAttr { file: root.get(), to: mode(0o750), guard: None }),
        Arguments::MkDir(MkDir { at: root.at("made"), attributes: mode(0o700) }),
    ];
    let mut waiting = Vec::new();
    for arguments in changes {
        let around =
            Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
        let (placed, network) = (None, waiting.len() as u64);
        let call = Call { credential, arguments, placed, room: usize::MAX, network };
        match bed.service.call(around, call) {
            Answer::Later(ticket) => waiting.push((ticket, arguments.procedure())),
            Answer::Now(reply) => panic!("{:?}", reply.results),
        }
    }
    // All others go on.
    for _ in 0..100 {
        assert_eq!(bed.look(&file).kind, FileType::Regular);
        assert_eq!(bed.read(&file, 0, 9), Ok((b"kept".to_vec(), true)));
        assert_eq!(bed.find(&root, "file").as_ref(), Ok(&file));
        assert_eq!(bed.find(&root, "none"), Err(Status::NoEnt));
        let listing = ReadDir { dir: root.get(), cookie: 0, verifier: Verifier(0), count: 999 };
        assert_eq!(bed.status(Arguments::ReadDir(listing)), Status::Ok);
    }
    let around =
        Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
    let walked = bed.service.directory(around, (9, &Credential::None), b"/");
    assert!(matches!(walked, Walked::Ended(Ok(_))));
    assert!(frozen.thaw(), "nobody waited for the thaw");
    // No change is lost, and none is made twice.
    while !waiting.is_empty() {
        bed.service.turn();
        let around =
            Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
        let Some((ticket, reply)) = bed.service.poll(around) else {
            std::thread::yield_now();
            continue;
        };
        let at = waiting.iter().position(|(waiting, _)| *waiting == ticket).unwrap();
        let (_, procedure) = waiting.remove(at);
        let sent = Sent { procedure, bytes: written(|w| reply.encode_inline(w)) };
        assert_eq!(sent.results().status(), Status::Ok, "{procedure:?}");
    }
    assert_eq!(bed.read(&file, 0, 9), Ok((b"new!".to_vec(), true)));
    assert!(bed.find(&root, "made").is_ok());
    assert_eq!(bed.look(&root).mode, 0o750);
}
