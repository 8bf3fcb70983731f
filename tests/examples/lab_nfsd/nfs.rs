//! The part of NFS version 3 (RFC 1813) that uses every kind of chunk.

use haulage_proto::xdr::{Reader, Truncated, Writer};

use super::Outcome;
use super::client::{Call, Client, Reply};

/// A file handle.
pub(crate) type FileHandle = Vec<u8>;

/// The attributes of a file that the program uses.
#[derive(Debug)]
pub(crate) struct Attributes {
    /// The type of the file, such as [`DIRECTORY`].
    pub(crate) kind: u32,
    /// Size of the file in octets.
    pub(crate) size: u64,
}

/// The limits of a file system that the program uses.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Maximum length of a READ.
    pub(crate) read_max: u32,
    /// Maximum length of a WRITE.
    pub(crate) write_max: u32,
}

/// Calls GETATTR.
pub(crate) fn getattr(client: &mut Client, file: &FileHandle) -> Outcome<Attributes> {
    let reply = plain(client, 1, |w| w.opaque(file))?;
    results(&reply, attributes)
}

/// Calls LOOKUP.
pub(crate) fn lookup(client: &mut Client, within: &FileHandle, name: &str) -> Outcome<FileHandle> {
    let reply = plain(client, 3, |w| {
        w.opaque(within)?;
        w.opaque(name.as_bytes())
    })?;
    results(&reply, |r| r.opaque(HANDLE_MAX).map(<[u8]>::to_vec))
}

/// Calls READ, with the data in the Reply's message.
pub(crate) fn read_inline(client: &mut Client, file: &FileHandle, most: u32) -> Outcome<Vec<u8>> {
    let reply = plain(client, 6, |w| read_arguments(w, file, most))?;
    results(&reply, |r| {
        read_results(r)?;
        r.opaque(most as usize).map(<[u8]>::to_vec)
    })
}

/// Calls READ, with the data in a Write chunk.
pub(crate) fn read(client: &mut Client, file: &FileHandle, length: usize) -> Outcome<Vec<u8>> {
    let count = u32::try_from(length).map_err(|_| "too long")?;
    let arguments = encoded(|w| read_arguments(w, file, count))?;
    let call = Call { procedure: 6, arguments: &arguments, read: None, write: Some(length) };
    let reply = client.call(&call)?;
    let (count, end, stated) = results(&reply, |r| {
        let (count, end) = read_results(r)?;
        Ok((count, end, r.u32()?))
    })?;
    let written = reply.written.ok_or("nothing was written")?;
    if (count as usize, stated as usize, end) != (length, length, true) || written.len() != length {
        return Err(format!("READ says {count}, {stated}, {end}, and wrote {}", written.len()));
    }
    Ok(written)
}

/// Calls WRITE to stable storage, with the data in a Read chunk.
pub(crate) fn write(client: &mut Client, file: &FileHandle, data: &[u8]) -> Outcome<()> {
    let length = u32::try_from(data.len()).map_err(|_| "too long")?;
    let arguments = encoded(|w| {
        w.opaque(file)?;
        w.u64(0)?;
        w.u32(length)?;
        w.u32(FILE_SYNC)?;
        w.u32(length)
    })?;
    let call = Call { procedure: 7, arguments: &arguments, read: Some(data), write: None };
    let reply = client.call(&call)?;
    let count = results(&reply, |r| {
        weak_cache_consistency(r)?;
        r.u32()
    })?;
    if count == length { Ok(()) } else { Err(format!("WRITE took {count} octets of {length}")) }
}

/// Calls CREATE, for a new or an existing file.
pub(crate) fn create(client: &mut Client, within: &FileHandle, name: &str) -> Outcome<FileHandle> {
    let reply = plain(client, 8, |w| {
        w.opaque(within)?;
        w.opaque(name.as_bytes())?;
        w.u32(UNCHECKED)?;
        // The mode is 0644; the server chooses owner, group, size and times.
        for word in [1, 0o644, 0, 0, 0, 0, 0] {
            w.u32(word)?;
        }
        Ok(())
    })?;
    results(&reply, |r| {
        r.u32()?;
        r.opaque(HANDLE_MAX).map(<[u8]>::to_vec)
    })
}

/// Calls FSINFO.
pub(crate) fn fsinfo(client: &mut Client, root: &FileHandle) -> Outcome<Limits> {
    let reply = plain(client, 19, |w| w.opaque(root))?;
    results(&reply, |r| {
        optional_attributes(r)?;
        let [read_max, _, _, write_max] = [r.u32()?, r.u32()?, r.u32()?, r.u32()?];
        Ok(Limits { read_max, write_max })
    })
}

fn plain(
    client: &mut Client,
    procedure: u32,
    arguments: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
) -> Outcome<Reply> {
    let arguments = encoded(arguments)?;
    client.call(&Call { procedure, arguments: &arguments, read: None, write: None })
}

fn encoded(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Outcome<Vec<u8>> {
    let mut room = [0; 1024];
    let mut w = Writer::new(&mut room);
    encode(&mut w).map_err(|e| e.to_string())?;
    Ok(w.written().to_vec())
}

/// Parses the results behind a status of success.
fn results<T>(
    reply: &Reply,
    parse: impl FnOnce(&mut Reader<'_>) -> Result<T, Truncated>,
) -> Outcome<T> {
    let mut r = Reader::new(&reply.results);
    match r.u32() {
        Ok(0) => parse(&mut r).map_err(|e| format!("NFS results: {e}")),
        Ok(status) => Err(format!("NFS status {status}")),
        Err(e) => Err(format!("NFS results: {e}")),
    }
}

fn read_arguments(w: &mut Writer<'_>, file: &FileHandle, count: u32) -> Result<(), Truncated> {
    w.opaque(file)?;
    w.u64(0)?;
    w.u32(count)
}

/// Parses the results of READ in front of the data. Returns the count, and whether the file ends
/// there.
fn read_results(r: &mut Reader<'_>) -> Result<(u32, bool), Truncated> {
    optional_attributes(r)?;
    Ok((r.u32()?, r.u32()? != 0))
}

fn attributes(r: &mut Reader<'_>) -> Result<Attributes, Truncated> {
    let kind = r.u32()?;
    r.take(ATTRIBUTES_BEFORE_SIZE)?;
    let size = r.u64()?;
    r.take(ATTRIBUTES_BEHIND_SIZE)?;
    Ok(Attributes { kind, size })
}

fn optional_attributes(r: &mut Reader<'_>) -> Result<(), Truncated> {
    if r.u32()? != 0 { attributes(r).map(drop) } else { Ok(()) }
}

fn weak_cache_consistency(r: &mut Reader<'_>) -> Result<(), Truncated> {
    if r.u32()? != 0 {
        r.take(ATTRIBUTES_BEFORE_A_CHANGE)?;
    }
    optional_attributes(r)
}

/// The program number of NFS.
pub(crate) const PROGRAM: u32 = 100_003;
/// The version of NFS used here.
pub(crate) const VERSION: u32 = 3;
/// Length of the longest file handle.
pub(crate) const HANDLE_MAX: usize = 64;
/// The type of a directory.
pub(crate) const DIRECTORY: u32 = 2;

const FILE_SYNC: u32 = 2;
const UNCHECKED: u32 = 0;
/// Octets of mode, links, owner and group.
const ATTRIBUTES_BEFORE_SIZE: usize = 16;
/// Octets of space used, device, file system, file number and three times.
const ATTRIBUTES_BEHIND_SIZE: usize = 56;
/// Octets of size and two times.
const ATTRIBUTES_BEFORE_A_CHANGE: usize = 24;
