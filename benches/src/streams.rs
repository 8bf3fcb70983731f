//! A server core, and a client of it over TCP, on one thread.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use haulage::core::{Core, Service, TcpLimits};
use haulage::pool::{PagePreference, Pool};
use haulage::proto::rpc::record::Mark;
use haulage::proto::rpc::{AcceptStat, CallHeader, ReplyHeader};
use haulage::proto::time::Instant;
use haulage::proto::xdr::Writer;
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::provider::{Provider, Waker};
use haulage::sys::clock;

use crate::world::{Asked, LIMITS, loopback, memory, user};

/// A server core that runs the service `S`, and a client that sends it records over TCP, as a Linux NFS client does.
#[derive(Debug)]
pub struct StreamWorld<S> {
    server: Core<Iwarp, S>,
    client: TcpStream,
    /// The program that the client calls, and its version.
    program: (u32, u32),
    /// Octets that were received and not looked at.
    received: Vec<u8>,
}

impl<S: Service> StreamWorld<S> {
    /// Builds a server with the service that `make` builds, and connects a client to it.
    ///
    /// # Panics
    ///
    /// If there is too little memory, or there are no sockets.
    pub fn serving(make: impl FnOnce(&Pool, &Waker) -> S) -> Self {
        let provider = Iwarp::new(&Config::default()).expect("the iwarp provider works");
        let pool = memory(PagePreference::Best);
        let service = make(&pool, &provider.waker());
        let served = service.programs();
        let binding = served.first().expect("a program to call").binding();
        let program = (binding.program, binding.version);
        let mut server = Core::new(provider, service, pool, LIMITS, 1).expect("room enough");
        let at =
            server.listen_tcp(loopback(), TcpLimits::DEFAULT).expect("an address that is free");
        let client = TcpStream::connect(at).expect("a server that listens");
        client.set_nonblocking(true).expect("a socket");
        Self { server, client, program, received: Vec::new() }
    }

    /// Makes `depth` Calls at a time, and as many more once these are answered, `count` in all.
    ///
    /// # Panics
    ///
    /// If the server refuses a Call, or closes the connection.
    pub fn batch(&mut self, asked: &Asked, depth: u64, count: u64) {
        let mut made = 0;
        while made < count {
            let calls = depth.min(count - made);
            let records: Vec<u8> =
                (made..made + calls).flat_map(|at| self.call(asked, at)).collect();
            made += calls;
            // So few and short Calls have room in the buffers of any system.
            self.client.write_all(&records).expect("room for the Calls");
            let now = clock::now();
            for _ in 0..calls {
                self.reply(now);
            }
        }
    }

    /// Returns the record of Call number `at`.
    fn call(&self, asked: &Asked, at: u64) -> Vec<u8> {
        let (program, version) = self.program;
        let xid = u32::try_from(at).unwrap_or(u32::MAX);
        let identity = user();
        let header = CallHeader {
            credential: identity.credential(),
            ..CallHeader::new(xid, program, version, asked.procedure)
        };
        let mut room = vec![0; CALL_MAX];
        let mut w = Writer::new(&mut room);
        let encoded = header.encode(&mut w).and_then(|()| w.put(asked.arguments_of(at)));
        encoded.expect("room for a Call");
        let call = w.written();
        let mark = u32::try_from(call.len()).ok().and_then(Mark::last).expect("a short record");
        [&mark.encode()[..], call].concat()
    }

    /// Turns the server until the next Reply has come.
    fn reply(&mut self, now: Instant) {
        loop {
            if let Some(record) = self.record() {
                let (header, _) = ReplyHeader::decode(&record).expect("a Reply");
                let success = ReplyHeader::accepted(header.xid, AcceptStat::Success);
                assert_eq!(header, success, "the server refuses the Call");
                return;
            }
            if !self.receive() {
                self.serve(now);
            }
        }
    }

    /// Takes the first record that has come whole.
    fn record(&mut self) -> Option<Vec<u8>> {
        let mark = Mark::decode(*self.received.first_chunk()?);
        let end = Mark::WIRE_LEN + mark.length() as usize;
        let record = self.received.get(Mark::WIRE_LEN..end)?.to_vec();
        self.received.drain(..end);
        Some(record)
    }

    /// Receives what has come; returns whether that is anything.
    fn receive(&mut self) -> bool {
        let mut room = [0; 1 << 16];
        match self.client.read(&mut room) {
            Ok(0) => panic!("the server closed the connection"),
            Ok(count) => {
                self.received.extend_from_slice(&room[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Turns the server. It is a function of its own, so that `benches/counts` can count its instructions.
    #[inline(never)]
    fn serve(&mut self, now: Instant) -> bool {
        self.server.turn(now)
    }
}

/// Octets of the longest Call.
const CALL_MAX: usize = 512;
