//! The limits, abilities and counters of a provider.

use haulage_mr_pool::Strategy;

use super::newcomers::Newcomers;
use crate::counts::counts;

/// Limits and abilities of a provider.
#[derive(Clone, Debug)]
pub struct Caps {
    /// The provider's name, as the command line spells it.
    pub name: &'static str,
    /// Queue pairs that can exist at once; their slot numbers are smaller than this.
    pub queue_pairs_max: usize,
    /// Work requests that one send queue holds: no fewer than the longest run of which only the last is signaled, a
    /// Reply behind the Writes of its result.
    pub send_queue_max: usize,
    /// Octets of the longest [`Port::read`](super::Port::read); zero if there is none.
    pub read_max: u32,
    /// Octets of the longest message that is sent so that its data items need no RDMA Read of their own; zero where a Read
    /// costs no round trip.
    pub placing_max: u32,
    /// Events that one turn of a core takes: enough for doorbells to cost little, and few enough that the peer has the
    /// first answers while later Calls are served.
    pub turn_events: usize,
    /// Receives that can be posted at once, in all: the shared queue holds as many.
    pub receive_queue_max: usize,
    /// Receives one queue pair may have reserved, if each has a queue of its own (line 25); `None` if they
    /// share one.
    pub receives_each: Option<usize>,
    /// Registrations that can be in flight at once.
    pub registrations_max: usize,
    /// RDMA Reads a connection may have outstanding as Requester (ORD), before negotiation.
    pub ord_max: u32,
    /// RDMA Reads a connection may serve at once (IRD), before negotiation.
    pub ird_max: u32,
    /// The strategy by which memory is exposed to a peer.
    pub strategy: Strategy,
    /// The library's name for the way in which work requests are handed to the device, if there is more than one.
    pub posting: Option<&'static str>,
    /// The parts of the contract that the device keeps.
    pub promises: Promises,
}

/// The parts of the contract of [`Provider`](super::Provider) that not every device keeps. Each field says whether this
/// device keeps that part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// A peer is held to the range it was granted (line 20). Where this is false, a peer reaches the memory around the
    /// range: the device is for tests, and for peers that are trusted.
    pub exact_bounds: bool,
    /// A peer is held to the access it was granted (line 20).
    pub exact_access: bool,
    /// A peer's Send with Invalidate is reported (line 21). Where this is false, handles are retired by LocalInv,
    /// whatever the peer did.
    pub remote_invalidation: bool,
    /// A handle is valid for the range and access announced with it, from [`Port::open`](super::Port::open) to
    /// invalidation, and octets that a peer may write and does not stay as they were (lines 19 to 21). Where this is
    /// false, handles name memory set apart for their connection: a peer that uses one early, late or beyond its range
    /// reaches no lease, but may spoil data that its own connection receives. Octets that it does not write are then
    /// zero, or octets that it wrote before.
    pub handles_end: bool,
    /// The octets that a peer's Writes place under a handle are counted (`Sink::count_placed`), so that a Reply that
    /// claims more octets than were sent is detected. Octets placed twice count twice: a peer whose Writes overlap can
    /// still claim octets that it did not place. Where this is false, because the peer or a device places the octets, a
    /// Reply is believed: the Requester of a peer that lies takes the earlier contents of the lease for a result.
    pub counts_placed: bool,
    /// A Send that finds no Receive waits for one (line 16), rather than ending the connection.
    pub sends_wait: bool,
    /// The Reads that the passive end grants are announced to the active end (line 3).
    pub grants_reads: bool,
    /// Each end learns that a connection ended because the RDMA protocol was broken, and by whom.
    pub explains_ends: bool,
}

impl Promises {
    /// The whole contract.
    pub const ALL: Self = Self {
        exact_bounds: true,
        exact_access: true,
        remote_invalidation: true,
        handles_end: true,
        counts_placed: true,
        sends_wait: true,
        grants_reads: true,
        explains_ends: true,
    };
}

/// [`Caps::placing_max`] of a provider over a network.
pub(crate) const PLACING_MAX: u32 = 64 << 10;

counts! {
    /// Counts of a provider since it was made. Plain integers of one core.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Counters {
        /// Octets of Writes, Read Responses and Sends that the CPU copied to their place after they had
        /// left the network.
        pub bytes_copied: u64,
        /// Octets that arrived in their place without a copy by this process.
        pub bytes_direct: u64,
        /// Octets of tagged data (Writes and Read Responses) received.
        pub tagged_received: u64,
        /// Octets of tagged data sent.
        pub tagged_sent: u64,
        /// Octets of tagged data that the CPU copied at this end, ours or the system's copies, each
        /// counted: divided by the payload, the copies per byte.
        pub tagged_copied: u64,
        /// Octets copied by the system between our memory and the network, both ways.
        pub bytes_system: u64,
        /// System calls made.
        pub syscalls: u64,
        /// Messages (Sends) sent.
        pub sends: u64,
        /// Messages (Sends) received.
        pub receives: u64,
        /// Batches in which messages were sent, such as one write to a socket.
        pub send_batches: u64,
        /// Polls that found messages.
        pub receive_batches: u64,
        /// Handles retired by a peer's Send with Invalidate.
        pub invalidated_remote: u64,
        /// Handles retired by LocalInv.
        pub invalidated_local: u64,
        /// Peers that were lost before the core heard of them.
        pub newcomers: Newcomers,
    }
}

impl Counters {
    /// Counts tagged data that leaves by the system's copy.
    pub(crate) const fn count_tagged(&mut self, octets: usize) {
        self.tagged_sent += octets as u64;
        self.tagged_copied += octets as u64;
    }

    /// Counts octets of the peer's memory that were read by a copy of ours.
    pub(crate) const fn count_read(&mut self, octets: usize) {
        self.tagged_received += octets as u64;
        self.tagged_copied += octets as u64;
        self.bytes_copied += octets as u64;
    }
}
