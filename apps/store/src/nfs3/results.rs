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
    /// Results of NULL.
    Null,
    /// Results of GETATTR.
    GetAttr(Outcome<Attributes, ()>),
    /// Results of SETATTR.
    SetAttr(Outcome<Wcc, Wcc>),
    /// Results of LOOKUP.
    Lookup(Outcome<Found<'a>, Option<Attributes>>),
    /// Results of ACCESS.
    Access(Outcome<Granted, Option<Attributes>>),
    /// Results of READLINK.
    ReadLink(Outcome<Target<'a>, Option<Attributes>>),
    /// Results of READ.
    Read(Outcome<Contents<'a>, Option<Attributes>>),
    /// Results of WRITE.
    Write(Outcome<Written, Wcc>),
    /// Results of CREATE.
    Create(Outcome<Made<'a>, Wcc>),
    /// Results of MKDIR.
    MkDir(Outcome<Made<'a>, Wcc>),
    /// Results of SYMLINK.
    Symlink(Outcome<Made<'a>, Wcc>),
    /// Results of MKNOD.
    MkNod(Outcome<Made<'a>, Wcc>),
    /// Results of REMOVE.
    Remove(Outcome<Wcc, Wcc>),
    /// Results of RMDIR.
    RmDir(Outcome<Wcc, Wcc>),
    /// Results of RENAME.
    Rename(Outcome<Renamed, Renamed>),
    /// Results of LINK.
    Link(Outcome<Linked, Linked>),
    /// Results of READDIR.
    ReadDir(Outcome<Listing<'a>, Option<Attributes>>),
    /// Results of READDIRPLUS.
    ReadDirPlus(Outcome<ListingPlus<'a>, Option<Attributes>>),
    /// Results of FSSTAT.
    FsStat(Outcome<FsStat, Option<Attributes>>),
    /// Results of FSINFO.
    FsInfo(Outcome<FsInfo, Option<Attributes>>),
    /// Results of PATHCONF.
    PathConf(Outcome<PathConf, Option<Attributes>>),
    /// Results of COMMIT.
    Commit(Outcome<Committed, Wcc>),
}

/// The outcome of a procedure: its results, or a failure with its status.
pub type Outcome<T, F> = Result<T, Failure<F>>;

/// A failed procedure: the status, and the results that a failure has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure<F> {
    /// The status, never [`Status::Ok`].
    pub status: Status,
    /// The results that come with the failure, such as attributes.
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
    /// Decodes the results of a procedure, which must take the rest of the stream.
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

    /// Returns the results of a failed procedure with this status and no attributes. NULL never fails.
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

    /// Returns the status of the procedure.
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

/// Decodes the results of a procedure with a DDP-eligible item, which is absent on failure.
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
    /// Results of LOOKUP.
    Found<'a> {
        /// The file that has the name.
        file: FileHandle<'a>,
        /// The file's attributes.
        attributes: Option<Attributes>,
        /// The directory's attributes.
        dir: Option<Attributes>,
    }
}

record! {
    /// Results of ACCESS.
    Granted {
        /// The file's attributes.
        attributes: Option<Attributes>,
        /// The rights asked about that the caller has.
        rights: u32,
    }
}

record! {
    /// Results of READLINK.
    Target<'a> {
        /// The link's attributes.
        attributes: Option<Attributes>,
        /// The path in the link.
        path: Path<'a>,
    }
}

record! {
    /// Results of READ.
    Contents<'a> {
        /// The file's attributes.
        attributes: Option<Attributes>,
        /// The number of octets read.
        count: u32,
        /// Whether the file ends after the octets.
        eof: bool,
        /// The octets.
        data: Data<'a>,
    }
}

record! {
    /// Results of WRITE.
    Written {
        /// The file before and after.
        file: Wcc,
        /// The number of octets written.
        count: u32,
        /// How stable the written octets are.
        committed: Stable,
        /// The write verifier, which changes when unstable octets may have been lost.
        verifier: Verifier,
    }
}

record! {
    /// Results of CREATE, MKDIR, SYMLINK and MKNOD.
    Made<'a> {
        /// The handle of the new file.
        file: Option<FileHandle<'a>>,
        /// Its attributes.
        attributes: Option<Attributes>,
        /// The directory before and after.
        dir: Wcc,
    }
}

record! {
    /// Results of RENAME.
    #[derive(Default)]
    Renamed {
        /// The directory the name was in, before and after.
        from: Wcc,
        /// The directory the name is in, before and after.
        to: Wcc,
    }
}

record! {
    /// Results of LINK.
    #[derive(Default)]
    Linked {
        /// The file's attributes.
        attributes: Option<Attributes>,
        /// The directory before and after.
        dir: Wcc,
    }
}

record! {
    /// Results of READDIR.
    Listing<'a> {
        /// The directory's attributes.
        dir: Option<Attributes>,
        /// The verifier for the cookies of the list.
        verifier: Verifier,
        /// The names.
        names: Names<'a>,
        /// Whether these are the last.
        eof: bool,
    }
}

record! {
    /// Results of READDIRPLUS.
    ListingPlus<'a> {
        /// The directory's attributes.
        dir: Option<Attributes>,
        /// The verifier for the cookies of the list.
        verifier: Verifier,
        /// The names, with attributes and handles.
        names: NamesPlus<'a>,
        /// Whether these are the last.
        eof: bool,
    }
}

record! {
    /// Results of FSSTAT.
    FsStat {
        /// The attributes of the file that was named.
        attributes: Option<Attributes>,
        /// Size of the file system, in octets.
        total_bytes: u64,
        /// Octets not in use.
        free_bytes: u64,
        /// Free octets available to the caller.
        available_bytes: u64,
        /// Total number of files, existing and free.
        total_files: u64,
        /// Number of files that can still be created.
        free_files: u64,
        /// Number of files that the caller may still create.
        available_files: u64,
        /// Seconds for which the file system is not expected to change.
        invariant_seconds: u32,
    }
}

record! {
    /// Results of FSINFO.
    FsInfo {
        /// The attributes of the file that was named.
        attributes: Option<Attributes>,
        /// Maximum size of a READ, in octets.
        read_max: u32,
        /// Preferred size of a READ, in octets.
        read_preferred: u32,
        /// The size of a READ should be a multiple of this.
        read_multiple: u32,
        /// Maximum size of a WRITE, in octets.
        write_max: u32,
        /// Preferred size of a WRITE, in octets.
        write_preferred: u32,
        /// The size of a WRITE should be a multiple of this.
        write_multiple: u32,
        /// Preferred size of a READDIR, in octets.
        readdir_preferred: u32,
        /// Maximum size of a file, in octets.
        file_max: u64,
        /// The resolution of timestamps.
        time_delta: Time,
        /// The abilities of the file system: bits of [`abilities`](super::abilities).
        abilities: u32,
    }
}

record! {
    /// Results of PATHCONF.
    PathConf {
        /// The attributes of the file that was named.
        attributes: Option<Attributes>,
        /// Maximum number of names of a file.
        links_max: u32,
        /// Maximum length of a name, in octets.
        name_max: u32,
        /// Whether longer names are refused rather than truncated.
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
    /// Results of COMMIT.
    Committed {
        /// The file before and after.
        file: Wcc,
        /// The write verifier, which changes when unstable octets may have been lost.
        verifier: Verifier,
    }
}
