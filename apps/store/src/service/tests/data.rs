//! READ, WRITE, COMMIT, READLINK.

use super::*;
use crate::nfs3::PATH_MAX;

#[test]
fn what_was_written_is_read() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    assert_eq!(bed.write(&file, 3, b"hello"), Status::Ok);
    assert_eq!(bed.read(&file, 0, 99), Ok((b"\0\0\0hello".to_vec(), true)));
    assert_eq!(bed.read(&file, 0, 4), Ok((b"\0\0\0h".to_vec(), false)));
    assert_eq!(bed.read(&file, 8, 4), Ok((Vec::new(), true)));
    assert_eq!(bed.read(&file, u64::MAX, u32::MAX), Ok((Vec::new(), true)));
    assert_eq!(bed.read(&file, 0, 0), Ok((Vec::new(), false)));
}

#[test]
fn a_write_is_told_with_the_file_before_and_after() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let before = bed.look(&file);
    let sent = bed.call(Arguments::Write(write(&file, 0, Item::Unreduced(b"hello"))));
    let Results::Write(Ok(done)) = sent.results() else { panic!("{:?}", sent.results()) };
    let after = bed.look(&file);
    assert_eq!(done.file, Wcc { before: Some(before.wcc()), after: Some(after) });
    assert_eq!((done.count, done.committed), (5, Stable::FileSync));
    assert!(after.ctime > before.ctime && after.mtime > before.mtime);
    let commit = Commit { file: file.get(), offset: 0, count: 0 };
    let sent = bed.call(Arguments::Commit(commit));
    let Results::Commit(Ok(committed)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!(committed.verifier, done.verifier);
    assert_eq!(committed.file, Wcc { before: Some(after.wcc()), after: Some(after) });
}

#[test]
fn placed_data_is_read_from_where_it_was_placed() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let mut lease = bed.pool.lease(50_001).unwrap();
    lease.bytes_mut().fill(7);
    let place = lease.bytes().as_ptr();
    let item = Item::Reduced { length: 50_001 };
    let sent = bed.send(Arguments::Write(write(&file, 0, item)), Some(lease));
    assert_eq!(sent.results().status(), Status::Ok);
    let read = Read { file: file.get(), offset: 1, count: u32::MAX };
    let (credential, arguments) =
        (Credential::Sys(AuthSys::new(0, b"tests", 1, 2)), Arguments::Read(read));
    let around =
        Surroundings { pool: &bed.pool, now: bed.now, clock: Instant::ZERO, arrivals: None };
    let call = Call { credential, arguments, placed: None, room: usize::MAX, network: 0 };
    let Answer::Now(reply) = bed.service.call(around, call) else { panic!("memory is at hand") };
    // The results end in the length; the octets stayed where they are.
    let results = written(|w| reply.results.encode(w));
    assert_eq!(results[results.len() - 4..], 50_000_u32.to_be_bytes());
    let pieces: Vec<_> = reply.data.iter().collect();
    assert_eq!((pieces.len(), pieces[0].len()), (1, 50_000));
    assert_eq!(pieces[0].bytes().as_ptr(), place.wrapping_add(1));
}

#[test]
fn padding_that_came_with_placed_data_is_not_written() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let mut lease = bed.pool.lease(8).unwrap();
    lease.bytes_mut().copy_from_slice(b"hello\xff\xff\xff");
    let item = Item::Reduced { length: 5 };
    let sent = bed.send(Arguments::Write(write(&file, 0, item)), Some(lease));
    let Results::Write(Ok(done)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((done.count, bed.read(&file, 0, 99)), (5, Ok((b"hello".to_vec(), true))));
}

#[test]
fn no_more_is_read_or_written_than_the_limits_say() {
    let mut bed = bed();
    bed.service.config.limits.read_max = 10;
    let root = bed.root();
    let file = bed.file(&root, "f");
    let large = vec![1; (1 << 16) + 1];
    let sent = bed.call(Arguments::Write(write(&file, 0, Item::Unreduced(&large))));
    let Results::Write(Ok(done)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((done.count, bed.look(&file).size), (1 << 16, 1 << 16));
    let mut lease = bed.pool.lease(large.len()).unwrap();
    lease.bytes_mut().fill(2);
    let item = Item::Reduced { length: large.len() as u64 };
    let sent = bed.send(Arguments::Write(write(&file, 0, item)), Some(lease));
    let Results::Write(Ok(done)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((done.count, bed.look(&file).size), (1 << 16, 1 << 16));
    assert_eq!(bed.read(&file, 0, 99), Ok((vec![2; 10], false)));
}

#[test]
fn data_that_is_missing_or_not_as_long_as_said_is_not_written() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let (most, more) = ((1 << 16), (1 << 16) + 1);
    for (length, status) in [(10, Status::NoSpc), (most, Status::NoSpc), (more, Status::Inval)] {
        let item = Item::Reduced { length };
        assert_eq!(bed.status(Arguments::Write(write(&file, 0, item))), status);
    }
    let short = Write { count: 6, ..write(&file, 0, Item::Unreduced(b"hello")) };
    assert_eq!(bed.status(Arguments::Write(short)), Status::Inval);
    assert_eq!(bed.look(&file).size, 0);
    let path = Path(Item::Reduced { length: 10 });
    let link = Symlink { at: root.at("l"), attributes: mode(0o777), path };
    assert_eq!(bed.status(Arguments::Symlink(link)), Status::NoSpc);
    assert_eq!(bed.find(&root, "l"), Err(Status::NoEnt));
}

#[test]
fn only_files_hold_data() {
    let mut bed = bed();
    let root = bed.root();
    let link = bed.symlink(&root, "l", b"to").unwrap();
    for file in [&root, &link] {
        assert_eq!(bed.read(file, 0, 1), Err(Status::Inval));
        assert_eq!(bed.write(file, 0, b"x"), Status::Inval);
        let commit = Commit { file: file.get(), offset: 0, count: 0 };
        assert_eq!(bed.status(Arguments::Commit(commit)), Status::Inval);
    }
}

#[test]
fn links_hold_what_they_were_made_with() {
    let mut bed = bed();
    let root = bed.root();
    let path = vec![b'p'; 4001];
    let mut lease = bed.pool.lease(path.len()).unwrap();
    lease.bytes_mut().copy_from_slice(&path);
    let item = Path(Item::Reduced { length: 4001 });
    let link = Symlink { at: root.at("l"), attributes: mode(0o777), path: item };
    let link = made(&bed.send(Arguments::Symlink(link), Some(lease))).unwrap();
    let sent = bed.call(Arguments::ReadLink(link.get()));
    let Results::ReadLink(Ok(target)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!(target.path, Path(Item::Unreduced(&path)));
    assert_eq!(target.attributes, Some(bed.look(&link)));
    assert_eq!((bed.look(&link).size, bed.look(&link).mode), (4001, 0o777));
    for bad in [&b""[..], b"a\0b"] {
        assert_eq!(bed.symlink(&root, "bad", bad), Err(Status::Inval));
    }
    let longer = vec![b'p'; PATH_MAX + 1];
    assert_eq!(bed.symlink(&root, "longer", &longer), Err(Status::NameTooLong));
    assert!(bed.symlink(&root, "longest", &longer[1..]).is_ok());
    let file = bed.file(&root, "f");
    assert_eq!(bed.status(Arguments::ReadLink(file.get())), Status::Inval);
}
