//! Records whose octets are no Call, or a Call that nobody serves.

use haulage_proto::rpc::RejectStat;

use super::*;

/// Sends one record on a connection of its own. Returns the answer to it, if it has one; then the connection stays and
/// serves.
fn answer(server: &mut Server, octets: &[u8], what: &str) -> Option<(u32, ReplyBody, Vec<u8>)> {
    let mut peer = server.connect(2);
    assert!(server.send(&mut peer, &record(octets)), "{what}");
    let answer = server.reply(&mut peer);
    match answer {
        Some(_) => server.serves(&mut peer, what),
        None => assert!(peer.received.is_empty(), "{what}"),
    }
    answer
}

fn accepted(xid: u32, stat: AcceptStat) -> Option<(u32, ReplyBody, Vec<u8>)> {
    Some((xid, ReplyHeader::accepted(xid, stat).body, Vec::new()))
}

fn denied(xid: u32, why: RejectStat) -> Option<(u32, ReplyBody, Vec<u8>)> {
    Some((xid, ReplyBody::Denied(why), Vec::new()))
}

#[test]
fn a_call_cut_at_any_octet_of_its_header_ends_its_connection_alone() {
    let mut server = Server::new(TCP);
    let mut bystander = server.connect(1);
    let claim = [&words(&[1, 28, 0, 7])[..], b"machine\0", &words(&[5, 6, 0])].concat();
    let header = [&words(&[9, 0, 2, PROGRAM, 1, NULL])[..], &claim, &words(&[0, 0])].concat();
    for end in 0..header.len() {
        let what = format!("a Call of {end} octets");
        assert_eq!(answer(&mut server, &header[..end], &what), None, "{what}");
        server.serves(&mut bystander, &what);
    }
    assert_eq!(answer(&mut server, &header, "a whole Call"), accepted(9, AcceptStat::Success));
    // Its arguments, cut as well, are the service's.
    let call = rpc(9, TALLY, &counted(&[1; 10]));
    for end in call.len() - 16..call.len() {
        let what = format!("arguments that end at {end}");
        let expected = accepted(9, AcceptStat::GarbageArgs);
        assert_eq!(answer(&mut server, &call[..end], &what), expected, "{what}");
    }
    server.ends_with_nothing([bystander]);
}

#[test]
fn a_call_that_nobody_serves_is_told_why_and_no_reply_is_taken_for_a_call() {
    let mut server = Server::new(TCP);
    let mut bystander = server.connect(1);
    let call = |words_of: [u32; 6], rest: &[u8]| [&words(&words_of)[..], rest].concat();
    let none = words(&[0; 4]);
    let opaque = |flavor: u32, length: u32| {
        [&words(&[flavor, length])[..], &vec![0; length.next_multiple_of(4) as usize]].concat()
    };
    let auth = |credential: Vec<u8>, verifier: Vec<u8>| {
        call([9, 0, 2, PROGRAM, 1, NULL], &[credential, verifier].concat())
    };
    let mismatch = denied(9, RejectStat::RpcMismatch { low: 2, high: 2 });
    let versions = AcceptStat::ProgMismatch { low: 1, high: 1 };
    let cases = [
        ("RPC version 1", call([9, 0, 1, PROGRAM, 1, NULL], &none), mismatch.clone()),
        ("RPC version 3", call([9, 0, 3, PROGRAM, 1, NULL], &none), mismatch.clone()),
        ("RPC version huge", call([9, 0, u32::MAX, PROGRAM, 1, NULL], &[]), mismatch),
        ("no program", call([9, 0, 2, 77, 1, NULL], &none), accepted(9, AcceptStat::ProgUnavail)),
        ("no version", call([9, 0, 2, PROGRAM, 2, NULL], &none), accepted(9, versions)),
        (
            "no procedure",
            call([9, 0, 2, PROGRAM, 1, 99], &none),
            accepted(9, AcceptStat::ProcUnavail),
        ),
        ("a Reply", words(&[9, 1, 0, 0, 0, 0]), None),
        ("a Reply that goes on like a Call", call([9, 1, 2, PROGRAM, 1, NULL], &none), None),
        ("neither", call([9, 2, 2, PROGRAM, 1, NULL], &none), None),
        (
            "the longest verifier",
            auth(opaque(0, 0), opaque(6, 400)),
            accepted(9, AcceptStat::Success),
        ),
        ("a longer verifier", auth(opaque(0, 0), opaque(6, 401)), None),
        ("a verifier of 4 GiB", auth(opaque(0, 0), words(&[0, u32::MAX])), None),
        (
            "the longest credential",
            auth(opaque(6, 400), opaque(0, 0)),
            denied(9, RejectStat::AuthError(2)),
        ),
        ("a longer credential", auth(opaque(6, 401), opaque(0, 0)), None),
        ("a credential of 4 GiB", auth(words(&[0, u32::MAX]), opaque(0, 0)), None),
        (
            "no claim of a user",
            auth(opaque(1, 400), opaque(0, 0)),
            denied(9, RejectStat::AuthError(1)),
        ),
        (
            "a credential of nobody",
            auth(opaque(0, 8), opaque(0, 0)),
            denied(9, RejectStat::AuthError(1)),
        ),
    ];
    for (what, octets, expected) in cases {
        assert_eq!(answer(&mut server, &octets, what), expected, "{what}");
        server.serves(&mut bystander, what);
    }
    server.ends_with_nothing([bystander]);
}
