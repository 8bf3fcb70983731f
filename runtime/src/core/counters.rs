//! The numbers that a core reports of itself.

use haulage_proto::v2::connection::Role;

use crate::counts::counts;

counts! {
    /// Counts of a core since it started: plain integers that only the core changes.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct CoreCounters {
        /// Calls served.
        pub calls_served: u64,
        /// Calls answered with a transport error.
        pub calls_refused: u64,
        /// Calls of ours that have ended.
        pub calls_made: u64,
        /// Calls of ours that the peer refused and that went again in another form.
        pub calls_repeated: u64,
        /// Calls of ours to clients, in reverse direction, whether they have ended or not.
        pub callbacks_made: u64,
        /// Calls served that a server made, in reverse direction.
        pub callbacks_served: u64,
        /// Replies that were exposed for the peer to read, to be released by its `RDMA_DONE`.
        pub replies_held: u64,
        /// Replies of peers that they exposed, and that were read.
        pub replies_read: u64,
        /// Replies that matched no Call.
        pub replies_unmatched: u64,
        /// Messages that could not be decoded.
        pub messages_bad: u64,
        /// Calls received in a Call chunk.
        pub call_chunks: u64,
        /// Calls received with a reduced argument, in a Read chunk.
        pub read_chunks: u64,
        /// Arguments received along with the messages of their Calls (round-trip extensions).
        pub arguments_along: u64,
        /// Arguments sent along with the messages of their Calls (round-trip extensions).
        pub arguments_sent_along: u64,
        /// Results sent along with the messages of their Replies (round-trip extensions).
        pub results_sent_along: u64,
        /// Results of Calls of ours that came along with the messages of their Replies.
        pub results_along: u64,
        /// Calls received with a Write chunk for a result.
        pub write_chunks: u64,
        /// Calls received with a Reply chunk.
        pub reply_chunks: u64,
        /// Messages received that were a part of a continued one, or of a group of transmissions.
        pub parts_received: u64,
        /// Messages sent that were a part of a continued one, or of a group of transmissions.
        pub parts_sent: u64,
        /// Octets of such messages received, and of continued ones sent, all of which were copied.
        pub part_bytes: u64,
        /// Octets of arguments and results that came or went along with their messages, each copied by this end once.
        pub bytes_along: u64,
        /// Octets of data items copied because they came or went unreduced.
        pub bytes_unreduced: u64,
        /// Calls whose outcome broke the service's own binding: results longer than declared, more items than one Write chunk
        /// takes, none where there is a Reply, or some where there is none. If there is a Reply, it was a system error.
        pub results_misdeclared: u64,
        /// Connections that were opened.
        pub connections_opened: u64,
        /// Connections that were turned away.
        pub connections_rejected: u64,
        /// Connections that ended because of the host at the other end: it did not prove which it is, or is not known.
        pub hosts_refused: u64,
        /// Connections that were closed in favour of others, as there was no room for both.
        pub connections_replaced: u64,
        /// Connections that were closed because they were idle for too long.
        pub connections_idle: u64,
        /// Connections closed because others waited for memory that their peers were slow to move.
        pub connections_slow: u64,
        /// Charges for memory that were lost and given back later: faults of this runtime.
        pub charges_lost: u64,
    }
}

impl CoreCounters {
    /// Counts a Call of ours on a connection in which we have the role `ours`.
    #[inline(always)]
    pub(crate) fn count_made(&mut self, ours: Role) {
        if ours == Role::Server {
            self.callbacks_made += 1;
        }
    }

    /// Counts Calls that were served on a connection in which we have the role `ours`.
    #[inline]
    pub(crate) fn count_served(&mut self, ours: Role, calls: u64) {
        self.calls_served += calls;
        if ours == Role::Client {
            self.callbacks_served += calls;
        }
    }

    /// Counts a Call as not served after all, on a connection in which we have the role `ours`.
    pub(crate) fn take_back_served(&mut self, ours: Role) {
        self.calls_served -= 1;
        self.callbacks_served -= u64::from(ours == Role::Client);
    }
}

counts! {
    /// The resources that a core holds for Calls that have not ended. All of them but `receives_unreserved` are zero once
    /// every connection is gone.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Census {
        /// Messages that count as holding a Receive.
        pub receives_held: u32,
        /// Receives that are reserved for connections. A peer that sent more than was reserved for it counts as negative
        /// until its connection is gone.
        pub receives_reserved: i64,
        /// Receives that are reserved for no connection and hold no message. The sum of this number, `receives_reserved`
        /// and `receives_held` is the number of all Receives. It is negative while messages are held that lost connections
        /// sent beyond their reservations.
        pub receives_unreserved: i64,
        /// Calls of peers that wait: for memory, for an RDMA Read, for the service, or for credit.
        pub calls_served: u32,
        /// Work requests that the provider has not reported as complete.
        pub work_requests: u32,
        /// Octets of memory that Calls hold.
        pub memory_charged: usize,
        /// Connections that are over and whose memory the peer may still touch.
        pub connections_held: u32,
        /// Leases of Calls of ours that were given up, which the peer may still touch.
        pub leases_held: usize,
    }
}
