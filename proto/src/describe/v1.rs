//! Messages of version 1, with the names of RFC 5666.

use super::chunks;
use super::refusal::Refusal;
use super::value::Fields;
use crate::v1::error::ErrorBody;
use crate::v1::header::{self, Message, Rpc};

/// Describes one message.
pub(super) fn describe(octets: &[u8]) -> Result<Fields<'_>, Refusal> {
    let message = header::decode_transport(octets).map_err(|fault| Refusal {
        rule: fault.rule,
        at: fault.at,
        report: fault.report.map(|report| report.name()),
    })?;
    let prefix = message.prefix();
    Ok(Fields::new(|line| {
        line.number("xid", prefix.xid).number("vers", prefix.vers).number("credit", prefix.credit);
        match &message {
            Message::Msg(rpc) => members(line.name("proc", "RDMA_MSG"), rpc),
            Message::NoMsg(rpc) => members(line.name("proc", "RDMA_NOMSG"), rpc),
            Message::MsgP(padding, rpc) => {
                line.name("proc", "RDMA_MSGP");
                line.number("align", padding.align).number("thresh", padding.thresh);
                members(line, rpc);
            }
            Message::Done { .. } => _ = line.name("proc", "RDMA_DONE"),
            Message::Error { error, .. } => {
                line.name("proc", "RDMA_ERROR").name("err", error.name());
                if let ErrorBody::Vers { low, high } = *error {
                    line.number("vers_low", low).number("vers_high", high);
                }
            }
        }
    }))
}

fn members<'a>(line: &mut Fields<'a>, rpc: &Rpc<'a>) {
    line.list("reads", chunks::reads(rpc.reads)).list("writes", chunks::writes(rpc.writes));
    line.add("reply", chunks::optional(rpc.reply)).octets("payload", rpc.payload);
}
