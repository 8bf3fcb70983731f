//! Calls to rpcbind, and its replies.

use haulage_proto::rpc::{AcceptStat, CallHeader, RejectStat, ReplyBody, ReplyHeader};
use haulage_proto::xdr::{Reader, Writer};

use super::fault::Fault;
use super::program::Program;

/// The procedures of rpcbind that we call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Procedure {
    Set,
    Unset,
    GetAddr,
    Dump,
    GetVersAddr,
}

impl Procedure {
    const fn number(self) -> u32 {
        match self {
            Self::Set => 1,
            Self::Unset => 2,
            Self::GetAddr => 3,
            Self::Dump => 4,
            Self::GetVersAddr => 9,
        }
    }

    /// Returns the versions that have the procedure, the one to try first at the front.
    pub(super) fn versions(self) -> impl Iterator<Item = u32> {
        let versions: &[u32] = if self == Self::GetVersAddr { &[4] } else { &[4, 3] };
        versions.iter().copied()
    }
}

/// The argument of most procedures: `rpcb`, whose owner rpcbind fills in itself.
#[derive(Debug)]
pub(super) struct Mapping<'a> {
    pub(super) program: Program,
    pub(super) netid: &'a str,
    pub(super) address: &'a str,
}

/// One registered service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The program and version that are served.
    pub program: Program,
    /// The netid of the transport.
    pub netid: String,
    /// The universal address; a path for local transports.
    pub address: String,
    /// The user who registered the service, as rpcbind names it.
    pub owner: String,
}

/// The outcome of a call.
pub(super) enum Outcome<'a> {
    Success(Reader<'a>),
    /// rpcbind does not speak this version of the protocol.
    OtherVersion,
    Refused(Fault),
}

/// Encodes a call; `None` if a netid or address is far longer than any real one.
pub(super) fn call(
    version: u32,
    procedure: Procedure,
    mapping: Option<&Mapping<'_>>,
) -> Option<Vec<u8>> {
    let mut memory = [0; CALL_MAX];
    let mut w = Writer::new(&mut memory);
    CallHeader::new(XID, PROGRAM, version, procedure.number()).encode(&mut w).ok()?;
    if let Some(mapping) = mapping {
        w.u32(mapping.program.program).ok()?;
        w.u32(mapping.program.version).ok()?;
        for text in [mapping.netid, mapping.address, ""] {
            w.opaque(text.as_bytes()).ok()?;
        }
    }
    Some(w.written().to_vec())
}

/// Judges the header of a reply.
pub(super) fn outcome(reply: &[u8]) -> Outcome<'_> {
    let (header, at) = match ReplyHeader::decode(reply) {
        Ok((header, at)) if header.xid == XID => (header, at),
        _ => return Outcome::Refused(Fault::Malformed),
    };
    match header.body {
        ReplyBody::Accepted(AcceptStat::Success) => {
            Outcome::Success(Reader::new(reply.get(at..).unwrap_or_default()))
        }
        ReplyBody::Accepted(AcceptStat::ProgMismatch { .. }) => Outcome::OtherVersion,
        ReplyBody::Accepted(AcceptStat::ProgUnavail | AcceptStat::ProcUnavail)
        | ReplyBody::Denied(RejectStat::RpcMismatch { .. }) => Outcome::Refused(Fault::Unsupported),
        ReplyBody::Accepted(AcceptStat::GarbageArgs | AcceptStat::SystemErr) => {
            Outcome::Refused(Fault::Failed)
        }
        ReplyBody::Denied(RejectStat::AuthError(_)) => Outcome::Refused(Fault::Denied),
    }
}

/// Parses a truth value.
pub(super) fn boolean(r: &mut Reader<'_>) -> Option<bool> {
    match r.u32().ok()? {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    }
}

/// Parses a string.
pub(super) fn string(r: &mut Reader<'_>) -> Option<String> {
    let octets = r.opaque(usize::MAX).ok()?;
    Some(String::from_utf8_lossy(octets).into_owned())
}

/// Parses a list of services.
pub(super) fn entries(r: &mut Reader<'_>) -> Option<Vec<Entry>> {
    let mut entries = Vec::new();
    while boolean(r)? {
        let program = Program { program: r.u32().ok()?, version: r.u32().ok()? };
        let (netid, address, owner) = (string(r)?, string(r)?, string(r)?);
        entries.push(Entry { program, netid, address, owner });
    }
    Some(entries)
}

/// rpcbind's own program number.
const PROGRAM: u32 = 100_000;
/// The XID of every call: each call has its own connection.
const XID: u32 = 0x7270_6362;
/// Octets of the longest call: a header and three short strings.
const CALL_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    const NFS: Program = Program { program: 100_003, version: 4 };

    fn words(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_call_is_a_header_and_a_mapping() {
        let mapping = Mapping { program: NFS, netid: "rdma", address: "192.0.2.7.78.81" };
        for (procedure, number) in [
            (Procedure::Set, 1),
            (Procedure::Unset, 2),
            (Procedure::GetAddr, 3),
            (Procedure::GetVersAddr, 9),
        ] {
            let mut expected = words(&[XID, 0, 2, 100_000, 4, number, 0, 0, 0, 0, 100_003, 4, 4]);
            expected.extend(b"rdma\0\0\0\x0f192.0.2.7.78.81\0\0\0\0\0");
            assert_eq!(call(4, procedure, Some(&mapping)), Some(expected));
        }
        let expected = words(&[XID, 0, 2, 100_000, 3, 4, 0, 0, 0, 0]);
        assert_eq!(call(3, Procedure::Dump, None), Some(expected));
        let long = Mapping { program: NFS, netid: "rdma", address: &"x".repeat(CALL_MAX) };
        assert_eq!(call(4, Procedure::Set, Some(&long)), None);
    }

    #[test]
    fn a_list_is_parsed_to_its_end_and_no_further() {
        let mut list = words(&[1, 100_003, 4, 5]);
        list.extend(b"rdma6\0\0\0\0\0\0\x07::.78.8\0\0\0\0\x04root\0\0\0\x01");
        list.extend(words(&[7, 1, 0, 0, 0, 0]));
        let mut r = Reader::new(&list);
        let of = |program, netid: &str, address: &str, owner: &str| Entry {
            program,
            netid: netid.into(),
            address: address.into(),
            owner: owner.into(),
        };
        let expected = [
            of(NFS, "rdma6", "::.78.8", "root"),
            of(Program { program: 7, version: 1 }, "", "", ""),
        ];
        assert_eq!(entries(&mut r).unwrap(), expected);
        assert!(r.is_empty());
        for length in 0..list.len() {
            assert_eq!(entries(&mut Reader::new(&list[..length])), None, "{length}");
        }
        assert_eq!(entries(&mut Reader::new(&words(&[2]))), None);
    }

    #[test]
    fn a_truth_value_is_one_of_two() {
        let parse = |word| boolean(&mut Reader::new(&words(&[word])));
        assert_eq!([parse(0), parse(1), parse(2)], [Some(false), Some(true), None]);
    }

    #[test]
    fn each_refusal_has_its_fault() {
        let said = |after_xid: &[u32]| match outcome(&[words(&[XID]), words(after_xid)].concat()) {
            Outcome::Success(r) => format!("success, {} octets", r.rest().len()),
            Outcome::OtherVersion => "another version".to_owned(),
            Outcome::Refused(fault) => fault.to_string(),
        };
        assert_eq!(said(&[1, 0, 0, 0, 0, 9]), "success, 4 octets");
        assert_eq!(said(&[1, 0, 0, 0, 2, 3, 3]), "another version");
        for unsupported in [[1, 0, 0, 0, 1, 0], [1, 0, 0, 0, 3, 0], [1, 1, 0, 2, 2, 0]] {
            assert_eq!(said(&unsupported), Fault::Unsupported.to_string());
        }
        for failed in [[1, 0, 0, 0, 4], [1, 0, 0, 0, 5]] {
            assert_eq!(said(&failed), Fault::Failed.to_string());
        }
        assert_eq!(said(&[1, 1, 1, 5]), Fault::Denied.to_string());
        for malformed in [&[0, 0][..], &[1], &[1, 2], &[1, 0, 0, 0, 6]] {
            assert_eq!(said(malformed), Fault::Malformed.to_string());
        }
        let other_call = words(&[XID + 1, 1, 0, 0, 0, 0]);
        assert!(matches!(outcome(&other_call), Outcome::Refused(Fault::Malformed)));
    }
}
