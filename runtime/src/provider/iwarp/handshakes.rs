//! The handshakes of one provider, by the slots that they have for connections.

use std::collections::BTreeMap;

use haulage_proto::verbs::QpNum;

use super::connection::Connection;
use super::handshake::{Agreed, Handshake};
use super::nic::Nic;
use crate::provider::base::Slots;

/// Handshakes, each under the number of a slot that has no connection yet.
#[derive(Debug, Default)]
pub(super) struct Handshakes {
    all: BTreeMap<QpNum, Handshake>,
}

impl Handshakes {
    /// Adds a handshake under the number of its slot.
    pub(super) fn insert(&mut self, qp: QpNum, handshake: Handshake) {
        self.all.insert(qp, handshake);
    }

    /// Finds a handshake.
    pub(super) fn get(&mut self, qp: QpNum) -> Option<&mut Handshake> {
        self.all.get_mut(&qp)
    }

    /// Removes a handshake that is over.
    pub(super) fn remove(&mut self, qp: QpNum) {
        self.all.remove(&qp);
    }

    /// Gives a handshake octets of its peer, and those behind its end to the connection that it becomes.
    pub(super) fn feed(
        &mut self,
        slots: &mut Slots<Connection>,
        nic: &mut Nic,
        qp: QpNum,
        mut octets: &[u8],
    ) {
        nic.counters.bytes_system += octets.len() as u64;
        let Some(handshake) = self.all.get_mut(&qp) else { return };
        let Some(agreed) = handshake.on_octets(nic, &mut octets) else { return };
        self.open(slots, nic, qp, agreed);
        if let Some(connection) = slots.get(qp) {
            connection.take_octets(nic, octets);
        }
    }

    /// Has a connection take the place of a handshake whose ends have agreed.
    pub(super) fn open(
        &mut self,
        slots: &mut Slots<Connection>,
        nic: &mut Nic,
        qp: QpNum,
        agreed: Agreed,
    ) {
        if let Some(handshake) = self.all.remove(&qp) {
            slots.fill(qp, Connection::new(nic, handshake, agreed));
        }
    }
}
