//! The arguments of each procedure (RFC 1813 section 3.3).

use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::xdr::{Truncated, Writer};

use super::attributes::SetAttributes;
use super::basic::{Data, Device, DirName, FileHandle, FileType, Path, Time, Verifier};
use super::procedure::Procedure;
use crate::codec::{Malformed, Wire, numbers, record, unknown, whole};

/// The arguments of one Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments<'a> {
    /// Arguments of NULL.
    Null,
    /// Arguments of GETATTR.
    GetAttr(FileHandle<'a>),
    /// Arguments of SETATTR.
    SetAttr(SetAttr<'a>),
    /// Arguments of LOOKUP.
    Lookup(DirName<'a>),
    /// Arguments of ACCESS.
    Access(Access<'a>),
    /// Arguments of READLINK.
    ReadLink(FileHandle<'a>),
    /// Arguments of READ.
    Read(Read<'a>),
    /// Arguments of WRITE.
    Write(Write<'a>),
    /// Arguments of CREATE.
    Create(Create<'a>),
    /// Arguments of MKDIR.
    MkDir(MkDir<'a>),
    /// Arguments of SYMLINK.
    Symlink(Symlink<'a>),
    /// Arguments of MKNOD.
    MkNod(MkNod<'a>),
    /// Arguments of REMOVE.
    Remove(DirName<'a>),
    /// Arguments of RMDIR.
    RmDir(DirName<'a>),
    /// Arguments of RENAME.
    Rename(Rename<'a>),
    /// Arguments of LINK.
    Link(Link<'a>),
    /// Arguments of READDIR.
    ReadDir(ReadDir<'a>),
    /// Arguments of READDIRPLUS.
    ReadDirPlus(ReadDirPlus<'a>),
    /// Arguments of FSSTAT.
    FsStat(FileHandle<'a>),
    /// Arguments of FSINFO.
    FsInfo(FileHandle<'a>),
    /// Arguments of PATHCONF.
    PathConf(FileHandle<'a>),
    /// Arguments of COMMIT.
    Commit(Commit<'a>),
}

impl<'a> Arguments<'a> {
    /// Decodes the arguments of a procedure, which must take the rest of the stream.
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

    /// Returns the names that the Call looks up.
    pub const fn names(&self) -> [Option<DirName<'a>>; 2] {
        match self {
            Self::Lookup(at)
            | Self::Remove(at)
            | Self::RmDir(at)
            | Self::Create(Create { at, .. })
            | Self::MkDir(MkDir { at, .. })
            | Self::Symlink(Symlink { at, .. })
            | Self::MkNod(MkNod { at, .. })
            | Self::Link(Link { at, .. }) => [Some(*at), None],
            Self::Rename(Rename { from, to }) => [Some(*from), Some(*to)],
            _ => [None, None],
        }
    }

    /// Returns the file handles in the arguments.
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

    /// Returns the data item, the last of the arguments, if they have one.
    pub const fn item(&self) -> Option<Item<'a>> {
        match self {
            Self::Write(Write { data, .. }) => Some(data.0),
            Self::Symlink(Symlink { path, .. }) => Some(path.0),
            _ => None,
        }
    }

    /// Returns the procedure of the arguments.
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
    /// Arguments of SETATTR.
    SetAttr<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// The attributes to set.
        to: SetAttributes,
        /// If present, the `ctime` that the file must have; otherwise nothing changes.
        guard: Option<Time>,
    }
}

record! {
    /// Arguments of ACCESS.
    Access<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// The rights asked about: bits of [`rights`](super::rights).
        rights: u32,
    }
}

record! {
    /// Arguments of READ.
    Read<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// The offset in the file.
        offset: u64,
        /// The number of octets wanted.
        count: u32,
    }
}

record! {
    /// Arguments of WRITE.
    Write<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// The offset in the file.
        offset: u64,
        /// The number of octets to write.
        count: u32,
        /// How stable the octets must be before the Reply.
        stable: Stable,
        /// The octets.
        data: Data<'a>,
    }
}

numbers! {
    /// The stability of written octets: `stable_how`.
    #[derive(PartialOrd, Ord)]
    Stable {
        /// The octets may be lost until they are committed.
        Unstable = 0,
        /// The octets, and the metadata needed to read them, are on stable storage.
        DataSync = 1,
        /// The octets and all attributes of the file are on stable storage.
        FileSync = 2,
    }
}

record! {
    /// Arguments of CREATE.
    Create<'a> {
        /// The name.
        at: DirName<'a>,
        /// The handling of an existing file, and the attributes of the new one.
        how: How,
    }
}

/// The handling of an existing file, and the attributes of the new one: `createhow3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// An existing regular file is used.
    Unchecked(SetAttributes),
    /// The name must be free.
    Guarded(SetAttributes),
    /// The name must be free, or belong to a file that was created with this verifier.
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
    /// Arguments of MKDIR.
    MkDir<'a> {
        /// The name.
        at: DirName<'a>,
        /// The attributes of the new directory.
        attributes: SetAttributes,
    }
}

/// Arguments of SYMLINK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symlink<'a> {
    /// The name.
    pub at: DirName<'a>,
    /// The attributes of the new link.
    pub attributes: SetAttributes,
    /// The path in the link. It may be longer than a server accepts, so that the server can answer with a status.
    pub path: Path<'a>,
}

impl<'a> Wire<'a> for Symlink<'a> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        let (at, attributes) = (Wire::decode(r)?, Wire::decode(r)?);
        // The bound is that of data, not of a path.
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
    /// Arguments of MKNOD.
    MkNod<'a> {
        /// The name.
        at: DirName<'a>,
        /// The kind of file to create.
        what: Special,
    }
}

/// The kind of file that MKNOD creates: `mknoddata3`.
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
    /// A kind that other procedures create: a regular file, a directory or a symbolic link.
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
    /// Returns the file type.
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
    /// Arguments of RENAME.
    Rename<'a> {
        /// The name it has.
        from: DirName<'a>,
        /// The name it gets.
        to: DirName<'a>,
    }
}

record! {
    /// Arguments of LINK.
    Link<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// The name it gets.
        at: DirName<'a>,
    }
}

record! {
    /// Arguments of READDIR.
    ReadDir<'a> {
        /// The directory.
        dir: FileHandle<'a>,
        /// The cookie of the last known entry; zero before the first.
        cookie: u64,
        /// The verifier that came with that entry; zero before the first.
        verifier: Verifier,
        /// Maximum octets of results.
        count: u32,
    }
}

record! {
    /// Arguments of READDIRPLUS.
    ReadDirPlus<'a> {
        /// The directory.
        dir: FileHandle<'a>,
        /// The cookie of the last known entry; zero before the first.
        cookie: u64,
        /// The verifier that came with that entry; zero before the first.
        verifier: Verifier,
        /// Maximum octets of names, file numbers and cookies.
        count: u32,
        /// Maximum octets of results.
        count_max: u32,
    }
}

record! {
    /// Arguments of COMMIT.
    Commit<'a> {
        /// The file.
        file: FileHandle<'a>,
        /// The offset in the file.
        offset: u64,
        /// The number of octets; zero means up to the end of the file.
        count: u32,
    }
}
