//! Host authentication (section 5.2.6): the exchange of messages, for an authenticator that the caller supplies.
//!
//! The draft carries authentication material in property 6 of CONNPROP messages and does not finish its definition
//! (E11). Here the material is octets that the connection passes to an [`Authenticator`] and receives from it; the
//! authenticator of the runtime uses public-key signatures.
//!
//! # Normal operation
//! Under [`Policy::Off`] the authenticator is never called, and property 6 of the peer is ignored.
//! Otherwise the client's first message carries property 6, and a server whose policy is not `Off`
//! answers with property 6. From then on, until both ends have sent `RDMA2_CONNPROP_FINAL`, every
//! CONNPROP message is passed to the authenticator in wire order:
//!
//! - a message to be sent: [`hear`](Authenticator::hear), then [`send`](Authenticator::send), whose octets, if any,
//!   become property 6 of the message;
//! - a received message: `hear`, then [`receive`](Authenticator::receive) with the octets of its property 6, which are
//!   empty if it has none.
//!
//! The first two messages differ only in that the peer may turn out not to authenticate: a first
//! message of the peer without property 6 is not passed to `receive`, and no further call is made.
//! [`Policy::requires`] says whether the connection goes on without.
//!
//! This end may send its FINAL only if the last result was [`Progress::Done`], so the client's first message and the
//! server's answer to a MIDDLE are MIDDLEs. The server's FINAL answers the client's. The peer is authenticated once
//! both FINALs were passed to the authenticator and no call returned [`Refused`]: `Done` alone does not suffice,
//! because later messages still count.
//!
//! # Recovery
//! A refusal closes the connection under any policy: only a peer that never sent property 6 may remain unauthenticated,
//! and only under `Optional`. If both ends use `Optional`, an attacker who can change messages in flight can therefore
//! remove the property undetected; `Required` at either end prevents this.

use alloc::vec::Vec;
use core::fmt;

use super::properties::ConnPropKind;
use crate::engine::Role;

/// The host authentication policy of one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// This end does not authenticate.
    #[default]
    Off,
    /// This end authenticates if the peer does.
    Optional,
    /// No RPC message is exchanged before the peer has authenticated. Version 1 and plain TCP have no host
    /// authentication, so they are neither used nor fallen back to under this policy (P9).
    Required,
}

impl Policy {
    /// Returns whether this end sends property 6.
    pub const fn offers(self) -> bool {
        //~ V2-11.1.1-1: `!matches!(self, Self::Off)` -> `matches!(self, Self::Required)`
        !matches!(self, Self::Off)
    }

    /// Returns whether a peer without property 6 is refused.
    pub const fn requires(self) -> bool {
        matches!(self, Self::Required)
    }
}

/// The progress of an authenticator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Another message must be exchanged: the next message of this end is not its FINAL.
    More,
    /// The next message of this end may be its FINAL, if that was not sent yet.
    Done,
}

/// Why an authenticator refuses the peer. The reason reveals no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The peer's octets are not those of the message expected.
    Malformed,
    /// One end completed its properties before the authentication was finished.
    Unfinished,
    /// The peer's identity is not accepted.
    UnknownPeer,
    /// The peer's proof does not match the messages of both ends.
    WrongProof,
    /// The peer reflected the octets that this end sent.
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

/// The host authentication of one end of one connection.
pub trait Authenticator: fmt::Debug + Send {
    /// Sets the parameters agreed outside CONNPROP messages. Called once, before any other method.
    ///
    /// The private data is that of the connection's establishment, empty if there was none.
    fn bind(
        &mut self,
        role: Role,
        version: u32,
        client_private_data: &[u8],
        server_private_data: &[u8],
    );

    /// Takes the properties of one sent or received CONNPROP message, except host authentication, as they are encoded
    /// one after the other (code point, length, value, padding of zeros), without their count.
    ///
    /// Called before the host authentication octets of the same message are produced or consumed.
    fn hear(&mut self, from: Role, kind: ConnPropKind, properties: &[u8]);

    /// Appends the host authentication octets of the message passed to [`Self::hear`] last, which
    /// this end sends, to `out`.
    ///
    /// Up to [`WHOLE_MAX`] octets always fit that message. Octets that do not fit are carried by the next messages of
    /// this end, which are passed to `hear` but not to `send`.
    fn send(&mut self, out: &mut Vec<u8>) -> Result<Progress, Refused>;

    /// Takes the host authentication octets of the message passed to [`Self::hear`] last, which the peer sent: all its
    /// values of property 6, one after the other.
    fn receive(&mut self, octets: &[u8]) -> Result<Progress, Refused>;

    /// Returns the identity that the peer has proved, in the authenticator's own format, or `None`
    /// if it has not.
    fn peer(&self) -> Option<&[u8]> {
        None
    }

    /// Returns the identity that the peer claims, proved or not, for reports.
    fn claimed(&self) -> Option<&[u8]> {
        self.peer()
    }
}

/// The number of octets of one [`Authenticator::send`] that always fit one message.
pub const WHOLE_MAX: usize = 256;
