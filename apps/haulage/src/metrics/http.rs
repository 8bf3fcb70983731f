//! An HTTP server that answers only `GET /metrics`, and `HEAD`.
//!
//! # Limits
//! A few clients are answered at a time, each by a thread. A request has one deadline for all its octets, and so has
//! the response. One address can have half of the places. If there are more clients, the one whose transfer has lasted
//! longest is closed.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use haulage::provider::{AcceptFailures, Waker};
use haulage::sys::clock;
use haulage_store::crowd::{Crowd, CrowdLimits, Listener, Phase, Seat};

use super::page::Page;

mod request;

pub use request::{Asked, Part, REQUEST_MAX, Request, TooLong};

/// The HTTP server's ends of the channels to the [`Metered`](super::Metered) services of a server, by the numbers of their
/// cores.
#[derive(Clone, Debug)]
pub struct Asking {
    cores: Vec<Sender<Asker>>,
    failures: AcceptFailures,
}

/// What the HTTP server tells a [`Metered`](super::Metered) service.
#[derive(Debug)]
pub struct Questions {
    /// Requests for the page, each with the channel for the answer.
    pub(super) asked: Receiver<Asker>,
    /// How often the HTTP server failed to accept. The page of the first core shows it; on other cores it stays zero.
    pub(super) failures: AcceptFailures,
}

/// The channel by which a core that is asked for its page answers.
#[derive(Debug)]
pub(super) struct Asker {
    core: usize,
    answer: Sender<(usize, Page)>,
}

impl Asker {
    /// Answers with the page of the core. The asking thread may have given up.
    pub(super) fn answer(self, page: Page) {
        let _ = self.answer.send((self.core, page));
    }
}

/// Creates the channels from the HTTP server to the [`Metered`](super::Metered) services of a server with `cores` cores: the
/// HTTP server's ends, and the end of each core by its number.
pub fn ways(cores: usize) -> (Asking, Vec<Questions>) {
    let failures = AcceptFailures::default();
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..cores).map(|_| mpsc::channel()).unzip();
    let first = std::iter::once(failures.clone());
    let told = first.chain(std::iter::repeat_with(AcceptFailures::default));
    let questions = receivers.into_iter().zip(told);
    let questions = questions.map(|(asked, failures)| Questions { asked, failures }).collect();
    (Asking { cores: senders, failures }, questions)
}

/// Creates the channel from the HTTP server to the [`Metered`](super::Metered) service of a server's only core.
pub fn way() -> (Asking, Questions) {
    let (asking, mut questions) = ways(1);
    (asking, questions.remove(0))
}

impl Asking {
    /// Serves the page at `at` until the port, which is returned, is closed. `wakers` wake the cores that are asked for it.
    ///
    /// # Errors
    /// The system's error, such as an address in use.
    pub fn listen(&self, at: SocketAddr, wakers: &[Waker]) -> io::Result<Listener> {
        self.listen_within(at, wakers, Limits::DEFAULT)
    }

    /// Like [`Self::listen`], within these limits.
    fn listen_within(
        &self,
        at: SocketAddr,
        wakers: &[Waker],
        limits: Limits,
    ) -> io::Result<Listener> {
        let listener = Listener::bind(at)?;
        let (asking, accepting) = (self.clone(), listener.clone());
        let wakers: Arc<[Waker]> = wakers.into();
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || asking.accept(&accepting, &wakers, limits))?;
        Ok(listener)
    }

    fn accept(&self, listener: &Listener, wakers: &Arc<[Waker]>, limits: Limits) {
        let mut failures = self.failures.clone();
        let connections_max = limits.requests_max;
        let mut crowd =
            Crowd::new(CrowdLimits { connections_max, each_max: connections_max.div_ceil(2) });
        while let Some((stream, peer)) = listener.accept("metrics", &mut failures) {
            let Some(seat) = crowd.admit(stream, peer.ip()) else { continue };
            let (asking, wakers) = (self.clone(), Arc::clone(wakers));
            let answer = move || {
                // An error ends only this connection; the client may ask again.
                let _ = asking.answer(&seat, &wakers, limits);
            };
            // If no thread starts, the seat is dropped, which closes the connection.
            let _ = thread::Builder::new().name("metrics-answer".to_owned()).spawn(answer);
        }
        crowd.close();
    }

    fn answer(&self, seat: &Seat, wakers: &[Waker], limits: Limits) -> io::Result<()> {
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
            Asked::Metrics(_) => match self.page(wakers, limits) {
                Ok(page) => ("200 OK", page.to_string()),
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

    /// Asks the cores for their pages and waits for them. Of several cores, those that do not answer in time are left out.
    fn page(&self, wakers: &[Waker], limits: Limits) -> Result<Page, RecvTimeoutError> {
        let (answer, answers) = mpsc::channel();
        let mut asked = 0;
        for (core, way) in self.cores.iter().enumerate() {
            asked += usize::from(way.send(Asker { core, answer: answer.clone() }).is_ok());
        }
        drop(answer);
        wakers.iter().for_each(Waker::wake);
        let by = clock::now().saturating_add(limits.page_time);
        let mut pages = Vec::with_capacity(asked);
        while pages.len() < self.cores.len() {
            match answers.recv_timeout(by.saturating_since(clock::now())) {
                Ok(page) => pages.push(page),
                Err(error) if pages.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        pages.sort_by_key(|(core, _)| *core);
        Ok(if self.cores.len() == 1 { pages.remove(0).1 } else { Page::of_cores(&pages) })
    }
}

/// The limits of HTTP clients.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum number of concurrent requests.
    requests_max: usize,
    /// Timeout of receiving a request, from when the client connected, and of sending the response.
    request_time: Duration,
    /// Timeout of the cores to write their pages.
    page_time: Duration,
}

impl Limits {
    const DEFAULT: Self = Self {
        requests_max: 16,
        request_time: Duration::from_secs(2),
        page_time: Duration::from_secs(2),
    };
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::super::page::Kind;
    use super::*;

    const LOCAL: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

    /// Answers within `limits`, every page being `page`.
    fn serve(limits: Limits) -> SocketAddr {
        let (asking, questions) = way();
        let page = || {
            let mut page = Page::default();
            page.one("page", Kind::Gauge, "A page.", 1);
            page
        };
        let write = move || questions.asked.iter().for_each(|asker| asker.answer(page()));
        thread::Builder::new().spawn(write).unwrap();
        asking.listen_within(LOCAL.into(), &[Waker::new().unwrap()], limits).unwrap().address()
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
        let at = serve(Limits { requests_max: 3, request_time, ..Limits::DEFAULT });
        let mut silent: Vec<_> = (0..10)
            .map(|_| {
                let mut stream = TcpStream::connect(at).unwrap();
                stream.write_all(b"GET").unwrap();
                stream
            })
            .collect();
        for number in 0..10 {
            assert!(scrape(at).ends_with("gauge\npage 1\n"), "{number}");
        }
        // The first of the silent connections gave way.
        for stream in &mut silent[..7] {
            assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
        }
    }

    #[test]
    fn a_core_that_stands_still_is_left_out_of_the_page() {
        let (asking, mut questions) = ways(2);
        let _silent = questions.pop().unwrap();
        let turning = questions.pop().unwrap();
        let write = move || {
            for asker in turning.asked {
                let mut page = Page::default();
                page.one("page", Kind::Gauge, "A page.", 1);
                asker.answer(page);
            }
        };
        thread::Builder::new().spawn(write).unwrap();
        let limits = Limits { page_time: Duration::from_millis(20), ..Limits::DEFAULT };
        let wakers = [(); 2].map(|()| Waker::new().unwrap());
        let at = asking.listen_within(LOCAL.into(), &wakers, limits).unwrap().address();
        assert!(scrape(at).ends_with("gauge\npage{core=\"0\"} 1\n"));
    }

    #[test]
    fn a_request_ends_within_its_time_however_slowly_it_comes() {
        let at = serve(Limits {
            requests_max: 1,
            request_time: Duration::from_millis(20),
            ..Limits::DEFAULT
        });
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
