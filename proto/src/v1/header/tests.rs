use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use super::*;
use crate::testing::{Rng, Xdr, vectors};
use crate::verbs::Handle;
use crate::xdr::Writer;

/// The vectors, each named `file/section`.
fn all() -> Vec<(String, Vec<u8>)> {
    let files = [
        ("rdma_msg", include_str!("../../../vectors/v1/rdma_msg.hex")),
        ("rdma_nomsg", include_str!("../../../vectors/v1/rdma_nomsg.hex")),
        ("reverse", include_str!("../../../vectors/v1/reverse.hex")),
        ("forms", include_str!("../../../vectors/v1/forms.hex")),
    ];
    let named = |(file, text)| {
        let sections = vectors(text).into_iter();
        sections.map(move |(name, bytes)| (format!("{file}/{name}"), bytes))
    };
    files.into_iter().flat_map(named).collect()
}

pub(in crate::v1) fn vector(name: &str) -> Vec<u8> {
    all().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no vector {name}")).1
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    written(|w| message.encode(w))
}

fn written(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut memory = vec![0xee; 4096];
    let mut w = Writer::new(&mut memory);
    encode(&mut w).unwrap();
    w.written().to_vec()
}

/// The parts of a header that tests compare: message type, credit, Read list, Write list, Reply chunk.
type Seen = (u32, u32, Vec<(u32, u32)>, Vec<Vec<u32>>, Option<Vec<u32>>);

fn seen(message: &Message<'_>) -> Seen {
    let (Message::Msg(rpc) | Message::NoMsg(rpc) | Message::MsgP(_, rpc)) = message else {
        panic!("{message:?} conveys no RPC message");
    };
    let lengths = |chunk: WriteChunk<'_>| chunk.segments().map(|s| s.length).collect::<Vec<_>>();
    (
        rpc.prefix.proc,
        rpc.prefix.credit,
        rpc.reads.entries().map(|(position, s)| (position, s.length)).collect(),
        rpc.writes.chunks().map(lengths).collect(),
        rpc.reply.map(lengths),
    )
}

fn segment((handle, length, offset): (u32, u32, u64)) -> Segment {
    Segment { handle: Handle(handle), length, offset }
}

#[test]
fn captured_messages_are_what_tshark_says_they_are() {
    let none = || (Vec::new(), Vec::new());
    let expected: [(&str, Direction, Seen); 14] = [
        ("rdma_msg/null_call", Direction::Call, (0, 128, none().0, none().1, None)),
        ("rdma_msg/null_reply", Direction::Reply, (0, 64, none().0, none().1, None)),
        ("rdma_msg/lookup_call", Direction::Call, (0, 128, none().0, none().1, None)),
        ("rdma_msg/read_call", Direction::Call, (0, 128, vec![], vec![vec![8192]], None)),
        ("rdma_msg/read_reply", Direction::Reply, (0, 64, vec![], vec![vec![5001]], None)),
        ("rdma_msg/write_call", Direction::Call, (0, 128, vec![(112, 5001)], vec![], None)),
        ("rdma_msg/write_reply", Direction::Reply, (0, 64, none().0, none().1, None)),
        ("rdma_msg/symlink_call", Direction::Call, (0, 128, vec![(120, 4001)], vec![], None)),
        (
            "rdma_msg/readdirplus_call",
            Direction::Call,
            (0, 128, vec![], vec![], Some(vec![124, 65536, 4])),
        ),
        (
            "rdma_msg/getacl_call",
            Direction::Call,
            (0, 128, vec![], vec![], Some(vec![256, 28672, 4])),
        ),
        ("reverse/recall_any_call", Direction::Call, (0, 2, none().0, none().1, None)),
        ("reverse/recall_any_reply", Direction::Reply, (0, 16, none().0, none().1, None)),
        ("reverse/recall_call", Direction::Call, (0, 2, none().0, none().1, None)),
        ("reverse/recall_reply", Direction::Reply, (0, 16, none().0, none().1, None)),
    ];
    for (name, direction, fields) in expected {
        let bytes = vector(name);
        let message = decode(&bytes).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(seen(&message), fields, "{name}");
        let Message::Msg(rpc) = message else { panic!("{name}") };
        assert_eq!(rpc.direction(), Some(direction), "{name}");
        assert_eq!(rpc.payload[..4], bytes[..4], "{name}");
    }
    let expected: [(&str, Seen); 3] = [
        ("rdma_nomsg/readdirplus_reply", (1, 64, vec![], vec![], Some(vec![124, 176, 0]))),
        ("rdma_nomsg/getacl_reply", (1, 64, vec![], vec![], Some(vec![136, 0, 0]))),
        ("rdma_nomsg/setacl_call", (1, 128, vec![(0, 96), (0, 6064)], vec![], None)),
    ];
    for (name, fields) in expected {
        let bytes = vector(name);
        let message = decode(&bytes).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(seen(&message), fields, "{name}");
        let Message::NoMsg(rpc) = message else { panic!("{name}") };
        assert_eq!((rpc.direction(), rpc.payload.len()), (None, 0), "{name}");
        assert_eq!(rpc.is_read(), name.ends_with("_call"), "{name}");
    }
}

#[test]
fn every_vector_is_encoded_as_it_was_received() {
    for (name, bytes) in all() {
        let message = decode(&bytes).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        assert_eq!(encoded(&message), bytes, "{name}");
        // [R5666-4.1-6] every message begins with the words of the prefix.
        let words = [message.prefix().xid, message.prefix().vers];
        assert_eq!(Xdr::default().words(&words).0, bytes[..8], "{name}");
    }
}

#[test]
fn messages_without_rpc_decode_to_what_they_say() {
    let done = vector("forms/done");
    assert!(matches!(decode(&done), Ok(Message::Done { prefix }) if prefix.xid == 0x1bad_0002));
    let cases = [
        ("forms/err_vers", ErrorBody::Vers { low: 1, high: 1 }, 1, "ERR_VERS"),
        ("forms/err_chunk", ErrorBody::Chunk, 2, "ERR_CHUNK"),
    ];
    for (name, expected, code, constant) in cases {
        let bytes = vector(name);
        let Ok(Message::Error { error, .. }) = decode(&bytes) else { panic!("{name}") };
        assert_eq!((error, error.code(), error.name()), (expected, code, constant));
        assert!(!format!("{error}").is_empty());
    }
    // RFC 5666 itself has eight more words in ERR_CHUNK.
    let long = Xdr(vector("forms/err_chunk")).words(&[7; 8]).0;
    assert!(matches!(decode(&long), Ok(Message::Error { error: ErrorBody::Chunk, .. })));
}

#[test]
fn padding_parameters_come_before_the_lists() {
    let bytes = vector("forms/msgp");
    let Ok(Message::MsgP(padding, rpc)) = decode(&bytes) else { panic!("not an RDMA_MSGP") };
    assert_eq!(padding, Padding { align: 32, thresh: 8 });
    assert_eq!((rpc.direction(), rpc.has_no_chunks()), (Some(Direction::Call), true));
}

#[test]
fn every_segment_of_a_header_is_listed_in_order() {
    let bytes = vector("forms/two_writes_and_a_reply");
    let Ok(Message::Msg(rpc)) = decode(&bytes) else { panic!("not an RDMA_MSG") };
    let handles: Vec<_> = rpc.segments().map(|s| s.handle.0).collect();
    assert_eq!(handles, [0xa01, 0xa02, 0xa03, 0xb01, 0xb02, 0xb03, 0xc01]);
    assert!(!rpc.has_no_chunks() && !rpc.is_read());
    assert!(!format!("{rpc:?}").contains(&format!("{}", 0xa01)), "handles stay out of logs");
}

#[test]
fn what_is_sent_is_what_the_same_header_decodes_to() {
    let (a1, a2) = (segment((0xa01, 256, 0x1000)), segment((0xa02, 7, 0x2000)));
    let a3 = segment((0xa03, 16, 0xffff_ffff_ffff_ffef));
    let first = [segment((0xb01, 4096, 0x3000)), segment((0xb02, 4, 0x4000))];
    let second = [segment((0xb03, 512, 0x5000))];
    let reply = [segment((0xc01, 32768, 0x6000))];
    let lists = CallLists {
        reads: &[(64, &[a1, a2]), (328, &[a3])],
        writes: &[&first, &second],
        reply: Some(&reply),
    };
    let bytes = written(|w| {
        encode_call(w, 0x1bad_0005, 16, Form::Msg, &lists)?;
        assert_eq!(w.position(), call_wire_len(3, [2, 1], Some(1)));
        w.u32(0x1bad_0005)?;
        w.u32(0)
    });
    assert_eq!(bytes, vector("forms/two_writes_and_a_reply"));
    assert_eq!(call_wire_len(0, [], None), 28);

    // [R5666-3.6-1] [R5666-3.4-7] the Write list comes back with other lengths.
    let writes = [(&first[..], 0), (&[], 0)];
    let lists = ReplyLists { writes: &writes, ..ReplyLists::default() };
    let bytes = written(|w| {
        encode_reply(w, 0x1bad_0005, 64, Form::Msg, &lists)?;
        w.u32(0x1bad_0005)?;
        w.u32(1)
    });
    assert_eq!(bytes, vector("forms/unused_write_chunk"));
    let segments =
        [(0x51b4_a501, 256, 0xf567_9f7d_0d52_1000), (0xe3de_8a01, 28672, 0xf567_9f7d_7fb0_8000)];
    let mut offered: Vec<_> = segments.into_iter().map(segment).collect();
    offered.push(segment((0x5433_2d01, 4, 0xf567_9f7d_0d52_1100)));
    let lists = ReplyLists { reply: Some((&offered, 136)), ..ReplyLists::default() };
    let bytes = written(|w| encode_reply(w, 0xf567_9f7d, 64, Form::NoMsg, &lists));
    assert_eq!(bytes, vector("rdma_nomsg/getacl_reply"));
    let lists = ReplyLists { reads: &[(0, &[a1])], ..ReplyLists::default() };
    let bytes = written(|w| encode_reply(w, 5, 64, Form::NoMsg, &lists));
    let expected = Xdr::common(5, 1, 64, 1).read_list(&[(0, (0xa01, 256, 0x1000))]);
    assert_eq!(bytes, expected.words(&[0, 0]).0);
}

#[test]
fn control_messages_and_padded_headers_are_sent_as_written_down() {
    let done = written(|w| encode_done(w, 0x1bad_0002, 16));
    assert_eq!(done, vector("forms/done"));
    let vers = ErrorBody::Vers { low: 1, high: 1 };
    assert_eq!(written(|w| encode_error(w, 0x1bad_0003, 1, 64, &vers)), vector("forms/err_vers"));
    let chunk = written(|w| encode_error(w, 0x1bad_0004, 1, 64, &ErrorBody::Chunk));
    assert_eq!(chunk, vector("forms/err_chunk"));
    // [R5666-4.2-3] an error echoes the version of the message that it is about.
    let echoed = written(|w| encode_error(w, 9, 77, 64, &vers));
    assert_eq!(echoed, Xdr::common(9, 77, 64, 4).words(&[1, 1, 1]).0);
    let form = Form::MsgP(Padding { align: 32, thresh: 8 });
    let header = written(|w| encode_call(w, 0x1bad_0001, 16, form, &CallLists::default()));
    assert_eq!(header, vector("forms/msgp")[..36]);
}

#[test]
fn another_version_is_told_which_is_spoken_unless_it_is_an_error() {
    for vers in [0, 2, 3, 0x0100_0000, u32::MAX] {
        for proc in 0..8 {
            let fault = decode(&Xdr::common(7, vers, 1, proc).0).unwrap_err();
            let report = (proc != ERROR).then_some(ErrorBody::Vers { low: 1, high: 1 });
            assert_eq!((fault.at, fault.report), (4, report));
            assert_eq!(fault.prefix, Some(Prefix { xid: 7, vers, credit: 1, proc }));
        }
    }
}

#[test]
fn a_broken_header_is_answered_with_err_chunk() {
    let header = |proc| Xdr::common(7, 1, 1, proc);
    let chunk = Some(ErrorBody::Chunk);
    let cases = [
        ("unknown type", header(5), 12, chunk),
        ("unknown type", header(u32::MAX), 12, chunk),
        ("no lists", header(0), 16, chunk),
        ("no Reply chunk", header(1).words(&[0, 0]), 24, chunk),
        ("half the padding", header(2).words(&[8]), 20, chunk),
        ("position 3", header(0).read_list(&[(3, (1, 1, 1))]), 20, chunk),
        ("unterminated", header(0).words(&[1, 4]).segment((1, 1, 1)), 40, chunk),
        ("wrap", header(0).read_list(&[(4, (1, 2, u64::MAX))]), 24, chunk),
        ("count", header(0).words(&[0, 1, u32::MAX]), 28, chunk),
        ("octets after DONE", header(3).words(&[0]), 16, None),
        ("octets after ERR_VERS", header(4).words(&[1, 1, 1, 0]), 28, None),
        ("octets after ERR_CHUNK", header(4).words(&[2, 0]), 20, None),
        ("no error code", header(4), 16, None),
        ("no versions", header(4).words(&[1, 1]), 24, None),
        ("unknown error code", header(4).words(&[3]), 16, None),
    ];
    for (name, bytes, at, report) in cases {
        let fault = decode(&bytes.0).unwrap_err();
        assert_eq!((fault.at, fault.report), (at, report), "{name}: {fault}");
        assert_eq!(fault.prefix.map(|prefix| prefix.xid), Some(7), "{name}");
        assert_eq!(decode_transport(&bytes.0).unwrap_err(), fault, "{name}");
    }
    for length in 0..Prefix::WIRE_LEN {
        let fault = decode(&header(0).0[..length]).unwrap_err();
        assert_eq!((fault.prefix, fault.report), (None, None), "there is no XID to answer");
    }
}

#[test]
fn the_body_is_of_the_message_the_header_names() {
    let header = |proc| Xdr::common(7, 1, 1, proc).words(&[0, 0, 0]);
    let padded = Xdr::common(7, 1, 1, MSGP).words(&[8, 8]).words(&[0, 0, 0]);
    for message in [header(MSG), header(NOMSG), padded] {
        let length = message.0.len();
        // [R5666-4.1-2] [R5666-4.1-8] [R8167-5.1-2] [R8167-5.2-2]
        for (mtype, report) in [(0, Some(ErrorBody::Chunk)), (1, None), (2, Some(ErrorBody::Chunk))]
        {
            assert!(decode(&message.clone().words(&[7, mtype]).0).is_ok());
            let foreign = message.clone().words(&[8, mtype]).0;
            let fault = decode(&foreign).unwrap_err();
            assert_eq!((fault.at, fault.report), (length, report));
            assert!(decode_transport(&foreign).is_ok(), "a body may be any bytes there");
        }
        // [R5666-4.1-7] a header without a body is not answered.
        let cut = [&message.0[..], &[0, 0, 0]].concat();
        assert_eq!(decode(&cut).unwrap_err().report, None);
    }
    assert_eq!(decode(&header(MSG).0).unwrap_err().report, None);
    assert!(decode(&header(NOMSG).0).is_ok(), "the body is elsewhere");
}

#[test]
fn what_linux_takes_is_taken() {
    // Linux takes any discriminator but zero, Read chunks in any order, and a chunk without segments.
    let bytes = Xdr::common(7, 1, 1, 0).words(&[2, 8]).segment((1, 1, 1)).words(&[u32::MAX, 4]);
    let bytes = bytes.segment((2, 2, 2)).words(&[0, 5, 0, 0, 9, 0, 7, 0]).0;
    let message = decode(&bytes).unwrap();
    assert_eq!(seen(&message).2, [(8, 1), (4, 2)]);
    assert_eq!((seen(&message).3, seen(&message).4), (vec![vec![]], Some(vec![])));
    // Encoded again, the message says the same with the discriminators of the specification.
    let again = encoded(&message);
    assert_eq!(again.len(), bytes.len());
    assert_eq!(seen(&decode(&again).unwrap()), seen(&message));
    // An RDMA_NOMSG with a body and without lists.
    let bytes = Xdr::common(7, 1, 1, NOMSG).words(&[0, 0, 0, 7, 0]).0;
    let Ok(Message::NoMsg(rpc)) = decode(&bytes) else { panic!("refused") };
    assert_eq!(rpc.direction(), Some(Direction::Call));
}

#[test]
fn any_bytes_decode_to_something() {
    let mut rng = Rng::new(0x5666);
    let vectors = all();
    for _ in 0..20_000 {
        let mut bytes = vectors[rng.below(vectors.len())].1.clone();
        match rng.below(3) {
            0 => bytes.truncate(rng.below(bytes.len() + 1)),
            1 => bytes.iter_mut().for_each(|octet| *octet = rng.octet()),
            _ => {}
        }
        for _ in 0..rng.below(4) {
            let end = bytes.len().min(96);
            if end > 0 {
                bytes[rng.below(end)] = [0, 1, rng.octet()][rng.below(3)];
            }
        }
        match decode_transport(&bytes) {
            Ok(message) => {
                // A decoded message is decoded to the same again once encoded, although its octets may differ.
                let again = encoded(&message);
                let reread = decode_transport(&again).unwrap();
                assert_eq!(format!("{reread:?}"), format!("{message:?}"));
                assert_eq!(encoded(&reread), again);
            }
            Err(fault) => {
                assert!(fault.at <= bytes.len(), "{fault:?} lies in {} octets", bytes.len());
                assert_eq!(fault.prefix.is_some(), bytes.len() >= Prefix::WIRE_LEN);
                assert!(fault.prefix.is_some() || fault.report.is_none(), "nobody to report to");
            }
        }
        assert!(decode(&bytes).is_err() || decode_transport(&bytes).is_ok());
    }
}
