//! A blocking client of the key-value service.

use std::net::SocketAddr;
use std::time::Duration;

use haulage::cores::{CoreThread, Placement};
use haulage::limits::ITEM_MAX;
use haulage::polling::Polling;
use haulage::pool::Local;
use haulage::proto::v1;
use haulage::proto::v2::error::ErrorBody;
use haulage::remote::{RemoteClient, RemoteReply};
use haulage::service::{CallError, Request, TransportError};

use super::protocol::{Answer, Carriage, Key, Procedure, Value};
use super::service::binding;
use super::stat::Stat;
use crate::calling::Callee;
use crate::cli::bytes;
use crate::cli::values::{Provider, RpcVersion, Switch};
use crate::failure::Failure;
use crate::node::{Carrier, NodeConfig, client_limits, over};
use crate::output::progress::Step;

/// A connection to a server, on a core of its own.
#[derive(Debug)]
pub struct KvClient {
    core: CoreThread<RemoteClient>,
    config: ClientConfig,
}

/// The configuration of a client.
#[derive(Clone, Copy, Debug)]
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
    /// The versions of RPC-over-RDMA that the client speaks.
    pub rpc_version: RpcVersion,
}

impl KvClient {
    /// Starts a core with memory for `room` octets of values, and connects.
    pub fn connect(config: ClientConfig, room: usize) -> Result<Self, Failure> {
        let core = over!(config.provider, start, (config, room))?;
        Ok(Self { core, config })
    }

    /// Returns the value of `key`, in registered memory.
    pub fn get(&mut self, key: Key<'_>) -> Result<Option<Local>, Failure> {
        let mut room = FIRST_ROOM;
        loop {
            let result = Some(self.lease(room)?);
            match self.call(Procedure::Get, Some(key), None, result) {
                Err(CallError::Refused(TransportError::Two(ErrorBody::WriteResource {
                    length_needed,
                    ..
                }))) if room < length_needed as usize => {
                    // The value is larger than the Write chunk: repeat with the length it needs.
                    room = length_needed as usize;
                    *self = Self::connect(self.config, room)?;
                }
                Err(CallError::Refused(TransportError::One(v1::error::ErrorBody::Chunk)))
                    if room < ITEM_MAX =>
                {
                    // Version 1 does not tell the length that the value needs.
                    room = room.saturating_mul(GROWTH).min(ITEM_MAX);
                    *self = Self::connect(self.config, room)?;
                }
                Err(error) => return Err(explain(&error, &self.config)),
                Ok(mut reply) => {
                    let results = reply.results();
                    let answer = Answer::decode(
                        Procedure::Get,
                        results.rest(),
                        Carriage::of(results.reduced()),
                    );
                    let value = match answer.map_err(|error| Failure::failed(error.to_string()))? {
                        Answer::Value(Value::Reduced { length }) => Some(u64::from(length)),
                        Answer::Value(Value::Inline([])) => None,
                        Answer::Refused(refusal) => {
                            return Err(Failure::failed(refusal.to_string()));
                        }
                        _ => return Err(Failure::failed("the reply holds no value")),
                    };
                    let written = reply.result.take();
                    return match (value, written) {
                        (None, _) => Ok(None),
                        (Some(length), Some(lease)) if lease.len() as u64 == length => {
                            Ok(Some(lease))
                        }
                        _ => Err(Failure::failed("the server wrote another length than it says")),
                    };
                }
            }
        }
    }

    /// Stores `value` under `key`.
    pub fn put(&mut self, key: Key<'_>, value: &[u8]) -> Result<(), Failure> {
        let argument = if value.is_empty() {
            None
        } else {
            let mut lease = self.lease(value.len())?;
            lease.bytes_mut().copy_from_slice(value);
            Some(lease)
        };
        self.done(Procedure::Put, key, argument)
    }

    /// Deletes `key`.
    pub fn del(&mut self, key: Key<'_>) -> Result<(), Failure> {
        self.done(Procedure::Del, key, None)
    }

    /// Returns the statistics of the server.
    pub fn stat(&mut self) -> Result<Stat, Failure> {
        let reply = self
            .call(Procedure::Stat, None, None, None)
            .map_err(|error| explain(&error, &self.config))?;
        match Answer::decode(Procedure::Stat, reply.results().rest(), Carriage::Inline) {
            Ok(Answer::Stat(stat)) => Ok(stat),
            Ok(_) => Err(Failure::failed("the reply holds no figures")),
            Err(error) => Err(Failure::failed(error.to_string())),
        }
    }

    /// Passes each key to `sink`, in no particular order.
    pub fn keys(
        &mut self,
        mut sink: impl FnMut(Key<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut at = 0;
        loop {
            let step = Step::begin(format_args!("waiting for {}", self.config.to));
            let request = Request {
                procedure: Procedure::Keys as u32,
                argument: None,
                result: None,
                timeout: Some(self.config.timeout),
            };
            let reply = self.core.started.call(request, |w| w.u32(at));
            drop(step);
            let reply = reply.map_err(|failed| explain(&failed.error, &self.config))?;
            let results = reply.results();
            let keys = match Answer::decode(Procedure::Keys, results.rest(), Carriage::Inline) {
                Ok(Answer::Keys(keys)) => keys,
                Ok(_) => return Err(Failure::failed("the reply holds no keys")),
                Err(error) => return Err(Failure::failed(error.to_string())),
            };
            keys.keys().try_for_each(&mut sink)?;
            match keys.next {
                None => return Ok(()),
                // A position that does not increase would make the listing endless.
                Some(next) if next <= at => return Err(Failure::failed("the keys do not end")),
                Some(next) => at = next,
            }
        }
    }

    /// Ends the core, which returns all leases.
    pub fn close(self) -> Result<(), Failure> {
        Ok(self.core.stop()?)
    }

    fn done(
        &mut self,
        procedure: Procedure,
        key: Key<'_>,
        argument: Option<Local>,
    ) -> Result<(), Failure> {
        let reply = self
            .call(procedure, Some(key), argument, None)
            .map_err(|error| explain(&error, &self.config))?;
        match Answer::decode(procedure, reply.results().rest(), Carriage::Inline) {
            Ok(Answer::Done) => Ok(()),
            Ok(Answer::Refused(refusal)) => Err(Failure::failed(refusal.to_string())),
            Ok(_) => Err(Failure::failed("the reply is that of another procedure")),
            Err(error) => Err(Failure::failed(error.to_string())),
        }
    }

    fn lease(&mut self, length: usize) -> Result<Local, Failure> {
        self.core.started.lease(length).map_err(|error| explain(&error, &self.config))
    }

    fn call(
        &mut self,
        procedure: Procedure,
        key: Option<Key<'_>>,
        argument: Option<Local>,
        result: Option<Local>,
    ) -> Result<RemoteReply, CallError> {
        let _step = Step::begin(format_args!("waiting for {}", self.config.to));
        let empty_value = procedure == Procedure::Put && argument.is_none();
        let request = Request {
            procedure: procedure as u32,
            argument,
            result,
            timeout: Some(self.config.timeout),
        };
        let reply = self.core.started.call(request, |w| {
            key.map_or(Ok(()), |key| w.opaque(key.bytes()))?;
            // An empty value is sent inline.
            if empty_value { w.opaque(&[]) } else { Ok(()) }
        })?;
        Ok(reply)
    }
}

/// Starts a client's core, and connects.
fn start<P: Carrier>(
    config: ClientConfig,
    room: usize,
) -> Result<CoreThread<RemoteClient>, Failure> {
    let ClientConfig { cpu, polling, crc, .. } = config;
    let placement = Placement { name: "kv-client".to_owned(), cpu, polling };
    let limits = config.rpc_version.within(client_limits(config.timeout));
    // A few pages more than the values: keys, arguments, and the slabs they come from.
    let node = NodeConfig { room: room + OVERHEAD, limits, crc };
    config.callee().connect::<P>(placement, binding(ITEM_MAX), node)
}

impl ClientConfig {
    const fn callee(&self) -> Callee {
        let Self { to, timeout, provider, .. } = *self;
        Callee { to, timeout, served_by: "haulage kv serve", provider }
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

/// Factor by which the Write chunk grows if the server does not tell the length that a value needs.
const GROWTH: usize = 4;

/// Memory of a client besides its values, in octets.
const OVERHEAD: usize = 1 << 20;
