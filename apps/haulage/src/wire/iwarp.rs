//! Decoding of the layers below RPC-over-RDMA on TCP: MPA frames and FPDUs.
//!
//! An FPDU is decoded whole: ULPDU length, ULPDU, padding, CRC field. Markers are not supported. A wrong CRC is
//! reported, and the FPDU is decoded nevertheless.

use haulage::sys::crc::crc32c;
use haulage_proto::iwarp::mpa::frame::{
    Enhanced, Frame, Kind as FrameKind, PEER_TO_PEER, RTR_READ, RTR_SEND, RTR_WRITE,
};
use haulage_proto::iwarp::mpa::handshake::Fault as FrameFault;
use haulage_proto::iwarp::mpa::{CRC_LEN, LENGTH_LEN, pad};
use haulage_proto::iwarp::rdmap::{Kind, Segment};
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::iwarp::{CRC_INIT, crc_octets};
use haulage_proto::xdr::Reader;

use super::refusal::Refusal;
use crate::output::json;

/// Describes an FPDU, or an MPA Request or Reply.
pub fn describe(octets: &[u8]) -> Result<String, Refusal> {
    if octets.starts_with(KEY_START) { frame(octets) } else { fpdu(octets) }
}

fn frame(octets: &[u8]) -> Result<String, Refusal> {
    let reply = octets.get(KEY_START.len()) == Some(&b'p');
    let (kind, name) =
        if reply { (FrameKind::Reply, "mpa_reply") } else { (FrameKind::Request, "mpa_request") };
    let frame = Frame::decode(kind, octets).map_err(|fault| refuse_frame(fault, octets))?;
    let frame = frame.ok_or_else(|| Refusal::silent("truncated", octets.len()))?;
    if octets.len() > frame.wire_len() {
        return Err(Refusal::silent("octets after the frame", frame.wire_len()));
    }
    Ok(json::object(|line| {
        line.text("frame", name).count("rev", frame.revision);
        line.flag("markers", frame.flags.markers).flag("crc", frame.flags.crc);
        line.flag("reject", frame.flags.rejected).flag("enhanced", frame.enhanced.is_some());
        let enhanced = |depth: fn(Enhanced) -> u16| {
            frame
                .enhanced
                .map_or_else(|| "null".to_owned(), |data| (depth(data) & DEPTH).to_string())
        };
        line.json("ird", &enhanced(|data| data.ird)).json("ord", &enhanced(|data| data.ord));
        line.text("private", &hex::encode(frame.private_data));
        if let Some(data) = frame.enhanced {
            line.flag("peer_to_peer", data.ird & PEER_TO_PEER != 0);
            let indications = [
                ("send", data.ird & RTR_SEND),
                ("write", data.ord & RTR_WRITE),
                ("read", data.ord & RTR_READ),
            ];
            let offered = indications.iter().filter(|(_, flag)| *flag != 0);
            line.json("rtr", &json::array(offered.map(|(name, _)| json::string(name))));
        }
    }))
}

fn refuse_frame(fault: FrameFault, octets: &[u8]) -> Refusal {
    let at = match fault {
        FrameFault::NotMpa => KEY_START.len(),
        FrameFault::Revision => 17,
        _ => 18,
    };
    Refusal::silent(fault.rule(), at.min(octets.len()))
}

fn fpdu(octets: &[u8]) -> Result<String, Refusal> {
    let truncated = |_| Refusal::silent("truncated", octets.len());
    let mut r = Reader::new(octets);
    let ulpdu_length = u16::from_be_bytes(r.array().map_err(truncated)?);
    let length = usize::from(ulpdu_length);
    let mut ulpdu = Reader::new(r.take(length).map_err(truncated)?);
    r.take(pad(length)).map_err(truncated)?;
    let covered = r.position();
    let crc: [u8; CRC_LEN] = r.array().map_err(truncated)?;
    if !r.is_empty() {
        return Err(Refusal::silent("octets after the FPDU", r.position()));
    }
    let segment = Segment::decode(&mut ulpdu).map_err(refuse_segment)?;
    let sum = crc_octets(crc32c(CRC_INIT, &octets[..covered]));
    Ok(json::object(|line| {
        line.text("frame", "fpdu").count("ulpdu_length", ulpdu_length);
        line.text(
            "crc",
            if crc == sum {
                "ok"
            } else if crc == [0; CRC_LEN] {
                "zero"
            } else {
                "bad"
            },
        );
        members(line, &segment);
        line.text("payload", &hex::encode(ulpdu.rest()));
    }))
}

fn members(line: &mut json::Object, segment: &Segment) {
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
    line.flag("tagged", place.is_ok()).flag("last", segment.last).text("opcode", opcode);
    match place {
        Ok((handle, offset)) => line.count("stag", handle.0).count("to", offset),
        Err((queue, msn, offset)) => {
            line.count("queue", queue).count("msn", msn).count("mo", offset)
        }
    };
    if let Kind::Send { invalidate: Some(handle), .. } = segment.kind {
        line.count("inv_stag", handle.0);
    }
}

fn refuse_segment(fault: Fault) -> Refusal {
    let at = match fault {
        Fault::DdpVersionTagged | Fault::DdpVersionUntagged => LENGTH_LEN,
        Fault::RdmapVersion | Fault::UnexpectedOpcode => LENGTH_LEN + 1,
        // After the two control octets and the word reserved for RDMAP.
        Fault::QueueNumber => LENGTH_LEN + 6,
        // The ULPDU length.
        _ => 0,
    };
    Refusal::silent(fault.rule(), at)
}

/// The common start of the keys of both MPA frames. An FPDU that began so would have an unknown RDMAP version.
const KEY_START: &[u8] = b"MPA ID Re";

/// The mask of the depth in a word of Enhanced data.
const DEPTH: u16 = 0x3fff;

#[cfg(test)]
mod tests;
