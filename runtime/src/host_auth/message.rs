//! The four messages of host authentication.
//!
//! ```text
//! client hello:  'H' 'A' 1 1   nonce[32]  public key[32]
//! server hello:  'H' 'A' 1 2   nonce[32]  public key[32]  signature[64]
//! client proof:  'H' 'A' 1 3                              signature[64]
//! server proof:  'H' 'A' 1 4                              signature[64]
//! ```

use haulage_proto::v2::connection::Role;
use haulage_proto::v2::host_auth::{Refused, WHOLE_MAX};
use haulage_proto::xdr::Reader;

use super::keys::PublicKey;
use super::nonce::Nonce;

/// Octets of the longest message.
pub const MESSAGE_MAX: usize = TAG + Nonce::LEN + PublicKey::LEN + SIGNATURE;

/// The kinds of message, in the order in which they are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ClientHello,
    ServerHello,
    ClientProof,
    ServerProof,
}

/// A message of the kind that was due, borrowed from what arrived.
#[derive(Debug)]
pub(super) struct Message<'a> {
    /// The nonce and the public key of a hello.
    pub(super) identity: Option<(&'a [u8; Nonce::LEN], &'a [u8; PublicKey::LEN])>,
    /// The octets before the signature, which the signature covers.
    pub(super) said: &'a [u8],
    pub(super) signature: Option<&'a [u8; SIGNATURE]>,
}

impl Kind {
    pub(super) const fn author(self) -> Role {
        match self {
            Self::ClientHello | Self::ClientProof => Role::Client,
            Self::ServerHello | Self::ServerProof => Role::Server,
        }
    }

    /// Returns whether it travels in a FINAL; if not, in a MIDDLE.
    pub(super) const fn is_final(self) -> bool {
        matches!(self, Self::ClientProof | Self::ServerProof)
    }

    pub(super) const fn is_signed(self) -> bool {
        !matches!(self, Self::ClientHello)
    }

    pub(super) const fn next(self) -> Option<Self> {
        match self {
            Self::ClientHello => Some(Self::ServerHello),
            Self::ServerHello => Some(Self::ClientProof),
            Self::ClientProof => Some(Self::ServerProof),
            Self::ServerProof => None,
        }
    }

    /// Returns the octets that the message begins with.
    pub(super) const fn tag(self) -> [u8; TAG] {
        let number = match self {
            Self::ClientHello => 1,
            Self::ServerHello => 2,
            Self::ClientProof => 3,
            Self::ServerProof => 4,
        };
        [b'H', b'A', FORMAT, number]
    }

    fn of_tag(tag: &[u8]) -> Option<Self> {
        let all = [Self::ClientHello, Self::ServerHello, Self::ClientProof, Self::ServerProof];
        all.into_iter().find(|kind| kind.tag() == tag)
    }
}

impl<'a> Message<'a> {
    /// Appends all of a message but its signature to `out`.
    pub(super) fn begin(kind: Kind, nonce: &Nonce, key: &PublicKey, out: &mut Vec<u8>) {
        out.extend_from_slice(&kind.tag());
        if !kind.is_final() {
            out.extend_from_slice(nonce.octets());
            out.extend_from_slice(key.octets());
        }
    }

    /// Parses a message from the peer, which must be of the kind `due`.
    pub(super) fn decode(due: Kind, octets: &'a [u8]) -> Result<Self, Refused> {
        let mut r = Reader::new(octets);
        let tag = take::<TAG>(&mut r)?;
        match Kind::of_tag(tag) {
            Some(kind) if kind == due => {}
            Some(kind) if kind.author() != due.author() => return Err(Refused::Reflected),
            _ => return Err(Refused::Malformed),
        }
        let identity = if due.is_final() { None } else { Some((take(&mut r)?, take(&mut r)?)) };
        let said = octets.get(..r.position()).unwrap_or_default();
        let signature = if due.is_signed() { Some(take(&mut r)?) } else { None };
        if r.is_empty() { Ok(Self { identity, said, signature }) } else { Err(Refused::Malformed) }
    }
}

fn take<'a, const N: usize>(r: &mut Reader<'a>) -> Result<&'a [u8; N], Refused> {
    let octets = r.take(N).map_err(|_| Refused::Malformed)?;
    octets.try_into().map_err(|_| Refused::Malformed)
}

const TAG: usize = 4;
/// Octets of an Ed25519 signature.
pub(super) const SIGNATURE: usize = 64;
/// Number of the message format, and so of its cryptographic primitives: another number is another protocol.
const FORMAT: u8 = 1;

// Each message fits one CONNPROP message, which settles what its signature covers.
const _: () = assert!(MESSAGE_MAX <= WHOLE_MAX);
