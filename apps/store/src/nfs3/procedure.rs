//! The procedures and the statuses of NFS version 3.

use crate::codec::numbers;

numbers! {
    /// A procedure of the program (RFC 1813 section 3).
    Procedure {
        /// Does nothing.
        Null = 0,
        /// Returns a file's attributes.
        GetAttr = 1,
        /// Changes a file's attributes.
        SetAttr = 2,
        /// Looks up a name in a directory.
        Lookup = 3,
        /// Returns the caller's access rights.
        Access = 4,
        /// Reads a symbolic link.
        ReadLink = 5,
        /// Reads from a file.
        Read = 6,
        /// Writes to a file.
        Write = 7,
        /// Creates a regular file.
        Create = 8,
        /// Creates a directory.
        MkDir = 9,
        /// Creates a symbolic link.
        Symlink = 10,
        /// Creates a device, a socket or a pipe.
        MkNod = 11,
        /// Removes the name of a file that is not a directory.
        Remove = 12,
        /// Removes a directory.
        RmDir = 13,
        /// Renames a file or a directory.
        Rename = 14,
        /// Gives a file one more name.
        Link = 15,
        /// Lists names.
        ReadDir = 16,
        /// Lists names with attributes and file handles.
        ReadDirPlus = 17,
        /// Returns the total and free space.
        FsStat = 18,
        /// Tells what the server can do.
        FsInfo = 19,
        /// Tells what names and links may be like.
        PathConf = 20,
        /// Brings written data to stable storage.
        Commit = 21,
    }
}

numbers! {
    /// The status of a procedure: `nfsstat3` (RFC 1813 section 2.6).
    Status {
        /// The procedure succeeded.
        Ok = 0,
        /// Only the owner, or only the superuser, may do this.
        Perm = 1,
        /// There is no such name.
        NoEnt = 2,
        /// The storage failed.
        Io = 5,
        /// There is no such device.
        NxIo = 6,
        /// The caller may not do this.
        Acces = 13,
        /// The name is taken.
        Exist = 17,
        /// The two files are on different file systems.
        XDev = 18,
        /// There is no such device.
        NoDev = 19,
        /// The file is not a directory.
        NotDir = 20,
        /// The file is a directory.
        IsDir = 21,
        /// An argument is invalid for the procedure.
        Inval = 22,
        /// The file would be too large.
        FBig = 27,
        /// There is no room left.
        NoSpc = 28,
        /// The file system is read-only.
        RoFs = 30,
        /// The file has as many links as it can have.
        MLink = 31,
        /// The name is too long.
        NameTooLong = 63,
        /// The directory is not empty.
        NotEmpty = 66,
        /// The caller's quota is used up.
        DQuot = 69,
        /// The file that the handle named is gone.
        Stale = 70,
        /// The file is on another server.
        Remote = 71,
        /// The file handle is invalid: not one of this server.
        BadHandle = 10001,
        /// The file is not in the state that the caller expected (the `guard` of SETATTR).
        NotSync = 10002,
        /// The cookie is no longer valid in the directory.
        BadCookie = 10003,
        /// The server does not support the procedure.
        NotSupp = 10004,
        /// The caller's buffer or request is too small.
        TooSmall = 10005,
        /// The server failed for a reason that has no status of its own.
        ServerFault = 10006,
        /// The server creates no files of this type.
        BadType = 10007,
        /// The operation takes long; the client must repeat the Call later.
        Jukebox = 10008,
    }
}
