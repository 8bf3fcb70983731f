//! The events of librdmacm's ids.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_sys::{
    rdma_ack_cm_event, rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_get_cm_event,
};

use super::channel::{Channel, EventChannel};
use super::connection::ArrivingId;

/// One event.
#[derive(Debug)]
pub(crate) struct CmEvent {
    /// The name of the id that the event is about; for a `Request`, the name of the listening id. An id that a listener
    /// reported has the listener's name until it gets another.
    pub(crate) token: u32,
    /// The address of the id that the event is about.
    pub(crate) about: usize,
    /// The kind of the event.
    pub(crate) kind: CmEventKind,
}

/// The kind of an event of an id.
#[derive(Debug)]
pub(crate) enum CmEventKind {
    /// The address is resolved, and with it the device.
    AddressResolved,
    /// The route through the network is resolved.
    RouteResolved,
    /// A listening id met a peer.
    Request {
        /// The id of the connection, if it is accepted.
        id: ArrivingId,
        /// The peer's terms and private data.
        asked: PeerParameters,
    },
    /// The connection carries messages. At the active end: with the terms and private data of the passive end.
    Established(PeerParameters),
    /// The peer rejected the connection, or nothing listens there: the reason, in the numbers of the transport below.
    Rejected(i32),
    /// The connection cannot be made.
    Failed(io::Error),
    /// The connection is over.
    Disconnected,
    /// The device is about to be taken away.
    DeviceRemoved,
    /// An event that we do not need.
    Other,
}

/// The terms and private data that one end received from the other during connection setup.
#[derive(Debug)]
pub(crate) struct PeerParameters {
    /// The private data; some networks pad it with zeros.
    pub(crate) private_data: Box<[u8]>,
    /// RDMA Reads we may serve at once, as far as the other end limits them.
    pub(crate) ird: u8,
    /// RDMA Reads we may have outstanding, as far as the other end limits them.
    pub(crate) ord: u8,
}

impl EventChannel {
    /// Takes the next event, if there is one.
    pub(crate) fn next(&self) -> Option<CmEvent> {
        let _taking = self.channel().keep_ids();
        let mut event = ptr::null_mut();
        // SAFETY: the channel is live, and the place for the call.
        let result = unsafe { rdma_get_cm_event(self.channel().raw(), &raw mut event) };
        let event = NonNull::new(event).filter(|_| result == 0)?;
        // SAFETY: the library returned it, and keeps it until it is acknowledged below.
        let found = CmEvent::read(unsafe { event.as_ref() }, self.channel());
        // SAFETY: it is acknowledged once, and nothing of it is used after.
        unsafe { rdma_ack_cm_event(event.as_ptr()) };
        Some(found)
    }
}

impl CmEvent {
    fn read(event: &rdma_cm_event, channel: &Arc<Channel>) -> Self {
        use rdma_cm_event_type as kind;
        let token = |id: *const rdma_cm_id| {
            // SAFETY: the ids of an event that is not acknowledged yet are live; we never have one
            // exclusively while the library is in a call. Another thread that has one, still on this channel, can
            // only move or destroy it, for which it waits until the event is acknowledged.
            let context = unsafe { id.as_ref() }.map_or(ptr::null_mut(), |id| id.context);
            u32::try_from(context.addr()).unwrap_or(u32::MAX)
        };
        let id = if event.event == kind::RDMA_CM_EVENT_CONNECT_REQUEST {
            event.listen_id
        } else {
            event.id
        };
        let kind = match event.event {
            kind::RDMA_CM_EVENT_ADDR_RESOLVED => CmEventKind::AddressResolved,
            kind::RDMA_CM_EVENT_ROUTE_RESOLVED => CmEventKind::RouteResolved,
            kind::RDMA_CM_EVENT_CONNECT_REQUEST => match NonNull::new(event.id) {
                None => CmEventKind::Other,
                Some(id) => {
                    let id = ArrivingId::new(id, channel);
                    CmEventKind::Request { id, asked: PeerParameters::read(event) }
                }
            },
            kind::RDMA_CM_EVENT_ESTABLISHED => {
                CmEventKind::Established(PeerParameters::read(event))
            }
            kind::RDMA_CM_EVENT_REJECTED => CmEventKind::Rejected(event.status),
            kind::RDMA_CM_EVENT_ADDR_ERROR
            | kind::RDMA_CM_EVENT_ROUTE_ERROR
            | kind::RDMA_CM_EVENT_CONNECT_ERROR
            | kind::RDMA_CM_EVENT_UNREACHABLE => {
                let code = event.status.saturating_abs();
                CmEventKind::Failed(io::Error::from_raw_os_error(code))
            }
            kind::RDMA_CM_EVENT_DISCONNECTED => CmEventKind::Disconnected,
            kind::RDMA_CM_EVENT_DEVICE_REMOVAL => CmEventKind::DeviceRemoved,
            _ => CmEventKind::Other,
        };
        Self { token: token(id), about: id.addr(), kind }
    }
}

impl PeerParameters {
    fn read(event: &rdma_cm_event) -> Self {
        // SAFETY: an event of connecting on the TCP port space has this part of the union.
        let told = unsafe { event.param.conn };
        let length = usize::from(told.private_data_len);
        let private_data = if told.private_data.is_null() || length == 0 {
            Box::default()
        } else {
            // SAFETY: it is as long as it says, and lives until the event is acknowledged.
            unsafe { std::slice::from_raw_parts(told.private_data.cast::<u8>(), length) }.into()
        };
        Self { private_data, ird: told.responder_resources, ord: told.initiator_depth }
    }
}
