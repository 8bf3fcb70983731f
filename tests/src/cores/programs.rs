//! The Calls that clients make, and the checks of their results.
//!
//! - [`exercise`]: asks for results whose every octet is known.
//! - [`mod@kv`]: stores values and fetches them.
//! - [`mod@nfs`]: writes files and reads them.

pub mod exercise;
pub mod kv;
pub mod nfs;

use std::fmt::Debug;

use haulage::core::CoreNumber;
use haulage::pool::{Local, Pool};
use haulage::service::{Finished, Request};
use haulage_store::client::File;

use super::mix::Mix;
use crate::world::choices::Choices;

/// The Calls of one client on one link, and their expected results.
pub trait Program: Debug {
    /// Draws the next Call; `None` if the pool has no room for its items, or nothing can be asked now.
    fn draw(&mut self, choices: &mut Choices, pool: &Pool, token: u64) -> Option<Drawn>;

    /// Forgets a Call that could not be made.
    fn withdraw(&mut self, token: u64);

    /// Checks the end of a Call. Returns a description of a Call that failed as only a lost connection allows.
    ///
    /// # Panics
    /// If the Call ended with wrong results.
    fn ended(&mut self, token: u64, finished: &mut Finished<'_>, mix: &mut Mix) -> Option<String>;

    /// Returns the core that served a Call, if the program knows.
    fn served_by(&self, token: u64) -> Option<CoreNumber> {
        let _ = token;
        None
    }

    /// Tells the program that the server was built again and kept nothing. A file server's new root is `root`.
    fn restarted(&mut self, root: Option<File>) {
        let _ = root;
    }
}

/// A Call that is to be made.
#[derive(Debug)]
pub struct Drawn {
    /// The procedure and the items.
    pub request: Request,
    /// The other arguments.
    pub arguments: Vec<u8>,
}

/// Leases memory that holds `octets`.
pub fn holding(pool: &Pool, octets: &[u8]) -> Option<Local> {
    let mut lease = pool.lease(octets.len())?;
    lease.bytes_mut().copy_from_slice(octets);
    Some(lease)
}

/// Draws a length of at most `max`: none, short, or any.
pub fn length(choices: &mut Choices, max: usize) -> usize {
    match choices.below(8) {
        0 => 0,
        1 | 2 => choices.of(1..=max.min(64)),
        3..=5 => choices.of(1..=max.min(8192)),
        _ => choices.of(1..=max),
    }
}
