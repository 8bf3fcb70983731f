//! Conversion of version 2 messages to JSON and back.

use haulage_proto::chunk::{ReadList, WriteList};
use haulage_proto::v2::VERSION;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::{self, Fragment, HeaderFault, Message, Prefix};
use haulage_proto::v2::properties::PropertySet;
use haulage_proto::xdr::Writer;

use super::fields::{Complaint, Object};
use super::refusal::Refusal;
use super::{chunks, rtrext};
use crate::output::json;

/// Describes one message.
pub fn describe(message: &[u8]) -> Result<String, Refusal> {
    let message = header::decode_transport(message)
        .map_err(|fault| Refusal::new(fault.to_string(), report(&fault)))?;
    Ok(json::object(|line| {
        let prefix = message.prefix();
        line.count("xid", prefix.xid).count("vers", prefix.vers).count("credit", prefix.credit);
        line.text("htype", name(&message));
        members(line, &message);
    }))
}

/// Encodes one message, of version 2 or of the extensions, whose first three words were taken from its description.
pub fn assemble(
    xid: u32,
    credit: u32,
    mut message: Object,
    w: &mut Writer<'_>,
) -> Result<(), Complaint> {
    let name = message.take("htype")?;
    if let Some(htype) = rtrext::header_type(name.as_text()) {
        let prefix = Prefix { xid, vers: VERSION, credit, htype };
        return rtrext::assemble(prefix, message, w);
    }
    let htype =
        HEADER_TYPES.iter().find(|(known, _)| name.as_text() == *known).map(|(_, htype)| *htype);
    let htype = htype.ok_or_else(|| name.is_not("a header type of version 2"))?;
    Prefix { xid, vers: VERSION, credit, htype }.encode(w)?;
    match htype {
        header::ERROR => error(&mut message)?.encode(w)?,
        header::CONNPROP_MIDDLE | header::CONNPROP_FINAL => properties(&mut message, w)?,
        header::CALL_EXTERNAL => {
            w.u32(message.u32("inv_handle")?)?;
            ReadList::encode(w, chunks::parse_reads(message.take("call")?)?)?;
            call_lists(&mut message, w)?;
        }
        header::CALL_INLINE => {
            w.u32(message.u32("inv_handle")?)?;
            call_lists(&mut message, w)?;
            w.put(&message.take("payload")?.octets()?)?;
        }
        header::CALL_MIDDLE | header::REPLY_MIDDLE => {
            w.u32(message.u32("remaining")?)?;
            w.put(&message.take("payload")?.octets()?)?;
        }
        header::REPLY_EXTERNAL => {
            WriteList::encode(w, chunks::parse_writes(message.take("writes")?)?)?;
            WriteList::encode_optional(w, chunks::parse_optional(message.take("reply")?)?)?;
        }
        header::REPLY_INLINE => {
            WriteList::encode(w, chunks::parse_writes(message.take("writes")?)?)?;
            w.put(&message.take("payload")?.octets()?)?;
        }
        // RDMA2_GRANT is only a prefix.
        _ => {}
    }
    message.end()
}

/// Returns the error with which a receiver reports `fault`, if it reports it.
fn report(fault: &HeaderFault) -> Option<&'static str> {
    // E13: a Reply is not answered. Its error still has a name, which is shown here.
    let reply = |prefix: &Prefix| {
        prefix.vers == VERSION
            && (header::REPLY_EXTERNAL..=header::REPLY_INLINE).contains(&prefix.htype)
    };
    let unreported = fault.prefix.as_ref().is_some_and(reply).then_some(ErrorBody::BadXdr);
    fault.report.or(unreported).map(|error| error.name())
}

/// Returns the draft's name of the header type.
fn name(message: &Message<'_>) -> &'static str {
    let htype = message.prefix().htype;
    HEADER_TYPES.iter().find(|(_, known)| *known == htype).map_or("", |(name, _)| name)
}

fn members(line: &mut json::Object, message: &Message<'_>) {
    match message {
        Message::Error { error, .. } => error_members(line, error),
        // The module of the extensions describes their messages.
        Message::Grant { .. } | Message::Extended(_) => {}
        Message::ConnProp(properties) => _ = line.json("props", &props(&properties.set)),
        Message::CallExternal(call) => {
            line.count("inv_handle", call.inv_handle.0);
            line.json("call", &chunks::reads(call.call));
            line.json("reads", &chunks::reads(call.reads));
            line.json("writes", &chunks::writes(call.writes));
            line.json("reply", &chunks::optional(call.reply));
        }
        Message::CallInline(call) => {
            line.count("inv_handle", call.inv_handle.0);
            line.json("reads", &chunks::reads(call.reads));
            line.json("writes", &chunks::writes(call.writes));
            line.json("reply", &chunks::optional(call.reply));
            line.text("payload", &hex::encode(call.payload));
        }
        Message::CallMiddle(Fragment { remaining, payload, .. })
        | Message::ReplyMiddle(Fragment { remaining, payload, .. }) => {
            line.count("remaining", *remaining).text("payload", &hex::encode(payload));
        }
        Message::ReplyExternal(reply) => {
            line.json("writes", &chunks::writes(reply.writes));
            line.json("reply", &chunks::segments(reply.reply.segments()));
        }
        Message::ReplyInline(reply) => {
            line.json("writes", &chunks::writes(reply.writes));
            line.text("payload", &hex::encode(reply.payload));
        }
    }
}

fn error_members(line: &mut json::Object, error: &ErrorBody) {
    line.text("err", error.name());
    match *error {
        ErrorBody::Vers { low, high } => _ = line.count("vers_low", low).count("vers_high", high),
        ErrorBody::ReadChunks { max } | ErrorBody::WriteChunks { max } => {
            line.count("max_chunks", max);
        }
        ErrorBody::Segments { max } => _ = line.count("max_segments", max),
        ErrorBody::WriteResource { chunk_index, length_needed } => {
            line.count("chunk_index", chunk_index).count("length_needed", length_needed);
        }
        ErrorBody::ReplyResource { length_needed } => {
            line.count("length_needed", length_needed);
        }
        ErrorBody::BadXdr
        | ErrorBody::BadPropval
        | ErrorBody::InvalHtype
        | ErrorBody::InvalCont
        | ErrorBody::VersMismatch
        | ErrorBody::System => {}
    }
}

fn error(message: &mut Object) -> Result<ErrorBody, Complaint> {
    let name = message.take("err")?;
    Ok(match name.as_text() {
        "RDMA2_ERR_VERS" => {
            ErrorBody::Vers { low: message.u32("vers_low")?, high: message.u32("vers_high")? }
        }
        "RDMA2_ERR_BAD_XDR" => ErrorBody::BadXdr,
        "RDMA2_ERR_BAD_PROPVAL" => ErrorBody::BadPropval,
        "RDMA2_ERR_INVAL_HTYPE" => ErrorBody::InvalHtype,
        "RDMA2_ERR_INVAL_CONT" => ErrorBody::InvalCont,
        "RDMA2_ERR_READ_CHUNKS" => ErrorBody::ReadChunks { max: message.u32("max_chunks")? },
        "RDMA2_ERR_WRITE_CHUNKS" => ErrorBody::WriteChunks { max: message.u32("max_chunks")? },
        "RDMA2_ERR_SEGMENTS" => ErrorBody::Segments { max: message.u32("max_segments")? },
        "RDMA2_ERR_WRITE_RESOURCE" => ErrorBody::WriteResource {
            chunk_index: message.u32("chunk_index")?,
            length_needed: message.u32("length_needed")?,
        },
        "RDMA2_ERR_REPLY_RESOURCE" => {
            ErrorBody::ReplyResource { length_needed: message.u32("length_needed")? }
        }
        "RDMA2_ERR_VERS_MISMATCH" => ErrorBody::VersMismatch,
        "RDMA2_ERR_SYSTEM" => ErrorBody::System,
        _ => return Err(name.is_not("an error of version 2")),
    })
}

fn props(set: &PropertySet<'_>) -> String {
    json::array(set.entries().map(|(which, data)| {
        json::object(|property| {
            property.count("which", which).text("data", &hex::encode(data));
        })
    }))
}

fn properties(message: &mut Object, w: &mut Writer<'_>) -> Result<(), Complaint> {
    let properties = message.take("props")?.elements()?;
    w.u32(u32::try_from(properties.len()).map_err(|_| Complaint::too_long())?)?;
    for property in properties {
        let mut property = property.object()?;
        w.u32(property.u32("which")?)?;
        w.opaque(&property.take("data")?.octets()?)?;
        property.end()?;
    }
    Ok(())
}

/// Appends the chunk lists at the end of both kinds of Call header.
fn call_lists(message: &mut Object, w: &mut Writer<'_>) -> Result<(), Complaint> {
    ReadList::encode(w, chunks::parse_reads(message.take("reads")?)?)?;
    WriteList::encode(w, chunks::parse_writes(message.take("writes")?)?)?;
    WriteList::encode_optional(w, chunks::parse_optional(message.take("reply")?)?)?;
    Ok(())
}

const HEADER_TYPES: [(&str, u32); 10] = [
    ("RDMA2_ERROR", header::ERROR),
    ("RDMA2_GRANT", header::GRANT),
    ("RDMA2_CONNPROP_MIDDLE", header::CONNPROP_MIDDLE),
    ("RDMA2_CONNPROP_FINAL", header::CONNPROP_FINAL),
    ("RDMA2_CALL_EXTERNAL", header::CALL_EXTERNAL),
    ("RDMA2_CALL_MIDDLE", header::CALL_MIDDLE),
    ("RDMA2_CALL_INLINE", header::CALL_INLINE),
    ("RDMA2_REPLY_EXTERNAL", header::REPLY_EXTERNAL),
    ("RDMA2_REPLY_MIDDLE", header::REPLY_MIDDLE),
    ("RDMA2_REPLY_INLINE", header::REPLY_INLINE),
];
