//! Tests of WRITEs to files that a local process has locked, beside those to other files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread::{Builder, JoinHandle, yield_now};
use std::time::Duration;

use haulage::provider::Waker;
use haulage::sys::clock::now;
use rustix::fs::OFlags;

use super::elsewhere::{Frozen, Mounted, serve_with};
use super::*;
use crate::directory::{self, Directory, Ring};
use crate::testing::CONFIG;

/// Begins a Call of a client of this network. Returns its ticket, or its status if it is answered at once.
pub(super) fn begin(
    bed: &mut Bed<Directory>,
    arguments: Arguments<'_>,
    network: u64,
) -> Result<Ticket, Status> {
    let credential = Credential::Sys(AuthSys::new(0, b"tests", bed.uid, bed.gid));
    let around =
        Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
    let call = Call { credential, arguments, placed: None, room: usize::MAX, network };
    bed.service.turn();
    match bed.service.call(around, call) {
        Answer::Later(ticket) => Ok(ticket),
        Answer::Now(reply) => {
            let bytes = written(|w| reply.encode_inline(w));
            Err(Sent { procedure: arguments.procedure(), bytes }.results().status())
        }
    }
}

/// Takes the next Reply to a WRITE.
fn poll(bed: &mut Bed<Directory>) -> Option<(Ticket, Status)> {
    poll_any(bed, |_| Procedure::Write)
}

/// Takes the next Reply to a Call of the procedure that its ticket tells.
pub(super) fn poll_any(
    bed: &mut Bed<Directory>,
    procedure: impl FnOnce(Ticket) -> Procedure,
) -> Option<(Ticket, Status)> {
    bed.service.turn();
    let around =
        Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
    let (ticket, reply) = bed.service.poll(around)?;
    let bytes = written(|w| reply.encode_inline(w));
    Some((ticket, Sent { procedure: procedure(ticket), bytes }.results().status()))
}

/// Has a local process append to a file past the cache. It has the file locked until the disk has the octets.
fn lock(path: &Path, told: std::sync::mpsc::Sender<i32>) -> JoinHandle<()> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let file = File::options().write(true).custom_flags(direct).open(path).unwrap();
    let append = move || {
        told.send(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
        let octets = vec![b'-'; 3 * 4096];
        let from = octets.as_ptr().align_offset(4096);
        file.write_all_at(&octets[from..from + 4096], 0).unwrap();
    };
    Builder::new().spawn(append).unwrap()
}

/// Returns whether a thread of this process sleeps as one does that waits for the disk.
fn is_waiting(thread: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('D'))
}

#[test]
fn writes_of_locked_files_keep_no_others_waiting() {
    let Some(below) = Mounted::new() else { return };
    // Without a journal, nothing but a lock waits for the disk.
    let options = ["-O", "^has_journal", "-N", "1024"];
    let Some(mounted) = Mounted::within(&below.path(), 24 << 20, &options) else { return };
    let (waker, path) = (Waker::new().unwrap(), mounted.path());
    let config = directory::Config { open_max: 1024, ..CONFIG };
    let mut bed = serve_with(&path, &waker, config);
    if Ring::new(&bed.pool, &waker).is_err() {
        return eprintln!("skipped: there are no rings");
    }
    let root = bed.root();
    let [locked, free] = ["locked", "free"].map(|kind| {
        let file = |number| bed.file(&root, &format!("{kind}-{number}"));
        (0..120).map(file).collect::<Vec<_>>()
    });
    rustix::fs::sync();
    let frozen = Frozen::new(&below.path());
    let (told, threads) = channel();
    let lockers: Vec<_> = (0..locked.len())
        .map(|number| lock(&path.join(format!("locked-{number}")), told.clone()))
        .collect();
    let threads: Vec<_> = lockers.iter().map(|_| threads.recv().unwrap()).collect();
    while !threads.iter().all(|thread| is_waiting(*thread)) {
        yield_now();
    }
    let mut late = BTreeMap::new();
    for file in &locked {
        // Some WRITEs of one client go to the same file.
        for offset in [0, 100] {
            let write = super::write(file, offset, Item::Unreduced(b"late"));
            late.insert(begin(&mut bed, Arguments::Write(write), 1).unwrap(), file);
        }
    }
    let begun = now();
    // A client writes to its files one after the other, and to all of them at once.
    for round in [1, free.len()] {
        for files in free.chunks(round) {
            let mut tickets: Vec<_> = files
                .iter()
                .map(|file| {
                    let write = super::write(file, 0, Item::Unreduced(b"free"));
                    begin(&mut bed, Arguments::Write(write), 2).unwrap()
                })
                .collect();
            while !tickets.is_empty() {
                assert!(
                    now().saturating_since(begun) < Duration::from_secs(15),
                    "{} of {round}",
                    tickets.len()
                );
                let Some((ticket, status)) = poll(&mut bed) else {
                    yield_now();
                    continue;
                };
                assert_eq!(status, Status::Ok);
                assert!(!late.contains_key(&ticket), "the file is locked");
                tickets.retain(|other| *other != ticket);
            }
        }
    }
    // Names are changed meanwhile.
    assert!(bed.by(0, 0).create(&root, "made", How::Guarded(mode(0o600))).is_ok());
    assert!(frozen.thaw(), "nobody waited for the thaw");
    for locker in lockers {
        locker.join().unwrap();
    }
    while !late.is_empty() {
        let Some((ticket, status)) = poll(&mut bed) else {
            yield_now();
            continue;
        };
        assert_eq!((status, late.remove(&ticket).is_some()), (Status::Ok, true));
    }
    for (files, octets) in [(&locked, b"late"), (&free, b"free")] {
        for file in files {
            assert_eq!(bed.read(file, 0, 4).unwrap().0, octets);
        }
    }
    assert_eq!(bed.read(&locked[7], 100, 4).unwrap().0, b"late");
    assert_eq!(bed.pool.gauges().leased_bytes, 0);
}
