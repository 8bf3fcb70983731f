//! Files that a command writes: complete under their names, or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A file that is written under a name beside its own, and takes its own when it is complete.
///
/// An existing file that a new one cannot stand in for is written in place: what is no regular file or is named by a
/// symbolic link, has several links or another owner, is a mount point, or is in a directory that takes no new file.
#[derive(Debug)]
pub struct Whole {
    file: File,
    beside: Option<Beside>,
}

/// The name under which a file is written, which is removed with this value, and the file's own name.
#[derive(Debug)]
struct Beside {
    part: PathBuf,
    name: PathBuf,
}

impl Whole {
    /// Creates the file, or finds that an existing one can be written. Until [`Self::finish`], an existing file that
    /// will be replaced keeps its data.
    pub fn create(path: &Path) -> io::Result<Self> {
        match OpenOptions::new().write(true).open(path) {
            Ok(old) => {
                if old.metadata()?.is_file() {
                    if let Ok(new) = Self::instead(path, &old) {
                        return Ok(new);
                    }
                    old.set_len(0)?;
                }
                Ok(Self { file: old, beside: None })
            }
            Err(error) if error.kind() == ErrorKind::NotFound && is_free(path) => {
                Self::beside(path)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Ok(Self { file: File::create(path)?, beside: None })
            }
            Err(error) => Err(error),
        }
    }

    /// Gives the complete file its name.
    pub fn finish(self) -> io::Result<()> {
        match self.beside {
            Some(beside) => fs::rename(&beside.part, &beside.name),
            None => Ok(()),
        }
    }

    /// Creates a file that can replace an existing one without anybody noticing.
    fn instead(path: &Path, old: &File) -> io::Result<Self> {
        let old = old.metadata()?;
        let is_plain = path.symlink_metadata()?.is_file() && old.nlink() == 1;
        if !is_plain || is_mount_point(path)? {
            return Err(ErrorKind::Unsupported.into());
        }
        let new = Self::beside(path)?;
        let made = new.file.metadata()?;
        if (made.uid(), made.gid()) != (old.uid(), old.gid()) {
            return Err(ErrorKind::Unsupported.into());
        }
        new.file.set_permissions(old.permissions())?;
        Ok(new)
    }

    /// Creates a file beside `name`.
    fn beside(name: &Path) -> io::Result<Self> {
        let of = name.file_name().ok_or(ErrorKind::IsADirectory)?.as_bytes();
        let of = of.get(..STEM_MAX).unwrap_or(of);
        // A process that was killed may have had the same number, and left its file.
        let mut number = u64::from(std::process::id());
        loop {
            let part = [of, format!(".{number}.part").as_bytes()].concat();
            let part = name.with_file_name(std::ffi::OsString::from_vec(part));
            match File::create_new(&part) {
                Ok(file) => {
                    let beside = Some(Beside { part, name: name.to_owned() });
                    return Ok(Self { file, beside });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += PIDS_MAX,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Write for Whole {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.file.write(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // The removal fails if the file has been renamed to its own name.
        let _ = fs::remove_file(&self.part);
    }
}

/// Returns whether nothing has the name of a file, not even a symbolic link that leads nowhere.
fn is_free(path: &Path) -> bool {
    path.symlink_metadata().is_err() && !path.as_os_str().as_bytes().ends_with(b"/")
}

/// Returns whether something is mounted on a file, as containers have it for single files.
fn is_mount_point(path: &Path) -> io::Result<bool> {
    let path = path.canonicalize()?;
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut points = mounts.split(|octet| *octet == b'\n').filter_map(|line| {
        // The fifth field is the mount point, in which blanks are escaped.
        line.split(|octet| *octet == b' ').nth(4)
    });
    Ok(points.any(|point| point == path.as_os_str().as_bytes()))
}

/// Maximum length of the part of the name that the file has beside its own, in octets: with the rest, Linux allows 255.
const STEM_MAX: usize = 200;

/// A number above all process IDs of Linux.
const PIDS_MAX: u64 = 1 << 22;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// A directory, removed with the test.
    struct TempDir(PathBuf);

    impl TempDir {
        fn new(name: &str) -> Self {
            let name = format!("haulage-whole-{}-{name}", std::process::id());
            let place = std::env::temp_dir().join(name);
            fs::create_dir(&place).unwrap();
            Self(place)
        }

        fn at(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn write(&self, name: &str, finish: bool) {
            let mut file = Whole::create(&self.at(name)).unwrap();
            file.write_all(b"new").unwrap();
            if finish {
                file.finish().unwrap();
            }
        }

        fn names(&self) -> usize {
            fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_name_has_the_whole_file_or_what_it_had() {
        let place = TempDir::new("names");
        place.write("file", false);
        assert_eq!(place.names(), 0);
        fs::write(place.at("file"), b"older").unwrap();
        fs::set_permissions(place.at("file"), fs::Permissions::from_mode(0o640)).unwrap();
        place.write("file", false);
        assert_eq!(fs::read(place.at("file")).unwrap(), b"older");
        place.write("file", true);
        assert_eq!(fs::read(place.at("file")).unwrap(), b"new");
        assert_eq!(fs::metadata(place.at("file")).unwrap().mode() & 0o7777, 0o640);
        // The longest name that Linux allows is written, too.
        place.write(&"n".repeat(255), true);
        assert_eq!(place.names(), 2);
    }

    #[test]
    fn links_and_what_is_no_regular_file_stay() {
        let place = TempDir::new("links");
        fs::write(place.at("one"), b"older").unwrap();
        fs::hard_link(place.at("one"), place.at("other")).unwrap();
        place.write("one", true);
        assert_eq!(fs::read(place.at("other")).unwrap(), b"new");
        symlink("target", place.at("link")).unwrap();
        for _ in 0..2 {
            place.write("link", true);
            assert_eq!(fs::read_link(place.at("link")).unwrap(), Path::new("target"));
            assert_eq!(fs::read(place.at("target")).unwrap(), b"new");
        }
        symlink("/dev/null", place.at("null")).unwrap();
        place.write("null", true);
        assert_eq!(place.names(), 5);
        for name in [".", "new/", "none/new"] {
            assert!(Whole::create(&place.at(name)).is_err(), "{name}");
        }
        assert_eq!(place.names(), 5);
    }
}
