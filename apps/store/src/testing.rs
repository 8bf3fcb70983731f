//! What tests share: annotated vectors, a seeded generator, and streams built without the code under
//! test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use haulage_proto::xdr::{Truncated, Writer};

/// Returns the sections of an annotated hex file: their names and their bytes.
pub(crate) fn vectors(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix("==") {
            sections.push((name.trim().to_owned(), String::new()));
        } else if !line.is_empty() {
            let section = sections.last_mut().expect("bytes stand in a section");
            section.1.extend(line.chars().filter(|c| !c.is_whitespace()));
        }
    }
    assert!(!sections.is_empty(), "a file has vectors");
    sections.into_iter().map(|(name, digits)| (name, bytes(&digits))).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "half an octet: {digits}");
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex")).collect()
}

/// Returns what `encode` writes.
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

/// splitmix64: the same numbers for the same seed, on every machine.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) const fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    pub(crate) fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    /// One of `all`.
    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// At most `max` octets.
    pub(crate) fn octets(&mut self, max: usize) -> &'static [u8] {
        let length = self.below(max + 1);
        let start = self.below(OCTETS.len() - length + 1);
        &OCTETS[start..start + length]
    }

    /// Changes a few octets of `bytes`, or its length.
    pub(crate) fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            match self.below(4) {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, self.octets(1).first().copied().unwrap_or(0)),
                // Words are small or huge where it matters.
                2 if bytes.len() >= at + 4 => {
                    let word = self.of(&[0, 1, 2, 3, 64, 65, 4096, 4097, 0x7fff_ffff, u32::MAX]);
                    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
                }
                _ if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                _ => {}
            }
        }
    }
}

/// What random items are cut from.
static OCTETS: [u8; 8192] = {
    let mut octets = [0; 8192];
    let mut rng = Rng::new(0x6e66_7333);
    let mut at = 0;
    while at < octets.len() {
        octets[at] = rng.next().to_be_bytes()[0];
        at += 1;
    }
    octets
};

/// An empty directory of a test's own, gone with it.
#[derive(Debug)]
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("haulage-store-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        // One of the same name is what a killed run left.
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
