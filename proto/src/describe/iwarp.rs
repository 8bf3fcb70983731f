//! The layers below RPC-over-RDMA on TCP: MPA frames, and FPDUs with their DDP and RDMAP headers.

use super::refusal::Refusal;
use super::value::{Fields, Value};
use crate::iwarp::Crc32c;
use crate::iwarp::mpa::LENGTH_LEN;
use crate::iwarp::mpa::frame::{
    Enhanced, Frame, Kind as FrameKind, PEER_TO_PEER, RTR_READ, RTR_SEND, RTR_WRITE,
};
use crate::iwarp::mpa::handshake::Fault as FrameFault;
use crate::iwarp::observe::{CrcField, Fpdu};
use crate::iwarp::rdmap::{Kind, Segment};
use crate::iwarp::terminate::Fault;
use crate::xdr::Reader;

/// Describes an FPDU, or an MPA Request or Reply. A wrong CRC is told, and the FPDU is described nevertheless.
///
/// # Errors
/// The octets are neither, or more than that.
pub fn octets(octets: &[u8], crc: Crc32c) -> Result<Fields<'_>, Refusal> {
    if octets.starts_with(KEY_START) { whole_frame(octets) } else { whole_fpdu(octets, crc) }
}

fn whole_frame(octets: &[u8]) -> Result<Fields<'_>, Refusal> {
    let is_reply = octets.get(KEY_START.len()) == Some(&b'p');
    let kind = if is_reply { FrameKind::Reply } else { FrameKind::Request };
    let decoded = Frame::decode(kind, octets).map_err(|fault| {
        let at = match fault {
            FrameFault::NotMpa => KEY_START.len(),
            FrameFault::Revision => 17,
            _ => 18,
        };
        Refusal::silent(fault.rule(), at.min(octets.len()))
    })?;
    let decoded = decoded.ok_or(Refusal::silent("truncated", octets.len()))?;
    if octets.len() > decoded.wire_len() {
        return Err(Refusal::silent("octets after the frame", decoded.wire_len()));
    }
    Ok(frame(&decoded))
}

fn whole_fpdu(octets: &[u8], crc: Crc32c) -> Result<Fields<'_>, Refusal> {
    let mut r = Reader::new(octets);
    let decoded =
        Fpdu::decode(&mut r, crc).map_err(|_| Refusal::silent("truncated", octets.len()))?;
    if !r.is_empty() {
        return Err(Refusal::silent("octets after the FPDU", r.position()));
    }
    fpdu(&decoded)
}

/// Describes an MPA Request or Reply.
pub fn frame<'a>(frame: &Frame<'a>) -> Fields<'a> {
    let name = match frame.kind {
        FrameKind::Request => "mpa_request",
        FrameKind::Reply => "mpa_reply",
    };
    let depth = |word: fn(Enhanced) -> u16| {
        frame.enhanced.map_or(Value::Null, |data| Value::Number((word(data) & DEPTH).into()))
    };
    Fields::new(|line| {
        line.name("frame", name).number("rev", frame.revision);
        line.add("markers", Value::Flag(frame.flags.markers));
        line.add("crc", Value::Flag(frame.flags.crc));
        line.add("reject", Value::Flag(frame.flags.rejected));
        line.add("enhanced", Value::Flag(frame.enhanced.is_some()));
        line.add("ird", depth(|data| data.ird)).add("ord", depth(|data| data.ord));
        line.octets("private", frame.private_data);
        if let Some(data) = frame.enhanced {
            line.add("peer_to_peer", Value::Flag(data.ird & PEER_TO_PEER != 0));
            let indications = [
                ("send", data.ird & RTR_SEND),
                ("write", data.ord & RTR_WRITE),
                ("read", data.ord & RTR_READ),
            ];
            let offered = indications.into_iter().filter(|(_, flag)| *flag != 0);
            line.list("rtr", offered.map(|(name, _)| Value::Name(name)));
        }
    })
}

/// Describes an FPDU.
///
/// # Errors
/// The header of its DDP segment is not valid.
pub fn fpdu<'a>(fpdu: &Fpdu<'a>) -> Result<Fields<'a>, Refusal> {
    let segment = fpdu.segment.map_err(refuse_segment)?;
    let crc = match fpdu.crc {
        CrcField::Right => "ok",
        CrcField::Zero => "zero",
        CrcField::Wrong => "bad",
    };
    Ok(Fields::new(|line| {
        line.name("frame", "fpdu").number("ulpdu_length", fpdu.ulpdu_length).name("crc", crc);
        members(line, &segment);
        line.octets("payload", fpdu.payload);
    }))
}

fn members(line: &mut Fields<'_>, segment: &Segment) {
    let (opcode, place) = match segment.kind {
        Kind::Write { handle, offset } => ("WRITE", Ok((handle, offset))),
        Kind::ReadResponse { handle, offset } => ("READ_RESPONSE", Ok((handle, offset))),
        Kind::ReadRequest { msn, offset } => ("READ_REQUEST", Err((1_u32, msn, offset))),
        Kind::Terminate { msn, offset } => ("TERMINATE", Err((2, msn, offset))),
        Kind::Send { invalidate, solicited, msn, offset } => {
            let opcode = match (invalidate, solicited) {
                (None, false) => "SEND",
                (Some(_), false) => "SEND_INV",
                (None, true) => "SEND_SE",
                (Some(_), true) => "SEND_SE_INV",
            };
            (opcode, Err((0, msn, offset)))
        }
    };
    line.add("tagged", Value::Flag(place.is_ok())).add("last", Value::Flag(segment.last));
    line.name("opcode", opcode);
    match place {
        Ok((handle, offset)) => line.number("stag", handle.0).number("to", offset),
        Err((queue, msn, offset)) => {
            line.number("queue", queue).number("msn", msn).number("mo", offset)
        }
    };
    if let Kind::Send { invalidate: Some(handle), .. } = segment.kind {
        line.number("inv_stag", handle.0);
    }
}

fn refuse_segment(fault: Fault) -> Refusal {
    let at = match fault {
        Fault::DdpVersionTagged | Fault::DdpVersionUntagged => LENGTH_LEN,
        Fault::RdmapVersion | Fault::UnexpectedOpcode => RDMAP_AT,
        Fault::QueueNumber => QUEUE_AT,
        // The ULPDU length.
        _ => 0,
    };
    Refusal::silent(fault.rule(), at)
}

/// The common start of the keys of both MPA frames. An FPDU that began so would have an unknown RDMAP version.
const KEY_START: &[u8] = b"MPA ID Re";

/// The mask of the depth in a word of Enhanced data.
const DEPTH: u16 = 0x3fff;

/// The offset of RDMAP's control octet in an FPDU.
const RDMAP_AT: usize = LENGTH_LEN + 1;
/// The offset of the queue number: after the two control octets and the word reserved for RDMAP.
const QUEUE_AT: usize = LENGTH_LEN + 6;
