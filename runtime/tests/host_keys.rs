//! Host keys are read from files, and a secret only from one that is kept secret.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use haulage::host_auth::{KeyFault, KnownHosts, SecretKey};

/// RFC 8032 section 7.1, test 1.
const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

fn file(name: &str, content: &[u8], mode: u32) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("host_keys.{name}"));
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn a_secret_is_read_only_from_a_file_of_its_owners_own() {
    for mode in [0o600, 0o400] {
        let path = file(&format!("own{mode:o}"), SEED.as_bytes(), mode);
        assert_eq!(SecretKey::read(&path).unwrap().public().to_string(), PUBLIC);
        fs::remove_file(path).unwrap();
    }
    for mode in [0o604, 0o640, 0o620, 0o601] {
        let path = file(&format!("others{mode:o}"), SEED.as_bytes(), mode);
        assert!(matches!(SecretKey::read(&path), Err(KeyFault::Exposed(_))), "{mode:o}");
        fs::remove_file(path).unwrap();
    }
}

#[test]
fn a_file_that_is_no_key_says_why() {
    let remarks =
        |octets: usize| [b"#".repeat(octets - 65).as_slice(), b"\n", SEED.as_bytes()].concat();
    let path = file("long", &remarks(4096), 0o600);
    assert!(SecretKey::read(&path).is_ok());
    let path = file("long", &remarks(4097), 0o600);
    assert_eq!(SecretKey::read(&path).unwrap_err().to_string(), "it is longer than 4096 octets");
    let path = file("binary", &[0xff; 32], 0o600);
    let said = SecretKey::read(&path).unwrap_err().to_string();
    assert_eq!(said, "line 1: a key is 64 hexadecimal digits");
    let absent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host_keys.absent");
    let said = SecretKey::read(&absent).unwrap_err().to_string();
    assert!(said.starts_with("cannot read it: No such file"), "{said}");
}

#[test]
fn a_new_secret_is_its_owners_alone_and_replaces_nothing() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("host_keys.new");
    let _ = fs::remove_file(&path);
    let made = SecretKey::create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(SecretKey::read(&path).unwrap().public(), made.public());
    let again = SecretKey::create(&path).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    assert_eq!(SecretKey::read(&path).unwrap().public(), made.public(), "it is as it was");
    fs::remove_file(&path).unwrap();
    let other = SecretKey::create(&path).unwrap();
    assert_ne!(other.public(), made.public());
    fs::remove_file(path).unwrap();
}

#[test]
fn known_hosts_may_be_read_by_all_and_written_by_nobody_else() {
    let path = file("known", format!("lab-3 {PUBLIC}\n").as_bytes(), 0o644);
    let octets = *SEED.parse::<SecretKey>().unwrap().public().octets();
    assert!(KnownHosts::read(&path).unwrap().get(&octets).is_some());
    for mode in [0o664, 0o646] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(matches!(KnownHosts::read(&path), Err(KeyFault::Exposed(_))), "{mode:o}");
    }
    let absent = path.with_extension("absent");
    assert!(matches!(KnownHosts::read(&absent), Err(KeyFault::Unreadable(_))));
}
