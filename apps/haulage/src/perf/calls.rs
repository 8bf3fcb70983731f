//! The Calls of the tests of `haulage perf`.
//!
//! # Memory ownership
//! Each slot reuses its lease for the item of one Call after another, so that the leases, as many as Calls in flight,
//! stay in the cache.

use haulage::core::Cx;
use haulage::pool::Local;
use haulage::proto::chunk::{Item, PayloadReader};
use haulage::service::{CallError, ConnectionId, Finished, Request};

use super::load::{Stopped, Work};
use super::plan::Plan;
use super::protocol::{OK, Procedure};
use crate::cli::perf::Test;

/// The Calls of one test.
#[derive(Clone, Debug)]
pub struct Calls {
    test: Test,
    /// Octets of each item.
    size: usize,
    /// Whether to sum every octet, and compare the sum with the expected one.
    touch: bool,
    /// The data of an echo.
    echo: Vec<u8>,
}

impl Calls {
    /// Creates the Calls of `test` for a plan.
    pub fn new(test: Test, plan: &Plan) -> Self {
        let Plan { size, touch, .. } = *plan;
        let echo = if test == Test::Inline { vec![1; size] } else { Vec::new() };
        Self { test, size, touch, echo }
    }

    /// Checks that an item arrived whole, and prepares its lease for the next one.
    fn received(
        &self,
        results: &mut PayloadReader<'_>,
        mut lease: Local,
    ) -> Result<Local, Stopped> {
        status(results)?;
        let length = match results.eligible_opaque(0).map_err(|_| Stopped::BadReply)? {
            Item::Reduced { length } => length,
            Item::Unreduced(octets) => octets.len() as u64,
        };
        if length != self.size as u64 || lease.len() != self.size {
            return Err(Stopped::BadReply);
        }
        if self.touch && sum(lease.bytes()) != sum_of_ones(self.size) {
            return Err(Stopped::BadReply);
        }
        lease.set_len(self.size);
        Ok(lease)
    }
}

impl Work for Calls {
    type Slot = Option<Local>;

    const FIGURES: u32 = Procedure::Figures as u32;

    fn slot(&mut self, cx: &Cx<'_>) -> Option<Option<Local>> {
        if !matches!(self.test, Test::Read | Test::Write) {
            return Some(None);
        }
        let mut lease = cx.pool().lease(self.size)?;
        // Received items are all ones; zeros would show that nothing was placed.
        lease.bytes_mut().fill(u8::from(self.test == Test::Write));
        Some(Some(lease))
    }

    #[inline]
    fn make(
        &mut self,
        cx: &mut Cx<'_>,
        connection: ConnectionId,
        slot: &mut Option<Local>,
        token: u64,
    ) -> Result<(), CallError> {
        let plain = |procedure| Request::new(procedure as u32);
        let made = match self.test {
            Test::Null => cx.call(connection, plain(Procedure::Null), token, |_| Ok(())),
            Test::Read => {
                let request = plain(Procedure::Read).room(slot.take());
                let length = u32::try_from(self.size).unwrap_or(u32::MAX);
                cx.call(connection, request, token, |w| w.u32(length))
            }
            Test::Write => {
                let request = plain(Procedure::Write).argument(slot.take());
                if let Some(argument) = request.arguments.first().filter(|_| self.touch) {
                    std::hint::black_box(sum(argument.lease.bytes()));
                }
                cx.call(connection, request, token, |_| Ok(()))
            }
            Test::Inline => {
                cx.call(connection, plain(Procedure::Echo), token, |w| w.opaque(&self.echo))
            }
        };
        made.map_err(|(error, _)| error)
    }

    #[inline]
    fn ended(
        &mut self,
        cx: &mut Cx<'_>,
        slot: &mut Option<Local>,
        finished: Finished<'_>,
    ) -> Result<(), Stopped> {
        match self.test {
            Test::Null => Ok(finished.results.map(drop)?),
            _ => self.moved(cx, slot, finished),
        }
    }
}

impl Calls {
    /// Checks the results of a Call that moved an item.
    fn moved(
        &self,
        cx: &mut Cx<'_>,
        slot: &mut Option<Local>,
        finished: Finished<'_>,
    ) -> Result<(), Stopped> {
        let Finished { results, arguments, rooms } = finished;
        let mut results = results?;
        match self.test {
            Test::Null => {}
            Test::Read => {
                let lease = rooms.into_first().ok_or(Stopped::BadReply)?;
                *slot = Some(self.received(&mut results, lease)?);
            }
            Test::Write => {
                *slot = arguments.into_first();
                status(&mut results)?;
            }
            Test::Inline => {
                let octets = results.opaque(self.size).map_err(|_| Stopped::BadReply)?;
                if octets.len() != self.size {
                    return Err(Stopped::BadReply);
                }
                if self.touch && sum(octets) != sum_of_ones(self.size) {
                    return Err(Stopped::BadReply);
                }
                // The echo was copied into the Call; the results were read in place.
                cx.count_unreduced(octets.len() as u64);
            }
        }
        Ok(())
    }
}

fn status(results: &mut PayloadReader<'_>) -> Result<(), Stopped> {
    match results.u32() {
        Ok(OK) => Ok(()),
        Ok(_) => Err(Stopped::Refused(
            "no memory for items of this size; raise --memory of `haulage perf serve`".to_owned(),
        )),
        Err(_) => Err(Stopped::BadReply),
    }
}

/// Returns a checksum: the wrapping sum of the little-endian 64-bit words, and of the octets behind the last one.
fn sum(octets: &[u8]) -> u64 {
    let (words, rest) = octets.as_chunks();
    let words = words.iter().fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let rest = rest.iter().fold(0_u64, |sum, octet| sum.wrapping_add(u64::from(*octet)));
    words.wrapping_add(rest)
}

/// Returns the [`sum`] of an item of `size` octets, each of value one, as both ends fill items.
fn sum_of_ones(size: usize) -> u64 {
    let words = u64::from_le_bytes([1; 8]).wrapping_mul(size as u64 / 8);
    words.wrapping_add(size as u64 % 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ones_are_told_from_what_has_one_octet_wrong() {
        for size in [0, 1, 7, 8, 9, 4096, 5001] {
            let mut octets = vec![1; size];
            assert_eq!(sum(&octets), sum_of_ones(size), "{size}");
            if let Some(last) = octets.last_mut() {
                *last = 0;
                assert_ne!(sum(&octets), sum_of_ones(size), "{size}");
            }
        }
    }
}
