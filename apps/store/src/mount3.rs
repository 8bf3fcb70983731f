//! MOUNT version 3 (RFC 1813 appendix I), by which a client obtains the root handle of an export.
//!
//! None of its items is DDP-eligible.

use std::fmt;

use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::{self, Binding};
use haulage_proto::xdr::{Truncated, Writer};

use crate::codec::{List, Malformed, Wire, numbers, record, whole};
use crate::nfs3::FileHandle;

/// The program number.
pub const PROGRAM: u32 = 100_005;
/// The program version.
pub const VERSION: u32 = 3;
/// Maximum length of a path, in octets: `MNTPATHLEN`.
pub const PATH_MAX: usize = 1024;
/// Maximum length of the name of a host or a group, in octets: `MNTNAMLEN`.
pub const NAME_MAX: usize = 255;

numbers! {
    /// A procedure of MOUNT.
    Procedure {
        /// Does nothing.
        Null = 0,
        /// Returns the file handle of a directory.
        Mnt = 1,
        /// Lists the mounts: hosts with their paths.
        Dump = 2,
        /// Removes one mount of the caller from the list.
        Umnt = 3,
        /// Removes all mounts of the caller from the list.
        UmntAll = 4,
        /// Lists the exports.
        Export = 5,
    }
}

numbers! {
    /// The status of MNT: `mountstat3`.
    Status {
        /// The file handle follows.
        Ok = 0,
        /// Only the superuser may mount.
        Perm = 1,
        /// There is no such directory.
        NoEnt = 2,
        /// The storage failed.
        Io = 5,
        /// The caller may not mount.
        Acces = 13,
        /// The path is not a directory.
        NotDir = 20,
        /// The path is invalid.
        Inval = 22,
        /// The path is too long.
        NameTooLong = 63,
        /// The server does not support the procedure.
        NotSupp = 10004,
        /// The server failed.
        ServerFault = 10006,
    }
}

/// Returns the binding of the program. Nothing in it is reduced.
pub fn binding() -> Binding {
    let bound = |procedure: &Procedure| {
        let (name, results_max) = match procedure {
            Procedure::Null => ("NULL", 0),
            Procedure::Mnt => ("MNT", MNT_MAX),
            Procedure::Dump => ("DUMP", LIST_MAX),
            Procedure::Umnt => ("UMNT", 0),
            Procedure::UmntAll => ("UMNTALL", 0),
            Procedure::Export => ("EXPORT", LIST_MAX),
        };
        rpc::Procedure::new(name).results_max(results_max).idempotent()
    };
    let procedures = Procedure::ALL.iter().map(bound).collect();
    Binding { program: PROGRAM, version: VERSION, procedures }
}

/// The most octets of the results of MNT: the status, a file handle, and a few flavors.
const MNT_MAX: u32 = 256;
/// The most octets of a list in the results of DUMP or EXPORT.
pub const LIST_MAX: u32 = 64 << 10;

/// The arguments of one Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arguments<'a> {
    /// Arguments of NULL.
    Null,
    /// Arguments of MNT.
    Mnt(Path<'a>),
    /// Arguments of DUMP.
    Dump,
    /// Arguments of UMNT.
    Umnt(Path<'a>),
    /// Arguments of UMNTALL.
    UmntAll,
    /// Arguments of EXPORT.
    Export,
}

impl<'a> Arguments<'a> {
    /// Decodes the arguments of a procedure, which must take the rest of the stream.
    pub fn decode(procedure: Procedure, r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        whole(r, |r| {
            Ok(match procedure {
                Procedure::Null => Self::Null,
                Procedure::Mnt => Self::Mnt(Wire::decode(r)?),
                Procedure::Dump => Self::Dump,
                Procedure::Umnt => Self::Umnt(Wire::decode(r)?),
                Procedure::UmntAll => Self::UmntAll,
                Procedure::Export => Self::Export,
            })
        })
    }

    /// Appends the arguments to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Mnt(path) | Self::Umnt(path) => path.encode(w),
            Self::Null | Self::Dump | Self::UmntAll | Self::Export => Ok(()),
        }
    }

    /// Returns the procedure of the arguments.
    pub const fn procedure(&self) -> Procedure {
        match self {
            Self::Null => Procedure::Null,
            Self::Mnt(_) => Procedure::Mnt,
            Self::Dump => Procedure::Dump,
            Self::Umnt(_) => Procedure::Umnt,
            Self::UmntAll => Procedure::UmntAll,
            Self::Export => Procedure::Export,
        }
    }
}

/// The results of one Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Results<'a> {
    /// Results of NULL, UMNT and UMNTALL.
    Nothing,
    /// Results of MNT.
    Mnt(Result<Mounted<'a>, Status>),
    /// Results of DUMP.
    Dump(List<'a, Mount<'a>>),
    /// Results of EXPORT.
    Export(List<'a, Export<'a>>),
}

impl<'a> Results<'a> {
    /// Decodes the results of a procedure, which must take the rest of the stream.
    pub fn decode(procedure: Procedure, r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        whole(r, |r| {
            Ok(match procedure {
                Procedure::Null | Procedure::Umnt | Procedure::UmntAll => Self::Nothing,
                Procedure::Mnt => Self::Mnt(match Status::decode(r)? {
                    Status::Ok => Ok(Wire::decode(r)?),
                    status => Err(status),
                }),
                Procedure::Dump => Self::Dump(Wire::decode(r)?),
                Procedure::Export => Self::Export(Wire::decode(r)?),
            })
        })
    }

    /// Appends the results to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Nothing => Ok(()),
            Self::Mnt(Ok(mounted)) => {
                Status::Ok.encode(w)?;
                mounted.encode(w)
            }
            Self::Mnt(Err(status)) => status.encode(w),
            Self::Dump(mounts) => mounts.encode(w),
            Self::Export(exports) => exports.encode(w),
        }
    }
}

record! {
    /// The results of a successful MNT: `mountres3_ok`.
    Mounted<'a> {
        /// The handle of the directory.
        root: FileHandle<'a>,
        /// The accepted authentication flavors, the preferred one first.
        flavors: Flavors<'a>,
    }
}

record! {
    /// A host and the path it mounted: `mountbody`.
    Mount<'a> {
        /// The host.
        host: Host<'a>,
        /// The path.
        path: Path<'a>,
    }
}

record! {
    /// An export, and the hosts that may mount it: `exportnode`.
    Export<'a> {
        /// The path of the export.
        path: Path<'a>,
        /// The hosts; all hosts, if the list is empty.
        hosts: List<'a, Host<'a>>,
    }
}

/// The path of a directory: `dirpath`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Path<'a>(pub &'a [u8]);

impl<'a> Wire<'a> for Path<'a> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(Self(r.opaque(PATH_MAX)?))
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.opaque(self.0)
    }
}

/// The name of a host or of a group of hosts: `name`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Host<'a>(pub &'a [u8]);

impl<'a> Wire<'a> for Host<'a> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(Self(r.opaque(NAME_MAX)?))
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.opaque(self.0)
    }
}

/// Numbers of authentication flavors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Flavors<'a>(&'a [[u8; 4]]);

impl<'a> Flavors<'a> {
    /// AUTH_SYS, and nothing else.
    pub const SYS: Self = Self(&[[0, 0, 0, 1]]);

    /// Returns the numbers.
    pub fn iter(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.0.iter().copied().map(u32::from_be_bytes)
    }
}

impl<'a> Wire<'a> for Flavors<'a> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        let count = r.u32()?;
        let (words, _) = r.rest().as_chunks();
        for _ in 0..count {
            r.u32()?;
        }
        Ok(Self(words.get(..count as usize).unwrap_or_default()))
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let count = u32::try_from(self.0.len()).map_err(|_| Truncated { at: w.position() })?;
        w.u32(count)?;
        w.put(self.0.as_flattened())
    }
}

impl fmt::Debug for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Path(\"{}\")", self.0.escape_ascii())
    }
}

impl fmt::Debug for Host<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Host(\"{}\")", self.0.escape_ascii())
    }
}

impl fmt::Debug for Flavors<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
