//! Reading and writing files.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use super::super::read::READS;
use super::super::write::{COMMITS_MAX, PIECES, WRITES};
use super::*;
use crate::nfs3::arguments::Stable;
use crate::nfs3::results::{Committed, Contents, FsInfo, Written};
use crate::nfs3::{Data, Failure, Verifier, Wcc};

const PIECE: usize = 64 << 10;
const LENGTHS: [usize; 9] =
    [0, 1, 5, 1024, 5001, PIECE, PIECE + 1, 3 * PIECE - 1, (PIECES + 3) * PIECE + 7];

fn file(client: &mut Client<Near>, octets: &[u8]) -> Found {
    let root = client.root;
    let made = client.make_file(&root, "file", octets);
    client.requester.asked.clear();
    client.requester.under_way_max = 0;
    made
}

#[test]
fn files_of_any_length_come_back_in_order() {
    for length in LENGTHS {
        let mut client = Near::new(LIMITS).client();
        let made = file(&mut client, &pattern(length));
        let attributes = client.attributes(&made.file).unwrap();
        assert_eq!(attributes.size, length as u64);
        assert!(client.contents(&made.file, attributes.size).unwrap() == pattern(length));
        let reads = client.requester.count(Procedure::Read);
        assert_eq!(reads, length.div_ceil(PIECE).max(1), "{length}");
        assert_eq!(client.requester.under_way_max, reads.min(READS), "{length}");
        assert!(client.requester.ended.is_empty());
    }
}

#[test]
fn a_file_ends_where_the_server_says() {
    let mut client = Near::new(LIMITS).client();
    let octets = pattern(5 * PIECE + 3);
    let made = file(&mut client, &octets);
    for believed in [0, 1, PIECE, 5 * PIECE, 5 * PIECE + 4, 20 * PIECE] {
        assert!(client.contents(&made.file, believed as u64).unwrap() == octets, "{believed}");
        assert!(client.requester.ended.is_empty(), "what is not wanted is waited for");
    }
}

/// A server that says that it moves 64 KiB at once, and does not.
fn meagre() -> Client<Near> {
    let mut server = Near::new(Limits { read_max: 10_000, write_max: 10_000, ..LIMITS });
    server.edit = Box::new(|_, results| match results {
        Results::FsInfo(Ok(info)) => {
            let boast = FsInfo { read_max: 65_536, write_max: 65_536, ..*info };
            refusal(&Results::FsInfo(Ok(boast)))
        }
        _ => None,
    });
    server.client()
}

#[test]
fn a_server_that_moves_less_at_a_time_is_asked_for_the_rest() {
    let mut client = meagre();
    let octets = pattern(3 * PIECE + 7);
    let made = file(&mut client, &octets);
    assert!(client.contents(&made.file, octets.len() as u64).unwrap() == octets);
    assert!(client.requester.count(Procedure::Read) > octets.len() / 10_000);
}

#[test]
fn a_write_that_takes_less_is_followed_by_the_rest() {
    let mut client = Near::new(LIMITS).client();
    client.requester.edit = Box::new(|_, results| match results {
        Results::Write(Ok(written)) if written.count > 10_000 => {
            refusal(&Results::Write(Ok(Written { count: 10_000, ..*written })))
        }
        _ => None,
    });
    let octets = pattern(3 * PIECE + 7);
    let made = file(&mut client, &octets);
    assert!(client.contents(&made.file, octets.len() as u64).unwrap() == octets);
}

#[test]
fn what_is_stable_at_once_is_not_committed() {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    client.make_file(&root, "file", &pattern(20 * PIECE));
    assert_eq!(client.requester.count(Procedure::Commit), 0);
    assert_eq!(client.requester.count(Procedure::Write), 20);
    assert_eq!(client.requester.under_way_max, WRITES);
}

/// Makes the server one that is restarted before each of the first `lives` COMMITs, and forgets what it
/// was sent until then. Returns how many COMMITs there were.
fn forgetful(client: &mut Client<Near>, lives: u64) -> Rc<Cell<u64>> {
    let life = Rc::new(Cell::new(0));
    let (writing, committing) = (Rc::clone(&life), Rc::clone(&life));
    client.requester.instead = Box::new(move |arguments| match arguments {
        Arguments::Write(write) if writing.get() < lives => {
            let written = Written {
                file: Wcc::default(),
                count: write.count,
                committed: Stable::Unstable,
                verifier: Verifier(writing.get()),
            };
            refusal(&Results::Write(Ok(written)))
        }
        Arguments::Commit(_) => {
            committing.set(committing.get() + 1);
            let verifier = Verifier(committing.get().min(lives));
            let committed = Committed { file: Wcc::default(), verifier };
            refusal(&Results::Commit(Ok(committed)))
        }
        _ => None,
    });
    client.requester.edit = Box::new(move |_, results| match results {
        Results::Write(Ok(written)) => {
            let verifier = Verifier(lives);
            let unstable = Written { committed: Stable::Unstable, verifier, ..*written };
            refusal(&Results::Write(Ok(unstable)))
        }
        _ => None,
    });
    life
}

#[test]
fn what_a_server_may_have_lost_is_written_again() {
    for lives in [0, 1, 2] {
        let mut client = Near::new(LIMITS).client();
        let life = forgetful(&mut client, lives);
        let root = client.root;
        let octets = pattern(10 * PIECE + 1);
        let made = client.make_file(&root, "file", &octets);
        assert_eq!(life.get(), lives + 1, "commits");
        let writes = u64::try_from(client.requester.count(Procedure::Write)).unwrap();
        assert_eq!(writes, 11 * (lives + 1));
        client.requester.instead = Box::new(|_| None);
        client.requester.edit = Box::new(|_, _| None);
        assert!(client.contents(&made.file, octets.len() as u64).unwrap() == octets);
    }
}

#[test]
fn of_what_was_cut_in_two_each_part_is_written_again_once() {
    let mut client = Near::new(LIMITS).client();
    let restarted = Rc::new(Cell::new(0));
    let octets = Rc::new(Cell::new(0));
    let (commits, lives, again) =
        (Rc::clone(&restarted), Rc::clone(&restarted), Rc::clone(&octets));
    client.requester.edit = Box::new(move |_, results| match results {
        Results::Write(Ok(written)) => {
            let count = written.count.min(10_000);
            if lives.get() > 0 {
                again.set(again.get() + count as usize);
            }
            let (committed, verifier) = (Stable::Unstable, Verifier(lives.get()));
            refusal(&Results::Write(Ok(Written { count, committed, verifier, ..*written })))
        }
        Results::Commit(Ok(committed)) => {
            commits.set(1);
            refusal(&Results::Commit(Ok(Committed { verifier: Verifier(1), ..*committed })))
        }
        _ => None,
    });
    let root = client.root;
    client.make_file(&root, "file", &pattern(2 * PIECE));
    assert_eq!(octets.get(), 2 * PIECE);
}

#[test]
fn no_more_is_kept_than_may_await_being_committed() {
    let mut client = Near::new(LIMITS).client();
    let life = forgetful(&mut client, 0);
    let root = client.root;
    client.make_file(&root, "file", &pattern(3 * PIECES * PIECE));
    assert_eq!(life.get(), 3, "a COMMIT when there is no room for more, and at the end");
    assert_eq!(client.requester.leases, PIECES, "taken once, and used again");
}

#[test]
fn a_server_that_always_loses_what_it_is_sent_is_given_up() {
    let mut client = Near::new(LIMITS).client();
    forgetful(&mut client, u64::MAX);
    let root = client.root;
    let made = client.create(&root, b"file", 0o644).unwrap();
    let mut rest = &pattern(100)[..];
    let error = client.write(&made.file, |room| io::Read::read(&mut rest, room)).unwrap_err();
    assert!(matches!(error, Error::Nonsense(_)), "{error:?}");
    assert_eq!(client.requester.count(Procedure::Commit), COMMITS_MAX as usize);
}

#[test]
fn busy_servers_get_their_pieces_again() {
    let mut client = Near::new(LIMITS).client();
    let octets = pattern(50 * PIECE);
    let mut count = 0;
    client.requester.instead = Box::new(move |arguments| {
        count += 1;
        let status = Status::Jukebox;
        let busy = count % 2 == 0;
        match arguments {
            Arguments::Read(_) if busy => {
                refusal(&Results::Read(Err(Failure { status, rest: None })))
            }
            Arguments::Write(_) if busy => {
                refusal(&Results::Write(Err(Failure { status, rest: Wcc::default() })))
            }
            _ => None,
        }
    });
    let made = file(&mut client, &octets);
    assert!(client.contents(&made.file, octets.len() as u64).unwrap() == octets);
    assert!(client.requester.pauses > 4 * BUSY_MAX);
}

#[test]
fn a_server_that_stays_busy_is_given_up() {
    let mut client = Near::new(LIMITS).client();
    let made = file(&mut client, &pattern(PIECE));
    client.requester.instead = Box::new(|arguments| {
        let status = Status::Jukebox;
        match arguments {
            Arguments::Read(_) => refusal(&Results::Read(Err(Failure { status, rest: None }))),
            Arguments::Write(_) => {
                refusal(&Results::Write(Err(Failure { status, rest: Wcc::default() })))
            }
            _ => None,
        }
    });
    let refused = client.contents(&made.file, PIECE as u64).unwrap_err();
    assert_eq!((refused.status(), client.requester.pauses), (Some(Status::Jukebox), BUSY_MAX));
    let mut rest = &pattern(100)[..];
    let refused = client.write(&made.file, |room| io::Read::read(&mut rest, room)).unwrap_err();
    assert_eq!((refused.status(), client.requester.pauses), (Some(Status::Jukebox), 2 * BUSY_MAX));
}

#[test]
fn refusals_end_a_transfer_and_nothing_stays_under_way() {
    let mut client = Near::new(LIMITS).client();
    let octets = pattern(20 * PIECE);
    let made = file(&mut client, &octets);
    let mut count = 0;
    client.requester.instead = Box::new(move |arguments| {
        count += 1;
        match arguments {
            Arguments::Read(_) if count >= 12 => {
                refusal(&Results::Read(Err(Failure { status: Status::Io, rest: None })))
            }
            Arguments::Write(_) if count >= 30 => {
                let failure = Failure { status: Status::NoSpc, rest: Wcc::default() };
                refusal(&Results::Write(Err(failure)))
            }
            _ => None,
        }
    });
    let refused = client.contents(&made.file, octets.len() as u64).unwrap_err();
    assert_eq!(refused.status(), Some(Status::Io));
    assert!(client.requester.ended.is_empty());
    let mut endless = io::repeat(1);
    let refused = client.write(&made.file, |room| io::Read::read(&mut endless, room)).unwrap_err();
    assert_eq!(refused.status(), Some(Status::NoSpc));
    assert!(client.requester.ended.is_empty());
}

#[test]
fn errors_of_this_side_end_a_transfer_too() {
    let mut client = Near::new(LIMITS).client();
    let made = file(&mut client, &pattern(20 * PIECE));
    let full = |_: &[u8]| Err(io::ErrorKind::StorageFull.into());
    let error = client.read(&made.file, 20 * PIECE as u64, full).unwrap_err();
    assert!(matches!(error, Error::Local(_)), "{error:?}");
    assert!(client.requester.ended.is_empty());
    let mut left = 3 * PIECE;
    let failing = |room: &mut [u8]| {
        left = left.checked_sub(room.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(room.len())
    };
    let error = client.write(&made.file, failing).unwrap_err();
    assert!(matches!(error, Error::Local(_)), "{error:?}");
    assert!(client.requester.ended.is_empty());
}

#[test]
fn data_of_another_length_than_it_says_makes_no_sense() {
    static LONG: [u8; 2000] = [1; 2000];
    let said = |count, eof, octets: &'static [u8]| Contents {
        attributes: None,
        count,
        eof,
        data: Data(Item::Unreduced(octets)),
    };
    for contents in [
        said(3, true, &LONG[..2]),
        said(2, true, &LONG[..3]),
        // More than was asked for: 1024 octets, for a file believed to be empty.
        said(2000, true, &LONG),
        said(0, false, &[]),
    ] {
        let mut client = Near::new(LIMITS).client();
        let made = file(&mut client, b"");
        client.requester.instead = Box::new(move |arguments| match arguments {
            Arguments::Read(_) => refusal(&Results::Read(Ok(contents))),
            _ => None,
        });
        let error = client.contents(&made.file, 0).unwrap_err();
        assert!(matches!(error, Error::Nonsense(_)), "{contents:?}: {error:?}");
    }
}

#[test]
fn a_write_that_takes_nothing_or_too_much_makes_no_sense() {
    for count in [0, 101] {
        let mut client = Near::new(LIMITS).client();
        let made = file(&mut client, b"");
        client.requester.edit = Box::new(move |_, results| match results {
            Results::Write(Ok(written)) => {
                refusal(&Results::Write(Ok(Written { count, ..*written })))
            }
            _ => None,
        });
        let mut rest = &[1_u8; 100][..];
        let error = client.write(&made.file, |room| io::Read::read(&mut rest, room)).unwrap_err();
        assert!(matches!(error, Error::Nonsense(_)), "{error:?}");
    }
}
