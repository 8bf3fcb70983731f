//! Names, file handles, times and the other small types (RFC 1813 section 2.5).

use std::fmt;

use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::xdr::{Truncated, Writer};

use super::{HANDLE_MAX, NAME_WIRE_MAX, PATH_MAX};
use crate::codec::{Malformed, Wire, encode_item, numbers, record};

/// A file handle: `nfs_fh3`. It is opaque to clients.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct FileHandle<'a>(&'a [u8]);

impl<'a> FileHandle<'a> {
    /// Maximum length on the wire, in octets, including the length word.
    pub const WIRE_MAX: usize = 4 + HANDLE_MAX;

    /// Creates a handle from at most 64 octets; returns `None` for more.
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > HANDLE_MAX { None } else { Some(Self(bytes)) }
    }

    /// Returns the octets.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

/// Hides the handle: any client that has it can use the file.
impl fmt::Debug for FileHandle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileHandle(..)")
    }
}

impl<'a> Wire<'a> for FileHandle<'a> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(Self(r.opaque(HANDLE_MAX)?))
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.opaque(self.0)
    }
}

/// One component of a path: `filename3`. The protocol calls it a string; no encoding is assumed.
///
/// A name may be longer than a server accepts, so that the server can answer with a status.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name<'a>(pub &'a [u8]);

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name(\"{}\")", self.0.escape_ascii())
    }
}

impl<'a> Wire<'a> for Name<'a> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(Self(r.opaque(NAME_WIRE_MAX)?))
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.opaque(self.0)
    }
}

/// The path in a symbolic link: `nfspath3`. It is DDP-eligible in arguments and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path<'a>(pub Item<'a>);

impl Path<'_> {
    /// Returns how many octets there are.
    pub const fn length(&self) -> u64 {
        match self.0 {
            Item::Unreduced(bytes) => bytes.len() as u64,
            Item::Reduced { length } => length,
        }
    }
}

impl<'a> Wire<'a> for Path<'a> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(Self(r.eligible_opaque(PATH_MAX)?))
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        encode_item(&self.0, w)
    }
}

/// The data of a READ or a WRITE. It is DDP-eligible.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Data<'a>(pub Item<'a>);

/// Hides the data, which is private to its owner.
impl fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Data({} octets)", self.length())
    }
}

impl Data<'_> {
    /// Returns how many octets there are.
    pub const fn length(&self) -> u64 {
        match self.0 {
            Item::Unreduced(bytes) => bytes.len() as u64,
            Item::Reduced { length } => length,
        }
    }
}

impl<'a> Wire<'a> for Data<'a> {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        // The stream bounds unreduced data, the binding reduced data.
        Ok(Self(r.eligible_opaque(usize::MAX)?))
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        encode_item(&self.0, w)
    }
}

/// A verifier: eight octets that are opaque to all but their creator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verifier(pub u64);

impl<'a> Wire<'a> for Verifier {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        Ok(Self(r.u64()?))
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u64(self.0)
    }
}

record! {
    /// A point in time: `nfstime3`.
    #[derive(Default, PartialOrd, Ord)]
    Time {
        /// Seconds since the start of 1970, UTC.
        seconds: u32,
        /// Nanoseconds within the second.
        nanoseconds: u32,
    }
}

record! {
    /// A device's numbers: `specdata3`.
    #[derive(Default)]
    Device {
        /// The major number.
        major: u32,
        /// The minor number.
        minor: u32,
    }
}

record! {
    /// A name in a directory: `diropargs3`.
    DirName<'a> {
        /// The directory.
        dir: FileHandle<'a>,
        /// The name in it.
        name: Name<'a>,
    }
}

numbers! {
    /// The type of a file: `ftype3`.
    FileType {
        /// A regular file.
        Regular = 1,
        /// A directory.
        Directory = 2,
        /// A block device.
        Block = 3,
        /// A character device.
        Character = 4,
        /// A symbolic link.
        Symlink = 5,
        /// A socket.
        Socket = 6,
        /// A named pipe.
        Fifo = 7,
    }
}
