//! Tests of file systems without room.

use std::sync::atomic::Ordering;
use std::thread::yield_now;

use haulage::provider::Waker;

use super::elsewhere::{Mounted, serve_with};
use super::locked::{begin, poll_any};
use super::*;
use crate::directory::Directory;
use crate::testing::CONFIG;

/// Writes to a file until there is no room left.
pub(super) fn fill(bed: &mut Bed<Directory>, file: &Handle) {
    let (octets, mut offset) = ([b'-'; 1 << 16], 0);
    for length in [octets.len(), 4096] {
        while bed.write(file, offset, &octets[..length]) == Status::Ok {
            offset += length as u64;
        }
    }
}

#[test]
fn what_finds_no_room_waits_for_the_files_that_are_being_closed() {
    let Some(mounted) = Mounted::in_memory(4 << 20) else { return };
    let waker = Waker::new().unwrap();
    let config = CONFIG;
    let mut bed = serve_with(&mounted.path(), &waker, config);
    let root = bed.root();
    let [large, other] = ["large", "other"].map(|name| bed.file(&root, name));
    fill(&mut bed, &large);
    // A long path takes room of its own.
    let long = [b'x'; 1000];
    let symlink = |name| {
        let (attributes, path) = (mode(0o777), Path(Item::Unreduced(&long)));
        Arguments::Symlink(Symlink { at: root.at(name), attributes, path })
    };
    let end = |bed: &mut Bed<_>, link| loop {
        let procedure =
            |ticket| if Some(ticket) == link { Procedure::Symlink } else { Procedure::Write };
        if let Some(ended) = poll_any(bed, procedure) {
            return ended;
        }
        yield_now();
    };
    // Where no room is about to come, none is waited for.
    let write = || Arguments::Write(super::write(&other, 0, Item::Unreduced(b"octets")));
    for arguments in [write(), symlink("link")] {
        assert_eq!(bed.status(arguments), Status::NoSpc, "{arguments:?}");
    }
    let gate = bed.service.backend.close_gate();
    gate.store(true, Ordering::Release);
    assert_eq!(bed.status(Arguments::Remove(root.at("large"))), Status::Ok);
    let waiting =
        [write(), symlink("link")].map(|arguments| begin(&mut bed, arguments, 0).unwrap());
    // The refusal of the system has come once the helpers have nothing to do but to close.
    while bed.service.backend.roomless() < waiting.len() {
        assert_eq!(poll_any(&mut bed, |_| Procedure::Write), None);
        yield_now();
    }
    // Others are served.
    assert_eq!(bed.find(&root, "other").as_ref(), Ok(&other));
    gate.store(false, Ordering::Release);
    for _ in waiting {
        let (ticket, status) = end(&mut bed, Some(waiting[1]));
        assert!(waiting.contains(&ticket) && status == Status::Ok, "{status:?}");
    }
    assert_eq!(bed.read(&other, 0, 9), Ok((b"octets".to_vec(), true)));
    // What is without room for good is told so once all files are closed.
    let full = bed.file(&root, "full");
    let small = bed.file(&root, "small");
    assert_eq!(bed.write(&small, 0, &[b'-'; 1 << 16]), Status::Ok);
    fill(&mut bed, &full);
    gate.store(true, Ordering::Release);
    assert_eq!(bed.status(Arguments::Remove(root.at("small"))), Status::Ok);
    let writes = [1 << 16, 2 << 16].map(|offset| {
        let octets = Item::Unreduced(&[b'-'; 1 << 16]);
        begin(&mut bed, Arguments::Write(super::write(&other, offset, octets)), 0).unwrap()
    });
    while bed.service.backend.roomless() < writes.len() {
        assert_eq!(poll_any(&mut bed, |_| Procedure::Write), None);
        yield_now();
    }
    gate.store(false, Ordering::Release);
    let mut statuses = writes.map(|_| end(&mut bed, None).1);
    statuses.sort_unstable_by_key(|status| *status as u32);
    assert_eq!(statuses, [Status::Ok, Status::NoSpc]);
    assert_eq!((bed.service.backend.roomless(), bed.pool.gauges().leased_bytes), (0, 0));
}
