//! Encoding of the round-trip extensions' messages from JSON, with the names of their XDR.
//!
//! The discriminant of a union is its first member, under its XDR name. `payload` holds everything after the header:
//! Payload stream, padding, bulk data.

use haulage_proto::chunk::WriteChunk;
use haulage_proto::rtrext::item;
use haulage_proto::rtrext::report::{Expected, MessageType, OutOfRange};
use haulage_proto::rtrext::{
    REPTERR, Report, ReportInfo, TransmissionId, XMTCONT, XMTREQ, XMTRESP, header_name,
};
use haulage_proto::v2::header::Prefix;
use haulage_proto::xdr::Writer;

use super::chunks;
use super::fields::{Complaint, Field, Object};

/// Returns the header type of this name, if it belongs to the extensions.
pub fn header_type(name: &str) -> Option<u32> {
    [XMTREQ, XMTRESP, XMTCONT, REPTERR].into_iter().find(|htype| header_name(*htype) == Some(name))
}

/// Encodes one message, whose prefix was taken from its description.
pub fn assemble(prefix: Prefix, mut message: Object, w: &mut Writer<'_>) -> Result<(), Complaint> {
    prefix.encode(w)?;
    let words: &[&str] = match prefix.htype {
        XMTREQ => {
            items(message.take("optxrq_dp")?, w)?;
            directions(message.take("optxrq_rsd")?, w)?;
            &["optxrq_count", "optxrq_rsbuf", "optxrq_pslen"]
        }
        XMTRESP => {
            items(message.take("optxrs_dp")?, w)?;
            &["optxrs_count", "optxrs_pslen"]
        }
        XMTCONT => &["optxc_xnum", "optxc_itype", "optxc_pslen"],
        _ => {
            report(&mut message)?.encode(w)?;
            return message.end();
        }
    };
    for word in words {
        w.u32(message.u32(word)?)?;
    }
    w.put(message.take("payload")?.octets()?)?;
    message.end()
}

fn items(field: Field, w: &mut Writer<'_>) -> Result<(), Complaint> {
    let items = field.elements()?;
    w.u32(u32::try_from(items.len()).map_err(|_| Complaint::too_long())?)?;
    for item in items {
        let mut item = item.object()?;
        w.u32(item.u32("xmdmi_disp")?)?;
        w.u32(item.u32("xmdmi_length")?)?;
        location(item.take("xmdmi_where")?.object()?, w)?;
        item.end()?;
    }
    Ok(())
}

fn location(mut place: Object, w: &mut Writer<'_>) -> Result<(), Complaint> {
    let name = place.take("type")?;
    match name.as_text() {
        "XMPTYPE_EXRW" => {
            w.u32(item::EXRW)?;
            chunk(place.take("xmdl_ex")?, w)?;
        }
        "XMPTYPE_TBSN" => {
            w.u32(item::TBSN)?;
            w.u32(place.u32("xmdl_offset")?)?;
            let numbers = place.take("xmdl_bsnum")?.elements()?;
            w.u32(u32::try_from(numbers.len()).map_err(|_| Complaint::too_long())?)?;
            for number in numbers {
                w.u32(number.u32()?)?;
            }
        }
        "XMPTYPE_TOOSHORT" => w.u32(item::TOOSHORT)?,
        "XMPTYPE_NOITEM" => w.u32(item::NOITEM)?,
        _ => return Err(name.is_not("a type of xmdp_loc")),
    }
    place.end()
}

fn directions(field: Field, w: &mut Writer<'_>) -> Result<(), Complaint> {
    let sets = field.elements()?;
    w.u32(u32::try_from(sets.len()).map_err(|_| Complaint::too_long())?)?;
    for set in sets {
        let mut set = set.object()?;
        let mut range = set.take("xmdrsds_range")?.object()?;
        w.u32(range.u32("xmdrsdr_begin")?)?;
        w.u32(range.u32("xmdrsdr_end")?)?;
        range.end()?;
        let items = set.take("xmdrsds_items")?.elements()?;
        w.u32(u32::try_from(items.len()).map_err(|_| Complaint::too_long())?)?;
        for item in items {
            let mut item = item.object()?;
            w.u32(item.u32("xmdrsdi_minlen")?)?;
            directed(item.take("xmdrsdi_loc")?.object()?, w)?;
            item.end()?;
        }
        set.end()?;
    }
    Ok(())
}

fn directed(mut place: Object, w: &mut Writer<'_>) -> Result<(), Complaint> {
    let name = place.take("type")?;
    match name.as_text() {
        "XMPTYPE_EXRW" => {
            w.u32(item::EXRW)?;
            chunk(place.take("xmdrsdl_ex")?, w)?;
        }
        "XMPTYPE_TBSN" => w.u32(item::TBSN)?,
        // E10: the draft has two names for this type.
        "XMPTYPE_CHOICE" | "XMPTYPE_CHOOSE" => {
            w.u32(item::CHOICE)?;
            chunk(place.take("xmdrsdl_ex")?, w)?;
        }
        "XMPTYPE_BYSIZE" => {
            w.u32(item::BYSIZE)?;
            w.u32(place.u32("xmdrsdl_dsdov")?)?;
            chunk(place.take("xmdrsdl_bsex")?, w)?;
        }
        _ => return Err(name.is_not("a type of xmdp_rsdloc")),
    }
    place.end()
}

fn chunk(field: Field, w: &mut Writer<'_>) -> Result<(), Complaint> {
    Ok(WriteChunk::encode(w, chunks::parse_segments(field)?.into_iter())?)
}

fn report(message: &mut Object) -> Result<Report, Complaint> {
    let bad = id(message.take("optre_bad")?)?;
    let lead = message.take("optre_lead")?.nullable().map(id).transpose()?;
    let mut info = message.take("optre_info")?.object()?;
    let name = info.take("optre_which")?;
    let expected = |info: &mut Object| -> Result<_, Complaint> {
        Ok(Expected { expect: info.u32("optri_expect")?, current: info.u32("optri_current")? })
    };
    let range = |info: &mut Object| -> Result<_, Complaint> {
        let (min, max) = (info.u32("optri_min")?, info.u32("optri_max")?);
        Ok(OutOfRange { value: info.u32("optri_value")?, min, max })
    };
    let which = match name.as_text() {
        "OPTRERR_BADHMT" => ReportInfo::BadHeaderType(expected(&mut info)?),
        "OPTRERR_BADOMT" => ReportInfo::BadOptionalType(expected(&mut info)?),
        "OPTRERR_BADCONT" => ReportInfo::BadContinuation,
        "OPTRERR_BADSEQ" => ReportInfo::BadSequence(expected(&mut info)?),
        "OPTRERR_BADXID" => ReportInfo::BadXid(expected(&mut info)?),
        "OPTRERR_BADOFF" => ReportInfo::BadOffset(range(&mut info)?),
        "OPTRERR_BADTBSN" => ReportInfo::BadNumber(range(&mut info)?),
        "OPTRERR_BADPL" => ReportInfo::BadPayloadLength(range(&mut info)?),
        _ => return Err(name.is_not("an optr_err")),
    };
    info.end()?;
    Ok(Report { bad, lead, info: which })
}

fn id(field: Field) -> Result<TransmissionId, Complaint> {
    let mut id = field.object()?;
    let (xid, dir) = (id.u32("xmsi_xid")?, id.take("xmsi_dir")?);
    let dir = match dir.as_text() {
        "CALL" => MessageType::Call,
        "REPLY" => MessageType::Reply,
        _ => return Err(dir.is_not("CALL or REPLY")),
    };
    let seq = id.u32("xmsi_seq")?;
    id.end()?;
    Ok(TransmissionId { xid, dir, seq })
}
