//! Host authentication (section 5.2.6): who says what when, for an authenticator that is plugged in.
//!
//! The draft carries the material in property 6 of CONNPROP messages and leaves what it is unfinished
//! (E11). Here it is octets that the connection passes to an [`Authenticator`] and takes from it; the
//! one that comes with the runtime signs with public keys.
//!
//! # Normal operation
//! Nothing is called while the policy is [`Policy::Off`]: property 6 of the peer is ignored then.
//! Otherwise the client's first message carries property 6, and a server whose policy is not `Off`
//! answers with property 6. From there on, until both ends have sent `RDMA2_CONNPROP_FINAL`, every
//! CONNPROP message is passed on in wire order:
//!
//! - one we send: [`hear`](Authenticator::hear), then [`send`](Authenticator::send), whose octets, if
//!   any, are its property 6;
//! - one we receive: `hear`, then [`receive`](Authenticator::receive) with the octets of its property
//!   6, none if it has none.
//!
//! The first two messages differ only in that the peer may turn out not to authenticate: a first
//! message of the peer without property 6 is not passed to `receive`, and no further call is made.
//! [`Policy::requires`] says whether the connection goes on without.
//!
//! A message may be our FINAL only if the last answer was [`Progress::Done`], so the client's first and
//! the server's answer to a MIDDLE are MIDDLEs. The server's FINAL answers the client's. The peer is
//! authenticated when both FINALs went through these calls and none was [`Refused`]: `Done` alone
//! does not say so, because what is heard later still counts.
//!
//! # Recovery
//! A refusal closes the connection, whatever the policy: only a peer that never showed property 6 may
//! remain unauthenticated, and only under `Optional`. With `Optional` at both ends whoever can change
//! messages in flight can therefore remove the property unseen; `Required` at either end prevents it.

use alloc::vec::Vec;
use core::fmt;

use super::properties::ConnPropKind;
use crate::engine::Role;

/// Whether the ends of a connection prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// We do not.
    #[default]
    Off,
    /// We do if the peer does.
    Optional,
    /// No RPC message passes before the peer has. Version 1 and plain TCP cannot authenticate, so they
    /// are not spoken, nor fallen back to, under this policy (P9).
    Required,
}

impl Policy {
    /// Returns whether we show property 6.
    pub const fn offers(self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Returns whether a peer without property 6 is turned away.
    pub const fn requires(self) -> bool {
        matches!(self, Self::Required)
    }
}

/// What an authenticator needs next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another message must be exchanged: the next one we send is not our FINAL.
    More,
    /// The next message we send may be our FINAL, if it was not sent yet.
    Done,
}

/// Why an authenticator ends the connection. Says nothing of any secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The peer's octets are not those of the message that was due.
    Malformed,
    /// One end's properties end while something is still to be proved.
    Unfinished,
    /// The peer shows an identity that is not one we accept.
    UnknownPeer,
    /// The peer's proof does not fit what both ends said.
    WrongProof,
    /// The peer sent back what we sent.
    Reflected,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "the peer's host authentication message cannot be parsed",
            Self::Unfinished => "the connection's properties ended before host authentication did",
            Self::UnknownPeer => "the peer's host key is not a known one",
            Self::WrongProof => "the peer's host authentication does not fit this connection",
            Self::Reflected => "the peer sent our own host authentication back",
        })
    }
}

impl core::error::Error for Refused {}

/// One end's part in one connection's host authentication.
pub trait Authenticator: fmt::Debug + Send {
    /// Takes, once and before all else, what was agreed outside CONNPROP.
    ///
    /// Private data is as it was carried by the connection's establishment, empty where there was none.
    fn bind(
        &mut self,
        role: Role,
        version: u32,
        client_private_data: &[u8],
        server_private_data: &[u8],
    );

    /// Takes the properties of one CONNPROP message, sent or received, other than host authentication:
    /// as they are encoded, one after the other (code point, length, value, padding of zeros), without
    /// their count.
    ///
    /// Called before that message's own host authentication octets are produced or consumed.
    fn hear(&mut self, from: Role, kind: ConnPropKind, properties: &[u8]);

    /// Appends the octets of the message last heard, which is ours, to `out`.
    ///
    /// Up to [`WHOLE_MAX`] octets travel in that message. Of more, what it has no room for travels in
    /// our next ones, which are heard and not asked for octets of their own.
    fn send(&mut self, out: &mut Vec<u8>) -> Result<Progress, Refused>;

    /// Takes the octets of the message last heard, which is the peer's: all its values of property 6,
    /// one after the other.
    fn receive(&mut self, octets: &[u8]) -> Result<Progress, Refused>;

    /// Returns the identity the peer has proved, once it has, in the authenticator's own terms.
    fn peer(&self) -> Option<&[u8]> {
        None
    }
}

/// Octets of one answer of [`Authenticator::send`] that always travel in one message.
pub const WHOLE_MAX: usize = 256;
