//! What a client needs from its connection, and the connection of a core of this process.

use std::time::Duration;

use haulage::pool::Local;
use haulage::remote::RemoteClient;
use haulage::service::{CallError, Request};
use haulage_proto::chunk::PayloadReader;
use haulage_proto::negotiate::Version;
use haulage_proto::xdr::{Reader, Truncated, Writer};

use super::Error;
use crate::nfs3::{Arguments, Procedure, Results, Status};

/// Makes Calls of NFS version 3, and waits for their Replies.
pub trait Requester {
    /// Takes registered memory for an item.
    ///
    /// # Errors
    /// There is none, or no connection.
    fn lease(&mut self, length: usize) -> Result<Local, CallError>;

    /// Begins a Call. Returns what it is called by [`Self::ended`]. The octets of an argument in
    /// `items` need not be in `arguments`, where they are the last ones.
    ///
    /// # Errors
    /// It cannot be made at all.
    fn begin(&mut self, arguments: &Arguments<'_>, items: Items) -> Result<u64, CallError>;

    /// Waits until one of the Calls that were begun has ended.
    ///
    /// # Errors
    /// There is no connection any more.
    fn ended(&mut self) -> Result<(u64, Result<Answer, CallError>), CallError>;

    /// Lets time pass.
    fn pause(&mut self, time: Duration);
}

/// The DDP-eligible items of a Call.
#[derive(Debug, Default)]
pub struct Items {
    /// What it brings.
    pub argument: Option<Local>,
    /// Where its result goes.
    pub result: Option<Local>,
}

/// What a Call came to.
#[derive(Debug)]
pub struct Answer {
    results: Vec<u8>,
    reduced: Option<u32>,
    version: Version,
    /// The memory of its items, ours again; a result's as long as what was written.
    pub items: Items,
}

impl Answer {
    /// Keeps what `reader` would read.
    pub fn new(reader: &PayloadReader<'_>, items: Items) -> Self {
        let reduced = reader.reduced().filter(|written| *written > 0);
        Self { results: reader.rest().to_vec(), reduced, version: reader.version(), items }
    }

    /// Parses the results.
    ///
    /// # Errors
    /// They make no sense.
    pub fn results(&self, procedure: Procedure) -> Result<Results<'_>, Error> {
        let reader = PayloadReader::reply(&self.results, 0, self.reduced);
        Results::decode(procedure, &mut reader.of_version(self.version))
            .map_err(|fault| Error::Malformed(procedure, fault))
    }

    /// Returns how the procedure ended, which comes first in all results.
    pub(super) fn status(&self) -> Option<Status> {
        Reader::new(&self.results).u32().ok().and_then(Status::from_number)
    }
}

/// The connection of a core of this process.
#[derive(Debug)]
pub struct Remote {
    client: RemoteClient,
    timeout: Duration,
    version: Option<Version>,
}

impl Remote {
    /// Calls through `client`, and waits for each Reply so long.
    pub const fn new(client: RemoteClient, timeout: Duration) -> Self {
        Self { client, timeout, version: None }
    }

    /// Returns in which version of RPC-over-RDMA the last Reply came.
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
        let request = Request { procedure, argument, result, timeout };
        let encode = |w: &mut Writer<'_>| {
            if reduced { encode_reduced(arguments, w) } else { arguments.encode(w) }
        };
        Ok(self.client.begin(request, encode)?)
    }

    fn ended(&mut self) -> Result<(u64, Result<Answer, CallError>), CallError> {
        let (token, outcome) = self.client.ended()?;
        let outcome = outcome.map_err(CallError::from).map(|mut reply| {
            let items = Items { argument: reply.argument.take(), result: reply.result.take() };
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

/// Appends arguments of which the last has memory of its own: even its length is left to the runtime.
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
