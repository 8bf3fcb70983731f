//! Conversion of version 1 messages to JSON and back.

use haulage_proto::chunk::{ReadList, WriteList};
use haulage_proto::v1::VERSION;
use haulage_proto::v1::error::ErrorBody;
use haulage_proto::v1::header::{self, Message, Prefix, Rpc};
use haulage_proto::xdr::Writer;

use super::chunks;
use super::fields::{Complaint, Object};
use super::refusal::Refusal;
use crate::output::json;

/// Describes one message.
pub fn describe(message: &[u8]) -> Result<String, Refusal> {
    let message = header::decode_transport(message).map_err(|fault| {
        Refusal::new(fault.to_string(), fault.report.map(|report| report.name()))
    })?;
    Ok(json::object(|line| {
        let prefix = message.prefix();
        line.count("xid", prefix.xid).count("vers", prefix.vers).count("credit", prefix.credit);
        match &message {
            Message::Msg(rpc) => members(line.text("proc", "RDMA_MSG"), rpc),
            Message::NoMsg(rpc) => members(line.text("proc", "RDMA_NOMSG"), rpc),
            Message::MsgP(padding, rpc) => {
                line.text("proc", "RDMA_MSGP");
                line.count("align", padding.align).count("thresh", padding.thresh);
                members(line, rpc);
            }
            Message::Done { .. } => _ = line.text("proc", "RDMA_DONE"),
            Message::Error { error, .. } => {
                line.text("proc", "RDMA_ERROR").text("err", error.name());
                if let ErrorBody::Vers { low, high } = *error {
                    line.count("vers_low", low).count("vers_high", high);
                }
            }
        }
    }))
}

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

fn members(line: &mut json::Object, rpc: &Rpc<'_>) {
    line.json("reads", &chunks::reads(rpc.reads));
    line.json("writes", &chunks::writes(rpc.writes));
    line.json("reply", &chunks::optional(rpc.reply));
    line.text("payload", &hex::encode(rpc.payload));
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
