//! A client offers memory for the result of a Call, and the server places the result there.
//!
//! The ends first exchange their properties. Then the client sends a Call with a Write chunk, and the server answers with
//! a Reply whose data is in that chunk. Both ends are in memory: a message is a `Vec<u8>`, and the RDMA Write is a copy.
#![forbid(unsafe_code)]

use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::{Config, Connection, Event, Input, Output, Role};
use haulage_proto::v2::credit::Class;
use haulage_proto::v2::header::{
    CallLists, Message, Returned, decode_transport, encode_call_inline, encode_reply_inline,
};
use haulage_proto::verbs::{Handle, Segment};
use haulage_proto::xdr::{Truncated, Writer};

/// Returns the octets that `encode` writes.
fn message(encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut buffer = [0; 1024];
    let mut writer = Writer::new(&mut buffer);
    encode(&mut writer).expect("the message fits the inline threshold");
    writer.written().to_vec()
}

/// Tells a connection what happened, and carries out what it asks for: returns the control messages to send and the
/// events.
fn handle(connection: &mut Connection, input: Input<'_>) -> (Vec<Vec<u8>>, Vec<Event>) {
    let (mut messages, mut events) = (Vec::new(), Vec::new());
    connection.handle(Instant::ZERO, input);
    while let Some(output) = connection.poll() {
        match output {
            Output::Post(control) => messages.push(message(|w| connection.encode(&control, w))),
            Output::Event(event) => events.push(event),
            Output::Close(reason) => panic!("{reason}"),
        }
    }
    (messages, events)
}

fn main() {
    // Setup: the client sends its properties first, and the server answers with its own.
    let [mut client, mut server] = [Role::Client, Role::Server].map(|role| {
        let mut connection = Connection::new(Config::new(role, 7));
        connection.reserve(8); // as many Receives as the caller has posted
        connection
    });
    handle(&mut server, Input::Established);
    let (sent, _) = handle(&mut client, Input::Established);
    let (answered, events) = handle(&mut server, Input::Received(&decode_transport(&sent[0])));
    assert!(matches!(events[..], [Event::Ready(_)]));
    let (_, events) = handle(&mut client, Input::Received(&decode_transport(&answered[0])));
    assert!(matches!(events[..], [Event::Ready(_)]));

    // The client calls procedure 1 of program 0x2000_0000, and offers its memory for the result.
    let mut memory = [0; 4096];
    let segment = Segment { handle: Handle(0x51), length: 4096, offset: 0 };
    let credit = client.try_send(Class::Call).expect("the server granted credits");
    let call = message(|w| {
        let lists =
            CallLists { inv_handle: segment.handle, writes: &[&[segment]], ..CallLists::default() };
        encode_call_inline(w, 42, credit, &lists)?;
        CallHeader::new(42, 0x2000_0000, 1, 1).encode(w)
    });

    // The server takes the Call, writes the result into the chunk and replies.
    let received = decode_transport(&call);
    let (_, events) = handle(&mut server, Input::Received(&received));
    assert_eq!(events, [Event::Call]);
    let Ok(Message::CallInline(call)) = received else { panic!("not a Call in Simple format") };
    let (header, _) = CallHeader::decode(call.payload).expect("an RPC Call");
    assert_eq!((header.xid, header.procedure), (42, 1));
    let offered: Vec<_> =
        call.writes.chunks().next().expect("one Write chunk").segments().collect();
    assert_eq!(offered, [segment]);
    let result = b"the result";
    memory[..result.len()].copy_from_slice(result); // stands for an RDMA Write
    let credit = server.try_send(Class::Reply).expect("the client granted credits");
    let reply = message(|w| {
        let returned = Returned { offered: &offered, length: result.len() };
        encode_reply_inline(w, header.xid, credit, &[returned])?;
        ReplyHeader::accepted(header.xid, AcceptStat::Success).encode(w)?;
        w.u32(10) // the length of the reduced opaque stays in the Payload stream
    });

    // The client takes the Reply and finds the data in its memory.
    let received = decode_transport(&reply);
    let (_, events) = handle(&mut client, Input::Received(&received));
    assert_eq!(events, [Event::Reply]);
    let Ok(Message::ReplyInline(reply)) = received else { panic!("not a Reply in Simple format") };
    let (header, results_at) = ReplyHeader::decode(reply.payload).expect("an RPC Reply");
    assert_eq!(header, ReplyHeader::accepted(42, AcceptStat::Success));
    // Nothing in a Reply is believed: the chunk must be the one that was offered, cut to the octets written.
    let written = reply.writes.chunks().next().and_then(|chunk| chunk.segments().next());
    assert_eq!(written, Some(Segment { length: 10, ..segment }));
    let mut results = PayloadReader::reply(reply.payload, results_at, written.map(|s| s.length));
    assert_eq!(results.eligible_opaque(4096), Ok(Item::Reduced { length: 10 }));
    // Over RDMA, the memory is the client's again when the Receive has completed with the handle invalidated, or else
    // when a Local Invalidate of its own has.
    assert_eq!(&memory[..10], result);
}
