//! The header of a Call (RFC 5531 section 9).

use super::reply::{RejectStat, ReplyBody, ReplyHeader};
use super::{Binding, CALL, Credential, RPC_VERSION};
use crate::xdr::{Reader, Truncated, Writer};

/// The header of a Call, which precedes its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeader<'a> {
    /// The XID, which the Requester chooses.
    pub xid: u32,
    /// The program number.
    pub program: u32,
    /// The program version.
    pub version: u32,
    /// The procedure number.
    pub procedure: u32,
    /// The credential of the caller.
    pub credential: Credential<'a>,
    /// The verifier of the credential.
    pub verifier: Credential<'a>,
}

/// Why a Call's header was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallFault {
    /// The header ends early, or a credential or verifier is too long.
    Truncated(Truncated),
    /// The message is not a Call.
    NotACall,
    /// The Call has another RPC version.
    RpcVersion,
}

impl From<Truncated> for CallFault {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

impl CallFault {
    /// Returns the Reply with which the RPC layer answers the fault, if it answers at all.
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
    /// Makes the header of an anonymous Call: credential and verifier are AUTH_NONE.
    pub const fn new(xid: u32, program: u32, version: u32, procedure: u32) -> Self {
        let (credential, verifier) = (Credential::None, Credential::None);
        Self { xid, program, version, procedure, credential, verifier }
    }

    /// Parses the header at the start of `payload`. Returns it and the offset of the arguments.
    #[inline]
    pub fn decode(payload: &'a [u8]) -> Result<(Self, usize), CallFault> {
        let mut r = Reader::new(payload);
        let [xid, kind, rpc, program, version, procedure] = match r.rest().first_chunk() {
            Some(front) => words(front),
            None => return Err(Self::fault_of_short(r)),
        };
        if kind != CALL {
            return Err(CallFault::NotACall);
        }
        if rpc != RPC_VERSION {
            return Err(CallFault::RpcVersion);
        }
        r.take(CREDENTIAL_AT)?;
        let header = Self {
            xid,
            program,
            version,
            procedure,
            credential: Credential::decode(&mut r)?,
            verifier: Credential::decode(&mut r)?,
        };
        Ok((header, r.position()))
    }

    /// Returns the fault of a Call that ends before its credential.
    #[cold]
    fn fault_of_short(mut r: Reader<'_>) -> CallFault {
        let [_, kind, rpc] = [(); 3].map(|()| r.u32().ok());
        if kind.is_some_and(|kind| kind != CALL) {
            return CallFault::NotACall;
        }
        if rpc.is_some_and(|rpc| rpc != RPC_VERSION) {
            return CallFault::RpcVersion;
        }
        while r.u32().is_ok() {}
        CallFault::Truncated(Truncated { at: r.position() })
    }

    /// Returns the credential of a Call whose header [`Self::decode`] has accepted before.
    #[doc(hidden)]
    pub fn credential_of(payload: &'a [u8]) -> Credential<'a> {
        let at_credential = payload.get(CREDENTIAL_AT..).unwrap_or_default();
        Credential::decode(&mut Reader::new(at_credential)).unwrap_or(Credential::None)
    }

    /// Returns the program, its version and the procedure that a Call asks for, whatever the rest of its header says.
    #[doc(hidden)]
    #[inline]
    pub fn asked(payload: &[u8]) -> Option<[u32; 3]> {
        let [_, _, _, program, version, procedure] = words(payload.first_chunk()?);
        Some([program, version, procedure])
    }

    /// Returns the arguments of a Call, whatever its header says before them.
    #[doc(hidden)]
    pub fn arguments_of(payload: &[u8]) -> Option<&[u8]> {
        let mut rest = payload.get(CREDENTIAL_AT..)?;
        // The credential, then the verifier: each a flavor, a length and as many octets, padded.
        for _ in 0..2 {
            let length = u32::from_be_bytes(*rest.get(4..)?.first_chunk()?);
            let octets = (length as usize).checked_next_multiple_of(4)?;
            rest = rest.get(8..)?.get(octets..)?;
        }
        Some(rest)
    }

    /// The length of a header whose credential and verifier are AUTH_NONE, in octets.
    pub const PLAIN_LEN: usize = PLAIN_LEN;

    /// Appends the header to `w`.
    #[inline]
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let Self { xid, program, version, procedure, .. } = *self;
        if let (Credential::None, Credential::None) = (self.credential, self.verifier) {
            // AUTH_NONE, twice.
            //~ R8167-5.1-2: `CALL` -> `1`
            //~ V2-4.6.1-1: `[xid` -> `[xid ^ 1`
            return w.words([xid, CALL, RPC_VERSION, program, version, procedure, 0, 0, 0, 0]);
        }
        w.words([xid, CALL, RPC_VERSION, program, version, procedure])?;
        self.credential.encode(w)?;
        self.verifier.encode(w)
    }
}

/// Returns the words of the front of a Call, up to its credential.
#[inline]
fn words(front: &[u8; CREDENTIAL_AT]) -> [u32; 6] {
    let mut words = [0; 6];
    let octets = front.as_chunks().0;
    words.iter_mut().zip(octets).for_each(|(word, octets)| *word = u32::from_be_bytes(*octets));
    words
}

const PLAIN_LEN: usize = 40;
/// The offset of the procedure.
const PROCEDURE_AT: usize = 20;
/// The offset of the credential.
const CREDENTIAL_AT: usize = 24;

/// A matcher for the anonymous Calls of one program, whose credential and verifier are AUTH_NONE.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct PlainCalls {
    /// The words after the XID: message type, RPC version, program, program version.
    words: [u8; 16],
    procedures: usize,
}

impl PlainCalls {
    /// Creates the matcher for the anonymous Calls of a binding's program.
    pub fn of(binding: &Binding) -> Self {
        let Binding { program, version, procedures } = binding;
        let mut words = [0; 16];
        let each = [CALL, RPC_VERSION, *program, *version].map(u32::to_be_bytes);
        words.copy_from_slice(each.as_flattened());
        Self { words, procedures: procedures.len() }
    }

    /// Makes the matcher match no Call, for a program that refuses anonymous Calls.
    #[must_use]
    pub const fn refused(self) -> Self {
        Self { procedures: 0, ..self }
    }

    /// Returns the procedure of an anonymous Call, if the program has it. The arguments start after
    /// [`PLAIN_LEN`](CallHeader::PLAIN_LEN) octets.
    ///
    /// [`CallHeader::decode`] decodes the same header; recognising only this form is faster.
    #[inline]
    pub fn procedure(&self, payload: &[u8]) -> Option<u32> {
        let header = payload.first_chunk::<PLAIN_LEN>()?;
        let is_plain = header[4..PROCEDURE_AT] == self.words && header[CREDENTIAL_AT..] == [0; 16];
        let procedure = u32::from_be_bytes(*header[PROCEDURE_AT..].first_chunk()?);
        (is_plain && (procedure as usize) < self.procedures).then_some(procedure)
    }

    /// Returns the procedure number of an anonymous Call of this program, version and procedure, if the program has it.
    #[inline]
    pub fn procedure_of(&self, [program, version, procedure]: [u32; 3]) -> Option<u32> {
        let asked = [program, version].map(u32::to_be_bytes);
        let is_ours = self.words[8..] == *asked.as_flattened();
        (is_ours && (procedure as usize) < self.procedures).then_some(procedure)
    }
}

/// A matcher for the Calls whose header is that of an earlier Call but for the XID and the procedure.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct LikeCalls<'a> {
    front: &'a [u8; CREDENTIAL_AT],
    /// Credential and verifier.
    rest: &'a [u8],
}

impl<'a> LikeCalls<'a> {
    /// Creates the matcher for Calls like the one that `payload` begins with. [`CallHeader::decode`] has accepted it, and
    /// found its arguments at `arguments_at`.
    #[inline]
    pub fn of(payload: &'a [u8], arguments_at: usize) -> Option<Self> {
        let (front, rest) = payload.get(..arguments_at)?.split_first_chunk()?;
        Some(Self { front, rest })
    }

    /// Returns the procedure of a Call under this XID that is like the earlier one. Its arguments start where those do.
    ///
    /// [`CallHeader::decode`] decodes the same header; comparing it is faster.
    #[inline]
    pub fn procedure(&self, xid: u32, payload: &[u8]) -> Option<u32> {
        let (front, behind) = payload.split_first_chunk::<CREDENTIAL_AT>()?;
        let is_like = front[..4] == xid.to_be_bytes()
            && front[4..PROCEDURE_AT] == self.front[4..PROCEDURE_AT]
            && behind.starts_with(self.rest);
        let procedure = u32::from_be_bytes(*front[PROCEDURE_AT..].first_chunk()?);
        is_like.then_some(procedure)
    }
}
