//! Messages of the round-trip extensions, with the names of their XDR.
//!
//! The discriminant of a union is its first member, under its XDR name. `payload` holds everything after the header:
//! Payload stream, padding, bulk data.

use super::chunks;
use super::refusal::Refusal;
use super::value::{Fields, Value};
use crate::chunk::WriteChunk;
use crate::rtrext::header::{self, Header};
use crate::rtrext::item::ReceivedLocation;
use crate::rtrext::{
    Directed, Directions, Items, Location, Report, ReportInfo, TransmissionId, XMTRESP, header_name,
};
use crate::v2::error::ErrorBody;

/// Describes one message of version 2 whose header type belongs to the extensions.
pub(super) fn describe(octets: &[u8]) -> Result<Fields<'_>, Refusal> {
    let (prefix, header) = header::decode(octets).map_err(|fault| {
        // E13: a response is not answered. Its error still has a name, which is shown here.
        let response = fault.prefix.is_some_and(|prefix| prefix.htype == XMTRESP);
        let report = fault.report.or(response.then_some(ErrorBody::BadXdr));
        Refusal { rule: fault.rule, at: fault.at, report: report.map(|report| report.name()) }
    })?;
    Ok(Fields::new(|line| {
        line.number("xid", prefix.xid).number("vers", prefix.vers).number("credit", prefix.credit);
        line.name("htype", header_name(prefix.htype).unwrap_or_default());
        members(line, &header);
    }))
}

fn members<'a>(line: &mut Fields<'a>, header: &Header<'a>) {
    match header {
        Header::Request(request) => {
            line.list("optxrq_dp", items(request.dp));
            line.list("optxrq_rsd", directions(request.rsd));
            line.number("optxrq_count", request.count).number("optxrq_rsbuf", request.rsbuf);
            line.number("optxrq_pslen", request.pslen);
        }
        Header::Response(response) => {
            line.list("optxrs_dp", items(response.dp));
            line.number("optxrs_count", response.count).number("optxrs_pslen", response.pslen);
        }
        Header::Continue(part) => {
            line.number("optxc_xnum", part.xnum).number("optxc_itype", part.itype);
            line.number("optxc_pslen", part.pslen);
        }
        Header::Report(report) => return report_members(line, report),
    }
    line.octets("payload", header.rest());
}

fn items<'a>(items: Items<'a>) -> impl Iterator<Item = Value<'a>> {
    items.iter().map(|item| {
        Value::of_fields(|entry| {
            entry.number("xmdmi_disp", item.disp).number("xmdmi_length", item.length);
            entry.fields("xmdmi_where", |place| location(place, &item.place));
        })
    })
}

fn location<'a>(place: &mut Fields<'a>, location: &ReceivedLocation<'a>) {
    place.name("type", location.name());
    match location {
        Location::Exrw(chunk) => _ = place.list("xmdl_ex", chunks::segments(chunk.segments())),
        Location::Tbsn { offset, bsnum } => {
            place.number("xmdl_offset", *offset);
            place.list("xmdl_bsnum", bsnum.iter().map(|number| Value::Number(number.into())));
        }
        Location::TooShort | Location::NoItem => {}
    }
}

fn directions<'a>(directions: Directions<'a>) -> impl Iterator<Item = Value<'a>> {
    directions.iter().map(|set| {
        Value::of_fields(|entry| {
            entry.fields("xmdrsds_range", |range| {
                range.number("xmdrsdr_begin", set.begin).number("xmdrsdr_end", set.end);
            });
            entry.list(
                "xmdrsds_items",
                set.items.iter().map(|item| {
                    Value::of_fields(|entry| {
                        entry.number("xmdrsdi_minlen", item.minlen);
                        entry.fields("xmdrsdi_loc", |place| directed(place, &item.place));
                    })
                }),
            );
        })
    })
}

fn directed<'a>(place: &mut Fields<'a>, directed: &Directed<WriteChunk<'a>>) {
    place.name("type", directed.name());
    match directed {
        Directed::Exrw(chunk) | Directed::Choice(chunk) => {
            place.list("xmdrsdl_ex", chunks::segments(chunk.segments()));
        }
        Directed::BySize { dsdov, segments } => {
            place.number("xmdrsdl_dsdov", *dsdov);
            place.list("xmdrsdl_bsex", chunks::segments(segments.segments()));
        }
        Directed::Tbsn => {}
    }
}

fn report_members(line: &mut Fields<'_>, report: &Report) {
    line.fields("optre_bad", |id| id_members(id, &report.bad));
    match &report.lead {
        Some(lead) => line.fields("optre_lead", |id| id_members(id, lead)),
        None => line.add("optre_lead", Value::Null),
    };
    line.fields("optre_info", |info| {
        info.name("optre_which", report.info.name());
        match report.info {
            ReportInfo::BadContinuation => {}
            ReportInfo::BadHeaderType(field)
            | ReportInfo::BadOptionalType(field)
            | ReportInfo::BadSequence(field)
            | ReportInfo::BadXid(field) => {
                info.number("optri_expect", field.expect).number("optri_current", field.current);
            }
            ReportInfo::BadOffset(field)
            | ReportInfo::BadNumber(field)
            | ReportInfo::BadPayloadLength(field) => {
                info.number("optri_value", field.value);
                info.number("optri_min", field.min).number("optri_max", field.max);
            }
        }
    });
}

fn id_members(id: &mut Fields<'_>, named: &TransmissionId) {
    id.number("xmsi_xid", named.xid).name("xmsi_dir", named.dir.name());
    id.number("xmsi_seq", named.seq);
}
