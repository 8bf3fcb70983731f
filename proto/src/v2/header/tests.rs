use std::string::String;
use std::vec::Vec;
use std::{format, vec};

use super::*;
use crate::testing::{Rng, Xdr, vectors};
use crate::v2::properties::Properties;
use crate::verbs::Segment;
use crate::xdr::Writer;

/// The vectors, each named `file/section`.
fn all() -> Vec<(String, Vec<u8>)> {
    let files = [
        ("call_inline", include_str!("../../../vectors/v2/call_inline.hex")),
        ("reply_inline", include_str!("../../../vectors/v2/reply_inline.hex")),
        ("grant", include_str!("../../../vectors/v2/grant.hex")),
        ("error", include_str!("../../../vectors/v2/error.hex")),
        ("connprop_final", include_str!("../../../vectors/v2/connprop_final.hex")),
        ("connprop_middle", include_str!("../../../vectors/v2/connprop_middle.hex")),
        ("call_external", include_str!("../../../vectors/v2/call_external.hex")),
        ("call_middle", include_str!("../../../vectors/v2/call_middle.hex")),
        ("reply_external", include_str!("../../../vectors/v2/reply_external.hex")),
        ("reply_middle", include_str!("../../../vectors/v2/reply_middle.hex")),
    ];
    let named = |(file, text)| {
        let sections = vectors(text).into_iter();
        sections.map(move |(name, bytes)| (format!("{file}/{name}"), bytes))
    };
    files.into_iter().flat_map(named).collect()
}

fn vector(name: &str) -> Vec<u8> {
    all().into_iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no vector {name}")).1
}

/// Builds the message of a vector from the draft's XDR.
fn by_the_draft(name: &str) -> Vec<u8> {
    const SBSIZ: u32 = 1;
    const RBSIZ: u32 = 2;
    const RSSIZ: u32 = 3;
    const RCSIZ: u32 = 4;
    const BRS: u32 = 5;
    const HOSTAUTH: u32 = 6;
    let rpc_call = |xdr: Xdr, xid, procedure| {
        xdr.words(&[xid, 0, 2, 0x2000_1234, 1, procedure]).words(&[0, 0, 0, 0])
    };
    let rpc_reply = |xdr: Xdr, xid| xdr.words(&[xid, 1, 0, 0, 0, 0]);
    let error = |credit, body: &[u32]| Xdr::common(0x1bad_cafe, 2, credit, 4).words(body);
    let xdr = match name {
        "call_inline/plain" => {
            let header = Xdr::common(0x1bad_cafe, 2, 33, 10).words(&[0]);
            rpc_call(header.read_list(&[]).write_list(&[]).words(&[0]), 0x1bad_cafe, 0)
        }
        "call_inline/read_chunk" => {
            let first = (44, (0x00a1_b2c3, 65536, 0x12_3456_0000));
            let second = (44, (0x00a1_b2c4, 4465, 0x12_3457_0000));
            let header = Xdr::common(0x1bad_caff, 2, 34, 10).words(&[0x00a1_b2c3]);
            let header = header.read_list(&[first, second]).write_list(&[]).words(&[0]);
            rpc_call(header, 0x1bad_caff, 2).words(&[70001, 42])
        }
        "call_inline/write_chunk" => {
            let chunk = [(0x00d4_e5f6, 4096, 0x7fff_0000), (0x00d4_e5f7, 3, u64::MAX - 3)];
            let header = Xdr::common(0x1bad_cb00, 2, 35, 10).words(&[0x00d4_e5f7]);
            let header = header.read_list(&[]).write_list(&[&chunk]).words(&[0]);
            rpc_call(header, 0x1bad_cb00, 1).opaque(b"key")
        }
        "call_inline/both" => {
            let header = Xdr::common(0x1bad_cb01, 2, 0xffff_fff0, 10).words(&[0]);
            let header = header.read_list(&[(44, (0x00a1_b2c5, 5, 0x1003))]);
            let header = header.write_list(&[&[(0x00d4_e5f8, 1 << 20, 0x20_0000)]]).words(&[0]);
            rpc_call(header, 0x1bad_cb01, 3).words(&[5])
        }
        "call_inline/reply_chunk" => {
            let reads = [(44, (0x00a1_b2c6, 5, 0x1003)), (56, (0x00a1_b2c7, 0, 0))];
            let header = Xdr::common(0x1bad_cb02, 2, 35, 10).words(&[0x00d4_e5f9]);
            let header = header.read_list(&reads).write_list(&[]).words(&[1]);
            let header = header.write_chunk(&[(0x00d4_e5f9, 8192, 0x30_0000)]);
            rpc_call(header, 0x1bad_cb02, 3).words(&[5, 0])
        }
        "call_external/plain" => {
            let call = (0, (0x00a1_b2d0, 10000, 0x12_0000_0000));
            let header = Xdr::common(0x1bad_cb10, 2, 48, 8).words(&[0]).read_list(&[call]);
            header.read_list(&[]).write_list(&[]).words(&[0])
        }
        "call_external/all_lists" => {
            let first = (0, (0x00a1_b2d1, 4096, 0x12_0000_1000));
            let second = (0, (0x00a1_b2d2, 4, 0x12_0000_2000));
            let header = Xdr::common(0x1bad_cb11, 2, 49, 8).words(&[0x00a1_b2d1]);
            let header = header.read_list(&[first, second]);
            let header = header.read_list(&[(4096, (0x00a1_b2d3, 5, 7))]);
            let header = header.write_list(&[&[], &[(0x00d4_e5d0, 9, 0x3000)]]).words(&[1]);
            header.write_chunk(&[(0x00d4_e5d1, 65536, 0x4000)])
        }
        "call_middle/first" => {
            Xdr::common(0x1bad_cb20, 2, 50, 9).words(&[3000]).words(&[0x1bad_cb20, 0, 2])
        }
        "reply_middle/first" => {
            let mut xdr = Xdr::common(0x1bad_cb20, 2, 51, 12).words(&[7, 0x1bad_cb20, 1]);
            xdr.0.extend([0, 0]);
            xdr
        }
        "reply_external/plain" => {
            let header = Xdr::common(0x1bad_cb11, 2, 52, 11).write_list(&[]).words(&[1]);
            header.write_chunk(&[(0x00d4_e5d1, 5000, 0x4000)])
        }
        "reply_external/returned_chunks" => {
            let header = Xdr::common(0x1bad_cb11, 2, 53, 11);
            let header = header.write_list(&[&[], &[(0x00d4_e5d0, 0, 0x3000)]]).words(&[1]);
            header.write_chunk(&[(0x00d4_e5d1, 4096, 0x4000), (0x00d4_e5d2, 904, 0x5000)])
        }
        "reply_inline/plain" => {
            rpc_reply(Xdr::common(0x1bad_cafe, 2, 33, 13).write_list(&[]), 0x1bad_cafe)
        }
        "reply_inline/returned_chunk" => {
            let first = (0x00d4_e5f6, 4096, 0x7fff_0000);
            let chunk = [first, (0x00d4_e5f7, 1, u64::MAX - 3), (0x00d4_e5f8, 0, 16)];
            let header = Xdr::common(0x1bad_cb00, 2, 34, 13).write_list(&[&chunk]);
            rpc_reply(header, 0x1bad_cb00).words(&[4097])
        }
        "grant/grant" => Xdr::common(0, 2, 64, 5),
        "error/vers" => error(32, &[1, 1, 1]),
        "error/bad_xdr" => error(33, &[2]),
        "error/bad_propval" => error(34, &[3]),
        "error/inval_htype" => error(35, &[4]),
        "error/inval_cont" => error(36, &[5]),
        "error/read_chunks" => error(37, &[6, 0]),
        "error/write_chunks" => error(38, &[7, 1]),
        "error/segments" => error(39, &[8, 16]),
        "error/write_resource" => error(40, &[9, 1, 70001]),
        "error/reply_resource" => error(41, &[10, 8192]),
        "error/vers_mismatch" => error(42, &[11]),
        "error/system" => error(43, &[100]),
        "connprop_final/all" => Xdr::common(0x2bad_cafe, 2, 31, 7).propset(&[
            (SBSIZ, &8192_u32.to_be_bytes()),
            (RBSIZ, &4096_u32.to_be_bytes()),
            (RSSIZ, &(2_u32 << 20).to_be_bytes()),
            (RCSIZ, &8_u32.to_be_bytes()),
            (BRS, &0_u32.to_be_bytes()),
        ]),
        "connprop_final/unknown" => Xdr::common(0x2bad_cb00, 2, 31, 7).propset(&[
            (0x5254_0003, &[0, 1, 2, 3, 4, 5]),
            (RBSIZ, &65536_u32.to_be_bytes()),
            (HOSTAUTH, b"\0\0\0\x03abc\0"),
        ]),
        "connprop_final/empty_values" => Xdr::common(0x2bad_cb01, 2, 31, 7).propset(&[
            (RCSIZ, &1_u32.to_be_bytes()),
            (RCSIZ, &[]),
            (SBSIZ, &[]),
        ]),
        "connprop_final/none" => Xdr::common(0x2bad_cb02, 2, 31, 7).propset(&[]),
        "connprop_middle/host_auth" => Xdr::common(0x2bad_cb10, 2, 31, 6)
            .propset(&[(HOSTAUTH, b"\0\0\0\x05hello\0\0\0"), (BRS, &3_u32.to_be_bytes())]),
        "connprop_middle/none" => Xdr::common(0x2bad_cb11, 2, 32, 6).propset(&[]),
        other => panic!("a vector without a second opinion: {other}"),
    };
    xdr.0
}

/// Writes a decoded message with the encoders. Returns its length.
fn encode(message: &Message<'_>, memory: &mut [u8]) -> Result<usize, Truncated> {
    let mut w = Writer::new(memory);
    let Prefix { xid, vers, credit, .. } = *message.prefix();
    let mut after: &[u8] = &[];
    match message {
        Message::Error { error, .. } => encode_error(&mut w, xid, vers, credit, error)?,
        Message::Grant { .. } => encode_grant(&mut w, credit)?,
        Message::ConnProp(ConnProp { kind, set, .. }) => {
            encode_connprop(&mut w, xid, credit, *kind, &set.properties())?;
        }
        Message::CallExternal(call) => {
            let lists = Lists::of(call.inv_handle, &call.reads, &call.writes, call.reply);
            let segments: Vec<_> = call.call.entries().map(|(_, segment)| segment).collect();
            lists.with(|lists| encode_call_external(&mut w, xid, credit, &segments, lists))?;
        }
        Message::CallInline(call) => {
            let lists = Lists::of(call.inv_handle, &call.reads, &call.writes, call.reply);
            lists.with(|lists| encode_call_inline(&mut w, xid, credit, lists))?;
            let reads = lists.reads.iter().map(|(_, segments)| segments.len()).sum();
            let (writes, reply) = (lists.writes.iter().map(Vec::len), lists.reply.as_ref());
            let promised = call_inline_wire_len(reads, writes, reply.map(Vec::len));
            assert_eq!(w.position(), promised);
            after = call.payload;
        }
        Message::CallMiddle(Fragment { remaining, payload, .. }) => {
            encode_call_middle(&mut w, xid, credit, *remaining)?;
            assert_eq!(w.position(), MIDDLE_WIRE_LEN);
            after = payload;
        }
        Message::ReplyExternal(reply) => {
            // The message does not tell the length that was offered: take the length that was written.
            let chunks = chunks(&reply.writes);
            let written: Vec<_> = reply.reply.segments().collect();
            let written = Returned { offered: &written, length: usize::MAX };
            encode_reply_external(&mut w, xid, credit, &all_of(&chunks), &written)?;
        }
        Message::ReplyMiddle(Fragment { remaining, payload, .. }) => {
            encode_reply_middle(&mut w, xid, credit, *remaining)?;
            assert_eq!(w.position(), MIDDLE_WIRE_LEN);
            after = payload;
        }
        Message::ReplyInline(reply) => {
            let chunks = chunks(&reply.writes);
            encode_reply_inline(&mut w, xid, credit, &all_of(&chunks))?;
            assert_eq!(w.position(), reply_inline_wire_len(chunks.iter().map(Vec::len)));
            after = reply.payload;
        }
        Message::Extended(_) => message.encode(&mut w)?,
    }
    w.put(after)?;
    Ok(w.position())
}

/// The chunk lists of a Call, with memory of their own.
struct Lists {
    inv_handle: Handle,
    reads: Vec<(u32, Vec<Segment>)>,
    writes: Vec<Vec<Segment>>,
    reply: Option<Vec<Segment>>,
}

impl Lists {
    fn of(
        inv_handle: Handle,
        reads: &ReadList<'_>,
        writes: &WriteList<'_>,
        reply: Option<WriteChunk<'_>>,
    ) -> Self {
        let reads = reads.chunks().map(|chunk| (chunk.position(), chunk.segments().collect()));
        let reply = reply.map(|chunk| chunk.segments().collect());
        Self { inv_handle, reads: reads.collect(), writes: chunks(writes), reply }
    }

    fn with<T>(&self, encode: impl FnOnce(&CallLists<'_>) -> T) -> T {
        let reads: Vec<_> = self.reads.iter().map(|(at, chunk)| (*at, chunk.as_slice())).collect();
        let writes: Vec<_> = self.writes.iter().map(Vec::as_slice).collect();
        let (inv_handle, reply) = (self.inv_handle, self.reply.as_deref());
        encode(&CallLists { inv_handle, reads: &reads, writes: &writes, reply })
    }
}

fn chunks(list: &WriteList<'_>) -> Vec<Vec<Segment>> {
    list.chunks().map(|chunk| chunk.segments().collect()).collect()
}

fn all_of(chunks: &[Vec<Segment>]) -> Vec<Returned<'_>> {
    chunks.iter().map(|offered| Returned { offered, length: usize::MAX }).collect()
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut memory = vec![0xee; 1024];
    let length = encode(message, &mut memory).unwrap();
    memory.truncate(length);
    memory
}

/// Asserts what every answer of `decode` must keep, whatever the bytes. Returns the code reported.
fn check(bytes: &[u8]) -> Option<u32> {
    match decode(bytes) {
        Ok(Message::CallInline(call)) => {
            check_reads(&call.reads);
            check_writes(&call.writes);
            assert_eq!(call.payload[..4], bytes[..4]);
            None
        }
        Ok(Message::CallExternal(call)) => {
            assert_eq!(call.call.chunks().map(|chunk| chunk.position()).collect::<Vec<_>>(), [0]);
            check_reads(&call.reads);
            check_writes(&call.writes);
            None
        }
        Ok(Message::CallMiddle(Fragment { payload, .. }))
        | Ok(Message::ReplyMiddle(Fragment { payload, .. })) => {
            assert_eq!(payload[..4], bytes[..4]);
            None
        }
        Ok(Message::ReplyExternal(reply)) => {
            check_writes(&reply.writes);
            None
        }
        Ok(Message::ReplyInline(reply)) => {
            check_writes(&reply.writes);
            assert_eq!(reply.payload[..4], bytes[..4]);
            None
        }
        Ok(_) => None,
        Err(fault) => {
            assert!(fault.at <= bytes.len(), "{fault:?} lies in {} octets", bytes.len());
            assert_eq!(fault.prefix.is_some(), bytes.len() >= Prefix::WIRE_LEN);
            assert!(fault.prefix.is_some() || fault.report.is_none(), "nobody to report to");
            fault.report.map(|error| error.code())
        }
    }
}

fn check_reads(reads: &ReadList<'_>) {
    let mut last = 0;
    for chunk in reads.chunks() {
        assert!(chunk.position() > last && chunk.position().is_multiple_of(4));
        last = chunk.position();
        assert_eq!(chunk.segments().count(), chunk.segment_count());
        assert!(chunk.segments().map(|s| u64::from(s.length)).sum::<u64>() < 1 << 32);
    }
    assert_eq!(reads.chunks().count() as u64, u64::from(reads.chunk_count()));
}

fn check_writes(writes: &WriteList<'_>) {
    assert_eq!(writes.chunks().count() as u64, u64::from(writes.chunk_count()));
    for chunk in writes.chunks() {
        assert_eq!(chunk.segments().count(), chunk.segments().len());
        assert!(chunk.segments().map(|s| u64::from(s.length)).sum::<u64>() < 1 << 32);
    }
}

#[test]
fn the_vectors_are_what_the_drafts_xdr_says() {
    for (name, bytes) in all() {
        assert_eq!(bytes, by_the_draft(&name), "{name}");
    }
}

#[test]
fn every_vector_survives_the_round_trip() {
    for (name, bytes) in all() {
        let message = decode(&bytes).unwrap_or_else(|fault| panic!("{name}: {fault:?}"));
        let again = encoded(&message);
        // Properties we do not know, or that only repeat a default, are not written again.
        if name.starts_with("connprop_") && name != "connprop_final/all" {
            let (before, after) = (message, decode(&again).unwrap());
            assert_eq!(properties_of(&before), properties_of(&after), "{name}");
        } else {
            assert_eq!(again, bytes, "{name}");
        }
    }
}

#[test]
fn the_credit_of_a_prefix_is_one_word() {
    let bytes = Xdr::common(0, 2, 0x0001_0002, 5).0;
    let message = decode(&bytes).unwrap();
    assert_eq!(*message.prefix(), Prefix { xid: 0, vers: 2, credit: 0x0001_0002, htype: 5 });
    assert_eq!(encoded(&message), bytes);
}

fn properties_of(message: &Message<'_>) -> Properties {
    match message {
        Message::ConnProp(ConnProp { set, .. }) => set.properties(),
        other => panic!("not of properties: {other:?}"),
    }
}

#[test]
fn a_call_says_what_is_in_its_chunks() {
    let bytes = vector("call_inline/read_chunk");
    let Ok(Message::CallInline(call)) = decode(&bytes) else { panic!("a Call") };
    assert_eq!((call.inv_handle, call.reply.is_some()), (Handle(0x00a1_b2c3), false));
    assert_eq!((call.reads.chunk_count(), call.writes.chunk_count()), (1, 0));
    let chunk = call.reads.chunks().next().unwrap();
    assert_eq!(chunk.position(), 44);
    let first = Segment { handle: Handle(0x00a1_b2c3), length: 65536, offset: 0x12_3456_0000 };
    let second = Segment { handle: Handle(0x00a1_b2c4), length: 4465, offset: 0x12_3457_0000 };
    assert_eq!(chunk.segments().collect::<Vec<_>>(), [first, second]);
    assert_eq!(call.payload.len(), 48);
}

#[test]
fn errors_have_the_names_of_the_draft() {
    for (name, bytes) in all() {
        if let (Some(name), Message::Error { error, .. }) =
            (name.strip_prefix("error/"), decode(&bytes).unwrap())
        {
            assert_eq!(error.name(), format!("RDMA2_ERR_{}", name.to_uppercase()));
        }
    }
    let fault = decode(&vector("grant/grant")[..11]).unwrap_err();
    assert_eq!(format!("{fault}"), "shorter than the common prefix at byte 8");
}

#[test]
fn a_message_is_written_again_as_it_arrived() {
    let a = (0x00a1_b2c3, 100, 0x1000);
    let b = (0x00a1_b2c4, 0, u64::MAX);
    let payload = [7, 0, 2, 0x2000_1234, 1, 3, 0, 0, 0, 0, 100, 100];
    let many_chunks = |reply: bool| {
        let header = Xdr::common(7, 2, 40, 10).words(&[0x00a1_b2c3]);
        let header = header.read_list(&[(44, a), (44, b), (48, b), (1 << 31, a)]);
        let header = header.write_list(&[&[a, b], &[], &[b]]).words(&[u32::from(reply)]);
        let header = if reply { header.write_chunk(&[a, a, b]) } else { header };
        header.words(&payload).0
    };
    let reply = Xdr::common(7, 2, 40, 13).write_list(&[&[b], &[], &[a, b]]).words(&payload).0;
    let made = [many_chunks(false), many_chunks(true), reply];
    for bytes in made.into_iter().chain(all().into_iter().map(|(_, bytes)| bytes)) {
        let message = decode(&bytes).unwrap();
        let mut memory = vec![0xee; bytes.len()];
        let mut w = Writer::new(&mut memory);
        message.encode(&mut w).unwrap();
        assert_eq!(w.written(), bytes, "{message:?}");
        for room in 0..bytes.len() {
            assert!(message.encode(&mut Writer::new(&mut memory[..room])).is_err());
        }
    }
}

#[test]
fn a_transport_stream_is_judged_without_its_payload() {
    for name in [
        "call_inline/both",
        "reply_inline/returned_chunk",
        "call_middle/first",
        "reply_middle/first",
    ] {
        let bytes = vector(name);
        let start = bytes.len() - payload_len(&bytes);
        for end in start..=bytes.len() {
            let mut cut = bytes[..end].to_vec();
            cut[start..].fill(0xff);
            assert!(decode_transport(&cut).is_ok(), "{name} cut to {end}");
            assert_eq!(decode(&cut).unwrap_err().at, start, "{name} cut to {end}");
        }
        assert!(decode_transport(&bytes[..start - 1]).is_err(), "{name}");
    }
}

#[test]
fn what_is_printed_of_a_message_names_no_handle_and_no_payload() {
    for (name, bytes) in all() {
        let message = decode(&bytes).unwrap();
        let printed = format!("{message:?} {:?}", Reader::new(&bytes));
        // `[u8]` prints its octets in decimal.
        for handle in [0x00a1_b2c3_u32, 0x00d4_e5f6, 0x00d4_e5f7] {
            let [_, a, b, c] = handle.to_be_bytes();
            assert!(!printed.contains(&format!("{a}, {b}, {c}")), "{name}: {printed}");
            assert!(!printed.contains(&format!("{handle}")), "{name}: {printed}");
        }
        assert!(!printed.contains("107, 101, 121"), "the payload of {name}: {printed}");
    }
    let printed = format!("{:?}", decode(&vector("call_inline/read_chunk")).unwrap());
    assert!(printed.contains("position: 44") && printed.contains("length: 65536"), "{printed}");
}

#[test]
fn properties_keep_defaults_where_nothing_known_was_said() {
    let said = |name| properties_of(&decode(&vector(name)).unwrap());
    let all = Properties {
        send_size_max: 8192,
        receive_buffer_size: 4096,
        segment_size_max: 2 << 20,
        segment_count_max: 8,
        reverse: 0,
    };
    assert_eq!(said("connprop_final/all"), all);
    let unknown = Properties { receive_buffer_size: 65536, ..Properties::default() };
    assert_eq!(said("connprop_final/unknown"), unknown);
    assert_eq!(said("connprop_final/empty_values"), Properties::default());
    assert_eq!(said("connprop_final/none"), Properties::default());
}

#[test]
fn a_cut_message_is_reported_unless_a_payload_is_left() {
    for (name, bytes) in all() {
        for end in 0..bytes.len() {
            let cut = &bytes[..end];
            let header = bytes.len() - payload_len(&bytes);
            let has_payload = payload_len(&bytes) > 0 && end >= header + 4;
            assert_eq!(decode(cut).is_ok(), has_payload, "{name} cut to {end}");
            let expected = match name.split_once('/').unwrap().0 {
                _ if end < Prefix::WIRE_LEN || has_payload => None,
                "connprop_final" | "connprop_middle" if in_value(&bytes, end) => {
                    Some(ErrorBody::BadPropval.code())
                }
                "call_inline" | "call_middle" | "call_external" | "connprop_final"
                | "connprop_middle" => Some(ErrorBody::BadXdr.code()),
                // The sender of these does not wait for an answer.
                _ => None,
            };
            assert_eq!(check(cut), expected, "{name} cut to {end}");
            if let Err(fault) = decode(cut) {
                assert_eq!(fault.credit, fault.prefix.map(|prefix| prefix.credit), "{name} {end}");
                // The fault of a missing payload is at the offset where it should start.
                assert!(end < header || fault.at == header, "{name} cut to {end}: {fault:?}");
            }
        }
    }
}

fn payload_len(message: &[u8]) -> usize {
    match decode(message) {
        Ok(Message::CallInline(call)) => call.payload.len(),
        Ok(Message::ReplyInline(reply)) => reply.payload.len(),
        Ok(Message::CallMiddle(fragment) | Message::ReplyMiddle(fragment)) => {
            fragment.payload.len()
        }
        _ => 0,
    }
}

/// Whether a set cut at `end` says how long a value is and then does not have it.
fn in_value(message: &[u8], end: usize) -> bool {
    let word = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap()) as usize;
    let mut at = 20;
    while at < message.len() {
        let value = at + 8;
        at = value + word(at + 4).next_multiple_of(4);
        if (value..at).contains(&end) {
            return true;
        }
    }
    false
}

#[test]
fn faults_say_which_rule_where_and_what_to_answer() {
    let call = |xdr: Xdr| xdr.words(&[0, 7, 0, 2]).0;
    let head = || Xdr::common(7, 2, 1, 10).words(&[0]);
    let bad = Some(ErrorBody::BadXdr);
    let cases = [
        ("fifteen octets", vec![2; 15], "shorter than the common prefix", 12, None),
        (
            "version 1",
            Xdr::common(7, 1, 1, 0).0,
            "unsupported version",
            4,
            Some(ErrorBody::Vers { low: 2, high: 2 }),
        ),
        ("an error of version 1", Xdr::common(7, 1, 1, 4).0, "unsupported version", 4, None),
        (
            "header type 77",
            Xdr::common(7, 2, 1, 77).0,
            "unknown header type",
            12,
            Some(ErrorBody::InvalHtype),
        ),
        ("error 12", Xdr::common(7, 2, 1, 4).words(&[12]).0, "unknown error code", 16, None),
        (
            "a long grant",
            Xdr::common(0, 2, 1, 5).words(&[0]).0,
            "octets after the header",
            16,
            None,
        ),
        (
            "decreasing positions",
            call(head().read_list(&[(8, (1, 1, 1)), (4, (1, 1, 1))]).write_list(&[])),
            "Read list positions decrease",
            48,
            bad,
        ),
        (
            "a Call chunk",
            call(head().read_list(&[(0, (1, 1, 1))]).write_list(&[])),
            "Read chunk position",
            24,
            bad,
        ),
        (
            "no Call chunk",
            Xdr::common(7, 2, 1, 8).words(&[0, 0, 0, 0, 0]).0,
            "no Call chunk",
            20,
            bad,
        ),
        (
            "a Call chunk with a position",
            Xdr::common(7, 2, 1, 8).words(&[0]).read_list(&[(4, (1, 1, 1))]).words(&[0, 0, 0]).0,
            "Read chunk position",
            24,
            bad,
        ),
        (
            "a payload behind a Call chunk",
            Xdr::common(7, 2, 1, 8).words(&[0]).read_list(&[(0, (1, 1, 1))]).words(&[0, 0, 0, 7]).0,
            "octets after the header",
            60,
            bad,
        ),
        ("no Reply chunk", Xdr::common(7, 2, 1, 11).words(&[0, 0]).0, "no Reply chunk", 20, None),
        (
            "a fragment of another message",
            Xdr::common(7, 2, 1, 9).words(&[4, 8]).0,
            "rdma_xid is not the XID of the RPC message",
            20,
            bad,
        ),
        (
            "discriminator 2",
            call(head().words(&[2]).write_list(&[])),
            "list discriminator",
            20,
            bad,
        ),
        (
            "a segment that wraps",
            call(head().read_list(&[]).write_list(&[&[(1, 1, 1), (1, 2, u64::MAX)]])),
            "segment beyond the address space",
            48,
            bad,
        ),
        (
            "a stray rdma_inv_handle",
            call(Xdr::common(7, 2, 1, 10).words(&[9]).read_list(&[]).write_list(&[])),
            "rdma_inv_handle names no segment of the header",
            16,
            bad,
        ),
        (
            "another message's XID",
            head().read_list(&[]).write_list(&[]).words(&[0, 8]).0,
            "rdma_xid is not the XID of the RPC message",
            32,
            bad,
        ),
    ];
    for (name, bytes, rule, at, report) in cases {
        let fault = decode(&bytes).expect_err(name);
        assert_eq!((fault.rule, fault.at, fault.report), (rule, at, report), "{name}");
    }
}

#[test]
fn a_property_of_the_wrong_size_is_reported_where_its_value_starts() {
    // Six octets, two of padding: the value starts 28 octets into the message.
    let bytes = Xdr::common(7, 2, 1, 7).propset(&[(2, &[0; 6])]).0;
    let fault = decode(&bytes).unwrap_err();
    assert_eq!((fault.at, fault.report), (28, Some(ErrorBody::BadPropval)));
    // Host authentication is an `opaque<>` of its own: less than its length says, more, and no length.
    for value in
        [&b"hello"[..], &[0, 0, 0, 1], &[0, 0, 0, 0, 0, 0, 0, 0], &[0, 0, 0, 5, 0, 0, 0, 0]]
    {
        let bytes = Xdr::common(7, 2, 1, 7).propset(&[(6, value)]).0;
        let fault = decode(&bytes).expect_err("its length is wrong");
        assert_eq!((fault.at, fault.report), (28, Some(ErrorBody::BadPropval)), "{value:?}");
    }
    // More than the message has, of a property nobody knows.
    let bytes = Xdr::common(7, 2, 1, 7).words(&[1, 0x5254_0003, 5, 0]).0;
    assert_eq!(decode(&bytes).unwrap_err().report, Some(ErrorBody::BadPropval));
}

#[test]
fn the_handle_of_a_reply_chunk_may_be_offered_for_invalidation() {
    let header = Xdr::common(7, 2, 1, 10).words(&[9]).read_list(&[]).write_list(&[]);
    let bytes = header.words(&[1]).write_chunk(&[(9, 64, 0)]).words(&[7]).0;
    let Ok(Message::CallInline(call)) = decode(&bytes) else { panic!("a Call") };
    assert!(call.reply.is_some() && call.inv_handle == Handle(9));
}

#[test]
fn the_first_message_fits_the_inline_threshold_of_version_1() {
    let mut memory = [0; 1024];
    let mut w = Writer::new(&mut memory);
    encode_connprop(&mut w, 7, 1, ConnPropKind::Final, &Properties::default()).unwrap();
    assert_eq!(w.position(), 80);
}

#[test]
fn a_buffer_too_small_for_a_header_is_refused_at_any_size() {
    for (name, bytes) in all() {
        let message = decode(&bytes).unwrap();
        let mut memory = vec![0; 1024];
        let length = encode(&message, &mut memory).unwrap();
        for room in 0..length {
            assert!(encode(&message, &mut memory[..room]).is_err(), "{name} in {room} octets");
        }
    }
}

#[test]
fn every_changed_octet_is_judged_as_the_draft_does() {
    for (name, bytes) in all() {
        // The decoder looks at no octet of the payload behind its XID.
        let looked_at = bytes.len() - payload_len(&bytes).saturating_sub(4);
        for at in 0..looked_at {
            let mut changed = bytes.clone();
            for value in 0..=u8::MAX {
                changed[at] = value;
                assert_eq!(verdict(&changed), oracle(&changed), "{name}, octet {at} = {value}");
            }
        }
    }
}

#[test]
fn random_messages_are_judged_as_the_draft_does() {
    let vectors = all();
    let mut rng = Rng::new(0x7664_6d61);
    for round in 0..40_000 {
        let mut bytes = vectors[rng.below(vectors.len())].1.clone();
        match round % 4 {
            // Noise, with and without a plausible prefix.
            0 => bytes = (0..rng.below(200)).map(|_| rng.octet()).collect(),
            1 => bytes.iter_mut().skip(16).for_each(|octet| *octet = rng.octet()),
            // Words that mean something elsewhere: small numbers and extremes.
            2 => {
                for _ in 0..=rng.below(4) {
                    let word = [0, 1, 2, 4, 7, 16, 0x7fff_ffff, u32::MAX][rng.below(8)];
                    let at = rng.below(bytes.len() / 4) * 4;
                    bytes[at..at + 4].copy_from_slice(&word.to_be_bytes());
                }
            }
            // The head of one message and the tail of another.
            _ => {
                let other = &vectors[rng.below(vectors.len())].1;
                bytes.truncate(rng.below(bytes.len() / 4) * 4);
                bytes.extend(&other[rng.below(other.len() / 4) * 4..]);
            }
        }
        assert_eq!(verdict(&bytes), oracle(&bytes), "round {round}: {bytes:02x?}");
    }
}

/// What is to be done with a message: take it, drop it, or answer with an error code.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Take,
    Drop,
    Answer(u32),
}

fn verdict(bytes: &[u8]) -> Verdict {
    match (decode(bytes).is_ok(), check(bytes)) {
        (true, _) => Verdict::Take,
        (false, Some(code)) => Verdict::Answer(code),
        (false, None) => Verdict::Drop,
    }
}

/// Judges a message by a parser of its own, from the draft's XDR and its sections 5.1, 6 and 7.
fn oracle(bytes: &[u8]) -> Verdict {
    let mut words = Words(bytes);
    let (Some(xid), Some(vers), Some(_credit), Some(htype)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Verdict::Drop;
    };
    // E13: an error is never answered, in any version.
    if vers != 2 {
        return if htype == 4 { Verdict::Drop } else { Verdict::Answer(1) };
    }
    match htype {
        4 if words.error().is_some_and(|()| words.0.is_empty()) => Verdict::Take,
        5 if words.0.is_empty() => Verdict::Take,
        // E10: the extension judges its own header types.
        0x5254_0001..=0x5254_0004 => Verdict::Take,
        6 | 7 => match words.propset() {
            Ok(()) if words.0.is_empty() => Verdict::Take,
            Ok(()) => Verdict::Answer(2),
            Err(code) => Verdict::Answer(code),
        },
        8 if words.call(true).is_some() && words.0.is_empty() => Verdict::Take,
        9 if words.next().is_some() && words.next() == Some(xid) => Verdict::Take,
        10 if words.call(false).is_some() && words.next() == Some(xid) => Verdict::Take,
        8..=10 => Verdict::Answer(2),
        11 if words.writes().is_some()
            && words.flag() == Some(true)
            && words.chunk().is_some()
            && words.0.is_empty() =>
        {
            Verdict::Take
        }
        12 if words.next().is_some() && words.next() == Some(xid) => Verdict::Take,
        13 if words.writes().is_some() && words.next() == Some(xid) => Verdict::Take,
        4 | 5 | 11..=13 => Verdict::Drop,
        _ => Verdict::Answer(4),
    }
}

struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn next(&mut self) -> Option<u32> {
        let (word, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*word))
    }

    fn error(&mut self) -> Option<()> {
        let arm = match self.next()? {
            1 | 9 => 2,
            6 | 7 | 8 | 10 => 1,
            2..=5 | 11 | 100 => 0,
            _ => return None,
        };
        (0..arm).try_for_each(|_| self.next().map(drop))
    }

    fn propset(&mut self) -> Result<(), u32> {
        for _ in 0..self.next().ok_or(2_u32)? {
            let which = self.next().ok_or(2_u32)?;
            let length = self.next().ok_or(2_u32)?;
            let room = (length as usize).next_multiple_of(4);
            let (value, rest) = self.0.split_at_checked(room).ok_or(3_u32)?;
            self.0 = rest;
            let wanted = match which {
                1..=5 => Some(4),
                // A length, and as many octets in whole words.
                6 => Words(value).next().map(|octets| 4 + u64::from(octets).next_multiple_of(4)),
                _ => Some(length.into()),
            };
            if length != 0 && wanted != Some(length.into()) {
                return Err(3);
            }
        }
        Ok(())
    }

    fn call(&mut self, external: bool) -> Option<()> {
        let inv_handle = self.next()?;
        let (mut handles, mut chunks) = (vec![0], Vec::<(u32, u64)>::new());
        if external {
            let mut sum = 0;
            while self.flag()? {
                let position = self.next()?;
                let (handle, length) = self.segment()?;
                handles.push(handle);
                sum += length;
                (position == 0 && sum <= u64::from(u32::MAX)).then_some(())?;
            }
            (handles.len() > 1).then_some(())?;
        }
        while self.flag()? {
            let position = self.next()?;
            let (handle, length) = self.segment()?;
            handles.push(handle);
            match chunks.last_mut() {
                Some((last, sum)) if *last == position => *sum += length,
                Some((last, _)) if *last > position => return None,
                _ => chunks.push((position, length)),
            }
        }
        handles.extend(self.writes()?);
        if self.flag()? {
            handles.extend(self.chunk()?);
        }
        let sound = |&(at, sum): &(u32, u64)| at != 0 && at % 4 == 0 && sum <= u64::from(u32::MAX);
        let known = handles.contains(&inv_handle);
        (known && chunks.iter().all(sound)).then_some(())
    }

    /// The handles of a Write list.
    fn writes(&mut self) -> Option<Vec<u32>> {
        let mut handles = Vec::new();
        while self.flag()? {
            handles.extend(self.chunk()?);
        }
        Some(handles)
    }

    fn chunk(&mut self) -> Option<Vec<u32>> {
        let (mut handles, mut sum) = (Vec::new(), 0);
        for _ in 0..self.next()? {
            let (handle, length) = self.segment()?;
            handles.push(handle);
            sum += length;
        }
        (sum <= u64::from(u32::MAX)).then_some(handles)
    }

    fn segment(&mut self) -> Option<(u32, u64)> {
        let (handle, length) = (self.next()?, u64::from(self.next()?));
        let offset = u64::from(self.next()?) << 32 | u64::from(self.next()?);
        offset.checked_add(length).map(|_| (handle, length))
    }

    fn flag(&mut self) -> Option<bool> {
        self.next().filter(|&word| word < 2).map(|word| word == 1)
    }
}

#[test]
fn what_follows_the_prefix_of_an_extension_is_not_judged_here() {
    for htype in [0x5254_0001, 0x5254_0002, 0x5254_0003, 0x5254_0004] {
        let bytes = Xdr::common(7, 2, 40, htype).words(&[u32::MAX, 9]).0;
        let message = decode(&bytes).unwrap();
        let Message::Extended(Extended { prefix, body }) = message else { panic!("{message:?}") };
        assert_eq!((prefix.xid, prefix.htype, body.len()), (7, htype, 8));
        assert!(format!("{message:?}").contains("body_length: 8"));
        let mut memory = [0; 24];
        assert_eq!(encode(&message, &mut memory), Ok(24));
        assert_eq!(memory, bytes[..]);
    }
    for htype in [0x5254_0000, 0x5254_0005] {
        let fault = decode(&Xdr::common(7, 2, 40, htype).0).unwrap_err();
        assert_eq!(fault.report, Some(ErrorBody::InvalHtype));
    }
}
