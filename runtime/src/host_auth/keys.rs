//! Host keys, and the text files they are kept in.
//!
//! A secret key is a file with one line of 64 hexadecimal digits, the seed of an Ed25519 key, that only its owner may
//! read; [`SecretKey::create`] makes one. Known hosts are a file with one line for each: its name, a space, and the 64 digits
//! of its public key. In both files, remarks, which begin with `#`, and empty lines are ignored.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use hex::FromHex as _;
use thiserror::Error;
use zeroize::Zeroizing;

use super::nonce;
use crate::sys::private::{self, Fault, Others};

/// The key with which a host proves its identity. Its memory is wiped when it is dropped.
pub struct SecretKey(SigningKey);

/// The key by which other hosts know a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// The hosts that are accepted as peers: their keys and names. A key may have several names, and a name several keys.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts(BTreeMap<[u8; PublicKey::LEN], KnownHost>);

/// A key, and the names of its hosts in the order in which they were given. There is at least one.
#[derive(Clone, Debug)]
struct KnownHost {
    key: PublicKey,
    names: Vec<Arc<str>>,
}

/// Why keys could not be read.
#[derive(Debug, Error)]
pub enum KeyFault {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Unreadable(#[source] io::Error),
    /// The file is no regular file of this user's own: others may read a secret, or change who is known.
    #[error(transparent)]
    Exposed(Fault),
    /// A line of a secret is not 64 hexadecimal digits.
    #[error("line {line}: a key is 64 hexadecimal digits")]
    NotAKey {
        /// The line, from 1.
        line: usize,
    },
    /// A line of known hosts is not a name and a key.
    #[error(
        "line {line}: a known host is a name, a space, and its public key of 64 hexadecimal digits"
    )]
    NotAHost {
        /// The line, from 1.
        line: usize,
    },
    /// A line of known hosts has the key first.
    #[error("line {line}: the key is first: put the name of its host in front of it, and a space")]
    KeyFirst {
        /// The line, from 1.
        line: usize,
    },
    /// A line's digits are not a public key that can be trusted.
    #[error("line {line}: not a usable Ed25519 public key")]
    Weak {
        /// The line, from 1.
        line: usize,
    },
    /// The file of a secret is too long.
    #[error("it is longer than {SECRET_FILE_MAX} octets")]
    TooLong,
    /// There is no key in the file of a secret.
    #[error("there is no key in it")]
    Missing,
    /// There is more than one key in the file of a secret.
    #[error("line {line}: a second secret key")]
    TooMany {
        /// The line of the second key, from 1.
        line: usize,
    },
}

impl From<io::Error> for KeyFault {
    fn from(error: io::Error) -> Self {
        match error.downcast() {
            Ok(fault) => Self::Exposed(fault),
            Err(error) => Self::Unreadable(error),
        }
    }
}

impl SecretKey {
    /// Makes the key of a seed, which must be random and known to nobody else.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// Makes a key, and a file for it that only this process's user can read.
    ///
    /// # Errors
    /// There is something of that name, the file cannot be written, or the system has no randomness.
    pub fn create(path: &Path) -> io::Result<Self> {
        let seed = Zeroizing::new(nonce::chance().map_err(io::Error::other)?);
        let mut digits = Zeroizing::new([0; 64]);
        hex::encode_to_slice(seed.as_slice(), digits.as_mut_slice()).map_err(io::Error::other)?;
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(digits.as_slice())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        Ok(Self::from_seed(&seed))
    }

    /// Reads a file, which must belong to this process's user or root, and which nobody else may be able to read.
    pub fn read(path: &Path) -> Result<Self, KeyFault> {
        let mut file = private::read(path, Others::Nothing)?;
        // A buffer of fixed size never moves, so no copy of the secret is left behind.
        let mut memory = Zeroizing::new([0; SECRET_FILE_MAX + 1]);
        let mut length = 0;
        while let Some(room) = memory.get_mut(length..).filter(|room| !room.is_empty()) {
            match file.read(room).map_err(KeyFault::Unreadable)? {
                0 => break,
                count => length += count,
            }
        }
        let octets = memory.get(..length).filter(|octets| octets.len() <= SECRET_FILE_MAX);
        text(octets.ok_or(KeyFault::TooLong)?)?.parse()
    }

    /// Returns the key by which other hosts know this host.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(super) fn sign(&self, statement: &[u8]) -> [u8; Signature::BYTE_SIZE] {
        self.0.sign(statement).to_bytes()
    }
}

impl FromStr for SecretKey {
    type Err = KeyFault;

    fn from_str(text: &str) -> Result<Self, KeyFault> {
        let mut found = None;
        for (line, content) in lines(text) {
            let seed = <[u8; 32]>::from_hex(content).map_err(|_| KeyFault::NotAKey { line })?;
            let seed = Zeroizing::new(seed);
            if found.is_some() {
                return Err(KeyFault::TooMany { line });
            }
            found = Some(Self::from_seed(&seed));
        }
        found.ok_or(KeyFault::Missing)
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

impl PublicKey {
    /// Octets of a public key.
    pub const LEN: usize = 32;

    /// Returns the key with these octets; `None` if they are no key, or a weak one for which anybody can sign.
    pub fn from_octets(octets: &[u8; Self::LEN]) -> Option<Self> {
        VerifyingKey::from_bytes(octets).ok().filter(|key| !key.is_weak()).map(Self)
    }

    /// Returns the key's octets.
    pub fn octets(&self) -> &[u8; Self::LEN] {
        self.0.as_bytes()
    }

    pub(super) fn verifies(&self, statement: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(statement, &Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.octets().iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl KnownHosts {
    /// Reads a file, which must belong to this process's user or root, and which nobody else may be able to write. A file
    /// without a host accepts no peer.
    pub fn read(path: &Path) -> Result<Self, KeyFault> {
        let mut octets = Vec::new();
        private::read(path, Others::Read)?.read_to_end(&mut octets)?;
        let not_text = |fault| match fault {
            KeyFault::NotAKey { line } => KeyFault::NotAHost { line },
            other => other,
        };
        text(&octets).map_err(not_text)?.parse()
    }

    /// Adds a host.
    pub fn add(&mut self, name: &str, key: PublicKey) {
        let new = || KnownHost { key, names: Vec::new() };
        self.0.entry(*key.octets()).or_insert_with(new).names.push(name.into());
    }

    /// Returns the hosts with names that `is_meant` accepts.
    #[must_use]
    pub fn named(&self, mut is_meant: impl FnMut(&str) -> bool) -> Self {
        let mut meant = Self::default();
        for KnownHost { key, names } in self.0.values() {
            names.iter().filter(|name| is_meant(name)).for_each(|name| meant.add(name, *key));
        }
        meant
    }

    /// Returns whether no host is known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the known key with these octets.
    pub fn get(&self, octets: &[u8; PublicKey::LEN]) -> Option<PublicKey> {
        self.0.get(octets).map(|host| host.key)
    }

    /// Returns the name of the host whose key has these octets: the first one that was given.
    pub fn name(&self, octets: &[u8]) -> Option<Arc<str>> {
        let octets = <&[u8; PublicKey::LEN]>::try_from(octets).ok()?;
        self.0.get(octets)?.names.first().cloned()
    }
}

impl FromStr for KnownHosts {
    type Err = KeyFault;

    fn from_str(text: &str) -> Result<Self, KeyFault> {
        let mut hosts = Self::default();
        for (line, content) in lines(text) {
            let mut words = content.split_whitespace();
            let (name, digits) = (words.next().unwrap_or_default(), words.next());
            if <[u8; PublicKey::LEN]>::from_hex(name).is_ok() {
                return Err(KeyFault::KeyFirst { line });
            }
            let key = digits.and_then(|digits| <[u8; PublicKey::LEN]>::from_hex(digits).ok());
            let is_over = words.next().is_none_or(|word| word.starts_with('#'));
            let is_name = name.len() <= NAME_MAX && !name.chars().any(char::is_control);
            let Some(octets) = key.filter(|_| is_over && is_name) else {
                return Err(KeyFault::NotAHost { line });
            };
            let key = PublicKey::from_octets(&octets).ok_or(KeyFault::Weak { line })?;
            hosts.add(name, key);
        }
        Ok(hosts)
    }
}

/// Returns the text of a file.
fn text(octets: &[u8]) -> Result<&str, KeyFault> {
    str::from_utf8(octets).map_err(|error| {
        let before = octets.get(..error.valid_up_to()).unwrap_or_default();
        KeyFault::NotAKey { line: 1 + before.iter().filter(|octet| **octet == b'\n').count() }
    })
}

/// Returns the lines that are neither empty nor remarks, with their numbers from 1.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// Octets of the longest name of a host.
const NAME_MAX: usize = 255;

/// Octets of a secret key's file: a line of 64 digits, and remarks.
const SECRET_FILE_MAX: usize = 4096;

#[cfg(test)]
mod tests;
