//! File attributes, and changes of them (RFC 1813 section 2.5).

use haulage_proto::chunk::PayloadReader;
use haulage_proto::xdr::{Truncated, Writer};

use super::basic::{Device, FileType, Time};
use crate::codec::{Malformed, Wire, record, unknown};

record! {
    /// A file's attributes: `fattr3`.
    Attributes {
        /// The file type.
        kind: FileType,
        /// The permission bits.
        mode: u32,
        /// The link count.
        links: u32,
        /// The owner.
        uid: u32,
        /// The group.
        gid: u32,
        /// The file's length in octets.
        size: u64,
        /// Octets of storage it takes.
        used: u64,
        /// The device numbers, if the file is a device.
        device: Device,
        /// The file's file system.
        fsid: u64,
        /// The file's number in its file system.
        fileid: u64,
        /// When it was last read.
        atime: Time,
        /// When its contents were last changed.
        mtime: Time,
        /// When its attributes were last changed.
        ctime: Time,
    }
}

impl Attributes {
    /// Length on the wire, in octets.
    pub const WIRE_LEN: usize = 84;

    /// Returns the attributes by which clients detect a change.
    pub const fn wcc(&self) -> WccAttributes {
        WccAttributes { size: self.size, mtime: self.mtime, ctime: self.ctime }
    }
}

record! {
    /// The attributes by which clients detect that a file changed: `wcc_attr`.
    WccAttributes {
        /// The file's length.
        size: u64,
        /// When its contents were last changed.
        mtime: Time,
        /// When its attributes were last changed.
        ctime: Time,
    }
}

record! {
    /// The attributes of a file before and after a procedure that may change it: `wcc_data`.
    #[derive(Default)]
    Wcc {
        /// The attributes before, if known.
        before: Option<WccAttributes>,
        /// The attributes after, if known.
        after: Option<Attributes>,
    }
}

impl Wcc {
    /// Maximum length on the wire, in octets.
    pub const WIRE_MAX: usize = 4 + 24 + 4 + Attributes::WIRE_LEN;
}

record! {
    /// Changes of a file's attributes: `sattr3`. Absent attributes stay as they are.
    #[derive(Default)]
    SetAttributes {
        /// The permission bits.
        mode: Option<u32>,
        /// The owner.
        uid: Option<u32>,
        /// The group.
        gid: Option<u32>,
        /// Its length.
        size: Option<u64>,
        /// When it was last read.
        atime: SetTime,
        /// When it was last changed.
        mtime: SetTime,
    }
}

impl SetAttributes {
    /// Returns whether the nanoseconds of all times to be set are less than a second.
    pub fn has_valid_times(&self) -> bool {
        let is_valid = |to| !matches!(to, SetTime::To(time) if time.nanoseconds >= 1_000_000_000);
        is_valid(self.atime) && is_valid(self.mtime)
    }

    /// Returns the owner to set. [`NO_ID`] leaves it as it is.
    pub fn owner(&self) -> Option<u32> {
        self.uid.filter(|uid| *uid != NO_ID)
    }

    /// Returns the group to set. [`NO_ID`] leaves it as it is.
    pub fn group(&self) -> Option<u32> {
        self.gid.filter(|gid| *gid != NO_ID)
    }
}

/// The ID that is no user's and no group's: `chown` takes it as "do not change", and Linux's server ignores it, too.
pub const NO_ID: u32 = u32::MAX;

/// A change of a time: `set_atime` and `set_mtime`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// The time stays as it is.
    #[default]
    Keep,
    /// The time becomes the server's current time.
    ToServer,
    /// The time becomes this one.
    To(Time),
}

impl<'a> Wire<'a> for SetTime {
    fn decode(r: &mut PayloadReader<'a>) -> Result<Self, Malformed> {
        match r.u32()? {
            0 => Ok(Self::Keep),
            1 => Ok(Self::ToServer),
            2 => Time::decode(r).map(Self::To),
            value => Err(unknown(r, value)),
        }
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Keep => w.u32(0),
            Self::ToServer => w.u32(1),
            Self::To(time) => {
                w.u32(2)?;
                time.encode(w)
            }
        }
    }
}
