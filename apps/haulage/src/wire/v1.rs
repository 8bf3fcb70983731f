//! Encoding of version 1 messages from JSON.

use haulage_proto::chunk::{ReadList, WriteList};
use haulage_proto::v1::VERSION;
use haulage_proto::v1::error::ErrorBody;
use haulage_proto::v1::header::{self, Prefix};
use haulage_proto::xdr::Writer;

use super::chunks;
use super::fields::{Complaint, Object};

/// Encodes one message, whose first three words were taken from its description.
pub fn assemble(
    xid: u32,
    credit: u32,
    mut message: Object,
    w: &mut Writer<'_>,
) -> Result<(), Complaint> {
    let name = message.take("proc")?;
    let proc = match name.as_text() {
        "RDMA_MSG" => header::MSG,
        "RDMA_NOMSG" => header::NOMSG,
        "RDMA_MSGP" => header::MSGP,
        "RDMA_DONE" => header::DONE,
        "RDMA_ERROR" => header::ERROR,
        _ => return Err(name.is_not("a message type of version 1")),
    };
    Prefix { xid, vers: VERSION, credit, proc }.encode(w)?;
    match proc {
        header::DONE => {}
        header::ERROR => error(&mut message)?.encode(w)?,
        _ => {
            if proc == header::MSGP {
                w.u32(message.u32("align")?)?;
                w.u32(message.u32("thresh")?)?;
            }
            rpc(&mut message, w)?;
        }
    }
    message.end()
}

fn rpc(message: &mut Object, w: &mut Writer<'_>) -> Result<(), Complaint> {
    ReadList::encode(w, chunks::parse_reads(message.take("reads")?)?)?;
    WriteList::encode(w, chunks::parse_writes(message.take("writes")?)?)?;
    WriteList::encode_optional(w, chunks::parse_optional(message.take("reply")?)?)?;
    Ok(w.put(message.take("payload")?.octets()?)?)
}

fn error(message: &mut Object) -> Result<ErrorBody, Complaint> {
    let name = message.take("err")?;
    match name.as_text() {
        "ERR_VERS" => {
            Ok(ErrorBody::Vers { low: message.u32("vers_low")?, high: message.u32("vers_high")? })
        }
        "ERR_CHUNK" => Ok(ErrorBody::Chunk),
        _ => Err(name.is_not("an error of version 1")),
    }
}
