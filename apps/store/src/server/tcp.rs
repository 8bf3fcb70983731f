//! RPC over TCP connections (RFC 5531 section 11).
//!
//! # Normal operation
//! One thread accepts connections. A thread for each connection reads its Calls one after the other, wakes the core
//! that answers them, and writes the Replies. TCP serves MOUNT, and NFS for clients without RDMA; it is not optimized.
//!
//! # Limits
//! Each listening port has a [`Crowd`] of its own, so that NFS does not take the places of MOUNT. A record has a
//! bounded length and, from its first octet, a bounded time for each 64 KiB; a Reply has that, too. A long Call, or one with
//! a long Reply, takes memory that all ports and addresses share. Addresses that may not connect have a few places of their
//! own, for a few Calls: MOUNT tells them that they may not mount, whereas a client whose connection is only closed would
//! retry for ever.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;
use std::time::Duration;

use haulage::provider::{AcceptFailures, Waker};
use haulage_proto::rpc::ReplyHeader;
use haulage_proto::rpc::record::Mark;
use haulage_proto::xdr::Writer;

use super::Admission;
use super::over_tcp::reply_octets;
use super::records::{Records, Room};
use crate::crowd::{Crowd, CrowdLimits, Listener, Phase, Seat};
use crate::replays::Connection;
use crate::trust::Host;

/// What a core hears from connections over TCP.
#[derive(Debug)]
pub enum FromTcp {
    /// A Call.
    Call(TcpCall),
    /// The client of this connection closed it in order, having taken every Reply.
    Left(Connection),
}

/// A Call received over TCP.
#[derive(Debug)]
pub struct TcpCall {
    pub(super) connection: Connection,
    pub(super) record: Vec<u8>,
    pub(super) peer: SocketAddr,
    pub(super) host: Host,
    pub(super) caller: TcpCaller,
}

/// The connection of a Call. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct TcpCaller(pub(super) Sender<Vec<u8>>);

/// A caller that waits for a Reply over TCP.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) xid: u32,
    pub(super) caller: TcpCaller,
}

/// The limits of clients over TCP.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum connections of one listening port.
    pub connections_max: usize,
    /// Maximum length of a record, in octets.
    pub record_max: usize,
    /// Memory for the long Calls and Replies of all ports, in octets.
    pub records_octets: usize,
    /// How long a connection may be silent between two records; `None`: for ever.
    pub idle_time: Option<Duration>,
    /// How long each 64 KiB of a record or of a Reply, and the rest, may take.
    pub progress_time: Duration,
}

/// The front end of RPC over TCP, which passes Calls to a core.
#[derive(Clone, Debug)]
pub struct Front {
    calls: SyncSender<FromTcp>,
    waker: Waker,
    admission: Arc<Admission>,
    limits: Limits,
    records: Records,
    failures: AcceptFailures,
}

/// Creates the channel from TCP connections to a [`Server`](super::Server).
pub fn way() -> (SyncSender<FromTcp>, Receiver<FromTcp>) {
    mpsc::sync_channel(CALLS_MAX)
}

impl Limits {
    /// The default limits.
    pub const DEFAULT: Self = Self {
        connections_max: 256,
        // A WRITE of 1 MiB with its headers.
        record_max: (1 << 20) + 4096,
        records_octets: 64 << 20,
        idle_time: Some(Duration::from_secs(360)),
        progress_time: Duration::from_secs(30),
    };
}

impl Front {
    /// Creates a front end that sends Calls to `calls` and wakes their core by `waker`.
    pub fn new(
        calls: SyncSender<FromTcp>,
        waker: Waker,
        admission: Admission,
        limits: Limits,
    ) -> Self {
        let (admission, failures) = (Arc::new(admission), AcceptFailures::default());
        let records = Records::new(limits.records_octets);
        Self { calls, waker, admission, limits, records, failures }
    }

    /// Counts failed accepts with `failures`.
    #[must_use]
    pub fn counting(self, failures: AcceptFailures) -> Self {
        Self { failures, ..self }
    }

    /// Accepts connections at `at` until the port, which is returned, is closed.
    ///
    /// # Errors
    /// The system's error, such as an address in use.
    pub fn listen(&self, at: SocketAddr) -> io::Result<Listener> {
        let listener = Listener::bind(at)?;
        let (front, accepting) = (self.clone(), listener.clone());
        thread::Builder::new()
            .name("tcp-accept".to_owned())
            .spawn(move || front.accept(&accepting))?;
        Ok(listener)
    }

    fn accept(&self, listener: &Listener) {
        let mut failures = self.failures.clone();
        let connections_max = self.limits.connections_max;
        let each_max = connections_max.div_ceil(2);
        let mut clients = Crowd::new(CrowdLimits { connections_max, each_max });
        let connections_max = STRANGERS_MAX.min(self.limits.connections_max);
        let each_max = connections_max.div_ceil(2);
        let mut strangers = Crowd::new(CrowdLimits { connections_max, each_max });
        while let Some((stream, peer)) = listener.accept("tcp", &mut failures) {
            let is_stranger = !self.admission.admits(peer.ip());
            let crowd = if is_stranger { &mut strangers } else { &mut clients };
            let endings = crowd.endings(peer.ip());
            let Some(seat) = crowd.admit(stream, peer.ip()) else { continue };
            let front = self.clone();
            let calls_max = if is_stranger { STRANGER_CALLS_MAX } else { u64::MAX };
            let serve = move || {
                // A client may connect again before the thread of its last connection sees the end of that.
                let left = endings.into_iter().filter_map(|ending| ending.left());
                left.for_each(|number| front.tell_left(number));
                // An error ends only this connection; the client may open another.
                let _ = front.serve(&seat, peer, calls_max);
            };
            // If no thread starts, the seat is dropped, which closes the connection.
            let _ = thread::Builder::new().name("tcp-call".to_owned()).spawn(serve);
        }
        clients.close();
        strangers.close();
    }

    fn serve(&self, seat: &Seat, peer: SocketAddr, calls_max: u64) -> io::Result<()> {
        seat.stream().set_nodelay(true)?;
        let host = Host::of(peer.ip());
        for _ in 0..calls_max {
            let mut room = self.records.begin(peer.ip());
            let Some(record) = self.receive(seat, &mut room)? else {
                if seat.has_left() {
                    self.tell_left(seat.number());
                }
                return Ok(());
            };
            let (caller, replies) = mpsc::channel();
            let connection = Connection::Tcp(seat.number());
            let call = TcpCall { connection, record, peer, host, caller: TcpCaller(caller) };
            seat.enter(Phase::Serving);
            self.calls.send(FromTcp::Call(call)).map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.waker.wake();
            // Our own core answers, or drops the caller when it ends: nothing here depends on the peer.
            let reply = replies.recv().map_err(|_| io::ErrorKind::InvalidData)?;
            seat.respond(&reply, self.limits.progress_time)?;
        }
        Ok(())
    }

    /// Tells the core that the client of a connection closed it in order.
    fn tell_left(&self, number: u64) {
        // Without a core nothing is left to forget.
        if self.calls.send(FromTcp::Left(Connection::Tcp(number))).is_ok() {
            self.waker.wake();
        }
    }

    /// Waits for a record and reads it into `room`, which then has room for the Reply; `None` if the client closed the
    /// connection before.
    fn receive(&self, seat: &Seat, room: &mut Room) -> io::Result<Option<Vec<u8>>> {
        let mut first = [0];
        if seat.within(self.limits.idle_time.unwrap_or(FOREVER)).read(&mut first)? == 0 {
            return Ok(None);
        }
        seat.enter(Phase::Transferring);
        let rest = seat.steadily(self.limits.progress_time);
        let record = self.read(&mut first.as_slice().chain(rest), room)?;
        self.grow(room, reply_octets(&record).min(self.limits.record_max))?;
        Ok(Some(record))
    }

    /// Reads one record, whatever fragments it comes in.
    fn read(&self, stream: &mut impl Read, room: &mut Room) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        let mut empty = 0;
        loop {
            let mut mark = [0; Mark::WIRE_LEN];
            stream.read_exact(&mut mark)?;
            let mark = Mark::decode(mark);
            let length = mark.length() as usize;
            let left = self.limits.record_max - record.len();
            // RFC 5531 section 11: a fragment may be empty.
            empty += u32::from(length == 0);
            if length > left || empty > EMPTY_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let needed = record.len() + length;
            if needed > record.capacity() {
                // The capacity at least doubles, so that many short fragments are not copied often.
                let capacity = needed.max(2 * record.capacity());
                self.grow(room, capacity)?;
                record.reserve_exact(capacity - record.len());
            }
            let read = stream.by_ref().take(u64::from(mark.length())).read_to_end(&mut record)?;
            if read < length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if mark.is_last() {
                return Ok(record);
            }
        }
    }

    /// Waits until `room` has at least `octets` octets.
    fn grow(&self, room: &mut Room, octets: usize) -> io::Result<()> {
        if room.grow(octets, self.limits.progress_time) {
            Ok(())
        } else {
            Err(io::ErrorKind::TimedOut.into())
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
        // The connection may be gone.
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

/// Maximum connections of addresses that may not connect.
const STRANGERS_MAX: usize = 16;

/// Maximum Calls on a connection of an address that may not connect: a client makes a NULL Call, then MNT.
const STRANGER_CALLS_MAX: u64 = 4;

/// Maximum number of empty fragments in a record.
pub(super) const EMPTY_MAX: u32 = 64;

/// The longest timeout that the system takes.
const FOREVER: Duration = Duration::from_secs(1 << 30);

/// Maximum number of Calls queued for the core.
const CALLS_MAX: usize = 64;

/// Maximum length of a Reply without results, in octets.
const REPLY_HEADER_MAX: usize = 64;
