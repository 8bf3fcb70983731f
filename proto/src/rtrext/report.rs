//! The body of `ROPT_REPTERR`: the transmission at fault, and the error (section 9.5).

use core::fmt;

use super::Malformed;
use crate::xdr::{Reader, Truncated, Writer};

/// `optrept_err`: an error in the transmissions of one RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// `optre_bad`: the transmission in which the error was found.
    pub bad: TransmissionId,
    /// `optre_lead`: an earlier transmission that led to the error.
    pub lead: Option<TransmissionId>,
    /// `optre_info`: the error.
    pub info: ReportInfo,
}

/// `xms_id`: the identifier of one transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmissionId {
    /// `xmsi_xid`: the XID of the RPC message.
    pub xid: u32,
    /// `xmsi_dir`: the direction of the RPC message.
    pub dir: MessageType,
    /// `xmsi_seq`: the number of the transmission in the group, from 0.
    pub seq: u32,
}

/// `msg_type` of ONC RPC: the direction of an RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageType {
    /// `CALL`.
    Call,
    /// `REPLY`.
    Reply,
}

/// `optr_info`: an error and its details.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportInfo {
    /// `OPTRERR_BADHMT`: a header type of the base protocol where a continuation was expected.
    BadHeaderType(Expected),
    /// `OPTRERR_BADOMT`: a header type of the extension other than the one expected.
    BadOptionalType(Expected),
    /// `OPTRERR_BADCONT`: a continuation without a group.
    BadContinuation,
    /// `OPTRERR_BADSEQ`: the wrong transmission number.
    BadSequence(Expected),
    /// `OPTRERR_BADXID`: the wrong XID.
    BadXid(Expected),
    /// `OPTRERR_BADOFF`: an item at an impossible offset.
    BadOffset(OutOfRange),
    /// `OPTRERR_BADTBSN`: a buffer segment that cannot hold the item.
    BadNumber(OutOfRange),
    /// `OPTRERR_BADPL`: an impossible Payload length.
    BadPayloadLength(OutOfRange),
}

/// A field with another value than the one expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// `optri_expect`.
    pub expect: u32,
    /// `optri_current`.
    pub current: u32,
}

/// A field that is out of its range or, if the value is in the range, not aligned to 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfRange {
    /// `optri_value`.
    pub value: u32,
    /// `optri_min`.
    pub min: u32,
    /// `optri_max`.
    pub max: u32,
}

impl Report {
    /// Parses a report.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bad = TransmissionId::decode(r)?;
        let at = r.position();
        let lead = match r.u32()? {
            0 => None,
            1 => Some(TransmissionId::decode(r)?),
            _ => return Err(Malformed { rule: "discriminator of optre_lead", at }),
        };
        Ok(Self { bad, lead, info: ReportInfo::decode(r)? })
    }

    /// Appends the report to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.bad.encode(w)?;
        w.u32(u32::from(self.lead.is_some()))?;
        if let Some(lead) = &self.lead {
            lead.encode(w)?;
        }
        self.info.encode(w)
    }
}

impl Report {
    /// Returns the directions and XIDs of the RPC messages that the report is about. The peer has accepted nothing of
    /// them.
    pub fn messages(&self) -> impl Iterator<Item = (MessageType, u32)> + use<> {
        let name = |id: TransmissionId| (id.dir, id.xid);
        let bad = name(self.bad);
        let lead = self.lead.map(name).filter(|lead| *lead != bad);
        core::iter::once(bad).chain(lead)
    }
}

impl TransmissionId {
    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let xid = r.u32()?;
        let at = r.position();
        let dir = match r.u32()? {
            0 => MessageType::Call,
            1 => MessageType::Reply,
            _ => return Err(Malformed { rule: "xmsi_dir", at }),
        };
        Ok(Self { xid, dir, seq: r.u32()? })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.xid)?;
        w.u32(self.dir.code())?;
        w.u32(self.seq)
    }
}

impl MessageType {
    /// Returns the encoded value.
    pub const fn code(self) -> u32 {
        match self {
            Self::Call => 0,
            Self::Reply => 1,
        }
    }

    /// Returns the name of the value in ONC RPC.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Call => "CALL",
            Self::Reply => "REPLY",
        }
    }
}

impl ReportInfo {
    /// Returns the error code on the wire.
    pub const fn code(&self) -> u32 {
        match self {
            Self::BadHeaderType(_) => 1,
            Self::BadOptionalType(_) => 2,
            Self::BadContinuation => 3,
            Self::BadSequence(_) => 4,
            Self::BadXid(_) => 5,
            Self::BadOffset(_) => 6,
            Self::BadNumber(_) => 7,
            Self::BadPayloadLength(_) => 8,
        }
    }

    /// Returns the name of the error in the draft.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::BadHeaderType(_) => "OPTRERR_BADHMT",
            Self::BadOptionalType(_) => "OPTRERR_BADOMT",
            Self::BadContinuation => "OPTRERR_BADCONT",
            Self::BadSequence(_) => "OPTRERR_BADSEQ",
            Self::BadXid(_) => "OPTRERR_BADXID",
            Self::BadOffset(_) => "OPTRERR_BADOFF",
            Self::BadNumber(_) => "OPTRERR_BADTBSN",
            Self::BadPayloadLength(_) => "OPTRERR_BADPL",
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Malformed> {
        let at = r.position();
        let code = r.u32()?;
        let expected = |r: &mut Reader<'_>| -> Result<_, Truncated> {
            Ok(Expected { expect: r.u32()?, current: r.u32()? })
        };
        let range = |r: &mut Reader<'_>| -> Result<_, Truncated> {
            Ok(OutOfRange { value: r.u32()?, min: r.u32()?, max: r.u32()? })
        };
        Ok(match code {
            1 => Self::BadHeaderType(expected(r)?),
            2 => Self::BadOptionalType(expected(r)?),
            3 => Self::BadContinuation,
            4 => Self::BadSequence(expected(r)?),
            5 => Self::BadXid(expected(r)?),
            6 => Self::BadOffset(range(r)?),
            7 => Self::BadNumber(range(r)?),
            8 => Self::BadPayloadLength(range(r)?),
            _ => return Err(Malformed { rule: "unknown error code", at }),
        })
    }

    fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.code())?;
        match self {
            Self::BadContinuation => Ok(()),
            Self::BadHeaderType(field)
            | Self::BadOptionalType(field)
            | Self::BadSequence(field)
            | Self::BadXid(field) => {
                w.u32(field.expect)?;
                w.u32(field.current)
            }
            Self::BadOffset(field) | Self::BadNumber(field) | Self::BadPayloadLength(field) => {
                w.u32(field.value)?;
                w.u32(field.min)?;
                w.u32(field.max)
            }
        }
    }
}

impl fmt::Display for ReportInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::BadContinuation => Ok(()),
            Self::BadHeaderType(Expected { expect, current })
            | Self::BadOptionalType(Expected { expect, current })
            | Self::BadSequence(Expected { expect, current })
            | Self::BadXid(Expected { expect, current }) => {
                write!(f, ": {current} where {expect} was expected")
            }
            Self::BadOffset(OutOfRange { value, min, max })
            | Self::BadNumber(OutOfRange { value, min, max })
            | Self::BadPayloadLength(OutOfRange { value, min, max }) => {
                write!(f, ": {value} is not an aligned value from {min} to {max}")
            }
        }
    }
}
