//! Conversion of the system's errors to NFS statuses.

use rustix::io::Errno;

use crate::nfs3::Status;

/// Returns the NFS status for an error of the system.
const fn status(errno: Errno) -> Status {
    match errno {
        Errno::PERM => Status::Perm,
        Errno::NOENT => Status::NoEnt,
        Errno::NXIO => Status::NxIo,
        // EBUSY: a mount point cannot be removed or replaced, and to try again does not help.
        Errno::ACCESS | Errno::TXTBSY | Errno::BUSY => Status::Acces,
        Errno::EXIST => Status::Exist,
        Errno::XDEV => Status::XDev,
        Errno::NODEV => Status::NoDev,
        // ELOOP: a symbolic link where a directory is needed.
        Errno::NOTDIR | Errno::LOOP => Status::NotDir,
        Errno::ISDIR => Status::IsDir,
        Errno::INVAL => Status::Inval,
        Errno::FBIG | Errno::OVERFLOW => Status::FBig,
        Errno::NOSPC => Status::NoSpc,
        Errno::ROFS => Status::RoFs,
        Errno::MLINK => Status::MLink,
        Errno::NAMETOOLONG => Status::NameTooLong,
        Errno::NOTEMPTY => Status::NotEmpty,
        Errno::DQUOT => Status::DQuot,
        Errno::STALE => Status::Stale,
        Errno::OPNOTSUPP => Status::NotSupp,
        // The machine lacks a resource, perhaps for a short time.
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN | Errno::INTR => Status::Jukebox,
        _ => Status::Io,
    }
}

/// Converts an error of the system to the status that a client receives.
impl From<Errno> for Status {
    fn from(errno: Errno) -> Self {
        status(errno)
    }
}
