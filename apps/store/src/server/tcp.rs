//! Collecting Calls from TCP connections (RFC 5531 section 11).
//!
//! # Normal operation
//! One thread accepts, and one more for each connection reads its Calls one after the other, wakes the
//! core that answers them, and writes the Reply. This is how clients find what to mount, and a way in
//! for those without RDMA; it is not made for speed.
//!
//! # Limits
//! So many connections at a time; one more is closed at once. A record has a bounded length, and a
//! connection on which nothing comes for long is closed.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread;
use std::time::Duration;

use haulage::provider::Waker;
use haulage_proto::rpc::ReplyHeader;
use haulage_proto::rpc::record::Mark;
use haulage_proto::xdr::Writer;

use super::Admission;

/// A Call that came over TCP.
#[derive(Debug)]
pub struct TcpCall {
    pub(super) record: Vec<u8>,
    pub(super) client: IpAddr,
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

/// Where collected Calls go.
#[derive(Clone, Debug)]
pub struct Front {
    calls: SyncSender<TcpCall>,
    waker: Waker,
    admission: Arc<Admission>,
    connections: Arc<AtomicUsize>,
    record_max: usize,
}

/// Makes the way from TCP connections to a [`Server`](super::Server).
pub fn way() -> (SyncSender<TcpCall>, Receiver<TcpCall>) {
    mpsc::sync_channel(CALLS_MAX)
}

impl Front {
    /// Collects Calls of at most `record_max` octets into `calls`, whose core `waker` wakes.
    pub fn new(
        calls: SyncSender<TcpCall>,
        waker: Waker,
        admission: Admission,
        record_max: usize,
    ) -> Self {
        let connections = Arc::new(AtomicUsize::new(0));
        Self { calls, waker, admission: Arc::new(admission), connections, record_max }
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
        loop {
            let Ok((stream, peer)) = listener.accept() else {
                // Out of descriptors, perhaps: others will be closed.
                thread::park_timeout(ACCEPT_AGAIN);
                continue;
            };
            let count = self.connections.fetch_add(1, Ordering::Relaxed);
            let front = self.clone();
            let served = count < CONNECTIONS_MAX && self.admission.admits(peer.ip());
            let serve = move || {
                // However it ends, it is over; the client says what it wants on another one.
                let _ = front.serve(stream, peer.ip());
                front.connections.fetch_sub(1, Ordering::Relaxed);
            };
            let started =
                served.then(|| thread::Builder::new().name("tcp-call".to_owned()).spawn(serve));
            if !matches!(started, Some(Ok(_))) {
                self.connections.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn serve(&self, mut stream: TcpStream, client: IpAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(IDLE_MAX))?;
        stream.set_write_timeout(Some(IDLE_MAX))?;
        loop {
            let record = self.read(&mut stream)?;
            let (caller, replies) = mpsc::channel();
            let call = TcpCall { record, client, caller: TcpCaller(caller) };
            self.calls.send(call).map_err(|_| io::ErrorKind::BrokenPipe)?;
            self.waker.wake();
            let reply = replies.recv().map_err(|_| io::ErrorKind::InvalidData)?;
            stream.write_all(&reply)?;
        }
    }

    /// Reads one record, whatever fragments it comes in.
    fn read(&self, stream: &mut impl Read) -> io::Result<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; Mark::WIRE_LEN];
            stream.read_exact(&mut mark)?;
            let mark = Mark::decode(mark);
            let length = mark.length() as usize;
            if length > self.record_max - record.len() || (length == 0 && !mark.is_last()) {
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
        let mark = u32::try_from(reply.len()).ok().and_then(|length| Mark::new(true, length));
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

/// Connections at a time.
const CONNECTIONS_MAX: usize = 256;

/// Calls on their way to the core.
const CALLS_MAX: usize = 64;

/// How long a connection may be silent.
const IDLE_MAX: Duration = Duration::from_secs(360);

/// How long to wait before accepting again after it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Octets of the longest Reply without results.
const REPLY_HEADER_MAX: usize = 64;
