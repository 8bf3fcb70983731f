//! Files of the server, as the client names them.

use std::fmt;

use crate::nfs3::{Attributes, FileHandle, HANDLE_MAX};

/// A file of the server, named by its NFS file handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct File {
    octets: [u8; HANDLE_MAX],
    length: usize,
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct DirEntry {
    /// The directory.
    pub dir: File,
    /// The name.
    pub name: Vec<u8>,
}

/// A file, with its attributes when it was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The file.
    pub file: File,
    /// The attributes when the file was found.
    pub attributes: Attributes,
}

impl File {
    /// Returns the handle, to be used in arguments.
    pub fn handle(&self) -> FileHandle<'_> {
        let octets = self.octets.get(..self.length).unwrap_or_default();
        FileHandle::new(octets).unwrap_or_default()
    }
}

impl From<FileHandle<'_>> for File {
    fn from(handle: FileHandle<'_>) -> Self {
        let mut octets = [0; HANDLE_MAX];
        let length = handle.bytes().len();
        octets.iter_mut().zip(handle.bytes()).for_each(|(to, from)| *to = *from);
        Self { octets, length }
    }
}

/// Hides the handle: any client that has it can use the file.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("File(..)")
    }
}
