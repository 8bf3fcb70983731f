//! Callbacks of Linux's NFS server and the answers of Linux's client, as they were captured, replayed against our ends:
//! our client takes what the server wrote, and our server takes what the client wrote. What our engines write in the
//! other's place is the same, octet for octet; our cores write the same but for what is theirs to choose.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io;
use std::net::Ipv4Addr;
use std::sync::mpsc::{Sender, channel};

use haulage::core::{ConnectOptions, Core, Cx, Service};
use haulage::cores::{self, CoreThread, Placement};
use haulage::limits::{LIMITS_DEFAULT, Limits, Versions};
use haulage::polling::Polling;
use haulage::provider::iwarp::{Config as Nic, Iwarp};
use haulage::remote::RemoteClient;
use haulage::service::{
    AUTH_SYS, Binding, Call, Finished, Outcome, Procedure, Program, Reply, Request,
};
use haulage::sys::clock;
use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_proto::negotiate::{
    Class, Config, Connection, Engine, Event, Input, Output, Received, Remembered,
};
use haulage_proto::rpc::{AcceptStat, AuthSys, CallHeader, Credential, ReplyHeader};
use haulage_proto::time::Instant;
use haulage_proto::v1;
use haulage_proto::v1::connection::{CallLimits, Reverse};
use haulage_proto::v1::header::{CallLists, Form, Message, ReplyLists, encode_call, encode_reply};
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::host_auth::Policy;
use haulage_proto::xdr::{Truncated, Writer};
use haulage_test_support::hex::vectors;
use haulage_tests::callback::{self, Callbacks, Compound, Manner, PROGRAM, Slots, Told, VERSION};
use haulage_tests::link::{Link, PATIENCE};

/// Returns a captured message.
fn captured(name: &str) -> Vec<u8> {
    let files = [
        include_str!("../../proto/vectors/v1/rdma_msg.hex"),
        include_str!("../../proto/vectors/v1/reverse.hex"),
    ];
    let mut all = files.into_iter().flat_map(vectors);
    all.find(|(of, _)| of == name).unwrap_or_else(|| panic!("no vector {name}")).1
}

/// Our end of a connection, in the place of one of Linux's.
struct End(Connection);

impl End {
    /// Makes an end that is up. It has Receives for `receives` messages, asks for `wanted` credits and grants `granted`.
    fn new(role: Role, [receives, wanted, granted]: [u32; 3]) -> Self {
        let one = v1::connection::Config {
            role,
            credits_wanted: wanted,
            credits_max: granted,
            calls: CallLimits { read_chunks_max: 1, write_chunks_max: 1, segments_max: 16 },
            reverse: Reverse::Inline,
            profile: None,
        };
        let config = Config { one: Some(one), two: None, auth: Policy::Off };
        let mut end = Self(Connection::new(config, Remembered::Nothing).unwrap());
        end.0.reserve(receives - end.0.reserved());
        end.0.handle(Instant::ZERO, Input::Established);
        assert!(matches!(end.outputs()[..], [Output::Event(Event::Ready(_))]));
        end
    }

    /// Takes a message that Linux wrote. Returns its RPC message.
    fn takes(&mut self, message: &[u8], expected: Event) -> Vec<u8> {
        let received = self.0.decode(message);
        self.0.handle(Instant::ZERO, Input::Received(&received));
        self.0.reserve(1);
        assert_eq!(self.outputs(), [Output::Event(expected)]);
        if expected == Event::Reply {
            self.0.ended();
        }
        let Received::One(Ok(Message::Msg(rpc))) = received else { panic!("{received:?}") };
        rpc.payload.to_vec()
    }

    /// Writes a message, for which there is credit.
    fn writes(
        &mut self,
        (class, xid): (Class, u32),
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Vec<u8> {
        let credit = self.0.try_send(class).unwrap();
        let mut room = [0; 1024];
        let mut w = Writer::new(&mut room);
        let headed = match class {
            Class::Call => encode_call(&mut w, xid, credit, Form::Msg, &CallLists::default()),
            Class::Reply => encode_reply(&mut w, xid, credit, Form::Msg, &ReplyLists::default()),
        };
        headed.and_then(|()| encode(&mut w)).unwrap();
        w.written().to_vec()
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.0.poll()).collect()
    }
}

/// Makes our client, which has made its first Call as Linux's client makes it and heard what Linux's server answers.
fn client() -> End {
    let mut end = End::new(Role::Client, [64, 128, 16]);
    let header = CallHeader::new(FORWARD, NFS, 3, 0);
    let call = end.writes((Class::Call, FORWARD), |w| header.encode(w));
    assert_eq!(call, captured("null_call"));
    end.takes(&captured("null_reply"), Event::Reply);
    end
}

/// Makes our server, which has answered the first Call of Linux's client as Linux's server answers it.
fn server() -> End {
    // For 64 Calls, and for the Replies to two.
    let mut end = End::new(Role::Server, [66, 2, 64]);
    end.takes(&captured("null_call"), Event::Call);
    let header = ReplyHeader::accepted(FORWARD, AcceptStat::Success);
    let reply = end.writes((Class::Reply, FORWARD), |w| header.encode(w));
    assert_eq!(reply, captured("null_reply"));
    end
}

#[test]
fn our_client_answers_the_callbacks_of_linux_as_linux_does() {
    let (mut client, mut slots) = (client(), Slots::new(16));
    for (name, xid) in CALLBACKS {
        let payload = client.takes(&captured(&format!("{name}_call")), Event::Call);
        let (header, at) = CallHeader::decode(&payload).unwrap();
        let asked = [header.program, header.version, header.procedure];
        assert_eq!((header.xid, asked), (xid, [PROGRAM, VERSION, 1]));
        assert_eq!(header.credential, Credential::Sys(AuthSys::new(0, b"(none)", 0, 0)));
        let compound = Compound::decode(&payload[at..]).unwrap();
        slots.take(&compound).unwrap();
        let reply = client.writes((Class::Reply, xid), |w| {
            ReplyHeader::accepted(xid, AcceptStat::Success).encode(w)?;
            slots.encode_results(&compound, w)
        });
        assert_eq!(reply, captured(&format!("{name}_reply")));
    }
}

#[test]
fn our_server_hears_what_linux_answers_to_its_callbacks() {
    let mut server = server();
    assert_eq!(server.0.try_send(Class::Call), None, "nothing says that the client serves Calls");
    let Engine::One(one) = server.0.engine_mut() else { panic!("another version") };
    one.announce();
    // Nobody knows how many credits the client grants before it has answered.
    for ((name, xid), more) in CALLBACKS.into_iter().zip([false, true]) {
        let call = captured(&format!("{name}_call"));
        // The arguments are the NFS server's matter.
        let arguments = call.get(HEADERS_LEN..).unwrap();
        let credential = Credential::Sys(AuthSys::new(0, b"(none)", 0, 0));
        let header = CallHeader { credential, ..CallHeader::new(xid, PROGRAM, VERSION, 1) };
        let written = server.writes((Class::Call, xid), |w| {
            header.encode(w)?;
            w.put(arguments)
        });
        assert_eq!(written, call);
        assert_eq!(server.0.may_send(Class::Call), more);
        let payload = server.takes(&captured(&format!("{name}_reply")), Event::Reply);
        let (header, at) = ReplyHeader::decode(&payload).unwrap();
        assert_eq!(header, ReplyHeader::accepted(xid, AcceptStat::Success));
        assert_eq!(payload[at..][..8], [0; 8], "the callback succeeded, without a tag");
    }
    // The client grants 16 credits; the server has asked for two.
    let left = std::iter::from_fn(|| server.0.try_send(Class::Call));
    assert_eq!(left.collect::<Vec<_>>(), [2, 2]);
}

/// Makes our core the client of a server that writes what Linux's wrote.
#[test]
fn our_core_answers_the_callbacks_of_linux() {
    let (mut link, at) = Link::listen_at((Ipv4Addr::LOCALHOST, 0).into(), &Nic::default()).unwrap();
    let (tell, told) = channel();
    let mut client = core("client", Callbacks::new(Manner::Answers, 16, tell), move |core| {
        let null = Binding { program: NFS, version: 3, procedures: vec![Procedure::new("NULL")] };
        let options = ConnectOptions::new(null).serving(vec![callback::program()]);
        let connection = core.connect(clock::now(), at, options).unwrap();
        RemoteClient::of(core, connection).unwrap()
    });
    link.accept(PATIENCE).unwrap();
    is_answered(&mut client.started, &mut link);
    for (name, xid) in CALLBACKS {
        link.send(&captured(&format!("{name}_call"))).unwrap();
        let reply = heard(&mut link);
        assert_eq!(reply, captured(&format!("{name}_reply")), "{xid:#x}");
        let Ok(Told::Compound(AUTH_SYS, _)) = told.recv() else { panic!("{name}") };
    }
    // Linux's server does not send CB_NULL in version 4.1. What the program does not have is refused.
    for (procedure, stat) in [(0, AcceptStat::Success), (7, AcceptStat::ProcUnavail)] {
        let mut headers = captured("recall_call")[..HEADERS_LEN].to_vec();
        headers[PROCEDURE_AT..][..4].copy_from_slice(&u32::to_be_bytes(procedure));
        link.send(&headers).unwrap();
        let reply = heard(&mut link);
        let (header, at) = ReplyHeader::decode(&reply[HEADER_LEN..]).unwrap();
        assert_eq!(header, ReplyHeader::accepted(xid_of(&headers), stat));
        assert_eq!(reply.len(), HEADER_LEN + at);
    }
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [Told::Null]);
    is_answered(&mut client.started, &mut link);
    client.stop().unwrap();
}

/// Has our client make a Call, and answers it.
fn is_answered(client: &mut RemoteClient, link: &mut Link) {
    client.begin(NULL, |_| Ok(())).unwrap();
    let call = heard(link);
    link.send(&with_xid(xid_of(&call), captured("null_reply"))).unwrap();
    client.ended().unwrap().1.unwrap();
}

/// Makes our core the server of a client that writes what Linux's wrote.
#[test]
fn our_core_hears_what_linux_answers() {
    let (tell, told) = channel();
    let server = core("server", Recaller { callbacks: CALLBACKS.into_iter(), tell }, |core| {
        core.listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap()
    });
    let (mut link, _) = Link::connect(server.started, &Nic::default(), b"", 1).unwrap();
    for (name, _) in CALLBACKS {
        // Each Call of the client has the server call the client.
        link.send(&captured("null_call")).unwrap();
        let mut came = [heard(&mut link), heard(&mut link)];
        // A Call and a Reply, which leave in any order.
        came.sort_by_key(|message| message[HEADER_LEN + 7]);
        let [call, reply] = came;
        assert_eq!(reply[HEADER_LEN..], captured("null_reply")[HEADER_LEN..]);
        let (header, at) = CallHeader::decode(&call[HEADER_LEN..]).unwrap();
        let asked = [header.program, header.version, header.procedure];
        assert_eq!((header.xid, asked), (xid_of(&call), [PROGRAM, VERSION, 1]));
        assert_eq!(call[HEADER_LEN + at..], arguments(name));
        let answer = captured(&format!("{name}_reply"));
        link.send(&with_xid(header.xid, answer.clone())).unwrap();
        assert_eq!(told.recv().unwrap(), answer[HEADER_LEN + ReplyHeader::SUCCESS_LEN..]);
    }
    link.close().unwrap();
    server.stop().unwrap();
}

/// A server that answers each Call, and calls its client back: with the captured callbacks of Linux's server, in their
/// order.
struct Recaller {
    callbacks: std::array::IntoIter<(&'static str, u32), 2>,
    tell: Sender<Vec<u8>>,
}

impl Service for Recaller {
    fn programs(&self) -> Vec<Program> {
        let procedures = vec![Procedure::new("NULL")];
        vec![Program::new(Binding { program: NFS, version: 3, procedures })]
    }

    fn callbacks(&self) -> Option<Binding> {
        Some(callback::binding())
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, _: &mut Reply) -> Outcome {
        let (name, _) = self.callbacks.next().unwrap();
        let request = Request { procedure: 1, ..NULL };
        let called = cx.call(call.connection, request, 0, |w| w.put(arguments(name)));
        called.map_err(|(error, _)| error).unwrap();
        Outcome::Done
    }

    fn replied(&mut self, _: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        self.tell.send(finished.results.unwrap().rest().to_vec()).unwrap();
    }
}

/// Starts a core of version 1.
fn core<S: Service + Send + 'static, T: Send + 'static>(
    name: &str,
    service: S,
    begin: impl FnOnce(&mut Core<Iwarp, S>) -> T + Send + 'static,
) -> CoreThread<T> {
    let placement = Placement { name: name.to_owned(), cpu: None, polling: Polling::ADAPTIVE };
    let limits = Limits { versions: Versions::OnlyOne, connections_max: 1, ..LIMITS_DEFAULT };
    let limits = Limits { credits_max: 16, receives_max: 64, call_timeout: PATIENCE, ..limits };
    cores::start(placement, move || {
        let pool = PoolConfig { bytes: 8 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&pool).map_err(io::Error::other)?;
        let mut core = Core::new(Iwarp::new(&Nic::default())?, service, pool, limits, 1).unwrap();
        let begun = begin(&mut core);
        Ok::<_, io::Error>((core, begun))
    })
    .unwrap()
}

/// Waits for the next message.
fn heard(link: &mut Link) -> Vec<u8> {
    link.message(None).unwrap().unwrap()
}

/// Returns the arguments of a captured callback.
fn arguments(name: &str) -> Vec<u8> {
    captured(&format!("{name}_call")).split_off(HEADERS_LEN)
}

fn xid_of(message: &[u8]) -> u32 {
    u32::from_be_bytes(*message.first_chunk().unwrap())
}

/// Returns `message` with this XID in both headers.
fn with_xid(xid: u32, mut message: Vec<u8>) -> Vec<u8> {
    for at in [0, HEADER_LEN] {
        message[at..][..4].copy_from_slice(&xid.to_be_bytes());
    }
    message
}

/// The captured callbacks and their XIDs.
const CALLBACKS: [(&str, u32); 2] = [("recall_any", 0x26da_cdcd), ("recall", 0x27da_cdcd)];
/// The XID of the first Call of Linux's client.
const FORWARD: u32 = 0xea67_9f7d;
const NFS: u32 = 100_003;
/// A Call without arguments and results.
const NULL: Request = Request::new(0);
/// Octets of a transport header without chunks.
const HEADER_LEN: usize = 28;
/// The offset of the procedure of an RPC, behind a transport header without chunks.
const PROCEDURE_AT: usize = HEADER_LEN + 20;
/// Octets of the transport header and the RPC header of a callback.
const HEADERS_LEN: usize = HEADER_LEN + 68;
