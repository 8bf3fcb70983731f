//! The server of the benchmark, which only moves data.
//!
//! # Memory ownership
//! All Replies to READs of one length share one lease, which stays in the cache. The lease of a WRITE returns to the
//! pool at once, which leases it again first.

use haulage::core::{Cx, Service};
use haulage::limits::ITEM_MAX;
use haulage::pool::Shared;
use haulage::service::{Argument, Arguments, Call, Data, Outcome, Program, Reply};
use haulage_proto::rpc::AcceptStat;
use haulage_proto::xdr::Truncated;

use crate::metrics::{Counted, Metric};

use super::protocol::{CoreFigures, ECHO_MAX, NO_SPACE, OK, Procedure, ServerCore, binding};

/// The benchmark's server.
#[derive(Debug)]
pub struct PerfService {
    core: ServerCore,
    /// The items that READs return, the most recently used last.
    items: Vec<Shared>,
}

impl PerfService {
    /// Creates the service of a core, without items.
    pub fn new(core: ServerCore) -> Self {
        Self { core, items: Vec::with_capacity(ITEMS_KEPT) }
    }

    /// Returns an item of this length.
    fn item(&mut self, cx: &Cx<'_>, length: usize) -> Option<Shared> {
        if let Some(last) = self.items.last().filter(|item| item.len() == length) {
            return Some(last.clone());
        }
        if let Some(at) = self.items.iter().position(|item| item.len() == length) {
            let last = self.items.len() - 1;
            self.items.swap(at, last);
            return self.items.last().cloned();
        }
        if self.items.len() == ITEMS_KEPT {
            self.items.remove(0);
        }
        let mut lease = cx.pool().lease(length);
        while lease.is_none() && !self.items.is_empty() {
            self.items.remove(0);
            lease = cx.pool().lease(length);
        }
        let mut lease = lease?;
        lease.bytes_mut().fill(1);
        let item = lease.share();
        self.items.push(item.clone());
        Some(item)
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
const ITEMS_KEPT: usize = 8;
