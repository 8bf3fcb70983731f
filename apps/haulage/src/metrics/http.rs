//! An HTTP server that answers only `GET /metrics`, and `HEAD`.
//!
//! # Limits
//! A few clients are answered at a time, each by a thread. A request has one deadline for all its octets, and so has
//! the response. One address can have half of the places. If there are more clients, the one whose transfer has lasted
//! longest is closed.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use haulage::provider::{AcceptFailures, Waker};
use haulage_store::crowd::{Crowd, CrowdLimits, Listener, Phase, Seat};

mod request;

pub use request::{Asked, Part, REQUEST_MAX, Request, TooLong};

/// The HTTP server's end of the channel to a [`Metered`](super::Metered) service.
#[derive(Clone, Debug)]
pub struct Asking {
    asked: Sender<Sender<String>>,
    failures: AcceptFailures,
}

/// What the HTTP server tells a [`Metered`](super::Metered) service.
#[derive(Debug)]
pub struct Questions {
    /// Requests for the page, each with the channel for the answer.
    pub(super) asked: Receiver<Sender<String>>,
    /// Failed accepts of the HTTP server.
    pub(super) failures: AcceptFailures,
}

/// Creates the channel from the HTTP server to a [`Metered`](super::Metered) service.
pub fn way() -> (Asking, Questions) {
    let (asked, receiver) = mpsc::channel();
    let failures = AcceptFailures::default();
    (Asking { asked, failures: failures.clone() }, Questions { asked: receiver, failures })
}

impl Asking {
    /// Serves the page at `at` until the port, which is returned, is closed. `waker` wakes the core that writes the page.
    ///
    /// # Errors
    /// The system's error, such as an address in use.
    pub fn listen(&self, at: SocketAddr, waker: &Waker) -> io::Result<Listener> {
        self.listen_within(at, waker, Limits::DEFAULT)
    }

    /// Like [`Self::listen`], within these limits.
    fn listen_within(&self, at: SocketAddr, waker: &Waker, limits: Limits) -> io::Result<Listener> {
        let listener = Listener::bind(at)?;
        let (asking, waker, accepting) = (self.clone(), waker.clone(), listener.clone());
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || asking.accept(&accepting, &waker, limits))?;
        Ok(listener)
    }

    fn accept(&self, listener: &Listener, waker: &Waker, limits: Limits) {
        let mut failures = self.failures.clone();
        let connections_max = limits.requests_max;
        let mut crowd =
            Crowd::new(CrowdLimits { connections_max, each_max: connections_max.div_ceil(2) });
        while let Some((stream, peer)) = listener.accept("metrics", &mut failures) {
            let Some(seat) = crowd.admit(stream, peer.ip()) else { continue };
            let (asking, waker) = (self.clone(), waker.clone());
            let answer = move || {
                // An error ends only this connection; the client may ask again.
                let _ = asking.answer(&seat, &waker, limits);
            };
            // If no thread starts, the seat is dropped, which closes the connection.
            let _ = thread::Builder::new().name("metrics-answer".to_owned()).spawn(answer);
        }
        crowd.close();
    }

    fn answer(&self, seat: &Seat, waker: &Waker, limits: Limits) -> io::Result<()> {
        let mut stream = seat.within(limits.request_time);
        let mut request = Request::default();
        let mut octets = [0; 1024];
        let asked = loop {
            let count = stream.read(&mut octets)?;
            match request.take(octets.get(..count).unwrap_or_default()) {
                Ok(None) if count > 0 => {}
                Ok(Some(asked)) => break asked,
                Ok(None) | Err(TooLong) => return Ok(()),
            }
        };
        seat.enter(Phase::Serving);
        let (status, body) = match asked {
            Asked::Metrics(_) => match self.page(waker) {
                Ok(page) => ("200 OK", page),
                Err(RecvTimeoutError::Timeout) => {
                    (
                        "503 Service Unavailable",
                        "the core does not turn: it is busy, or inside a system call that does not return\n".to_owned(),
                    )
                }
                Err(RecvTimeoutError::Disconnected) => {
                    ("503 Service Unavailable", "the server is ending\n".to_owned())
                }
            },
            Asked::Other(_) => ("404 Not Found", "look at /metrics\n".to_owned()),
            // Who is refused a method is told of the others (RFC 9110 section 15.5.6).
            Asked::NotGet => (
                "405 Method Not Allowed\r\nAllow: GET, HEAD",
                "only GET and HEAD are answered\n".to_owned(),
            ),
        };
        seat.enter(Phase::Transferring);
        let length = body.len();
        let body = match asked {
            Asked::Metrics(Part::Head) | Asked::Other(Part::Head) => "",
            _ => &body,
        };
        write!(
            seat.within(limits.request_time),
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}",
        )
    }

    /// Asks the core for the page and waits for it.
    fn page(&self, waker: &Waker) -> Result<String, RecvTimeoutError> {
        let (asker, answer) = mpsc::channel();
        self.asked.send(asker).map_err(|_| RecvTimeoutError::Disconnected)?;
        waker.wake();
        answer.recv_timeout(PATIENCE)
    }
}

/// The limits of HTTP clients.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum number of concurrent requests.
    requests_max: usize,
    /// Timeout of receiving a request, from when the client connected, and of sending the response.
    request_time: Duration,
}

impl Limits {
    const DEFAULT: Self = Self { requests_max: 16, request_time: Duration::from_secs(2) };
}

/// Timeout of the core to write the page.
const PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

    /// Answers within `limits`, every page being `page`.
    fn serve(limits: Limits) -> SocketAddr {
        let (asking, questions) = way();
        let write =
            move || questions.asked.iter().for_each(|asker| _ = asker.send("page".to_owned()));
        thread::Builder::new().spawn(write).unwrap();
        asking.listen_within(LOCAL.into(), &Waker::new().unwrap(), limits).unwrap().address()
    }

    fn scrape(at: SocketAddr) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn clients_that_never_finish_a_request_keep_nobody_out() {
        let request_time = Duration::from_secs(3600);
        let at = serve(Limits { requests_max: 3, request_time });
        let mut silent: Vec<_> = (0..10)
            .map(|_| {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.write_all(b"GET").unwrap();
                stream
            })
            .collect();
        for number in 0..10 {
            assert!(scrape(at).ends_with("\r\n\r\npage"), "{number}");
        }
        // The first of the silent connections gave way.
        for stream in &mut silent[..7] {
            assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
        }
    }

    #[test]
    fn a_request_ends_within_its_time_however_slowly_it_comes() {
        let at = serve(Limits { requests_max: 1, request_time: Duration::from_millis(20) });
        let mut stream = TcpStream::connect(at).unwrap();
        let mut ours = stream.try_clone().unwrap();
        let dribble = move || {
            let sent = (0..REQUEST_MAX).take_while(|_| {
                thread::park_timeout(Duration::from_millis(1));
                ours.write_all(b"x").is_ok()
            });
            sent.count()
        };
        let dribbling = thread::Builder::new().spawn(dribble).unwrap();
        assert!(!matches!(stream.read(&mut [0; 8]), Ok(1..)), "no answer");
        assert!(dribbling.join().unwrap() < REQUEST_MAX, "longer requests end, too");
    }
}
