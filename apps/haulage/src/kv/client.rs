//! A blocking client of the key-value service.

use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use haulage::cores::{CoreThread, Placement};
use haulage::limits::{ITEM_MAX, Limits};
use haulage::polling::Polling;
use haulage::remote::RemoteClient;
use haulage::service::CallError;
use haulage_kv::client::many::CALLS_MOST;
use haulage_kv::client::{Client, ClientError, Fetched};
use haulage_kv::inline::{Lengths, inline_max_over};
use haulage_kv::protocol::{Key, Refusal};
use haulage_kv::service::binding;
use haulage_kv::stat::Stat;

use crate::calling::Callee;
use crate::cli::VersionOptions;
use crate::cli::bytes;
use crate::cli::values::{Provider, Switch};
use crate::failure::Failure;
use crate::hosts::ClientHosts;
use crate::node::{Carrier, NodeConfig, client_limits, over};
use crate::output::progress::Step;

/// A connection to a server, on a core of its own.
#[derive(Debug)]
pub struct KvClient {
    core: CoreThread<RemoteClient>,
    config: ClientConfig,
    lengths: Lengths,
    /// Octets of values that the core has memory for.
    room: usize,
}

/// The configuration of a client.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The server's address.
    pub to: SocketAddr,
    /// Timeout of connecting, and of each Call.
    pub timeout: Duration,
    /// Whether to ask for CRCs; `None` leaves it to the provider.
    pub crc: Option<Switch>,
    /// The CPU the client's core is pinned to, if any.
    pub cpu: Option<usize>,
    /// How the client's core waits for work.
    pub polling: Polling,
    /// The provider that carries the messages.
    pub provider: Provider,
    /// What the client speaks.
    pub versions: VersionOptions,
    /// How the ends prove which hosts they are, if they do.
    pub hosts: Option<Arc<ClientHosts>>,
}

impl KvClient {
    /// Starts a core with memory for `room` octets of values, and connects.
    pub fn connect(config: ClientConfig, room: usize) -> Result<Self, Failure> {
        let core = over!(config.provider, start, (config.clone(), room))?;
        let lengths = Lengths::new(inline_max_over(config.provider.name()));
        Ok(Self { core, config, lengths, room })
    }

    /// Connects again, with memory for `room` octets of values.
    fn grow(&mut self, room: usize) -> Result<(), Failure> {
        let lengths = std::mem::take(&mut self.lengths);
        *self = Self { lengths, ..Self::connect(self.config.clone(), room)? };
        Ok(())
    }

    /// Returns the value of `key`.
    pub fn get(&mut self, key: Key<'_>) -> Result<Fetched, Failure> {
        self.find(key)?.map_err(|refusal| Failure::failed(refused(&refusal)))
    }

    /// Passes each of `keys` to `sink`, in order, with its value, or `None` where there is no such key.
    pub fn get_many(
        &mut self,
        keys: &[Key<'_>],
        mut sink: impl FnMut(Key<'_>, Option<&[u8]>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut keys = keys.iter();
        let mut take = |key, value: Result<&Fetched, Refusal>| match value {
            Ok(value) => sink(key, Some(value.bytes())),
            Err(Refusal::NotFound) => sink(key, None),
            Err(refusal) => Err(Failure::failed(refused(&refusal))),
        };
        while !keys.as_slice().is_empty() {
            let (mut failed, mut long) = (None, None);
            let done = self.ask(|client| {
                client.get_many(keys.clone().as_slice(), EACH_ROOM, |value| {
                    let Some(key) = keys.next() else { return ControlFlow::Break(()) };
                    let taken = match &value {
                        Ok(value) => take(*key, Ok(value)),
                        Err(ClientError::Refused(refusal)) => take(*key, Err(*refusal)),
                        Err(_) => {
                            long = Some(*key);
                            return ControlFlow::Break(());
                        }
                    };
                    failed = taken.err();
                    if failed.is_some() {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                })
            });
            self.explained(done)?;
            failed.map_or(Ok(()), Err)?;
            if let Some(key) = long {
                // The value is larger than the memory of this core.
                let value = self.find(key)?;
                take(key, value.as_ref().map_err(|refusal| *refusal))?;
            }
        }
        Ok(())
    }

    /// Stores each value under its key. Passes what became of each pair to `sink`, in order.
    pub fn put_many(
        &mut self,
        pairs: &[(Key<'_>, &[u8])],
        sink: impl FnMut(Result<(), Refusal>),
    ) -> Result<(), Failure> {
        let room = pairs.iter().map(|(_, value)| value.len()).sum();
        if room > self.room {
            self.grow(room)?;
        }
        let done = self.ask(|client| client.put_many(pairs, sink));
        self.explained(done)
    }

    /// Returns the value of `key`, or why the server has none.
    fn find(&mut self, key: Key<'_>) -> Result<Result<Fetched, Refusal>, Failure> {
        let mut room = FIRST_ROOM;
        for _ in 0..TRIES_MAX {
            room = match self.ask(|client| client.get(key, room)) {
                Err(ClientError::Room { needed: Some(needed) }) if needed > ITEM_MAX => {
                    return Err(Failure::failed(format!(
                        "the server asks for room for {needed} octets; {} is the most a value may have",
                        bytes::format(ITEM_MAX as u64)
                    )));
                }
                Err(ClientError::Room { needed: Some(needed) }) => needed,
                Err(ClientError::Room { needed: None }) => {
                    room.saturating_mul(GROWTH).min(ITEM_MAX)
                }
                Err(ClientError::Refused(refusal)) => return Ok(Err(refusal)),
                done => return self.explained(done).map(Ok),
            };
            // The value is larger than the memory of this core: repeat with the room it needs.
            self.grow(room)?;
        }
        Err(Failure::failed("the server tells another length of the value each time it is asked"))
    }

    /// Stores `value` under `key`.
    pub fn put(&mut self, key: Key<'_>, value: &[u8]) -> Result<(), Failure> {
        let done = self.ask(|client| client.put(key, value));
        self.explained(done)
    }

    /// Deletes `key`.
    pub fn del(&mut self, key: Key<'_>) -> Result<(), Failure> {
        let done = self.ask(|client| client.del(key));
        self.explained(done)
    }

    /// Returns the statistics of the server.
    pub fn stat(&mut self) -> Result<Stat, Failure> {
        let done = self.ask(|client| client.stat());
        self.explained(done)
    }

    /// Passes each key to `sink`, in no particular order.
    pub fn keys(
        &mut self,
        mut sink: impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut at = Some(0);
        while let Some(from) = at {
            let page = self.ask(|client| client.keys(from));
            let page = self.explained(page)?;
            page.keys.iter().try_for_each(|key| sink(key))?;
            at = page.next;
        }
        Ok(())
    }

    /// Ends the core, which returns all leases.
    pub fn close(self) -> Result<(), Failure> {
        Ok(self.core.stop()?)
    }

    fn ask<T>(&mut self, ask: impl FnOnce(&mut Client<'_>) -> T) -> T {
        let _step = Step::begin(format_args!("waiting for {}", self.config.to));
        let client = Client::new(&mut self.core.started, Some(self.config.timeout));
        let mut client = client.with_lengths(std::mem::take(&mut self.lengths));
        let done = ask(&mut client);
        self.lengths = client.into_lengths();
        done
    }

    fn explained<T>(&self, done: Result<T, ClientError>) -> Result<T, Failure> {
        done.map_err(|error| self.config.explain(error))
    }
}

/// Starts a client's core, and connects.
fn start<P: Carrier>(
    config: ClientConfig,
    room: usize,
) -> Result<CoreThread<RemoteClient>, Failure> {
    config.callee().connect::<P>(config.placement(), binding(ITEM_MAX), config.node(room))
}

impl ClientConfig {
    /// Returns the server.
    pub fn callee(&self) -> Callee {
        let Self { to, timeout, provider, .. } = *self;
        let hosts = self.hosts.clone();
        Callee { to, timeout, served_by: "haulage kv serve", provider, hosts }
    }

    /// Returns the placement of the core.
    pub fn placement(&self) -> Placement {
        let Self { cpu, polling, .. } = *self;
        Placement { name: "kv-client".to_owned(), cpu, polling }
    }

    /// Returns the configuration of a core with memory for `room` octets of values.
    pub fn node(&self, room: usize) -> NodeConfig {
        let limits = Limits {
            calls_out_max: CALLS_MOST,
            send_buffers_max: 2 * CALLS_MOST,
            ..client_limits(self.timeout)
        };
        let limits = self.versions.client(limits);
        // A few pages more than the values: keys, arguments, and the slabs they come from.
        NodeConfig { crc: self.crc, ..NodeConfig::new(room + OVERHEAD, limits) }
    }

    /// Converts the error of an operation to a one-line message that says what to do.
    pub fn explain(&self, error: ClientError) -> Failure {
        match error {
            ClientError::Call(error) => explain(&error, self),
            ClientError::Refused(refusal) => Failure::failed(refused(&refusal)),
            error => Failure::failed(error.to_string()),
        }
    }
}

/// Converts the refusal of a server to a one-line message that says what to do.
pub fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::TooLarge { max } => format!(
            "the value is larger than {}; raise --value-max of the server",
            bytes::format(*max)
        ),
        other => other.to_string(),
    }
}

/// Converts the error of a Call to a one-line message that says what to do.
pub fn explain(error: &CallError, config: &ClientConfig) -> Failure {
    match error {
        CallError::NoMemory => Failure::failed(format!(
            "out of memory for values; {} is the most one may have",
            bytes::format(ITEM_MAX as u64)
        )),
        error => config.callee().explain(error),
    }
}

/// Maximum length of a value that the first GET fetches, in octets.
const FIRST_ROOM: usize = 1 << 20;

/// Maximum length of a value that the first Call fetches where there are several, in octets.
const EACH_ROOM: usize = 64 << 10;

/// Factor by which the Write chunk grows if the server does not tell the length that a value needs.
const GROWTH: usize = 4;

/// Times that a value is asked for: with a chunk that grows to the longest there is, and then a few more.
const TRIES_MAX: usize = 8;

/// Memory of a client besides its values, in octets.
const OVERHEAD: usize = 1 << 20;
