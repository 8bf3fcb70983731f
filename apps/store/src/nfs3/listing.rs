//! Lists of names, as READDIR and READDIRPLUS return them (RFC 1813 sections 3.3.16 and 3.3.17).

use haulage_proto::xdr::pad;

use super::attributes::Attributes;
use super::basic::{FileHandle, Name};
use crate::codec::{List, ListWriter, record};

/// The list of a READDIR: `dirlist3` without its end-of-directory mark.
pub type Names<'a> = List<'a, Entry<'a>>;
/// The list of a READDIRPLUS: `dirlistplus3` without its end-of-directory mark.
pub type NamesPlus<'a> = List<'a, EntryPlus<'a>>;

record! {
    /// An entry of a READDIR: `entry3`.
    Entry<'a> {
        /// The number of the file that has it.
        fileid: u64,
        /// The name.
        name: Name<'a>,
        /// The cookie from which a listing continues after this name.
        cookie: u64,
    }
}

impl Entry<'_> {
    /// Returns the length of the entry on the wire, in octets.
    pub const fn wire_len(&self) -> usize {
        let name = self.name.0.len();
        8 + 4 + name + pad(name) + 8
    }
}

record! {
    /// An entry of a READDIRPLUS, with attributes and handle: `entryplus3`.
    EntryPlus<'a> {
        /// The name, with the file number and the cookie.
        entry: Entry<'a>,
        /// The file's attributes.
        attributes: Option<Attributes>,
        /// The file's handle, if there is one.
        file: Option<FileHandle<'a>>,
    }
}

/// A writer of the list of a READDIRPLUS, which has two bounds.
#[derive(Debug)]
pub struct NamesPlusWriter<'m> {
    list: ListWriter<'m>,
    /// Octets left for names, file numbers and cookies.
    names_left: usize,
}

impl<'m> NamesPlusWriter<'m> {
    /// Starts a list that must fit `memory`, its end included. Its names, file numbers and cookies take at most
    /// `names_max` octets.
    pub const fn new(memory: &'m mut [u8], names_max: usize) -> Self {
        Self { list: ListWriter::new(memory), names_left: names_max }
    }

    /// Has the list end at `room` octets, its end included, unless its first entry takes more.
    #[must_use]
    pub fn ending_at(self, room: usize) -> Self {
        Self { list: self.list.ending_at(room), ..self }
    }

    /// Appends an entry. Returns whether it fit.
    pub fn push(&mut self, entry: &EntryPlus<'_>) -> bool {
        let Some(left) = self.names_left.checked_sub(entry.entry.wire_len()) else { return false };
        let fits = self.list.push(entry);
        if fits {
            self.names_left = left;
        }
        fits
    }

    /// Ends the list.
    pub fn finish(self) -> NamesPlus<'m> {
        self.list.finish()
    }
}
