//! Collecting Calls from TCP connections (RFC 5531 section 11).
//!
//! # Normal operation
//! One thread accepts, and one more for each connection reads its Calls one after the other, wakes the
//! core that answers them, and writes the Reply. This is how clients find what to mount, and a way in
//! for those without RDMA; it is not made for speed.
//!
//! # Limits
//! Each listening port has a [`Crowd`] of its own, so that NFS does not take the places of MOUNT. A record has
//! a bounded length and, once it has begun, a bounded time, however its octets come; so has a Reply. Addresses
//! that may not connect have a few places apart, for a few Calls: MOUNT tells them that they may not mount,
//! where a client whose connection is only closed would try for ever.

use std::io::{self, Read, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;
use std::time::Duration;

use haulage::provider::Waker;
use haulage_proto::rpc::ReplyHeader;
use haulage_proto::rpc::record::Mark;
use haulage_proto::xdr::Writer;

use super::Admission;
use crate::crowd::{Crowd, CrowdLimits, Phase, Seat};
use crate::trust::Host;

/// A Call that came over TCP.
#[derive(Debug)]
pub struct TcpCall {
    pub(super) record: Vec<u8>,
    pub(super) peer: SocketAddr,
    pub(super) host: Host,
    pub(super) caller: TcpCaller,
}

/// The connection a Call came on. Dropping it hangs up.
#[derive(Debug)]
pub(super) struct TcpCaller(Sender<Vec<u8>>);

/// Somebody who waits for a Reply.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) xid: u32,
    pub(super) caller: TcpCaller,
}

/// Bounds of what clients over TCP may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections of one listening port.
    pub connections_max: usize,
    /// Octets of a record.
    pub record_max: usize,
    /// How long a connection may be silent between two records.
    pub idle_time: Duration,
    /// How long a record may take, from its first octet to its last.
    pub record_time: Duration,
    /// How long a client may take to receive a Reply.
    pub reply_time: Duration,
}

/// Where collected Calls go.
#[derive(Clone, Debug)]
pub struct Front {
    calls: SyncSender<TcpCall>,
    waker: Waker,
    admission: Arc<Admission>,
    limits: Limits,
}

/// Makes the way from TCP connections to a [`Server`](super::Server).
pub fn way() -> (SyncSender<TcpCall>, Receiver<TcpCall>) {
    mpsc::sync_channel(CALLS_MAX)
}

impl Limits {
    /// Bounds for a server of clients that are set up by people.
    pub const DEFAULT: Self = Self {
        connections_max: 256,
        // A WRITE of 1 MiB and what surrounds it.
        record_max: (1 << 20) + 4096,
        idle_time: Duration::from_secs(360),
        record_time: Duration::from_secs(30),
        reply_time: Duration::from_secs(30),
    };
}

impl Front {
    /// Collects Calls into `calls`, whose core `waker` wakes.
    pub fn new(
        calls: SyncSender<TcpCall>,
        waker: Waker,
        admission: Admission,
        limits: Limits,
    ) -> Self {
        Self { calls, waker, admission: Arc::new(admission), limits }
    }

    /// Accepts connections at `at` for as long as the process lives. Returns the address really bound.
    ///
    /// # Errors
    /// The system's, such as an address in use.
    pub fn listen(&self, at: SocketAddr) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(at)?;
        let bound = listener.local_addr()?;
        let front = self.clone();
        thread::Builder::new()
            .name("tcp-accept".to_owned())
            .spawn(move || front.accept(&listener))?;
        Ok(bound)
    }

    fn accept(&self, listener: &TcpListener) {
        let connections_max = self.limits.connections_max;
        let each_max = connections_max.div_ceil(2);
        let mut clients = Crowd::new(CrowdLimits { connections_max, each_max });
        let connections_max = STRANGERS_MAX.min(self.limits.connections_max);
        let each_max = connections_max.div_ceil(2);
        let mut strangers = Crowd::new(CrowdLimits { connections_max, each_max });
        loop {
            let Ok((stream, peer)) = listener.accept() else {
                // Out of descriptors, perhaps: others will be closed.
                thread::park_timeout(ACCEPT_AGAIN);
                continue;
            };
            let is_stranger = !self.admission.admits(peer.ip());
            let crowd = if is_stranger { &mut strangers } else { &mut clients };
            let Some(seat) = crowd.admit(stream, peer.ip()) else { continue };
            let front = self.clone();
            let calls_max = if is_stranger { STRANGER_CALLS_MAX } else { u64::MAX };
            let serve = move || {
                // However it ends, it is over; the client says what it wants on another one.
                let _ = front.serve(&seat, peer, calls_max);
            };
            // Without a thread the seat is left at once.
            let _ = thread::Builder::new().name("tcp-call".to_owned()).spawn(serve);
        }
    }

    fn serve(&self, seat: &Seat, peer: SocketAddr, calls_max: u64) -> io::Result<()> {
        seat.stream().set_nodelay(true)?;
        let host = Host::of(peer.ip());
        for _ in 0..calls_max {
            let Some(record) = self.receive(seat)? else { return Ok(()) };
            let (caller, replies) = mpsc::channel();
            let call = TcpCall { record, peer, host, caller: TcpCaller(caller) };
            seat.enter(Phase::Serving);
            self.calls.send(call).map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.waker.wake();
            // Our own core answers, or drops the caller when it ends: nothing here depends on the peer.
            let reply = replies.recv().map_err(|_| io::ErrorKind::InvalidData)?;
            seat.enter(Phase::Transferring);
            seat.within(self.limits.reply_time).write_all(&reply)?;
            seat.enter(Phase::Idle);
        }
        Ok(())
    }

    /// Waits for a record and reads it; `None` if the client closed the connection before.
    fn receive(&self, seat: &Seat) -> io::Result<Option<Vec<u8>>> {
        let mut first = [0];
        if seat.within(self.limits.idle_time).read(&mut first)? == 0 {
            return Ok(None);
        }
        seat.enter(Phase::Transferring);
        let rest = seat.within(self.limits.record_time);
        self.read(&mut first.as_slice().chain(rest)).map(Some)
    }

    /// Reads one record, whatever fragments it comes in.
    fn read(&self, stream: &mut impl Read) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; Mark::WIRE_LEN];
            stream.read_exact(&mut mark)?;
            let mark = Mark::decode(mark);
            let length = mark.length() as usize;
            let left = self.limits.record_max - record.len();
            if length > left || (length == 0 && !mark.is_last()) {
                return Err(io::ErrorKind::InvalidData.into());
            }
            // As it comes, so that a length that is only claimed takes no memory.
            let read = stream.by_ref().take(u64::from(mark.length())).read_to_end(&mut record)?;
            if read < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if mark.is_last() {
                return Ok(record);
            }
        }
    }
}

impl TcpCaller {
    /// Sends a Reply, as one record.
    pub(super) fn send(self, reply: &[u8]) {
        let mark = u32::try_from(reply.len()).ok().and_then(Mark::last);
        let Some(mark) = mark else { return };
        let mut record = Vec::with_capacity(Mark::WIRE_LEN + reply.len());
        record.extend(mark.encode());
        record.extend(reply);
        // Its connection may be gone.
        let _ = self.0.send(record);
    }

    /// Sends a Reply without results.
    pub(super) fn refuse(self, header: &ReplyHeader) {
        let mut room = [0; REPLY_HEADER_MAX];
        let mut w = Writer::new(&mut room);
        if header.encode(&mut w).is_ok() {
            self.send(w.written());
        }
    }

    /// Closes the connection.
    pub(super) fn hang_up(self) {
        drop(self);
    }
}

/// Connections of addresses that may not connect, at a time.
const STRANGERS_MAX: usize = 16;

/// Calls on one connection of such an address: a client asks whether MOUNT is there, and then to mount.
const STRANGER_CALLS_MAX: u64 = 4;

/// Calls on their way to the core.
const CALLS_MAX: usize = 64;

/// How long to wait before accepting again after it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Octets of the longest Reply without results.
const REPLY_HEADER_MAX: usize = 64;
