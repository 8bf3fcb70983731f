//! The `iwarp` provider over loopback TCP, with real sockets.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use haulage::provider::iwarp::{Backend, Config, Iwarp};
use haulage_mr_pool::{PagePreference, Pool};
use haulage_proto::time::Instant;

use super::{Expect, Network, RealTime, memory};

/// The loopback interface of this machine.
#[derive(Debug)]
pub struct Loopback {
    backend: Backend,
    time: RealTime,
    silent: Vec<TcpListener>,
    babbling: Vec<TcpStream>,
}

impl Loopback {
    /// Makes a network whose providers use `backend`.
    pub fn new(backend: Backend) -> Self {
        Self { backend, time: RealTime::default(), silent: Vec::new(), babbling: Vec::new() }
    }
}

impl Network for Loopback {
    type Provider = Iwarp;

    fn join(&mut self) -> (Iwarp, Pool, SocketAddr) {
        let config = Config {
            backend: self.backend,
            connections_max: 64,
            send_queue_max: 64,
            receive_queue_max: 64,
            registrations_max: 256,
            ..Config::default()
        };
        (Iwarp::new(&config).expect("sockets"), memory(PagePreference::Heap), anywhere())
    }

    fn now(&self) -> Instant {
        self.time.now()
    }

    fn wait(&mut self, moved: bool, _: Option<Instant>) -> Expect {
        self.time.wait(moved)
    }

    fn skip(&mut self, then: Instant) {
        self.time.skip(then);
    }

    fn nobody(&mut self) -> SocketAddr {
        let listener = TcpListener::bind(anywhere()).expect("a free port");
        listener.local_addr().expect("bound above") // and free again
    }

    fn silent(&mut self) -> SocketAddr {
        let listener = TcpListener::bind(anywhere()).expect("a free port");
        let at = listener.local_addr().expect("bound above");
        self.silent.push(listener);
        at
    }

    fn babble(&mut self, to: SocketAddr) {
        for words in [&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], b"MPA ID Req", b""] {
            let mut stream = TcpStream::connect(to).expect("a listener");
            stream.write_all(words).expect("room for a line");
            if !words.starts_with(b"MPA") {
                self.babbling.push(stream); // the others hang up
            }
        }
    }
}

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}
