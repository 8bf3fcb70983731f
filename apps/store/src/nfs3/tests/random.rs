//! Random arguments and results, and the longest results.

use haulage_proto::chunk::Item;

use crate::codec::{List, ListWriter};
use crate::nfs3::arguments::*;
use crate::nfs3::basic::*;
use crate::nfs3::listing::*;
use crate::nfs3::results::*;
use crate::nfs3::*;
use crate::testing::Rng;

pub(super) fn arguments(procedure: Procedure, rng: &mut Rng) -> Arguments<'static> {
    match procedure {
        Procedure::Null => Arguments::Null,
        Procedure::GetAttr => Arguments::GetAttr(file(rng)),
        Procedure::SetAttr => {
            let (file, to, guard) = (file(rng), set_attributes(rng), maybe(rng, time));
            Arguments::SetAttr(SetAttr { file, to, guard })
        }
        Procedure::Lookup => Arguments::Lookup(dir_name(rng)),
        Procedure::Access => Arguments::Access(Access { file: file(rng), rights: rng.word() }),
        Procedure::ReadLink => Arguments::ReadLink(file(rng)),
        Procedure::Read => {
            Arguments::Read(Read { file: file(rng), offset: rng.next(), count: rng.word() })
        }
        Procedure::Write | Procedure::Symlink => {
            let item = Item::Unreduced(rng.octets(4096));
            with_argument(procedure, item, rng)
        }
        Procedure::Create => {
            let at = dir_name(rng);
            let how = match rng.below(3) {
                0 => How::Unchecked(set_attributes(rng)),
                1 => How::Guarded(set_attributes(rng)),
                _ => How::Exclusive(Verifier(rng.next())),
            };
            Arguments::Create(Create { at, how })
        }
        Procedure::MkDir => {
            Arguments::MkDir(MkDir { at: dir_name(rng), attributes: set_attributes(rng) })
        }
        Procedure::MkNod => {
            let at = dir_name(rng);
            let what = match rng.of(FileType::ALL) {
                FileType::Character => Special::Character(set_attributes(rng), device(rng)),
                FileType::Block => Special::Block(set_attributes(rng), device(rng)),
                FileType::Socket => Special::Socket(set_attributes(rng)),
                FileType::Fifo => Special::Fifo(set_attributes(rng)),
                kind => Special::Ordinary(kind),
            };
            Arguments::MkNod(MkNod { at, what })
        }
        Procedure::Remove => Arguments::Remove(dir_name(rng)),
        Procedure::RmDir => Arguments::RmDir(dir_name(rng)),
        Procedure::Rename => Arguments::Rename(Rename { from: dir_name(rng), to: dir_name(rng) }),
        Procedure::Link => Arguments::Link(Link { file: file(rng), at: dir_name(rng) }),
        Procedure::ReadDir => {
            let (dir, cookie, verifier) = (file(rng), rng.next(), Verifier(rng.next()));
            Arguments::ReadDir(ReadDir { dir, cookie, verifier, count: rng.word() })
        }
        Procedure::ReadDirPlus => {
            let (dir, cookie, verifier) = (file(rng), rng.next(), Verifier(rng.next()));
            let (count, count_max) = (rng.word(), rng.word());
            Arguments::ReadDirPlus(ReadDirPlus { dir, cookie, verifier, count, count_max })
        }
        Procedure::FsStat => Arguments::FsStat(file(rng)),
        Procedure::FsInfo => Arguments::FsInfo(file(rng)),
        Procedure::PathConf => Arguments::PathConf(file(rng)),
        Procedure::Commit => {
            Arguments::Commit(Commit { file: file(rng), offset: rng.next(), count: rng.word() })
        }
    }
}

/// Arguments with this data item, unreduced or reduced.
pub(super) fn with_argument(
    procedure: Procedure,
    item: Item<'static>,
    rng: &mut Rng,
) -> Arguments<'static> {
    if procedure == Procedure::Symlink {
        let (at, attributes) = (dir_name(rng), set_attributes(rng));
        return Arguments::Symlink(Symlink { at, attributes, path: Path(item) });
    }
    let (file, offset, count, stable) = (file(rng), rng.next(), rng.word(), rng.of(Stable::ALL));
    Arguments::Write(Write { file, offset, count, stable, data: Data(item) })
}

pub(super) fn results<'m>(
    procedure: Procedure,
    rng: &mut Rng,
    memory: &'m mut [u8],
) -> Results<'m> {
    match procedure {
        Procedure::Null => Results::Null,
        Procedure::GetAttr => Results::GetAttr(outcome(rng, attributes, |_| ())),
        Procedure::SetAttr => Results::SetAttr(outcome(rng, wcc, wcc)),
        Procedure::Lookup => {
            let found = |rng: &mut _| Found {
                file: file(rng),
                attributes: post_op(rng),
                dir: post_op(rng),
            };
            Results::Lookup(outcome(rng, found, post_op))
        }
        Procedure::Access => {
            let granted = |rng: &mut Rng| Granted { attributes: post_op(rng), rights: rng.word() };
            Results::Access(outcome(rng, granted, post_op))
        }
        Procedure::ReadLink | Procedure::Read => {
            let failure = Failure { status: Status::Io, rest: post_op(rng) };
            match (rng.flip(), procedure) {
                (true, _) => with_result(procedure, Item::Unreduced(rng.octets(4096))),
                (false, Procedure::Read) => Results::Read(Err(failure)),
                (false, _) => Results::ReadLink(Err(failure)),
            }
        }
        Procedure::Write => Results::Write(outcome(rng, written, wcc)),
        Procedure::Create => Results::Create(outcome(rng, made, wcc)),
        Procedure::MkDir => Results::MkDir(outcome(rng, made, wcc)),
        Procedure::Symlink => Results::Symlink(outcome(rng, made, wcc)),
        Procedure::MkNod => Results::MkNod(outcome(rng, made, wcc)),
        Procedure::Remove => Results::Remove(outcome(rng, wcc, wcc)),
        Procedure::RmDir => Results::RmDir(outcome(rng, wcc, wcc)),
        Procedure::Rename => Results::Rename(outcome(rng, renamed, renamed)),
        Procedure::Link => Results::Link(outcome(rng, linked, linked)),
        Procedure::ReadDir => {
            let (dir, verifier, eof) = (post_op(rng), Verifier(rng.next()), rng.flip());
            let names = names(rng, memory);
            Results::ReadDir(outcome(rng, |_| Listing { dir, verifier, names, eof }, post_op))
        }
        Procedure::ReadDirPlus => {
            let (dir, verifier, eof) = (post_op(rng), Verifier(rng.next()), rng.flip());
            let names = names_plus(rng, memory);
            let listing = |_: &mut _| ListingPlus { dir, verifier, names, eof };
            Results::ReadDirPlus(outcome(rng, listing, post_op))
        }
        Procedure::FsStat => Results::FsStat(outcome(rng, fs_stat, post_op)),
        Procedure::FsInfo => Results::FsInfo(outcome(rng, fs_info, post_op)),
        Procedure::PathConf => Results::PathConf(outcome(rng, path_conf, post_op)),
        Procedure::Commit => Results::Commit(outcome(rng, committed, wcc)),
    }
}

/// Results with this data item, unreduced or reduced.
pub(super) fn with_result(procedure: Procedure, item: Item<'static>) -> Results<'static> {
    let attributes = Some(attributes(&mut Rng::new(6)));
    if procedure == Procedure::ReadLink {
        return Results::ReadLink(Ok(Target { attributes, path: Path(item) }));
    }
    let data = Data(item);
    Results::Read(Ok(Contents { attributes, count: 1, eof: false, data }))
}

/// The longest results a procedure can have, the DDP-eligible ones reduced.
pub(super) fn longest_results(procedure: Procedure) -> Results<'static> {
    let rng = &mut Rng::new(7);
    let known = attributes(rng);
    let (attributes, file) = (Some(known), FileHandle::new(&[9; HANDLE_MAX]).unwrap());
    let wcc = Wcc { before: Some(known.wcc()), after: attributes };
    let made = Ok(Made { file: Some(file), attributes, dir: wcc });
    match procedure {
        Procedure::Null => Results::Null,
        Procedure::GetAttr => Results::GetAttr(Ok(known)),
        Procedure::SetAttr => Results::SetAttr(Ok(wcc)),
        Procedure::Lookup => Results::Lookup(Ok(Found { file, attributes, dir: attributes })),
        Procedure::Access => Results::Access(Ok(Granted { attributes, rights: 1 })),
        Procedure::ReadLink | Procedure::Read => {
            with_result(procedure, Item::Reduced { length: 1 })
        }
        Procedure::Write => Results::Write(Ok(Written { file: wcc, ..written(rng) })),
        Procedure::Create => Results::Create(made),
        Procedure::MkDir => Results::MkDir(made),
        Procedure::Symlink => Results::Symlink(made),
        Procedure::MkNod => Results::MkNod(made),
        Procedure::Remove => Results::Remove(Ok(wcc)),
        Procedure::RmDir => Results::RmDir(Ok(wcc)),
        Procedure::Rename => Results::Rename(Ok(Renamed { from: wcc, to: wcc })),
        Procedure::Link => Results::Link(Ok(Linked { attributes, dir: wcc })),
        Procedure::ReadDir | Procedure::ReadDirPlus => unreachable!("the caller bounds these"),
        Procedure::FsStat => Results::FsStat(Ok(FsStat { attributes, ..fs_stat(rng) })),
        Procedure::FsInfo => Results::FsInfo(Ok(FsInfo { attributes, ..fs_info(rng) })),
        Procedure::PathConf => Results::PathConf(Ok(PathConf { attributes, ..path_conf(rng) })),
        Procedure::Commit => Results::Commit(Ok(Committed { file: wcc, ..committed(rng) })),
    }
}

fn outcome<T, F>(
    rng: &mut Rng,
    done: impl FnOnce(&mut Rng) -> T,
    failed: impl FnOnce(&mut Rng) -> F,
) -> Outcome<T, F> {
    match rng.of(Status::ALL) {
        status if status != Status::Ok && rng.flip() => Err(Failure { status, rest: failed(rng) }),
        _ => Ok(done(rng)),
    }
}

fn names<'m>(rng: &mut Rng, memory: &'m mut [u8]) -> Names<'m> {
    if rng.below(8) == 0 {
        return List::EMPTY;
    }
    let mut w = ListWriter::new(memory);
    while w.push(&entry(rng)) && rng.below(16) > 0 {}
    w.finish()
}

fn names_plus<'m>(rng: &mut Rng, memory: &'m mut [u8]) -> NamesPlus<'m> {
    let mut w = NamesPlusWriter::new(memory, rng.below(1000));
    let mut more = true;
    while more {
        let (attributes, file) = (post_op(rng), maybe(rng, file));
        more = w.push(&EntryPlus { entry: entry(rng), attributes, file });
    }
    w.finish()
}

fn entry(rng: &mut Rng) -> Entry<'static> {
    Entry { fileid: rng.next(), name: Name(rng.octets(255)), cookie: rng.next() }
}

fn written(rng: &mut Rng) -> Written {
    let (file, committed) = (wcc(rng), rng.of(Stable::ALL));
    Written { file, count: rng.word(), committed, verifier: Verifier(rng.next()) }
}

fn committed(rng: &mut Rng) -> Committed {
    Committed { file: wcc(rng), verifier: Verifier(rng.next()) }
}

fn fs_stat(rng: &mut Rng) -> FsStat {
    FsStat {
        attributes: post_op(rng),
        total_bytes: rng.next(),
        free_bytes: rng.next(),
        available_bytes: rng.next(),
        total_files: rng.next(),
        free_files: rng.next(),
        available_files: rng.next(),
        invariant_seconds: rng.word(),
    }
}

fn fs_info(rng: &mut Rng) -> FsInfo {
    FsInfo {
        attributes: post_op(rng),
        read_max: rng.word(),
        read_preferred: rng.word(),
        read_multiple: rng.word(),
        write_max: rng.word(),
        write_preferred: rng.word(),
        write_multiple: rng.word(),
        readdir_preferred: rng.word(),
        file_max: rng.next(),
        time_delta: time(rng),
        abilities: rng.word(),
    }
}

fn path_conf(rng: &mut Rng) -> PathConf {
    PathConf {
        attributes: post_op(rng),
        links_max: rng.word(),
        name_max: rng.word(),
        no_trunc: rng.flip(),
        chown_restricted: rng.flip(),
        case_insensitive: rng.flip(),
        case_preserving: rng.flip(),
    }
}

fn made(rng: &mut Rng) -> Made<'static> {
    Made { file: maybe(rng, file), attributes: post_op(rng), dir: wcc(rng) }
}

fn renamed(rng: &mut Rng) -> Renamed {
    Renamed { from: wcc(rng), to: wcc(rng) }
}

fn linked(rng: &mut Rng) -> Linked {
    Linked { attributes: post_op(rng), dir: wcc(rng) }
}

fn wcc(rng: &mut Rng) -> Wcc {
    Wcc { before: maybe(rng, |rng| attributes(rng).wcc()), after: post_op(rng) }
}

fn post_op(rng: &mut Rng) -> Option<Attributes> {
    maybe(rng, attributes)
}

fn attributes(rng: &mut Rng) -> Attributes {
    Attributes {
        kind: rng.of(FileType::ALL),
        mode: rng.word(),
        links: rng.word(),
        uid: rng.word(),
        gid: rng.word(),
        size: rng.next(),
        used: rng.next(),
        device: device(rng),
        fsid: rng.next(),
        fileid: rng.next(),
        atime: time(rng),
        mtime: time(rng),
        ctime: time(rng),
    }
}

fn set_attributes(rng: &mut Rng) -> SetAttributes {
    SetAttributes {
        mode: maybe(rng, Rng::word),
        uid: maybe(rng, Rng::word),
        gid: maybe(rng, Rng::word),
        size: maybe(rng, Rng::next),
        atime: set_time(rng),
        mtime: set_time(rng),
    }
}

fn set_time(rng: &mut Rng) -> SetTime {
    let time = time(rng);
    rng.of(&[SetTime::Keep, SetTime::ToServer, SetTime::To(time)])
}

fn maybe<T>(rng: &mut Rng, value: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    rng.flip().then(|| value(rng))
}

fn time(rng: &mut Rng) -> Time {
    Time { seconds: rng.word(), nanoseconds: rng.word() }
}

fn device(rng: &mut Rng) -> Device {
    Device { major: rng.word(), minor: rng.word() }
}

fn dir_name(rng: &mut Rng) -> DirName<'static> {
    DirName { dir: file(rng), name: Name(rng.octets(300)) }
}

fn file(rng: &mut Rng) -> FileHandle<'static> {
    FileHandle::new(rng.octets(HANDLE_MAX)).unwrap()
}
