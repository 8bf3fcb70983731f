//! NFS version 3 (RFC 1813): the arguments and results of all its procedures, for both roles.
//!
//! A server decodes [`Arguments`] and encodes [`Results`], a client the reverse. Both read a Payload
//! stream from which the DDP-eligible items may have been reduced: see [`binding`].

pub mod arguments;
pub mod attributes;
pub mod basic;
pub mod binding;
pub mod listing;
pub mod procedure;
pub mod results;

pub use arguments::Arguments;
pub use attributes::{Attributes, NO_ID, SetAttributes, SetTime, Wcc, WccAttributes};
pub use basic::{Data, Device, DirName, FileHandle, FileType, Name, Path, Time, Verifier};
pub use procedure::{Procedure, Status};
pub use results::{Failure, Outcome, Results};

/// The program number.
pub const PROGRAM: u32 = 100_003;
/// The program version.
pub const VERSION: u32 = 3;

/// Maximum length of a file handle, in octets: `NFS3_FHSIZE`.
pub const HANDLE_MAX: usize = 64;
/// Maximum length of the path in a symbolic link, in octets.
pub const PATH_MAX: usize = 4096;
/// Maximum length of a name that is decoded, in octets. The protocol has no bound of its own: a server answers
/// [`Status::NameTooLong`] to a name longer than it stores.
pub const NAME_WIRE_MAX: usize = 4096;

/// Access rights: `ACCESS3_*`.
pub mod rights {
    /// Read the file, or list the directory.
    pub const READ: u32 = 0x01;
    /// Look up a name in the directory.
    pub const LOOKUP: u32 = 0x02;
    /// Change existing data.
    pub const MODIFY: u32 = 0x04;
    /// Add new data or names.
    pub const EXTEND: u32 = 0x08;
    /// Remove a name from the directory.
    pub const DELETE: u32 = 0x10;
    /// Execute the file.
    pub const EXECUTE: u32 = 0x20;
    /// All rights.
    pub const ALL: u32 = 0x3f;
}

/// Abilities of a file system: `FSF3_*`.
pub mod abilities {
    /// Hard links.
    pub const LINK: u32 = 0x01;
    /// Symbolic links.
    pub const SYMLINK: u32 = 0x02;
    /// PATHCONF answers the same for all files.
    pub const HOMOGENEOUS: u32 = 0x08;
    /// SETATTR can set times.
    pub const CAN_SET_TIME: u32 = 0x10;
}

#[cfg(test)]
mod tests;
