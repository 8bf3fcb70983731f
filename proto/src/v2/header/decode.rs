//! Decoding of version 2 transport headers.
//!
//! Busy ends mostly decode null Calls, and Calls and Replies with one or two chunks: these have a fast path, whose
//! instruction counts `benches/counts` bounds. [`decode_other`] decodes everything else.

use super::extended::header_name;
use super::{
    CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL, CONNPROP_MIDDLE, CallExternal,
    CallInline, ConnProp, ERROR, Extended, Fragment, GRANT, HeaderFault, Message, Prefix,
    REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE, ReplyExternal, ReplyInline, is_reply,
};
use crate::chunk::{ListFault, ReadList, WriteChunk, WriteList};
use crate::v2::VERSION;
use crate::v2::error::ErrorBody;
use crate::v2::properties::{ConnPropKind, PropertyFault, PropertySet};
use crate::verbs::Handle;
use crate::xdr::{Reader, Truncated, UNIT};

/// Decodes one received message that is not part of a continued one, and checks that its Payload
/// stream starts with the XID of its header.
///
/// # Errors
/// See [`HeaderFault`].
pub fn decode(message: &[u8]) -> Result<Message<'_>, HeaderFault> {
    decode_from(message, Start::Xid)
}

/// Decodes the Transport stream of one message, whatever octets its Payload stream holds.
///
/// # Errors
/// See [`HeaderFault`].
pub fn decode_transport(message: &[u8]) -> Result<Message<'_>, HeaderFault> {
    decode_from(message, Start::Any)
}

/// The rule for the start of a Payload stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// The Payload stream must start with the XID of the header.
    Xid,
    /// The Payload stream may start with anything: the message may carry a later part of an RPC
    /// message.
    Any,
}

/// Decodes one message, and checks the start of its Payload stream.
#[inline(always)]
fn decode_from(message: &[u8], start: Start) -> Result<Message<'_>, HeaderFault> {
    let mut r = Reader::new(message);
    let prefix = match Prefix::decode(&mut r) {
        Ok(prefix) => prefix,
        Err(fault) => return Err(short(fault)),
    };
    if prefix.vers != VERSION {
        return Err(unsupported(prefix));
    }
    match prefix.htype {
        CALL_INLINE => match unchunked_call(r, prefix, start) {
            Some(call) => Ok(Message::CallInline(call)),
            None => decode_call_inline(message, prefix.xid, prefix.credit, start),
        },
        REPLY_INLINE => decode_reply_inline(message, prefix.xid, prefix.credit, start),
        _ => decode_other(r, prefix, start),
    }
}

/// Decodes a Call without chunks, the most common message, which one comparison recognises. Returns
/// `None` for any other Call.
#[inline(always)]
fn unchunked_call(mut r: Reader<'_>, prefix: Prefix, start: Start) -> Option<CallInline<'_>> {
    let nothing = r.array() == Ok([0; 4 * UNIT]);
    let payload = r.rest();
    if !nothing || start == Start::Xid && check_xid(prefix.xid, payload, r.position()).is_err() {
        return None;
    }
    let (reads, writes) = (ReadList::default(), WriteList::default());
    Some(CallInline { prefix, inv_handle: Handle(0), reads, writes, reply: None, payload })
}

#[cold]
fn short(fault: Truncated) -> HeaderFault {
    // [V2-7-1] without a whole prefix nothing can be trusted, not even the XID.
    let rule = "shorter than the common prefix";
    //~ V2-7-1: `prefix: None, credit: None, report: None` ->
    //~   `prefix: Some(Prefix { xid: 0, vers: VERSION, credit: 0, htype: 0 }),
    //~   credit: None, report: Some(ErrorBody::BadXdr)`
    HeaderFault { rule, at: fault.at, prefix: None, credit: None, report: None }
}

#[cold]
fn unsupported(prefix: Prefix) -> HeaderFault {
    // [V2-7.1.1-1] a message of another version is answered with the versions spoken here. E13: an error is not, or two
    // ends would answer each other's errors for ever; its header type is the same in every version.
    HeaderFault {
        rule: "unsupported version",
        at: 4,
        prefix: Some(prefix),
        credit: None,
        report: Some(ErrorBody::Vers { low: VERSION, high: VERSION })
            .filter(|_| prefix.htype != ERROR),
    }
}

/// Decodes a Call in Simple format. Of the prefix only the words that vary are passed, in
/// registers.
#[inline(never)]
fn decode_call_inline(
    message: &[u8],
    xid: u32,
    credit: u32,
    start: Start,
) -> Result<Message<'_>, HeaderFault> {
    let prefix = Prefix { xid, vers: VERSION, credit, htype: CALL_INLINE };
    match CallInline::decode(&mut behind_prefix(message), prefix, start) {
        Ok(call) => Ok(Message::CallInline(call)),
        Err(broken) => Err(broken.of(prefix)),
    }
}

/// Decodes a Reply in Simple format. Of the prefix only the words that vary are passed, in
/// registers.
#[inline(never)]
fn decode_reply_inline(
    message: &[u8],
    xid: u32,
    credit: u32,
    start: Start,
) -> Result<Message<'_>, HeaderFault> {
    let prefix = Prefix { xid, vers: VERSION, credit, htype: REPLY_INLINE };
    match ReplyInline::decode(&mut behind_prefix(message), prefix, start) {
        Ok(reply) => Ok(Message::ReplyInline(reply)),
        Err(broken) => Err(broken.of(prefix)),
    }
}

#[inline]
fn behind_prefix(message: &[u8]) -> Reader<'_> {
    let mut r = Reader::new(message);
    let prefix = r.take(Prefix::WIRE_LEN);
    debug_assert!(prefix.is_ok(), "it was decoded before");
    r
}

impl<'a> CallInline<'a> {
    #[inline]
    fn decode(r: &mut Reader<'a>, prefix: Prefix, start: Start) -> Result<Self, Broken> {
        let inv_handle = Handle(r.u32()?);
        let (reads, writes, reply) = decode_lists(r)?;
        check_inv_handle(inv_handle, &[reads], &writes, reply)?;
        let payload = decode_payload(r, prefix, start)?;
        Ok(Self { prefix, inv_handle, reads, writes, reply, payload })
    }
}

impl<'a> ReplyInline<'a> {
    #[inline]
    fn decode(r: &mut Reader<'a>, prefix: Prefix, start: Start) -> Result<Self, Broken> {
        let writes = WriteList::decode(r)?;
        Ok(Self { prefix, writes, payload: decode_payload(r, prefix, start)? })
    }
}

#[inline(never)]
fn decode_other(
    mut r: Reader<'_>,
    prefix: Prefix,
    start: Start,
) -> Result<Message<'_>, HeaderFault> {
    let r = &mut r;
    match prefix.htype {
        ERROR => decode_error(r, prefix),
        GRANT => end(r).map(|()| Message::Grant { prefix }),
        CONNPROP_MIDDLE | CONNPROP_FINAL => decode_connprop(r, prefix),
        CALL_EXTERNAL => decode_call_external(r, prefix),
        //~ V2-6.1-1: `CALL_MIDDLE` -> `CALL_MIDDLE if false`
        CALL_MIDDLE => decode_fragment(r, prefix, start).map(Message::CallMiddle),
        REPLY_EXTERNAL => decode_reply_external(r, prefix),
        //~ V2-6.1-1: `REPLY_MIDDLE` -> `REPLY_MIDDLE if false`
        REPLY_MIDDLE => decode_fragment(r, prefix, start).map(Message::ReplyMiddle),
        // [RTR-1.4-1] an extension has header types of its own (E10), not one for all extensions.
        //~ RTR-1.4-1: `header_name(htype).is_some()` -> `header_name(htype) == Some("ROPT_XMTREQ")`
        htype if header_name(htype).is_some() => {
            Ok(Message::Extended(Extended { prefix, body: r.rest() }))
        }
        // [V2-6.1-2] [V2-7.1.3-1] there are no other header types than those above and the inline ones [V2-6.1-1].
        _ => {
            //~ V2-7.1.3-1: `InvalHtype` -> `BadXdr`
            let report = Some(ErrorBody::InvalHtype);
            //~ V2-6.1-2: `report, ..Broken` -> `..Broken`
            Err(Broken { report, ..Broken::new("unknown header type", 12) })
        }
    }
    .map_err(|broken| broken.of(prefix))
}

fn decode_error<'a>(r: &mut Reader<'a>, prefix: Prefix) -> Result<Message<'a>, Broken> {
    let at = r.position();
    // [V2-7-5] an error with an unknown code is dropped and not answered.
    let error = ErrorBody::decode(r)?.ok_or(Broken::new("unknown error code", at))?;
    end(r)?;
    Ok(Message::Error { prefix, error })
}

fn decode_connprop<'a>(r: &mut Reader<'a>, prefix: Prefix) -> Result<Message<'a>, Broken> {
    let set = PropertySet::decode(r)?;
    end(r)?;
    let kind = match prefix.htype {
        CONNPROP_FINAL => ConnPropKind::Final,
        _ => ConnPropKind::Middle,
    };
    Ok(Message::ConnProp(ConnProp { prefix, kind, set }))
}

fn decode_call_external<'a>(r: &mut Reader<'a>, prefix: Prefix) -> Result<Message<'a>, Broken> {
    let inv_handle = Handle(r.u32()?);
    let start = r.position();
    let call = ReadList::decode_call_chunk(r)?;
    if call.is_empty() {
        return Err(Broken::new("no Call chunk", start));
    }
    let (reads, writes, reply) = decode_lists(r)?;
    check_inv_handle(inv_handle, &[call, reads], &writes, reply)?;
    end(r)?;
    Ok(Message::CallExternal(CallExternal { prefix, inv_handle, call, reads, writes, reply }))
}

fn decode_reply_external<'a>(r: &mut Reader<'a>, prefix: Prefix) -> Result<Message<'a>, Broken> {
    let writes = WriteList::decode(r)?;
    let at = r.position();
    // [V2-6.3.8-2] there is exactly one Reply chunk.
    let reply = WriteList::decode_optional(r)?.ok_or(Broken::new("no Reply chunk", at))?;
    end(r)?;
    Ok(Message::ReplyExternal(ReplyExternal { prefix, writes, reply }))
}

fn decode_fragment<'a>(
    r: &mut Reader<'a>,
    prefix: Prefix,
    start: Start,
) -> Result<Fragment<'a>, Broken> {
    let remaining = r.u32()?;
    Ok(Fragment { prefix, remaining, payload: decode_payload(r, prefix, start)? })
}

/// Takes the Payload stream, which is the rest of a message, and checks its start.
#[inline]
fn decode_payload<'a>(
    r: &mut Reader<'a>,
    prefix: Prefix,
    start: Start,
) -> Result<&'a [u8], Broken> {
    if start == Start::Xid {
        check_xid(prefix.xid, r.rest(), r.position())?;
    }
    Ok(r.rest())
}

impl Message<'_> {
    /// Checks that the Payload stream of this message, which is `length` octets long, starts with the XID of the
    /// transport header. Only the later parts of a continued message start with anything else.
    ///
    /// # Errors
    /// See [`HeaderFault`].
    pub fn check_start(&self, length: usize) -> Result<(), HeaderFault> {
        //~ V2-4.6.1-1: `` -> `if let Self::CallInline(_) = self { return Ok(()); }` together
        //~ V2-4.6.2-1: `` -> `if let Self::ReplyInline(_) = self { return Ok(()); }`
        let (Self::CallMiddle(Fragment { prefix, payload, .. })
        | Self::CallInline(CallInline { prefix, payload, .. })
        | Self::ReplyMiddle(Fragment { prefix, payload, .. })
        | Self::ReplyInline(ReplyInline { prefix, payload, .. })) = self
        else {
            return Ok(());
        };
        let at = length.saturating_sub(payload.len());
        check_xid(prefix.xid, payload, at).map_err(|broken| broken.of(*prefix))
    }
}

/// Checks that a Payload stream at offset `at` of its message starts with the XID of the transport
/// header.
#[inline]
fn check_xid(xid: u32, payload: &[u8], at: usize) -> Result<(), Broken> {
    // E9: the RPC message starts with the first word after the header. E7: it is the one that
    // `rdma_xid` names.
    match payload.first_chunk() {
        // [V2-4.6.1-1] [V2-4.6.2-1] [V2-7.2.1-1]
        Some(word) if u32::from_be_bytes(*word) == xid => Ok(()),
        Some(_) => Err(Broken::new("rdma_xid is not the XID of the RPC message", at)),
        None => Err(Truncated { at }.into()),
    }
}

/// The chunk lists at the end of both kinds of Call header.
type CallChunks<'a> = (ReadList<'a>, WriteList<'a>, Option<WriteChunk<'a>>);

#[inline(always)]
fn decode_lists<'a>(r: &mut Reader<'a>) -> Result<CallChunks<'a>, Broken> {
    Ok((ReadList::decode(r)?, WriteList::decode(r)?, WriteList::decode_optional(r)?))
}

/// Checks that a handle offered for invalidation, if any, is in the header's chunk lists (section
/// 6.5).
#[inline(always)]
fn check_inv_handle(
    inv_handle: Handle,
    reads: &[ReadList<'_>],
    writes: &WriteList<'_>,
    reply: Option<WriteChunk<'_>>,
) -> Result<(), Broken> {
    let named = inv_handle == Handle(0)
        || reads.iter().any(|list| list.names(inv_handle))
        || writes.names(inv_handle)
        || reply.is_some_and(|chunk| chunk.names(inv_handle));
    if named {
        return Ok(());
    }
    Err(Broken::new("rdma_inv_handle names no segment of the header", Prefix::WIRE_LEN))
}

/// Checks that nothing follows a header that carries no payload.
fn end(r: &Reader<'_>) -> Result<(), Broken> {
    if r.is_empty() { Ok(()) } else { Err(Broken::new("octets after the header", r.position())) }
}

/// A fault of a message after its prefix.
#[derive(Debug)]
struct Broken {
    rule: &'static str,
    at: usize,
    report: Option<ErrorBody>,
}

impl Broken {
    const fn new(rule: &'static str, at: usize) -> Self {
        //~ V2-7.2.1-1: `BadXdr` -> `System`
        Self { rule, at, report: Some(ErrorBody::BadXdr) }
    }

    /// Completes the fault with the prefix of the message and the error to answer with.
    #[cold]
    pub(super) fn of(self, prefix: Prefix) -> HeaderFault {
        // E13: what is wrong with an error or a grant is never answered with an error, and what is
        // wrong with a Reply concerns the Call it answers: nobody at the other end waits for us.
        //~ V2-7-5: `ERROR | GRANT` -> `GRANT`
        let silent = matches!(prefix.htype, ERROR | GRANT) || is_reply(prefix.htype);
        HeaderFault {
            rule: self.rule,
            at: self.at,
            prefix: Some(prefix),
            credit: Some(prefix.credit),
            report: self.report.filter(|_| !silent),
        }
    }
}

impl From<Truncated> for Broken {
    fn from(fault: Truncated) -> Self {
        Self::new("truncated", fault.at)
    }
}

impl From<ListFault> for Broken {
    fn from(fault: ListFault) -> Self {
        match fault {
            ListFault::Truncated(fault) => fault.into(),
            ListFault::BadDiscriminator { at } => Self::new("list discriminator", at),
            //~ V2-4.5.1.1-1: `Self::new("Read list positions decrease", at)` ->
            //~   `Self { report: Some(ErrorBody::InvalCont), ..Self::new("Read list positions decrease", at) }`
            ListFault::PositionOrder { at } => Self::new("Read list positions decrease", at),
            ListFault::BadPosition { at } => Self::new("Read chunk position", at),
            ListFault::LengthWraps { at } => Self::new("segment beyond the address space", at),
        }
    }
}

impl From<PropertyFault> for Broken {
    fn from(fault: PropertyFault) -> Self {
        match fault {
            PropertyFault::Truncated(fault) => fault.into(),
            // [V2-7.2.2-1] the fault is in the value of a property, not in the header.
            PropertyFault::BadValue { at } => {
                //~ V2-7.2.2-1: `Self { report: Some(ErrorBody::BadPropval), ..Self::new("property value", at) }` ->
                //~   `Self::new("property value", at)`
                Self { report: Some(ErrorBody::BadPropval), ..Self::new("property value", at) }
            }
        }
    }
}
