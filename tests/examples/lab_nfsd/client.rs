//! A Requester of either version of RPC-over-RDMA, one Call at a time.

use std::net::SocketAddr;
use std::time::Duration;

use haulage::provider::iwarp::Config as ProviderConfig;
use haulage::sys::clock;
use haulage_mr_pool::Local;
use haulage_proto::negotiate::{
    Class, Config, Connection, Event, Input, Output, Received, Remembered, Version,
};
use haulage_proto::rpc::{AcceptStat, AuthSys, CallHeader, Credential, ReplyBody, ReplyHeader};
use haulage_proto::v1;
use haulage_proto::v1::connection::{CallLimits, Reverse};
use haulage_proto::v1::header::{CallLists, Form, Message};
use haulage_proto::v1::private_data::{Agreement, PrivateData};
use haulage_proto::v2;
use haulage_proto::v2::connection::{ChunkLimits, Role};
use haulage_proto::v2::host_auth::Policy;
use haulage_proto::v2::properties::Properties;
use haulage_proto::verbs::{Access, Handle, Segment};
use haulage_proto::xdr::Writer;
use haulage_tests::link::{Link, MESSAGE};

use super::{Outcome, nfs};

/// The versions that a client supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speak {
    /// Version 1 alone.
    One,
    /// Both versions, beginning with version 2.
    TwoThenOne,
}

/// A Requester with one connection.
#[derive(Debug)]
pub(crate) struct Client {
    link: Link,
    connection: Connection,
    ready: bool,
    xid: u32,
    exposed: u32,
}

/// The arguments of a Call, and its chunks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// The procedure of NFS version 3.
    pub(crate) procedure: u32,
    /// The arguments, without the contents of the Read chunk.
    pub(crate) arguments: &'a [u8],
    /// The contents of the Read chunk: the last argument, an opaque whose length ends `arguments`.
    pub(crate) read: Option<&'a [u8]>,
    /// Length of the Write chunk for the result.
    pub(crate) write: Option<usize>,
}

/// The results of a Call.
#[derive(Debug)]
pub(crate) struct Reply {
    /// The results in the message.
    pub(crate) results: Vec<u8>,
    /// The contents of the Write chunk, as long as the server returned it.
    pub(crate) written: Option<Vec<u8>>,
}

impl Client {
    /// Connects, and waits until Calls may be made.
    pub(crate) fn connect(to: SocketAddr, config: &ProviderConfig, speak: Speak) -> Outcome<Self> {
        let size = u32::try_from(MESSAGE).map_err(|_| "the message size")?;
        let ours = PrivateData { invalidation: true, send_size: size, receive_size: size };
        let mut room = [0; PrivateData::WIRE_LEN];
        ours.encode(&mut Writer::new(&mut room)).map_err(|e| e.to_string())?;
        let (link, theirs) = Link::connect(to, config, &room, READS)?;
        let theirs = PrivateData::find(&theirs).ok_or("the server sent no private data")?;
        let agreed = Agreement::new(Some(ours), Some(theirs));
        if (agreed.client_to_server, agreed.server_to_client) != (size, size) {
            return Err(format!("agreed on {agreed:?}"));
        }
        let connection = Connection::new(versions(speak), Remembered::Nothing)
            .map_err(|_| "no version to speak")?;
        let mut client = Self { link, connection, ready: false, xid: 0x4c61_6200, exposed: 0 };
        let begun_with = client.connection.reserved();
        client.connection.reserve(Link::receives().saturating_sub(begun_with));
        client.connection.handle(clock::now(), Input::Established);
        client.carry_out()?;
        while !client.ready {
            client.hear()?;
        }
        Ok(client)
    }

    /// Calls the NULL procedure.
    pub(crate) fn null(&mut self) -> Outcome<()> {
        let reply = self.call(&Call { procedure: 0, arguments: &[], read: None, write: None })?;
        if reply.results.is_empty() { Ok(()) } else { Err("NULL has results".to_owned()) }
    }

    /// Makes a Call, and waits for its Reply.
    pub(crate) fn call(&mut self, call: &Call<'_>) -> Outcome<Reply> {
        self.xid += 1;
        let xid = self.xid;
        let read = match call.read {
            Some(bytes) => Some(self.expose(bytes, bytes.len(), Access::RemoteRead)?),
            None => None,
        };
        let write = match call.write {
            // As in Linux, the chunk has room for padding, which stays unused.
            Some(length) => {
                Some(self.expose(&[], length.next_multiple_of(4), Access::RemoteWrite)?)
            }
            None => None,
        };
        let mut room = [0; MESSAGE];
        let length = self.encode(xid, call, read, write, &mut room)?;
        self.link.send(room.get(..length).unwrap_or_default())?;
        let (results, written) = loop {
            if let Some(message) = self.hear()?
                && let Some(reply) = reply_of(xid, &message)?
            {
                break reply;
            }
        };
        if let Some(read) = read {
            self.link.retire(read.handle)?;
        }
        let written = match write {
            Some(write) => Some(self.take(write.handle, written)?),
            None => None,
        };
        Ok(Reply { results, written })
    }

    /// Returns the version in use, once it is known.
    pub(crate) fn version(&self) -> Option<Version> {
        self.connection.version()
    }

    /// Returns the number of times that memory was exposed.
    pub(crate) const fn exposed(&self) -> u32 {
        self.exposed
    }

    /// Returns the number of handles that the server invalidated.
    pub(crate) const fn remote(&self) -> u32 {
        self.link.invalidations()
    }

    /// Closes the connection.
    pub(crate) fn close(self) -> Outcome<()> {
        self.link.close().map_err(String::from)
    }

    fn expose(&mut self, bytes: &[u8], length: usize, access: Access) -> Outcome<Segment> {
        self.exposed += 1;
        Ok(self.link.expose(bytes, length, access)?)
    }

    fn take(&mut self, handle: Handle, written: usize) -> Outcome<Vec<u8>> {
        let lease: Local = self.link.retire(handle)?;
        let bytes = lease.bytes().get(..written).ok_or("more written than there was room for")?;
        Ok(bytes.to_vec())
    }

    fn encode(
        &mut self,
        xid: u32,
        call: &Call<'_>,
        read: Option<Segment>,
        write: Option<Segment>,
        room: &mut [u8],
    ) -> Outcome<usize> {
        let mut rpc = [0; MESSAGE];
        let mut w = Writer::new(&mut rpc);
        let root = Credential::Sys(AuthSys::new(0, b"lab", 0, 0));
        let header = CallHeader {
            credential: root,
            ..CallHeader::new(xid, nfs::PROGRAM, nfs::VERSION, call.procedure)
        };
        let encoded = header.encode(&mut w).and_then(|()| w.put(call.arguments));
        encoded.map_err(|e| e.to_string())?;
        let position = u32::try_from(w.position()).map_err(|_| "the position")?;

        let credit = self.connection.try_send(Class::Call).ok_or("no credit to call")?;
        let (read, write) = (read.as_slice(), write.as_slice());
        let (reads, writes) = ([(position, read)], [write]);
        let lists = CallLists {
            reads: if read.is_empty() { &[] } else { &reads },
            writes: if write.is_empty() { &[] } else { &writes },
            reply: None,
        };
        let mut message = Writer::new(room);
        v1::header::encode_call(&mut message, xid, credit, Form::Msg, &lists)
            .and_then(|()| message.put(w.written()))
            .map_err(|e| e.to_string())?;
        Ok(message.position())
    }

    /// Waits for a message or a deadline. Returns the message if it was a Reply.
    fn hear(&mut self) -> Outcome<Option<Vec<u8>>> {
        let deadline = self.connection.poll_deadline();
        let Some(message) = self.link.message(deadline)? else {
            self.connection.handle(clock::now(), Input::Deadline);
            self.carry_out()?;
            return Ok(None);
        };
        let received = self.connection.decode(&message);
        self.connection.handle(clock::now(), Input::Received(&received));
        // The link has already posted the Receive again.
        self.connection.reserve(1);
        let is_reply = self.carry_out()?;
        Ok(is_reply.then_some(message))
    }

    /// Carries out the connection's outputs. Returns whether a Reply came.
    fn carry_out(&mut self) -> Outcome<bool> {
        let mut replied = false;
        while let Some(output) = self.connection.poll() {
            match output {
                Output::Post(control) => {
                    let mut room = [0; MESSAGE];
                    let mut w = Writer::new(&mut room);
                    self.connection.encode(&control, &mut w).map_err(|e| e.to_string())?;
                    self.link.send(w.written())?;
                }
                Output::Event(Event::Ready(_)) => self.ready = true,
                Output::Event(Event::Reply) => {
                    self.connection.ended();
                    replied = true;
                }
                Output::Event(event) => return Err(format!("unexpected: {event:?}")),
                Output::Close(reason) => return Err(reason.to_string()),
            }
        }
        Ok(replied)
    }
}

/// Returns the results of the Reply to `xid` in `message`, and the number of octets written.
fn reply_of(xid: u32, message: &[u8]) -> Outcome<Option<(Vec<u8>, usize)>> {
    let Received::One(Ok(Message::Msg(rpc))) = Received::One(v1::header::decode(message)) else {
        return Err("not an RDMA_MSG".to_owned());
    };
    if rpc.prefix.xid != xid {
        return Ok(None);
    }
    let (header, at) =
        ReplyHeader::decode(rpc.payload).map_err(|fault| format!("bad RPC Reply: {fault:?}"))?;
    if header.body != ReplyBody::Accepted(AcceptStat::Success) {
        return Err(format!("the server says {:?}", header.body));
    }
    let written = rpc.writes.chunks().flat_map(|chunk| chunk.segments());
    let written: u32 = written.map(|segment| segment.length).sum();
    Ok(Some((rpc.payload.get(at..).unwrap_or_default().to_vec(), written as usize)))
}

fn versions(speak: Speak) -> Config {
    let one = v1::connection::Config {
        role: Role::Client,
        credits_wanted: 8,
        credits_max: 8,
        calls: CallLimits { read_chunks_max: 0, write_chunks_max: 0, segments_max: 0 },
        reverse: Reverse::None,
        profile: None,
    };
    let two = v2::connection::Config {
        role: Role::Client,
        properties: Properties::default(),
        first_xid: 0x4c61_6232,
        chunks: ChunkLimits { read_chunks_max: 0, write_chunks_max: 0, segments_max: 0 },
        continued_call_max: 0,
        continued_reply_max: 0,
        shares_credits: false,
        continues_replies: false,
        setup_timeout: Duration::from_secs(10),
    };
    Config { one: Some(one), two: (speak == Speak::TwoThenOne).then_some(two), auth: Policy::Off }
}

/// Maximum number of Reads served at once.
const READS: u32 = 16;
