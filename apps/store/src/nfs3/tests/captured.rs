//! Captured messages of Linux, decoded and encoded again.

use haulage_proto::chunk::Version;
use haulage_proto::rpc::{CallHeader, ReplyHeader};

use super::*;
use crate::nfs3::arguments::{Create, How, Stable};
use crate::nfs3::*;
use crate::testing::vectors;

#[test]
fn what_linux_sends_is_read_and_written_back_octet_for_octet() {
    let messages = messages();
    assert_eq!(messages.len(), 34);
    for message in &messages {
        let again = if message.is_call {
            written(|w| message.arguments().encode(w))
        } else {
            written(|w| message.results().encode(w))
        };
        assert_eq!(again, message.payload[message.at..], "{}", message.name);
    }
}

#[test]
fn calls_mean_what_tshark_says() {
    let root = FileHandle::new(&[1, 0, 1, 0, 0, 0, 0, 0]).unwrap();
    let at = DirName { dir: root, name: Name(b"small.txt") };
    look("LOOKUP call", |m| assert_eq!(m.arguments(), Arguments::Lookup(at)));
    let attributes = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
    let create = Create { at, how: How::Unchecked(attributes) };
    look("CREATE call", |m| assert_eq!(m.arguments(), Arguments::Create(create)));
    look("ACCESS call", |m| {
        let Arguments::Access(access) = m.arguments() else { panic!("{m:?}") };
        assert_eq!(access.rights, rights::ALL & !rights::EXECUTE);
    });
    look("READ call", |m| {
        let Arguments::Read(read) = m.arguments() else { panic!("{m:?}") };
        assert_eq!((read.file.bytes().len(), read.offset, read.count), (20, 0, 131_072));
    });
    look("COMMIT call", |m| {
        let Arguments::Commit(commit) = m.arguments() else { panic!("{m:?}") };
        assert_eq!((commit.offset, commit.count), (0, 0));
    });
    look("READDIRPLUS call", |m| {
        let Arguments::ReadDirPlus(list) = m.arguments() else { panic!("{m:?}") };
        assert_eq!((list.cookie, list.verifier), (0, Verifier(0)));
        assert_eq!((list.count, list.count_max), (65_536, 65_536));
    });
    look("RENAME call", |m| {
        let Arguments::Rename(rename) = m.arguments() else { panic!("{m:?}") };
        assert_eq!((rename.from, rename.to.name), (at, Name(b"small.txt")));
        assert_eq!(rename.to.dir.bytes().len(), 20);
    });
}

#[test]
fn writes_mean_the_same_inline_and_reduced() {
    look("WRITE call", |m| {
        let Arguments::Write(write) = m.arguments() else { panic!("{m:?}") };
        assert_eq!((write.offset, write.count, write.stable), (0, 6, Stable::FileSync));
        assert_eq!(write.data, Data(Item::Unreduced(b"hello\n")));
    });
    look("WRITE call reduced", |m| {
        let Arguments::Write(write) = m.arguments() else { panic!("{m:?}") };
        assert_eq!((write.offset, write.count, write.stable), (0, 262_144, Stable::Unstable));
        assert_eq!(write.data.length(), 262_144);
    });
    look("SYMLINK call reduced", |m| {
        let Arguments::Symlink(symlink) = m.arguments() else { panic!("{m:?}") };
        assert_eq!(symlink.path, Path(Item::Reduced { length: 4001 }));
        assert_eq!((symlink.at.name, symlink.attributes.mode), (Name(b"sl"), Some(0o777)));
    });
}

#[test]
fn replies_of_names_mean_what_tshark_says() {
    let later = Attributes { atime: LISTED, ..ROOT };
    look("GETATTR reply", |m| assert_eq!(m.results(), Results::GetAttr(Ok(ROOT))));
    look("LOOKUP reply", |m| {
        let failure = Failure { status: Status::NoEnt, rest: Some(later) };
        assert_eq!(m.results(), Results::Lookup(Err(failure)));
    });
    look("LOOKUP-found reply", |m| {
        let Results::Lookup(Ok(found)) = m.results() else { panic!("{m:?}") };
        assert_eq!(found.file.bytes().len(), 20);
        assert_eq!(found.attributes.map(|a| (a.size, a.fileid)), Some((524_288, 3)));
        assert_eq!(found.dir.map(|a| a.mode), Some(0o1777));
    });
    look("CREATE reply", |m| {
        let Results::Create(Ok(made)) = m.results() else { panic!("{m:?}") };
        assert_eq!(made.file.map(|file| file.bytes().len()), Some(20));
        assert_eq!(made.attributes.map(|a| (a.kind, a.fileid)), Some((FileType::Regular, 2)));
        assert_eq!(made.dir.before, Some(ROOT.wcc()));
        assert_eq!(made.dir.after.map(|after| after.size), Some(60));
    });
    look("READDIRPLUS reply", |m| {
        let Results::ReadDirPlus(Ok(listing)) = m.results() else { panic!("{m:?}") };
        let names = listing.names.iter().map(|plus| (plus.entry.name.0, plus.entry.cookie));
        assert_eq!(names.collect::<Vec<_>>(), [(&b"."[..], 1), (b"..", 2)]);
        let first = listing.names.iter().next().unwrap();
        assert_eq!((first.attributes, first.file.unwrap().bytes().len()), (Some(later), 8));
        assert_eq!((listing.eof, listing.dir), (true, Some(later)));
    });
}

#[test]
fn replies_of_data_and_limits_mean_what_tshark_says() {
    look("WRITE reply", |m| {
        let Results::Write(Ok(written)) = m.results() else { panic!("{m:?}") };
        assert_eq!((written.count, written.committed), (6, Stable::FileSync));
        assert_eq!((written.verifier, written.file.before), (Verifier(VERIFIER), None));
    });
    look("COMMIT reply", |m| {
        let Results::Commit(Ok(committed)) = m.results() else { panic!("{m:?}") };
        assert_eq!(committed.verifier, Verifier(VERIFIER));
    });
    look("READ reply", |m| {
        let Results::Read(Ok(contents)) = m.results() else { panic!("{m:?}") };
        assert_eq!((contents.count, contents.eof), (131_072, false));
        assert_eq!(contents.data, Data(Item::Reduced { length: 131_072 }));
    });
    look("FSINFO reply", |m| {
        let Results::FsInfo(Ok(info)) = m.results() else { panic!("{m:?}") };
        assert_eq!((info.read_max, info.read_multiple, info.write_max), (262_144, 4096, 262_144));
        assert_eq!((info.file_max, info.time_delta.seconds), (0x7fff_ffff_ffff_ffff, 1));
        let all = abilities::LINK | abilities::SYMLINK | abilities::HOMOGENEOUS;
        assert_eq!(info.abilities, all | abilities::CAN_SET_TIME);
    });
    look("PATHCONF reply", |m| {
        let Results::PathConf(Ok(conf)) = m.results() else { panic!("{m:?}") };
        assert_eq!((conf.links_max, conf.name_max), (255, 255));
        let flags = [conf.no_trunc, conf.chown_restricted, conf.case_insensitive];
        assert_eq!((flags, conf.case_preserving), ([false, true, false], true));
    });
}

/// A captured RPC message.
#[derive(Debug)]
struct Message {
    name: String,
    payload: Vec<u8>,
    procedure: Procedure,
    /// The offset of the arguments or results.
    at: usize,
    /// The position and length of the reduced item.
    reduced: Option<(u32, u32)>,
    is_call: bool,
}

impl Message {
    fn arguments(&self) -> Arguments<'_> {
        let chunk = self.reduced.map(|(position, length)| (position, u64::from(length)));
        let mut r = PayloadReader::call(&self.payload, self.at, chunk).of_version(Version::One);
        Arguments::decode(self.procedure, &mut r).unwrap()
    }

    fn results(&self) -> Results<'_> {
        let written = self.reduced.map(|(_, length)| length);
        let mut r = PayloadReader::reply(&self.payload, self.at, written).of_version(Version::One);
        Results::decode(self.procedure, &mut r).unwrap()
    }
}

fn messages() -> Vec<Message> {
    let mut procedure = Procedure::Null;
    let mut parsed = Vec::new();
    for (name, payload) in vectors(include_str!("../../../vectors/nfs3.hex")) {
        let is_call = name.contains(" call");
        let at = if is_call {
            let (header, at) = CallHeader::decode(&payload).unwrap();
            assert_eq!((header.program, header.version), (PROGRAM, VERSION));
            procedure = Procedure::from_number(header.procedure).unwrap();
            at
        } else {
            // Each Reply stands behind its Call.
            ReplyHeader::decode(&payload).unwrap().1
        };
        let mut words = name.split(' ').skip_while(|word| *word != "reduced").skip(1);
        let mut number = || words.next().map(|word| word.parse().unwrap());
        let reduced = number().zip(number());
        parsed.push(Message { name, payload, procedure, at, reduced, is_call });
    }
    parsed
}

/// Returns the first message whose name has this prefix.
fn look(name: &str, look: impl FnOnce(&Message)) {
    look(messages().iter().find(|m| m.name.starts_with(name)).expect("it was captured"));
}

const ROOT: Attributes = Attributes {
    kind: FileType::Directory,
    mode: 0o1777,
    links: 2,
    uid: 0,
    gid: 0,
    size: 40,
    used: 0,
    device: Device { major: 0, minor: 0 },
    fsid: 0,
    fileid: 1,
    atime: MOUNTED,
    mtime: MOUNTED,
    ctime: MOUNTED,
};
const MOUNTED: Time = Time { seconds: 1_795_224_765, nanoseconds: 400_000_000 };
const LISTED: Time = Time { seconds: 1_795_224_774, nanoseconds: 876_000_000 };
const VERIFIER: u64 = 0x7c99_9798_02ab_5c95;
