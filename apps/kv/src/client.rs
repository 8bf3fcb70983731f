//! A blocking client of the key-value service.
//!
//! # Normal operation
//! Short values travel in the messages (see [`inline`](crate::inline)). A GET offers a chunk if the value was long last time.
//! Of a value that is longer than expected, the server tells the length, and the GET goes again with a chunk.
//!
//! # Recovery
//! A server of the release before tells the length of such a value by the error of the transport, or on version 1 not at
//! all: then the chunk has the length that the caller names. A GET goes at most `TRIES_MAX` times.

use std::time::Duration;

use haulage::limits::ITEM_MAX;
use haulage::pool::Local;
use haulage::proto::rpc::ReplyHeader;
use haulage::proto::v1;
use haulage::proto::v2::error::ErrorBody;
use haulage::remote::{RemoteClient, RemoteReply};
use haulage::service::{CallError, Request, TransportError};
use thiserror::Error;

use crate::inline::{INLINE_MAX, Lengths};
use crate::protocol::{Answer, BadReply, Carriage, Key, Procedure, Refusal, Value};
use crate::stat::Stat;

pub mod many;

/// A client of one server, by a connection with the service's [`binding`](crate::service::binding).
#[derive(Debug)]
pub struct Client<'a> {
    remote: &'a mut RemoteClient,
    timeout: Option<Duration>,
    lengths: Lengths,
}

/// A value that was fetched.
#[derive(Debug)]
pub enum Fetched {
    /// It came in a message, and was copied out of it.
    Inline(Vec<u8>),
    /// The server placed it in registered memory.
    Placed(Local),
}

impl Fetched {
    /// Borrows the octets.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(octets) => octets,
            Self::Placed(lease) => lease.bytes(),
        }
    }

    /// Returns the length in octets.
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Returns whether the value is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }
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
        Self { remote, timeout, lengths: Lengths::new(INLINE_MAX) }
    }

    /// Has the client begin with the lengths that another one knew: see [`Self::into_lengths`].
    #[must_use]
    pub fn with_lengths(self, lengths: Lengths) -> Self {
        Self { lengths, ..self }
    }

    /// Ends the client, and returns the lengths of values that it knows.
    pub fn into_lengths(self) -> Lengths {
        self.lengths
    }

    /// Returns the value of `key`. Where it is expected to be long, it is placed in registered memory, of at least `room`
    /// octets at first. A longer value takes more memory of the core.
    ///
    /// # Errors
    /// Among others [`Refusal::NotFound`], and [`ClientError::Room`] if the value has more than `room` octets and the core
    /// lacks the memory, or if the server speaks version 1 and does not tell the length.
    pub fn get(&mut self, key: Key<'_>, room: usize) -> Result<Fetched, ClientError> {
        let mut offer = match self.expects_chunk(key) {
            None => None,
            Some(expected) => match self.remote.lease(expected.max(room)) {
                Ok(lease) => Some(lease),
                // Without a chunk, the server tells how much memory it really takes.
                Err(CallError::NoMemory) => None,
                Err(error) => return Err(error.into()),
            },
        };
        let (mut needed, mut may_tell) = (None, true);
        for _ in 0..TRIES_MAX {
            let offered = offer.as_ref().map(Local::len);
            needed = match self.get_once(key, offer)? {
                Got::Value(value) => return Ok(value),
                Got::Longer(needed) => needed,
            };
            self.lengths.remember_long(key, needed.or(offered).unwrap_or(room));
            let octets = match (needed, offered) {
                (Some(needed), _) if needed > ITEM_MAX => break,
                (Some(needed), _) => Some(needed.max(1)),
                // A server of the release before does not tell the length on version 1.
                (None, None) => {
                    may_tell = false;
                    Some(room)
                }
                (None, Some(_)) if may_tell => None,
                (None, Some(_)) => break,
            };
            offer = match octets.map(|octets| self.remote.lease(octets)).transpose() {
                Ok(lease) => lease,
                Err(CallError::NoMemory) if needed.is_some() => break,
                Err(error) => return Err(error.into()),
            };
        }
        Err(ClientError::Room { needed })
    }

    /// Asks for a value once, with a chunk or without.
    fn get_once(&mut self, key: Key<'_>, offer: Option<Local>) -> Result<Got, ClientError> {
        let offered = offer.as_ref().map(Local::len);
        let request = self.request(Procedure::Get).room(offer);
        let called = self.remote.call(request, |w| w.opaque(key.bytes())).map_err(CallError::from);
        let mut reply = match called {
            Ok(reply) => reply,
            Err(CallError::Refused(refusal)) => return longer(refusal, offered).map(Got::Longer),
            Err(error) => return Err(error.into()),
        };
        let lease = reply.rooms.take().into_first();
        let results = reply.results();
        let carriage = Carriage::of(results.reduced());
        let value = match Answer::decode(Procedure::Get, results.rest(), carriage)? {
            Answer::Value(Value::Reduced { length }) => placed(lease, length.into())?,
            Answer::Value(Value::Unreduced(value)) => Fetched::Inline(value.to_vec()),
            Answer::TooLong { length } if offered.is_none() => {
                return Ok(Got::Longer(Some(usize::try_from(length).unwrap_or(usize::MAX))));
            }
            Answer::TooLong { .. } => {
                return Err(ClientError::Mismatch(
                    "the server asks for a chunk that it was offered",
                ));
            }
            Answer::Refused(refusal) => return Err(refusal.into()),
            _ => return Err(ClientError::Mismatch("the reply holds no value")),
        };
        self.lengths.remember(key, value.len());
        self.remote.recycle(reply);
        Ok(Got::Value(value))
    }

    /// Returns the length that the value of `key` is expected to have, if that is too long for a message.
    fn expects_chunk(&self, key: Key<'_>) -> Option<usize> {
        self.lengths.expects_chunk(key, self.remote.inline_room())
    }

    /// Stores `value` under `key`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn put(&mut self, key: Key<'_>, value: &[u8]) -> Result<(), ClientError> {
        let request = self.request(Procedure::Put);
        let inline_room = self.remote.inline_room();
        let called = if self.lengths.stores_inline(key, value.len(), inline_room) {
            self.remote.call(request, |w| w.opaque(key.bytes()).and_then(|()| w.opaque(value)))
        } else {
            let mut lease = self.remote.lease(value.len())?;
            lease.bytes_mut().copy_from_slice(value);
            self.remote.call(request.argument(lease), |w| w.opaque(key.bytes()))
        };
        let reply = called.map_err(CallError::from)?;
        self.done(Procedure::Put, reply)?;
        self.lengths.remember(key, value.len());
        Ok(())
    }

    /// Deletes `key`.
    ///
    /// # Errors
    /// Among others [`Refusal::NotFound`].
    pub fn del(&mut self, key: Key<'_>) -> Result<(), ClientError> {
        let request = self.request(Procedure::Del);
        let reply =
            self.remote.call(request, |w| w.opaque(key.bytes())).map_err(CallError::from)?;
        self.done(Procedure::Del, reply)
    }

    /// Has the server tell this end of changes to keys that begin with `prefix`, from now on. A connection has one prefix:
    /// another Call replaces it. The connection must serve such Calls: see [`watch`](crate::watch).
    ///
    /// # Errors
    /// Among others [`Refusal::Crowded`], and `PROC_UNAVAIL` from a server of a release without it.
    pub fn watch(&mut self, prefix: &[u8]) -> Result<(), ClientError> {
        let request = self.request(Procedure::Watch);
        let reply = self.remote.call(request, |w| w.opaque(prefix)).map_err(CallError::from)?;
        self.done(Procedure::Watch, reply)
    }

    /// Returns the statistics of the server.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn stat(&mut self) -> Result<Stat, ClientError> {
        let request = self.request(Procedure::Stat);
        let reply = self.remote.call(request, |_| Ok(())).map_err(CallError::from)?;
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

    /// Checks the results of a procedure that has none but a status.
    fn done(&mut self, procedure: Procedure, reply: RemoteReply) -> Result<(), ClientError> {
        let answer = Answer::decode(procedure, reply.results().rest(), Carriage::Unreduced)?;
        let done = match answer {
            Answer::Done => Ok(()),
            Answer::Refused(refusal) => Err(refusal.into()),
            _ => Err(ClientError::Mismatch("the reply is that of another procedure")),
        };
        self.remote.recycle(reply);
        done
    }

    fn request(&self, procedure: Procedure) -> Request {
        Request { timeout: self.timeout, ..Request::new(procedure as u32) }
    }
}

/// What came of a GET.
enum Got {
    Value(Fetched),
    /// The value is longer than the room for it: its length in octets, if the server tells.
    Longer(Option<usize>),
}

/// Returns how long the value is, if the peer tells, for which it refused a GET that offered a chunk of `offered` octets, or
/// none.
fn longer(refusal: TransportError, offered: Option<usize>) -> Result<Option<usize>, ClientError> {
    match (refusal, offered) {
        (TransportError::Two(ErrorBody::WriteResource { length_needed, .. }), offered)
            if offered.is_none_or(|offered| offered < length_needed as usize) =>
        {
            Ok(Some(length_needed as usize))
        }
        (TransportError::Two(ErrorBody::ReplyResource { length_needed }), None) => {
            Ok(Some((length_needed as usize).saturating_sub(AROUND_VALUE)))
        }
        // Version 1 does not tell the length that the value needs.
        (TransportError::One(v1::error::ErrorBody::Chunk), offered)
            if offered.is_none_or(|offered| offered < ITEM_MAX) =>
        {
            Ok(None)
        }
        (refusal, _) => Err(CallError::Refused(refusal).into()),
    }
}

/// Returns the value of `length` octets that was placed in `lease`.
fn placed(lease: Option<Local>, length: u64) -> Result<Fetched, ClientError> {
    lease
        .filter(|lease| lease.len() as u64 == length)
        .map(Fetched::Placed)
        .ok_or(ClientError::Mismatch("the server wrote another length than it says"))
}

/// Times that a GET goes: without a chunk, with one of the length that the server tells, and both again if the value has
/// another length by then.
const TRIES_MAX: usize = 4;

/// Octets of the Reply to a GET around its value: the RPC header, the status, and the length word.
const AROUND_VALUE: usize = ReplyHeader::SUCCESS_LEN + 4 + 4;
