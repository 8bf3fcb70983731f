//! The arguments of each procedure (RFC 1813 section 3.3).

use haulage_proto::chunk::PayloadReader;
use haulage_proto::xdr::{Truncated, Writer};

use super::attributes::SetAttributes;
use super::basic::{Data, Device, DirName, FileHandle, FileType, Path, Time, Verifier};
use super::procedure::Procedure;
use crate::codec::{Malformed, Wire, numbers, record, unknown, whole};

/// The arguments of one Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments<'a> {
    /// Of NULL.
    Null,
    /// Of GETATTR.
    GetAttr(FileHandle<'a>),
    /// Of SETATTR.
    SetAttr(SetAttr<'a>),
    /// Of LOOKUP.
    Lookup(DirName<'a>),
    /// Of ACCESS.
    Access(Access<'a>),
    /// Of READLINK.
    ReadLink(FileHandle<'a>),
    /// Of READ.
    Read(Read<'a>),
    /// Of WRITE.
    Write(Write<'a>),
    /// Of CREATE.
    Create(Create<'a>),
    /// Of MKDIR.
    MkDir(MkDir<'a>),
    /// Of SYMLINK.
    Symlink(Symlink<'a>),
    /// Of MKNOD.
    MkNod(MkNod<'a>),
    /// Of REMOVE.
    Remove(DirName<'a>),
    /// Of RMDIR.
    RmDir(DirName<'a>),
    /// Of RENAME.
    Rename(Rename<'a>),
    /// Of LINK.
    Link(Link<'a>),
    /// Of READDIR.
    ReadDir(ReadDir<'a>),
    /// Of READDIRPLUS.
    ReadDirPlus(ReadDirPlus<'a>),
    /// Of FSSTAT.
    FsStat(FileHandle<'a>),
    /// Of FSINFO.
    FsInfo(FileHandle<'a>),
    /// Of PATHCONF.
    PathConf(FileHandle<'a>),
    /// Of COMMIT.
    Commit(Commit<'a>),
}

impl<'a> Arguments<'a> {
    /// Parses the arguments of a procedure, which are all that is left of the stream.
    pub fn decode(procedure: Procedure, r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        whole(r, |r| {
            Ok(match procedure {
                Procedure::Null => Self::Null,
                Procedure::GetAttr => Self::GetAttr(Wire::decode(r)?),
                Procedure::SetAttr => Self::SetAttr(Wire::decode(r)?),
                Procedure::Lookup => Self::Lookup(Wire::decode(r)?),
                Procedure::Access => Self::Access(Wire::decode(r)?),
                Procedure::ReadLink => Self::ReadLink(Wire::decode(r)?),
                Procedure::Read => Self::Read(Wire::decode(r)?),
                Procedure::Write => Self::Write(Wire::decode(r)?),
                Procedure::Create => Self::Create(Wire::decode(r)?),
                Procedure::MkDir => Self::MkDir(Wire::decode(r)?),
                Procedure::Symlink => Self::Symlink(Wire::decode(r)?),
                Procedure::MkNod => Self::MkNod(Wire::decode(r)?),
                Procedure::Remove => Self::Remove(Wire::decode(r)?),
                Procedure::RmDir => Self::RmDir(Wire::decode(r)?),
                Procedure::Rename => Self::Rename(Wire::decode(r)?),
                Procedure::Link => Self::Link(Wire::decode(r)?),
                Procedure::ReadDir => Self::ReadDir(Wire::decode(r)?),
                Procedure::ReadDirPlus => Self::ReadDirPlus(Wire::decode(r)?),
                Procedure::FsStat => Self::FsStat(Wire::decode(r)?),
                Procedure::FsInfo => Self::FsInfo(Wire::decode(r)?),
                Procedure::PathConf => Self::PathConf(Wire::decode(r)?),
                Procedure::Commit => Self::Commit(Wire::decode(r)?),
            })
        })
    }

    /// Appends the arguments to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Null => Ok(()),
            Self::GetAttr(file)
            | Self::ReadLink(file)
            | Self::FsStat(file)
            | Self::FsInfo(file)
            | Self::PathConf(file) => file.encode(w),
            Self::Lookup(name) | Self::Remove(name) | Self::RmDir(name) => name.encode(w),
            Self::SetAttr(arguments) => arguments.encode(w),
            Self::Access(arguments) => arguments.encode(w),
            Self::Read(arguments) => arguments.encode(w),
            Self::Write(arguments) => arguments.encode(w),
            Self::Create(arguments) => arguments.encode(w),
            Self::MkDir(arguments) => arguments.encode(w),
            Self::Symlink(arguments) => arguments.encode(w),
            Self::MkNod(arguments) => arguments.encode(w),
            Self::Rename(arguments) => arguments.encode(w),
            Self::Link(arguments) => arguments.encode(w),
            Self::ReadDir(arguments) => arguments.encode(w),
            Self::ReadDirPlus(arguments) => arguments.encode(w),
            Self::Commit(arguments) => arguments.encode(w),
        }
    }

    /// Returns the files that they name.
    pub const fn files(&self) -> [Option<FileHandle<'a>>; 2] {
        match self {
            Self::Null => [None, None],
            Self::GetAttr(file)
            | Self::ReadLink(file)
            | Self::FsStat(file)
            | Self::FsInfo(file)
            | Self::PathConf(file) => [Some(*file), None],
            Self::Lookup(at) | Self::Remove(at) | Self::RmDir(at) => [Some(at.dir), None],
            Self::SetAttr(SetAttr { file, .. })
            | Self::Access(Access { file, .. })
            | Self::Read(Read { file, .. })
            | Self::Write(Write { file, .. })
            | Self::Commit(Commit { file, .. }) => [Some(*file), None],
            Self::Create(Create { at, .. })
            | Self::MkDir(MkDir { at, .. })
            | Self::Symlink(Symlink { at, .. })
            | Self::MkNod(MkNod { at, .. }) => [Some(at.dir), None],
            Self::ReadDir(ReadDir { dir, .. }) | Self::ReadDirPlus(ReadDirPlus { dir, .. }) => {
                [Some(*dir), None]
            }
            Self::Rename(Rename { from, to }) => [Some(from.dir), Some(to.dir)],
            Self::Link(Link { file, at }) => [Some(*file), Some(at.dir)],
        }
    }

    /// Returns whose arguments they are.
    pub const fn procedure(&self) -> Procedure {
        match self {
            Self::Null => Procedure::Null,
            Self::GetAttr(_) => Procedure::GetAttr,
            Self::SetAttr(_) => Procedure::SetAttr,
            Self::Lookup(_) => Procedure::Lookup,
            Self::Access(_) => Procedure::Access,
            Self::ReadLink(_) => Procedure::ReadLink,
            Self::Read(_) => Procedure::Read,
            Self::Write(_) => Procedure::Write,
            Self::Create(_) => Procedure::Create,
            Self::MkDir(_) => Procedure::MkDir,
            Self::Symlink(_) => Procedure::Symlink,
            Self::MkNod(_) => Procedure::MkNod,
            Self::Remove(_) => Procedure::Remove,
            Self::RmDir(_) => Procedure::RmDir,
            Self::Rename(_) => Procedure::Rename,
            Self::Link(_) => Procedure::Link,
            Self::ReadDir(_) => Procedure::ReadDir,
            Self::ReadDirPlus(_) => Procedure::ReadDirPlus,
            Self::FsStat(_) => Procedure::FsStat,
            Self::FsInfo(_) => Procedure::FsInfo,
            Self::PathConf(_) => Procedure::PathConf,
            Self::Commit(_) => Procedure::Commit,
        }
    }
}

record! {
    /// Of SETATTR.
    SetAttr<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// What to make of it.
        to: SetAttributes,
        /// The `ctime` it must have, or nothing is done.
        guard: Option<Time>,
    }
}

record! {
    /// Of ACCESS.
    Access<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// The rights asked about: bits of [`rights`](super::rights).
        rights: u32,
    }
}

record! {
    /// Of READ.
    Read<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// Where to start.
        offset: u64,
        /// How many octets are wanted.
        count: u32,
    }
}

record! {
    /// Of WRITE.
    Write<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// Where to start.
        offset: u64,
        /// How many octets are to be written.
        count: u32,
        /// How stable they must be.
        stable: Stable,
        /// The octets.
        data: Data<'a>,
    }
}

numbers! {
    /// How stable what is written must be, or is: `stable_how`.
    #[derive(PartialOrd, Ord)]
    Stable {
        /// It may be lost until it is committed.
        Unstable = 0,
        /// The data is on stable storage, and what is needed to find it.
        DataSync = 1,
        /// So is everything else about the file.
        FileSync = 2,
    }
}

record! {
    /// Of CREATE.
    Create<'a> {
        /// The name.
        at: DirName<'a>,
        /// What to do if it is taken, and what to make of the file.
        how: How,
    }
}

/// What to do if the name is taken, and what to make of the file: `createhow3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// The regular file that has the name is good too.
    Unchecked(SetAttributes),
    /// It must not be taken.
    Guarded(SetAttributes),
    /// It must not be taken but by the file that was made with this verifier.
    Exclusive(Verifier),
}

impl<'a> Wire<'a> for How {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        match r.u32()? {
            0 => SetAttributes::decode(r).map(Self::Unchecked),
            1 => SetAttributes::decode(r).map(Self::Guarded),
            2 => Verifier::decode(r).map(Self::Exclusive),
            value => Err(unknown(r, value)),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Unchecked(attributes) => {
                w.u32(0)?;
                attributes.encode(w)
            }
            Self::Guarded(attributes) => {
                w.u32(1)?;
                attributes.encode(w)
            }
            Self::Exclusive(verifier) => {
                w.u32(2)?;
                verifier.encode(w)
            }
        }
    }
}

record! {
    /// Of MKDIR.
    MkDir<'a> {
        /// The name.
        at: DirName<'a>,
        /// What to make of the directory.
        attributes: SetAttributes,
    }
}

/// Of SYMLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symlink<'a> {
    /// The name.
    pub at: DirName<'a>,
    /// What to make of the link.
    pub attributes: SetAttributes,
    /// What it holds. It may be longer than any path a server takes, so that the server can say so.
    pub path: Path<'a>,
}

impl<'a> Wire<'a> for Symlink<'a> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        let (at, attributes) = (Wire::decode(r)?, Wire::decode(r)?);
        // Bounded as data are, not as a path is.
        let Data(item) = Wire::decode(r)?;
        Ok(Self { at, attributes, path: Path(item) })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.at.encode(w)?;
        self.attributes.encode(w)?;
        self.path.encode(w)
    }
}

record! {
    /// Of MKNOD.
    MkNod<'a> {
        /// The name.
        at: DirName<'a>,
        /// What to make.
        what: Special,
    }
}

/// What MKNOD is to make: `mknoddata3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A character device.
    Character(SetAttributes, Device),
    /// A block device.
    Block(SetAttributes, Device),
    /// A socket.
    Socket(SetAttributes),
    /// A named pipe.
    Fifo(SetAttributes),
    /// What other procedures make: a regular file, a directory or a symbolic link.
    Ordinary(FileType),
}

impl<'a> Wire<'a> for Special {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(match FileType::decode(r)? {
            FileType::Character => Self::Character(Wire::decode(r)?, Wire::decode(r)?),
            FileType::Block => Self::Block(Wire::decode(r)?, Wire::decode(r)?),
            FileType::Socket => Self::Socket(Wire::decode(r)?),
            FileType::Fifo => Self::Fifo(Wire::decode(r)?),
            kind => Self::Ordinary(kind),
        })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.kind().encode(w)?;
        match self {
            Self::Character(attributes, device) | Self::Block(attributes, device) => {
                attributes.encode(w)?;
                device.encode(w)
            }
            Self::Socket(attributes) | Self::Fifo(attributes) => attributes.encode(w),
            Self::Ordinary(_) => Ok(()),
        }
    }
}

impl Special {
    /// Returns the kind of file it is.
    pub const fn kind(&self) -> FileType {
        match self {
            Self::Character(..) => FileType::Character,
            Self::Block(..) => FileType::Block,
            Self::Socket(_) => FileType::Socket,
            Self::Fifo(_) => FileType::Fifo,
            Self::Ordinary(kind) => *kind,
        }
    }
}

record! {
    /// Of RENAME.
    Rename<'a> {
        /// The name it has.
        from: DirName<'a>,
        /// The name it gets.
        to: DirName<'a>,
    }
}

record! {
    /// Of LINK.
    Link<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// The name it gets.
        at: DirName<'a>,
    }
}

record! {
    /// Of READDIR.
    ReadDir<'a> {
        /// The directory.
        dir: FileHandle<'a>,
        /// The last entry that is known; zero before the first.
        cookie: u64,
        /// What came with that entry; zero before the first.
        verifier: Verifier,
        /// Octets of results the caller takes.
        count: u32,
    }
}

record! {
    /// Of READDIRPLUS.
    ReadDirPlus<'a> {
        /// The directory.
        dir: FileHandle<'a>,
        /// The last entry that is known; zero before the first.
        cookie: u64,
        /// What came with that entry; zero before the first.
        verifier: Verifier,
        /// Octets of names, numbers and cookies the caller takes.
        count: u32,
        /// Octets of results the caller takes.
        count_max: u32,
    }
}

record! {
    /// Of COMMIT.
    Commit<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// Where to start.
        offset: u64,
        /// How many octets; zero is all that follow.
        count: u32,
    }
}
