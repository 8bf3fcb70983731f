//! The Connection Configuration Protocol (RFC 5666 section 6): program 100417, whose one procedure
//! exchanges the limits of both ends.
//!
//! It is an RPC program that uses the connection it configures. The client sends the message of [`encode_call`] as its
//! first Call, within the 1024 octets that every end accepts, and nothing else until [`decode_reply`] has read the
//! answer. A server passes Calls for [`PROGRAM`] to [`Service::answer`]. Ends that exchanged private data do not need
//! it.
//!
//! [`Limits`] says what each number limits from then on.

use crate::rpc::reply::ReplyFault;
use crate::rpc::{
    AcceptStat, CallFault, CallHeader, Credential, RejectStat, ReplyBody, ReplyHeader,
};
use crate::xdr::{Reader, Truncated, Writer};

/// The limits of one end, or those that both ends agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The length of the longest Call message that the client sends, in octets.
    pub call_size: u32,
    /// The length of the longest Reply message that the server sends, in octets.
    pub reply_size: u32,
    /// The most RDMA Reads of the server that the client's end serves at once.
    pub client_reads: u32,
    /// The most RDMA Reads of the client that the server's end serves at once.
    pub server_reads: u32,
    /// The alignment that the server prefers for the data of opaques in an `RDMA_MSGP`.
    pub align: u32,
}

impl Limits {
    /// Returns whether a client may send a Call with a Read list.
    pub const fn call_may_be_read(&self) -> bool {
        // [R5666-6.2-5] zero says that the server can issue no Reads, or that the client can serve none.
        //~ R5666-6.2-5: `&& self` -> `|| self`
        self.client_reads > 0 && self.server_reads > 0
    }

    /// Returns whether a server may answer with a Read list, where both honour `RDMA_DONE`.
    pub const fn reply_may_be_read(&self) -> bool {
        self.call_may_be_read()
    }
}

/// `config_rdma_req`: the arguments that a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The length of the longest Call message that the client would send, in octets.
    pub maxcall_sendsize: u32,
    /// The length of the longest Reply message that the client accepts, in octets.
    pub maxreply_sendsize: u32,
    /// The most RDMA Reads that the sender's end serves at once.
    pub maxrdmaread: u32,
}

/// `config_rdma_reply`: the results that a server returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The length of the longest Call message that the server accepts, in octets.
    pub maxcall_sendsize: u32,
    /// The alignment that the server prefers for opaques; zero for no preference.
    pub align: u32,
    /// The most RDMA Reads that the sender's end serves at once.
    pub maxrdmaread: u32,
}

impl Request {
    /// The encoded length in octets.
    pub const WIRE_LEN: usize = 12;

    /// Parses the arguments and advances `r`.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self { maxcall_sendsize: r.u32()?, maxreply_sendsize: r.u32()?, maxrdmaread: r.u32()? })
    }

    /// Appends the arguments to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.maxcall_sendsize)?;
        w.u32(self.maxreply_sendsize)?;
        w.u32(self.maxrdmaread)
    }

    /// Returns the limits of a client that sent this request and received `reply`.
    pub fn agreed(&self, reply: &Reply) -> Limits {
        Limits {
            // [R5666-6.2-1] [R5666-6.2-3] a Call is never longer than the server takes.
            //~ R5666-6.2-1: `self.maxcall_sendsize.min(reply.maxcall_sendsize)` -> `reply.maxcall_sendsize`
            //~ R5666-6.2-3: `.min(reply.maxcall_sendsize)` -> ``
            call_size: self.maxcall_sendsize.min(reply.maxcall_sendsize).max(SIZE_MIN),
            reply_size: self.maxreply_sendsize.max(SIZE_MIN),
            client_reads: self.maxrdmaread,
            server_reads: reply.maxrdmaread,
            align: reply.align,
        }
    }
}

impl Reply {
    /// Parses the results and advances `r`.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self { maxcall_sendsize: r.u32()?, align: r.u32()?, maxrdmaread: r.u32()? })
    }

    /// Appends the results to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.maxcall_sendsize)?;
        w.u32(self.align)?;
        w.u32(self.maxrdmaread)
    }
}

/// Appends the RPC message of a client's Call. [R5666-6.1-1] It is for those who want it.
pub fn encode_call(
    w: &mut Writer<'_>,
    xid: u32,
    credential: Credential<'_>,
    request: &Request,
) -> Result<(), Truncated> {
    CallHeader { credential, ..CallHeader::new(xid, PROGRAM, VERSION, CONF_RDMA) }.encode(w)?;
    request.encode(w)
}

/// Why a server's answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerFault {
    /// The answer is not an RPC Reply, or its results are incomplete.
    Malformed,
    /// The answer is the Reply to another Call.
    Xid,
    /// The server refuses the Call or does not serve the program: the defaults apply.
    Refused(ReplyBody),
}

impl From<Truncated> for AnswerFault {
    fn from(_: Truncated) -> Self {
        Self::Malformed
    }
}

impl From<ReplyFault> for AnswerFault {
    fn from(_: ReplyFault) -> Self {
        Self::Malformed
    }
}

/// Decodes the RPC message of the Reply to a client's Call. Returns the limits that apply from now
/// on.
///
/// # Errors
/// See [`AnswerFault`].
pub fn decode_reply(payload: &[u8], xid: u32, request: &Request) -> Result<Limits, AnswerFault> {
    let (header, results) = ReplyHeader::decode(payload)?;
    if header.xid != xid {
        return Err(AnswerFault::Xid);
    }
    if header.body != ReplyBody::Accepted(AcceptStat::Success) {
        // [R5666-6-3] a server need not serve the configuration program.
        //~ R5666-6-3: `Refused(header.body)` -> `Malformed`
        return Err(AnswerFault::Refused(header.body));
    }
    let mut r = Reader::new(payload.get(results..).unwrap_or_default());
    Ok(request.agreed(&Reply::decode(&mut r)?))
}

/// The server of the Connection Configuration Protocol.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The limits of this end; `client_reads` is the most RDMA Reads that it would issue.
    pub ours: Limits,
    /// Whether Calls without RPCSEC_GSS are answered. The protocol has to be protected, so this is only for networks
    /// that provide the protection themselves.
    pub unprotected: bool,
}

impl Service {
    /// Appends the RPC message of the Reply to `payload`, a Call for [`PROGRAM`]. Returns the limits that apply from
    /// now on, if the Call sets any.
    ///
    /// # Errors
    /// [`AnswerFault::Malformed`] if `payload` is not a Call that RPC can answer.
    pub fn answer(
        &self,
        payload: &[u8],
        w: &mut Writer<'_>,
    ) -> Result<Option<Limits>, AnswerFault> {
        let xid = Reader::new(payload).u32()?;
        let (call, arguments) = match CallHeader::decode(payload) {
            Ok(decoded) => decoded,
            Err(fault @ CallFault::RpcVersion) => {
                fault.reply(xid).ok_or(AnswerFault::Malformed)?.encode(w)?;
                return Ok(None);
            }
            Err(_) => return Err(AnswerFault::Malformed),
        };
        let mut r = Reader::new(payload.get(arguments..).unwrap_or_default());
        let body = match self.judge(&call, &mut r) {
            Ok(Some(request)) => {
                ReplyHeader::accepted(xid, AcceptStat::Success).encode(w)?;
                self.reply().encode(w)?;
                //~ R5666-6.1-1: `Some(self.agreed(&request))` -> `None`
                return Ok(Some(self.agreed(&request)));
            }
            Ok(None) => ReplyBody::Accepted(AcceptStat::Success),
            Err(body) => body,
        };
        ReplyHeader { xid, body }.encode(w)?;
        Ok(None)
    }

    /// Returns the request in the Call, `None` for the null procedure, or the reason to refuse it.
    fn judge(
        &self,
        call: &CallHeader<'_>,
        r: &mut Reader<'_>,
    ) -> Result<Option<Request>, ReplyBody> {
        if call.program != PROGRAM {
            return Err(ReplyBody::Accepted(AcceptStat::ProgUnavail));
        }
        if call.version != VERSION {
            let mismatch = AcceptStat::ProgMismatch { low: VERSION, high: VERSION };
            return Err(ReplyBody::Accepted(mismatch));
        }
        match call.procedure {
            NULL => Ok(None),
            CONF_RDMA => {
                // [R5666-11-9] the credential keeps others on the path from configuring a connection.
                let protected =
                    //~ R5666-11-9: `{ flavor: RPCSEC_GSS, .. }` -> `{ .. }`
                    matches!(call.credential, Credential::Other { flavor: RPCSEC_GSS, .. });
                if !protected && !self.unprotected {
                    return Err(ReplyBody::Denied(RejectStat::AuthError(AUTH_TOOWEAK)));
                }
                let garbage = |_| ReplyBody::Accepted(AcceptStat::GarbageArgs);
                Request::decode(r).map(Some).map_err(garbage)
            }
            _ => Err(ReplyBody::Accepted(AcceptStat::ProcUnavail)),
        }
    }

    fn reply(&self) -> Reply {
        Reply {
            maxcall_sendsize: self.ours.call_size.max(SIZE_MIN),
            align: self.ours.align,
            maxrdmaread: self.ours.server_reads,
        }
    }

    /// Returns the limits of the server for a client that sent `request`.
    fn agreed(&self, request: &Request) -> Limits {
        Limits {
            // [R5666-6.2-2] the length that the server takes does not depend on the client's wish.
            //~ R5666-6.2-2: `.max(SIZE_MIN)` -> `.min(request.maxcall_sendsize).max(SIZE_MIN)`
            call_size: self.ours.call_size.max(SIZE_MIN),
            reply_size: self.ours.reply_size.min(request.maxreply_sendsize).max(SIZE_MIN),
            // [R5666-6.2-4]
            //~ R5666-6.2-4: `.min(request.maxrdmaread)` -> ``
            client_reads: self.ours.client_reads.min(request.maxrdmaread),
            ..self.ours
        }
    }
}

/// The program number of the protocol. [R5666-12-3]
//~ R5666-12-3: `100_417` -> `100_418`
pub const PROGRAM: u32 = 100_417;
/// The version number of the protocol.
pub const VERSION: u32 = 1;
/// The procedure number of the exchange.
pub const CONF_RDMA: u32 = 1;

/// The length of messages that every end accepts (section 6.1).
pub const SIZE_MIN: u32 = 1024;

const NULL: u32 = 0;
const RPCSEC_GSS: u32 = 6;
const AUTH_TOOWEAK: u32 = 5;

#[cfg(test)]
mod tests;
