//! Answering `GET /metrics`, and nothing else.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use haulage::provider::Waker;

/// Where whoever asks for the page is announced.
#[derive(Clone, Debug)]
pub struct Asking {
    asked: Sender<Sender<String>>,
}

/// Makes the way from those who ask to a [`Metered`](super::Metered) service.
pub fn way() -> (Asking, Receiver<Sender<String>>) {
    let (asked, receiver) = mpsc::channel();
    (Asking { asked }, receiver)
}

impl Asking {
    /// Answers at `at` for as long as the process lives, one after the other; `waker` wakes the core that
    /// writes the page. Returns the address really bound.
    ///
    /// # Errors
    /// The system's, such as an address in use.
    pub fn listen(&self, at: SocketAddr, waker: &Waker) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind(at)?;
        let bound = listener.local_addr()?;
        let (asking, waker) = (self.clone(), waker.clone());
        thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            loop {
                match listener.accept() {
                    // Who asks badly, or goes away, is nobody's loss.
                    Ok((stream, _)) => drop(asking.answer(stream, &waker)),
                    // Out of descriptors, perhaps: others will be closed.
                    Err(_) => thread::park_timeout(ACCEPT_AGAIN),
                }
            }
        })?;
        Ok(bound)
    }

    fn answer(&self, mut stream: TcpStream, waker: &Waker) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut request = Vec::new();
        let mut octets = [0; 1024];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let count = stream.read(&mut octets)?;
            if count == 0 || request.len() > REQUEST_MAX {
                return Ok(());
            }
            request.extend(octets.get(..count).unwrap_or_default());
        }
        let line = request.split(|octet| *octet == b'\r').next().unwrap_or_default();
        let mut words = line.split(|octet| *octet == b' ');
        let (status, body) = match (words.next(), words.next()) {
            (Some(b"GET"), Some(b"/metrics")) => match self.page(waker) {
                Some(page) => ("200 OK", page),
                None => ("503 Service Unavailable", "the server is ending\n".to_owned()),
            },
            (Some(b"GET"), _) => ("404 Not Found", "look at /metrics\n".to_owned()),
            _ => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
    }

    /// Has the core write the page.
    fn page(&self, waker: &Waker) -> Option<String> {
        let (asker, answer) = mpsc::channel();
        self.asked.send(asker).ok()?;
        waker.wake();
        answer.recv_timeout(PATIENCE).ok()
    }
}

/// How long anybody may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long to wait before accepting again after it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Octets of the longest request that is read.
const REQUEST_MAX: usize = 8192;
