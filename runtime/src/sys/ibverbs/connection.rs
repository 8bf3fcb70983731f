//! Connections by librdmacm: ids.
//!
//! # Threads
//! An id is used by the thread that takes the events of its channel, and by no other. Only an id that a listener reported
//! can leave that thread, as an [`ArrivingId`]: until it is on the channel of another thread, it can do nothing but move
//! there, or go.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{
    rdma_accept, rdma_bind_addr, rdma_cm_id, rdma_conn_param, rdma_connect, rdma_create_id,
    rdma_destroy_id, rdma_disconnect, rdma_listen, rdma_port_space, rdma_reject, rdma_resolve_addr,
    rdma_resolve_route,
};

use super::channel::{Channel, EventChannel};
use super::migrate::migrate;
use super::{Device, Refused, address};

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

/// A listener, or one end of a connection.
#[derive(Debug)]
pub(crate) struct CmId {
    id: NonNull<rdma_cm_id>,
    channel: Arc<Channel>,
}

impl CmId {
    /// Makes an id whose events carry `token`.
    pub(crate) fn new(channel: &EventChannel, token: u32) -> Result<Self, Refused> {
        let mut id = ptr::null_mut();
        let space = rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel is live, and the place for the call. The context is never followed.
        let result =
            unsafe { rdma_create_id(channel.channel().raw(), &raw mut id, context(token), space) };
        let what = "making an RDMA connection";
        Refused::check(what, result)?;
        let id = NonNull::new(id).ok_or_else(|| Refused::last(what))?;
        Ok(Self { id, channel: Arc::clone(channel.channel()) })
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

/// The id of a peer that has reached a listener. Nothing can be done with it but to move it to the channel of a thread, or
/// to drop it, which refuses the peer.
#[derive(Debug)]
pub(crate) struct ArrivingId(CmId);

// SAFETY: the thread that has it reads its addresses and its device, which do not change any more; moves it, while
// nobody takes events from its channel (`Channel::keep_ids`); or destroys it, for which the library waits until every
// event of it is acknowledged. Only an id that is on a channel of the thread's own can be used otherwise.
unsafe impl Send for ArrivingId {}

impl ArrivingId {
    /// Owns an id that came with an event of `channel`.
    pub(super) fn new(id: NonNull<rdma_cm_id>, channel: &Arc<Channel>) -> Self {
        Self(CmId { id, channel: Arc::clone(channel) })
    }

    /// Moves the id to `channel`, whose thread this is. Its events that were not taken move along.
    ///
    /// # Errors
    /// The library or the kernel cannot move ids; the peer is refused.
    pub(crate) fn adopt(self, channel: &EventChannel) -> Result<CmId, Refused> {
        let Self(mut id) = self;
        if Arc::ptr_eq(&id.channel, channel.channel()) {
            return Ok(id);
        }
        let what = "handing over an RDMA connection";
        let unknown = || Refused { what, error: io::ErrorKind::Unsupported.into() };
        let migrate = migrate().ok_or_else(unknown)?;
        let result = {
            let _kept = id.channel.keep_ids();
            // SAFETY: the function is the library's; the id and both channels are live; nobody takes events from the
            // channel that it is on, nor from the other, which is this thread's.
            unsafe { migrate(id.raw(), channel.channel().raw()) }
        };
        Refused::check(what, result)?;
        id.channel = Arc::clone(channel.channel());
        Ok(id)
    }

    /// Returns the peer's address.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.0.peer()
    }

    /// Returns whether it uses `device`.
    pub(crate) fn is_on(&self, device: &Device) -> bool {
        self.0.is_on(device)
    }

    /// Returns whether an event is about it.
    pub(crate) fn is(&self, about: usize) -> bool {
        self.0.raw().addr() == about
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
