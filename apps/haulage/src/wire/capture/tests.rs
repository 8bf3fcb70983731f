//! Captures made octet by octet, and what is printed of them.

use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Active, Offer, Passive};
use haulage_proto::iwarp::transmit::{Fpdu, Transmitter};
use haulage_proto::verbs::Handle;
use haulage_test_support::Rng;
use haulage_test_support::capture::{
    ACK, Address, Connection, FIN, Format, RST, SYN, Segment, datagram,
};
use serde_json::Value;

use super::*;

mod files;
mod missing;
mod roce;

const CLIENT: Address = ([192, 0, 2, 1], 40_000);
const SERVER: Address = ([192, 0, 2, 2], 20_050);

/// A connection of iWARP that is being made.
struct Bed {
    tcp: Connection,
    transmitters: [Transmitter; 2],
    segments: Vec<Segment>,
}

impl Bed {
    /// Opens TCP alone.
    fn new(ends: [Address; 2]) -> Self {
        let crc: Option<Crc32c> = Some(haulage::sys::crc::crc32c);
        let (tcp, segments) = Connection::open(ends);
        let transmitter = Transmitter::new(crc, Mulpdu::from_mss(0));
        Self { tcp, transmitters: [transmitter.clone(), transmitter], segments }
    }

    /// Opens a connection with the private data of version 1.
    fn opened() -> Self {
        let mut bed = Self::new([CLIENT, SERVER]);
        bed.shake_hands();
        bed
    }

    fn shake_hands(&mut self) {
        let offer = Offer { crc: true, ord: 4, ird: 4, rtr: false };
        let private = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
        let (_, request) = Active::new(offer, &private).unwrap();
        let asked = Passive::new().handle(&mut &request[..]).unwrap().unwrap();
        let (reply, _) = asked.accept(&offer, &private).unwrap();
        self.put(0, &request);
        self.put(1, &reply);
    }

    /// Sends octets in one segment.
    fn put(&mut self, sender: usize, octets: &[u8]) {
        let segment = self.tcp.send(sender, octets);
        self.segments.push(segment);
    }

    /// Sends a message, each FPDU in a segment.
    fn send(&mut self, sender: usize, message: &[u8]) {
        let mut done = 0;
        while done < message.len() || done == 0 {
            let count = u32::try_from(done).unwrap();
            let fpdu = self.transmitters[sender].send(None, count, &message[done..]);
            self.put(sender, &whole(&fpdu, &message[done..]));
            done += fpdu.payload_len();
            if fpdu.payload_len() == 0 {
                break;
            }
        }
    }

    /// Writes into the other end's memory.
    fn write(&mut self, sender: usize, data: &[u8]) {
        let fpdu = self.transmitters[sender].write(Handle(9), 4096, data);
        assert_eq!(fpdu.payload_len(), data.len(), "one FPDU");
        self.put(sender, &whole(&fpdu, data));
    }

    fn packets(&self) -> Vec<Vec<u8>> {
        packets(&self.segments)
    }

    fn lines(&self) -> Vec<String> {
        lines(&self.packets())
    }
}

fn whole(fpdu: &Fpdu, payload: &[u8]) -> Vec<u8> {
    [fpdu.prefix(), &payload[..fpdu.payload_len()], fpdu.trailer()].concat()
}

fn packets(segments: &[Segment]) -> Vec<Vec<u8>> {
    segments.iter().map(Segment::packet).collect()
}

/// Returns the lines of a capture with these packets.
fn lines(packets: &[Vec<u8>]) -> Vec<String> {
    lines_with(packets, &[])
}

fn lines_with(packets: &[Vec<u8>], ports: &[u16]) -> Vec<String> {
    let (text, ended) = lines_of(&Format::USUAL.file(packets), ports);
    assert_eq!(ended, Ok(()));
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    for line in &lines {
        let value: Value = serde_json::from_str(line).unwrap();
        let known = ["frame", "xid", "error"].iter().filter(|key| value.get(key).is_some());
        assert_eq!(known.count(), 1, "{line}");
    }
    lines
}

/// Returns the lines without their times.
fn timeless(lines: &[String]) -> Vec<String> {
    let rest = |line: &String| line.split_once(",\"from\"").unwrap().1.to_owned();
    lines.iter().map(rest).collect()
}

/// A Call of version 2 with an RPC header and this procedure.
fn call(procedure: u8) -> Vec<u8> {
    let header = [7, 2, 32, 10, 0, 0, 0, 0];
    let rpc = [7, 0, 2, 0x2000_0000, 1, procedure.into(), 0, 0, 0, 0];
    words(&[&header[..], &rpc].concat())
}

/// A Reply of version 2.
fn reply() -> Vec<u8> {
    words(&[7, 2, 32, 13, 0, 7, 1, 0, 0, 0, 0])
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[test]
fn messages_come_in_order_with_their_ends_and_their_rpc_headers() {
    let mut bed = Bed::opened();
    bed.send(0, &call(5));
    bed.write(1, &[0xab; 3]);
    bed.send(1, &reply());
    let frame = r#""rev":2,"markers":false,"crc":true,"reject":false,"enhanced":true,"ird":4,"ord":4,"private":"f6ab0e1801010303","peer_to_peer":false,"rtr":[]"#;
    let there = r#""from":"192.0.2.1:40000","to":"192.0.2.2:20050""#;
    let back = r#""from":"192.0.2.2:20050","to":"192.0.2.1:40000""#;
    assert_eq!(
        bed.lines(),
        [
            format!(r#"{{"at":1700000000.003000,{there},"frame":"mpa_request",{frame}}}"#),
            format!(r#"{{"at":1700000000.004000,{back},"frame":"mpa_reply",{frame}}}"#),
            format!(
                r#"{{"at":1700000000.005000,{there},"xid":7,"vers":2,"credit":32,"htype":"RDMA2_CALL_INLINE","inv_handle":0,"reads":[],"writes":[],"reply":null,"payload":"{}","rpc":{{"xid":7,"mtype":"CALL","rpcvers":2,"prog":536870912,"vers":1,"proc":5,"cred":{{"flavor":"AUTH_NONE"}},"verf":{{"flavor":"AUTH_NONE"}}}}}}"#,
                hex::encode(&call(5)[32..])
            ),
            format!(
                r#"{{"at":1700000000.006000,{back},"frame":"fpdu","ulpdu_length":17,"crc":"ok","tagged":true,"last":true,"opcode":"WRITE","stag":9,"to":4096,"payload":"ababab"}}"#
            ),
            format!(
                r#"{{"at":1700000000.007000,{back},"xid":7,"vers":2,"credit":32,"htype":"RDMA2_REPLY_INLINE","writes":[],"payload":"{}","rpc":{{"xid":7,"mtype":"REPLY","stat":"MSG_ACCEPTED","accept_stat":"SUCCESS"}}}}"#,
                hex::encode(&reply()[20..])
            ),
        ]
    );
}

#[test]
fn a_message_in_many_fpdus_and_segments_is_one_line() {
    let mut bed = Bed::opened();
    let mut long = call(1);
    long.resize(5000, 0x5a);
    let before = bed.segments.len();
    bed.send(0, &long);
    let fpdus: Vec<u8> = bed.segments.drain(before..).flat_map(|segment| segment.payload).collect();
    // Cut as TCP likes.
    let mut sequence = bed.segments[3].sequence.wrapping_add(32);
    for piece in fpdus.chunks(777) {
        let acknowledged = bed.segments[4].sequence.wrapping_add(32);
        let (from, to, flags) = (CLIENT, SERVER, ACK);
        let payload = piece.to_vec();
        bed.segments.push(Segment { from, to, sequence, acknowledged, flags, payload });
        sequence = sequence.wrapping_add(u32::try_from(piece.len()).unwrap());
    }
    let lines = bed.lines();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[2].contains(&"5a".repeat(4000)));
}

#[test]
fn whatever_the_order_and_the_repetitions_of_segments_the_lines_are_the_same() {
    let mut bed = Bed::opened();
    for procedure in 0..8 {
        bed.send(0, &call(procedure));
        let mut long = call(procedure);
        long.resize(400, procedure);
        bed.send(0, &long);
    }
    let expected = timeless(&bed.lines());
    assert_eq!(expected.len(), 2 + 16);
    let mut rng = Rng::new(5);
    for _ in 0..100 {
        let mut segments = bed.segments.clone();
        // The handshake stays where it is.
        for index in (6..segments.len()).rev() {
            segments.swap(index, 5 + rng.below(index - 4));
        }
        for _ in 0..rng.below(8) {
            let (from, to) = (5 + rng.below(segments.len() - 5), 5 + rng.below(segments.len() - 5));
            let mut again = segments[from].clone();
            // Sent again with fewer octets, or with those of the next segment, too.
            if rng.flip() {
                again.payload.truncate(rng.below(again.payload.len()));
            }
            segments.insert(to, again);
        }
        assert_eq!(timeless(&lines(&packets(&segments))), expected);
    }
}

#[test]
fn what_is_no_rpc_over_rdma_is_shown_by_fpdu() {
    let mut bed = Bed::new([CLIENT, SERVER]);
    let offer = Offer { crc: true, ord: 4, ird: 4, rtr: false };
    let (_, request) = Active::new(offer, b"").unwrap();
    bed.put(0, &request);
    bed.send(0, b"rdma-ping-0: ABCDEFG");
    // It has the version word, and nothing else.
    bed.send(0, &[0, 0, 0, 9, 0, 0, 0, 2, 9, 9, 9, 9, 9, 9, 9, 9]);
    bed.send(0, b"");
    let lines = bed.lines();
    assert_eq!(lines.len(), 4);
    for line in &lines[1..] {
        assert!(line.contains(r#""frame":"fpdu""#) && line.contains(r#""SEND""#), "{line}");
    }
}

#[test]
fn an_invalid_message_of_a_connection_that_is_of_rpc_over_rdma_is_told_with_its_report() {
    let mut bed = Bed::opened();
    bed.send(0, &[0, 0, 0, 9, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 10]);
    bed.send(1, &call(0)[..20]);
    let lines = bed.lines();
    let says = |line: &str, text: &str| assert!(line.ends_with(text), "{line}");
    says(&lines[2], r#""error":"unsupported version at byte 4","report":"RDMA2_ERR_VERS"}"#);
    says(&lines[3], r#""error":"truncated at byte 20","report":"RDMA2_ERR_BAD_XDR"}"#);
}

#[test]
fn a_send_with_a_wrong_crc_is_shown_and_is_no_message() {
    let mut bed = Bed::opened();
    bed.send(0, &call(0));
    *bed.segments.last_mut().unwrap().payload.last_mut().unwrap() ^= 1;
    let lines = bed.lines();
    assert!(lines[2].contains(r#""crc":"bad","tagged":false"#), "{}", lines[2]);
    assert!(
        lines[3].ends_with(r#""error":"CRC: the Send is not delivered","report":null}"#),
        "{}",
        lines[3]
    );
}

#[test]
fn connections_with_other_ports_are_left_out_if_ports_are_named() {
    let mut bed = Bed::opened();
    let mut other = Bed::new([CLIENT, ([192, 0, 2, 2], 80)]);
    other.put(0, b"GET / HTTP/1.1\r\n\r\n");
    bed.segments.extend(other.segments);
    let packets = bed.packets();
    assert_eq!(lines(&packets).len(), 2, "it is no MPA, and nobody asked");
    assert_eq!(lines_with(&packets, &[20_050]).len(), 2);
    assert_eq!(lines_with(&packets, &[1]).len(), 0);
    let told = lines_with(&packets, &[80]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("not an MPA frame"), "{}", told[0]);
    assert_eq!(lines_with(&packets, &[80, 20_050]).len(), 3);
}

#[test]
fn octets_of_any_kind_give_lines_of_json_and_no_panic() {
    let mut bed = Bed::opened();
    for procedure in 0..4 {
        bed.send(0, &call(procedure));
        bed.send(1, &reply());
    }
    let file = Format::USUAL.file(&bed.packets());
    let mut rng = Rng::new(9);
    for _ in 0..2_000 {
        let mut damaged = file.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(damaged.len());
            damaged[at] = rng.octet();
        }
        damaged.truncate(damaged.len() - rng.below(40));
        let (text, _) = lines_of(&damaged, &[20_050]);
        for line in text.lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }
}
