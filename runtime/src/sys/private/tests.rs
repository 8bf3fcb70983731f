use std::fs::{self, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FileType, mknodat};

use super::*;

/// A directory of one test's own, removed with it.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("haulage-private-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn at(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }

    /// Creates a directory with these rights.
    fn directory(&self, below: &str, mode: u32) -> PathBuf {
        let path = self.at(below);
        fs::create_dir(&path).unwrap();
        set_mode(&path, mode);
        path
    }

    /// Creates a file with these rights.
    fn file(&self, below: &str, mode: u32) -> PathBuf {
        let path = self.at(below);
        fs::write(&path, b"octets").unwrap();
        set_mode(&path, mode);
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

#[track_caller]
fn fault<T: std::fmt::Debug>(refused: io::Result<T>) -> Fault {
    let error = refused.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(error.to_string().lines().count(), 1, "{error}");
    error.downcast().unwrap()
}

#[test]
fn what_is_made_is_open_to_nobody_else_and_opens_again() {
    let place = TempDir::new();
    let path = place.at("a/b");
    let directory = Directory::open(&path).unwrap();
    directory.append("file").unwrap().write_all(b"first").unwrap();
    directory.create("file.new").unwrap().write_all(b"second").unwrap();
    assert_eq!([mode(&place.at("a")), mode(&path)], [0o700; 2]);
    assert_eq!([mode(&path.join("file")), mode(&path.join("file.new"))], [0o600; 2]);
    directory.rename("file.new", "file").unwrap();
    directory.sync().unwrap();
    let again = Directory::open(&place.at("a/b/")).unwrap();
    again.append("file").unwrap().write_all(b" more").unwrap();
    let mut read = String::new();
    again.read("file").unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read, "second more");
    assert_eq!(again.read("file.new").unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn rights_of_others_are_refused() {
    let place = TempDir::new();
    for bits in [0o755, 0o770, 0o701, 0o1777, 0o720] {
        let path = place.directory(&format!("{bits:o}"), bits);
        assert_eq!(fault(Directory::open(&path)), Fault::Open { path, fix: "700" });
    }
    let own = place.directory("own", 0o700);
    let directory = Directory::open(&own).unwrap();
    for bits in [0o644, 0o640, 0o602, 0o610] {
        let path = place.file(&format!("own/{bits:o}"), bits);
        let name = format!("{bits:o}");
        let open = Fault::Open { path, fix: "600" };
        let tried = [directory.read(&name), directory.append(&name)];
        assert_eq!(tried.map(fault), [open.clone(), open]);
        assert_eq!(fs::read(directory.path(&name)).unwrap(), b"octets");
    }
}

#[test]
fn what_is_no_directory_is_refused() {
    let place = TempDir::new();
    let real = place.directory("real", 0o700);
    let link = place.at("link");
    symlink(&real, &link).unwrap();
    let dangling = place.at("dangling");
    symlink("nowhere", &dangling).unwrap();
    let file = place.file("file", 0o600);
    for path in [link, dangling, file] {
        assert_eq!(fault(Directory::open(&path)), Fault::NotADirectory(path.clone()));
        assert_eq!(fault(Directory::open(&path.join(""))), Fault::NotADirectory(path));
    }
    assert!(!place.at("nowhere").exists());
    // A link of our own above the directory is allowed.
    symlink(&place.0, place.at("above")).unwrap();
    assert!(Directory::open(&place.at("above/real")).is_ok());
}

#[test]
fn what_is_no_regular_file_is_refused_and_holds_up_nobody() {
    let place = TempDir::new();
    let own = place.directory("own", 0o700);
    let directory = Directory::open(&own).unwrap();
    let target = place.file("target", 0o600);
    symlink(&target, own.join("link")).unwrap();
    symlink("nowhere", own.join("dangling")).unwrap();
    let rights = Mode::RUSR | Mode::WUSR;
    mknodat(CWD, own.join("fifo"), FileType::Fifo, rights, 0).unwrap();
    let _listener = UnixListener::bind(own.join("socket")).unwrap();
    fs::create_dir(own.join("directory")).unwrap();
    for name in ["link", "dangling", "fifo", "socket", "directory"] {
        let not_a_file = Fault::NotAFile(own.join(name));
        assert_eq!(fault(directory.read(name)), not_a_file);
        assert_eq!(fault(directory.append(name)), not_a_file);
    }
    // A new file replaces what had its name, and the target of a link stays.
    for name in ["link", "dangling", "fifo", "socket"] {
        directory.create(name).unwrap().write_all(b"new").unwrap();
        assert_eq!(fs::read(own.join(name)).unwrap(), b"new");
        assert!(fs::symlink_metadata(own.join(name)).unwrap().is_file());
    }
    assert_eq!(fs::read(target).unwrap(), b"octets");
    assert!(!own.join("nowhere").exists());
    assert!(directory.create("directory").is_err());
}

#[test]
fn a_directory_whose_place_others_can_take_is_refused() {
    let place = TempDir::new();
    for bits in [0o777, 0o775, 0o757] {
        let above = place.directory(&format!("{bits:o}"), bits);
        assert_eq!(fault(Directory::open(&above.join("a/b"))), Fault::Replaceable(above.clone()));
        assert_eq!(fs::read_dir(&above).unwrap().count(), 0);
        fs::create_dir(above.join("a")).unwrap();
        set_mode(&above.join("a"), 0o700);
        // The directory is refused by its own path and by that of a link to it.
        let link = place.at(&format!("{bits:o}.link"));
        symlink(above.join("a"), &link).unwrap();
        assert_eq!(fault(Directory::open(&above.join("a"))), Fault::Replaceable(above.clone()));
        assert_eq!(fault(Directory::open(&link.join("b"))), Fault::Replaceable(above));
    }
    let above = place.directory("sticky", 0o1777);
    assert!(Directory::open(&above.join("a/b")).is_ok());
}

#[test]
fn what_others_own_is_refused() {
    const NOBODY: u32 = 65_534;
    let place = TempDir::new();
    let path = place.directory("foreign", 0o700);
    let own = place.directory("own", 0o700);
    let file = place.file("own/file", 0o600);
    let above = place.directory("above", 0o755);
    let sticky = place.directory("sticky", 0o1777);
    let link = sticky.join("link");
    symlink(&place.0, &link).unwrap();
    let given = [&path, &file, &above].map(|path| chown(path, Some(NOBODY), None));
    if given.iter().any(Result::is_err) || lchown(&link, Some(NOBODY), None).is_err() {
        return eprintln!("skipped: only root gives files away");
    }
    let foreign = |path| Fault::Foreign { path, owner: NOBODY };
    assert_eq!(fault(Directory::open(&path)), foreign(path));
    let directory = Directory::open(&own).unwrap();
    assert_eq!(fault(directory.read("file")), foreign(file.clone()));
    assert_eq!(fault(directory.append("file")), foreign(file.clone()));
    assert_eq!(fault(read(&file, Others::Read)), foreign(file));
    assert_eq!(fault(Directory::open(&above.join("a"))), foreign(above));
    assert_eq!(fault(Directory::open(&link.join("own"))), foreign(link));
}

#[test]
fn a_file_that_others_may_read_is_none_that_they_may_write() {
    let place = TempDir::new();
    for (bits, as_secret, as_known) in
        [(0o600, true, true), (0o644, false, true), (0o664, false, false), (0o646, false, false)]
    {
        let path = place.file(&format!("{bits:o}"), bits);
        let link = place.at(&format!("{bits:o}.link"));
        symlink(&path, &link).unwrap();
        for path in [path, link] {
            assert_eq!(read(&path, Others::Nothing).is_ok(), as_secret, "{bits:o}");
            assert_eq!(read(&path, Others::Read).is_ok(), as_known, "{bits:o}");
        }
    }
    let fifo = place.at("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert_eq!(fault(read(&fifo, Others::Read)), Fault::NotAFile(fifo));
}
