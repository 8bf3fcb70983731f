//! Posting to a send queue: requests are chained, and handed over with one doorbell.

use haulage_mr_pool::{Sink, Source};
use haulage_proto::verbs::{Exposure, Flags, Handle, Opcode, QpNum, WrId};
use rdma_sys::{ibv_mw_bind_info, ibv_send_flags, ibv_sge};

use super::create::Way;
use super::list::List;
use super::part::{Part, RemoteAddress, Work};
use super::{Held, Posted, QueuePair, QueuePairLimits};
use crate::sys::ibverbs::names::{SEQUENCE_MASK, name_of};
use crate::sys::ibverbs::{AccessGrant, Refused, Region, Window, window};
use crate::work::{Operation, WorkRequest};

/// Storage of the requests that are posted together.
pub(crate) struct Chain {
    parts: Vec<Part>,
    list: List,
}

impl Chain {
    /// Makes storage for as many requests as one doorbell takes.
    pub(crate) fn new() -> Self {
        Self { parts: Vec::with_capacity(CHAIN_MAX), list: List::new(CHAIN_MAX) }
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chain({})", self.parts.len())
    }
}

/// Requests on their way into a send queue. The device gets none of them before [`ring`](Self::ring).
#[derive(Debug)]
pub(crate) struct Doorbell<'w> {
    queue_pair: &'w mut QueuePair,
    chain: &'w mut Chain,
    regions: &'w [Region],
    name: u64,
    /// The windows to be bound, each with its key.
    bound: [Option<(&'w Window, u32)>; CHAIN_MAX],
}

/// Memory that a window is to be bound to, and the key under which the peer will reach it.
#[derive(Debug)]
pub(crate) struct Binding {
    pub(crate) handle: Handle,
    pub(crate) memory: Exposure<Source, Sink>,
}

/// Whether the device carries out a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CarriedOut {
    /// The device carries it out.
    ByDevice,
    /// It has been carried out, or is not for the device, and has only to complete.
    Already,
}

impl QueuePair {
    /// Begins to post. `name` is the queue pair's number, and `regions` hold the memory of the requests.
    pub(crate) fn doorbell<'w>(
        &'w mut self,
        chain: &'w mut Chain,
        regions: &'w [Region],
        name: QpNum,
    ) -> Doorbell<'w> {
        chain.parts.clear();
        let name = name_of(name);
        Doorbell { queue_pair: self, chain, regions, name, bound: [const { None }; CHAIN_MAX] }
    }
}

impl<'w> Doorbell<'w> {
    /// Returns whether `request` can be added.
    pub(crate) fn fits(&self, request: &WorkRequest) -> bool {
        let entries = self.parts(length(&request.operation));
        self.chain.parts.len() + entries as usize <= CHAIN_MAX && self.queue_pair.fits(entries)
    }

    /// Returns the entries of the device's queue not known to be free, including those added here.
    pub(crate) const fn occupied(&self) -> u32 {
        self.queue_pair.occupied()
    }

    /// Returns whether a request of one entry can be added: a binding, or a copy.
    pub(crate) fn fits_one(&self) -> bool {
        self.chain.parts.len() < CHAIN_MAX && self.queue_pair.fits(1)
    }

    /// Adds the binding of a window, for which there is [room](Self::fits_one). If it fails, the connection ends.
    ///
    /// # Errors
    ///
    /// The memory is in no region. The queue pair must be ended.
    pub(crate) fn bind(&mut self, window: &'w Window, binding: Binding) -> Result<(), ()> {
        let Binding { handle, memory } = binding;
        let (addr, octets) = match &memory {
            Exposure::RemoteRead(source) => (source.address(), source.len()),
            Exposure::RemoteWrite(sink) => (sink.address(), sink.len()),
        };
        let region = self.regions.iter().find(|region| region.holds(addr, octets)).ok_or(())?;
        let place = self.bound.iter_mut().find(|place| place.is_none()).ok_or(())?;
        *place = Some((window, handle.0));
        // A window for no octets would not be bound, and its handle be unknown.
        let (addr, length) = if octets == 0 { (region.scrap(), 1) } else { (addr, octets as u64) };
        let bind_info = ibv_mw_bind_info {
            mr: region.raw(),
            addr,
            length,
            mw_access_flags: window::flags(memory.access()),
        };
        window.opened(memory);
        self.chain(Work::Bind(window.raw(), handle, bind_info), None);
        self.finish(Entry::OWN);
        Ok(())
    }

    /// Adds a request that [`fits`](Self::fits).
    ///
    /// # Errors
    ///
    /// The request is invalid. It is recorded as posted, and the queue pair must be ended.
    pub(crate) fn add(&mut self, request: WorkRequest, carried_out: CarriedOut) -> Result<(), ()> {
        let WorkRequest { id, flags, operation } = request;
        let named = Some((id, operation.opcode()));
        self.enter(operation, Entry { named, flags, ..Entry::OWN }, carried_out)
    }

    /// Adds the Send of a copy, for which there is [room](Self::fits_one). No completion reports it.
    ///
    /// # Errors
    ///
    /// The copy is in no region. The queue pair must be ended.
    pub(crate) fn add_copy(
        &mut self,
        source: Source,
        invalidate: Option<Handle>,
    ) -> Result<(), ()> {
        let operation = Operation::Send { source, invalidate };
        self.enter(operation, Entry::OWN, CarriedOut::ByDevice)
    }

    fn enter(
        &mut self,
        operation: Operation,
        mut entry: Entry,
        carried_out: CarriedOut,
    ) -> Result<(), ()> {
        let before = self.chain.parts.len();
        let octets = length(&operation);
        entry.octets = octets;
        let done = match operation {
            Operation::Send { source, invalidate } => {
                let done = self.send(source.address(), octets, invalidate);
                entry.octets = 0;
                entry.held = Held::Source(source);
                done
            }
            Operation::Write { source, target } => {
                let to = RemoteAddress { handle: target.handle(), offset: target.offset() };
                entry.entries = self.parts(octets);
                let memory = (source.address(), octets);
                entry.held = Held::Source(source);
                self.transfer(Work::Write, memory, None, to, target.length())
            }
            Operation::Read { sink, source } => {
                let from = RemoteAddress { handle: source.handle(), offset: source.offset() };
                entry.entries = self.parts(octets);
                let memory = (sink.address(), octets);
                entry.is_told = self.queue_pair.limits.is_iwarp;
                if entry.is_told && octets > 0 {
                    let grant = AccessGrant::sink(&self.queue_pair.domain, &sink);
                    let done = grant.map_err(drop).and_then(|grant| {
                        let lkey = grant.lkey();
                        entry.grant = Some(grant);
                        self.transfer(Work::Read, memory, Some(lkey), from, source.length())
                    });
                    entry.held = Held::Sink(sink);
                    done
                } else {
                    entry.held = Held::Sink(sink);
                    self.transfer(Work::Read, memory, None, from, source.length())
                }
            }
            Operation::LocalInv { handle } => {
                entry.handle = Some(handle);
                let work = match carried_out {
                    CarriedOut::ByDevice => Work::LocalInv(handle),
                    CarriedOut::Already => Work::NOTHING,
                };
                self.chain(work, None);
                Ok(())
            }
        };
        if done.is_err() {
            entry.entries = 0;
            entry.is_told = true;
            self.chain.parts.truncate(before);
        }
        self.finish(entry);
        done
    }

    /// Adds a request that does nothing but complete, after all before it. There is always room for one, but not for
    /// two: returns false if the first is still there.
    pub(crate) fn mark(&mut self) -> bool {
        let queue_pair = &*self.queue_pair;
        if queue_pair.occupied >= queue_pair.limits.send_queue {
            return false;
        }
        self.chain(Work::NOTHING, None);
        let flags = Flags { signaled: true, ..Flags::default() };
        self.finish(Entry { flags, ..Entry::OWN });
        true
    }

    /// Hands everything to the device, and has it tell when it is done with that: entries become free by completions.
    ///
    /// # Errors
    ///
    /// The device refused some or all. Refused requests are recorded as posted, and the queue pair must be ended.
    pub(crate) fn ring(self) -> Result<(), Refused> {
        let Chain { parts, list } = self.chain;
        let Some(last) = parts.last_mut() else { return Ok(()) };
        last.flags |= ibv_send_flags::IBV_SEND_SIGNALED;
        let result = match self.queue_pair.way {
            // SAFETY: the queue pair is live and used by this thread alone. The windows that parts name
            // are borrowed by us, the regions are in `regions`. The octets are of views that lie in
            // `posted`, or in their windows, until the device is done with them.
            Way::List => unsafe { list.post(self.queue_pair.raw(), parts) },
            // SAFETY: as above.
            Way::Extended(extended) => unsafe { extended.post(parts) },
        };
        for (window, key) in self.bound.iter().map_while(Option::as_ref) {
            window.renamed(*key);
        }
        result
    }

    fn send(&mut self, address: u64, octets: u64, invalidate: Option<Handle>) -> Result<(), ()> {
        let piece = self.piece(address, octets, None)?;
        self.chain(invalidate.map_or(Work::Send, Work::SendWithInv), piece);
        Ok(())
    }

    /// Chains an RDMA Write or Read, in as many parts as the device needs. It moves all octets of the peer's memory,
    /// whose number is `length`, or none.
    fn transfer(
        &mut self,
        work: fn(RemoteAddress) -> Work,
        (address, octets): (u64, u64),
        lkey: Option<u32>,
        RemoteAddress { handle, offset }: RemoteAddress,
        length: u32,
    ) -> Result<(), ()> {
        if octets != u64::from(length) {
            return Err(());
        }
        let max = u64::from(self.queue_pair.limits.message_max);
        let mut at = 0;
        loop {
            let part = (octets - at).min(max);
            let piece = self.piece(address + at, part, lkey)?;
            self.chain(work(RemoteAddress { handle, offset: offset.wrapping_add(at) }), piece);
            at += part;
            if at == octets {
                return Ok(());
            }
        }
    }

    /// Returns the entry of a scatter list for octets of a region; `None` for no octets.
    fn piece(&self, addr: u64, octets: u64, lkey: Option<u32>) -> Result<Option<ibv_sge>, ()> {
        if octets == 0 {
            return Ok(None);
        }
        let length = u32::try_from(octets).map_err(drop)?;
        if let Some(lkey) = lkey {
            return Ok(Some(ibv_sge { addr, length, lkey }));
        }
        let count = usize::try_from(octets).map_err(drop)?;
        let region = self.regions.iter().find(|region| region.holds(addr, count)).ok_or(())?;
        Ok(Some(ibv_sge { addr, length, lkey: region.lkey() }))
    }

    fn chain(&mut self, work: Work, piece: Option<ibv_sge>) {
        debug_assert!(self.chain.parts.len() < CHAIN_MAX, "`fits` was asked");
        let mut part = Part::new(work, piece);
        let length = piece.map_or(0, |piece| piece.length);
        if self.queue_pair.limits.copies(&work, length) {
            part.flags |= ibv_send_flags::IBV_SEND_INLINE;
        }
        self.chain.parts.push(part);
    }

    /// Records a request that was chained, and names its last entry.
    fn finish(&mut self, entry: Entry) {
        let Entry { named, flags, octets, handle, entries, is_told, grant, held } = entry;
        let queue_pair = &mut *self.queue_pair;
        queue_pair.next = queue_pair.next.wrapping_add(entries) & SEQUENCE_MASK;
        queue_pair.occupied = queue_pair.occupied.saturating_add(entries);
        let asked = flags.signaled || is_told;
        let last = queue_pair.next.wrapping_sub(1) & SEQUENCE_MASK;
        let added = self.chain.parts.len().saturating_sub(entries as usize);
        let parts = self.chain.parts.get_mut(added..).unwrap_or_default();
        mark(parts, self.name | u64::from(last), Flags { signaled: asked, ..flags });
        let is_signaled = flags.signaled;
        let posted = Posted {
            named,
            is_signaled,
            handle,
            octets,
            entries,
            last,
            is_told,
            status: None,
            _grant: grant,
            _held: held,
        };
        queue_pair.posted.push_back(posted);
    }

    /// Returns how many entries of the device's queue a transfer of `octets` takes.
    fn parts(&self, octets: u64) -> u32 {
        let parts = octets.div_ceil(u64::from(self.queue_pair.limits.message_max)).max(1);
        u32::try_from(parts).unwrap_or(u32::MAX)
    }
}

impl QueuePairLimits {
    /// Returns whether `length` octets are sent from within the queue.
    fn copies(&self, work: &Work, length: u32) -> bool {
        let may = match work {
            Work::Send | Work::Write(_) => true,
            Work::SendWithInv(_) => !self.is_iwarp,
            Work::Read(_) | Work::Bind(..) | Work::LocalInv(_) => false,
        };
        may && length > 0 && length <= self.copied_max
    }
}

/// A request that is being added.
struct Entry {
    named: Option<(WrId, Opcode)>,
    flags: Flags,
    octets: u64,
    handle: Option<Handle>,
    entries: u32,
    is_told: bool,
    grant: Option<AccessGrant>,
    held: Held,
}

impl Entry {
    /// A request of the provider's own, of one entry.
    const OWN: Self = Self {
        named: None,
        flags: Flags { signaled: false, fence: false, copied: false },
        octets: 0,
        handle: None,
        entries: 1,
        is_told: false,
        grant: None,
        held: Held::Nothing,
    };
}

/// Names the parts of one request. The first part carries the fence, the last the completion.
fn mark(parts: &mut [Part], name: u64, flags: Flags) {
    parts.iter_mut().for_each(|part| part.name = name);
    if let Some(first) = parts.first_mut().filter(|_| flags.fence) {
        first.flags |= ibv_send_flags::IBV_SEND_FENCE;
    }
    if let Some(last) = parts.last_mut().filter(|_| flags.signaled) {
        last.flags |= ibv_send_flags::IBV_SEND_SIGNALED;
    }
}

fn length(operation: &Operation) -> u64 {
    let octets = match operation {
        Operation::Send { source, .. } | Operation::Write { source, .. } => source.len(),
        Operation::Read { sink, .. } => sink.len(),
        Operation::LocalInv { .. } => 0,
    };
    octets as u64
}

/// The most requests posted with one doorbell.
const CHAIN_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_part_is_fenced_and_the_last_tells() {
        let (fence, tells) = (ibv_send_flags::IBV_SEND_FENCE, ibv_send_flags::IBV_SEND_SIGNALED);
        let marked = |count: usize, fence, signaled| -> Vec<_> {
            let mut parts = vec![Part::new(Work::Send, None); count];
            mark(&mut parts, 7, Flags { fence, signaled, ..Flags::default() });
            assert!(parts.iter().all(|part| part.name == 7));
            parts.iter().map(|part| part.flags.0).collect()
        };
        assert_eq!(marked(3, true, true), [fence.0, 0, tells.0]);
        assert_eq!(marked(1, true, true), [(fence | tells).0]);
        assert_eq!(marked(2, false, true), [0, tells.0]);
        assert_eq!(marked(2, true, false), [fence.0, 0]);
        assert_eq!(marked(0, true, true), [0; 0]);
    }

    #[test]
    fn short_octets_that_leave_us_do_so_from_within_the_queue() {
        let mut limits = QueuePairLimits {
            send_queue: 1,
            receive_queue: 0,
            copied_max: 64,
            message_max: 1,
            is_iwarp: false,
            posting: super::super::Posting::List,
        };
        let address = RemoteAddress { handle: Handle(1), offset: 0 };
        let with_inv = Work::SendWithInv(Handle(1));
        for work in [Work::Send, Work::Write(address), with_inv] {
            let takes = [0, 1, 64, 65].map(|length| limits.copies(&work, length));
            assert_eq!(takes, [false, true, true, false]);
        }
        assert!(!limits.copies(&Work::Read(address), 8), "they come to us");
        limits.is_iwarp = true;
        assert!(!limits.copies(&with_inv, 8), "what iWARP devices are not asked for");
        assert!(limits.copies(&Work::Send, 8));
    }
}
