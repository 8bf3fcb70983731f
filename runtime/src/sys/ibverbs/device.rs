//! The RDMA devices of this machine, and their abilities.

use std::ffi::{CStr, c_int};
use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    ibv_async_event, ibv_context, ibv_device_attr, ibv_device_cap_flags, ibv_port_attr,
    ibv_port_state, ibv_transport_type, rdma_free_devices, rdma_get_devices,
};

use super::Refused;
use super::descriptor::nonblocking;
use super::news::{Fault, NEWS, Reader, Said};
use crate::sys::wake::Waker;

/// A device, opened by librdmacm for the connections it makes.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    context: NonNull<ibv_context>,
    opened: Arc<OpenDevice>,
}

/// All devices of the machine, which stay open while one of them is in use.
#[derive(Debug)]
pub(super) struct OpenDevice(NonNull<*mut ibv_context>);

// SAFETY: all it does is to free the list when the last count is gone, and libraries may be called by any
// thread.
unsafe impl Send for OpenDevice {}
// SAFETY: there is nothing to do with a reference to it.
unsafe impl Sync for OpenDevice {}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // SAFETY: the list came from rdma_get_devices and is freed once; every `Device` that uses a
        // context of it holds a count of us, so none is left.
        unsafe { rdma_free_devices(self.0.as_ptr()) };
    }
}

/// The limits of a device. Counts, unless octets are named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// The vendor's IEEE number.
    pub(crate) vendor: u32,
    /// Ports, which are numbered from 1.
    pub(crate) ports: u8,
    /// Queue pairs.
    pub(crate) queue_pairs: usize,
    /// Work requests in one queue.
    pub(crate) work_requests: usize,
    /// Entries of one completion queue.
    pub(crate) completions: usize,
    /// Receives of one shared queue; 0 if there are no shared queues.
    pub(crate) shared_receives: usize,
    /// Entries of the scatter list of one Receive in a shared queue.
    pub(crate) shared_scatter: usize,
    /// Entries of the scatter list of one Receive in a queue pair's own queue.
    pub(crate) scatter: usize,
    /// RDMA Reads that one queue pair serves at once.
    pub(crate) reads_served: u32,
    /// RDMA Reads that one queue pair has outstanding at once.
    pub(crate) reads_outstanding: u32,
    /// It is an iWARP device.
    pub(crate) is_iwarp: bool,
    /// Memory windows.
    pub(crate) windows: usize,
    /// Memory windows of type 2 are bound to one queue pair and invalidated by work requests.
    pub(crate) windows_type_2: bool,
}

/// One port of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// It carries messages.
    pub(crate) is_active: bool,
    /// Octets of the longest message.
    pub(crate) message_max: u32,
}

impl Device {
    /// Opens every device of the machine.
    ///
    /// Without devices, the list is empty. It is an error if there can be none: the libraries are not installed, or the
    /// kernel has no RDMA.
    pub(crate) fn all() -> Result<Vec<Self>, Refused> {
        let mut count: c_int = 0;
        // SAFETY: `count` is live for the call and written by it.
        let list = unsafe { rdma_get_devices(&raw mut count) };
        let Some(list) = NonNull::new(list) else {
            let refused = Refused::last("looking for RDMA devices");
            let none = matches!(refused.error.raw_os_error(), Some(0 | libc::ENODEV));
            return if none { Ok(Vec::new()) } else { Err(refused) };
        };
        let opened = Arc::new(OpenDevice(list));
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list has `count` entries, lives as long as `opened`, and nobody writes it.
        let contexts = unsafe { std::slice::from_raw_parts(list.as_ptr(), count) };
        let contexts = contexts.iter().filter_map(|context| NonNull::new(*context));
        let device = |context| Self { context, opened: Arc::clone(&opened) };
        Ok(contexts.map(device).collect())
    }

    /// Returns the name by which the administrator knows it.
    pub(crate) fn name(&self) -> String {
        // SAFETY: the device is of a live context, and has a name that ends with a zero.
        let name = unsafe { rdma_sys::ibv_get_device_name(self.context().device) };
        if name.is_null() {
            return "unnamed".to_owned();
        }
        // SAFETY: as above; the name lives as long as its device.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// Asks for its limits and abilities.
    pub(crate) fn attributes(&self) -> Result<Attributes, Refused> {
        let mut found = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is live, and `found` is a whole ibv_device_attr, which the call fills.
        let result = unsafe { rdma_sys::ibv_query_device(self.raw(), found.as_mut_ptr()) };
        Refused::check("asking an RDMA device for its limits", result)?;
        // SAFETY: it is integers, zeroed and then filled.
        let found = unsafe { found.assume_init() };
        let count = |value: c_int| usize::try_from(value).unwrap_or(0);
        let reads = |value: c_int| u32::try_from(value).unwrap_or(0).min(u32::from(u8::MAX));
        let type_2 = ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0
            | ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0;
        Ok(Attributes {
            vendor: found.vendor_id,
            ports: found.phys_port_cnt,
            queue_pairs: count(found.max_qp),
            work_requests: count(found.max_qp_wr),
            completions: count(found.max_cqe),
            shared_receives: if found.max_srq > 0 { count(found.max_srq_wr) } else { 0 },
            shared_scatter: count(found.max_srq_sge),
            scatter: count(found.max_sge),
            reads_served: reads(found.max_qp_rd_atom),
            reads_outstanding: reads(found.max_qp_init_rd_atom),
            // SAFETY: the device is of a live context, and its transport never changes.
            is_iwarp: unsafe { self.context().device.as_ref() }
                .is_some_and(|d| d.transport_type == ibv_transport_type::IBV_TRANSPORT_IWARP),
            windows: count(found.max_mw),
            windows_type_2: found.device_cap_flags & type_2 != 0,
        })
    }

    /// Asks for the state of its ports: returns the first that carries messages, or else the first.
    pub(crate) fn link(&self) -> Result<Link, Refused> {
        let first = self.port(1)?;
        let more = 2..=self.attributes()?.ports;
        let active = more.filter_map(|port| self.port(port).ok()).find(|link| link.is_active);
        Ok(active.filter(|_| !first.is_active).unwrap_or(first))
    }

    /// Returns whether a port carries messages.
    pub(crate) fn is_active(&self, port: u8) -> bool {
        self.port(port).is_ok_and(|link| link.is_active)
    }

    fn port(&self, number: u8) -> Result<Link, Refused> {
        let mut found = MaybeUninit::<ibv_port_attr>::zeroed();
        // SAFETY: the context is live; `found` is a whole ibv_port_attr, whose length the call passes
        // on, so that a library that knows a shorter one fills no more.
        let result = unsafe { rdma_sys::ibv_query_port(self.raw(), number, found.as_mut_ptr()) };
        Refused::check("asking an RDMA device for its port", result)?;
        // SAFETY: it is integers, zeroed and then filled.
        let found = unsafe { found.assume_init() };
        let is_active = found.state == ibv_port_state::IBV_PORT_ACTIVE;
        Ok(Link { is_active, message_max: found.max_msg_sz })
    }

    /// Has the device report faults to [`faults`](Self::faults), which does not wait.
    pub(crate) fn report_faults(&self) -> Result<(), Refused> {
        let what = "watching an RDMA device";
        nonblocking(self.context().async_fd).map_err(|error| Refused { what, error })
    }

    /// Returns the descriptor that is readable while there are faults, or other events.
    pub(crate) fn fault_fd(&self) -> RawFd {
        self.context().async_fd
    }

    /// Returns the place of a core in the news of this process, from now on. Each fault signals `waker`, unless the core
    /// itself took it from a device.
    pub(crate) fn join_news(waker: Waker) -> Reader {
        NEWS.join(waker)
    }

    /// Returns the faults that a core has not read, of any core's queue pairs, once those are noted that the device has not
    /// told anybody.
    pub(crate) fn faults(&self, reader: &mut Reader) -> Vec<Fault> {
        while let Some(report) = Report::next(self) {
            let said = match report.kind() {
                DEVICE_FATAL => Said::Device(self.raw().addr()),
                PORT_DOWN => Said::PortDown,
                kind if QUEUE_PAIR_FAULTS.contains(&kind) => Said::QueuePair(report.about()),
                _ => continue,
            };
            reader.note(said);
        }
        reader.read(self.raw().addr())
    }

    /// Returns the context that its objects are made from.
    pub(super) const fn raw(&self) -> *mut ibv_context {
        self.context.as_ptr()
    }

    /// Returns the value that keeps it open.
    pub(super) fn opened(&self) -> Arc<OpenDevice> {
        Arc::clone(&self.opened)
    }

    /// Returns whether `other` is the context of this device.
    pub(super) fn is(&self, other: *const ibv_context) -> bool {
        std::ptr::eq(self.context.as_ptr(), other)
    }

    fn context(&self) -> &ibv_context {
        // SAFETY: librdmacm keeps the context open while `opened` is not freed. The fields we read
        // never change.
        unsafe { self.context.as_ref() }
    }
}

/// A report that a device gave to the first core that asked. Dropping it acknowledges it; the libraries destroy the queue
/// pair that it is about only after that.
struct Report(MaybeUninit<ibv_async_event>);

impl Report {
    /// Takes the next report from a device, without waiting.
    fn next(device: &Device) -> Option<Self> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is live, its descriptor does not block, and the place is live for the call.
        if unsafe { rdma_sys::ibv_get_async_event(device.raw(), event.as_mut_ptr()) } != 0 {
            return None;
        }
        Some(Self(event))
    }

    /// Returns the kind, as libibverbs numbers it.
    fn kind(&self) -> u32 {
        let kind = offset_of!(ibv_async_event, event_type);
        // SAFETY: the field is a number, within the event, and the library filled it. It is not read as the enumeration it is
        // declared as: newer libraries know more kinds.
        unsafe { self.0.as_ptr().wrapping_byte_add(kind).cast::<u32>().read() }
    }

    /// Returns the address of what the report is about, if it is about an object.
    fn about(&self) -> usize {
        let about = offset_of!(ibv_async_event, element);
        // SAFETY: the field is within the event, and all fields of its union are pointers or smaller; the event was zeroed
        // before the library filled it.
        unsafe { self.0.as_ptr().wrapping_byte_add(about).cast::<usize>().read() }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        // SAFETY: the event was filled by the library and is acknowledged once.
        unsafe { rdma_sys::ibv_ack_async_event(self.0.as_mut_ptr()) };
    }
}

impl Refused {
    /// Returns whether the reason is that the libraries are missing.
    pub(crate) fn is_no_library(&self) -> bool {
        self.error.raw_os_error() == Some(libc::EOPNOTSUPP)
    }

    /// Returns whether the reason is that the kernel's part is missing.
    pub(crate) fn is_no_kernel(&self) -> bool {
        matches!(self.error.raw_os_error(), Some(libc::ENOSYS | libc::ENODEV | libc::ENOENT))
    }

    /// Returns whether the reason is a missing permission.
    pub(crate) fn is_no_permission(&self) -> bool {
        self.error.kind() == io::ErrorKind::PermissionDenied
    }
}

/// `IBV_EVENT_QP_FATAL`, `QP_REQ_ERR` and `QP_ACCESS_ERR`.
const QUEUE_PAIR_FAULTS: std::ops::RangeInclusive<u32> = 1..=3;
/// `IBV_EVENT_DEVICE_FATAL`.
const DEVICE_FATAL: u32 = 8;
/// `IBV_EVENT_PORT_ERR`.
const PORT_DOWN: u32 = 10;
