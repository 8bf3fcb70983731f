//! The way out: every message of ours leaves here, or waits here for the next doorbell.

use haulage_mr_pool::Local;
use haulage_proto::v2::continuation::{Kind, Split};
use haulage_proto::v2::header::{MIDDLE_WIRE_LEN, encode_call_middle, encode_reply_middle};
use haulage_proto::verbs::HeaderPatch;
use haulage_proto::xdr::Writer;

use super::common::Common;
use super::memory::Charge;
use super::work::Held;
use crate::key::ConnectionKey;
use crate::limits::HEADER_ROOM;
use crate::provider::{Head, Outgoing, Port, Sent};

/// A message that leaves in parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InParts {
    pub(crate) kind: Kind,
    /// The XID and the credit word of every part.
    pub(crate) patch: HeaderPatch,
    /// Octets of the header of the last part.
    pub(crate) header_len: usize,
    /// Octets of the Payload stream.
    pub(crate) length: usize,
}

/// How a message left. Its credit is spent in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// All of it is the caller's again.
    Copied,
    /// The provider holds it, or a part of it.
    Taken,
    /// It waits for the next doorbell, and whatever follows waits behind it.
    Waits,
}

impl Common {
    /// Sends a message by `port`, if nothing of its connection waits; otherwise it waits, too. `charge` is given back once
    /// the provider holds nothing of the message. The buffer stays in `message` if it is free again.
    pub(crate) fn leave(
        &mut self,
        key: ConnectionKey,
        head: &Head<'_>,
        message: &mut Outgoing,
        charge: Charge,
        port: &mut (impl Port + ?Sized),
    ) {
        let Some(connection) = self.connections.get_mut(key) else {
            message.forget_writes();
            return self.discharge(key, charge);
        };
        connection.outbox.ring();
        if connection.outbox.requests() > 0 {
            self.queue(key, head, message, charge);
        } else {
            self.send(key, head, message, charge, port);
        }
    }

    /// Returns whether a connection may have `count` send buffers for the parts of one message.
    pub(crate) fn has_buffers(&self, key: ConnectionKey, count: u32) -> bool {
        let Some(connection) = self.connections.get(key) else { return false };
        let free = self.buffers.len().checked_sub(count as usize);
        free.is_some_and(|free| self.memory.leaves_others(&connection.share, free))
    }

    /// Sends all parts of a message but the last. The credits of all parts are spent, and each has a send buffer. `copy`
    /// copies octets of the Payload stream, from a place on. Returns a buffer with the last part behind the room for a
    /// header, and the length of the part.
    pub(crate) fn send_parts(
        &mut self,
        key: ConnectionKey,
        InParts { kind, patch, header_len, length }: InParts,
        copy: impl Fn(usize, &mut [u8]),
        port: &mut (impl Port + ?Sized),
    ) -> (Local, usize) {
        let HeaderPatch { xid, credit } = patch;
        let threshold = self.connections.get(key).map(|connection| {
            let terms = connection.session.terms();
            match kind {
                Kind::Call => terms.calls.call_threshold,
                Kind::Reply => terms.replies.reply_threshold,
            }
        });
        let split = Split::new(length, threshold.unwrap_or(0) as usize, header_len);
        let Some(split) = split else { panic!("the format was chosen by the division") };
        for piece in split.pieces() {
            let Some(mut buffer) = self.buffers.pop() else {
                panic!("there is a buffer for every part")
            };
            let length = piece.range.len();
            let whole = HEADER_ROOM - MIDDLE_WIRE_LEN..HEADER_ROOM + length;
            let room = buffer.bytes_mut().get_mut(whole.clone()).unwrap_or_default();
            let (header, payload) = room.split_at_mut(MIDDLE_WIRE_LEN);
            copy(piece.range.start, payload);
            self.counters.parts_sent += 1;
            self.counters.part_bytes += length as u64;
            if piece.is_last {
                return (buffer, length);
            }
            let w = &mut Writer::new(header);
            let encoded = match kind {
                Kind::Call => encode_call_middle(w, xid, credit, piece.remaining),
                //~ V2-6.3.9-1: `xid` -> `credit`
                Kind::Reply => encode_reply_middle(w, xid, credit, piece.remaining),
            };
            assert!(encoded.is_ok(), "its header has one length");
            let mut message = Outgoing::within(buffer);
            self.leave(key, &Head::written(whole, None), &mut message, Charge::default(), port);
            message.take_buffer().into_iter().for_each(|buffer| self.buffers.recycle(buffer));
        }
        panic!("a division has a last part")
    }

    /// Sends a message of a connection of which nothing waits, behind its Writes if it has any.
    #[inline(never)]
    pub(crate) fn send(
        &mut self,
        key: ConnectionKey,
        head: &Head<'_>,
        message: &mut Outgoing,
        charge: Charge,
        port: &mut (impl Port + ?Sized),
    ) -> Left {
        let has_room = !message.has_writes() || self.posted.has_room_for_writes();
        let id = self.posted.next_id();
        match if has_room { port.send(head, message, id) } else { Sent::Full } {
            Sent::Copied => {
                message.forget_writes();
                self.discharge(key, charge);
                Left::Copied
            }
            sent => self.keep(key, head, message, charge, sent),
        }
    }

    /// Sends a message without Writes, for which nothing is charged. Short messages take this road at every Call, so it is
    /// inlined; [`Self::send`] is for the others.
    #[inline(always)]
    pub(crate) fn send_alone(
        &mut self,
        key: ConnectionKey,
        head: &Head<'_>,
        message: &mut Outgoing,
        port: &mut (impl Port + ?Sized),
    ) -> Left {
        match port.send(&head.anew(), message, self.posted.next_id()) {
            Sent::Copied => Left::Copied,
            sent => self.keep(key, &head.anew(), message, Charge::default(), sent),
        }
    }

    /// Keeps a message that was not copied: what the provider holds of it, or all until it leaves.
    #[inline(never)]
    fn keep(
        &mut self,
        key: ConnectionKey,
        head: &Head<'_>,
        message: &mut Outgoing,
        charge: Charge,
        sent: Sent,
    ) -> Left {
        if sent == Sent::Taken {
            self.hold(key, message, charge);
            return Left::Taken;
        }
        self.queue(key, head, message, charge);
        Left::Waits
    }

    /// Has a message wait for the next doorbell, and for room.
    #[inline(never)]
    pub(crate) fn queue(
        &mut self,
        key: ConnectionKey,
        head: &Head<'_>,
        message: &mut Outgoing,
        charge: Charge,
    ) {
        self.lend(key, head, message);
        self.hold(key, message, charge);
    }

    /// Has a control message, which lies in `buffer` from its first octet on, wait for the next doorbell.
    pub(crate) fn queue_control(&mut self, key: ConnectionKey, length: usize, buffer: Local) {
        let mut message = Outgoing::within(buffer);
        self.lend(key, &Head::written(0..length, None), &mut message);
        self.enter_work(key, Held::Control(message.take_lent()));
    }

    /// Lends a message to the next doorbell. The request that is entered next is its Send.
    fn lend(&mut self, key: ConnectionKey, head: &Head<'_>, message: &mut Outgoing) {
        let id = self.posted.next_id();
        let Some(connection) = self.connections.get_touched(key) else {
            panic!("a message is made for a connection");
        };
        message.lend(head, id, |request| connection.outbox.push(request));
    }

    /// Keeps what the provider holds of a message until that is complete.
    #[inline(never)]
    fn hold(&mut self, key: ConnectionKey, message: &mut Outgoing, charge: Charge) {
        let named = self.posted.next_id();
        let id = self.enter_work(key, Held::Message { buffer: message.take_lent(), charge });
        assert!(id == named, "the provider knows the message by its name");
        if message.has_writes() {
            self.posted.keep_data(id, message.take_lent_data());
        }
    }
}
