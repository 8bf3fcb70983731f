//! The Connection Configuration Protocol (RFC 5666 section 6): program 100417, whose one procedure
//! tells each end what the other can take.
//!
//! It is an RPC program like any other and travels on the connection it configures: a client makes
//! [`encode_call`] its first Call, within the 1024 octets every end takes, and sends nothing else until
//! [`decode_reply`] has the answer. A server hands Calls for [`PROGRAM`] to [`Service::answer`]. Ends
//! that exchanged private data have no use for it.
//!
//! What each number limits from then on is in [`Limits`].

use crate::rpc::reply::ReplyFault;
use crate::rpc::{
    AcceptStat, CallFault, CallHeader, Credential, RejectStat, ReplyBody, ReplyHeader,
};
use crate::xdr::{Reader, Truncated, Writer};

/// What one end can do, or what both can do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Octets of the longest message with a Call that the client sends.
    pub call_size: u32,
    /// Octets of the longest message with a Reply that the server sends.
    pub reply_size: u32,
    /// RDMA Reads of the server that the client's end can have in progress.
    pub client_reads: u32,
    /// RDMA Reads of the client that the server's end can have in progress.
    pub server_reads: u32,
    /// Where the server would like the data of opaques in an `RDMA_MSGP` to start.
    pub align: u32,
}

impl Limits {
    /// Returns whether a client may send a Call with a Read list.
    pub const fn call_may_be_read(&self) -> bool {
        // [R5666-6.2-5] the server has nothing to issue the Reads with or the client nothing to serve
        // them with: either end says so with its own zero.
        self.client_reads > 0 && self.server_reads > 0
    }

    /// Returns whether a server may answer with a Read list, where both honour `RDMA_DONE`.
    pub const fn reply_may_be_read(&self) -> bool {
        self.call_may_be_read()
    }
}

/// `config_rdma_req`: what a client says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Octets of the longest message with a Call it would send.
    pub maxcall_sendsize: u32,
    /// Octets of the longest message with a Reply it takes.
    pub maxreply_sendsize: u32,
    /// RDMA Reads its end can have in progress.
    pub maxrdmaread: u32,
}

/// `config_rdma_reply`: what a server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Octets of the longest message with a Call it takes.
    pub maxcall_sendsize: u32,
    /// Where it would like opaques to start; zero for no wish.
    pub align: u32,
    /// RDMA Reads its end can have in progress.
    pub maxrdmaread: u32,
}

impl Request {
    /// Octets on the wire.
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

    /// Returns what holds for the client that said this and was answered `reply`.
    pub fn agreed(&self, reply: &Reply) -> Limits {
        Limits {
            // [R5666-6.2-1] [R5666-6.2-3] never more than the server takes.
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

/// Why a server's answer is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFault {
    /// It is no RPC Reply, or one without whole results.
    Malformed,
    /// It is the Reply to another Call.
    Xid,
    /// The server refuses, or does not serve the program: the defaults hold.
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

/// Takes the RPC message of the Reply to a client's Call. Returns what holds from now on.
///
/// # Errors
/// See [`AnswerFault`].
pub fn decode_reply(payload: &[u8], xid: u32, request: &Request) -> Result<Limits, AnswerFault> {
    let (header, results) = ReplyHeader::decode(payload)?;
    if header.xid != xid {
        return Err(AnswerFault::Xid);
    }
    if header.body != ReplyBody::Accepted(AcceptStat::Success) {
        // [R5666-6-3] nobody has to serve it.
        return Err(AnswerFault::Refused(header.body));
    }
    let mut r = Reader::new(payload.get(results..).unwrap_or_default());
    Ok(request.agreed(&Reply::decode(&mut r)?))
}

/// The server's side: what it can do, and whom it tells.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// What this end can do; `client_reads` is how many RDMA Reads it would issue at most.
    pub ours: Limits,
    /// Whether Calls without RPCSEC_GSS are answered. The protocol has to be protected, so this is for
    /// networks that protect it by themselves.
    pub unprotected: bool,
}

impl Service {
    /// Appends the RPC message of the Reply to `payload`, a Call for [`PROGRAM`]. Returns what holds
    /// from now on, if the Call says anything new.
    ///
    /// # Errors
    /// [`AnswerFault::Malformed`] if `payload` is no Call that RPC can answer.
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
                return Ok(Some(self.agreed(&request)));
            }
            Ok(None) => ReplyBody::Accepted(AcceptStat::Success),
            Err(body) => body,
        };
        ReplyHeader { xid, body }.encode(w)?;
        Ok(None)
    }

    /// Returns what the Call asks for, `None` for the null procedure, or how it is turned down.
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
                // [R5666-11-9] nobody on the way may configure a connection.
                let protected =
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

    /// Returns what holds for the server.
    fn agreed(&self, request: &Request) -> Limits {
        Limits {
            // [R5666-6.2-2] what it takes does not depend on what the client asks for.
            call_size: self.ours.call_size.max(SIZE_MIN),
            reply_size: self.ours.reply_size.min(request.maxreply_sendsize).max(SIZE_MIN),
            // [R5666-6.2-4]
            client_reads: self.ours.client_reads.min(request.maxrdmaread),
            ..self.ours
        }
    }
}

/// The program number of the protocol. [R5666-12-3]
pub const PROGRAM: u32 = 100_417;
/// Its version.
pub const VERSION: u32 = 1;
/// Its procedure.
pub const CONF_RDMA: u32 = 1;

/// Section 6.1: any end takes messages this long.
pub const SIZE_MIN: u32 = 1024;

const NULL: u32 = 0;
const RPCSEC_GSS: u32 = 6;
const AUTH_TOOWEAK: u32 = 5;

#[cfg(test)]
mod tests;
