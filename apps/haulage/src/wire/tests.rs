//! Tests of both directions, with the vectors of the protocol library, random descriptions and damaged messages.

use serde_json::Value;

use super::*;

mod iwarp;
mod random;

use random::Rng;

/// Describes a message as JSON.
fn describe(message: &[u8]) -> Result<String, Refusal> {
    proto::describe::message(message).map(|fields| fields.to_string())
}

/// Describes an MPA frame or an FPDU as JSON.
fn describe_iwarp(octets: &[u8]) -> Result<String, Refusal> {
    proto::describe::iwarp::octets(octets, crc32c).map(|fields| fields.to_string())
}

#[test]
fn every_vector_survives_the_round_trip() {
    for (name, message) in vectors() {
        let line = describe(&message).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
        assert_eq!(assemble(line.as_bytes()).as_deref(), Ok(&message[..]), "{name}");
    }
}

#[test]
fn random_descriptions_survive_the_round_trip() {
    let mut rng = Rng::new(7);
    for turn in 0..300 {
        for kind in random::KINDS {
            let line = kind(&mut rng);
            let message =
                assemble(line.as_bytes()).unwrap_or_else(|c| panic!("{turn}: {c}\n{line}"));
            assert_eq!(describe(&message).as_ref(), Ok(&line), "{turn}");
        }
    }
}

#[test]
fn whatever_happens_to_a_message_its_line_is_json() {
    let mut rng = Rng::new(11);
    let check = |octets: &[u8]| {
        for described in
            [proto::describe::message(octets), proto::describe::iwarp::octets(octets, crc32c)]
        {
            let line = line_of(described);
            let value: Value = serde_json::from_str(&line).unwrap();
            assert!(value.get("xid").or(value.get("frame")).or(value.get("error")).is_some());
        }
    };
    for (_, message) in vectors() {
        for length in 0..message.len() {
            check(&message[..length]);
        }
        for _ in 0..50 {
            let mut damaged = message.clone();
            let at = rng.below(damaged.len());
            damaged[at] = rng.octet();
            check(&damaged);
        }
    }
    for _ in 0..2_000 {
        let length = rng.below(100);
        check(&(0..length).map(|_| rng.octet()).collect::<Vec<_>>());
    }
}

#[test]
fn a_refusal_says_what_is_wrong_where_and_what_is_reported() {
    let cases = [
        ("0000000100000002000000", "shorter than the common prefix at byte 8", None),
        (
            "00000001 00000003 00000001 0000000a",
            "unsupported version at byte 4",
            Some("RDMA2_ERR_VERS"),
        ),
        // An error is not answered, whatever its version.
        ("00000001 00000003 00000001 00000004", "unsupported version at byte 4", None),
        (
            "00000001 00000002 00000001 0000000e",
            "unknown header type at byte 12",
            Some("RDMA2_ERR_INVAL_HTYPE"),
        ),
        ("00000001 00000002 00000001 0000000a", "truncated at byte 16", Some("RDMA2_ERR_BAD_XDR")),
        // A Reply is not answered, but its error is named.
        (
            "00000001 00000002 00000001 0000000d 00000002",
            "list discriminator at byte 16",
            Some("RDMA2_ERR_BAD_XDR"),
        ),
        (
            "00000001 00000002 00000001 0000000b 00000000 00000000",
            "no Reply chunk at byte 20",
            Some("RDMA2_ERR_BAD_XDR"),
        ),
        ("00000001 00000002 00000001 0000000c", "truncated at byte 16", Some("RDMA2_ERR_BAD_XDR")),
        ("00000001 00000002 00000001 00000004 00000063", "unknown error code at byte 16", None),
        ("00000001 00000002 00000001 00000004 00000001", "truncated at byte 20", None),
        ("00000000 00000002 00000001 00000005 00", "octets after the header at byte 16", None),
        (
            "00000001 00000002 00000001 00000007 00000001 00000001 00000003 00000000",
            "property value at byte 28",
            Some("RDMA2_ERR_BAD_PROPVAL"),
        ),
        (
            "00000001 00000001 00000001 00000005",
            "unknown message type at byte 12",
            Some("ERR_CHUNK"),
        ),
        ("00000001 00000001 00000001 00000000", "truncated at byte 16", Some("ERR_CHUNK")),
        ("00000001 00000001 00000001 00000004 00000003", "unknown error code at byte 16", None),
        ("00000001 00000001 00000001 00000003 00", "octets after the header at byte 16", None),
        ("00000001 00000001 00", "shorter than the common prefix at byte 8", None),
        ("00000001 00000002 00000001 52540001", "truncated at byte 16", Some("RDMA2_ERR_BAD_XDR")),
        ("00000001 00000002 00000001 52540002", "truncated at byte 16", Some("RDMA2_ERR_BAD_XDR")),
        ("00000001 00000002 00000001 52540003", "truncated at byte 16", Some("RDMA2_ERR_BAD_XDR")),
        ("00000001 00000002 00000001 52540004", "truncated at byte 16", None),
        (
            "00000001 00000002 00000001 52540005",
            "unknown header type at byte 12",
            Some("RDMA2_ERR_INVAL_HTYPE"),
        ),
    ];
    for (digits, error, report) in cases {
        let message = hex::decode(digits.replace(' ', "")).unwrap();
        let refusal = describe(&message).unwrap_err();
        assert_eq!((refusal.to_string().as_str(), refusal.report), (error, report), "{digits}");
    }
}

#[test]
fn what_is_not_hex_is_refused_at_the_octet_where_it_stands() {
    for (digits, says) in [
        (&b"001"[..], "half an octet of hex at byte 1"),
        (b"00zz", "not a hex digit at byte 1"),
        (b"+1", "not a hex digit at byte 0"),
        (b"00 11", "not a hex digit at byte 1"),
        (b"\xff\xff", "not a hex digit at byte 0"),
    ] {
        let refusal = decode_hex(digits).unwrap_err();
        assert_eq!((refusal.to_string().as_str(), refusal.report), (says, None));
    }
    assert_eq!(decode_hex(b"9AfF"), Ok(vec![0x9a, 0xff]));
}

#[test]
fn a_complaint_names_the_field() {
    let segment = r#"{"handle":1,"length":2,"offset":3}"#;
    let inline = |reads: &str, writes: &str, rest: &str| {
        format!(
            r#"{{"xid":1,"vers":2,"credit":1,"htype":"RDMA2_CALL_INLINE","inv_handle":0,"reads":{reads},"writes":{writes},"reply":null{rest}}}"#
        )
    };
    let response = |item: &str| {
        format!(r#"{{"xid":1,"vers":2,"credit":1,"htype":"ROPT_XMTRESP","optxrs_dp":[{item}]}}"#)
    };
    let word = "not an integer from 0 to 4294967295";
    let cases = [
        ("{".to_owned(), "not JSON: EOF while parsing an object at column 1".to_owned()),
        ("7".to_owned(), "not an object".to_owned()),
        (r#"{"error":"x","report":null}"#.to_owned(), "error: no message to encode".to_owned()),
        ("{}".to_owned(), "xid: missing".to_owned()),
        (
            r#"{"xid":1,"vers":3,"credit":1}"#.to_owned(),
            "vers: not a version known here".to_owned(),
        ),
        (
            r#"{"xid":1,"vers":1,"credit":1,"proc":"RDMA2_GRANT"}"#.to_owned(),
            "proc: not a message type of version 1".to_owned(),
        ),
        (
            r#"{"xid":1,"vers":1,"credit":1,"htype":"RDMA_DONE"}"#.to_owned(),
            "proc: missing".to_owned(),
        ),
        (
            r#"{"xid":1,"vers":1,"credit":1,"proc":"RDMA_ERROR","err":"RDMA2_ERR_VERS"}"#
                .to_owned(),
            "err: not an error of version 1".to_owned(),
        ),
        (
            r#"{"xid":1,"vers":1,"credit":1,"proc":"RDMA_DONE","reads":[]}"#.to_owned(),
            "reads: unknown here".to_owned(),
        ),
        (
            response(
                r#"{"xmdmi_disp":1,"xmdmi_length":1,"xmdmi_where":{"type":"XMPTYPE_BYSIZE"}}"#,
            ),
            "optxrs_dp[0].xmdmi_where.type: not a type of xmdp_loc".to_owned(),
        ),
        (
            response(
                r#"{"xmdmi_disp":1,"xmdmi_length":1,"xmdmi_where":{"type":"XMPTYPE_NOITEM","x":1}}"#,
            ),
            "optxrs_dp[0].xmdmi_where.x: unknown here".to_owned(),
        ),
        (r#"{"vers":2,"xid":-1}"#.to_owned(), format!("xid: {word}")),
        (r#"{"vers":2,"xid":1.0}"#.to_owned(), format!("xid: {word}")),
        (r#"{"vers":2,"xid":"1"}"#.to_owned(), format!("xid: {word}")),
        (r#"{"vers":2,"xid":4294967296}"#.to_owned(), format!("xid: {word}")),
        (
            r#"{"vers":2,"xid":1,"credit":1,"htype":"RDMA2_CALL"}"#.to_owned(),
            "htype: not a header type of version 2".to_owned(),
        ),
        (
            r#"{"vers":2,"xid":1,"credit":1,"htype":"RDMA2_ERROR","err":7}"#.to_owned(),
            "err: not an error of version 2".to_owned(),
        ),
        (
            r#"{"vers":2,"xid":1,"credit":1,"htype":"RDMA2_GRANT","extra":7}"#.to_owned(),
            "extra: unknown here".to_owned(),
        ),
        (
            r#"{"vers":2,"xid":1,"credit":1,"htype":"RDMA2_GRANT","two\nlines":7}"#.to_owned(),
            "two\\nlines: unknown here".to_owned(),
        ),
        (
            r#"{"vers":2,"xid":1,"credit":1,"htype":"RDMA2_GRANT","xid":2}"#.to_owned(),
            "xid: given twice at column 59".to_owned(),
        ),
        (inline("[]", "[]", ""), "payload: missing".to_owned()),
        (
            inline("[]", "[]", r#","payload":"0""#),
            "payload: not a string of whole octets in hex".to_owned(),
        ),
        (inline("{}", "[]", ""), "reads: not an array".to_owned()),
        (inline(&format!("[{segment}]"), "[]", ""), "reads[0].position: missing".to_owned()),
        (inline("[]", &format!("[[{segment}],[7]]"), ""), "writes[1][0]: not an object".to_owned()),
        (
            inline("[]", &format!("[[{}]]", segment.replace('3', "\"-3\"")), ""),
            "writes[0][0].offset: not an integer from 0 to 18446744073709551615".to_owned(),
        ),
        (
            inline("[]", &format!("[[{}]]", segment.replace("offset", "ofset")), ""),
            "writes[0][0].offset: missing".to_owned(),
        ),
        (
            inline("[]", &format!("[[{}]]", segment.replace('}', ",\"x\":0}")), ""),
            "writes[0][0].x: unknown here".to_owned(),
        ),
    ];
    for (line, says) in cases {
        let complaint = assemble(line.as_bytes()).unwrap_err();
        assert_eq!(complaint.to_string(), says, "{line}");
    }
}

#[test]
fn offsets_are_exact_as_integers_and_as_strings() {
    let line = |offset: &str| {
        format!(
            r#"{{"xid":1,"vers":2,"credit":1,"htype":"RDMA2_REPLY_EXTERNAL","writes":[],"reply":[{{"handle":1,"length":1,"offset":{offset}}}]}}"#
        )
    };
    let exact = line("18446744073709551614");
    let message = assemble(exact.as_bytes()).unwrap();
    assert_eq!(message[message.len() - 8..], (u64::MAX - 1).to_be_bytes());
    let text = line("\"18446744073709551614\"");
    assert_eq!(assemble(text.as_bytes()).as_ref(), Ok(&message));
    assert_eq!(
        describe(&message),
        Ok(text),
        "a number would lose its last digits in many programs"
    );
    let number = line("9007199254740991");
    assert_eq!(describe(&assemble(number.as_bytes()).unwrap()), Ok(number));
}

#[test]
fn many_chunks_without_segments_fit_the_room_of_their_message() {
    let chunks = vec!["[]"; 1_000].join(",");
    let line = format!(
        r#"{{"xid":1,"vers":2,"credit":1,"htype":"RDMA2_REPLY_INLINE","writes":[{chunks}],"payload":""}}"#
    );
    let message = assemble(line.as_bytes()).unwrap();
    assert_eq!((message.len(), describe(&message)), (16 + 8 * 1_000 + 4, Ok(line)));
}

/// The vectors of the protocol library, by file and section.
fn vectors() -> Vec<(String, Vec<u8>)> {
    let files = [
        ("call_external", include_str!("../../../../proto/vectors/v2/call_external.hex")),
        ("call_middle", include_str!("../../../../proto/vectors/v2/call_middle.hex")),
        ("call_inline", include_str!("../../../../proto/vectors/v2/call_inline.hex")),
        ("reply_external", include_str!("../../../../proto/vectors/v2/reply_external.hex")),
        ("reply_middle", include_str!("../../../../proto/vectors/v2/reply_middle.hex")),
        ("reply_inline", include_str!("../../../../proto/vectors/v2/reply_inline.hex")),
        ("connprop_middle", include_str!("../../../../proto/vectors/v2/connprop_middle.hex")),
        ("connprop_final", include_str!("../../../../proto/vectors/v2/connprop_final.hex")),
        ("grant", include_str!("../../../../proto/vectors/v2/grant.hex")),
        ("error", include_str!("../../../../proto/vectors/v2/error.hex")),
        ("v1/forms", include_str!("../../../../proto/vectors/v1/forms.hex")),
        ("v1/rdma_msg", include_str!("../../../../proto/vectors/v1/rdma_msg.hex")),
        ("v1/rdma_nomsg", include_str!("../../../../proto/vectors/v1/rdma_nomsg.hex")),
        ("v1/reverse", include_str!("../../../../proto/vectors/v1/reverse.hex")),
        ("xmtreq", include_str!("../../../../proto/vectors/rtrext/xmtreq.hex")),
        ("xmtresp", include_str!("../../../../proto/vectors/rtrext/xmtresp.hex")),
        ("xmtcont", include_str!("../../../../proto/vectors/rtrext/xmtcont.hex")),
        ("v1/oracle", include_str!("../../../../proto/vectors/v1/oracle.hex")),
        ("v2/oracle", include_str!("../../../../proto/vectors/v2/oracle.hex")),
        ("rtrext/oracle", include_str!("../../../../proto/vectors/rtrext/oracle.hex")),
        ("repterr", include_str!("../../../../proto/vectors/rtrext/repterr.hex")),
    ];
    let mut vectors: Vec<(String, String)> = Vec::new();
    for (file, text) in files {
        for line in text.lines().map(|line| line.split('#').next().unwrap().trim()) {
            match line.strip_prefix("==") {
                Some(section) => {
                    vectors.push((format!("{file}/{}", section.trim()), String::new()))
                }
                None if line.is_empty() => {}
                None => vectors.last_mut().unwrap().1.push_str(&line.replace(' ', "")),
            }
        }
    }
    assert!(vectors.len() > 150);
    vectors.into_iter().map(|(name, digits)| (name, hex::decode(digits).unwrap())).collect()
}
