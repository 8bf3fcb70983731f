//! Tests of MPA frames and FPDUs.

use super::*;

#[test]
fn fpdus_are_described_with_their_crc() {
    let send_inv = "0017 41 44 00c0ffee 00000000 00000007 00000000 68656c6c6f 000000";
    let members = r#""tagged":false,"last":true,"opcode":"SEND_INV","queue":0,"msn":7,"mo":0,"inv_stag":12648430,"payload":"68656c6c6f"}"#;
    for (crc, name) in [("f9abbca6", "ok"), ("f9abbca7", "bad"), ("00000000", "zero")] {
        let line = described(&format!("{send_inv} {crc}"));
        let start = format!(r#"{{"frame":"fpdu","ulpdu_length":23,"crc":"{name}","#);
        assert_eq!(line, Ok(start + members));
    }
}

#[test]
fn every_operation_has_its_name_and_its_members() {
    let tagged = "0000000a 0000000000001000";
    let untagged = |queue: u32| format!("0000000b {queue:08x} 00000003 00000004");
    let fpdu = r#"{"frame":"fpdu","ulpdu_length":18,"crc":"zero","#;
    for (control, opcode, header, members) in [
        ("41", "43", untagged(0), r#""opcode":"SEND","queue":0,"msn":3,"mo":4"#),
        ("41", "44", untagged(0), r#""opcode":"SEND_INV","queue":0,"msn":3,"mo":4,"inv_stag":11"#),
        ("41", "45", untagged(0), r#""opcode":"SEND_SE","queue":0,"msn":3,"mo":4"#),
        (
            "41",
            "46",
            untagged(0),
            r#""opcode":"SEND_SE_INV","queue":0,"msn":3,"mo":4,"inv_stag":11"#,
        ),
        ("41", "41", untagged(1), r#""opcode":"READ_REQUEST","queue":1,"msn":3,"mo":4"#),
        ("41", "47", untagged(2), r#""opcode":"TERMINATE","queue":2,"msn":3,"mo":4"#),
        ("c1", "40", format!("{tagged} 5a5b5c5d"), r#""opcode":"WRITE","stag":10,"to":4096"#),
        (
            "81",
            "42",
            format!("{tagged} 5a5b5c5d"),
            r#""opcode":"READ_RESPONSE","stag":10,"to":4096"#,
        ),
    ] {
        let tagged = header.ends_with("5d");
        let (last, payload) = (control != "81", if tagged { "5a5b5c5d" } else { "" });
        let line =
            format!(r#"{fpdu}"tagged":{tagged},"last":{last},{members},"payload":"{payload}"}}"#);
        assert_eq!(described(&format!("0012 {control} {opcode} {header} 00000000")), Ok(line));
    }
}

#[test]
fn mpa_frames_are_described_with_what_they_offer() {
    let request = "4d504120494420526571204672616d65";
    let reply = "4d504120494420526570204672616d65";
    let enhanced =
        |ird: u32, ord: u32| format!(r#""enhanced":true,"ird":{ird},"ord":{ord},"private":"#);
    for (frame, line) in [
        (
            // Linux opens a stream for NFS with this request.
            format!("{request} 10 02 000c 0080 0000 f6ab0e18 01010303"),
            format!(
                r#"{{"frame":"mpa_request","rev":2,"markers":false,"crc":false,"reject":false,{}"f6ab0e1801010303","peer_to_peer":false,"rtr":[]}}"#,
                enhanced(128, 0)
            ),
        ),
        (
            format!("{request} d0 02 0004 c002 ffff"),
            format!(
                r#"{{"frame":"mpa_request","rev":2,"markers":true,"crc":true,"reject":false,{}"","peer_to_peer":true,"rtr":["send","write","read"]}}"#,
                enhanced(2, 16383)
            ),
        ),
        (
            format!("{reply} 60 01 0003 616263"),
            r#"{"frame":"mpa_reply","rev":1,"markers":false,"crc":true,"reject":true,"enhanced":false,"ird":null,"ord":null,"private":"616263"}"#
                .to_owned(),
        ),
    ] {
        assert_eq!(described(&frame), Ok(line));
    }
}

#[test]
fn what_is_neither_is_refused_where_it_breaks_and_reported_to_nobody() {
    let send = "0012 41 43 00000000 00000000 00000001 00000000";
    let reply = "4d504120494420526570204672616d65";
    for (line, says) in [
        (String::new(), "truncated at byte 0"),
        ("0012".to_owned(), "truncated at byte 2"),
        (send.to_owned(), "truncated at byte 20"),
        (format!("{send} 00000000 ff"), "octets after the FPDU at byte 24"),
        (format!("{} 00000000", send.replace(" 43 ", " 03 ")), "RDMAP version at byte 3"),
        (format!("{} 00000000", send.replace(" 43 ", " 48 ")), "unexpected RDMAP opcode at byte 3"),
        (format!("{} 00000000", send.replace(" 41 ", " 42 ")), "DDP version at byte 2"),
        (
            "0012 41 43 00000000 00000003 00000001 00000000 00000000".to_owned(),
            "queue number at byte 8",
        ),
        ("0000 0000 00000000".to_owned(), "ULPDU length at byte 0"),
        (reply.to_owned(), "truncated at byte 16"),
        (format!("{reply} 00 03 0000"), "MPA revision at byte 17"),
        (format!("{reply} 00 02 0201"), "MPA private data length at byte 18"),
        (format!("{reply} 10 02 0003 000000"), "MPA private data length at byte 18"),
        (format!("{reply} 00 02 0000 00"), "octets after the frame at byte 20"),
        ("4d504120494420526571205672616d65 00020000".to_owned(), "not an MPA frame at byte 9"),
    ] {
        let refusal = line_of(Err(described(&line).unwrap_err()));
        assert_eq!(refusal, format!(r#"{{"error":"{says}","report":null}}"#), "{line}");
    }
}

fn described(digits: &str) -> Result<String, Refusal> {
    describe_iwarp(&hex::decode(digits.replace(' ', "")).unwrap())
}
