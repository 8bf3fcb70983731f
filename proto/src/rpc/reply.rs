//! The header of a Reply (RFC 5531 section 9).

use super::REPLY;
use super::auth::Credential;
pub use super::stat::{AcceptStat, RejectStat};
use crate::xdr::{Reader, Truncated, Writer};

/// The header of a Reply, which precedes its results. Encoding writes AUTH_NONE as the verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The XID of the Call.
    pub xid: u32,
    /// Whether the Call was accepted, and its status.
    pub body: ReplyBody,
}

/// Whether a Call was accepted, and its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyBody {
    /// The Call was accepted, with this status.
    Accepted(AcceptStat),
    /// The Call was denied, for this reason.
    Denied(RejectStat),
}

/// Why a Reply's header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyFault {
    /// The header ends early.
    Truncated(Truncated),
    /// The message is not a Reply.
    NotAReply,
    /// A discriminator has a value that RPC does not define.
    Unknown,
}

impl From<Truncated> for ReplyFault {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

impl ReplyHeader {
    /// The length of the header of a successful Reply with the verifier AUTH_NONE, in octets.
    pub const SUCCESS_LEN: usize = 24;

    /// Makes the header of the Reply to an accepted Call.
    pub const fn accepted(xid: u32, stat: AcceptStat) -> Self {
        Self { xid, body: ReplyBody::Accepted(stat) }
    }

    /// Returns whether `payload` starts with the header of a successful Reply with the verifier AUTH_NONE, which has
    /// [`SUCCESS_LEN`](Self::SUCCESS_LEN) octets.
    #[doc(hidden)]
    #[inline]
    pub fn is_plain(payload: &[u8]) -> bool {
        payload.get(4..).is_some_and(|rest| rest.starts_with(&ACCEPTED))
    }

    /// Parses the header at the start of `payload`. Returns it and the offset of the results.
    #[inline]
    pub fn decode(payload: &[u8]) -> Result<(Self, usize), ReplyFault> {
        if let Some((xid, rest)) = payload.split_first_chunk()
            && rest.starts_with(&ACCEPTED)
        {
            let header = Self::accepted(u32::from_be_bytes(*xid), AcceptStat::Success);
            return Ok((header, Self::SUCCESS_LEN));
        }
        let mut r = Reader::new(payload);
        let xid = r.u32()?;
        if r.u32()? != REPLY {
            return Err(ReplyFault::NotAReply);
        }
        let body = match r.u32()? {
            0 => {
                Credential::decode(&mut r)?;
                ReplyBody::Accepted(match r.u32()? {
                    0 => AcceptStat::Success,
                    1 => AcceptStat::ProgUnavail,
                    2 => AcceptStat::ProgMismatch { low: r.u32()?, high: r.u32()? },
                    3 => AcceptStat::ProcUnavail,
                    4 => AcceptStat::GarbageArgs,
                    5 => AcceptStat::SystemErr,
                    _ => return Err(ReplyFault::Unknown),
                })
            }
            1 => ReplyBody::Denied(match r.u32()? {
                0 => RejectStat::RpcMismatch { low: r.u32()?, high: r.u32()? },
                1 => RejectStat::AuthError(r.u32()?),
                _ => return Err(ReplyFault::Unknown),
            }),
            _ => return Err(ReplyFault::Unknown),
        };
        Ok((Self { xid, body }, r.position()))
    }

    /// Appends the header to `w`.
    #[inline]
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self.body {
            ReplyBody::Accepted(AcceptStat::Success) => {
                // With AUTH_NONE for a verifier.
                //~ R8167-5.2-2: `REPLY` -> `0`
                //~ V2-4.6.2-1: `self.xid` -> `self.xid ^ 1`
                w.words([self.xid, REPLY, 0, 0, 0, 0])
            }
            _ => self.encode_other(w),
        }
    }

    fn encode_other(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.words([self.xid, REPLY])?;
        match self.body {
            ReplyBody::Accepted(stat) => {
                w.u32(0)?;
                Credential::None.encode(w)?;
                match stat {
                    AcceptStat::Success => w.u32(0),
                    AcceptStat::ProgUnavail => w.u32(1),
                    AcceptStat::ProgMismatch { low, high } => three(w, 2, low, high),
                    AcceptStat::ProcUnavail => w.u32(3),
                    AcceptStat::GarbageArgs => w.u32(4),
                    AcceptStat::SystemErr => w.u32(5),
                }
            }
            ReplyBody::Denied(stat) => {
                w.u32(1)?;
                match stat {
                    RejectStat::RpcMismatch { low, high } => three(w, 0, low, high),
                    RejectStat::AuthError(stat) => {
                        w.u32(1)?;
                        w.u32(stat)
                    }
                }
            }
        }
    }
}

fn three(w: &mut Writer<'_>, a: u32, b: u32, c: u32) -> Result<(), Truncated> {
    w.u32(a)?;
    w.u32(b)?;
    w.u32(c)
}

/// The words after the XID in most Replies: Reply, accepted, AUTH_NONE, success.
const ACCEPTED: [u8; 20] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
