//! RoCEv2, made from the formats of InfiniBand.

use super::*;

const HERE: Address = ([192, 0, 2, 1], 50_000);
const THERE: Address = ([192, 0, 2, 2], packet::ROCE_PORT);

/// Makes a packet to queue pair 17: the opcode, the PSN, and what follows the base header.
fn bth(opcode: u8, psn: u32, rest: &[u8]) -> Vec<u8> {
    let pad = u8::try_from(rest.len().wrapping_neg() & 3).unwrap();
    let mut octets = vec![opcode, pad << 4, 0xff, 0xff, 0, 0, 0, 17];
    octets.extend(psn.to_be_bytes());
    octets.extend(rest);
    octets.extend(vec![0; usize::from(pad)]);
    octets.extend([0xde, 0xad, 0xbe, 0xef]);
    datagram(HERE, THERE, &octets)
}

/// What a Write or Read names: 16 octets at 4096 of handle 9.
fn reth(length: u32) -> Vec<u8> {
    [&4096_u64.to_be_bytes()[..], &9_u32.to_be_bytes(), &length.to_be_bytes()].concat()
}

const WAY: &str = r#"{"at":"from":"192.0.2.1:50000","to":"192.0.2.2:4791","qp":17,"#;

/// Returns the lines without their times, and without what all begin with.
fn shown(packets: &[Vec<u8>]) -> Vec<String> {
    lines(packets)
        .iter()
        .map(|line| {
            let (before, behind) = line.split_once("\"from\"").unwrap();
            let line = format!("{}\"from\"{behind}", &before[..6]);
            line.strip_prefix(WAY).unwrap_or_else(|| panic!("{line}")).to_owned()
        })
        .collect()
}

#[test]
fn sends_of_one_and_of_many_packets_are_messages() {
    let call = call(5);
    let (first, rest) = call.split_at(24);
    let (middle, last) = rest.split_at(20);
    let invalidated = [&9_u32.to_be_bytes()[..], &reply()].concat();
    let lines = shown(&[
        bth(0x04, 0xff_fffe, &call),
        bth(0x00, 0xff_ffff, first),
        bth(0x01, 0, middle),
        bth(0x02, 1, last),
        bth(0x17, 2, &invalidated),
    ]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(lines[0], lines[1]);
    assert!(lines[0].starts_with(r#""xid":7,"vers":2"#) && lines[0].contains(r#""proc":5"#));
    assert!(lines[2].starts_with(r#""xid":7,"vers":2,"credit":32,"htype":"RDMA2_REPLY_INLINE""#));
}

#[test]
fn packets_sent_again_are_left_out_and_missing_ones_are_told() {
    let call = call(5);
    let (first, last) = call.split_at(40);
    let lines = shown(&[
        bth(0x00, 7, first),
        bth(0x00, 7, first),
        bth(0x02, 8, last),
        bth(0x00, 7, first),
        bth(0x02, 8, last),
        // Its middle is not there.
        bth(0x00, 9, first),
        bth(0x02, 11, last),
        bth(0x04, 12, &call),
        // Its beginning is not there.
        bth(0x02, 14, last),
        // A new connection of the same queue pair.
        bth(0x04, 0x80_0000, &call),
    ]);
    let is_message: Vec<_> = lines.iter().map(|line| line.starts_with("\"xid\"")).collect();
    assert_eq!(is_message, [true, false, true, false, true]);
    assert!(lines[1].contains("\"error\":\"packets of this Send are missing"), "{}", lines[1]);
}

#[test]
fn writes_and_reads_are_shown_with_their_places() {
    let lines = shown(&[
        bth(0x06, 1, &[reth(7), b"abcd".to_vec()].concat()),
        bth(0x08, 2, b"efg"),
        bth(0x0c, 3, &reth(16)),
        bth(0x10, 9, &[&[0, 0, 0, 1][..], b"data"].concat()),
        bth(0x08, 6, b"efg"),
        bth(0x11, 3, &[0x1f, 0, 0, 1]),
        bth(0x11, 3, &[0x60, 0, 0, 1]),
        bth(0x04, 7, b"no message"),
        bth(0x64, 0, &[0x80, 1, 0, 0, 0, 0, 0, 1, 0xaa]),
        bth(0xe0, 0, b""),
    ]);
    assert_eq!(
        lines,
        [
            r#""frame":"roce","psn":1,"first":true,"last":false,"opcode":"WRITE","stag":9,"to":4096,"payload":"61626364"}"#,
            r#""frame":"roce","psn":2,"first":false,"last":true,"opcode":"WRITE","stag":9,"to":4100,"payload":"656667"}"#,
            r#""frame":"roce","psn":3,"first":true,"last":true,"opcode":"READ_REQUEST","stag":9,"to":4096,"length":16,"payload":""}"#,
            r#""frame":"roce","psn":9,"first":true,"last":true,"opcode":"READ_RESPONSE","syndrome":0,"payload":"64617461"}"#,
            r#""frame":"roce","psn":6,"first":false,"last":true,"opcode":"WRITE","payload":"656667"}"#,
            r#""frame":"roce","psn":3,"first":true,"last":true,"opcode":"NAK","syndrome":96,"payload":""}"#,
            r#""frame":"roce","psn":7,"first":true,"last":true,"opcode":"SEND","payload":"6e6f206d657373616765"}"#,
            r#""frame":"roce","psn":0,"first":true,"last":true,"opcode":"UD_SEND","from_qp":1,"payload":"aa"}"#,
            r#""frame":"roce","psn":0,"first":true,"last":true,"opcode":224,"payload":""}"#,
        ]
    );
}

#[test]
fn packets_too_short_for_their_headers_are_told() {
    let whole = bth(0x0a, 1, &reth(0));
    // From the base header to all but the last octet of the target.
    for length in 0..12 + 16 + 4 {
        let octets = &whole[28..28 + length];
        let lines = lines(&[datagram(HERE, THERE, octets)]);
        assert!(lines[0].contains("\"error\":\"truncated at byte"), "{length}: {}", lines[0]);
    }
    assert_eq!(shown(&[whole]).len(), 1);
    let mut version = bth(0x04, 1, b"");
    version[28 + 1] = 3;
    assert!(lines(&[version])[0].contains("transport header version at byte 1"));
}
