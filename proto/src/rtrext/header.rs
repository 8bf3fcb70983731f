//! The four header types (section 9), which follow the common prefix.
//!
//! Decoding is total and checks only the draft's XDR; [`super::group`] checks that a transmission fits its group.

use core::fmt;

use super::{Directions, Items, Malformed, REPTERR, Report, XMTCONT, XMTREQ, XMTRESP, header_name};
use crate::v2::VERSION;
use crate::v2::error::ErrorBody;
use crate::v2::header::{HeaderFault, Prefix};
use crate::xdr::{Reader, Truncated, Writer};

/// A transmission with valid XDR, without its prefix.
#[derive(Clone, Copy, Debug)]
pub enum Header<'a> {
    /// `ROPT_XMTREQ`: the first transmission of a Call.
    Request(Request<'a>),
    /// `ROPT_XMTRESP`: the first transmission of a Reply.
    Response(Response<'a>),
    /// `ROPT_XMTCONT`: any later transmission.
    Continue(Continue<'a>),
    /// `ROPT_REPTERR`: an error.
    Report(Report),
}

/// `optxmt_req` and the octets after it (DRCBL).
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// `optxrq_dp`: the items that were taken out of the Payload stream.
    pub dp: Items<'a>,
    /// `optxrq_rsd`: the directions for the Reply's items.
    pub rsd: Directions<'a>,
    /// `optxrq_count`: the number of transmissions in this group.
    pub count: u32,
    /// `optxrq_rsbuf`: the number of transmissions that the Reply may have beyond the first
    /// (reading E10).
    pub rsbuf: u32,
    /// `optxrq_pslen`: the number of Payload stream octets in this transmission.
    pub pslen: u32,
    /// The octets after the header: Payload stream, padding and bulk data.
    pub rest: &'a [u8],
}

/// `optxmt_resp` and the octets after it (DCL).
#[derive(Clone, Copy)]
pub struct Response<'a> {
    /// `optxrs_dp`: the outcome of each direction of the request.
    pub dp: Items<'a>,
    /// `optxrs_count`: the number of transmissions in this group.
    pub count: u32,
    /// `optxrs_pslen`: the number of Payload stream octets in this transmission.
    pub pslen: u32,
    /// The octets after the header: Payload stream, padding and bulk data.
    pub rest: &'a [u8],
}

/// `optxmt_cont` and the octets after it (NIL).
#[derive(Clone, Copy)]
pub struct Continue<'a> {
    /// `optxc_xnum`: the transmission's number in its group, from 0 (reading E10).
    pub xnum: u32,
    /// `optxc_itype`: undescribed; sent as 0 and ignored (reading E10).
    pub itype: u32,
    /// `optxc_pslen`: the number of Payload stream octets in this transmission.
    pub pslen: u32,
    /// The octets after the header: Payload stream, padding and bulk data.
    pub rest: &'a [u8],
}

/// Decodes one whole message whose header type belongs to this extension.
///
/// # Errors
/// See [`HeaderFault`].
pub fn decode(message: &[u8]) -> Result<(Prefix, Header<'_>), HeaderFault> {
    let mut r = Reader::new(message);
    // [V2-7-1] without a whole prefix there is no XID to answer under.
    let prefix = Prefix::decode(&mut r).map_err(|fault| HeaderFault {
        rule: "shorter than the common prefix",
        at: fault.at,
        prefix: None,
        credit: None,
        report: None,
    })?;
    if prefix.vers != VERSION {
        return Err(HeaderFault {
            rule: "unsupported version",
            at: 4,
            prefix: Some(prefix),
            credit: None,
            report: Some(ErrorBody::Vers { low: VERSION, high: VERSION }),
        });
    }
    Header::decode(&prefix, r.rest()).map(|header| (prefix, header))
}

impl<'a> Header<'a> {
    /// Decodes the octets after `prefix` in a message.
    ///
    /// # Errors
    /// See [`HeaderFault`]; its offset counts from the start of the prefix.
    pub fn decode(prefix: &Prefix, body: &'a [u8]) -> Result<Self, HeaderFault> {
        let fault = |at: usize, rule, report| HeaderFault {
            rule,
            at,
            prefix: Some(*prefix),
            credit: Some(prefix.credit),
            report,
        };
        if header_name(prefix.htype).is_none() {
            // [V2-7.1.3-1]
            return Err(fault(12, "unsupported header type", Some(ErrorBody::InvalHtype)));
        }
        Self::decode_body(prefix.htype, &mut Reader::new(body)).map_err(|Malformed { rule, at }| {
            // E13: an error is never answered, and a malformed Reply fails its Call where it arrives.
            let silent = matches!(prefix.htype, XMTRESP | REPTERR);
            let report = Some(ErrorBody::BadXdr).filter(|_| !silent);
            fault(at.saturating_add(Prefix::WIRE_LEN), rule, report)
        })
    }

    fn decode_body(htype: u32, r: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match htype {
            XMTREQ => Self::Request(Request {
                dp: Items::decode(r)?,
                rsd: Directions::decode(r)?,
                count: r.u32()?,
                rsbuf: r.u32()?,
                pslen: r.u32()?,
                rest: r.rest(),
            }),
            XMTRESP => Self::Response(Response {
                dp: Items::decode(r)?,
                count: r.u32()?,
                pslen: r.u32()?,
                rest: r.rest(),
            }),
            XMTCONT => Self::Continue(Continue {
                xnum: r.u32()?,
                itype: r.u32()?,
                pslen: r.u32()?,
                rest: r.rest(),
            }),
            _ => {
                let report = Report::decode(r)?;
                if !r.is_empty() {
                    return Err(Malformed { rule: "octets after the header", at: r.position() });
                }
                Self::Report(report)
            }
        })
    }

    /// Appends the header and the octets after it to `w`, after its prefix.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::Request(request) => {
                Items::encode(w, request.dp.to_encode())?;
                Directions::encode(w, request.rsd.to_encode())?;
                for word in [request.count, request.rsbuf, request.pslen] {
                    w.u32(word)?;
                }
                w.put(request.rest)
            }
            Self::Response(response) => {
                Items::encode(w, response.dp.to_encode())?;
                w.u32(response.count)?;
                w.u32(response.pslen)?;
                w.put(response.rest)
            }
            Self::Continue(part) => {
                for word in [part.xnum, part.itype, part.pslen] {
                    w.u32(word)?;
                }
                w.put(part.rest)
            }
            Self::Report(report) => report.encode(w),
        }
    }

    /// Returns the header type.
    pub const fn htype(&self) -> u32 {
        match self {
            Self::Request(_) => XMTREQ,
            Self::Response(_) => XMTRESP,
            Self::Continue(_) => XMTCONT,
            Self::Report(_) => REPTERR,
        }
    }

    /// Returns the octets after the header in the message.
    pub const fn rest(&self) -> &'a [u8] {
        match self {
            Self::Request(Request { rest, .. })
            | Self::Response(Response { rest, .. })
            | Self::Continue(Continue { rest, .. }) => rest,
            Self::Report(_) => &[],
        }
    }
}

// Payload never reaches a log, so only its length is printed.

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut request = f.debug_struct("Request");
        request.field("dp", &self.dp).field("rsd", &self.rsd).field("count", &self.count);
        request.field("rsbuf", &self.rsbuf).field("pslen", &self.pslen);
        request.field("rest_length", &self.rest.len()).finish()
    }
}

impl fmt::Debug for Response<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut response = f.debug_struct("Response");
        response.field("dp", &self.dp).field("count", &self.count).field("pslen", &self.pslen);
        response.field("rest_length", &self.rest.len()).finish()
    }
}

impl fmt::Debug for Continue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut part = f.debug_struct("Continue");
        part.field("xnum", &self.xnum).field("itype", &self.itype).field("pslen", &self.pslen);
        part.field("rest_length", &self.rest.len()).finish()
    }
}

#[cfg(test)]
mod tests;
