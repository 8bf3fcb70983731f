//! The files that a server reads at its start: host keys, its own key, and the record of the places of files.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, process};

use haulage::host_auth::{KnownHosts, PublicKey, SecretKey};
use haulage_proto::xdr::Reader;
use haulage_store::directory::{Config, Directory, Kept, State};
use haulage_store::handle::KEY_LEN;
use haulage_test_support::hex;

use super::bound::{PER_OCTET, within};
use super::octets::{octet, short, some_octets, spoil};
use crate::world::choices::Choices;

/// Reads one file of any contents. The reader refuses it, or returns its contents, which are written as they were read.
pub(super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    DIRECTORY.with_borrow(|place| match choices.below(4) {
        0 => secret_key(&mut choices, &place.0),
        1 => known_hosts(&mut choices, &place.0),
        2 => key(&mut choices, &place.0),
        _ => names(&mut choices, &place.0),
    });
}

/// A directory of this thread, removed when dropped.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        // The files should reach no disk, if the system has a directory in memory.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { env::temp_dir() };
        let path = parent.join(format!("haulage-fuzz-{}-{number}", process::id()));
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o755).create(&path).expect("a place for files");
        for name in ["tree", "state"] {
            DirBuilder::new().mode(0o700).create(path.join(name)).expect("a directory");
        }
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

thread_local! {
    static DIRECTORY: RefCell<TempDir> = RefCell::new(TempDir::new());
}

fn write(path: &Path, octets: &[u8]) {
    let _ = fs::remove_file(path);
    let mut options = File::options();
    let file = options.write(true).create_new(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(octets)).expect("room for a file");
}

/// Checks that a secret key is read from one line of 64 digits, with nothing else but remarks around it.
fn secret_key(choices: &mut Choices, place: &Path) {
    let path = place.join("secret");
    let text = lines(choices, 1, &[b""]);
    write(&path, &text);
    let read = within(PER_OCTET * text.len() as u64 + FIXED, || SecretKey::read(&path));
    let seeds = (text.len() <= 4096).then(|| meant(&text, secret_of)).flatten();
    match (read, seeds.as_deref()) {
        (Ok(key), Some([seed])) => {
            assert_eq!(key.public().octets(), SecretKey::from_seed(seed).public().octets());
        }
        (Err(_), None | Some([] | [_, _, ..])) => {}
        (read, seeds) => panic!("{read:?} of {seeds:?}"),
    }
}

/// Checks that the known hosts are those of the lines, and no others.
fn known_hosts(choices: &mut Choices, place: &Path) {
    let path = place.join("known");
    let text = lines(choices, 3, &[b"lab-3 ", b"a\t", b"lab-3 ", b""]);
    write(&path, &text);
    // Memory for a copy of the text, and for a key of some 200 octets for each line of 64.
    let most = 4 * PER_OCTET * text.len() as u64 + FIXED;
    let read = within(most, || KnownHosts::read(&path));
    let keys = meant(&text, host_of);
    let is_usable = |octets: &[u8; 32]| PublicKey::from_octets(octets).is_some();
    match (read, keys) {
        (Ok(known), Some(keys)) => {
            for octets in &keys {
                assert_eq!(known.get(octets).map(|key| *key.octets()), Some(*octets));
            }
            let written: String = keys
                .iter()
                .filter_map(PublicKey::from_octets)
                .map(|key| format!("a {key}\n"))
                .collect();
            let again: KnownHosts = written.parse().expect("what is written is read");
            assert!(keys.iter().all(|octets| again.get(octets).is_some()));
            assert!(known.get(&[0x5a; 32]).is_none() || keys.contains(&[0x5a; 32]));
        }
        (Err(_), None) => {}
        (Err(_), Some(keys)) => assert!(!keys.iter().all(is_usable), "all keys can be used"),
        (read, keys) => panic!("{read:?} of {keys:?}"),
    }
}

/// Returns the keys of the lines that are no remarks; `None` if `digits` finds none in one of them.
fn meant(text: &[u8], digits: impl Fn(&str) -> Option<&str>) -> Option<Vec<[u8; 32]>> {
    let text = str::from_utf8(text).ok()?;
    let lines = text.split('\n').map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| octets_of(digits(line)?)).collect()
}

fn octets_of(digits: &str) -> Option<[u8; 32]> {
    hex::octets(digits)?.try_into().ok()
}

/// Returns the digits of a line of a secret key.
const fn secret_of(line: &str) -> Option<&str> {
    Some(line)
}

/// Returns the digits of a line of known hosts.
fn host_of(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let (name, digits) = (words.next()?, words.next()?);
    let is_over = words.next().is_none_or(|word| word.starts_with('#'));
    let is_name = name.len() < 256 && !name.chars().any(char::is_control);
    (is_over && is_name && octets_of(name).is_none()).then_some(digits)
}

/// Draws a text of keys, each behind one of `fronts`, and remarks.
fn lines(choices: &mut Choices, most: usize, fronts: &[&[u8]]) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..choices.of(0..=most) {
        text.extend(choices.pick(fronts));
        match choices.below(8) {
            0 => text.extend(b"# a remark"),
            1 => text.extend(some_octets(choices, 80)),
            2 => text.extend(PUBLIC.to_ascii_uppercase().bytes()),
            3 => text.extend(PUBLIC.bytes()),
            _ => {
                let key = if choices.one_in(2) { [octet(choices); 32] } else { *CHOSEN };
                key.iter().for_each(|octet| text.extend(format!("{octet:02x}").bytes()));
            }
        }
        let ends: [&[u8]; 5] = [b"\n", b"\r\n", b" # lab\n", b"\t\n\n", b""];
        text.extend(choices.pick(&ends));
    }
    if choices.one_in(4) {
        spoil(choices, &mut text);
    }
    if choices.one_in(16) {
        text.resize(4090 + choices.below(12), b'\n');
    }
    text
}

/// Checks that the server's own key is the whole file, or that the file is refused and left alone.
fn key(choices: &mut Choices, place: &Path) {
    let (dir, fresh) = (place.join("state"), Kept { key: [1; KEY_LEN], fsid: 2 });
    let path = dir.join("key");
    let length = choices.pick(&[0, 39, 40, 40, 40, 41, 4000]);
    let mut octets = some_octets(choices, length);
    octets.resize(length, 3);
    write(&path, &octets);
    let state = State::open(&dir).expect("nobody else has it");
    let read = within(FIXED, || state.keep(fresh));
    match (read, octets.split_first_chunk::<KEY_LEN>()) {
        (Ok(kept), Some((key, fsid))) => {
            assert_eq!((&kept.key, &kept.fsid.to_be_bytes()[..]), (key, fsid));
        }
        (Err(_), _) => assert_ne!(octets.len(), KEY_LEN + 8, "a file as it is written"),
        (Ok(_), None) => panic!("a key of {} octets", octets.len()),
    }
    assert_eq!(fs::read(&path).expect("it is there"), octets, "it is never overwritten");
    fs::remove_file(&path).expect("it is there");
    let kept = state.keep(fresh).expect("room for a file");
    let again = state.keep(Kept { key: [9; KEY_LEN], fsid: 9 }).expect("it was written");
    assert_eq!((kept.key, kept.fsid), (again.key, again.fsid));
}

/// Checks that the record of the places of files is read up to the first broken entry, and written as it was read.
fn names(choices: &mut Choices, place: &Path) {
    let dir = place.join("state");
    let path = dir.join("names");
    let octets = journal(choices);
    write(&path, &octets);
    let known_octets_max = choices.pick(&[0, 1000, 1 << 20]);
    let open = || {
        let state = State::open(&dir).expect("nobody else has it");
        let config = Config { known_octets_max, ..CONFIG };
        Directory::open(&place.join("tree"), Some(state), None, config)
    };
    let most = 4 * PER_OCTET * octets.len() as u64 + OPEN_OCTETS_MAX;
    let opened = within(most, open);
    if !octets.is_empty() && !octets.starts_with(MAGIC) {
        assert!(opened.is_err(), "a file of somebody else");
        assert_eq!(fs::read(&path).expect("it is there"), octets, "it is left as it is");
        return;
    }
    drop(opened.expect("a directory that can be served"));
    let written = fs::read(&path).expect("it is there");
    let expected = read(&octets);
    if known_octets_max == 1 << 20 {
        let mut whole = MAGIC.to_vec();
        expected.values().for_each(|record| whole.extend(record));
        assert_eq!(written, whole, "what is known of every file");
    } else {
        let kept = read(&written);
        assert!(kept.iter().all(|(inode, record)| expected.get(inode) == Some(record)));
        assert!(written.len() <= MAGIC.len() + known_octets_max, "as much as there is room for");
    }
    drop(open().expect("what is written is read"));
    assert_eq!(fs::read(&path).expect("it is there"), written, "and written as it is");
}

/// Reads records up to the first broken one. Returns the latest record of each file that is not gone.
fn read(octets: &[u8]) -> BTreeMap<u64, Vec<u8>> {
    let mut known = BTreeMap::new();
    let mut rest = octets.strip_prefix(MAGIC).unwrap_or_default();
    while let Some((head, _)) = rest.split_first_chunk::<36>() {
        let names = usize::from(u16::from_be_bytes([head[0], head[1]])) + usize::from(head[2]);
        let length = 36 + names;
        let Some(check) = rest.get(length..length + 4) else { break };
        if check_sum(&rest[..length]).to_be_bytes() != check {
            break;
        }
        let inode = Reader::new(&head[4..]).u64().expect("it is long enough");
        match head[3] {
            0 => drop(known.remove(&inode)),
            _ => {
                // All kinds but the one of removed files are written as kind 1.
                let mut record = rest[..length].to_vec();
                record[3] = 1;
                record.extend(check_sum(&record).to_be_bytes());
                known.insert(inode, record);
            }
        }
        rest = &rest[length + 4..];
    }
    known
}

/// Draws a file of records.
fn journal(choices: &mut Choices) -> Vec<u8> {
    if choices.one_in(16) {
        return some_octets(choices, 64);
    }
    let mut octets = MAGIC.to_vec();
    for _ in 0..choices.below(12) {
        let name = some_octets(choices, 40);
        let called = some_octets(choices, 20);
        let kind = choices.pick(&[0, 1, 1, 1, 2]);
        let mut record = short(name.len()).to_be_bytes()[2..].to_vec();
        record.extend([short(called.len()).to_be_bytes()[3], kind]);
        for _ in 0..4 {
            let number = if choices.one_in(8) { choices.number() } else { choices.below(4) as u64 };
            record.extend(number.to_be_bytes());
        }
        record.extend(name);
        record.extend(called);
        record.extend(check_sum(&record).to_be_bytes());
        if choices.one_in(16) {
            spoil(choices, &mut record);
        }
        octets.extend(record);
    }
    if choices.one_in(8) {
        spoil(choices, &mut octets);
    }
    octets
}

/// Returns the FNV-1a hash of `octets`.
fn check_sum(octets: &[u8]) -> u32 {
    octets
        .iter()
        .fold(0x811c_9dc5, |hash, octet| (hash ^ u32::from(*octet)).wrapping_mul(0x0100_0193))
}

const MAGIC: &[u8] = b"haulage names 1\n";
const CONFIG: Config = Config {
    run: 1,
    open_max: 8,
    search_max: 8,
    search_turn_max: 8,
    known_octets_max: 0,
    lists_kept: std::time::Duration::ZERO,
    stable: false,
    direct: false,
};
/// A valid public key: RFC 8032 section 7.1, test 1.
const PUBLIC: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
const CHOSEN: &[u8; 32] = b"\x9d\x61\xb1\x9d\xef\xfd\x5a\x60\xba\x84\x4a\xf4\x92\xec\x2c\xc4\x44\x49\xc5\x69\x7b\x32\x69\x19\x70\x3b\xac\x03\x1c\xae\x7f\x60";
/// Octets allocated however short a file is: paths, and the text of an error.
const FIXED: u64 = 16 << 10;
/// Octets allocated to open a directory to be served.
const OPEN_OCTETS_MAX: u64 = 256 << 10;
