//! A blocking client of the key-value service.

use std::time::Duration;

use haulage::limits::ITEM_MAX;
use haulage::pool::Local;
use haulage::proto::v1;
use haulage::proto::v2::error::ErrorBody;
use haulage::remote::{RemoteClient, RemoteReply};
use haulage::service::{CallError, Request, TransportError};
use thiserror::Error;

use crate::protocol::{Answer, BadReply, Carriage, Key, Procedure, Refusal, Value};
use crate::stat::Stat;

mod many;

/// A client of one server, by a connection with the service's [`binding`](crate::service::binding).
#[derive(Debug)]
pub struct Client<'a> {
    remote: &'a mut RemoteClient,
    timeout: Option<Duration>,
}

/// Some of the keys that a server stores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys, in no particular order.
    pub keys: Vec<String>,
    /// Where the next page begins, if there are more keys.
    pub next: Option<u32>,
}

/// The reason that an operation did not succeed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The Call failed, or there is no memory for the value at this end.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The value is longer than the room for it.
    #[error("the value is longer than the room for it")]
    Room {
        /// The length of the value in octets, if the server tells.
        needed: Option<usize>,
    },
    /// The server refused the operation.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The results cannot be decoded.
    #[error(transparent)]
    BadReply(#[from] BadReply),
    /// The results do not answer the request.
    #[error("{0}")]
    Mismatch(&'static str),
}

impl<'a> Client<'a> {
    /// Creates a client that calls by `remote`. `timeout` is the longest that each Call may take; `None` for the
    /// default of the core.
    pub const fn new(remote: &'a mut RemoteClient, timeout: Option<Duration>) -> Self {
        Self { remote, timeout }
    }

    /// Returns the value of `key`, in registered memory; `None` if it is empty. The memory has `room` octets at first. A
    /// longer value takes more memory of the core.
    ///
    /// # Errors
    /// Among others [`Refusal::NotFound`], and [`ClientError::Room`] if the value has more than `room` octets and the core
    /// lacks the memory, or speaks version 1.
    pub fn get(&mut self, key: Key<'_>, room: usize) -> Result<Option<Local>, ClientError> {
        let result = Some(self.remote.lease(room)?);
        let mut reply = match self.call(Procedure::Get, Some(key), None, result) {
            Ok(reply) => reply,
            Err(CallError::Refused(TransportError::Two(ErrorBody::WriteResource {
                length_needed,
                ..
            }))) if room < length_needed as usize => {
                return Err(ClientError::Room { needed: Some(length_needed as usize) });
            }
            // Version 1 does not tell the length that the value needs.
            Err(CallError::Refused(TransportError::One(v1::error::ErrorBody::Chunk)))
                if room < ITEM_MAX =>
            {
                return Err(ClientError::Room { needed: None });
            }
            Err(error) => return Err(error.into()),
        };
        let lease = reply.rooms.take().into_first();
        let results = reply.results();
        let carriage = Carriage::of(results.reduced());
        match Answer::decode(Procedure::Get, results.rest(), carriage)? {
            Answer::Value(Value::Reduced { length }) => placed(lease, length.into()).map(Some),
            Answer::Value(Value::Unreduced([])) => Ok(None),
            // A server of version 2 may send a value that is too long for its room in several messages.
            Answer::Value(Value::Unreduced(value)) => self.kept(lease, value).map(Some),
            Answer::Refused(refusal) => Err(refusal.into()),
            _ => Err(ClientError::Mismatch("the reply holds no value")),
        }
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn put(&mut self, key: Key<'_>, value: &[u8]) -> Result<(), ClientError> {
        let argument = if value.is_empty() {
            None
        } else {
            let mut lease = self.remote.lease(value.len())?;
            lease.bytes_mut().copy_from_slice(value);
            Some(lease)
        };
        self.done(Procedure::Put, key, argument)
    }

    /// Deletes `key`.
    ///
    /// # Errors
    /// Among others [`Refusal::NotFound`].
    pub fn del(&mut self, key: Key<'_>) -> Result<(), ClientError> {
        self.done(Procedure::Del, key, None)
    }

    /// Has the server tell this end of changes to keys that begin with `prefix`, from now on. A connection has one prefix:
    /// another Call replaces it. The connection must serve such Calls: see [`watch`](crate::watch).
    ///
    /// # Errors
    /// Among others [`Refusal::Crowded`], and `PROC_UNAVAIL` from a server of a release without it.
    pub fn watch(&mut self, prefix: &[u8]) -> Result<(), ClientError> {
        let request = self.request(Procedure::Watch);
        let reply = self.remote.call(request, |w| w.opaque(prefix)).map_err(CallError::from)?;
        done(Procedure::Watch, &reply)
    }

    /// Returns the statistics of the server.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn stat(&mut self) -> Result<Stat, ClientError> {
        let reply = self.call(Procedure::Stat, None, None, None)?;
        match Answer::decode(Procedure::Stat, reply.results().rest(), Carriage::Unreduced)? {
            Answer::Stat(stat) => Ok(stat),
            _ => Err(ClientError::Mismatch("the reply holds no figures")),
        }
    }

    /// Returns some keys: the first ones for `at` = 0, others for the [`KeyPage::next`] of the page before.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn keys(&mut self, at: u32) -> Result<KeyPage, ClientError> {
        let request = self.request(Procedure::Keys);
        let reply = self.remote.call(request, |w| w.u32(at)).map_err(CallError::from)?;
        match Answer::decode(Procedure::Keys, reply.results().rest(), Carriage::Unreduced)? {
            // A position that does not increase would make the listing endless.
            Answer::Keys(list) if list.next.is_some_and(|next| next <= at) => {
                Err(ClientError::Mismatch("the keys do not end"))
            }
            Answer::Keys(list) => {
                let keys = list.keys().map(|key| key.to_string()).collect();
                Ok(KeyPage { keys, next: list.next })
            }
            _ => Err(ClientError::Mismatch("the reply holds no keys")),
        }
    }

    fn done(
        &mut self,
        procedure: Procedure,
        key: Key<'_>,
        argument: Option<Local>,
    ) -> Result<(), ClientError> {
        let reply = self.call(procedure, Some(key), argument, None)?;
        done(procedure, &reply)
    }

    fn call(
        &mut self,
        procedure: Procedure,
        key: Option<Key<'_>>,
        argument: Option<Local>,
        result: Option<Local>,
    ) -> Result<RemoteReply, CallError> {
        let empty_value = procedure == Procedure::Put && argument.is_none();
        let request = self.request(procedure).argument(argument).room(result);
        let reply = self.remote.call(request, |w| {
            key.map_or(Ok(()), |key| w.opaque(key.bytes()))?;
            // An empty value is sent unreduced.
            if empty_value { w.opaque(&[]) } else { Ok(()) }
        })?;
        Ok(reply)
    }

    fn request(&self, procedure: Procedure) -> Request {
        Request { timeout: self.timeout, ..Request::new(procedure as u32) }
    }

    /// Copies a value that came in a message to the lease that was meant for it, or to a longer one.
    fn kept(&mut self, lease: Option<Local>, value: &[u8]) -> Result<Local, ClientError> {
        let lease = match lease.filter(|lease| lease.capacity() >= value.len()) {
            Some(lease) => Ok(lease),
            None => self.remote.lease(value.len()),
        };
        let room = ClientError::Room { needed: Some(value.len()) };
        let mut lease = lease.map_err(|_| room)?;
        lease.set_len(value.len());
        lease.bytes_mut().copy_from_slice(value);
        Ok(lease)
    }
}

/// Checks the results of a procedure that has none but a status.
fn done(procedure: Procedure, reply: &RemoteReply) -> Result<(), ClientError> {
    match Answer::decode(procedure, reply.results().rest(), Carriage::Unreduced)? {
        Answer::Done => Ok(()),
        Answer::Refused(refusal) => Err(refusal.into()),
        _ => Err(ClientError::Mismatch("the reply is that of another procedure")),
    }
}

/// Returns the value of `length` octets that was placed in `lease`.
fn placed(lease: Option<Local>, length: u64) -> Result<Local, ClientError> {
    lease
        .filter(|lease| lease.len() as u64 == length)
        .ok_or(ClientError::Mismatch("the server wrote another length than it says"))
}
