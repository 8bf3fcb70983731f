//! Encodings that were not captured, written by hand from RFC 1813.

use super::*;
use crate::codec::{ListWriter, Wire};
use crate::nfs3::arguments::*;
use crate::nfs3::listing::{Entry, EntryPlus, NamesPlusWriter};
use crate::nfs3::results::*;
use crate::nfs3::*;
use crate::testing::words;

#[test]
fn arguments_have_these_octets() {
    let file = FileHandle::new(&[0xaa, 0xbb, 0xcc, 0xdd]).unwrap();
    let at = DirName { dir: file, name: Name(b"n") };
    let (fh, name) = ([4, 0xaabb_ccdd], [1, 0x6e00_0000]);
    let to = SetAttributes {
        mode: Some(0o600),
        gid: Some(7),
        size: Some(1 << 32),
        atime: SetTime::ToServer,
        mtime: SetTime::To(Time { seconds: 5, nanoseconds: 6 }),
        ..SetAttributes::default()
    };
    // Mode, no uid, gid, size; to the server's time; to the client's.
    let sattr = [1, 0o600, 0, 1, 7, 1, 1, 0, 1, 2, 5, 6];
    let keep = SetAttributes::default();
    let guard = Some(Time { seconds: 8, nanoseconds: 9 });
    let device = Device { major: 3, minor: 4 };
    let mknod = |what| Arguments::MkNod(MkNod { at, what });
    let create = |how| Arguments::Create(Create { at, how });
    let readdir = ReadDir { dir: file, cookie: 1, verifier: Verifier(2), count: 3 };
    for (arguments, parts) in [
        (Arguments::Null, [&[][..], &[], &[]]),
        (Arguments::SetAttr(SetAttr { file, to, guard }), [&fh, &sattr, &[1, 8, 9]]),
        (Arguments::SetAttr(SetAttr { file, to, guard: None }), [&fh, &sattr, &[0]]),
        (Arguments::ReadLink(file), [&fh, &[], &[]]),
        (Arguments::FsStat(file), [&fh, &[], &[]]),
        (create(How::Exclusive(Verifier(0x1_0000_0002))), [&fh, &name, &[2, 1, 2]]),
        (create(How::Guarded(keep)), [&fh, &name, &[1, 0, 0, 0, 0, 0, 0]]),
        (mknod(Special::Character(keep, device)), [&fh, &name, &[4, 0, 0, 0, 0, 0, 0, 3, 4]]),
        (mknod(Special::Block(keep, device)), [&fh, &name, &[3, 0, 0, 0, 0, 0, 0, 3, 4]]),
        (mknod(Special::Socket(keep)), [&fh, &name, &[6, 0, 0, 0, 0, 0, 0]]),
        (mknod(Special::Fifo(keep)), [&fh, &name, &[7, 0, 0, 0, 0, 0, 0]]),
        (mknod(Special::Ordinary(FileType::Directory)), [&fh, &name, &[2]]),
        (Arguments::MkDir(MkDir { at, attributes: keep }), [&fh, &name, &[0; 6]]),
        (Arguments::Link(Link { file, at }), [&fh, &fh, &name]),
        (Arguments::ReadDir(readdir), [&fh, &[0, 1, 0, 2, 3], &[]]),
        (Arguments::Commit(Commit { file, offset: 1 << 32, count: 9 }), [&fh, &[1, 0, 9], &[]]),
    ] {
        let bytes = words(&parts.concat());
        assert_eq!(written(|w| arguments.encode(w)), bytes, "{arguments:?}");
        assert_eq!(super::arguments(arguments.procedure(), &bytes), Ok(arguments));
    }
}

#[test]
fn results_have_these_octets() {
    let time = |seconds| Time { seconds, nanoseconds: 0 };
    let known = Attributes {
        kind: FileType::Fifo,
        mode: 1,
        links: 2,
        uid: 3,
        gid: 4,
        size: 5,
        used: 6,
        device: Device { major: 7, minor: 8 },
        fsid: 9,
        fileid: 10,
        atime: time(11),
        mtime: time(12),
        ctime: time(13),
    };
    let attributes = Some(known);
    let post_op = [1, 7, 1, 2, 3, 4, 0, 5, 0, 6, 7, 8, 0, 9, 0, 10, 11, 0, 12, 0, 13, 0];
    let wcc = Wcc { before: Some(known.wcc()), after: None };
    let wcc_words = [1, 0, 5, 12, 0, 13, 0, 0];
    let mut memory = [0; 256];
    let mut names = ListWriter::new(&mut memory);
    assert!(names.push(&Entry { fileid: 1, name: Name(b"a"), cookie: 2 }));
    assert!(names.push(&Entry { fileid: 3, name: Name(b"bcdef"), cookie: 4 }));
    let listing = Listing { dir: None, verifier: Verifier(5), names: names.finish(), eof: true };
    let entries = [1, 0, 1, 1, 0x6100_0000, 0, 2, 1, 0, 3, 5, 0x6263_6465, 0x6600_0000, 0, 4, 0];
    let fs_stat = FsStat {
        attributes,
        total_bytes: 1,
        free_bytes: 2,
        available_bytes: 3,
        total_files: 4,
        free_files: 5,
        available_files: 6,
        invariant_seconds: 7,
    };
    let stale = Failure { status: Status::Stale, rest: wcc };
    let bad = Failure { status: Status::BadHandle, rest: () };
    let target = Target { attributes, path: Path(Item::Unreduced(b"to")) };
    let linked = Linked { attributes, dir: wcc };
    for (procedure, results, parts) in [
        (Procedure::Null, Results::Null, [&[][..], &[], &[]]),
        (Procedure::SetAttr, Results::SetAttr(Ok(wcc)), [&[0], &wcc_words, &[]]),
        (Procedure::SetAttr, Results::SetAttr(Err(stale)), [&[70], &wcc_words, &[]]),
        (Procedure::GetAttr, Results::GetAttr(Err(bad)), [&[10001], &[], &[]]),
        (Procedure::ReadLink, Results::ReadLink(Ok(target)), [&[0], &post_op, &[2, 0x746f_0000]]),
        (Procedure::Link, Results::Link(Ok(linked)), [&[0], &post_op, &wcc_words]),
        (Procedure::ReadDir, Results::ReadDir(Ok(listing)), [&[0, 0, 0, 5], &entries, &[1]]),
        (
            Procedure::FsStat,
            Results::FsStat(Ok(fs_stat)),
            [&[0], &post_op, &[0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 7]],
        ),
    ] {
        let bytes = words(&parts.concat());
        assert_eq!(written(|w| results.encode(w)), bytes, "{procedure:?}");
        assert_eq!(super::results(procedure, &bytes), Ok(results));
    }
}

#[test]
fn unknown_values_are_refused_where_they_stand() {
    let unknown = |at, value| Malformed::Unknown { at, value };
    let create = words(&[0, 0, 3]);
    assert_eq!(arguments(Procedure::Create, &create), Err(unknown(12, 3)));
    let mknod = words(&[0, 0, 8]);
    assert_eq!(arguments(Procedure::MkNod, &mknod), Err(unknown(12, 8)));
    let guard = words(&[0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(arguments(Procedure::SetAttr, &guard), Err(unknown(32, 2)));
    assert_eq!(results(Procedure::GetAttr, &words(&[3])), Err(unknown(4, 3)));
}

#[test]
fn what_is_longer_than_it_may_be_is_not_there() {
    let refused = |at| Malformed::Truncated(Truncated { at });
    let handle = [words(&[65]), vec![0; 68]].concat();
    assert_eq!(arguments(Procedure::GetAttr, &handle), Err(refused(0)));
    let longest = [words(&[64]), vec![0; 64]].concat();
    assert!(arguments(Procedure::GetAttr, &longest).is_ok());
    let path = [words(&[0, 0, 4097]), vec![0; 4100]].concat();
    assert_eq!(results(Procedure::ReadLink, &path), Err(refused(8)));
    let longest = [words(&[0, 0, 4096]), vec![0; 4096]].concat();
    assert!(results(Procedure::ReadLink, &longest).is_ok());
}

#[test]
fn a_list_ends_before_its_memory_does() {
    let entry = Entry { fileid: 1, name: Name(b"name"), cookie: 2 };
    let wire_len = 4 + entry.wire_len();
    for room in 0..=2 * wire_len + 4 {
        let mut memory = vec![0xff; room];
        let mut w = ListWriter::new(&mut memory);
        let fit = usize::from(w.push(&entry)) + usize::from(w.push(&entry));
        assert_eq!(fit, room.saturating_sub(4) / wire_len, "{room}");
        let list = w.finish::<Entry<'_>>();
        assert_eq!(list.iter().count(), fit);
        assert_eq!(list.wire_len(), fit * wire_len + 4);
        assert_eq!(written(|w| list.encode(w)).len(), list.wire_len());
    }
}

#[test]
fn a_readdirplus_has_two_bounds() {
    let entry = Entry { fileid: 1, name: Name(b"name"), cookie: 2 };
    let plus = EntryPlus { entry, attributes: None, file: None };
    for (names_max, fit) in [(0, 0), (23, 0), (24, 1), (47, 1), (48, 2), (usize::MAX, 2)] {
        let mut memory = [0; 2 * (4 + 24 + 8) + 4];
        let mut w = NamesPlusWriter::new(&mut memory, names_max);
        while w.push(&plus) {}
        assert_eq!(w.finish().iter().count(), fit, "{names_max}");
    }
}
