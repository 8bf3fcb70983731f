//! Posting to a send queue: requests are chained, and handed over with one doorbell.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;

use haulage_mr_pool::{Sink, Source};
use haulage_proto::verbs::{Exposure, Flags, Handle, Opcode, QpNum, WrId};
use rdma_sys::{
    bind_mw_t, ibv_mw_bind_info, ibv_post_send, ibv_send_flags, ibv_send_wr, ibv_sge,
    ibv_wr_opcode, imm_data_invalidated_rkey_union_t, rdma_t,
};

use super::{Held, Posted, QueuePair, SEQUENCE_BITS, SEQUENCE_MASK};
use crate::provider::{Operation, WorkRequest};
use crate::sys::ibverbs::{Grant, Refused, Region, Window, window};

/// Storage of the requests that are posted together.
pub(crate) struct Chain {
    requests: Vec<ibv_send_wr>,
    /// What each of them gathers or scatters, if anything, by the same index.
    pieces: Vec<ibv_sge>,
}

impl Chain {
    /// Makes storage for as many requests as one doorbell takes.
    pub(crate) fn new() -> Self {
        Self { requests: Vec::with_capacity(CHAIN_MAX), pieces: Vec::with_capacity(CHAIN_MAX) }
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Chain({})", self.requests.len())
    }
}

/// Requests that are on their way into a send queue. Nothing of them happens before
/// [`ring`](Self::ring).
#[derive(Debug)]
pub(crate) struct Doorbell<'w> {
    queue_pair: &'w mut QueuePair,
    chain: &'w mut Chain,
    regions: &'w [Region],
    name: u64,
    /// Windows to be bound, and by which keys.
    bound: [Option<(&'w Window, u32)>; CHAIN_MAX],
}

/// What a request is about, beside its memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject<'w> {
    /// Nothing.
    Nothing,
    /// The window that a FastReg binds.
    Window(&'w Window),
    /// The registration that a FastReg fills: it is done, and has only to complete.
    Grant(&'w Grant),
    /// The request is done already, or is not the device's, and has only to complete.
    Done,
}

impl QueuePair {
    /// Begins to post. What is posted is named by `name`, and lies in `regions`.
    pub(crate) fn doorbell<'w>(
        &'w mut self,
        chain: &'w mut Chain,
        regions: &'w [Region],
        name: QpNum,
    ) -> Doorbell<'w> {
        chain.requests.clear();
        chain.pieces.clear();
        let name = name_of(name);
        Doorbell { queue_pair: self, chain, regions, name, bound: [const { None }; CHAIN_MAX] }
    }
}

impl<'w> Doorbell<'w> {
    /// Tells whether `request` can be added.
    pub(crate) fn fits(&self, request: &WorkRequest) -> bool {
        let entries = self.parts(length(&request.operation));
        self.chain.requests.len() + entries as usize <= CHAIN_MAX && self.queue_pair.fits(entries)
    }

    /// Returns the entries of the device's queue not known to be free, these included.
    pub(crate) const fn occupied(&self) -> u32 {
        self.queue_pair.occupied()
    }

    /// Adds a request that [`fits`](Self::fits).
    ///
    /// # Errors
    ///
    /// The request itself is wrong. It is remembered as posted, and the queue pair must go.
    pub(crate) fn add(&mut self, request: WorkRequest, subject: Subject<'w>) -> Result<(), ()> {
        let WorkRequest { id, flags, operation } = request;
        let before = self.chain.requests.len();
        let opcode = operation.opcode();
        let octets = length(&operation);
        let mut entry = Entry {
            id,
            flags,
            octets,
            handle: None,
            entries: 1,
            is_told: false,
            grant: None,
            held: Held::Nothing,
        };
        let done = match operation {
            Operation::Send { source, invalidate } => {
                let done = self.send(source.address(), octets, invalidate);
                entry.octets = 0;
                entry.held = Held::Source(source);
                done
            }
            Operation::Write { source, target } => {
                let to = (target.handle(), target.offset());
                let agree = octets == u64::from(target.length());
                entry.entries = self.parts(octets);
                let memory = (source.address(), octets);
                entry.held = Held::Source(source);
                self.transfer(ibv_wr_opcode::IBV_WR_RDMA_WRITE, memory, None, to, agree)
            }
            Operation::Read { sink, source } => {
                let from = (source.handle(), source.offset());
                let agree = octets == u64::from(source.length());
                entry.entries = self.parts(octets);
                let memory = (sink.address(), octets);
                let opcode = ibv_wr_opcode::IBV_WR_RDMA_READ;
                entry.is_told = self.queue_pair.limits.is_iwarp;
                if entry.is_told && octets > 0 {
                    let grant = Grant::sink(&self.queue_pair.domain, &sink);
                    let done = grant.map_err(drop).and_then(|grant| {
                        let lkey = grant.lkey();
                        entry.grant = Some(grant);
                        self.transfer(opcode, memory, Some(lkey), from, agree)
                    });
                    entry.held = Held::Sink(sink);
                    done
                } else {
                    entry.held = Held::Sink(sink);
                    self.transfer(opcode, memory, None, from, agree)
                }
            }
            Operation::FastReg { handle, memory, .. } => {
                entry.octets = 0;
                match subject {
                    Subject::Window(window) => self.bind(window, handle, memory),
                    Subject::Grant(grant) => {
                        grant.opened(memory);
                        entry.entries = self.complete_only(flags);
                        Ok(())
                    }
                    Subject::Done => {
                        entry.entries = self.complete_only(flags);
                        Ok(())
                    }
                    Subject::Nothing => Err(()),
                }
            }
            Operation::LocalInv { handle } => {
                entry.handle = Some(handle);
                let mut request = blank(ibv_wr_opcode::IBV_WR_LOCAL_INV);
                request.imm_data_invalidated_rkey_union = key(handle);
                let nothing = blank(ibv_wr_opcode::IBV_WR_RDMA_WRITE);
                let is_done = matches!(subject, Subject::Done);
                self.chain(if is_done { nothing } else { request }, None);
                Ok(())
            }
        };
        if done.is_err() {
            entry.entries = 0;
            entry.is_told = true;
            self.chain.requests.truncate(before);
            self.chain.pieces.truncate(before);
        }
        self.finish(entry, opcode);
        done
    }

    /// Adds a request that does nothing but complete, after all before it. There is always room for
    /// one, but not for two: returns false if the first is still there.
    pub(crate) fn mark(&mut self) -> bool {
        let queue_pair = &*self.queue_pair;
        if queue_pair.occupied >= queue_pair.limits.send_queue {
            return false;
        }
        self.chain(blank(ibv_wr_opcode::IBV_WR_RDMA_WRITE), None);
        let flags = Flags { signaled: true, ..Flags::default() };
        let (id, held) = (WrId(0), Held::Nothing);
        let entry = Entry {
            id,
            flags,
            octets: 0,
            handle: None,
            entries: 1,
            is_told: false,
            grant: None,
            held,
        };
        self.finish(entry, Opcode::Write);
        if let Some(posted) = self.queue_pair.posted.back_mut() {
            posted.is_mark = true;
        }
        true
    }

    /// Hands everything to the device.
    ///
    /// # Errors
    ///
    /// The device refused, some or all. What it refused is remembered as posted, and the queue pair
    /// must go.
    pub(crate) fn ring(self) -> Result<(), Refused> {
        let Chain { requests, pieces } = self.chain;
        let mut next = ptr::null_mut();
        for (request, piece) in requests.iter_mut().zip(pieces.iter_mut()).rev() {
            request.next = next;
            request.sg_list = if request.num_sge == 0 { ptr::null_mut() } else { piece };
            next = ptr::from_mut(request);
        }
        if next.is_null() {
            return Ok(());
        }
        let mut refused = ptr::null_mut();
        // SAFETY: the queue pair is live and used by this thread alone. Requests and pieces are live for
        // the call, which copies them; the windows they name are borrowed by us. The octets they name
        // are of views that lie in `posted`, or in their windows, until the device is done with them.
        let result = unsafe { ibv_post_send(self.queue_pair.raw(), next, &raw mut refused) };
        for (window, key) in self.bound.iter().map_while(Option::as_ref) {
            window.renamed(*key);
        }
        Refused::check("posting to a send queue", result)
    }

    fn send(&mut self, address: u64, octets: u64, invalidate: Option<Handle>) -> Result<(), ()> {
        let mut request = blank(ibv_wr_opcode::IBV_WR_SEND);
        if let Some(handle) = invalidate {
            request.opcode = ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
            request.imm_data_invalidated_rkey_union = key(handle);
            // Where soft-iWARP's library looks for it.
            request.wr.rdma = rdma_t { remote_addr: 0, rkey: handle.0 };
        }
        let piece = self.piece(address, octets, None)?;
        self.chain(request, piece);
        Ok(())
    }

    /// Chains an RDMA Write or Read, in as many parts as the device wants it.
    fn transfer(
        &mut self,
        opcode: ibv_wr_opcode::Type,
        (address, octets): (u64, u64),
        lkey: Option<u32>,
        (handle, offset): (Handle, u64),
        agree: bool,
    ) -> Result<(), ()> {
        if !agree {
            return Err(());
        }
        let max = u64::from(self.queue_pair.limits.message_max);
        let mut at = 0;
        loop {
            let part = (octets - at).min(max);
            let piece = self.piece(address + at, part, lkey)?;
            let mut request = blank(opcode);
            request.wr.rdma = rdma_t { remote_addr: offset.wrapping_add(at), rkey: handle.0 };
            self.chain(request, piece);
            at += part;
            if at == octets {
                return Ok(());
            }
        }
    }

    fn bind(
        &mut self,
        window: &'w Window,
        handle: Handle,
        memory: Exposure<Source, Sink>,
    ) -> Result<(), ()> {
        let (addr, octets) = match &memory {
            Exposure::RemoteRead(source) => (source.address(), source.len()),
            Exposure::RemoteWrite(sink) => (sink.address(), sink.len()),
        };
        let region = self.regions.iter().find(|region| region.holds(addr, octets)).ok_or(())?;
        let place = self.bound.iter_mut().find(|place| place.is_none()).ok_or(())?;
        *place = Some((window, handle.0));
        // A window for nothing would be no window, and its handle unknown.
        let (addr, length) = if octets == 0 { (region.scrap(), 1) } else { (addr, octets as u64) };
        let bind_info = ibv_mw_bind_info {
            mr: region.raw(),
            addr,
            length,
            mw_access_flags: window::flags(memory.access()),
        };
        let mut request = blank(ibv_wr_opcode::IBV_WR_BIND_MW);
        let mw = window.raw();
        request.bind_mw_tso_union.bind_mw = bind_mw_t { mw, rkey: handle.0, bind_info };
        window.opened(memory);
        self.chain(request, None);
        Ok(())
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

    /// Chains what completes in its turn, if that is asked for; returns how many entries that takes.
    fn complete_only(&mut self, flags: Flags) -> u32 {
        if flags.signaled {
            self.chain(blank(ibv_wr_opcode::IBV_WR_RDMA_WRITE), None);
        }
        u32::from(flags.signaled)
    }

    fn chain(&mut self, mut request: ibv_send_wr, piece: Option<ibv_sge>) {
        debug_assert!(self.chain.requests.len() < CHAIN_MAX, "`fits` was asked");
        request.num_sge = c_int::from(piece.is_some());
        let length = piece.map_or(0, |piece| piece.length);
        let reads = request.opcode == ibv_wr_opcode::IBV_WR_RDMA_READ;
        let limits = &self.queue_pair.limits;
        let invalidates = request.opcode == ibv_wr_opcode::IBV_WR_SEND_WITH_INV;
        let inline = !(reads || invalidates && limits.is_iwarp);
        if inline && length > 0 && length <= limits.inline_max {
            request.send_flags |= ibv_send_flags::IBV_SEND_INLINE.0;
        }
        self.chain.requests.push(request);
        self.chain.pieces.push(piece.unwrap_or(ibv_sge { addr: 0, length: 0, lkey: 0 }));
    }

    /// Remembers a request that was chained, and names its last entry.
    fn finish(&mut self, entry: Entry, opcode: Opcode) {
        let Entry { id, flags, octets, handle, entries, is_told, grant, held } = entry;
        let queue_pair = &mut *self.queue_pair;
        queue_pair.next = queue_pair.next.wrapping_add(entries) & SEQUENCE_MASK;
        queue_pair.occupied = queue_pair.occupied.saturating_add(entries);
        queue_pair.quiet = queue_pair.quiet.saturating_add(entries);
        // Places come back with completions: there must be some.
        let asked =
            flags.signaled || is_told || queue_pair.quiet > queue_pair.limits.send_queue / 2;
        let last = queue_pair.next.wrapping_sub(1) & SEQUENCE_MASK;
        let added = self.chain.requests.len().saturating_sub(entries as usize);
        for request in self.chain.requests.iter_mut().skip(added) {
            request.wr_id = self.name | u64::from(last);
        }
        if flags.fence
            && let Some(first) = self.chain.requests.get_mut(added)
        {
            first.send_flags |= ibv_send_flags::IBV_SEND_FENCE.0;
        }
        if entries > 0
            && asked
            && let Some(request) = self.chain.requests.last_mut()
        {
            request.send_flags |= ibv_send_flags::IBV_SEND_SIGNALED.0;
            queue_pair.quiet = 0;
        }
        let is_signaled = flags.signaled;
        let posted = Posted {
            id,
            opcode,
            is_signaled,
            is_mark: false,
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

/// A request that is being added.
struct Entry {
    id: WrId,
    flags: Flags,
    octets: u64,
    handle: Option<Handle>,
    entries: u32,
    is_told: bool,
    grant: Option<Grant>,
    held: Held,
}

/// Returns the name of a queue pair's requests, without their numbers.
pub(in super::super) fn name_of(qp: QpNum) -> u64 {
    let number = u64::from(qp.generation()) << 16 | qp.slot() as u64;
    number << SEQUENCE_BITS
}

/// Returns which queue pair, by slot and generation, and which of its entries a completion names.
pub(crate) fn sequence_of(name: u64) -> (QpNum, u32) {
    let number = name >> SEQUENCE_BITS;
    let low = |value: u64| u16::try_from(value & 0xffff).unwrap_or_default();
    let sequence = u32::try_from(name & u64::from(SEQUENCE_MASK)).unwrap_or_default();
    (QpNum::new(low(number), low(number >> 16)), sequence)
}

fn length(operation: &Operation) -> u64 {
    let octets = match operation {
        Operation::Send { source, .. } | Operation::Write { source, .. } => source.len(),
        Operation::Read { sink, .. } => sink.len(),
        Operation::FastReg { .. } | Operation::LocalInv { .. } => 0,
    };
    octets as u64
}

fn blank(opcode: ibv_wr_opcode::Type) -> ibv_send_wr {
    // SAFETY: it is integers, pointers that may be null, and unions of these.
    let mut request: ibv_send_wr = unsafe { MaybeUninit::zeroed().assume_init() };
    request.opcode = opcode;
    request
}

const fn key(handle: Handle) -> imm_data_invalidated_rkey_union_t {
    imm_data_invalidated_rkey_union_t { invalidated_rkey: handle.0 }
}

/// Requests posted with one doorbell, at most.
const CHAIN_MAX: usize = 64;
