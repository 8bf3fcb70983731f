//! Numbers used once.

use thiserror::Error;

/// A number that no other connection uses. It travels in the clear.
pub(super) struct Nonce([u8; Self::LEN]);

/// The system gave no random octets, without which a recorded handshake could be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the system has no randomness for host authentication")]
pub struct NoEntropy;

impl Nonce {
    pub(super) const LEN: usize = 32;

    /// Takes a nonce from the system's random source.
    pub(super) fn fresh() -> Result<Self, NoEntropy> {
        Ok(Self(chance()?))
    }

    /// Makes a nonce that can be repeated.
    #[cfg(test)]
    pub(super) const fn fixed(octets: [u8; Self::LEN]) -> Self {
        Self(octets)
    }

    pub(super) const fn octets(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

/// Takes octets from the system's random source.
pub(super) fn chance<const LEN: usize>() -> Result<[u8; LEN], NoEntropy> {
    let mut octets = [0; LEN];
    getrandom::fill(&mut octets).map_err(|_| NoEntropy)?;
    Ok(octets)
}
