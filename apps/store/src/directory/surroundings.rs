//! The file systems of an export, of which clients may notice something.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FsWord, statfs};

/// What is special about the place of an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The export lies on an overlay file system, as what a container writes outside its volumes. A file gets another
    /// creation time there when it is first changed, by which it looks like another file, and names move in a listing
    /// when others are removed.
    pub is_overlay: bool,
    /// The export lies on a file system in user space (FUSE), which asks a process of this machine for attributes.
    pub is_fuse: bool,
    /// The places inside the export where other file systems are mounted. Clients see an empty directory at each.
    pub mounted: Vec<PathBuf>,
}

/// Looks at the place of an export, given by a path without symbolic links.
///
/// # Errors
/// The system's error, where its list of mounts cannot be read.
pub fn surroundings(export: &Path) -> io::Result<Surroundings> {
    let kind = statfs(export)?.f_type;
    let mounted = inside(&std::fs::read(MOUNTS)?, export);
    Ok(Surroundings { is_overlay: kind == OVERLAY_MAGIC, is_fuse: kind == FUSE_MAGIC, mounted })
}

/// Returns the mount points below `export` in a list of mounts as `proc(5)` describes it: the fifth field of each line.
fn inside(list: &[u8], export: &Path) -> Vec<PathBuf> {
    let lines = list.split(|octet| *octet == b'\n');
    let points = lines.filter_map(|line| line.split(|octet| *octet == b' ').nth(4)).map(unescaped);
    let mut inside: Vec<_> =
        points.filter(|point| point.starts_with(export) && point != export).collect();
    inside.sort_unstable();
    inside.dedup();
    inside
}

/// Returns a path of which blanks, line ends and backslashes are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&octet, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| octet == b'\\');
        let digits = digits.and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(written) => {
                path.push(written);
                rest = &behind[3..];
            }
            None => {
                path.push(octet);
                rest = behind;
            }
        }
    }
    OsString::from_vec(path).into()
}

/// The list of what is mounted, as this process sees it.
const MOUNTS: &str = "/proc/self/mountinfo";
/// The type of overlay file systems, in `statfs`.
const OVERLAY_MAGIC: FsWord = 0x794c_7630;
/// The type of file systems in user space, in `statfs`.
const FUSE_MAGIC: FsWord = 0x6573_5546;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_inside_is_found_whatever_its_name() {
        let list = b"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
            30 22 0:5 / /srv rw,noatime shared:1 - tmpfs none rw\n\
            31 30 0:6 / /srv/a\\040b\\134 rw - tmpfs none rw\n\
            32 30 0:7 / /srv/inner rw master:1 - tmpfs none rw\n\
            33 30 0:8 / /srv/inner rw - tmpfs none rw\n\
            34 22 0:9 / /srvother rw - tmpfs none rw\n\
            torn";
        let found = |export: &str| inside(list, Path::new(export));
        assert_eq!(found("/srv"), [Path::new("/srv/a b\\"), Path::new("/srv/inner")]);
        assert!(found("/srv/inner").is_empty());
        assert_eq!(found("/").len(), 4);
    }
}
