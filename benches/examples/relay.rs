//! A relay over TCP that delays what it passes on, as a long way does: what saves round trips gains over it.
//!
//! `relay [--listen ADDR:PORT] --to ADDR:PORT --delay MICROSECONDS` prints the address at which it listens, and passes on
//! octets between each client and a connection of its own to the server: in each direction after the delay, and no slower
//! than they come. It ends with its standard input.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "it has no core, so its threads are its own")]

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use haulage::proto::time::Instant;
use haulage::sys::clock;

fn main() -> ExitCode {
    let Some(options) = Options::typed(std::env::args().skip(1)) else {
        eprintln!("usage: relay [--listen ADDR:PORT] --to ADDR:PORT --delay MICROSECONDS");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("relay: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The options of the command line.
struct Options {
    listen: SocketAddr,
    to: SocketAddr,
    delay: Duration,
}

impl Options {
    fn typed(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let (mut listen, mut to, mut delay) = ("127.0.0.1:0".parse().ok()?, None, None);
        while let Some(option) = arguments.next() {
            let value = arguments.next()?;
            match option.as_str() {
                "--listen" => listen = value.parse().ok()?,
                "--to" => to = value.parse().ok(),
                "--delay" => delay = value.parse().ok().map(Duration::from_micros),
                _ => return None,
            }
        }
        Some(Self { listen, to: to?, delay: delay? })
    }
}

/// Passes on until the standard input ends.
fn run(&Options { listen, to, delay }: &Options) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    writeln!(io::stdout(), "{}", listener.local_addr()?)?;
    // A sleep that the system prolongs by 50 us would be a longer way.
    std::fs::write("/proc/self/timerslack_ns", "1")?;
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            if let Err(error) = relay(client, to, delay) {
                eprintln!("relay: {error}");
            }
        }
    });
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Begins to pass on between a client and the server.
fn relay(client: TcpStream, to: SocketAddr, delay: Duration) -> io::Result<()> {
    let server = TcpStream::connect(to)?;
    for (from, to) in [(client.try_clone()?, server.try_clone()?), (server, client)] {
        to.set_nodelay(true)?;
        let (sender, receiver) = channel();
        // What waits is still written when there is nothing more to read.
        let is_writing = sender.clone();
        thread::spawn(move || read(from, &sender));
        thread::spawn(move || {
            write(to, &receiver, delay);
            drop(is_writing);
        });
    }
    Ok(())
}

/// Octets, and when they came; none are the end.
type Came = (Instant, Vec<u8>);

/// Reads until there is no more.
fn read(mut from: TcpStream, sender: &Sender<Came>) {
    let mut octets = vec![0; 1 << 18];
    loop {
        let count = from.read(&mut octets).unwrap_or(0);
        if sender.send((clock::now(), octets[..count].to_vec())).is_err() || count == 0 {
            return;
        }
    }
}

/// Writes what comes after its delay.
fn write(mut to: TcpStream, receiver: &Receiver<Came>, delay: Duration) {
    // Without it the delays are longer, and as much so for all that is compared.
    let _ = std::fs::write("/proc/thread-self/timerslack_ns", "1");
    let mut waiting = VecDeque::new();
    loop {
        let due = waiting.front().map(|(came, _): &Came| came.saturating_add(delay));
        let next = match due {
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(due) => receiver.recv_timeout(due.saturating_since(clock::now())),
        };
        match next {
            Ok(came) => waiting.push_back(came),
            Err(RecvTimeoutError::Timeout) => {
                let Some((_, octets)) = waiting.pop_front() else { continue };
                if octets.is_empty() || to.write_all(&octets).is_err() {
                    let _ = to.shutdown(Shutdown::Write);
                    return;
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
