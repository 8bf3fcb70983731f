//! The `verbs` provider on a device of this machine.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use haulage::provider::verbs::{Config, Verbs};
use haulage::provider::{Provider, Waker};
use haulage::sys::wake;
use haulage_mr_pool::{PagePreference, Pool};
use haulage_proto::time::Instant;

use super::{Expect, Network, RealTime, memory};

/// An RDMA device and what it is connected to: itself.
#[derive(Debug)]
pub struct Rnic {
    at: IpAddr,
    choices: Config,
    time: RealTime,
    /// Never signaled.
    nobody: Waker,
    silent: Vec<Verbs>,
}

impl Rnic {
    /// Finds the device to test with: that of the address in `HAULAGE_VERBS_AT`. Says so if there is
    /// none. Sizes apart, it is used as `choices` say.
    pub fn find(choices: Config) -> Option<Self> {
        let named = std::env::var(ADDRESS).ok();
        let Some(at) = named.and_then(|named| named.parse().ok()) else {
            eprintln!("skipped: {ADDRESS} names no address of an RDMA device");
            return None;
        };
        let nobody = Waker::new().expect("a descriptor");
        Some(Self { at, choices, time: RealTime::default(), nobody, silent: Vec::new() })
    }

    /// Finds one that could do better than `ibv_post_send`, and has it do with that.
    pub fn find_posting_lists() -> Option<Self> {
        let mut rnic = Self::find(Config::default())?;
        if rnic.provider().caps().posting == Some("ibv_post_send") {
            eprintln!("skipped: nothing is posted otherwise on this device");
            return None;
        }
        rnic.choices.extended_posting = false;
        Some(rnic)
    }

    fn provider(&self) -> Verbs {
        let config = Config {
            connections_max: 64,
            send_queue_max: 64,
            receive_queue_max: 64,
            registrations_max: 64,
            // Line 16 of the contract, to the letter.
            retries_no_receive: 7,
            ..self.choices.clone()
        };
        Verbs::new(&config).expect("a device, as the variable says")
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
            // Soft devices work on the same processors, and after us.
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

    /// Sends what is no handshake to the ports that RoCE and iWARP have.
    fn babble(&mut self, to: SocketAddr) {
        let socket = UdpSocket::bind(SocketAddr::new(self.at, 0)).expect("a free port");
        socket.send_to(b"GET / HTTP/1.1\r\n\r\n", (to.ip(), ROCE)).expect("room for a line");
        // Only iWARP listens here.
        if let Ok(mut stream) = TcpStream::connect_timeout(&to, Duration::from_secs(1)) {
            let _ = std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\n\r\n");
        }
    }
}

/// The variable that names the device's address.
const ADDRESS: &str = "HAULAGE_VERBS_AT";
const PACE: Duration = Duration::from_micros(200);
/// RoCE version 2.
const ROCE: u16 = 4791;
