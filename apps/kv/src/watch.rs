//! A client that the server tells of changes to keys.
//!
//! [`way`] makes the two ends of a channel: a [`Watcher`] is the service of the client's core, and another thread takes
//! what it is told from [`Told`]. The core connects with [`options`], and the other thread makes the Call
//! [`Client::watch`](crate::client::Client::watch). Each Call of the server is answered once the changes that it told have been
//! taken. The server makes [`CALLS_MAX`] ahead of the answers at most, and merges further changes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};

use haulage::core::{ConnectOptions, Cx, Service};
use haulage::provider::Waker;
use haulage::service::{Call, CallError, CallToken, ConnectionId, Outcome, Peer, Program, Reply};
use haulage_proto::rpc::AcceptStat;

use crate::protocol::watch::{self, CALLS_MAX, CHANGED, Heading, NULL, State};
use crate::service::binding;

/// The service of a client's core, which the server tells of changes.
#[derive(Debug)]
pub struct Watcher {
    told: Sender<News>,
    /// Number of Calls whose changes have been taken, but which are not answered yet.
    taken: Arc<AtomicUsize>,
    /// Wakes the thread that takes changes.
    waker: Waker,
    /// The Calls that are not answered yet, oldest first.
    waiting: VecDeque<CallToken>,
}

/// The end of the channel for the thread that takes changes.
#[derive(Debug)]
pub struct Told {
    told: Receiver<News>,
    taken: Arc<AtomicUsize>,
}

/// What a [`Watcher`] passes on.
#[derive(Clone, Debug)]
pub enum News {
    /// Keys have changed.
    Changes {
        /// The keys, and what was done to each, in order.
        changes: Vec<(String, State)>,
        /// The number of further changes to watched keys, and whether these are the last ones.
        heading: Heading,
    },
    /// The connection has ended.
    Closed(CallError),
}

/// Makes the two ends of a channel. `waker` wakes the thread that takes changes.
pub fn way(waker: Waker) -> (Watcher, Told) {
    let (sender, receiver) = mpsc::channel();
    let taken = Arc::new(AtomicUsize::new(0));
    let told = Told { told: receiver, taken: Arc::clone(&taken) };
    (Watcher { told: sender, taken, waker, waiting: VecDeque::new() }, told)
}

/// Returns the options of a connection on which the server may tell of changes. `value_max` is the length of the longest
/// value, in octets.
pub fn options(value_max: usize) -> ConnectOptions {
    ConnectOptions::new(binding(value_max)).serving(vec![Program::new(watch::binding())])
}

impl Told {
    /// Returns what came next, if anything did. After [`News::Changes`], call [`Self::take`].
    pub fn next(&self) -> Option<News> {
        match self.told.try_recv() {
            Ok(news) => Some(news),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(News::Closed(CallError::Closed)),
        }
    }

    /// Has the server answered: the changes have been taken. `core` is the waker of the client's core.
    pub fn take(&self, core: &Waker) {
        self.taken.fetch_add(1, Ordering::Release);
        core.wake();
    }
}

impl Watcher {
    fn pass(&self, news: News) {
        // Without a thread to take it, the client is ending.
        let _ = self.told.send(news);
        self.waker.wake();
    }
}

impl Service for Watcher {
    fn has_promised(&self, _: ConnectionId) -> bool {
        true
    }

    fn closed(&mut self, _: &mut Cx<'_>, _: &Peer, why: &CallError) {
        self.pass(News::Closed(why.clone()));
    }

    fn call(&mut self, _: &mut Cx<'_>, call: Call<'_>, _: &mut Reply) -> Outcome {
        match call.procedure {
            NULL if call.arguments.is_empty() => return Outcome::Done,
            NULL => return Outcome::Failed(AcceptStat::GarbageArgs),
            // A server that does not wait for answers takes no more memory here.
            CHANGED if self.waiting.len() == CALLS_MAX => {
                return Outcome::Failed(AcceptStat::SystemErr);
            }
            CHANGED => {}
            _ => return Outcome::Failed(AcceptStat::ProcUnavail),
        }
        let (arguments, _) = call.arguments.into_parts();
        let mut changes = Vec::new();
        let heading = Heading::decode(arguments, |change| {
            changes.push((change.key.to_string(), change.state));
        });
        let Ok(heading) = heading else { return Outcome::Failed(AcceptStat::GarbageArgs) };
        self.waiting.push_back(call.token);
        self.pass(News::Changes { changes, heading });
        Outcome::Later
    }

    fn resume(&mut self, _: &mut Cx<'_>, _: CallToken, _: &mut Reply) -> Outcome {
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        // Only what was passed on is taken.
        let taken = self.taken.swap(0, Ordering::Acquire).min(self.waiting.len());
        self.waiting.drain(..taken).for_each(|token| cx.resume(token));
        taken > 0
    }
}

#[cfg(test)]
mod tests;
