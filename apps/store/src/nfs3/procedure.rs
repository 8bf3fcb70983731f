//! What a client can ask, and what the server can say to it in a word.

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
        /// Finds a name in a directory.
        Lookup = 3,
        /// Tells what the caller may do.
        Access = 4,
        /// Reads a symbolic link.
        ReadLink = 5,
        /// Reads from a file.
        Read = 6,
        /// Writes to a file.
        Write = 7,
        /// Makes a regular file.
        Create = 8,
        /// Makes a directory.
        MkDir = 9,
        /// Makes a symbolic link.
        Symlink = 10,
        /// Makes a device, a socket or a pipe.
        MkNod = 11,
        /// Removes a name that is not a directory's.
        Remove = 12,
        /// Removes a directory.
        RmDir = 13,
        /// Renames whatever has a name.
        Rename = 14,
        /// Gives a file one more name.
        Link = 15,
        /// Lists names.
        ReadDir = 16,
        /// Lists names with attributes and file handles.
        ReadDirPlus = 17,
        /// Tells how much room there is.
        FsStat = 18,
        /// Tells what the server can do.
        FsInfo = 19,
        /// Tells what names and links may be like.
        PathConf = 20,
        /// Brings what was written to stable storage.
        Commit = 21,
    }
}

numbers! {
    /// How a procedure ended: `nfsstat3` (RFC 1813 section 2.6).
    Status {
        /// It did what was asked.
        Ok = 0,
        /// Only the owner may, or only the superuser.
        Perm = 1,
        /// There is no such name.
        NoEnt = 2,
        /// The storage failed.
        Io = 5,
        /// There is no such device.
        NxIo = 6,
        /// The caller may not.
        Acces = 13,
        /// The name is taken.
        Exist = 17,
        /// The two are on different file systems.
        XDev = 18,
        /// There is no such device.
        NoDev = 19,
        /// It is not a directory.
        NotDir = 20,
        /// It is a directory.
        IsDir = 21,
        /// An argument makes no sense to the procedure.
        Inval = 22,
        /// The file would be too large.
        FBig = 27,
        /// There is no room left.
        NoSpc = 28,
        /// The file system is only for reading.
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
        /// The file handle is none of this server's.
        BadHandle = 10001,
        /// The file is not what the caller believed.
        NotSync = 10002,
        /// The directory changed so that the cookie has no place in it.
        BadCookie = 10003,
        /// The server does not do this.
        NotSupp = 10004,
        /// The caller's buffer or request is too small.
        TooSmall = 10005,
        /// The server failed in a way that no other status says.
        ServerFault = 10006,
        /// The server makes no files of this type.
        BadType = 10007,
        /// The server needs long for this; ask again.
        Jukebox = 10008,
    }
}
