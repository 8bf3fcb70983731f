//! Connections by librdmacm: ids, and the channel on which their events arrive.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::time::Duration;

use rdma_sys::{
    rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_cm_event, rdma_cm_event_type, rdma_cm_id,
    rdma_conn_param, rdma_connect, rdma_create_event_channel, rdma_create_id,
    rdma_destroy_event_channel, rdma_destroy_id, rdma_disconnect, rdma_event_channel,
    rdma_get_cm_event, rdma_listen, rdma_port_space, rdma_reject, rdma_resolve_addr,
    rdma_resolve_route,
};

use super::descriptor::nonblocking;
use super::{Device, Refused, address};

/// The channel on which the events of ids arrive.
#[derive(Debug)]
pub(crate) struct EventChannel(NonNull<rdma_event_channel>);

/// One event.
#[derive(Debug)]
pub(crate) struct CmEvent {
    /// The name of the id that the event is about; for a `Request`, the name of the listening id.
    pub(crate) token: u32,
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
        id: CmId,
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

/// The terms and private data that one end sends to the other during connection setup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters<'a> {
    pub(crate) private_data: &'a [u8],
    pub(crate) ird: u8,
    pub(crate) ord: u8,
    /// The number of times that an unacknowledged message is sent again.
    pub(crate) retries: u8,
    /// The number of times that a Send is sent again if the peer had no Receive for it; 7 means no limit.
    pub(crate) retries_no_receive: u8,
}

impl EventChannel {
    /// Makes a channel that never blocks.
    pub(crate) fn new() -> Result<Rc<Self>, Refused> {
        let what = "opening the RDMA connection manager";
        // SAFETY: it takes no argument.
        let channel = unsafe { rdma_create_event_channel() };
        let channel = Self(NonNull::new(channel).ok_or_else(|| Refused::last(what))?);
        nonblocking(channel.fd()).map_err(|error| Refused { what, error })?;
        Ok(Rc::new(channel))
    }

    /// Takes the next event, if there is one.
    pub(crate) fn next(self: &Rc<Self>) -> Option<CmEvent> {
        let mut event = ptr::null_mut();
        // SAFETY: the channel is live, and the place for the call.
        let result = unsafe { rdma_get_cm_event(self.0.as_ptr(), &raw mut event) };
        let event = NonNull::new(event).filter(|_| result == 0)?;
        // SAFETY: the library returned it, and keeps it until it is acknowledged below.
        let found = CmEvent::read(unsafe { event.as_ref() }, self);
        // SAFETY: it is acknowledged once, and nothing of it is used after.
        unsafe { rdma_ack_cm_event(event.as_ptr()) };
        Some(found)
    }

    /// Returns the descriptor that is readable while there are events.
    pub(crate) fn fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its descriptor never changes.
        unsafe { self.0.as_ref() }.fd
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: it came from rdma_create_event_channel and is freed once; ids on it hold a count of us.
        unsafe { rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

impl CmEvent {
    fn read(event: &rdma_cm_event, channel: &Rc<EventChannel>) -> Self {
        use rdma_cm_event_type as kind;
        let token = |id: *const rdma_cm_id| {
            // SAFETY: the ids of an event that is not acknowledged yet are live; we never have one
            // exclusively while the library is in a call.
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
                    let id = CmId { id, _channel: Rc::clone(channel) };
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
        Self { token: token(id), kind }
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

/// A listener, or one end of a connection.
#[derive(Debug)]
pub(crate) struct CmId {
    id: NonNull<rdma_cm_id>,
    _channel: Rc<EventChannel>,
}

impl CmId {
    /// Makes an id whose events carry `token`.
    pub(crate) fn new(channel: &Rc<EventChannel>, token: u32) -> Result<Self, Refused> {
        let mut id = ptr::null_mut();
        let space = rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel is live, and the place for the call. The context is never followed.
        let result =
            unsafe { rdma_create_id(channel.0.as_ptr(), &raw mut id, context(token), space) };
        let what = "making an RDMA connection";
        Refused::check(what, result)?;
        let id = NonNull::new(id).ok_or_else(|| Refused::last(what))?;
        Ok(Self { id, _channel: Rc::clone(channel) })
    }

    /// Has the events of an id that a listener reported carry `token`.
    pub(crate) fn name(&mut self, token: u32) {
        // SAFETY: the id is live, and the library is in no call. It reads the context of listeners only.
        unsafe { self.id.as_mut() }.context = context(token);
    }

    /// Binds the id to a local address, and with it to the device that has that address.
    pub(crate) fn bind(&mut self, at: SocketAddr) -> Result<(), Refused> {
        let mut address = address::encode(at);
        // SAFETY: the id is live, and the address for the call.
        let result = unsafe { rdma_bind_addr(self.raw(), address::raw(&mut address)) };
        Refused::check("binding an RDMA address", result)
    }

    /// Listens at `at`; an IPv6 address does not accept IPv4.
    pub(crate) fn listen(&mut self, at: SocketAddr) -> Result<(), Refused> {
        if at.is_ipv6() {
            let mut only: c_int = 1;
            let (level, option) = (OPTION_ID, OPTION_ID_AFONLY);
            // SAFETY: the id is live; the option takes an int, which is live for the call.
            let result = unsafe {
                let place = (&raw mut only).cast::<c_void>();
                rdma_sys::rdma_set_option(self.raw(), level, option, place, size_of::<c_int>())
            };
            Refused::check("listening by IPv6", result)?;
        }
        self.bind(at)?;
        // SAFETY: the id is live.
        Refused::check("listening", unsafe { rdma_listen(self.raw(), BACKLOG) })
    }

    /// Starts to resolve the address `to`, from `source` if it is given and of the same family: `AddressResolved` or
    /// `Failed` follows.
    pub(crate) fn resolve(
        &mut self,
        source: Option<IpAddr>,
        to: SocketAddr,
        limit: Duration,
    ) -> Result<(), Refused> {
        let mut address = address::encode(to);
        let source = source.filter(|source| source.is_ipv4() == to.is_ipv4());
        let mut source = source.map(|source| address::encode(SocketAddr::new(source, 0)));
        let from = source.as_mut().map_or(ptr::null_mut(), address::raw);
        let limit = millis(limit);
        // [V2-9-1] librdmacm translates the address to a GID.
        // SAFETY: the id is live, and so are the addresses, for the call; `from` may be null.
        let result =
            unsafe { rdma_resolve_addr(self.raw(), from, address::raw(&mut address), limit) };
        Refused::check("resolving an RDMA address", result)
    }

    /// Starts to resolve the route through the network: `RouteResolved` or `Failed` follows.
    pub(crate) fn resolve_route(&mut self, limit: Duration) -> Result<(), Refused> {
        // SAFETY: the id is live.
        let result = unsafe { rdma_resolve_route(self.raw(), millis(limit)) };
        Refused::check("resolving an RDMA route", result)
    }

    /// Sends the request to the peer: `Established`, `Rejected` or `Failed` follows.
    pub(crate) fn connect(&mut self, parameters: &Parameters<'_>) -> Result<(), Refused> {
        let mut parameters = parameters.encode();
        // SAFETY: the id is live, and the parameters with their data for the call, which copies them.
        let result = unsafe { rdma_connect(self.raw(), &raw mut parameters) };
        Refused::check("connecting", result)
    }

    /// Accepts a peer: `Established` follows.
    pub(crate) fn accept(&mut self, parameters: &Parameters<'_>) -> Result<(), Refused> {
        let mut parameters = parameters.encode();
        // SAFETY: as in `connect`.
        let result = unsafe { rdma_accept(self.raw(), &raw mut parameters) };
        Refused::check("accepting", result)
    }

    /// Rejects a peer.
    pub(crate) fn reject(&mut self, private_data: &[u8]) -> Result<(), Refused> {
        let length = u8::try_from(private_data.len()).unwrap_or(0);
        // SAFETY: the id is live, and the data for the call.
        let result = unsafe { rdma_reject(self.raw(), private_data.as_ptr().cast(), length) };
        Refused::check("rejecting", result)
    }

    /// Ends the connection: its queue pair fails, and the peer is notified.
    pub(crate) fn disconnect(&mut self) -> Result<(), Refused> {
        // SAFETY: the id is live.
        Refused::check("disconnecting", unsafe { rdma_disconnect(self.raw()) })
    }

    /// Returns our address.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        // SAFETY: every field of the union is an address of some family, in integers.
        address::decode(unsafe { &self.get().route.addr.src_addr_union.src_storage })
    }

    /// Returns the peer's address.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        // SAFETY: as above.
        address::decode(unsafe { &self.get().route.addr.dst_addr_union.dst_storage })
    }

    /// Returns whether its address or the route to its peer has determined its device.
    pub(crate) fn has_device(&self) -> bool {
        !self.get().verbs.is_null()
    }

    /// Returns the port of its device that it uses, once that is determined.
    pub(crate) fn port(&self) -> Option<u8> {
        let port = self.get().port_num;
        (port > 0).then_some(port)
    }

    /// Returns whether it uses `device`.
    pub(crate) fn is_on(&self, device: &Device) -> bool {
        device.is(self.get().verbs)
    }

    pub(super) fn get(&self) -> &rdma_cm_id {
        // SAFETY: the id is live until we are dropped, and the library, which changes it, is in no call
        // while the reference lives: calls take us exclusively, or are made between uses.
        unsafe { self.id.as_ref() }
    }

    pub(super) const fn raw(&self) -> *mut rdma_cm_id {
        self.id.as_ptr()
    }
}

impl Drop for CmId {
    fn drop(&mut self) {
        // SAFETY: it came from the library and is freed once. Its queue pair, if any, was destroyed by
        // `QueuePair`, which owns both; every event of it that we took was acknowledged.
        unsafe { rdma_destroy_id(self.raw()) };
    }
}

impl Parameters<'_> {
    fn encode(&self) -> rdma_conn_param {
        // SAFETY: it is integers and a pointer that may be null.
        let mut raw: rdma_conn_param = unsafe { MaybeUninit::zeroed().assume_init() };
        raw.private_data = self.private_data.as_ptr().cast();
        raw.private_data_len = u8::try_from(self.private_data.len()).unwrap_or(0);
        raw.responder_resources = self.ird;
        raw.initiator_depth = self.ord;
        raw.retry_count = self.retries;
        raw.rnr_retry_count = self.retries_no_receive;
        raw
    }
}

/// Encodes a token as a pointer.
fn context(token: u32) -> *mut c_void {
    ptr::without_provenance_mut(token as usize)
}

fn millis(limit: Duration) -> c_int {
    c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX)
}

/// Peers that may wait to be reported.
const BACKLOG: c_int = 1024;

// From rdma_cma.h, where they are in unnamed enumerations.
const OPTION_ID: c_int = 0;
const OPTION_ID_AFONLY: c_int = 2;
