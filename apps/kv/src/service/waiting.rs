//! Calls that store values, and wait for memory.
//!
//! # Normal operation
//! On several cores memory becomes free once other cores have turned, or have given some back. A PUT or MPUT that finds none until then is
//! kept with what it has not stored yet. It goes on each turn (`later.rs`), and is answered when all is stored, or no memory is to be expected.
//!
//! # Limits
//! What came in messages is kept on the heap: [`OCTETS_MAX`] on a core, beyond which a value is refused. A Call that has waited for
//! [`WAIT_MAX`] waits no more.

use std::collections::VecDeque;
use std::time::Duration;

use haulage::core::Cx;
use haulage::service::CallToken;
use haulage_proto::time::Instant;

use super::leases::Value;
use crate::protocol::{Procedure, Refusal};

/// A value to be stored.
#[derive(Debug)]
pub(super) enum Given<'a> {
    /// In memory in which it can stay.
    Value(Value),
    /// In a message.
    Octets(&'a [u8]),
}

/// The Calls that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) calls: VecDeque<Waiter>,
    /// Those that go on with an answer.
    pub(super) answered: Vec<Waiter>,
    /// The octets of keys and values that are kept on the heap.
    pub(super) octets: usize,
}

/// A Call that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) token: CallToken,
    pub(super) which: Procedure,
    /// When it began to wait.
    pub(super) since: Instant,
    /// What is not stored yet.
    pub(super) pairs: VecDeque<Pair>,
    /// What became of the pairs before.
    pub(super) answers: Vec<Result<(), Refusal>>,
}

/// A key, and a value to be stored, or why it cannot be.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) key: Box<[u8]>,
    pub(super) value: Result<Kept, Refusal>,
}

/// A value, kept.
#[derive(Debug)]
pub(super) enum Kept {
    Value(Value),
    Octets(Box<[u8]>),
}

impl Waiter {
    /// Makes a Call that waits from now on, of which `answers` are known.
    pub(super) fn new(
        cx: &Cx<'_>,
        (token, which): (CallToken, Procedure),
        answers: Vec<Result<(), Refusal>>,
    ) -> Self {
        Self { token, which, since: cx.now(), pairs: VecDeque::new(), answers }
    }

    /// Adds what is to be stored behind the rest.
    pub(super) fn push(&mut self, key: &[u8], value: Result<Given<'_>, Refusal>) {
        self.pairs.push_back(Pair { key: key.into(), value: value.map(Kept::from) });
    }

    /// Returns the octets that it keeps on the heap.
    pub(super) fn octets(&self) -> usize {
        let octets = |pair: &Pair| match &pair.value {
            Ok(Kept::Octets(octets)) => pair.key.len() + octets.len(),
            _ => pair.key.len(),
        };
        self.pairs.iter().map(octets).sum()
    }
}

impl From<Given<'_>> for Kept {
    fn from(given: Given<'_>) -> Self {
        match given {
            Given::Value(value) => Self::Value(value),
            Given::Octets(octets) => Self::Octets(octets.into()),
        }
    }
}

/// The octets of keys and values that wait on a core, at most.
pub(super) const OCTETS_MAX: usize = 8 << 20;
/// How long a Call waits for memory, at most: as long as one whose value has not come yet.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(20);
