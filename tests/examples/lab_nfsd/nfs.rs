//! As much of NFS version 3 (RFC 1813) as shows that every kind of chunk works.

use haulage_proto::xdr::{Reader, Truncated, Writer};

use super::Outcome;
use super::client::{Call, Client, Reply};

/// Names a file at its server.
pub(crate) type FileHandle = Vec<u8>;

/// What is of interest among a file's attributes.
#[derive(Debug)]
pub(crate) struct Attributes {
    /// [`DIRECTORY`] among others.
    pub(crate) kind: u32,
    /// Octets.
    pub(crate) size: u64,
}

/// What is of interest among a file system's limits.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Octets of the longest READ.
    pub(crate) read_max: u32,
    /// Octets of the longest WRITE.
    pub(crate) write_max: u32,
}

/// GETATTR.
pub(crate) fn getattr(client: &mut Client, file: &FileHandle) -> Outcome<Attributes> {
    let reply = plain(client, 1, |w| w.opaque(file))?;
    results(&reply, attributes)
}

/// LOOKUP.
pub(crate) fn lookup(client: &mut Client, within: &FileHandle, name: &str) -> Outcome<FileHandle> {
    let reply = plain(client, 3, |w| {
        w.opaque(within)?;
        w.opaque(name.as_bytes())
    })?;
    results(&reply, |r| r.opaque(HANDLE_MAX).map(<[u8]>::to_vec))
}

/// READ, the data in the Reply's own message.
pub(crate) fn read_inline(client: &mut Client, file: &FileHandle, most: u32) -> Outcome<Vec<u8>> {
    let reply = plain(client, 6, |w| read_arguments(w, file, most))?;
    results(&reply, |r| {
        read_results(r)?;
        r.opaque(most as usize).map(<[u8]>::to_vec)
    })
}

/// READ, the data by Write chunk.
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

/// WRITE to stable storage, the data by Read chunk.
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

/// CREATE, whether the file is there or not.
pub(crate) fn create(client: &mut Client, within: &FileHandle, name: &str) -> Outcome<FileHandle> {
    let reply = plain(client, 8, |w| {
        w.opaque(within)?;
        w.opaque(name.as_bytes())?;
        w.u32(UNCHECKED)?;
        // Mode 0644; owner, group, size and times as the server likes.
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

/// FSINFO.
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

/// Parses what follows a status of success.
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

/// Parses what READ says before the data: how many octets, and whether they are the last.
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
/// The version spoken here.
pub(crate) const VERSION: u32 = 3;
/// Octets of the longest handle.
pub(crate) const HANDLE_MAX: usize = 64;
/// The kind of a directory.
pub(crate) const DIRECTORY: u32 = 2;

const FILE_SYNC: u32 = 2;
const UNCHECKED: u32 = 0;
/// Mode, links, owner, group.
const ATTRIBUTES_BEFORE_SIZE: usize = 16;
/// Space used, device, file system, file number, three times.
const ATTRIBUTES_BEHIND_SIZE: usize = 56;
/// Size and two times.
const ATTRIBUTES_BEFORE_A_CHANGE: usize = 24;
