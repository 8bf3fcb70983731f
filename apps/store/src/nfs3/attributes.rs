//! What is known of a file, and what is asked to be changed of it (RFC 1813 section 2.5).

use haulage_proto::chunk::PayloadReader;
use haulage_proto::xdr::{Truncated, Writer};

use super::basic::{Device, FileType, Time};
use crate::codec::{Malformed, Wire, record, unknown};

record! {
    /// A file's attributes: `fattr3`.
    Attributes {
        /// What kind of file it is.
        kind: FileType,
        /// The permission bits.
        mode: u32,
        /// How many names it has.
        links: u32,
        /// Who owns it.
        uid: u32,
        /// Which group it belongs to.
        gid: u32,
        /// Its length in octets.
        size: u64,
        /// Octets of storage it takes.
        used: u64,
        /// If it is a device, which.
        device: Device,
        /// Its file system.
        fsid: u64,
        /// Its number there.
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
    /// Octets on the wire.
    pub const WIRE_LEN: usize = 84;

    /// Returns what of them tells a change apart.
    pub const fn wcc(&self) -> WccAttributes {
        WccAttributes { size: self.size, mtime: self.mtime, ctime: self.ctime }
    }
}

record! {
    /// What tells whether a file changed between two looks: `wcc_attr`.
    WccAttributes {
        /// Its length.
        size: u64,
        /// When its contents were last changed.
        mtime: Time,
        /// When its attributes were last changed.
        ctime: Time,
    }
}

record! {
    /// A file before and after a procedure that may have changed it: `wcc_data`.
    #[derive(Default)]
    Wcc {
        /// Before, if that was looked at.
        before: Option<WccAttributes>,
        /// After, if that was looked at.
        after: Option<Attributes>,
    }
}

impl Wcc {
    /// Octets of the longest.
    pub const WIRE_MAX: usize = 4 + 24 + 4 + Attributes::WIRE_LEN;
}

record! {
    /// What to make of a file: `sattr3`. What is absent stays as it is.
    #[derive(Default)]
    SetAttributes {
        /// The permission bits.
        mode: Option<u32>,
        /// Who owns it.
        uid: Option<u32>,
        /// Which group it belongs to.
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
    /// Returns whether each time that is to be set is one: its nanoseconds are less than a second.
    pub fn has_valid_times(&self) -> bool {
        let is_valid = |to| !matches!(to, SetTime::To(time) if time.nanoseconds >= 1_000_000_000);
        is_valid(self.atime) && is_valid(self.mtime)
    }
}

/// What to make of a time: `set_atime` and `set_mtime`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// It stays.
    #[default]
    Keep,
    /// The moment at which the server does it.
    ToServer,
    /// This moment.
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
