//! Host keys, and the text files they are kept in.
//!
//! A secret key is a file with one line of 64 hexadecimal digits, the seed of an Ed25519 key, that only its owner may
//! read; `openssl rand -hex 32` makes one. Known peers are a file with one line for each: the 64 digits of its public
//! key and, behind a space, any remark. In both files, empty lines and lines that begin with `#` are ignored.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _};
use std::path::Path;
use std::str::FromStr;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use hex::FromHex as _;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::sys::private::{self, Fault, Others};

/// Our secret key, and the peers that we accept.
#[derive(Debug)]
pub struct HostKeys {
    /// Our own key.
    pub secret: SecretKey,
    /// The accepted peers. Our own key is not among them unless it was put there.
    pub known: KnownPeers,
}

/// The key with which a host proves its identity. Its memory is wiped when it is dropped.
pub struct SecretKey(SigningKey);

/// The key by which other hosts know a host.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// The hosts that are accepted as peers.
#[derive(Clone, Debug, Default)]
pub struct KnownPeers(BTreeMap<[u8; PublicKey::LEN], PublicKey>);

/// Why keys could not be read.
#[derive(Debug, Error)]
pub enum KeyFault {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Unreadable(#[source] io::Error),
    /// The file is no regular file of this user's own: others may read a secret, or change who is known.
    #[error(transparent)]
    Exposed(Fault),
    /// A line does not begin with 64 hexadecimal digits, or a line of a secret has more than these.
    #[error("line {line}: a key is 64 hexadecimal digits")]
    NotAKey {
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

impl KnownPeers {
    /// Reads a file, which must belong to this process's user or root, and which nobody else may be able to write. A file
    /// without a key accepts no peer.
    pub fn read(path: &Path) -> Result<Self, KeyFault> {
        let mut text = String::new();
        private::read(path, Others::Read)?.read_to_string(&mut text)?;
        text.parse()
    }

    /// Returns the known key with these octets.
    pub fn get(&self, octets: &[u8; PublicKey::LEN]) -> Option<PublicKey> {
        self.0.get(octets).copied()
    }
}

impl FromIterator<PublicKey> for KnownPeers {
    fn from_iter<I: IntoIterator<Item = PublicKey>>(keys: I) -> Self {
        Self(keys.into_iter().map(|key| (*key.octets(), key)).collect())
    }
}

impl FromStr for KnownPeers {
    type Err = KeyFault;

    fn from_str(text: &str) -> Result<Self, KeyFault> {
        let key = |(line, content): (usize, &str)| {
            let digits = content.split_whitespace().next().unwrap_or_default();
            let octets = <[u8; 32]>::from_hex(digits).map_err(|_| KeyFault::NotAKey { line })?;
            PublicKey::from_octets(&octets).ok_or(KeyFault::Weak { line })
        };
        lines(text).map(key).collect()
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

/// Octets of a secret key's file: a line of 64 digits, and remarks.
const SECRET_FILE_MAX: usize = 4096;

#[cfg(test)]
mod tests;
