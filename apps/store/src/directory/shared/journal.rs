//! An append-only file of records of where files were seen.
//!
//! # Recovery
//! A record ends in a checksum. A record that a crash left half written at the end is cut off, and its file is found by
//! a search instead. The journal is compacted by writing a new file and renaming it over the old one.
//!
//! Wire: [`MAGIC`], then records of: length of the name u16, length of the file system's handle u8, kind u8, inode u64,
//! generation u64, the directory's inode u64 and generation u64, the name, the handle, FNV-1a of all before u32; all
//! big-endian.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::sync::Arc;

use haulage::sys::private::Directory;
use haulage_proto::xdr::Reader;

use crate::handle::FileId;

/// The journal file, open for appending.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: Arc<Directory>,
    file: File,
    /// Length of the file up to the end of its last whole record.
    length: u64,
    records: u64,
    /// Records that are not written yet, and their number.
    unwritten: (Vec<u8>, u64),
}

/// A record of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// A file was seen under a name.
    Seen {
        /// The file.
        file: FileId,
        /// The directory that the name is in.
        dir: FileId,
        /// The name.
        name: &'a [u8],
        /// The file system's handle of the file; empty if there is none.
        called: &'a [u8],
    },
    /// A file is gone.
    Gone {
        /// The file.
        file: FileId,
    },
}

impl Journal {
    /// Opens the journal in a directory; creates it if it does not exist.
    pub(crate) fn open(directory: Arc<Directory>) -> io::Result<Self> {
        let file = directory.append(NAME)?;
        Ok(Self { directory, file, length: 0, records: 0, unwritten: (Vec::new(), 0) })
    }

    /// Reads all records from the start, in bounded steps. Must be called only once, after [`Self::open`].
    pub(crate) fn read(&mut self, mut each: impl FnMut(Record<'_>)) -> io::Result<()> {
        let mut read = Vec::new();
        let mut is_first = true;
        loop {
            let more = (&self.file).take(READ_AT_ONCE).read_to_end(&mut read)?;
            let mut rest = &read[..];
            if is_first && !read.is_empty() {
                rest = read.strip_prefix(MAGIC).ok_or_else(|| {
                    let path = self.directory.path(NAME);
                    let what = format!("{} is no file of names of this server", path.display());
                    io::Error::new(io::ErrorKind::InvalidData, what)
                })?;
            }
            while let Some((record, length)) = Record::decode(rest) {
                each(record);
                rest = rest.get(length..).unwrap_or_default();
            }
            // The rest is an incomplete or damaged record; nothing after it is read.
            if more == 0 || rest.len() > RECORD_MAX {
                return Ok(());
            }
            let taken = read.len() - rest.len();
            read.drain(..taken);
            is_first = false;
        }
    }

    /// Appends a record, which is to be written.
    pub(crate) fn append(&mut self, record: &Record<'_>) {
        let (octets, count) = &mut self.unwritten;
        record.encode(octets);
        *count += 1;
    }

    /// Writes what was appended. It survives a crash of the server, but not of the system.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        let (octets, count) = &mut self.unwritten;
        let written = self.file.write_all(octets);
        let (length, count) = (octets.len() as u64, std::mem::take(count));
        octets.clear();
        if let Err(error) = written {
            // Records after an incomplete one would not be read again.
            self.file.set_len(self.length)?;
            return Err(error);
        }
        self.length += length;
        self.records += count;
        Ok(())
    }

    /// Replaces all records by these.
    pub(crate) fn rewrite<'a>(
        &mut self,
        records: impl Iterator<Item = Record<'a>>,
    ) -> io::Result<()> {
        let mut out = BufWriter::new(self.directory.create(NEW)?);
        out.write_all(MAGIC)?;
        let (mut count, mut length) = (0, MAGIC.len() as u64);
        let mut octets = Vec::new();
        for record in records {
            octets.clear();
            record.encode(&mut octets);
            out.write_all(&octets)?;
            length += octets.len() as u64;
            count += 1;
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        self.directory.rename(NEW, NAME)?;
        self.file = self.directory.append(NAME)?;
        (self.length, self.records) = (length, count);
        Ok(())
    }

    /// Returns whether something was appended that is not written.
    pub(crate) const fn has_unwritten(&self) -> bool {
        self.unwritten.1 > 0
    }

    /// Returns the number of records.
    pub(crate) const fn records(&self) -> u64 {
        self.records
    }
}

impl<'a> Record<'a> {
    /// Decodes the record at the start of `bytes`. Returns it with its length, or `None` if it is incomplete or
    /// damaged.
    fn decode(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let ([high, low, called, kind], _) = bytes.split_first_chunk()?;
        let names = usize::from(u16::from_be_bytes([*high, *low]));
        let length = HEAD_LEN + names + usize::from(*called);
        let (record, rest) = bytes.split_at_checked(length)?;
        let (check, _) = rest.split_first_chunk::<CHECK_LEN>()?;
        if check_sum(record) != u32::from_be_bytes(*check) {
            return None;
        }
        let (head, rest) = record.split_at_checked(HEAD_LEN)?;
        let (name, called) = rest.split_at_checked(names)?;
        let mut r = Reader::new(head.get(4..)?);
        let mut id = || Some(FileId { inode: r.u64().ok()?, generation: r.u64().ok()? });
        let (file, dir) = (id()?, id()?);
        let record = match kind {
            0 => Self::Gone { file },
            _ => Self::Seen { file, dir, name, called },
        };
        Some((record, length + CHECK_LEN))
    }

    /// Appends the record to `bytes`.
    fn encode(&self, bytes: &mut Vec<u8>) {
        let (kind, file, dir, name, called) = match self {
            Self::Gone { file } => (0, file, file, &[][..], &[][..]),
            Self::Seen { file, dir, name, called } => (1, file, dir, *name, *called),
        };
        let start = bytes.len();
        bytes.reserve(HEAD_LEN + name.len() + called.len() + CHECK_LEN);
        // Linux bounds both: names at 255 octets, handles at `FileName::BYTES_MAX`.
        bytes.extend(u16::try_from(name.len()).unwrap_or(0).to_be_bytes());
        bytes.push(u8::try_from(called.len()).unwrap_or(0));
        bytes.push(kind);
        for number in [file.inode, file.generation, dir.inode, dir.generation] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(name);
        bytes.extend(called);
        let check = check_sum(bytes.get(start..).unwrap_or_default());
        bytes.extend(check.to_be_bytes());
    }
}

/// Returns the FNV-1a hash, which detects half-written records.
fn check_sum(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0x811c_9dc5, |hash, octet| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193))
}

/// The name of the file, and that of the one that takes its place.
const NAME: &str = "names";
const NEW: &str = "names.new";
/// The first octets of the file.
const MAGIC: &[u8] = b"haulage names 1\n";
/// Length of a record before the name, in octets.
const HEAD_LEN: usize = 2 + 1 + 1 + 4 * 8;
/// Length of the checksum, in octets.
const CHECK_LEN: usize = 4;
/// Maximum length of a record, in octets.
const RECORD_MAX: usize = HEAD_LEN + u16::MAX as usize + u8::MAX as usize + CHECK_LEN;
/// Octets read from the file at once.
const READ_AT_ONCE: u64 = 1 << 20;

const _: () = assert!(READ_AT_ONCE > MAGIC.len() as u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_journal_is_read_in_parts() {
        let place = crate::testing::TempDir::new();
        let directory = Arc::new(Directory::open(&place.path().join("state")).unwrap());
        let mut journal = Journal::open(Arc::clone(&directory)).unwrap();
        let name = [b'n'; 255];
        let files = (0..20_000).map(|inode| FileId { inode, generation: 1 });
        let seen = |file| Record::Seen { file, dir: A, name: &name, called: b"" };
        journal.rewrite(files.clone().map(seen)).unwrap();
        assert!(std::fs::metadata(directory.path(NAME)).unwrap().len() > 5 * READ_AT_ONCE);
        let mut read = Vec::new();
        Journal::open(directory)
            .unwrap()
            .read(|record| {
                let Record::Seen { file, dir: A, name: seen, called: b"" } = record else {
                    panic!()
                };
                assert_eq!(seen, name);
                read.push(file);
            })
            .unwrap();
        assert!(files.eq(read));
    }

    const A: FileId = FileId { inode: 1, generation: 0x0102_0304_0506_0708 };
    const B: FileId = FileId { inode: u64::MAX, generation: 2 };

    #[test]
    fn a_record_is_read_as_it_was_written_and_never_when_cut_or_changed() {
        for record in [
            Record::Seen { file: A, dir: B, name: b"name", called: b"" },
            Record::Seen { file: A, dir: B, name: b"name", called: b"called" },
            Record::Gone { file: B },
        ] {
            let mut bytes = Vec::new();
            record.encode(&mut bytes);
            let followed = [&bytes[..], b"more"].concat();
            assert_eq!(Record::decode(&followed), Some((record, bytes.len())));
            for end in 0..bytes.len() {
                assert_eq!(Record::decode(&bytes[..end]), None, "cut at {end}");
            }
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Record::decode(&changed), None, "bit {bit}");
            }
        }
    }
}
