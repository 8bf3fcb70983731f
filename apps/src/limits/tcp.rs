//! Raw TCP over the loopback, polled on both sides.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use haulage::sys::clock;

use super::{GIB, Pair};
use crate::samples::Samples;

/// Measures the median round trip of `length` octets, in microseconds.
pub fn tcp_rtt_us(pair: Pair, length: usize, budget: Duration) -> io::Result<f64> {
    let (near, far) = Polled::connected(pair)?;
    let measure = move || {
        let mut message = vec![0; length];
        let mut samples = Samples::default();
        let end = clock::now().saturating_add(budget);
        let mut now = clock::now();
        while now < end {
            near.send(&message)?;
            near.receive(&mut message)?;
            let then = std::mem::replace(&mut now, clock::now());
            samples.record(now.saturating_since(then));
        }
        Ok(samples.quantile_us(0.5))
    };
    let echo = move || {
        let mut message = vec![0; length];
        while far.receive_or_end(&mut message)? {
            far.send(&message)?;
        }
        Ok(())
    };
    pair.run(measure, echo)
}

/// Measures how fast messages of `size` octets are fetched, `depth` at a time, in GiB/s.
///
/// The far side answers each request of 32 octets with one message, always the same hot one; the near
/// side asks again as soon as a message is complete, and receives straight into one of `depth`
/// buffers it reuses. That is what a GET of a value of that size moves, without any protocol.
pub fn tcp_stream_gib_per_s(
    pair: Pair,
    size: usize,
    depth: usize,
    budget: Duration,
) -> io::Result<f64> {
    let (near, far) = Polled::connected(pair)?;
    let measure = move || {
        let mut places = vec![vec![0; size]; depth.max(1)];
        for place in &mut places {
            near.send(&REQUEST)?;
            place.fill(1);
        }
        // What is under way warms up both sides; the clock starts after it.
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
    };
    let answer = move || {
        let message = vec![1; size];
        let mut request = REQUEST;
        while far.receive_or_end(&mut request)? {
            match far.send(&message) {
                // The near side has seen enough and closed with answers under way.
                Err(error) if ended(&error) => return Ok(()),
                sent => sent?,
            }
        }
        Ok(())
    };
    pair.run(measure, answer)
}

const REQUEST: [u8; 32] = [0; 32];

/// One end of a connection that never sleeps.
struct Polled {
    stream: TcpStream,
    pair: Pair,
}

impl Polled {
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
        for stream in [&near, &far] {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
        }
        Ok((Self { stream: near, pair }, Self { stream: far, pair }))
    }

    fn send(&self, mut message: &[u8]) -> io::Result<()> {
        while !message.is_empty() {
            match (&self.stream).write(message) {
                Ok(count) => message = &message[count..],
                Err(error) => self.wait(error)?,
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
        while !message.is_empty() {
            match (&self.stream).read(message) {
                Ok(0) => return Ok(false),
                Ok(count) => message = &mut message[count..],
                Err(error) if ended(&error) => return Ok(false),
                Err(error) => self.wait(error)?,
            }
        }
        Ok(true)
    }

    fn wait(&self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock => self.pair.relax(),
            io::ErrorKind::Interrupted => {}
            _ => return Err(error),
        }
        Ok(())
    }
}

fn ended(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}
