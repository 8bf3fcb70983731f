//! Messages of version 2, with the names of its draft.

use super::chunks;
use super::refusal::Refusal;
use super::value::{Fields, Value};
use crate::v2::VERSION;
use crate::v2::error::ErrorBody;
use crate::v2::header::{self, Fragment, HeaderFault, Message, Prefix};
use crate::v2::properties::PropertySet;

/// Describes one message.
pub(super) fn describe(octets: &[u8]) -> Result<Fields<'_>, Refusal> {
    let message = header::decode_transport(octets).map_err(|fault| Refusal {
        rule: fault.rule,
        at: fault.at,
        report: report(&fault),
    })?;
    let prefix = message.prefix();
    Ok(Fields::new(|line| {
        line.number("xid", prefix.xid).number("vers", prefix.vers).number("credit", prefix.credit);
        line.name("htype", header::name(prefix.htype).unwrap_or_default());
        members(line, &message);
    }))
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

fn members<'a>(line: &mut Fields<'a>, message: &Message<'a>) {
    match message {
        Message::Error { error, .. } => error_members(line, error),
        // The module of the extensions describes their messages.
        Message::Grant { .. } | Message::Extended(_) => {}
        Message::ConnProp(properties) => _ = line.list("props", props(&properties.set)),
        Message::CallExternal(call) => {
            line.number("inv_handle", call.inv_handle.0);
            line.list("call", chunks::reads(call.call)).list("reads", chunks::reads(call.reads));
            line.list("writes", chunks::writes(call.writes));
            line.add("reply", chunks::optional(call.reply));
        }
        Message::CallInline(call) => {
            line.number("inv_handle", call.inv_handle.0);
            line.list("reads", chunks::reads(call.reads));
            line.list("writes", chunks::writes(call.writes));
            line.add("reply", chunks::optional(call.reply)).octets("payload", call.payload);
        }
        Message::CallMiddle(Fragment { remaining, payload, .. })
        | Message::ReplyMiddle(Fragment { remaining, payload, .. }) => {
            line.number("remaining", *remaining).octets("payload", payload);
        }
        Message::ReplyExternal(reply) => {
            line.list("writes", chunks::writes(reply.writes));
            line.list("reply", chunks::segments(reply.reply.segments()));
        }
        Message::ReplyInline(reply) => {
            line.list("writes", chunks::writes(reply.writes)).octets("payload", reply.payload);
        }
    }
}

fn error_members(line: &mut Fields<'_>, error: &ErrorBody) {
    line.name("err", error.name());
    match *error {
        ErrorBody::Vers { low, high } => _ = line.number("vers_low", low).number("vers_high", high),
        ErrorBody::ReadChunks { max } | ErrorBody::WriteChunks { max } => {
            line.number("max_chunks", max);
        }
        ErrorBody::Segments { max } => _ = line.number("max_segments", max),
        ErrorBody::WriteResource { chunk_index, length_needed } => {
            line.number("chunk_index", chunk_index).number("length_needed", length_needed);
        }
        ErrorBody::ReplyResource { length_needed } => {
            line.number("length_needed", length_needed);
        }
        ErrorBody::BadXdr
        | ErrorBody::BadPropval
        | ErrorBody::InvalHtype
        | ErrorBody::InvalCont
        | ErrorBody::VersMismatch
        | ErrorBody::System => {}
    }
}

fn props<'a>(set: &PropertySet<'a>) -> impl Iterator<Item = Value<'a>> {
    set.entries().map(|(which, data)| {
        Value::of_fields(|property| _ = property.number("which", which).octets("data", data))
    })
}
