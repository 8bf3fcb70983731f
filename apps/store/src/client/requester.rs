//! The connection interface of the client, and its implementation by a core of this process.

use std::time::Duration;

use haulage::pool::Local;
use haulage::remote::RemoteClient;
use haulage::service::{CallError, Request};
use haulage_proto::chunk::PayloadReader;
use haulage_proto::negotiate::Version;
use haulage_proto::xdr::{Reader, Truncated, Writer};

use super::error::Error;
use crate::nfs3::{Arguments, Procedure, Results, Status};

/// Makes Calls of NFS version 3, and waits for their Replies.
pub trait Requester {
    /// Leases registered memory for a data item.
    ///
    /// # Errors
    /// The pool has no room, or the connection is lost.
    fn lease(&mut self, length: usize) -> Result<Local, CallError>;

    /// Begins a Call. Returns the token by which [`Self::ended`] names it. `arguments` may lack the octets of the
    /// argument in `items`, which come last.
    ///
    /// # Errors
    /// The Call cannot be sent.
    fn begin(&mut self, arguments: &Arguments<'_>, items: Items) -> Result<u64, CallError>;

    /// Waits until one of the Calls in flight ends. Returns its token and its result.
    ///
    /// # Errors
    /// The connection is lost.
    fn ended(&mut self) -> Result<(u64, Result<Answer, CallError>), CallError>;

    /// Sleeps.
    fn pause(&mut self, time: Duration);
}

/// The DDP-eligible items of a Call.
#[derive(Debug, Default)]
pub struct Items {
    /// The argument, sent from this lease.
    pub argument: Option<Local>,
    /// The lease into which the result is placed.
    pub result: Option<Local>,
}

/// The Reply to a Call.
#[derive(Debug)]
pub struct Answer {
    results: Vec<u8>,
    reduced: Option<u32>,
    version: Version,
    /// The leases of the Call's items. The result's lease has the length of the result.
    pub items: Items,
}

impl Answer {
    /// Copies the Payload stream of `reader`.
    pub fn new(reader: &PayloadReader<'_>, items: Items) -> Self {
        let (reduced, version) = (reader.reduced(), reader.version());
        Self { results: reader.rest().to_vec(), reduced, version, items }
    }

    /// Parses the results.
    ///
    /// # Errors
    /// The results are malformed.
    pub fn results(&self, procedure: Procedure) -> Result<Results<'_>, Error> {
        let reader = PayloadReader::reply(&self.results, 0, self.reduced);
        Results::decode(procedure, &mut reader.of_version(self.version))
            .map_err(|fault| Error::Malformed(procedure, fault))
    }

    /// Returns the status, which is the first word of all results.
    pub(super) fn status(&self) -> Option<Status> {
        Reader::new(&self.results).u32().ok().and_then(Status::from_number)
    }
}

/// A [`Requester`] over a core of this process.
#[derive(Debug)]
pub struct Remote {
    client: RemoteClient,
    timeout: Duration,
    version: Option<Version>,
}

impl Remote {
    /// Creates a requester that waits at most `timeout` for each Reply.
    pub const fn new(client: RemoteClient, timeout: Duration) -> Self {
        Self { client, timeout, version: None }
    }

    /// Returns the RPC-over-RDMA version of the last Reply.
    pub const fn version(&self) -> Option<Version> {
        self.version
    }
}

impl Requester for Remote {
    fn lease(&mut self, length: usize) -> Result<Local, CallError> {
        self.client.lease(length)
    }

    fn begin(&mut self, arguments: &Arguments<'_>, items: Items) -> Result<u64, CallError> {
        let Items { argument, result } = items;
        let (procedure, timeout) = (arguments.procedure().number(), Some(self.timeout));
        let reduced = argument.is_some();
        let request =
            Request { timeout, ..Request::new(procedure).argument(argument).room(result) };
        let encode = |w: &mut Writer<'_>| {
            if reduced { encode_reduced(arguments, w) } else { arguments.encode(w) }
        };
        Ok(self.client.begin(request, encode)?)
    }

    fn ended(&mut self) -> Result<(u64, Result<Answer, CallError>), CallError> {
        let (token, outcome) = self.client.ended()?;
        let outcome = outcome.map_err(CallError::from).map(|mut reply| {
            let items = Items {
                argument: reply.arguments.take().into_first(),
                result: reply.rooms.take().into_first(),
            };
            let answer = Answer::new(&reply.results(), items);
            self.version = Some(answer.version);
            self.client.recycle(reply);
            answer
        });
        Ok((token, outcome))
    }

    fn pause(&mut self, time: Duration) {
        std::thread::park_timeout(time);
    }
}

/// Encodes arguments without the last one, whose octets are in a lease: the runtime adds its length, too.
pub(super) fn encode_reduced(
    arguments: &Arguments<'_>,
    w: &mut Writer<'_>,
) -> Result<(), Truncated> {
    // Such arguments are a file handle and a few words.
    let mut room = [0; 256];
    let mut all = Writer::new(&mut room);
    arguments.encode(&mut all)?;
    let without = all.written().len().saturating_sub(4);
    w.put(all.written().get(..without).unwrap_or_default())
}

/// Makes one Call and waits for its Reply; repeats the Call while the server is busy.
pub(super) fn ask<R: Requester>(
    requester: &mut R,
    arguments: &Arguments<'_>,
    mut items: impl FnMut() -> Items,
) -> Result<Answer, Error> {
    let mut busy = 0;
    loop {
        let token = requester.begin(arguments, items())?;
        let (of, outcome) = requester.ended()?;
        debug_assert_eq!(of, token, "transfers wait for whatever they have begun");
        let answer = outcome?;
        if answer.status() != Some(Status::Jukebox) || busy == BUSY_MAX {
            return Ok(answer);
        }
        busy += 1;
        requester.pause(BUSY_PAUSE);
    }
}

/// Maximum number of times a Call is repeated while the server is busy.
pub(super) const BUSY_MAX: u32 = 20;
/// How long a client waits then.
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(500);
