//! The Receives of a core, and how many of them each connection may use.
//!
//! # Limits
//! A Receive is *reserved* for a connection from the moment that the peer learns of it until a message uses it. The sum
//! of reservations never exceeds the Receives that are posted (P4), so no peer within its credit ever finds the queue
//! empty because of another. Reservations are not taken back: a connection shrinks by not being given new ones (P1).
//!
//! Every connection has its *minimum* reserved for it from the moment it is admitted. Of the Receives beyond all
//! minimums it is given more as it sends messages, up to its share: the origins with busy connections have equal shares,
//! and so have the busy connections of one origin, however many connections are idle.
//!
//! Where each connection has its own receive queue, the provider is told of reservations, and the same sum shows that
//! it can meet them: see [`Supply`](crate::provider).
//!
//! The minimums of idle connections are memory that no message touches. Where a Send may wait for its Receive, and
//! Receives are shared, only as many are posted as busy connections use, the one used last first, so that these stay in
//! a cache. Each turn posts more of the others if these were not enough.

mod run;

use std::ops::Range;

use haulage_mr_pool::{Local, Pool, PostedSink};
use haulage_proto::v2::connection::Role;
use haulage_proto::verbs::Completion;

use crate::core::gathered::Gathered;
use crate::core::work::Name;
use crate::limits::{Limits, RECEIVES_IDLE};
use crate::provider::Receive;

pub(crate) use run::ReceivedRun;

/// The Receives of one core.
#[derive(Debug)]
pub(crate) struct Receives {
    /// All buffers, by number.
    buffers: Buffers,
    /// Numbers of the free buffers, the one used last at the end.
    returned: Vec<u32>,
    /// Length of `returned` after the last posting.
    cold: u32,
    /// Number of buffers that are posted.
    posted: u32,
    /// Number of buffers to keep posted.
    posted_max: u32,
    /// Receives to post, as the provider takes them.
    batch: Vec<Receive>,
    /// Messages that count as holding a Receive.
    held: u32,
    /// Receives posted or to be posted that are reserved for no connection. Negative while Receives hold messages
    /// that a lost connection sent beyond its reservation.
    unreserved: i64,
    /// Sum of the Receives that connections hold within their minimums, each as noted when the connection grew last.
    minimums: u32,
    /// Receives that every connection may ask for, busy or not. A connection begins at this level.
    fair: u32,
    /// Connections whose level exceeds `fair`, each as noted when the connection grew last.
    busy: Busy,
    /// Receives beyond the minimums of all connections.
    beyond: u32,
    limits: Limits,
}

/// Numbers of busy connections.
#[derive(Debug, Default)]
struct Busy {
    /// The number of busy connections of each origin.
    of: Vec<u32>,
    /// Number of origins with busy connections.
    origins: u32,
}

/// How many of the Receives are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posting {
    /// All of them, at once.
    All,
    /// As many Receives as busy connections use, and more when those were not enough.
    AsManyAsUsed,
}

/// A connection's part of the Receives, as noted when it grew last.
#[derive(Debug)]
pub(crate) struct Part {
    /// Number of the peer's origin.
    origin: usize,
    /// Receives reserved for the connection.
    reserved: u32,
    /// `reserved`, and the Receives of Calls that are not answered.
    level: u32,
    /// The most that the level may be.
    most: u32,
    /// Messages that the peer has sent since they last earned the connection an extra Receive.
    used: u32,
    /// Receives beyond the level, because of unanswered Calls of ours.
    lent: u32,
}

/// The buffers of all Receives. They are lent while messages are read and the [`Receives`] change.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Box<[PostedSink]>);

/// A message in its Receive buffer, which is posted again only after this value is given back. Also a message without a
/// buffer that counts as if it had one ([`Receives::book`]).
#[derive(Debug)]
pub(crate) struct Filled {
    buffer: u32,
    length: u32,
}

impl Filled {
    /// Returns the length of the message, in octets.
    pub(crate) const fn len(&self) -> usize {
        self.length as usize
    }

    /// Returns where the `payload` is that the message ends with.
    pub(crate) fn end_of(&self, payload: &[u8]) -> Range<u32> {
        u32::try_from(self.len() - payload.len()).unwrap_or(u32::MAX)..self.length
    }
}

impl Buffers {
    /// Borrows a message.
    pub(crate) fn bytes(&self, received: &Filled) -> &[u8] {
        let filled = self.0.get(received.buffer as usize).and_then(PostedSink::filled);
        // Only a broken provider still has a view of a filled buffer; its message reads as empty.
        filled.unwrap_or_default().get(..received.len()).unwrap_or_default()
    }
}

/// A received message whose Payload stream is still needed.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) received: Filled,
    /// Where in the message the Payload stream is, or in what was gathered.
    pub(crate) payload: Range<u32>,
    /// What came in several transport messages, of which this is the last.
    pub(crate) gathered: Option<Local>,
}

impl Message {
    /// Keeps a message for the Payload stream in this place, or for the one that was `gathered`, of which that is the last
    /// part.
    pub(crate) fn new(received: Filled, place: Range<u32>, gathered: Option<Gathered>) -> Self {
        match gathered {
            None => Self { received, payload: place, gathered: None },
            Some(Gathered { octets, payload, .. }) => {
                let payload = 0..u32::try_from(payload).unwrap_or(u32::MAX);
                Self { received, payload, gathered: Some(octets) }
            }
        }
    }

    /// Returns the octets of the message, or those that were gathered.
    #[inline]
    pub(crate) fn octets<'a>(&'a self, buffers: &'a Buffers) -> &'a [u8] {
        match &self.gathered {
            Some(gathered) => gathered.bytes(),
            None => buffers.bytes(&self.received),
        }
    }

    /// Returns the Payload stream.
    #[inline]
    pub(crate) fn payload<'a>(&'a self, buffers: &'a Buffers) -> &'a [u8] {
        let Range { start, end } = self.payload;
        self.octets(buffers).get(start as usize..end as usize).unwrap_or_default()
    }
}

/// The number that stands for no buffer.
const NO_BUFFER: u32 = u32::MAX;

impl Receives {
    /// Leases every buffer; `None` if the pool is too small.
    pub(crate) fn new(pool: &Pool, limits: &Limits, posting: Posting) -> Option<Self> {
        let count = limits.receives_max;
        let minimums = limits.connections_max.saturating_mul(RECEIVES_IDLE);
        let most = limits.receives_each(Role::Server).max(RECEIVES_IDLE);
        let beyond = count.saturating_sub(minimums);
        let shared = beyond.saturating_add(MINIMUMS_POSTED);
        let posted_max = match posting {
            Posting::All => count,
            Posting::AsManyAsUsed => shared.min(count),
        };
        let size = limits.receive_size as usize;
        let buffers = (0..count).map(|_| pool.lease(size).map(Local::into_sink));
        Some(Self {
            buffers: Buffers(buffers.collect::<Option<_>>()?),
            returned: (0..count).rev().collect(),
            cold: count,
            posted: 0,
            posted_max,
            batch: Vec::with_capacity(posted_max as usize),
            held: 0,
            unreserved: count.into(),
            minimums: 0,
            // A connection's equal part of the Receives beyond all minimums; the minimums of touched connections are
            // kept besides.
            fair: (beyond / limits.connections_max.max(1)).clamp(RECEIVES_IDLE, most),
            busy: Busy::default(),
            beyond,
            limits: *limits,
        })
    }

    /// Takes the message that a completed Receive left in this buffer.
    pub(crate) fn take(&mut self, buffer: usize, done: &Completion) -> Filled {
        self.held += 1;
        self.posted -= 1;
        Filled { buffer: u32::try_from(buffer).unwrap_or(u32::MAX), length: done.length }
    }

    /// Counts a message as holding a Receive, though no buffer keeps it.
    pub(crate) const fn book(&mut self) -> Filled {
        self.held += 1;
        Filled { buffer: NO_BUFFER, length: 0 }
    }

    /// Frees the reservations of messages that a run has handled, whether they came in Receives or not.
    #[inline]
    pub(crate) fn pass(&mut self, messages: u32) {
        self.unreserved += i64::from(messages);
    }

    /// Borrows the octets of a message, or those that were gathered, while the buffers are not lent.
    pub(crate) fn octets<'a>(&'a self, message: &'a Message) -> &'a [u8] {
        message.octets(&self.buffers)
    }

    /// Lends the buffers, until [`Self::restore`].
    pub(crate) fn lend(&mut self) -> Buffers {
        std::mem::take(&mut self.buffers)
    }

    /// Takes the lent buffers back.
    pub(crate) fn restore(&mut self, buffers: Buffers) {
        let lent = std::mem::replace(&mut self.buffers, buffers);
        assert!(lent.0.is_empty(), "they were lent");
    }

    /// Queues the buffer of a message to be posted again, and counts its Receive as unreserved.
    pub(crate) fn give_back(&mut self, received: Filled) {
        self.held -= 1;
        if received.buffer != NO_BUFFER {
            self.returned.push(received.buffer);
        }
        self.unreserved += 1;
    }

    /// Queues the buffer of a message to be posted again. The message itself is counted by [`Self::pass`] or
    /// [`Self::book`].
    #[inline]
    pub(crate) fn reuse(&mut self, received: &Filled) {
        self.held -= 1;
        self.returned.push(received.buffer);
    }

    /// Returns the number of buffers: all count as posted leases, with or without messages.
    pub(crate) const fn count(&self) -> usize {
        self.limits.receives_max as usize
    }

    /// Returns the number of messages that count as holding a Receive.
    pub(crate) const fn held(&self) -> u32 {
        self.held
    }

    /// Returns how many Receives are reserved for no connection. Negative while messages are held that lost
    /// connections sent beyond their reservations.
    pub(crate) const fn unreserved(&self) -> i64 {
        self.unreserved
    }

    /// Returns the Receives to post now, before any of them is reserved again.
    #[inline]
    pub(crate) fn batch(&mut self) -> &mut Vec<Receive> {
        if self.posted < self.posted_max && !self.returned.is_empty() {
            self.fill_batch();
        }
        &mut self.batch
    }

    fn fill_batch(&mut self) {
        let Buffers(buffers) = &mut self.buffers;
        let size = self.limits.receive_size as usize;
        let unposted = u32::try_from(self.returned.len()).unwrap_or(u32::MAX);
        let count = unposted.min(self.posted_max.saturating_sub(self.posted));
        (self.cold, self.posted) = (unposted - count, self.posted + count);
        for number in self.returned.drain(self.cold as usize..) {
            let buffer = buffers.get_mut(number as usize);
            if let Some(view) = buffer.and_then(|buffer| buffer.sink(0..size)) {
                self.batch.push(Receive::single(Name::Receive(number as usize).wr_id(), view));
            }
        }
    }

    /// Returns whether a new connection can have its minimum.
    pub(crate) fn has_minimum(&self) -> bool {
        self.left() >= RECEIVES_IDLE
    }

    /// Reserves the minimum for a new connection, of which this end is the `role`, with a peer of the origin of this
    /// number; `None` if fewer Receives are left.
    pub(crate) fn admit(&mut self, role: Role, origin: usize) -> Option<Part> {
        self.left().checked_sub(RECEIVES_IDLE)?;
        if self.busy.of.len() <= origin {
            self.busy.of.resize(origin + 1, 0);
        }
        self.unreserved -= i64::from(RECEIVES_IDLE);
        self.minimums += RECEIVES_IDLE;
        let most = self.limits.receives_each(role);
        Some(Part { origin, reserved: RECEIVES_IDLE, level: self.fair, most, used: 0, lent: 0 })
    }

    /// Reserves more Receives for a connection that has `reserved` left and owes its peer `owed` Replies. Returns how
    /// many.
    ///
    /// `touched` connections, this one or others, may have used Receives that are not noted yet. If the peer sent more
    /// than was reserved for it, `reserved` is just below 2^32, and the connection is given none.
    #[inline]
    pub(crate) fn grow(
        &mut self,
        part: &mut Part,
        (reserved, owed): (u32, u32),
        touched: usize,
    ) -> u32 {
        self.minimums -= part.minimum();
        let was_busy = part.level > self.fair;
        let (left, spare) = (self.left(), self.spare(touched));
        // A peer that sent messages may have more of them waiting for credit.
        let used = part.used.saturating_add(part.reserved.saturating_sub(reserved));
        let asked = part.level.saturating_add(used / USED_FOR_ONE).min(part.most);
        part.used = used % USED_FOR_ONE;
        let level = if asked <= self.fair {
            asked.max(RECEIVES_IDLE)
        } else {
            asked
                .min(RECEIVES_IDLE + self.busy.share(self.beyond, part.origin, was_busy.into()))
                .max(self.fair)
        };
        //~ V2-4.2.1-7: `.saturating_add(owed)` -> ``
        let busy = level.saturating_sub(reserved.saturating_add(owed)).min(spare);
        // Unanswered Calls hold Receives: a peer with too many of them has to wait.
        let least = if owed <= level { RECEIVES_IDLE.saturating_sub(reserved) } else { 0 };
        //~ R5666-3.3-6: `busy.max(least).min(left)` -> `if owed == 0 { 0 } else { busy.max(least).min(left) }`
        let more = busy.max(least).min(left);
        self.unreserved -= i64::from(more);
        part.reserved = reserved.saturating_add(more);
        let (reserved, level) = (part.reserved.saturating_add(owed), level.max(RECEIVES_IDLE));
        part.lent = part.lent.min(reserved.saturating_sub(level));
        part.level = reserved.saturating_sub(part.lent);
        self.minimums += part.minimum();
        match (was_busy, part.level > self.fair) {
            (false, true) => self.busy.begin(part.origin),
            (true, false) => self.busy.end(part.origin),
            _ => {}
        }
        more
    }

    /// Reserves a Receive for a connection that [`Self::grow`] gives none because its Calls hold too many. It takes the place
    /// of one that a grant used: the peer's next grant may be what the Replies to these Calls wait for (E3). Or it is for
    /// the Reply to a Call of ours. Returns the number of Receives reserved, at most one.
    pub(crate) fn grow_by_one(&mut self, part: &mut Part) -> u32 {
        //~ V2-4.2.1.1-2: `min(1)` -> `min(0)`
        let more = self.left().min(1);
        self.minimums -= part.minimum();
        self.unreserved -= i64::from(more);
        part.reserved = part.reserved.saturating_add(more);
        self.minimums += part.minimum();
        more
    }

    /// Reserves up to `count` Receives more for a connection because of unanswered Calls of ours (P13), if others do not
    /// need them. They do not make it a busy one. Returns how many.
    #[cold]
    pub(crate) fn grow_for_calls(&mut self, part: &mut Part, count: u32, touched: usize) -> u32 {
        self.minimums -= part.minimum();
        let more = count.min(self.spare(touched));
        self.unreserved -= i64::from(more);
        part.reserved = part.reserved.saturating_add(more);
        part.lent = part.lent.saturating_add(more);
        self.minimums += part.minimum();
        more
    }

    /// Returns how many Receives may be reserved for a connection whose own minimum is not counted, when `touched`
    /// connections may have used some that are not noted yet. Every possible connection keeps its minimum, whatever the busy
    /// ones ask for.
    #[inline(always)]
    fn spare(&self, touched: usize) -> u32 {
        let touched = u32::try_from(touched).unwrap_or(u32::MAX);
        let others = self.limits.connections_max.saturating_sub(1).saturating_add(touched);
        let minimums = others.saturating_mul(RECEIVES_IDLE).saturating_sub(self.minimums);
        self.left().saturating_sub(minimums)
    }

    /// Returns how many Receives may be reserved: none while messages beyond the reservations are held.
    fn left(&self) -> u32 {
        u32::try_from(self.unreserved).unwrap_or(0)
    }

    /// Ends the reservations of a connection that begins anew, as [`Self::release`] does, and reserves the minimum for it;
    /// `None`, and nothing has changed, if fewer Receives are left.
    pub(crate) fn renew(&mut self, part: &Part, reserved: u32, role: Role) -> Option<Part> {
        let left = self.unreserved + i64::from(reserved.cast_signed());
        if left < RECEIVES_IDLE.into() {
            return None;
        }
        self.release(part, reserved);
        self.admit(role, part.origin)
    }

    /// Ends the reservations of a connection that is gone. `reserved` is modulo 2^32: it is negative if the peer sent
    /// more than was reserved for it.
    pub(crate) fn release(&mut self, part: &Part, reserved: u32) {
        self.unreserved += i64::from(reserved.cast_signed());
        self.minimums -= part.minimum();
        if part.level > self.fair {
            self.busy.end(part.origin);
        }
    }
}

impl Busy {
    /// Returns the part of `all` of a busy connection of an origin, `counted` of which, one or none, is counted already.
    #[inline]
    fn share(&self, all: u32, origin: usize, counted: u32) -> u32 {
        let of_it = self.of.get(origin).copied().unwrap_or(0);
        let origins = self.origins + u32::from(of_it == 0);
        all / origins.max(1) / (of_it + 1 - counted).max(1)
    }

    /// Notes that a connection of an origin becomes busy.
    #[cold]
    fn begin(&mut self, origin: usize) {
        let Some(of_it) = self.of.get_mut(origin) else { panic!("the origin was admitted") };
        self.origins += u32::from(*of_it == 0);
        *of_it += 1;
    }

    /// Notes that a busy connection of an origin is idle, or gone.
    #[cold]
    fn end(&mut self, origin: usize) {
        let Some(of_it) = self.of.get_mut(origin) else { panic!("the origin was admitted") };
        *of_it -= 1;
        self.origins -= u32::from(*of_it == 0);
    }
}

impl Part {
    fn minimum(&self) -> u32 {
        self.reserved.min(RECEIVES_IDLE)
    }
}

/// Messages for which a connection is given one Receive more: a peer does not say how many of its Calls wait for
/// credit.
const USED_FOR_ONE: u32 = 4;
/// Receives posted for the minimums of idle connections: as many of their messages may arrive in one turn.
const MINIMUMS_POSTED: u32 = 512;

impl Drop for Receives {
    fn drop(&mut self) {
        // The provider dropped its views when it went; clearing the batch drops the others.
        self.batch.clear();
        for sink in std::mem::take(&mut self.buffers.0) {
            // Only a provider that outlives its core still has views: its buffers stay out of use.
            drop(sink.complete());
        }
    }
}

#[cfg(test)]
mod tests {
    use haulage_mr_pool::{PagePreference, PoolConfig};
    use haulage_test_support::Rng;

    use super::*;
    use crate::limits::{INLINE_SIZE, LIMITS_DEFAULT};

    const BEYOND: u32 = 60;

    /// Has one message arrive and be handled.
    fn used(receives: &mut Receives, buffer: u32) {
        receives.held += 1;
        receives.posted -= 1;
        receives.give_back(Filled { buffer, length: 0 });
    }

    /// Connections whose peers use the reservations as a test says.
    struct Peers {
        receives: Receives,
        parts: Vec<(Part, u32)>,
        touched: Vec<usize>,
    }

    impl Peers {
        fn new(connections_max: u32, receives_max: u32, credits_max: u32) -> Self {
            let limits = Limits { connections_max, receives_max, credits_max, ..LIMITS_DEFAULT };
            let bytes = 2 * receives_max as usize * INLINE_SIZE;
            let pool =
                Pool::new(&PoolConfig { bytes, pages: PagePreference::Best, node: None }).unwrap();
            let mut receives = Receives::new(&pool, &limits, Posting::AsManyAsUsed).unwrap();
            let admit = |_| (receives.admit(Role::Server, 0).unwrap(), RECEIVES_IDLE);
            let parts = (0..connections_max).map(admit).collect();
            Self { receives, parts, touched: Vec::new() }
        }

        /// Has a peer send `messages`, or as many as are reserved for it. They are handled at once.
        fn send(&mut self, peer: usize, messages: u32) {
            let reserved = &mut self.parts[peer].1;
            let sent = messages.min(*reserved);
            *reserved -= sent;
            self.receives.pass(sent);
            if !self.touched.contains(&peer) {
                self.touched.push(peer);
            }
        }

        fn grow(&mut self, peer: usize) -> u32 {
            let (part, reserved) = &mut self.parts[peer];
            *reserved += self.receives.grow(part, (*reserved, 0), self.touched.len());
            *reserved
        }

        /// Ends a turn: each connection whose peer sent something is given more Receives, at least its minimum.
        fn flush(&mut self) {
            while let Some(peer) = self.touched.pop() {
                let reserved = self.grow(peer);
                assert!(reserved >= RECEIVES_IDLE, "{peer} has {reserved}");
            }
            let reserved: u32 = self.parts.iter().map(|(_, reserved)| reserved).sum();
            let all = self.receives.limits.receives_max;
            assert_eq!(i64::from(reserved) + self.receives.unreserved, i64::from(all));
        }
    }

    #[test]
    fn the_busy_share_what_is_beyond_the_minimums_of_all() {
        let mut peers = Peers::new(500, 500 * RECEIVES_IDLE + BEYOND, 40);
        let turns = |peers: &mut Peers, busy: &[usize]| {
            for _ in 0..200 {
                busy.iter().for_each(|peer| peers.send(*peer, u32::MAX));
                peers.flush();
            }
            busy.iter().map(|peer| peers.parts[*peer].1).collect::<Vec<_>>()
        };
        // A single busy connection gets the maximum for one; several get equal parts, whichever was busy first.
        assert_eq!(turns(&mut peers, &[3]), [41]);
        let each = RECEIVES_IDLE + BEYOND / 2;
        assert_eq!(turns(&mut peers, &[3, 7]), [each, each]);
        let each = RECEIVES_IDLE + BEYOND / 5;
        assert_eq!(turns(&mut peers, &[3, 7, 8, 9, 400]), [each; 5]);
        let all: Vec<_> = (0..500).collect();
        let most = turns(&mut peers, &all).into_iter().max();
        assert_eq!(most, Some(RECEIVES_IDLE + 1), "there is not one more for each");
        // Connections that end return all their Receives.
        for (part, reserved) in std::mem::take(&mut peers.parts) {
            peers.receives.release(&part, reserved);
        }
        let Receives { minimums, ref busy, unreserved, limits, .. } = peers.receives;
        assert_eq!((minimums, busy.origins, unreserved), (0, 0, i64::from(limits.receives_max)));
    }

    #[test]
    fn origins_share_what_is_beyond_the_minimums_and_their_connections_share_that() {
        let mut peers = Peers::new(100, 100 * RECEIVES_IDLE + BEYOND, 40);
        // A connection of another origin takes the place of the last one.
        let (part, reserved) = peers.parts.pop().unwrap();
        peers.receives.release(&part, reserved);
        let other = peers.receives.admit(Role::Server, 1).unwrap();
        peers.parts.push((other, RECEIVES_IDLE));
        let busy = [0, 1, 2, 99];
        for _ in 0..200 {
            busy.iter().for_each(|peer| peers.send(*peer, u32::MAX));
            peers.flush();
        }
        let each = RECEIVES_IDLE + BEYOND / 2 / 3;
        let other = RECEIVES_IDLE + BEYOND / 2;
        assert_eq!(busy.map(|peer| peers.parts[peer].1), [each, each, each, other]);
        // When the connection of the other origin ends, the three others share what it had.
        let (part, reserved) = peers.parts.pop().unwrap();
        peers.receives.release(&part, reserved);
        for _ in 0..200 {
            (0..3).for_each(|peer| peers.send(peer, u32::MAX));
            peers.flush();
        }
        let each = RECEIVES_IDLE + BEYOND / 3;
        assert_eq!([0, 1, 2].map(|peer| peers.parts[peer].1), [each; 3]);
    }

    #[test]
    fn a_server_has_room_for_a_grant_beside_its_replies() {
        let mut peers = Peers::new(1, 100, 40);
        peers.receives.release(&peers.parts.pop().unwrap().0, RECEIVES_IDLE);
        peers.parts.push((peers.receives.admit(Role::Client, 0).unwrap(), RECEIVES_IDLE));
        for _ in 0..200 {
            peers.send(0, u32::MAX);
            peers.flush();
        }
        // 40 for Replies, one for a grant whose own credit is not granted again yet, and one for an asynchronous grant.
        assert_eq!(peers.parts[0].1, 42);
    }

    #[test]
    fn one_that_has_one_message_at_a_time_is_given_more_only_by_and_by() {
        let mut peers = Peers::new(8, 8 * RECEIVES_IDLE + BEYOND / 10, 40);
        for messages in 1..=4 {
            peers.send(0, 1);
            peers.flush();
            let more = messages / USED_FOR_ONE;
            assert_eq!(peers.parts[0].1, RECEIVES_IDLE + more, "after {messages}");
        }
    }

    #[test]
    fn one_that_sent_more_than_it_might_is_given_none() {
        let mut peers = Peers::new(2, 2 * RECEIVES_IDLE + BEYOND, 40);
        for owed in [0, 1, u32::MAX] {
            for reserved in [u32::MAX, u32::MAX - 40] {
                let (part, _) = &mut peers.parts[0];
                assert_eq!(peers.receives.grow(part, (reserved, owed), 1), 0);
            }
        }
    }

    #[test]
    fn receives_that_hold_messages_of_a_peer_that_overran_are_promised_to_nobody() {
        let memory = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let limits =
            Limits { connections_max: 2, receives_max: 24, credits_max: 23, ..LIMITS_DEFAULT };
        let mut receives =
            Receives::new(&Pool::new(&memory).unwrap(), &limits, Posting::All).unwrap();
        let mut honest = receives.admit(Role::Server, 0).unwrap();
        let more = receives.grow(&mut honest, (RECEIVES_IDLE, 0), 1);
        let overrunning = receives.admit(Role::Server, 0).unwrap();
        // The overrunning peer fills 23 of the 24 Receives, though four were reserved for it, and goes. No Receive is
        // left for others, not even those reserved for the honest peer.
        let messages: Vec<_> = (0..23).map(|_| receives.book()).collect();
        receives.release(&overrunning, RECEIVES_IDLE.wrapping_sub(23));
        assert!(receives.admit(Role::Server, 0).is_none());
        assert_eq!(receives.grow(&mut honest, (0, 0), 1), 0);
        for message in messages {
            receives.give_back(message);
        }
        receives.release(&honest, RECEIVES_IDLE + more);
        assert_eq!(receives.left(), 24);
    }

    #[test]
    fn the_last_of_those_that_were_touched_has_its_minimum() {
        let mut peers = Peers::new(3, 3 * RECEIVES_IDLE + BEYOND, 100);
        for _ in 0..200 {
            peers.send(2, u32::MAX);
            peers.flush();
        }
        // Connection 2 has the most that one may have, and the other two ask for more than their minimums.
        assert_eq!(peers.parts[2].1, RECEIVES_IDLE + BEYOND);
        (0..3).for_each(|peer| peers.send(peer, u32::MAX));
        peers.flush();
    }

    #[test]
    fn each_always_has_its_minimum_whatever_others_do() {
        let mut random = Rng::new(1);
        let mut chance = |below: usize| random.below(below);
        for (connections, beyond) in [(1, 0), (1, 50), (3, 1), (9, 40), (40, 200), (40, 3)] {
            let mut peers = Peers::new(connections, connections * RECEIVES_IDLE + beyond, 64);
            let connections = connections as usize;
            for _ in 0..2000 {
                for _ in 0..chance(2 * connections) + 1 {
                    let peer = chance(connections);
                    peers.send(peer, u32::try_from(chance(20)).unwrap());
                    // A connection may also grow in the middle of a turn.
                    if chance(3) == 0 {
                        peers.grow(peer);
                    }
                }
                peers.flush();
            }
        }
    }

    #[test]
    fn few_are_posted_and_those_used_last_are_used_again() {
        let (connections_max, receives_max) = (1000, 1000 * RECEIVES_IDLE + BEYOND);
        let limits = Limits { connections_max, receives_max, ..LIMITS_DEFAULT };
        let bytes = 2 * receives_max as usize * INLINE_SIZE;
        let pages = PagePreference::Best;
        let pool = Pool::new(&PoolConfig { bytes, pages, node: None }).unwrap();
        let names = |receives: &mut Receives| -> Vec<u64> {
            receives.batch().drain(..).map(|receive| receive.id.0).collect()
        };
        let mut eager = Receives::new(&pool, &limits, Posting::All).unwrap();
        assert_eq!(names(&mut eager).len(), receives_max as usize);
        drop(eager);
        let mut receives = Receives::new(&pool, &limits, Posting::AsManyAsUsed).unwrap();
        let mut posted = names(&mut receives);
        assert_eq!(posted.len(), (MINIMUMS_POSTED + BEYOND) as usize);
        assert!(names(&mut receives).is_empty(), "there are enough");
        // The two used buffers are posted again, and a third takes the place of one that is kept.
        for buffer in [5, 3] {
            used(&mut receives, buffer);
        }
        receives.held += 1;
        receives.posted -= 1;
        let again = names(&mut receives);
        posted.truncate(0);
        posted.extend([5, 3].map(|buffer| Name::Receive(buffer).wr_id().0));
        assert_eq!(again.len(), 3);
        assert_eq!(again[1..], posted, "the last two are those that were used");
    }
}
