//! Both ways, over the vectors of the protocol library, random descriptions and damaged messages.

use serde_json::Value;

use super::*;

#[test]
fn every_vector_survives_the_round_trip() {
    for (name, message) in vectors() {
        let line = describe(&message).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"));
        assert_eq!(assemble(line.as_bytes()).as_deref(), Ok(&message[..]), "{name}");
    }
}

#[test]
fn random_descriptions_survive_the_round_trip() {
    let mut rng = Rng(7);
    for turn in 0..2_000 {
        for kind in v2_kinds() {
            let line = kind(&mut rng);
            let message =
                assemble(line.as_bytes()).unwrap_or_else(|c| panic!("{turn}: {c}\n{line}"));
            assert_eq!(describe(&message).as_ref(), Ok(&line), "{turn}");
        }
    }
}

#[test]
fn whatever_happens_to_a_message_its_line_is_json() {
    let mut rng = Rng(11);
    let check = |octets: &[u8]| {
        for described in [describe(octets), iwarp::describe(octets)] {
            let line = described.unwrap_or_else(|refusal| refusal.to_json());
            let value: Value = serde_json::from_str(&line).unwrap();
            assert!(value.get("xid").or(value.get("frame")).or(value.get("error")).is_some());
        }
    };
    for (_, message) in vectors() {
        for length in 0..message.len() {
            check(&message[..length]);
        }
        for _ in 0..200 {
            let mut damaged = message.clone();
            let at = rng.below(damaged.len());
            damaged[at] = rng.next().to_be_bytes()[0];
            check(&damaged);
        }
    }
    for _ in 0..2_000 {
        let length = rng.below(100);
        check(&(0..length).map(|_| rng.next().to_be_bytes()[0]).collect::<Vec<_>>());
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
        // Nobody answers a Reply; what is wrong with it is told all the same.
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
    ];
    for (digits, error, report) in cases {
        let message = hex::decode(digits.replace(' ', "").as_bytes()).unwrap();
        let expected = Refusal::new(error.to_owned(), report);
        assert_eq!(describe(&message), Err(expected), "{digits}");
    }
}

#[test]
fn a_complaint_names_the_field() {
    let segment = r#"{"handle":1,"length":2,"offset":3}"#;
    let inline = |reads: &str, writes: &str, rest: &str| {
        format!(
            r#"{{"xid":1,"vers":2,"credit":1,"htype":"RDMA2_CALL_INLINE","inv_handle":0,"reads":{reads},"writes":{writes},"reply":null{rest}}}"#
        )
    };
    let word = "not an integer from 0 to 4294967295";
    let cases = [
        ("{".to_owned(), "not JSON: EOF while parsing an object at column 1".to_owned()),
        ("7".to_owned(), "not an object".to_owned()),
        (r#"{"error":"x","report":null}"#.to_owned(), "error: no message to encode".to_owned()),
        ("{}".to_owned(), "vers: missing".to_owned()),
        (r#"{"vers":3}"#.to_owned(), "vers: not a version known here".to_owned()),
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
    assert_eq!(assemble(line("\"18446744073709551614\"").as_bytes()), Ok(message));
}

/// The vectors of the protocol library, by file and section.
fn vectors() -> Vec<(String, Vec<u8>)> {
    let files = [
        ("call_external", include_str!("../../../proto/vectors/v2/call_external.hex")),
        ("call_middle", include_str!("../../../proto/vectors/v2/call_middle.hex")),
        ("call_inline", include_str!("../../../proto/vectors/v2/call_inline.hex")),
        ("reply_external", include_str!("../../../proto/vectors/v2/reply_external.hex")),
        ("reply_middle", include_str!("../../../proto/vectors/v2/reply_middle.hex")),
        ("reply_inline", include_str!("../../../proto/vectors/v2/reply_inline.hex")),
        ("connprop_middle", include_str!("../../../proto/vectors/v2/connprop_middle.hex")),
        ("connprop_final", include_str!("../../../proto/vectors/v2/connprop_final.hex")),
        ("grant", include_str!("../../../proto/vectors/v2/grant.hex")),
        ("error", include_str!("../../../proto/vectors/v2/error.hex")),
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
    assert!(vectors.len() > 30);
    vectors
        .into_iter()
        .map(|(name, digits)| (name, hex::decode(digits.as_bytes()).unwrap()))
        .collect()
}

/// Writes a random description.
type Describe = fn(&mut Rng) -> String;

/// One for each header type and error of version 2.
fn v2_kinds() -> Vec<Describe> {
    vec![
        |r| v2(r, "RDMA2_GRANT", ""),
        |r| error(r, "RDMA2_ERR_VERS", &["vers_low", "vers_high"]),
        |r| error(r, "RDMA2_ERR_BAD_XDR", &[]),
        |r| error(r, "RDMA2_ERR_BAD_PROPVAL", &[]),
        |r| error(r, "RDMA2_ERR_INVAL_HTYPE", &[]),
        |r| error(r, "RDMA2_ERR_INVAL_CONT", &[]),
        |r| error(r, "RDMA2_ERR_READ_CHUNKS", &["max_chunks"]),
        |r| error(r, "RDMA2_ERR_WRITE_CHUNKS", &["max_chunks"]),
        |r| error(r, "RDMA2_ERR_SEGMENTS", &["max_segments"]),
        |r| error(r, "RDMA2_ERR_WRITE_RESOURCE", &["chunk_index", "length_needed"]),
        |r| error(r, "RDMA2_ERR_REPLY_RESOURCE", &["length_needed"]),
        |r| error(r, "RDMA2_ERR_VERS_MISMATCH", &[]),
        |r| error(r, "RDMA2_ERR_SYSTEM", &[]),
        |r| {
            let members = format!(r#","props":{}"#, r.props());
            v2(r, "RDMA2_CONNPROP_MIDDLE", &members)
        },
        |r| {
            let members = format!(r#","props":{}"#, r.props());
            v2(r, "RDMA2_CONNPROP_FINAL", &members)
        },
        |r| {
            let call = r.reads(1, 0);
            let members = format!(r#","inv_handle":0,"call":{call},{}"#, r.call_lists());
            v2(r, "RDMA2_CALL_EXTERNAL", &members)
        },
        |r| {
            let members = r.fragment();
            v2(r, "RDMA2_CALL_MIDDLE", &members)
        },
        |r| {
            let members =
                format!(r#","inv_handle":0,{},"payload":"{}""#, r.call_lists(), r.octets());
            v2(r, "RDMA2_CALL_INLINE", &members)
        },
        |r| {
            let members = format!(r#","writes":{},"reply":{}"#, r.writes(), r.segments());
            v2(r, "RDMA2_REPLY_EXTERNAL", &members)
        },
        |r| {
            let members = r.fragment();
            v2(r, "RDMA2_REPLY_MIDDLE", &members)
        },
        |r| {
            let members = format!(r#","writes":{},"payload":"{}""#, r.writes(), r.octets());
            v2(r, "RDMA2_REPLY_INLINE", &members)
        },
    ]
}

fn v2(rng: &mut Rng, htype: &str, members: &str) -> String {
    let (xid, credit) = (rng.word(), rng.word());
    format!(r#"{{"xid":{xid},"vers":2,"credit":{credit},"htype":"{htype}"{members}}}"#)
}

fn error(rng: &mut Rng, name: &str, words: &[&str]) -> String {
    let words: String = words.iter().map(|word| format!(r#","{word}":{}"#, rng.word())).collect();
    v2(rng, "RDMA2_ERROR", &format!(r#","err":"{name}"{words}"#))
}

/// splitmix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// Small numbers and the ends of the range come often.
    fn word(&mut self) -> u32 {
        match self.below(4) {
            0 => u32::try_from(self.below(4)).unwrap(),
            1 => u32::MAX,
            _ => u32::try_from(self.next() >> 32).unwrap(),
        }
    }

    fn octets(&mut self) -> String {
        let count = self.below(20);
        (0..count).map(|_| format!("{:02x}", self.next() & 0xff)).collect()
    }

    fn array(&mut self, least: usize, element: impl Fn(&mut Self) -> String) -> String {
        let count = least + self.below(3);
        let elements: Vec<_> = (0..count).map(|_| element(self)).collect();
        format!("[{}]", elements.join(","))
    }

    /// Lengths stay short of what a chunk may hold, and ends short of what an offset may reach.
    fn segment_members(&mut self) -> String {
        let (handle, length) = (self.word(), self.word() >> 4);
        let offset = self.next() >> self.below(60) & !(1 << 63);
        format!(r#""handle":{handle},"length":{length},"offset":{offset}"#)
    }

    fn segments(&mut self) -> String {
        self.array(0, |rng| format!("{{{}}}", rng.segment_members()))
    }

    fn reads(&mut self, least: usize, position: u32) -> String {
        self.array(least, |rng| format!(r#"{{"position":{position},{}}}"#, rng.segment_members()))
    }

    fn writes(&mut self) -> String {
        self.array(0, Self::segments)
    }

    fn call_lists(&mut self) -> String {
        let position = (self.word() | 4) & !3;
        let (reads, writes) = (self.reads(0, position), self.writes());
        let reply = if self.below(2) == 0 { "null".to_owned() } else { self.segments() };
        format!(r#""reads":{reads},"writes":{writes},"reply":{reply}"#)
    }

    fn fragment(&mut self) -> String {
        format!(r#","remaining":{},"payload":"{}""#, self.word(), self.octets())
    }

    /// Of an extension: the values of known properties have types of their own.
    fn props(&mut self) -> String {
        self.array(0, |rng| {
            let (which, data) = (rng.word() | 0x8000_0000, rng.octets());
            format!(r#"{{"which":{which},"data":"{data}"}}"#)
        })
    }
}
