//! The toy provider: both ends in one thread, in virtual time.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use haulage::provider::toy::{Messages, Net, Toy};
use haulage::provider::{ConnectionParams, Provider};
use haulage_mr_pool::{PagePreference, Pool};
use haulage_proto::time::Instant;

use super::{Expect, Network, memory};

/// A network of toy providers.
#[derive(Debug)]
pub struct Hub {
    net: Rc<RefCell<Net>>,
    messages: Messages,
    now: Instant,
    idle_rounds: u32,
    bystanders: Vec<Toy>,
}

impl Hub {
    /// Makes an empty network, whose providers send messages in this way.
    pub fn new(messages: Messages) -> Self {
        let (net, bystanders) = (Rc::default(), Vec::new());
        Self { net, messages, now: Instant::ZERO, idle_rounds: 0, bystanders }
    }

    fn toy(&self) -> Toy {
        Toy::join(&self.net, self.messages).expect("a descriptor")
    }
}

impl Network for Hub {
    type Provider = Toy;

    fn join(&mut self) -> (Toy, Pool, SocketAddr) {
        (self.toy(), memory(PagePreference::Heap), at(0))
    }

    fn now(&self) -> Instant {
        self.now
    }

    fn wait(&mut self, moved: bool, next: Option<Instant>) -> Expect {
        self.idle_rounds = if moved { 0 } else { self.idle_rounds + 1 };
        // An end may report only a round later what happened in the other's poll.
        if self.idle_rounds <= 1 {
            return Expect::More;
        }
        self.idle_rounds = 0;
        let Some(next) = next else { return Expect::Stuck };
        self.skip(next);
        Expect::More
    }

    fn skip(&mut self, then: Instant) {
        self.now = self.now.max(then);
    }

    fn nobody(&mut self) -> SocketAddr {
        at(1)
    }

    fn silent(&mut self) -> SocketAddr {
        let mut provider = self.toy();
        let (_, listening) = provider.listen(at(0)).expect("a free port");
        self.bystanders.push(provider); // which is never polled
        listening
    }

    fn babble(&mut self, to: SocketAddr) {
        let params = ConnectionParams { private_data: b"", ord: 1, ird: 1 };
        // The peer is dropped before the other end is polled.
        self.toy().connect(self.now, to, &params).expect("a queue pair");
    }
}

fn at(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}
