//! Keepalive FPDUs of an active end whose peer may have overlooked its first FPDUs.
//!
//! Linux siw reads its socket when it is notified that octets came, and as passive end it is not notified of octets
//! just behind its MPA Reply: these lie there until more come (seen with 6.1, in most connections whose first Send left
//! at once). So until the peer's first FPDU has arrived we send now and then the shortest FPDU, an RDMA Write of no
//! octets, which names no memory and delivers nothing (RFC 5040 section 5.2.1). It is harmless to any other peer.

use std::time::Duration;

use haulage_proto::verbs::Handle;

use super::connection::Connection;
use super::nic::Nic;
use crate::provider::base::ConnectionState;

impl Connection {
    /// Starts to wait for the peer's first FPDU.
    pub(super) fn expect_first(&mut self, nic: &mut Nic) {
        self.unheard = Some(0);
        self.set_deadline(nic, keepalive_after(0));
    }

    /// Notes that the peer's first FPDU has arrived.
    pub(super) const fn heard(&mut self) {
        // On a connection that is closing, the deadline is for the closing, and stays.
        if self.unheard.take().is_some() && matches!(self.state, ConnectionState::Open) {
            self.deadline = None;
        }
    }

    /// Sends a keepalive, as the peer's first FPDU has not arrived in time.
    pub(super) fn send_keepalive(&mut self, nic: &mut Nic) {
        let Some(sent) = self.unheard else { return };
        if sent >= KEEPALIVES_MAX {
            // A peer from which nothing came after this many keepalives is taken to have nothing to send.
            self.unheard = None;
            return;
        }
        // Queued output serves as well, and no message may be interrupted.
        let busy = self.blocked || self.queue.as_ref().is_some_and(|queue| queue.sealed > 0);
        if !busy {
            let keepalive = self.transmitter.write(Handle(0), 0, &[]);
            self.queue.get_or_insert_with(|| nic.lend_queue()).batch.push(&keepalive);
            nic.wire.fpdus_sent += 1;
            nic.wire.keepalives += 1;
        }
        self.unheard = Some(sent + 1);
        self.set_deadline(nic, keepalive_after(sent + 1));
        self.unsettle(nic);
    }
}

/// Returns the time to wait for the peer after `sent` keepalives.
const fn keepalive_after(sent: u32) -> Duration {
    FIRST.saturating_mul(1 << sent)
}

/// Time in which a peer that can answer at once has done so, on any but the longest paths. siw was seen to overlook no
/// octets that came 50 ms after its Reply.
const FIRST: Duration = Duration::from_millis(20);

/// The last keepalive leaves 1.3 s after the connection was made.
const KEEPALIVES_MAX: u32 = 6;
