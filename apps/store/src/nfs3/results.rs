//! The results of each procedure (RFC 1813 section 3.3).

use haulage_proto::chunk::PayloadReader;
use haulage_proto::xdr::{Truncated, Writer};

use super::arguments::Stable;
use super::attributes::{Attributes, Wcc};
use super::basic::{Data, FileHandle, Path, Time, Verifier};
use super::listing::{Names, NamesPlus};
use super::procedure::{Procedure, Status};
use crate::codec::{Malformed, Wire, record, whole};

/// The results of one Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// Of NULL.
    Null,
    /// Of GETATTR.
    GetAttr(Outcome<Attributes, ()>),
    /// Of SETATTR.
    SetAttr(Outcome<Wcc, Wcc>),
    /// Of LOOKUP.
    Lookup(Outcome<Found<'a>, Option<Attributes>>),
    /// Of ACCESS.
    Access(Outcome<Granted, Option<Attributes>>),
    /// Of READLINK.
    ReadLink(Outcome<Target<'a>, Option<Attributes>>),
    /// Of READ.
    Read(Outcome<Contents<'a>, Option<Attributes>>),
    /// Of WRITE.
    Write(Outcome<Written, Wcc>),
    /// Of CREATE.
    Create(Outcome<Made<'a>, Wcc>),
    /// Of MKDIR.
    MkDir(Outcome<Made<'a>, Wcc>),
    /// Of SYMLINK.
    Symlink(Outcome<Made<'a>, Wcc>),
    /// Of MKNOD.
    MkNod(Outcome<Made<'a>, Wcc>),
    /// Of REMOVE.
    Remove(Outcome<Wcc, Wcc>),
    /// Of RMDIR.
    RmDir(Outcome<Wcc, Wcc>),
    /// Of RENAME.
    Rename(Outcome<Renamed, Renamed>),
    /// Of LINK.
    Link(Outcome<Linked, Linked>),
    /// Of READDIR.
    ReadDir(Outcome<Listing<'a>, Option<Attributes>>),
    /// Of READDIRPLUS.
    ReadDirPlus(Outcome<ListingPlus<'a>, Option<Attributes>>),
    /// Of FSSTAT.
    FsStat(Outcome<FsStat, Option<Attributes>>),
    /// Of FSINFO.
    FsInfo(Outcome<FsInfo, Option<Attributes>>),
    /// Of PATHCONF.
    PathConf(Outcome<PathConf, Option<Attributes>>),
    /// Of COMMIT.
    Commit(Outcome<Committed, Wcc>),
}

/// What a procedure that was carried out returns, or what comes with the status of one that was not.
pub type Outcome<T, F> = Result<T, Failure<F>>;

/// Why a procedure was not carried out, and what is told nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<F> {
    /// Why not. Never [`Status::Ok`].
    pub status: Status,
    /// What is told nevertheless.
    pub rest: F,
}

impl<'a, T: Wire<'a>, F: Wire<'a>> Wire<'a> for Outcome<T, F> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(match Status::decode(r)? {
            Status::Ok => Ok(T::decode(r)?),
            status => Err(Failure { status, rest: F::decode(r)? }),
        })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Ok(done) => {
                Status::Ok.encode(w)?;
                done.encode(w)
            }
            Err(failure) => {
                failure.status.encode(w)?;
                failure.rest.encode(w)
            }
        }
    }
}

impl<'a> Results<'a> {
    /// Parses the results of a procedure, which are all that is left of the stream.
    pub fn decode(procedure: Procedure, r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        whole(r, |r| {
            Ok(match procedure {
                Procedure::Null => Self::Null,
                Procedure::GetAttr => Self::GetAttr(Wire::decode(r)?),
                Procedure::SetAttr => Self::SetAttr(Wire::decode(r)?),
                Procedure::Lookup => Self::Lookup(Wire::decode(r)?),
                Procedure::Access => Self::Access(Wire::decode(r)?),
                Procedure::ReadLink => Self::ReadLink(with_item(r)?),
                Procedure::Read => Self::Read(with_item(r)?),
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

    /// Appends the results to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Null => Ok(()),
            Self::GetAttr(outcome) => outcome.encode(w),
            Self::SetAttr(outcome) | Self::Remove(outcome) | Self::RmDir(outcome) => {
                outcome.encode(w)
            }
            Self::Lookup(outcome) => outcome.encode(w),
            Self::Access(outcome) => outcome.encode(w),
            Self::ReadLink(outcome) => outcome.encode(w),
            Self::Read(outcome) => outcome.encode(w),
            Self::Write(outcome) => outcome.encode(w),
            Self::Create(outcome)
            | Self::MkDir(outcome)
            | Self::Symlink(outcome)
            | Self::MkNod(outcome) => outcome.encode(w),
            Self::Rename(outcome) => outcome.encode(w),
            Self::Link(outcome) => outcome.encode(w),
            Self::ReadDir(outcome) => outcome.encode(w),
            Self::ReadDirPlus(outcome) => outcome.encode(w),
            Self::FsStat(outcome) => outcome.encode(w),
            Self::FsInfo(outcome) => outcome.encode(w),
            Self::PathConf(outcome) => outcome.encode(w),
            Self::Commit(outcome) => outcome.encode(w),
        }
    }

    /// Returns the results of a procedure that was not carried out, with nothing told but why not.
    /// NULL is always carried out.
    pub fn refusal(procedure: Procedure, status: Status) -> Self {
        fn failure<T, F: Default>(status: Status) -> Outcome<T, F> {
            Err(Failure { status, rest: F::default() })
        }
        match procedure {
            Procedure::Null => Self::Null,
            Procedure::GetAttr => Self::GetAttr(failure(status)),
            Procedure::SetAttr => Self::SetAttr(failure(status)),
            Procedure::Lookup => Self::Lookup(failure(status)),
            Procedure::Access => Self::Access(failure(status)),
            Procedure::ReadLink => Self::ReadLink(failure(status)),
            Procedure::Read => Self::Read(failure(status)),
            Procedure::Write => Self::Write(failure(status)),
            Procedure::Create => Self::Create(failure(status)),
            Procedure::MkDir => Self::MkDir(failure(status)),
            Procedure::Symlink => Self::Symlink(failure(status)),
            Procedure::MkNod => Self::MkNod(failure(status)),
            Procedure::Remove => Self::Remove(failure(status)),
            Procedure::RmDir => Self::RmDir(failure(status)),
            Procedure::Rename => Self::Rename(failure(status)),
            Procedure::Link => Self::Link(failure(status)),
            Procedure::ReadDir => Self::ReadDir(failure(status)),
            Procedure::ReadDirPlus => Self::ReadDirPlus(failure(status)),
            Procedure::FsStat => Self::FsStat(failure(status)),
            Procedure::FsInfo => Self::FsInfo(failure(status)),
            Procedure::PathConf => Self::PathConf(failure(status)),
            Procedure::Commit => Self::Commit(failure(status)),
        }
    }

    /// Returns how the procedure ended.
    pub fn status(&self) -> Status {
        fn of<T, F>(outcome: &Outcome<T, F>) -> Status {
            outcome.as_ref().err().map_or(Status::Ok, |failure| failure.status)
        }
        match self {
            Self::Null => Status::Ok,
            Self::GetAttr(outcome) => of(outcome),
            Self::SetAttr(outcome) | Self::Remove(outcome) | Self::RmDir(outcome) => of(outcome),
            Self::Lookup(outcome) => of(outcome),
            Self::Access(outcome) => of(outcome),
            Self::ReadLink(outcome) => of(outcome),
            Self::Read(outcome) => of(outcome),
            Self::Write(outcome) => of(outcome),
            Self::Create(outcome)
            | Self::MkDir(outcome)
            | Self::Symlink(outcome)
            | Self::MkNod(outcome) => of(outcome),
            Self::Rename(outcome) => of(outcome),
            Self::Link(outcome) => of(outcome),
            Self::ReadDir(outcome) => of(outcome),
            Self::ReadDirPlus(outcome) => of(outcome),
            Self::FsStat(outcome) => of(outcome),
            Self::FsInfo(outcome) => of(outcome),
            Self::PathConf(outcome) => of(outcome),
            Self::Commit(outcome) => of(outcome),
        }
    }
}

/// Takes the results of a procedure with a DDP-eligible one, which a failure leaves out.
fn with_item<'a, T: Wire<'a>, F: Wire<'a>>(
    r: &mut PayloadReader<'a>,
) -> Result<Outcome<T, F>, Malformed> {
    let outcome = Outcome::decode(r)?;
    if outcome.is_err() {
        r.absent()?;
    }
    Ok(outcome)
}

record! {
    /// Of LOOKUP.
    Found<'a> {
        /// The file that has the name.
        file: FileHandle<'a>,
        /// Its attributes.
        attributes: Option<Attributes>,
        /// Those of the directory.
        dir: Option<Attributes>,
    }
}

record! {
    /// Of ACCESS.
    Granted {
        /// The file's attributes.
        attributes: Option<Attributes>,
        /// Those of the rights asked about that the caller has.
        rights: u32,
    }
}

record! {
    /// Of READLINK.
    Target<'a> {
        /// The link's attributes.
        attributes: Option<Attributes>,
        /// What it holds.
        path: Path<'a>,
    }
}

record! {
    /// Of READ.
    Contents<'a> {
        /// The file's attributes.
        attributes: Option<Attributes>,
        /// How many octets were read.
        count: u32,
        /// Whether the file ends behind them.
        eof: bool,
        /// The octets.
        data: Data<'a>,
    }
}

record! {
    /// Of WRITE.
    Written {
        /// The file before and after.
        file: Wcc,
        /// How many octets were written.
        count: u32,
        /// How stable they are.
        committed: Stable,
        /// Changes when what was not stable may have been lost.
        verifier: Verifier,
    }
}

record! {
    /// Of CREATE, MKDIR, SYMLINK and MKNOD.
    Made<'a> {
        /// What was made.
        file: Option<FileHandle<'a>>,
        /// Its attributes.
        attributes: Option<Attributes>,
        /// The directory before and after.
        dir: Wcc,
    }
}

record! {
    /// Of RENAME.
    #[derive(Default)]
    Renamed {
        /// The directory the name was in, before and after.
        from: Wcc,
        /// The directory the name is in, before and after.
        to: Wcc,
    }
}

record! {
    /// Of LINK.
    #[derive(Default)]
    Linked {
        /// The file's attributes.
        attributes: Option<Attributes>,
        /// The directory before and after.
        dir: Wcc,
    }
}

record! {
    /// Of READDIR.
    Listing<'a> {
        /// The directory's attributes.
        dir: Option<Attributes>,
        /// What has to come with a cookie out of the list.
        verifier: Verifier,
        /// The names.
        names: Names<'a>,
        /// Whether these are the last.
        eof: bool,
    }
}

record! {
    /// Of READDIRPLUS.
    ListingPlus<'a> {
        /// The directory's attributes.
        dir: Option<Attributes>,
        /// What has to come with a cookie out of the list.
        verifier: Verifier,
        /// The names, and what they name.
        names: NamesPlus<'a>,
        /// Whether these are the last.
        eof: bool,
    }
}

record! {
    /// Of FSSTAT.
    FsStat {
        /// The attributes of the file that was named.
        attributes: Option<Attributes>,
        /// Octets of the file system.
        total_bytes: u64,
        /// Octets not in use.
        free_bytes: u64,
        /// Octets not in use that the caller may have.
        available_bytes: u64,
        /// How many files there can be.
        total_files: u64,
        /// How many more there can be.
        free_files: u64,
        /// How many of these the caller may make.
        available_files: u64,
        /// Seconds for which the file system is not expected to change.
        invariant_seconds: u32,
    }
}

record! {
    /// Of FSINFO.
    FsInfo {
        /// The attributes of the file that was named.
        attributes: Option<Attributes>,
        /// The largest READ.
        read_max: u32,
        /// The READ that is best.
        read_preferred: u32,
        /// What a READ is best a multiple of.
        read_multiple: u32,
        /// The largest WRITE.
        write_max: u32,
        /// The WRITE that is best.
        write_preferred: u32,
        /// What a WRITE is best a multiple of.
        write_multiple: u32,
        /// The READDIR that is best.
        readdir_preferred: u32,
        /// The length of the longest file.
        file_max: u64,
        /// How exact times are.
        time_delta: Time,
        /// What the file system can do: bits of [`abilities`](super::abilities).
        abilities: u32,
    }
}

record! {
    /// Of PATHCONF.
    PathConf {
        /// The attributes of the file that was named.
        attributes: Option<Attributes>,
        /// How many names a file can have.
        links_max: u32,
        /// Octets of the longest name.
        name_max: u32,
        /// Whether longer names are refused rather than cut.
        no_trunc: bool,
        /// Whether only the superuser may give files away.
        chown_restricted: bool,
        /// Whether names that differ in case only are the same.
        case_insensitive: bool,
        /// Whether the case of names is kept.
        case_preserving: bool,
    }
}

record! {
    /// Of COMMIT.
    Committed {
        /// The file before and after.
        file: Wcc,
        /// Changes when what was not stable may have been lost.
        verifier: Verifier,
    }
}
