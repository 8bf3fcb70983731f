//! The server of the benchmark, which only moves data.
//!
//! # Memory ownership
//! READs return a few leases in turn, as many as Calls are in flight, as the WRITEs of as many Calls are sent from leases of
//! their own: one lease alone would stay in the cache nearest to the sender, and READs would seem faster than WRITEs. The
//! lease of a WRITE returns to the pool at once, which leases it again first.

use std::collections::VecDeque;

use haulage::core::{Cx, Service};
use haulage::limits::ITEM_MAX;
use haulage::pool::Shared;
use haulage::service::{Argument, Arguments, Call, Data, Outcome, Program, Reply};
use haulage_proto::rpc::AcceptStat;
use haulage_proto::xdr::Truncated;

use crate::metrics::{Counted, Metric};

use super::plan::Room;
use super::protocol::{CoreFigures, ECHO_MAX, NO_SPACE, OK, Procedure, ServerCore, binding};

/// The benchmark's server.
#[derive(Debug)]
pub struct PerfService {
    core: ServerCore,
    /// How many leases READs of one length return in turn, at most.
    in_turn: usize,
    /// Octets of all leases that READs return.
    octets_max: usize,
    /// The items that READs return, those of the most recently used length last.
    items: Vec<Items>,
}

/// The items of one length.
#[derive(Debug)]
struct Items {
    length: usize,
    /// The one that was sent longest ago comes first.
    leases: VecDeque<Shared>,
}

impl Items {
    fn octets(&self) -> usize {
        self.length * self.leases.len()
    }
}

impl PerfService {
    /// Creates the service of a core with these resources, without items.
    pub fn new(core: ServerCore, room: Room) -> Self {
        let in_turn = (room.in_flight as usize).clamp(1, IN_TURN_MAX);
        // The rest is for WRITEs.
        let octets_max = room.memory / 2;
        Self { core, in_turn, octets_max, items: Vec::new() }
    }

    /// Returns an item of this length: the next in turn.
    fn item(&mut self, cx: &Cx<'_>, length: usize) -> Option<Shared> {
        let kept = self.items.iter().position(|items| items.length == length);
        let mut items = match kept {
            Some(at) => self.items.remove(at),
            None => Items { length, leases: VecDeque::new() },
        };
        let in_turn = self.in_turn.min(self.octets_max / length).max(1);
        while items.leases.len() < in_turn {
            let others: usize = self.items.iter().map(Items::octets).sum();
            let is_room = others + items.octets() + length <= self.octets_max;
            let lease = if is_room || others == 0 { cx.pool().lease(length) } else { None };
            match lease {
                Some(mut lease) => {
                    lease.bytes_mut().fill(1);
                    items.leases.push_back(lease.share());
                }
                None if others == 0 => break,
                None => {
                    self.items.remove(0);
                }
            }
        }
        let next = items.leases.pop_front()?;
        items.leases.push_back(next.clone());
        if self.items.len() == LENGTHS_KEPT {
            self.items.remove(0);
        }
        self.items.push(items);
        Some(next)
    }

    fn read(
        &mut self,
        cx: &Cx<'_>,
        arguments: &mut Arguments<'_>,
        reply: &mut Reply,
    ) -> Result<(), Truncated> {
        let length = arguments.u32()? as usize;
        let item = if (1..=ITEM_MAX).contains(&length) { self.item(cx, length) } else { None };
        let Some(item) = item else {
            reply.results(|w| w.u32(NO_SPACE));
            return Ok(());
        };
        reply.results(|w| w.u32(OK));
        reply.item(Data::Shared(item));
        Ok(())
    }
}

impl Counted for PerfService {
    fn metrics(&self, _: &Cx<'_>) -> Vec<Metric> {
        Vec::new()
    }
}

impl Service for PerfService {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        let arguments = &mut call.arguments;
        let done = match Procedure::from_number(call.procedure) {
            Some(Procedure::Null) => Ok(()),
            Some(Procedure::Read) => self.read(cx, arguments, reply),
            Some(Procedure::Write) => write(arguments, reply),
            Some(Procedure::Echo) => echo(cx, arguments, reply),
            Some(Procedure::Figures) => {
                let figures = CoreFigures::of(cx, self.core);
                reply.results(|w| figures.encode(w));
                Ok(())
            }
            None => return Outcome::Failed(AcceptStat::ProcUnavail),
        };
        match done {
            Ok(()) if arguments.is_empty() => Outcome::Done,
            _ => Outcome::Failed(AcceptStat::GarbageArgs),
        }
    }
}

fn write(arguments: &mut Arguments<'_>, reply: &mut Reply) -> Result<(), Truncated> {
    let status = match arguments.item(ITEM_MAX)? {
        Argument::Placed(_) | Argument::Unreduced(_) => OK,
        Argument::Refused { .. } => NO_SPACE,
    };
    reply.results(|w| w.u32(status));
    Ok(())
}

fn echo(
    cx: &mut Cx<'_>,
    arguments: &mut Arguments<'_>,
    reply: &mut Reply,
) -> Result<(), Truncated> {
    let data = arguments.opaque(ECHO_MAX)?;
    cx.count_unreduced(data.len() as u64);
    reply.results(|w| w.opaque(data));
    Ok(())
}

/// Maximum number of lengths whose items are kept.
const LENGTHS_KEPT: usize = 8;
/// Maximum number of leases that READs of one length return in turn.
const IN_TURN_MAX: usize = 8;
