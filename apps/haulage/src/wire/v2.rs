//! Encoding of version 2 messages from JSON.

use haulage_proto::chunk::{ReadList, WriteList};
use haulage_proto::v2::VERSION;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header::{self, Prefix};
use haulage_proto::xdr::Writer;

use super::fields::{Complaint, Object};
use super::{chunks, rtrext};

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
        header::NAMES.iter().find(|(known, _)| name.as_text() == *known).map(|(_, htype)| *htype);
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
