//! The exchange of the book's tour is what `haulage wire decode --pcap` prints of it.
#![expect(clippy::unwrap_used, reason = "an integration test")]

use std::fs;
use std::path::Path;

use haulage::sys::crc::crc32c;
use haulage_apps::wire::capture::lines_of;
use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Active, Offer, Passive};
use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::iwarp::transmit::{Fpdu, Transmitter};
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyHeader};
use haulage_proto::rtrext::direction::{Directed, Direction};
use haulage_proto::rtrext::item::Item;
use haulage_proto::rtrext::plan::{Content, Directive, Kind, Outgoing, Plan, Source};
use haulage_proto::rtrext::properties::{
    Offer as Offers, RTRS_XCONT, RTRS_XREQ, RTRS_XRESP, Terms,
};
use haulage_proto::rtrext::structure::{BufferSegment, FLAG_TARGETABLE, Structure};
use haulage_proto::v1::error::ErrorBody as ErrorBody1;
use haulage_proto::v1::header as v1;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::header as v2;
use haulage_proto::v2::properties::{ConnPropKind, Properties};
use haulage_proto::verbs::{Handle, Segment};
use haulage_proto::xdr::{Truncated, Writer};
use haulage_test_support::capture::{Address, Connection, Format};

#[test]
fn the_exchange_of_the_tour_is_what_the_command_prints_of_it() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/protocol.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## Each header type\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = section.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    // An object begins a line, and goes on in lines that begin with a space.
    let shown: Vec<String> = blocks
        .flat_map(|block| {
            block.trim_end().replace("\n ", "").lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let (lines, ended) = lines_of(&Exchange::of_the_tour(), &[]);
    assert_eq!(ended, Ok(()));
    let lines: Vec<_> = lines.lines().collect();
    assert!(
        shown.len() == lines.len()
            && shown.iter().zip(&lines).all(|(shown, line)| is_of(shown, line)),
        "the book has other lines than these:\n{}\nfirst of the book that is not there: {:?}",
        lines.join("\n"),
        shown.iter().zip(&lines).find(|(shown, line)| !is_of(shown, line)),
    );
    let names: Vec<_> = v2::NAMES.iter().map(|(name, _)| *name).collect();
    let of_version_1 = ["RDMA_MSG", "RDMA_NOMSG", "RDMA_MSGP", "RDMA_DONE", "RDMA_ERROR"];
    let of_extensions = ["ROPT_XMTREQ", "ROPT_XMTRESP", "ROPT_XMTCONT"];
    for name in names.iter().chain(&of_version_1).chain(&of_extensions) {
        assert!(shown.iter().any(|shown| shown.contains(&format!(":\"{name}\""))), "{name}");
    }
}

/// Returns whether `shown`, in which `...` stands for anything, is `line`.
fn is_of(shown: &str, line: &str) -> bool {
    let mut parts = shown.split("...");
    let Some(mut rest) = line.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    last.map_or(rest.is_empty(), |last| line.ends_with(last))
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// A connection that is being made.
struct Exchange {
    tcp: Connection,
    transmitters: [Transmitter; 2],
    packets: Vec<Vec<u8>>,
}

impl Exchange {
    /// Returns a capture of two connections, of version 2 and of version 1.
    fn of_the_tour() -> Vec<u8> {
        let mut two = Self::opened(40_002);
        two.properties();
        two.inline_with_a_read_chunk();
        two.external();
        two.in_several_parts();
        two.refused();
        two.in_a_group();
        two.directed();
        let mut one = Self::opened(40_001);
        one.version_one();
        Format::USUAL.file(two.packets.iter().chain(&one.packets))
    }

    fn opened(port: u16) -> Self {
        let ends: [Address; 2] = [([192, 0, 2, 1], port), ([192, 0, 2, 2], 20_049)];
        let (tcp, opening) = Connection::open(ends);
        let packets = opening.iter().map(|segment| segment.packet()).collect();
        let transmitter = Transmitter::new(Some(crc32c), Mulpdu::default());
        let mut exchange = Self { tcp, transmitters: [transmitter.clone(), transmitter], packets };
        let offer = Offer { crc: true, ord: 16, ird: 16, rtr: false };
        let (_, request) = Active::new(offer, &PRIVATE_DATA).unwrap();
        let asked = Passive::new().handle(&mut &request[..]).unwrap().unwrap();
        let (reply, _) = asked.accept(&offer, &PRIVATE_DATA).unwrap();
        exchange.put(CLIENT, &request);
        exchange.put(SERVER, &reply);
        exchange
    }

    fn put(&mut self, sender: usize, octets: &[u8]) {
        let segment = self.tcp.send(sender, octets);
        self.packets.push(segment.packet());
    }

    fn fpdu(&mut self, sender: usize, fpdu: &Fpdu, payload: &[u8]) {
        self.put(sender, &[fpdu.prefix(), payload, fpdu.trailer()].concat());
    }

    /// Sends a message: a header, and the Payload stream behind it.
    fn send(
        &mut self,
        sender: usize,
        payload: &[u8],
        header: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) {
        self.send_inv(sender, None, &[&octets(header)[..], payload].concat());
    }

    fn send_inv(&mut self, sender: usize, invalidate: Option<Handle>, message: &[u8]) {
        let fpdu = self.transmitters[sender].send(invalidate, 0, message);
        self.fpdu(sender, &fpdu, message);
    }

    fn properties(&mut self) {
        let properties = Properties::default();
        self.send(CLIENT, &[], |w| {
            // One property now, and the others in the next message.
            v2::Prefix { xid: 1, vers: 2, credit: 8, htype: v2::CONNPROP_MIDDLE }.encode(w)?;
            w.words([1, 1, 4, 4096])
        });
        self.send(CLIENT, &[], |w| v2::encode_connprop(w, 1, 8, ConnPropKind::Final, &properties));
        self.send(SERVER, &[], |w| v2::encode_connprop(w, 1, 10, ConnPropKind::Final, &properties));
    }

    /// A Call whose argument goes by Read chunk.
    fn inline_with_a_read_chunk(&mut self) {
        let call = octets(|w| {
            CallHeader::new(2, PROGRAM, 1, 3).encode(w)?;
            w.u32(8)
        });
        let (source, offset) = (Handle(0x0a), 0x1000);
        let segment = Segment { handle: source, length: 8, offset };
        let reads = [(44, &[segment][..])];
        let lists = v2::CallLists { inv_handle: source, reads: &reads, ..Default::default() };
        self.send(CLIENT, &call, |w| v2::encode_call_inline(w, 2, 9, &lists));
        let (sink, sink_offset) = (Handle(0x0b), 0x2000);
        let request = ReadRequest { sink, sink_offset, length: 8, source, source_offset: offset };
        let fpdu = self.transmitters[SERVER].read_request(&request);
        self.fpdu(SERVER, &fpdu, &[]);
        let fpdu = self.transmitters[CLIENT].read_response(sink, sink_offset, b"argument");
        self.fpdu(CLIENT, &fpdu, b"argument");
        let header = octets(|w| v2::encode_reply_inline(w, 2, 11, &[]));
        self.send_inv(SERVER, Some(source), &[&header[..], &success(2)].concat());
        self.send(SERVER, &[], |w| v2::encode_grant(w, 20));
    }

    /// A Call and a Reply that are in chunks as wholes.
    fn external(&mut self) {
        let call = [Segment { handle: Handle(0x0c), length: 5000, offset: 0 }];
        let reply = [Segment { handle: Handle(0x0d), length: 9000, offset: 1 << 60 }];
        let lists = v2::CallLists { reply: Some(&reply), ..Default::default() };
        self.send(CLIENT, &[], |w| v2::encode_call_external(w, 3, 11, &call, &lists));
        self.send(SERVER, &[], |w| {
            v2::Prefix { xid: 3, vers: 2, credit: 21, htype: v2::REPLY_EXTERNAL }.encode(w)?;
            // No Write chunk, and the Reply chunk: one segment of 7000 octets.
            w.words([0, 1, 1])?;
            Segment { length: 7000, ..reply[0] }.encode(w)
        });
    }

    /// A Call and a Reply that are continued.
    fn in_several_parts(&mut self) {
        let call = octets(|w| CallHeader::new(4, PROGRAM, 1, 5).encode(w));
        self.send(CLIENT, &call, |w| v2::encode_call_middle(w, 4, 12, 8));
        let lists = v2::CallLists::default();
        self.send(CLIENT, b"the rest", |w| v2::encode_call_inline(w, 4, 12, &lists));
        self.send(SERVER, &success(4), |w| v2::encode_reply_middle(w, 4, 23, 8));
        self.send(SERVER, b"the rest", |w| v2::encode_reply_inline(w, 4, 23, &[]));
    }

    /// A Call whose result does not fit its Write chunk.
    fn refused(&mut self) {
        let result = [Segment { handle: Handle(0x0e), length: 4096, offset: 0 }];
        let writes = [&result[..]];
        let lists = v2::CallLists { writes: &writes, ..Default::default() };
        let call = octets(|w| CallHeader::new(5, PROGRAM, 1, 1).encode(w));
        self.send(CLIENT, &call, |w| v2::encode_call_inline(w, 5, 14, &lists));
        let error = ErrorBody::WriteResource { chunk_index: 0, length_needed: 8192 };
        self.send(SERVER, &[], |w| v2::encode_error(w, 5, 2, 24, &error));
    }

    /// A Call whose argument comes along with it, in two messages.
    fn in_a_group(&mut self) {
        // Receives of 224 octets, of which the last 64 take items.
        let parts = [(160, 0), (64, FLAG_TARGETABLE)];
        let parts = parts.map(|(length, flags)| BufferSegment { length, align: 32, flags });
        let offer = Offers {
            support: RTRS_XREQ | RTRS_XCONT,
            structure: Structure::new(&parts),
            request_receive_max: 2,
            ..Offers::default()
        };
        let terms = Terms::new((&offer, &Properties::default()), (&offer, Some(224)), 1);
        let argument: Vec<u8> = b"abcdefgh".iter().copied().cycle().take(72).collect();
        let items = [Item { disp: 44, length: 72, place: Source::Send }];
        let call = octets(|w| {
            CallHeader::new(6, PROGRAM, 1, 3).encode(w)?;
            w.u32(72)
        });
        let kind = Kind::Request { rsd: &[], rsbuf: 0 };
        let message = Outgoing { kind, payload_length: call.len(), items: &items };
        let plan = Plan::new(&terms, &message).unwrap();
        let content = Content { payload: &call, items: &[&argument] };
        for number in 0..plan.transmissions() {
            self.send(CLIENT, &[], |w| plan.encode(w, number, (6, 15), &message, content));
        }
        self.send(SERVER, &success(6), |w| v2::encode_reply_inline(w, 6, 26, &[]));
    }

    /// A Call that directs its result to come along with the Reply, and the response.
    fn directed(&mut self) {
        // Receives of 224 octets, of which the last 64 take items.
        let parts = [(160, 0), (64, FLAG_TARGETABLE)];
        let parts = parts.map(|(length, flags)| BufferSegment { length, align: 32, flags });
        let support = RTRS_XREQ | RTRS_XRESP;
        let offer = Offers { support, structure: Structure::new(&parts), ..Offers::default() };
        let terms = Terms::new((&offer, &Properties::default()), (&offer, Some(224)), 1);
        let call = octets(|w| CallHeader::new(7, PROGRAM, 1, 1).encode(w));
        let direction = Direction { minlen: 0, place: Directed::Tbsn };
        let rsd = [Directive { begin: 0, end: u32::MAX, items: &[direction] }];
        let kind = Kind::Request { rsd: &rsd, rsbuf: 0 };
        let message = Outgoing { kind, payload_length: call.len(), items: &[] };
        let plan = Plan::new(&terms, &message).unwrap();
        let content = Content { payload: &call, items: &[] };
        self.send(CLIENT, &[], |w| plan.encode(w, 0, (7, 16), &message, content));
        let reply = [success(7), vec![0, 0, 0, 6]].concat();
        let items = [Item { disp: 28, length: 6, place: Source::Send }];
        let kind = Kind::Response { count_max: 1 };
        let message = Outgoing { kind, payload_length: reply.len(), items: &items };
        let plan = Plan::new(&terms, &message).unwrap();
        let content = Content { payload: &reply, items: &[b"result"] };
        self.send(SERVER, &[], |w| plan.encode(w, 0, (7, 27), &message, content));
    }

    fn version_one(&mut self) {
        let result = [Segment { handle: Handle(0x0f), length: 6, offset: 0x3000 }];
        let call = octets(|w| CallHeader::new(6, PROGRAM, 1, 1).encode(w));
        self.send(CLIENT, &call, |w| {
            v1::Prefix { xid: 6, vers: 1, credit: 32, proc: v1::MSG }.encode(w)?;
            // No Read chunk, one Write chunk of one segment, no Reply chunk.
            w.words([0, 1, 1])?;
            result[0].encode(w)?;
            w.words([0, 0])
        });
        let fpdu = self.transmitters[SERVER].write(result[0].handle, result[0].offset, b"result");
        self.fpdu(SERVER, &fpdu, b"result");
        self.send(SERVER, &success(6), |w| {
            v1::Prefix { xid: 6, vers: 1, credit: 16, proc: v1::MSG }.encode(w)?;
            w.words([0, 1, 1])?;
            result[0].encode(w)?;
            w.words([0, 0])
        });
        let call = Segment { handle: Handle(0x10), length: 5000, offset: 0 };
        self.send(CLIENT, &[], |w| {
            v1::Prefix { xid: 7, vers: 1, credit: 32, proc: v1::NOMSG }.encode(w)?;
            // A Read chunk at position 0 is the Call.
            w.words([1, 0])?;
            call.encode(w)?;
            w.words([0, 0, 0])
        });
        self.send(SERVER, &[], |w| v1::encode_error(w, 7, 1, 16, &ErrorBody1::Chunk));
        let padded = octets(|w| CallHeader::new(8, PROGRAM, 1, 3).encode(w));
        self.send(CLIENT, &padded, |w| {
            v1::Prefix { xid: 8, vers: 1, credit: 32, proc: v1::MSGP }.encode(w)?;
            // Alignment and threshold, and three empty lists.
            w.words([64, 1024, 0, 0, 0])
        });
        self.send(SERVER, &[], |w| {
            v1::Prefix { xid: 8, vers: 1, credit: 16, proc: v1::NOMSG }.encode(w)?;
            w.words([1, 0])?;
            Segment { handle: Handle(0x11), length: 24, offset: 0 }.encode(w)?;
            w.words([0, 0, 0])
        });
        self.send(CLIENT, &[], |w| v1::encode_done(w, 8, 32));
    }
}

/// The header of a Reply that succeeded.
fn success(xid: u32) -> Vec<u8> {
    octets(|w| ReplyHeader::accepted(xid, AcceptStat::Success).encode(w))
}

fn octets(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut room = [0; 256];
    let mut w = Writer::new(&mut room);
    encode(&mut w).unwrap();
    w.written().to_vec()
}

/// The private data of RFC 8797: 4096 octets each way.
const PRIVATE_DATA: [u8; 8] = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
const PROGRAM: u32 = 0x2000_0000;
