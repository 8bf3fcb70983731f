//! Shared helpers of tests: a seeded generator, encoded streams, temporary directories.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use haulage_proto::xdr::{Truncated, Writer};
pub(crate) use haulage_test_support::Rng;
pub(crate) use haulage_test_support::hex::vectors;

use crate::directory;

/// The configuration of a directory, of which tests say what is different in theirs.
pub(crate) const CONFIG: directory::Config = directory::Config {
    run: 1,
    open_max: 64,
    search_max: 10_000,
    search_turn_max: 100,
    known_octets_max: 1 << 20,
    lists_kept: Duration::ZERO,
    stable: false,
    direct: false,
};

/// Returns the octets that `encode` writes.
pub(crate) fn written(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut memory = vec![0xee; 1 << 16];
    let mut w = Writer::new(&mut memory);
    encode(&mut w).expect("it fits");
    w.written().to_vec()
}

/// Returns the octets of `words`, big-endian.
pub(crate) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// An empty temporary directory, removed on drop.
#[derive(Debug)]
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("haulage-store-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // A killed run may have left a directory of this name.
        let _ = std::fs::remove_dir_all(&path);
        // The mode is given, because the umask of this process varies: a server of a directory clears it.
        DirBuilder::new().mode(0o755).create(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
