//! The `verbs` provider on a device of this machine.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use haulage::provider::verbs::{Config, Group, Verbs};
use haulage::provider::{Provider, Waker};
use haulage::sys::wake;
use haulage_mr_pool::{PagePreference, Pool};
use haulage_proto::time::Instant;

use super::{Expect, Network, RealTime, memory};

/// An RDMA device that is connected to itself.
#[derive(Debug)]
pub struct Rnic {
    at: IpAddr,
    choices: Config,
    domains: Domains,
    time: RealTime,
    /// A waker that is never signaled.
    nobody: Waker,
    silent: Vec<Verbs>,
}

/// The protection domains of the providers of a test.
#[derive(Debug)]
enum Domains {
    /// Each has its own.
    Apart,
    /// All are in the domain of the first provider. There is none before that provider was made.
    Shared(Option<Group>),
}

impl Rnic {
    /// Returns the device with the address in `HAULAGE_VERBS_AT`, used with `choices` except for queue sizes. Prints
    /// that the test is skipped if there is none.
    pub fn find(choices: Config) -> Option<Self> {
        let named = std::env::var(ADDRESS).ok();
        let Some(at) = named.and_then(|named| named.parse().ok()) else {
            eprintln!("skipped: {ADDRESS} names no address of an RDMA device");
            return None;
        };
        let nobody = Waker::new().expect("a descriptor");
        let (domains, time) = (Domains::Apart, RealTime::default());
        Some(Self { at, choices, domains, time, nobody, silent: Vec::new() })
    }

    /// Like `find`, but makes a device use `ibv_post_send` that could post in a faster way. Prints that the test is
    /// skipped if the device has no other way.
    pub fn find_posting_lists() -> Option<Self> {
        let mut rnic = Self::find(Config::default())?;
        if rnic.provider().caps().posting == Some("ibv_post_send") {
            eprintln!("skipped: nothing is posted otherwise on this device");
            return None;
        }
        rnic.choices.extended_posting = false;
        Some(rnic)
    }

    /// Like `find`, but all providers of a test are in one protection domain. Prints that the test is skipped if the
    /// device has no memory windows.
    pub fn find_grouped() -> Option<Self> {
        let mut rnic = Self::find(Config::default())?;
        if rnic.provider().group().is_none() {
            eprintln!("skipped: without memory windows no domain is shared");
            return None;
        }
        rnic.domains = Domains::Shared(None);
        Some(rnic)
    }

    fn provider(&mut self) -> Verbs {
        let config = Config {
            connections_max: 64,
            send_queue_max: 64,
            receive_queue_max: 64,
            registrations_max: 64,
            // Line 16 of the contract requires endless retries.
            retries_no_receive: 7,
            ..self.choices.clone()
        };
        let provider = match &self.domains {
            Domains::Shared(Some(group)) => Verbs::join(&config, group),
            Domains::Apart | Domains::Shared(None) => Verbs::new(&config),
        };
        let provider = provider.expect("a device, as the variable says");
        if let Domains::Shared(group) = &mut self.domains {
            *group = provider.group();
        }
        provider
    }
}

impl Network for Rnic {
    type Provider = Verbs;

    fn join(&mut self) -> (Verbs, Pool, SocketAddr) {
        let (mut provider, pool) = (self.provider(), memory(PagePreference::Small));
        provider.register(&pool).expect("memory that may be locked");
        (provider, pool, SocketAddr::new(self.at, 0))
    }

    fn now(&self) -> Instant {
        self.time.now()
    }

    fn wait(&mut self, moved: bool, _: Option<Instant>) -> Expect {
        if !moved {
            // Soft devices run on the same CPUs, and get their turn only when this thread sleeps.
            wake::wait(&self.nobody, PACE);
        }
        self.time.wait(moved)
    }

    fn skip(&mut self, then: Instant) {
        self.time.skip(then);
    }

    fn serves_unpolled(&self) -> bool {
        true
    }

    fn nobody(&mut self) -> SocketAddr {
        let (mut provider, _, at) = self.join();
        provider.listen(at).expect("a free port").1 // and free again
    }

    fn silent(&mut self) -> SocketAddr {
        let (mut provider, _, at) = self.join();
        let (_, at) = provider.listen(at).expect("a free port");
        self.silent.push(provider);
        at
    }

    /// Sends octets that are no handshake to the ports of RoCE and iWARP.
    fn babble(&mut self, to: SocketAddr) {
        let socket = UdpSocket::bind(SocketAddr::new(self.at, 0)).expect("a free port");
        socket.send_to(b"GET / HTTP/1.1\r\n\r\n", (to.ip(), ROCE)).expect("room for a line");
        // Only an iWARP device listens on TCP.
        if let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_secs(1)) {
            let _ = std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\n\r\n");
        }
    }
}

/// The variable that names the device's address.
const ADDRESS: &str = "HAULAGE_VERBS_AT";
const PACE: Duration = Duration::from_micros(200);
/// The UDP port of RoCE version 2.
const ROCE: u16 = 4791;
