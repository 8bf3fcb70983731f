//! The header of a Call (RFC 5531 section 9).

use super::reply::{RejectStat, ReplyBody, ReplyHeader};
use super::{CALL, Credential, RPC_VERSION};
use crate::xdr::{Reader, Truncated, Writer};

/// What a Call says before its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// Chosen by the Requester.
    pub xid: u32,
    /// Program number.
    pub program: u32,
    /// Program version.
    pub version: u32,
    /// Procedure number.
    pub procedure: u32,
    /// Who calls.
    pub credential: Credential<'a>,
    /// What proves it.
    pub verifier: Credential<'a>,
}

/// Why a Call's header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// It ends early, or an opaque is longer than it may be.
    Truncated(Truncated),
    /// It is not a Call.
    NotACall,
    /// It speaks another version of RPC.
    RpcVersion,
}

impl From<Truncated> for CallFault {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

impl CallFault {
    /// Returns the Reply the RPC layer has for it, if it has one.
    pub const fn reply(self, xid: u32) -> Option<ReplyHeader> {
        match self {
            Self::RpcVersion => {
                let mismatch = RejectStat::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION };
                Some(ReplyHeader { xid, body: ReplyBody::Denied(mismatch) })
            }
            Self::Truncated(_) | Self::NotACall => None,
        }
    }
}

impl<'a> CallHeader<'a> {
    /// Makes the header of a Call from nobody in particular.
    pub const fn new(xid: u32, program: u32, version: u32, procedure: u32) -> Self {
        let (credential, verifier) = (Credential::None, Credential::None);
        Self { xid, program, version, procedure, credential, verifier }
    }

    /// Parses the header at the start of `payload`. Returns it and where the arguments start.
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<(Self, usize), CallFault> {
        let mut r = Reader::new(payload);
        let xid = r.u32()?;
        if r.u32()? != CALL {
            return Err(CallFault::NotACall);
        }
        if r.u32()? != RPC_VERSION {
            return Err(CallFault::RpcVersion);
        }
        let header = Self {
            xid,
            program: r.u32()?,
            version: r.u32()?,
            procedure: r.u32()?,
            credential: Credential::decode(&mut r)?,
            verifier: Credential::decode(&mut r)?,
        };
        Ok((header, r.position()))
    }

    /// Returns the program, version and procedure of a Call whose credential and verifier are
    /// AUTH_NONE: its header has [`PLAIN_LEN`](Self::PLAIN_LEN) octets, most of them known.
    #[inline]
    pub fn plain(payload: &[u8]) -> Option<[u32; 3]> {
        let (words, _) = payload.first_chunk::<PLAIN_LEN>()?.as_chunks::<4>();
        let [_, call, rpc, asked @ .., _, _, _, _] = words else { return None };
        let [program, version, procedure] = asked else { return None };
        let nobody = payload.get(24..PLAIN_LEN)? == [0; 16];
        let is_plain = nobody && (*call, *rpc) == (CALL.to_be_bytes(), RPC_VERSION.to_be_bytes());
        is_plain.then(|| [program, version, procedure].map(|word| u32::from_be_bytes(*word)))
    }

    /// Octets of a header without credential and verifier.
    pub const PLAIN_LEN: usize = PLAIN_LEN;

    /// Appends the header to `w`.
    #[inline]
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let Self { xid, program, version, procedure, .. } = *self;
        if let (Credential::None, Credential::None) = (self.credential, self.verifier) {
            // AUTH_NONE, twice.
            return w.words([xid, CALL, RPC_VERSION, program, version, procedure, 0, 0, 0, 0]);
        }
        w.words([xid, CALL, RPC_VERSION, program, version, procedure])?;
        self.credential.encode(w)?;
        self.verifier.encode(w)
    }
}

const PLAIN_LEN: usize = 40;
