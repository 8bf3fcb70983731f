//! Raw TCP, polled on both sides.
//!
//! # Normal operation
//! The near side first sends the length of answers. The far side then answers each request of 32 octets with one
//! message of that length, from one buffer again and again, or from those of a file in turn. The near side receives into
//! one of the buffers it reuses. So this moves the same octets as fetching items of that length, without a protocol. A
//! connection that stays on the machine has the congestion control that the provider `iwarp` chooses for such paths.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use haulage::sys::socket::{is_of_the_peer, suit_path};
use haulage::sys::{affinity, clock};

use super::pair::{GIB, Pair};
use crate::cli::values::Polling;
use crate::samples::Samples;

/// Measures the median round trip over the loopback, 32 octets there and `length` back, in
/// microseconds.
pub fn tcp_rtt_us(pair: Pair, length: usize, budget: Duration) -> io::Result<f64> {
    let (near, far) = Polled::connected(pair)?;
    pair.run(move || rtt_us(&near, length, budget), move || far.answer())
}

/// Measures the rate of fetching messages of `size` octets over the loopback, with `depth` in flight, in GiB/s.
pub fn tcp_stream_gib_per_s(
    pair: Pair,
    size: usize,
    depth: usize,
    budget: Duration,
) -> io::Result<f64> {
    tcp_file_gib_per_s(pair, size, depth, size, budget)
}

/// Like [`tcp_stream_gib_per_s`], but the messages are those of a file of `file` octets, read from its beginning to its
/// end again and again. So a file that is larger than the caches comes from memory.
pub fn tcp_file_gib_per_s(
    pair: Pair,
    size: usize,
    depth: usize,
    file: usize,
    budget: Duration,
) -> io::Result<f64> {
    let (near, far) = Polled::connected(pair)?;
    pair.run(move || stream_gib_per_s(&near, size, depth, budget), move || far.answer_from(file))
}

/// Like [`tcp_rtt_us`], but with the thread of [`answer`] at the address `to`.
pub fn tcp_rtt_us_to(
    to: SocketAddr,
    pair: Pair,
    length: usize,
    budget: Duration,
) -> io::Result<f64> {
    let near = Polled::to(to, pair)?;
    pair.run(move || rtt_us(&near, length, budget), || Ok(()))
}

/// Like [`tcp_stream_gib_per_s`], but with the thread of [`answer`] at the address `to`.
pub fn tcp_stream_gib_per_s_to(
    to: SocketAddr,
    pair: Pair,
    size: usize,
    depth: usize,
    budget: Duration,
) -> io::Result<f64> {
    let near = Polled::to(to, pair)?;
    pair.run(move || stream_gib_per_s(&near, size, depth, budget), || Ok(()))
}

/// Starts a thread, pinned to `cpu`, that answers one peer of `listener` after the other until the process ends. The
/// thread yields its CPU unless `polling` is busy.
///
/// # Errors
/// The thread cannot be started.
pub fn answer(listener: TcpListener, cpu: Option<usize>, polling: Polling) -> io::Result<()> {
    let yielding = polling != Polling::Busy;
    let pair = Pair { yielding, ..Pair::UNPINNED };
    thread::Builder::new().name("raw-tcp".to_owned()).spawn(move || {
        // If the thread cannot be pinned, it runs unpinned.
        let _ = cpu.map_or(Ok(()), affinity::pin);
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    let far = Polled::new(stream, pair, Some(PATIENCE));
                    // A peer that misbehaves or disconnects only ends its own connection.
                    let _ = far.and_then(|far| far.answer());
                }
                Err(error) if is_of_the_peer(&error) => {}
                // Perhaps the process is out of descriptors: wait until others are closed.
                Err(_) => thread::park_timeout(ACCEPT_AGAIN),
            }
        }
    })?;
    Ok(())
}

fn rtt_us(near: &Polled, length: usize, budget: Duration) -> io::Result<f64> {
    near.ask_for(length)?;
    let mut message = vec![0; length];
    let mut samples = Samples::default();
    let end = clock::now().saturating_add(budget);
    let mut now = clock::now();
    while now < end {
        near.send(&REQUEST)?;
        near.receive(&mut message)?;
        let then = std::mem::replace(&mut now, clock::now());
        samples.record(now.saturating_since(then));
    }
    Ok(samples.quantile_us(0.5))
}

fn stream_gib_per_s(near: &Polled, size: usize, depth: usize, budget: Duration) -> io::Result<f64> {
    near.ask_for(size)?;
    let mut places = vec![vec![0; size]; depth.max(1)];
    for place in &mut places {
        near.send(&REQUEST)?;
        place.fill(1);
    }
    // The first messages warm up both sides; the clock starts after them.
    let fetch = |place: &mut [u8]| {
        near.receive(place)?;
        near.send(&REQUEST)
    };
    places.iter_mut().try_for_each(|place| fetch(place))?;
    let start = clock::now();
    let mut octets = 0_u64;
    loop {
        for place in &mut places {
            fetch(place)?;
            octets += place.len() as u64;
        }
        let took = clock::now().saturating_since(start);
        if took >= budget {
            return Ok(octets as f64 / GIB / took.as_secs_f64());
        }
    }
}

/// The most octets of a message. Whoever reaches the port may have the server fill that much memory, and longer messages move at the
/// same rate.
pub const MESSAGE_MAX: usize = 64 << 20;

const REQUEST: [u8; 32] = [0; 32];

/// How long a peer may keep the thread of [`answer`] waiting.
const PATIENCE: Duration = Duration::from_secs(2);
/// Timeout of connecting to the thread of [`answer`].
const CONNECT: Duration = Duration::from_secs(2);
/// How long to wait when the system has no descriptors left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// One in this many empty polls checks the timeout.
const POLLS_PER_LOOK: u32 = 4096;

/// One end of a connection that never sleeps.
struct Polled {
    stream: TcpStream,
    pair: Pair,
    patience: Option<Duration>,
}

impl Polled {
    fn new(stream: TcpStream, pair: Pair, patience: Option<Duration>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        suit_path(&stream, stream.peer_addr()?.ip());
        Ok(Self { stream, pair, patience })
    }

    fn connected(pair: Pair) -> io::Result<(Self, Self)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let far = loop {
            let (far, peer) = listener.accept()?;
            // Anyone on this machine can connect.
            if peer == near.local_addr()? {
                break far;
            }
        };
        Ok((Self::new(near, pair, None)?, Self::new(far, pair, None)?))
    }

    fn to(address: SocketAddr, pair: Pair) -> io::Result<Self> {
        Self::new(TcpStream::connect_timeout(&address, CONNECT)?, pair, Some(PATIENCE))
    }

    /// Sends the length of answers to the far side.
    fn ask_for(&self, length: usize) -> io::Result<()> {
        self.send(&(length as u64).to_be_bytes())
    }

    /// Answers until the near side closes the connection, with one message again and again.
    fn answer(&self) -> io::Result<()> {
        self.answer_from(0)
    }

    /// Answers until the near side closes the connection, with the messages of a file of `file` octets in turn. There
    /// is at least one.
    fn answer_from(&self, file: usize) -> io::Result<()> {
        let mut length = [0; 8];
        if !self.receive_or_end(&mut length)? {
            return Ok(());
        }
        let length = usize::try_from(u64::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MESSAGE_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let file = vec![1; file.max(length)];
        let mut messages = file.chunks_exact(length.max(1)).cycle();
        let mut request = REQUEST;
        while self.receive_or_end(&mut request)? {
            match self.send(messages.next().unwrap_or_default()) {
                // The near side closed with answers in flight.
                Err(error) if ended(&error) => return Ok(()),
                sent => sent?,
            }
        }
        Ok(())
    }

    fn send(&self, mut message: &[u8]) -> io::Result<()> {
        let mut polls = Polls::default();
        while !message.is_empty() {
            match (&self.stream).write(message) {
                Ok(count) => (message, polls) = (&message[count..], Polls::default()),
                Err(error) => self.wait(error, &mut polls)?,
            }
        }
        Ok(())
    }

    fn receive(&self, message: &mut [u8]) -> io::Result<()> {
        if self.receive_or_end(message)? {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }

    /// Fills `message`; `false` if the other end is gone.
    fn receive_or_end(&self, mut message: &mut [u8]) -> io::Result<bool> {
        let mut polls = Polls::default();
        while !message.is_empty() {
            match (&self.stream).read(message) {
                Ok(0) => return Ok(false),
                Ok(count) => (message, polls) = (&mut message[count..], Polls::default()),
                Err(error) if ended(&error) => return Ok(false),
                Err(error) => self.wait(error, &mut polls)?,
            }
        }
        Ok(true)
    }

    fn wait(&self, error: io::Error, polls: &mut Polls) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                self.pair.relax();
                match self.patience {
                    Some(patience) if polls.exceed(patience) => Err(io::ErrorKind::TimedOut.into()),
                    _ => Ok(()),
                }
            }
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        }
    }
}

/// A counter of consecutive empty polls.
#[derive(Debug, Default)]
struct Polls {
    count: u32,
    since: Option<haulage::proto::time::Instant>,
}

impl Polls {
    /// Counts an empty poll. Returns whether the empty polls have taken longer than `patience`.
    fn exceed(&mut self, patience: Duration) -> bool {
        self.count = self.count.wrapping_add(1);
        if !self.count.is_multiple_of(POLLS_PER_LOOK) {
            return false;
        }
        let now = clock::now();
        now.saturating_since(*self.since.get_or_insert(now)) > patience
    }
}

fn ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_answers_outlives_those_who_ask_badly() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = listener.local_addr().unwrap();
        answer(listener, None, Polling::Adaptive).unwrap();
        let mut greedy = TcpStream::connect(at).unwrap();
        greedy.write_all(&u64::MAX.to_be_bytes()).unwrap();
        assert_eq!(greedy.read(&mut [0]).unwrap_or(0), 0, "it is not answered");
        drop(TcpStream::connect(at).unwrap());
        let budget = Duration::from_millis(10);
        let rtt = tcp_rtt_us_to(at, Pair::UNPINNED, 32, budget).unwrap();
        let stream = tcp_stream_gib_per_s_to(at, Pair::UNPINNED, 1 << 16, 2, budget).unwrap();
        assert!(rtt > 0.0 && stream > 0.0);
    }
}
