//! The connections of a core: which there are, which have something to post, and which are about to go.

use std::collections::VecDeque;
use std::rc::Rc;

use haulage_proto::verbs::QpNum;

use super::connection::{Change, Connection};
use super::table::Table;
use super::templates::Bound;
use crate::core_number::CoreNumber;
use crate::crowd::Occupancy;
use crate::key::{ConnectionKey, OfConnection, Transport};
use crate::origin::Origin;
use crate::service::{Binding, CallError, Ended, Peer};

/// The connections of a core.
#[derive(Debug)]
pub(crate) struct Connections {
    table: Table<Connection, OfConnection>,
    /// The names of the connections, by queue pair slot.
    by_queue_pair: Vec<Option<ConnectionKey>>,
    /// Those whose slot has a newer queue pair: the provider has finished with them, but their last events are not read.
    overtaken: Vec<(QpNum, ConnectionKey)>,
    occupancy: Occupancy<Origin>,
    /// Connections with something to post or to send, over RDMA or TCP.
    touched: VecDeque<ConnectionKey>,
    /// Connections to be closed at the end of the turn, over RDMA or TCP.
    closing: Vec<ConnectionKey>,
    /// Connections that became ready and that the service does not know of yet.
    pub(crate) ready: VecDeque<Peer>,
    /// Connections that became ready and have ended, for the service to learn of.
    pub(crate) gone: VecDeque<Ended>,
    /// Why the last connections ended, for callers that still name them.
    ended: VecDeque<(ConnectionKey, CallError)>,
    /// The binding of the connection that we made last: connections to one service share it.
    bound: Option<Rc<Bound>>,
    core: CoreNumber,
}

impl Connections {
    /// Makes room for `most` connections of a core, on `queue_pairs` queue pairs, and for `events` notices to the service.
    pub(crate) fn new(core: CoreNumber, most: u32, queue_pairs: usize, events: usize) -> Self {
        Self {
            table: Table::new(most, Transport::Rdma.prefix(core)),
            by_queue_pair: vec![None; queue_pairs],
            overtaken: Vec::new(),
            occupancy: Occupancy::default(),
            touched: VecDeque::with_capacity(most as usize),
            closing: Vec::with_capacity(most as usize),
            ready: VecDeque::with_capacity(events),
            gone: VecDeque::with_capacity(events),
            ended: VecDeque::with_capacity(ENDED_MAX),
            bound: None,
            core,
        }
    }

    /// Finds a connection.
    #[inline]
    pub(crate) fn get(&self, key: ConnectionKey) -> Option<&Connection> {
        self.table.get(key)
    }

    /// Finds a connection to change.
    #[inline]
    pub(crate) fn get_mut(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        self.table.get_mut(key)
    }

    /// Finds the connection of a queue pair.
    #[inline]
    pub(crate) fn get_at(&self, qp: QpNum) -> Option<(ConnectionKey, &Connection)> {
        let place = *self.by_queue_pair.get(qp.slot())?;
        match place.and_then(|key| Some((key, self.table.get(key)?))) {
            Some(found) if found.1.qp() == qp => Some(found),
            _ => self.overtaken_at(qp),
        }
    }

    /// Finds a connection whose slot has, or has had, a newer queue pair.
    #[cold]
    fn overtaken_at(&self, qp: QpNum) -> Option<(ConnectionKey, &Connection)> {
        let (_, key) = *self.overtaken.iter().find(|(overtaken, _)| *overtaken == qp)?;
        Some((key, self.table.get(key)?))
    }

    /// Returns the name of the connection of a queue pair.
    pub(crate) fn at(&self, qp: QpNum) -> Option<ConnectionKey> {
        self.get_at(qp).map(|(key, _)| key)
    }

    /// Visits every connection, in slot order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.table.iter()
    }

    /// Returns the name of the first connection at or after a slot.
    pub(crate) fn from(&self, slot: usize) -> Option<ConnectionKey> {
        self.table.find(slot, |_| true)
    }

    /// Returns the number of connections.
    pub(crate) const fn len(&self) -> u32 {
        self.table.len()
    }

    /// Returns how many slots have ever been in use.
    pub(crate) const fn slots(&self) -> usize {
        self.table.slots()
    }

    /// Returns the numbers of connections by origin, without those that are closing.
    pub(crate) const fn occupancy(&self) -> &Occupancy<Origin> {
        &self.occupancy
    }

    /// Returns whether there is a place for a connection on this queue pair.
    pub(crate) fn has_place(&self, qp: QpNum) -> bool {
        self.has_room() && self.names_queue_pair(qp)
    }

    /// Returns whether there is a place for another connection.
    pub(crate) fn has_room(&self) -> bool {
        self.table.has_room()
    }

    /// Enters a connection, which counts against `origin`; `None` if there is no place for it.
    pub(crate) fn enter(
        &mut self,
        mut connection: Connection,
        origin: Origin,
    ) -> Option<ConnectionKey> {
        connection.life.enter(origin);
        let qp = connection.qp();
        let key = self.table.insert(connection).ok()?;
        self.enter_queue_pair(key, qp);
        self.occupancy.enter(origin);
        Some(key)
    }

    /// Returns whether the number of a queue pair is one of the provider's.
    pub(crate) fn names_queue_pair(&self, qp: QpNum) -> bool {
        qp.slot() < self.by_queue_pair.len()
    }

    /// Forgets the queue pair of a connection, of which the provider holds nothing any more.
    pub(crate) fn leave_queue_pair(&mut self, key: ConnectionKey) {
        let Some(connection) = self.table.get(key) else { return };
        match self.by_queue_pair.get_mut(connection.qp().slot()) {
            Some(place) if *place == Some(key) => *place = None,
            _ => self.overtaken.retain(|(_, overtaken)| *overtaken != key),
        }
    }

    /// Notes the queue pair of a connection. The slot may be that of a connection whose last events are not read.
    pub(crate) fn enter_queue_pair(&mut self, key: ConnectionKey, qp: QpNum) {
        let Some(place) = self.by_queue_pair.get_mut(qp.slot()) else { return };
        let before = place.replace(key);
        if let Some(before) = before
            && let Some(overtaken) = self.table.get(before)
        {
            self.overtaken.push((overtaken.qp(), before));
        }
    }

    /// Takes out a connection that has ended.
    pub(crate) fn remove(&mut self, key: ConnectionKey) -> Option<Connection> {
        self.leave_queue_pair(key);
        let mut connection = self.table.remove(key)?;
        vacate(&mut self.occupancy, &mut connection);
        Some(connection)
    }

    /// Counts a connection that is over against its origin, until the provider holds nothing of it any more: memory
    /// that a peer does not let go of is charged to that peer.
    pub(crate) fn charge(&mut self, key: ConnectionKey) {
        let Some(connection) = self.table.get_mut(key) else { return };
        if let Some(origin) = connection.life.return_to_origin() {
            self.occupancy.enter(origin);
        }
    }

    /// Returns a binding with its templates. Equal bindings in a row share them.
    pub(crate) fn bind(&mut self, binding: Binding) -> Rc<Bound> {
        let known = self.bound.take().filter(|bound| ***bound == binding);
        let bound = known.unwrap_or_else(|| Rc::new(Bound::new(binding)));
        self.bound = Some(Rc::clone(&bound));
        bound
    }

    /// Remembers that a connection has something to post.
    #[inline]
    pub(crate) fn touch(&mut self, key: ConnectionKey) {
        self.get_touched(key);
    }

    /// Finds a connection that has something to post, and remembers that.
    #[inline]
    pub(crate) fn get_touched(&mut self, key: ConnectionKey) -> Option<&mut Connection> {
        let connection = self.table.get_mut(key)?;
        if connection.outbox.mark() {
            self.touched.push_back(key);
        }
        Some(connection)
    }

    /// Returns the connections that have something to post or to send.
    pub(crate) const fn queue(&mut self) -> &mut VecDeque<ConnectionKey> {
        &mut self.touched
    }

    /// Returns how many connections have something to post or to send.
    #[inline]
    pub(crate) fn touched(&self) -> usize {
        self.touched.len()
    }

    /// Takes the next connection that has something to post or to send. It stays marked.
    pub(crate) fn next_touched(&mut self) -> Option<ConnectionKey> {
        self.touched.pop_front()
    }

    /// Notes why a connection goes away; the first reason stands.
    pub(crate) fn fail(&mut self, key: ConnectionKey, reason: CallError) {
        if let Some(connection) = self.get_mut(key) {
            connection.life.fail(reason);
        }
    }

    /// Starts closing the queue pair of a connection, which then begins anew, if its server has not spoken and this was
    /// the first attempt.
    pub(crate) fn give_up(&mut self, key: ConnectionKey) {
        if self.table.get_mut(key).is_some_and(Connection::give_up) {
            self.closing.push(key);
        }
    }

    /// Starts closing a connection.
    pub(crate) fn close(&mut self, key: ConnectionKey, reason: CallError) {
        self.fail(key, reason);
        if let Some(connection) = self.table.get_mut(key)
            && (connection.life.is_up() || connection.life.is_renewing())
        {
            connection.life.change(Change::Closing);
            self.closing.push(key);
            vacate(&mut self.occupancy, connection);
        }
    }

    /// Has a connection over TCP closed at the end of the turn, which is read no more.
    pub(crate) fn close_later(&mut self, key: ConnectionKey) {
        self.closing.push(key);
    }

    /// Takes the next connection that is to be closed.
    pub(crate) fn next_closing(&mut self) -> Option<ConnectionKey> {
        self.closing.pop()
    }

    /// Remembers for a while why a connection ended.
    pub(crate) fn note_end(&mut self, key: ConnectionKey, reason: CallError) {
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((key, reason));
    }

    /// Returns the error for a Call on a connection that takes none.
    #[cold]
    pub(crate) fn why_ended(&self, key: ConnectionKey) -> CallError {
        if key.core() != self.core {
            return CallError::Elsewhere(key.core());
        }
        let why = match self.get(key) {
            Some(connection) if connection.life.is_up() => return CallError::NoReverse,
            Some(connection) => connection.life.failure(),
            None => {
                let ended = self.ended.iter().rev().find(|(ended, _)| *ended == key);
                ended.map(|(_, why)| why)
            }
        };
        why.cloned().unwrap_or(CallError::Closed)
    }
}

/// Stops counting a connection against its origin, because it is closing.
fn vacate(occupancy: &mut Occupancy<Origin>, connection: &mut Connection) {
    if let Some(origin) = connection.life.leave() {
        occupancy.leave(origin);
    }
}

/// Number of connections whose end is remembered.
const ENDED_MAX: usize = 32;
