use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use super::reply::ReplyFault;
use super::*;
use crate::testing::{Rng, Xdr, vectors};
use crate::xdr::{Reader, Truncated, Writer};

fn calls() -> Vec<(String, Vec<u8>)> {
    vectors(include_str!("../../vectors/rpc/call.hex"))
}

fn replies() -> Vec<(String, Vec<u8>)> {
    vectors(include_str!("../../vectors/rpc/reply.hex"))
}

fn written(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut memory = [0xee; 512];
    let mut w = Writer::new(&mut memory);
    encode(&mut w).unwrap();
    w.written().to_vec()
}

fn call(name: &str) -> Vec<u8> {
    calls().into_iter().find(|(n, _)| n == name).unwrap().1
}

#[test]
fn every_call_survives_the_round_trip() {
    for (name, bytes) in calls() {
        let (header, at) = CallHeader::decode(&bytes).unwrap();
        assert_eq!(at, bytes.len(), "{name}");
        assert_eq!(written(|w| header.encode(w)), bytes, "{name}");
        // Octets behind the header are arguments, which the decoder of headers ignores.
        let longer = [&bytes[..], &[1, 2, 3]].concat();
        assert_eq!(CallHeader::decode(&longer), Ok((header, at)), "{name}");
        assert_eq!(CallHeader::credential_of(&longer), header.credential, "{name}");
    }
}

#[test]
fn a_plain_call_is_what_the_decoder_finds_in_it() {
    let procedures = vec![Procedure::new("first"), Procedure::new("second")];
    let plain = PlainCalls::of(&Binding { program: 7, version: 3, procedures });
    let good = written(|w| CallHeader::new(9, 7, 3, 1).encode(w));
    let mut random = Rng::new(1);
    let mut found = 0;
    for _ in 0..20_000 {
        // Most Calls have one octet changed: some become another message, some only have another XID or procedure.
        let mut call = good.clone();
        if random.below(8) > 0 {
            call[random.below(CallHeader::PLAIN_LEN)] = random.octet() % 4;
        }
        call.extend(vec![1; random.below(3)]);
        call.truncate(call.len() - random.below(2));
        let expected = CallHeader::decode(&call).ok().and_then(|(header, at)| {
            let is_ours = (header.program, header.version) == (7, 3) && header.procedure < 2;
            (is_ours && at == CallHeader::PLAIN_LEN).then_some(header)
        });
        let nobody = expected.filter(|header| {
            (header.credential, header.verifier) == (Credential::None, Credential::None)
        });
        assert_eq!(plain.procedure(&call), nobody.map(|header| header.procedure), "{call:?}");
        if let Ok((CallHeader { program, version, procedure, .. }, _)) = CallHeader::decode(&call) {
            let is_ours = (program, version) == (7, 3) && procedure < 2;
            let found = plain.procedure_of([program, version, procedure]);
            assert_eq!(found, is_ours.then_some(procedure), "{call:?}");
        }
        found += usize::from(nobody.is_some());
    }
    assert!((2_000..18_000).contains(&found), "{found}");
}

#[test]
fn a_call_like_another_is_what_the_decoder_finds_in_it() {
    let credential = Credential::Sys(AuthSys::new(1, b"here", 1000, 100));
    for credential in [Credential::None, credential] {
        let asked = CallHeader { credential, ..CallHeader::new(9, 7, 3, 1) };
        let first = written(|w| asked.encode(w));
        let like = LikeCalls::of(&first, first.len()).unwrap();
        let mut found = 0;
        for at in 0..first.len() {
            for octet in 0..=u8::MAX {
                let mut call = first.clone();
                call[at] = octet;
                call.push(octet);
                for call in [&call[..], &call[..first.len()], &call[..first.len() - 1]] {
                    let expected = CallHeader::decode(call).ok().and_then(|(header, end)| {
                        let procedure = header.procedure;
                        let is_like = header == CallHeader { procedure, ..asked };
                        (is_like && end == first.len()).then_some(procedure)
                    });
                    assert_eq!(like.procedure(9, call), expected, "{at}: {octet}");
                    found += usize::from(expected.is_some());
                }
                if let Ok((CallHeader { xid, program, version, procedure, .. }, _)) =
                    CallHeader::decode(&call)
                {
                    assert_eq!(CallHeader::asked(&call), Some([program, version, procedure]));
                    let is_like = like.procedure(xid, &call).is_some();
                    assert!(is_like || at >= 4, "under its XID: {at}, {octet}");
                }
            }
        }
        // The count: every value of each octet of the procedure, and one value of each other octet, with and without
        // arguments.
        assert_eq!(found, 2 * (4 * 256 + first.len() - 4));
    }
    assert!(LikeCalls::of(&[0; 23], 23).is_none() && LikeCalls::of(&[0; 40], 41).is_none());
    assert_eq!(CallHeader::asked(&[0; 23]), None);
}

#[test]
fn every_reply_survives_the_round_trip() {
    let bodies = [
        ("success", ReplyBody::Accepted(AcceptStat::Success)),
        ("prog_unavail", ReplyBody::Accepted(AcceptStat::ProgUnavail)),
        ("prog_mismatch", ReplyBody::Accepted(AcceptStat::ProgMismatch { low: 2, high: 4 })),
        ("proc_unavail", ReplyBody::Accepted(AcceptStat::ProcUnavail)),
        ("garbage_args", ReplyBody::Accepted(AcceptStat::GarbageArgs)),
        ("system_err", ReplyBody::Accepted(AcceptStat::SystemErr)),
        ("rpc_mismatch", ReplyBody::Denied(RejectStat::RpcMismatch { low: 2, high: 2 })),
        ("auth_error", ReplyBody::Denied(RejectStat::AuthError(13))),
    ];
    assert_eq!(replies().len(), bodies.len());
    for ((name, bytes), (expected, body)) in replies().into_iter().zip(bodies) {
        assert_eq!(name, expected);
        let header = ReplyHeader { xid: 0x1bad_cafe, body };
        assert_eq!(ReplyHeader::decode(&bytes), Ok((header, bytes.len())), "{name}");
        assert_eq!(written(|w| header.encode(w)), bytes, "{name}");
    }
    assert_eq!(replies()[0].1.len(), ReplyHeader::SUCCESS_LEN);
}

#[test]
fn the_vectors_are_what_the_rpc_language_says() {
    let head = |xid, rest: &[u32]| Xdr::default().words(&[xid, 0, 2]).words(rest);
    assert_eq!(call("auth_none"), CALL_TO_NOBODY.iter().fold(Xdr::default(), word).0);
    let body = Xdr::default().words(&[0x5eed_5eed]).opaque(b"lab-3").words(&[1000, 100, 4]);
    let body = body.words(&[100, 0, 0xffff_fffe, 27]).0;
    let expected = head(0x1bad_caff, &[100_003, 3, 7, 1]).opaque(&body).words(&[0, 0]);
    assert_eq!(call("auth_sys"), expected.0);
    let body = Xdr::default().words(&[0]).opaque(b"host").words(&[0, 0, 0]).0;
    let expected = head(0x1bad_cb00, &[100_003, 3, 7, 1]).opaque(&body).words(&[0, 0]);
    assert_eq!(call("auth_sys_without_gids"), expected.0);
    let body = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 3, 0xab, 0xcd];
    let expected = head(0x1bad_cb01, &[100_003, 3, 0, 6]).opaque(&body);
    let expected = expected.words(&[6]).opaque(&[0xaa, 0xbb, 0xcc]);
    assert_eq!(call("rpcsec_gss"), expected.0);
}

fn word(stream: Xdr, word: &u32) -> Xdr {
    stream.words(&[*word])
}

const CALL_TO_NOBODY: [u32; 10] = [0x1bad_cafe, 0, 2, 0x2000_1234, 1, 3, 0, 0, 0, 0];

#[test]
fn auth_sys_says_who_calls() {
    let bytes = call("auth_sys");
    let (header, _) = CallHeader::decode(&bytes).unwrap();
    let Credential::Sys(sys) = header.credential else { panic!("AUTH_SYS") };
    assert_eq!((sys.stamp, sys.machine, sys.uid, sys.gid), (0x5eed_5eed, &b"lab-3"[..], 1000, 100));
    assert_eq!(sys.gids().collect::<Vec<_>>(), [100, 0, 0xffff_fffe, 27]);
    let bytes = call("auth_sys_without_gids");
    let (header, _) = CallHeader::decode(&bytes).unwrap();
    assert_eq!(header.credential, Credential::Sys(AuthSys::new(0, b"host", 0, 0)));
}

#[test]
fn a_credential_that_is_not_what_its_flavor_says_is_carried_as_it_is() {
    let sys = |machine: &[u8], gids: &[u32]| {
        let count = u32::try_from(gids.len()).unwrap();
        Xdr::default().words(&[1]).opaque(machine).words(&[2, 3, count]).words(gids).0
    };
    let cases = [
        ("seventeen groups", 1, sys(b"host", &[9; 17]), false),
        ("sixteen groups", 1, sys(b"host", &[9; 16]), true),
        ("a name of 256 octets", 1, sys(&[b'x'; 256], &[]), false),
        ("a name of 255 octets", 1, sys(&[b'x'; 255], &[]), true),
        ("an empty name", 1, sys(b"", &[]), true),
        ("more groups than there are", 1, sys(b"host", &[])[..20].to_vec(), false),
        ("a word too many", 1, [sys(b"host", &[]), vec![0; 4]].concat(), false),
        ("nothing", 1, vec![], false),
        ("AUTH_NONE with a body", 0, vec![1, 2, 3, 4], false),
        ("AUTH_SYS under another number", 2, sys(b"host", &[]), false),
    ];
    for (name, flavor, body, is_sys) in cases {
        let bytes = Xdr::default().words(&[flavor]).opaque(&body).0;
        let credential = Credential::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(matches!(credential, Credential::Sys(_)), is_sys, "{name}");
        if !is_sys {
            assert_eq!(credential, Credential::Other { flavor, body: &body }, "{name}");
        }
        assert_eq!(written(|w| credential.encode(w)), bytes, "{name}");
    }
}

#[test]
fn a_body_beyond_400_octets_is_refused() {
    for (length, fits) in [(400, true), (401, false), (u32::MAX, false)] {
        let bytes = [Xdr::default().words(&[6, length]).0, vec![0; 404]].concat();
        let credential = Credential::decode(&mut Reader::new(&bytes));
        assert_eq!(credential.is_ok(), fits, "{length}");
    }
}

#[test]
fn every_cut_header_is_truncated() {
    for (name, bytes) in calls() {
        for end in 0..bytes.len() {
            let fault = CallHeader::decode(&bytes[..end]).unwrap_err();
            assert!(matches!(fault, CallFault::Truncated(t) if t.at <= end), "{name} to {end}");
            assert_eq!(fault.reply(7), None, "nothing to answer to half a header");
        }
    }
    for (name, bytes) in replies() {
        for end in 0..bytes.len() {
            let fault = ReplyHeader::decode(&bytes[..end]).unwrap_err();
            assert!(matches!(fault, ReplyFault::Truncated(t) if t.at <= end), "{name} to {end}");
        }
    }
}

#[test]
fn another_rpc_version_is_denied_and_a_reply_is_not_a_call() {
    let mut words = CALL_TO_NOBODY;
    words[2] = 3;
    let bytes = words.iter().fold(Xdr::default(), word).0;
    let fault = CallHeader::decode(&bytes).unwrap_err();
    assert_eq!(fault, CallFault::RpcVersion);
    let mismatch = ReplyBody::Denied(RejectStat::RpcMismatch { low: 2, high: 2 });
    assert_eq!(fault.reply(7), Some(ReplyHeader { xid: 7, body: mismatch }));
    for mtype in [1, 2, u32::MAX] {
        words[1] = mtype;
        let bytes = words.iter().fold(Xdr::default(), word).0;
        assert_eq!(CallHeader::decode(&bytes), Err(CallFault::NotACall));
        assert_eq!(CallFault::NotACall.reply(7), None);
    }
    assert_eq!(ReplyHeader::decode(&call("auth_none")), Err(ReplyFault::NotAReply));
}

#[test]
fn a_discriminator_rpc_does_not_know_is_refused() {
    let cases: [&[u32]; 3] = [&[7, 1, 2], &[7, 1, 0, 0, 0, 6], &[7, 1, 1, 2]];
    for words in cases {
        let bytes = Xdr::default().words(words).0;
        assert_eq!(ReplyHeader::decode(&bytes), Err(ReplyFault::Unknown), "{words:?}");
    }
}

#[test]
fn a_verifier_of_any_flavor_stands_before_the_results() {
    let bytes = Xdr::default().words(&[7, 1, 0, 6]).opaque(&[1; 9]).words(&[0, 42]).0;
    let accepted = ReplyHeader::accepted(7, AcceptStat::Success);
    assert_eq!(ReplyHeader::decode(&bytes), Ok((accepted, bytes.len() - 4)));
}

#[test]
fn changed_headers_never_panic_and_never_read_on() {
    let mut rng = Rng::new(0x0072_7063);
    let vectors: Vec<_> = calls().into_iter().chain(replies()).collect();
    for (name, bytes) in &vectors {
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            for value in 0..=u8::MAX {
                changed[at] = value;
                check(&changed, &format!("{name}, octet {at} = {value}"));
            }
        }
    }
    for round in 0..20_000 {
        let mut bytes = vectors[rng.below(vectors.len())].1.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len());
            bytes[at] = rng.octet();
        }
        bytes.truncate(bytes.len() - rng.below(bytes.len()));
        check(&bytes, &format!("round {round}"));
    }
}

/// Checks that an accepted header lies within the bytes, and is encoded again in its length.
fn check(bytes: &[u8], name: &str) {
    if let Ok((header, at)) = CallHeader::decode(bytes) {
        assert!(at <= bytes.len(), "{name}");
        assert_eq!(written(|w| header.encode(w)).len(), at, "{name}");
    }
    if let Ok((_, at)) = ReplyHeader::decode(bytes) {
        assert!(at <= bytes.len(), "{name}");
    }
}
