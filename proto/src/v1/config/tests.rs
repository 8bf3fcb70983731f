use std::vec::Vec;

use super::*;
use crate::rpc::AuthSys;
use crate::testing::{Rng, Xdr};

const XID: u32 = 0x1bad_cafe;
const GSS: Credential<'_> = Credential::Other { flavor: RPCSEC_GSS, body: &[1, 2, 3, 4] };
const REQUEST: Request =
    Request { maxcall_sendsize: 8192, maxreply_sendsize: 2048, maxrdmaread: 16 };
const OURS: Limits =
    Limits { call_size: 4096, reply_size: 4096, client_reads: 8, server_reads: 32, align: 512 };

fn written(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut memory = [0; 512];
    let mut w = Writer::new(&mut memory);
    encode(&mut w).unwrap();
    w.written().to_vec()
}

fn call(credential: Credential<'_>, request: &Request) -> Vec<u8> {
    written(|w| encode_call(w, XID, credential, request))
}

/// Returns the limits that hold after a service has answered a Call, and the Reply.
fn answer(ours: Limits, unprotected: bool, call: &[u8]) -> (Option<Limits>, Vec<u8>) {
    let mut agreed = None;
    let reply = written(|w| {
        agreed = Service { ours, unprotected }.answer(call, w).unwrap();
        Ok(())
    });
    (agreed, reply)
}

#[test]
fn a_call_and_its_reply_are_as_the_specification_writes_them() {
    let call = call(Credential::None, &REQUEST);
    let header = [XID, 0, 2, 100_417, 1, 1, 0, 0, 0, 0];
    assert_eq!(call, Xdr::default().words(&header).words(&[8192, 2048, 16]).0);
    let (_, reply) = answer(OURS, true, &call);
    assert_eq!(reply, Xdr::default().words(&[XID, 1, 0, 0, 0, 0]).words(&[4096, 512, 32]).0);
    // [R5666-6.1-2] Call and Reply fit the 1024 octets that every end takes.
    assert!(call.len() + 28 <= 1024 && reply.len() + 28 <= 1024);
}

#[test]
fn both_ends_then_know_the_same_and_keep_to_the_smaller() {
    let (server, reply) = answer(OURS, false, &call(GSS, &REQUEST));
    let server = server.unwrap();
    let client = decode_reply(&reply, XID, &REQUEST).unwrap();
    // [R5666-6.2-3] the client asked to send more than the server takes.
    assert_eq!((client.call_size, server.call_size), (4096, 4096));
    assert_eq!((client.reply_size, server.reply_size), (2048, 2048));
    assert_eq!((client.client_reads, server.client_reads), (16, 8), "the server issues 8 at most");
    assert_eq!((client.server_reads, server.server_reads), (32, 32));
    assert_eq!((client.align, server.align), (512, 512));
    assert!(client.call_may_be_read() && server.reply_may_be_read());
}

#[test]
fn a_server_takes_and_issues_what_it_can_whatever_the_client_asks_for() {
    for (asked, reads, issued) in [(1024, 3, 3), (4096, 8, 8), (8192, 16, 8)] {
        let request = Request { maxcall_sendsize: asked, maxrdmaread: reads, ..REQUEST };
        let (server, reply) = answer(OURS, false, &call(GSS, &request));
        // [R5666-6.2-2] the server takes the same length, whether the client asks for less or for more.
        let taken = Reply::decode(&mut Reader::new(&reply[24..])).unwrap().maxcall_sendsize;
        assert_eq!((taken, server.unwrap().call_size), (4096, 4096), "{asked}");
        // [R5666-6.2-4] the server issues no more Reads than the client serves at once.
        assert_eq!(server.unwrap().client_reads, issued, "{reads}");
    }
}

#[test]
fn a_client_sends_no_more_than_it_can_and_the_server_takes() {
    for (wanted, taken, expected) in
        [(8192, 4096, 4096), (4096, 8192, 4096), (0, 8192, 1024), (8192, 0, 1024)]
    {
        let request = Request { maxcall_sendsize: wanted, ..REQUEST };
        let reply = Reply { maxcall_sendsize: taken, align: 0, maxrdmaread: 1 };
        // Every end takes 1024 octets, whatever it says.
        assert_eq!(request.agreed(&reply).call_size, expected, "{wanted} {taken}");
    }
    for (wanted, able, expected) in [(2048, 4096, 2048), (8192, 4096, 4096), (1, 4096, 1024)] {
        let request = Request { maxreply_sendsize: wanted, ..REQUEST };
        let (agreed, _) = answer(Limits { reply_size: able, ..OURS }, false, &call(GSS, &request));
        assert_eq!(agreed.unwrap().reply_size, expected, "{wanted} {able}");
    }
}

#[test]
fn no_reads_at_one_end_are_no_read_lists() {
    for (client, server) in [(0, 1), (1, 0), (0, 0)] {
        let request = Request { maxrdmaread: client, ..REQUEST };
        let ours = Limits { server_reads: server, ..OURS };
        let (agreed, reply) = answer(ours, false, &call(GSS, &request));
        let at_client = decode_reply(&reply, XID, &request).unwrap();
        for limits in [agreed.unwrap(), at_client] {
            assert!(!limits.call_may_be_read() && !limits.reply_may_be_read());
        }
    }
}

#[test]
fn an_unprotected_call_is_refused_unless_configured() {
    let sys = Credential::Sys(AuthSys::new(0, b"host", 0, 0));
    for weak in [Credential::None, sys, Credential::Other { flavor: 99, body: &[] }] {
        let call = call(weak, &REQUEST);
        let (agreed, reply) = answer(OURS, false, &call);
        assert_eq!(agreed, None);
        let denied = ReplyBody::Denied(RejectStat::AuthError(AUTH_TOOWEAK));
        assert_eq!(decode_reply(&reply, XID, &REQUEST), Err(AnswerFault::Refused(denied)));
        assert!(answer(OURS, true, &call).0.is_some());
    }
}

#[test]
fn what_is_not_the_procedure_gets_the_rpc_layers_answer() {
    let rpc = |words: [u32; 6]| Xdr::default().words(&words).words(&[0, 0, 0, 0]).0;
    let mismatch = AcceptStat::ProgMismatch { low: 1, high: 1 };
    let cases = [
        (rpc([XID, 0, 2, 100_417, 1, 0]), AcceptStat::Success),
        (rpc([XID, 0, 2, 100_418, 1, 1]), AcceptStat::ProgUnavail),
        (rpc([XID, 0, 2, 100_417, 2, 1]), mismatch),
        (rpc([XID, 0, 2, 100_417, 1, 2]), AcceptStat::ProcUnavail),
        (rpc([XID, 0, 2, 100_417, 1, 1]), AcceptStat::GarbageArgs),
    ];
    for (call, expected) in cases {
        let (agreed, reply) = answer(OURS, true, &call);
        let (header, end) = ReplyHeader::decode(&reply).unwrap();
        assert_eq!((agreed, header), (None, ReplyHeader::accepted(XID, expected)));
        assert_eq!(end, reply.len(), "no results");
    }
    let (agreed, reply) = answer(OURS, true, &rpc([XID, 0, 3, 100_417, 1, 1]));
    let denied = RejectStat::RpcMismatch { low: 2, high: 2 };
    let expected = Err(AnswerFault::Refused(ReplyBody::Denied(denied)));
    assert_eq!((agreed, decode_reply(&reply, XID, &REQUEST)), (None, expected));
    let service = Service { ours: OURS, unprotected: true };
    for no_call in [&[][..], &[0; 4], &rpc([XID, 1, 2, 100_417, 1, 1])] {
        let answered = service.answer(no_call, &mut Writer::new(&mut [0; 64]));
        assert_eq!(answered, Err(AnswerFault::Malformed));
    }
}

#[test]
fn a_server_may_do_without_it() {
    let unserved = ReplyHeader::accepted(XID, AcceptStat::ProgUnavail);
    let reply = written(|w| unserved.encode(w));
    let expected = Err(AnswerFault::Refused(unserved.body));
    assert_eq!(decode_reply(&reply, XID, &REQUEST), expected, "no fault of its answer");
}

#[test]
fn an_answer_that_is_none_is_refused() {
    let (_, reply) = answer(OURS, true, &call(Credential::None, &REQUEST));
    assert!(decode_reply(&reply, XID, &REQUEST).is_ok());
    assert_eq!(decode_reply(&reply, XID + 1, &REQUEST), Err(AnswerFault::Xid));
    for end in 0..reply.len() {
        let cut = decode_reply(&reply[..end], XID, &REQUEST);
        assert_eq!(cut, Err(AnswerFault::Malformed), "{end}");
    }
    let mut rng = Rng::new(100_417);
    for _ in 0..2_000 {
        let mut bytes = call(GSS, &REQUEST);
        let at = rng.below(bytes.len());
        bytes[at] = rng.octet();
        bytes.truncate(bytes.len() - rng.below(8));
        let mut memory = [0; 64];
        let mut w = Writer::new(&mut memory);
        let answered = Service { ours: OURS, unprotected: false }.answer(&bytes, &mut w);
        assert_eq!(answered.is_ok(), !w.written().is_empty(), "an answer or none");
    }
}
