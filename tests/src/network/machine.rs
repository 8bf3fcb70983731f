//! The `shm` provider on this machine, with both ends in one process.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener, UnixStream};

use haulage::provider::shm::{Config, Expose, Shm};
use haulage_mr_pool::{PagePreference, Pool};
use haulage_proto::time::Instant;

use super::{Expect, Network, RealTime, memory};

/// This machine.
#[derive(Debug)]
pub struct OneMachine {
    ring_bytes: u32,
    time: RealTime,
    silent: Vec<UnixListener>,
    babbling: Vec<UnixStream>,
}

impl Default for OneMachine {
    fn default() -> Self {
        Self::with_rings(Config::default().ring_bytes)
    }
}

impl OneMachine {
    /// Makes a network whose providers send on rings of `ring_bytes` octets.
    pub fn with_rings(ring_bytes: u32) -> Self {
        Self { ring_bytes, time: RealTime::default(), silent: Vec::new(), babbling: Vec::new() }
    }
}

impl Network for OneMachine {
    type Provider = Shm;

    fn join(&mut self) -> (Shm, Pool, SocketAddr) {
        let config = Config {
            expose: Expose::Always,
            connections_max: 64,
            send_queue_max: 64,
            receive_queue_max: 64,
            registrations_max: 256,
            ring_bytes: self.ring_bytes,
            ..Config::default()
        };
        let pool = memory(PagePreference::Shared);
        (Shm::new(&config, &pool).expect("descriptors"), pool, loopback(0))
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
        // The provider gives out no such port.
        loopback(1)
    }

    fn silent(&mut self) -> SocketAddr {
        // A port that no other test process is likely to use; the provider gives out ports above
        // 49152.
        let process = std::process::id();
        for port in 2..49152 {
            let port = u16::try_from((process + port) % 49150 + 2).expect("a port");
            if let Ok(listener) = UnixListener::bind_addr(&name(port)) {
                self.silent.push(listener);
                return loopback(port);
            }
        }
        panic!("no port is free");
    }

    fn babble(&mut self, to: SocketAddr) {
        for words in [&b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"[..], b"haulshm2\0\0", b""] {
            let mut stream = UnixStream::connect_addr(&name(to.port())).expect("a listener");
            stream.write_all(words).expect("room for a line");
            if !words.starts_with(b"haul") {
                self.babbling.push(stream); // the others hang up
            }
        }
    }
}

fn name(port: u16) -> UnixAddr {
    UnixAddr::from_abstract_name(format!("haulage-shm-{port}")).expect("a short name")
}

fn loopback(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
