//! Opening files by their file system's names for them, wherever they are.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// A file system's name for a file, valid as long as the file exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    kind: i32,
    octets: Box<[u8]>,
}

impl FileName {
    /// Asks for the name of the file that `place` stands for.
    ///
    /// # Errors
    /// The system's: not every file system has such names.
    pub fn of(place: BorrowedFd<'_>) -> io::Result<Self> {
        Self::named(place, c"", libc::AT_EMPTY_PATH)
    }

    /// Asks for the name of the file that `name` leads to from the directory `dir`. A symbolic link is not followed.
    ///
    /// # Errors
    /// The system's: not every file system has such names.
    pub fn at(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<Self> {
        Self::named(dir, name, 0)
    }

    fn named(dir: BorrowedFd<'_>, path: &CStr, flags: libc::c_int) -> io::Result<Self> {
        let mut raw = Raw { length: LENGTH_MAX, kind: 0, octets: [0; OCTETS_MAX] };
        let mut mount = 0;
        // SAFETY: the path is a string that ends in a zero; `raw` has room for the octets that its length says, as the
        // system writes it; `mount` is an integer of ours.
        let named = unsafe {
            libc::name_to_handle_at(
                dir.as_raw_fd(),
                path.as_ptr(),
                (&raw mut raw).cast(),
                &raw mut mount,
                flags,
            )
        };
        if named < 0 {
            return Err(io::Error::last_os_error());
        }
        let octets = raw.octets.get(..raw.length as usize).unwrap_or_default();
        Ok(Self { kind: raw.kind, octets: octets.into() })
    }

    /// Opens the file as a place (`O_PATH`). `mount` is open on the file's mount, and is not itself a place. Requires
    /// `CAP_DAC_READ_SEARCH`.
    ///
    /// # Errors
    /// The system's; `ESTALE` if there is no such file any more.
    pub fn open(&self, mount: BorrowedFd<'_>) -> io::Result<OwnedFd> {
        let mut raw = Raw { length: 0, kind: self.kind, octets: [0; OCTETS_MAX] };
        let room = raw.octets.get_mut(..self.octets.len());
        room.ok_or(io::ErrorKind::InvalidData)?.copy_from_slice(&self.octets);
        raw.length = u32::try_from(self.octets.len()).map_err(io::Error::other)?;
        let flags = libc::O_PATH | libc::O_CLOEXEC | libc::O_NOFOLLOW;
        // SAFETY: `raw` has the octets that its length says.
        let fd =
            unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut raw).cast(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just returned by the system and nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Returns the name as octets, to be stored.
    pub fn to_bytes(&self) -> Box<[u8]> {
        [&self.kind.to_be_bytes()[..], &self.octets].concat().into()
    }

    /// Decodes a stored name; `None` if it is not valid.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (kind, octets) = bytes.split_first_chunk()?;
        let fits = !octets.is_empty() && octets.len() <= OCTETS_MAX;
        fits.then(|| Self { kind: i32::from_be_bytes(*kind), octets: octets.into() })
    }

    /// Octets of the longest stored name.
    pub const BYTES_MAX: usize = size_of::<i32>() + OCTETS_MAX;
}

/// The system's layout of a name: `struct file_handle`, with room behind it.
#[repr(C)]
struct Raw {
    length: u32,
    kind: i32,
    octets: [u8; OCTETS_MAX],
}

/// `MAX_HANDLE_SZ`.
const LENGTH_MAX: u32 = 128;
const OCTETS_MAX: usize = LENGTH_MAX as usize;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_is_opened_by_its_name_until_it_is_gone() {
        let path = std::env::temp_dir().join(format!("haulage-by-handle-{}", std::process::id()));
        let file = File::create_new(&path).unwrap();
        let top = File::open(std::env::temp_dir()).unwrap();
        let named = FileName::of(file.as_fd());
        std::fs::remove_file(&path).unwrap();
        // Not every file system has names, and not every user may open files by them.
        let Ok(name) = named else { return };
        assert_eq!(FileName::from_bytes(&name.to_bytes()), Some(name.clone()));
        assert_eq!(FileName::from_bytes(&[0; 4]), None);
        assert_eq!(FileName::from_bytes(&[0; FileName::BYTES_MAX + 1]), None);
        match name.open(top.as_fd()).map(drop) {
            Ok(()) => {
                drop(file);
                let gone = name.open(top.as_fd()).unwrap_err();
                assert_eq!(gone.raw_os_error(), Some(libc::ESTALE));
            }
            Err(error) => {
                let expected = [libc::EPERM, libc::EOPNOTSUPP, libc::ESTALE];
                assert!(expected.contains(&error.raw_os_error().unwrap()), "{error}");
            }
        }
    }
}
