//! File handles that clients cannot forge.
//!
//! A handle names a file by its file system, its inode number, and a generation that distinguishes files which had the
//! same number one after the other. A MAC under the server's key covers all of it, so that the server accepts only the
//! handles that it sealed. With the same key, handles stay valid over a restart.
//!
//! Wire: format u32, fsid u64, inode u64, generation u64, MAC; all big-endian. The MAC is HMAC-SHA-256 (RFC 2104) of
//! the fields before it, truncated to 16 octets.

use std::cell::Cell;
use std::fmt;

use haulage_proto::xdr::{Reader, Truncated, Writer};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::nfs3::{FileHandle, HANDLE_MAX, Status};

/// A file, as its backend knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The file's number, which no other file has while it exists.
    pub inode: u64,
    /// A number that distinguishes the file from files that had its inode number before.
    pub generation: u64,
}

/// Seals and opens the file handles of one file system.
#[derive(Clone)]
pub struct Sealer {
    keyed: Hmac<Sha256>,
    fsid: u64,
    /// MACs that were computed last, each in one of the places that its inode number leads to, the latest first.
    macs: Box<[[Cell<KeptMac>; MACS_NEAR]]>,
}

/// A MAC of a handle.
type Mac = [u8; MAC_LEN];

/// The MAC of a file's handle, if one is kept.
type KeptMac = Option<(FileId, Mac)>;

impl Sealer {
    /// Creates a sealer with the key of the server and the ID of the file system.
    pub fn new(key: &[u8; KEY_LEN], fsid: u64) -> Self {
        // HMAC accepts keys of any length.
        let keyed = Hmac::new_from_slice(key).unwrap_or_else(|_| unreachable!());
        let macs = vec![[const { Cell::new(None) }; MACS_NEAR]; MACS / MACS_NEAR].into();
        Self { keyed, fsid, macs }
    }

    /// Returns the handle of a file.
    pub fn seal(&self, file: FileId) -> SealedHandle {
        let mut bytes = [0; SealedHandle::WIRE_LEN];
        let (body, mac) = bytes.split_at_mut(BODY_LEN);
        let fits = self.write_body(file, body);
        debug_assert!(fits.is_ok(), "BODY_LEN is the sum of the fields");
        mac.copy_from_slice(&self.mac(file, body));
        SealedHandle(bytes)
    }

    /// Returns the file that a handle names.
    ///
    /// # Errors
    /// [`Status::BadHandle`] if no server makes such handles. [`Status::Stale`] if this server did not seal the handle,
    /// or sealed it for another file system: an earlier run with another key may have, and a client that is told so
    /// looks the file up again by its path (RFC 1813 section 2.6, `NFS3ERR_STALE`).
    pub fn open(&self, handle: FileHandle<'_>) -> Result<FileId, Status> {
        let (body, mac) = handle.bytes().split_at_checked(BODY_LEN).ok_or(Status::BadHandle)?;
        let mac = Mac::try_from(mac).map_err(|_| Status::BadHandle)?;
        if !body.starts_with(&FORMAT.to_be_bytes()) {
            return Err(Status::BadHandle);
        }
        let file = self.read_body(body).ok_or(Status::Stale)?;
        // The comparison takes constant time.
        let [given, ours] = [mac, self.mac(file, body)].map(u128::from_ne_bytes);
        if given ^ ours == 0 { Ok(file) } else { Err(Status::Stale) }
    }

    /// Returns the MAC of a file's handle, whose other fields are `body`.
    fn mac(&self, file: FileId, body: &[u8]) -> Mac {
        let near = &self.macs[scatter(file.inode, self.macs.len())];
        let mut kept = near.iter().filter_map(Cell::get);
        if let Some((_, mac)) = kept.find(|(of, _)| *of == file) {
            return mac;
        }
        let full = self.keyed.clone().chain_update(body).finalize().into_bytes();
        let mut mac = [0; MAC_LEN];
        mac.copy_from_slice(&full[..MAC_LEN]);
        let mut next = Some((file, mac));
        for place in near {
            next = place.replace(next);
        }
        mac
    }

    /// Returns the file that a handle claims to name, without checking the MAC.
    pub(crate) fn peek(&self, handle: FileHandle<'_>) -> Option<FileId> {
        self.read_body(handle.bytes().get(..BODY_LEN)?)
    }

    /// Returns the ID of the file system.
    pub const fn fsid(&self) -> u64 {
        self.fsid
    }

    fn write_body(&self, file: FileId, body: &mut [u8]) -> Result<(), Truncated> {
        let mut w = Writer::new(body);
        w.u32(FORMAT)?;
        w.u64(self.fsid)?;
        w.u64(file.inode)?;
        w.u64(file.generation)
    }

    fn read_body(&self, body: &[u8]) -> Option<FileId> {
        let mut r = Reader::new(body);
        let (format, fsid) = (r.u32().ok()?, r.u64().ok()?);
        let file = FileId { inode: r.u64().ok()?, generation: r.u64().ok()? };
        (format == FORMAT && fsid == self.fsid).then_some(file)
    }
}

/// Hides the key.
impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("fsid", &self.fsid).finish_non_exhaustive()
    }
}

/// A file handle sealed by this server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SealedHandle([u8; Self::WIRE_LEN]);

impl SealedHandle {
    /// Length of every handle, in octets.
    pub const WIRE_LEN: usize = BODY_LEN + MAC_LEN;

    /// Returns the handle as the protocol's type.
    pub fn as_file_handle(&self) -> FileHandle<'_> {
        FileHandle::new(&self.0).unwrap_or_else(|| unreachable!("WIRE_LEN is at most HANDLE_MAX"))
    }
}

/// Hides the handle: any client that has it can use the file.
impl fmt::Debug for SealedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealedHandle(..)")
    }
}

/// Returns one of `count` places for an inode number. File systems give numbers in strides, which scatter to different
/// places.
#[expect(clippy::cast_possible_truncation, reason = "a place is below `count`")]
pub(crate) const fn scatter(inode: u64, count: usize) -> usize {
    // The odd number next to 2^64 over the golden ratio.
    let mixed = inode.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((mixed as u128 * count as u128) >> 64) as usize
}

/// Number of MACs that are kept: a MiB and more, so that a long directory is listed again without computing them.
const MACS: usize = 1 << 15;
/// Number of places for one MAC.
const MACS_NEAR: usize = 4;
/// Length of the server's key, in octets.
pub const KEY_LEN: usize = 32;

/// The version of the handle format, its first word.
const FORMAT: u32 = 1;
/// Length of the fields that the MAC covers, in octets: format, fsid, inode, generation.
const BODY_LEN: usize = 4 + 8 + 8 + 8;
/// Length of the MAC, in octets: a guess succeeds with probability 2^-128.
const MAC_LEN: usize = 16;

const _: () = assert!(SealedHandle::WIRE_LEN <= HANDLE_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; KEY_LEN] = {
        let mut key = [0; KEY_LEN];
        let mut at: u8 = 0;
        while (at as usize) < KEY_LEN {
            key[at as usize] = at;
            at += 1;
        }
        key
    };
    const FSID: u64 = 0x0102_0304_0506_0708;
    const FILE: FileId = FileId { inode: 0x1112_1314_1516_1718, generation: 0x2122_2324_2526_2728 };

    #[test]
    fn a_handle_has_these_octets() {
        // Computed with Python's hmac and hashlib.
        let expected = b"\0\0\0\x01\x01\x02\x03\x04\x05\x06\x07\x08\
            \x11\x12\x13\x14\x15\x16\x17\x18\x21\x22\x23\x24\x25\x26\x27\x28\
            \x10\xc7\x57\x5d\x92\x8b\x68\xcc\x9d\xe9\x43\x29\x16\xbe\x4f\x5e";
        let sealed = Sealer::new(&KEY, FSID).seal(FILE);
        assert_eq!(sealed.as_file_handle().bytes(), expected);
        assert_eq!(Sealer::new(&KEY, FSID).open(sealed.as_file_handle()), Ok(FILE));
    }

    #[test]
    fn no_other_octets_open() {
        let sealer = Sealer::new(&KEY, FSID);
        let sealed = sealer.seal(FILE);
        let good = sealed.as_file_handle().bytes();
        let open = |bytes: &[u8]| sealer.open(FileHandle::new(bytes).unwrap());
        for bit in 0..good.len() * 8 {
            let mut forged = good.to_vec();
            forged[bit / 8] ^= 1 << (bit % 8);
            // The format's bits come first.
            let refused = if bit < 32 { Status::BadHandle } else { Status::Stale };
            assert_eq!(open(&forged), Err(refused), "bit {bit}");
        }
        for end in 0..good.len() {
            assert_eq!(open(&good[..end]), Err(Status::BadHandle), "cut at {end}");
        }
        let longer = [good, &[0]].concat();
        assert_eq!(open(&longer), Err(Status::BadHandle));
    }

    #[test]
    fn handles_of_other_keys_and_file_systems_are_stale() {
        let sealer = Sealer::new(&KEY, FSID);
        for other in [Sealer::new(&[9; KEY_LEN], FSID), Sealer::new(&KEY, FSID + 1)] {
            let sealed = other.seal(FILE);
            assert_eq!(sealer.open(sealed.as_file_handle()), Err(Status::Stale), "{other:?}");
        }
    }

    #[test]
    fn neither_keys_nor_handles_are_printed() {
        let sealer = Sealer::new(&[0x5a; KEY_LEN], 7);
        assert_eq!(format!("{sealer:?}"), "Sealer { fsid: 7, .. }");
        assert_eq!(format!("{:?}", sealer.seal(FILE)), "SealedHandle(..)");
    }
}
