//! A listening port that its owner closes while a thread accepts from it.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use haulage::provider::AcceptFailures;
use haulage::sys::clock;
use haulage::sys::socket::is_of_the_peer;
use rustix::net::{Shutdown, shutdown};

/// A listening port. Its clones are the same port.
#[derive(Clone, Debug)]
pub struct Listener(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    socket: TcpListener,
    address: SocketAddr,
    is_closed: AtomicBool,
}

impl Listener {
    /// Listens at an address.
    ///
    /// # Errors
    /// The system's error, such as an address in use.
    pub fn bind(at: SocketAddr) -> io::Result<Self> {
        let socket = TcpListener::bind(at)?;
        let address = socket.local_addr()?;
        Ok(Self(Arc::new(Shared { socket, address, is_closed: AtomicBool::new(false) })))
    }

    /// Returns the bound address, with the real port.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Stops listening, so that another process can listen there at once. The thread that accepts ends.
    pub fn close(&self) {
        self.0.is_closed.store(true, Ordering::Release);
        // `shutdown` fails only if the socket was shut down before.
        let _ = shutdown(&self.0.socket, Shutdown::Both);
    }

    /// Waits for the next connection; returns `None` once the port is closed. Counts what fails in between with `failures`,
    /// for the port called `name`.
    pub fn accept(
        &self,
        name: &str,
        failures: &mut AcceptFailures,
    ) -> Option<(TcpStream, SocketAddr)> {
        loop {
            let accepted = self.0.socket.accept();
            if self.0.is_closed.load(Ordering::Acquire) {
                return None;
            }
            match accepted {
                Ok(accepted) => return Some(accepted),
                Err(error) => {
                    failures.count(name, &error, clock::now());
                    // Perhaps the process is out of descriptors: wait until others are closed.
                    if !is_of_the_peer(&error) {
                        thread::park_timeout(ACCEPT_AGAIN);
                    }
                }
            }
        }
    }
}

/// How long to wait before accepting again after it failed.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_closed_port_is_free_while_a_thread_accepts_from_it() {
        let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let (at, accepting) = (listener.address(), listener.clone());
        let (tell, told) = std::sync::mpsc::channel();
        let accept = move || {
            let mut failures = AcceptFailures::default();
            while let Some((stream, _)) = accepting.accept("port", &mut failures) {
                tell.send(stream).unwrap();
            }
            (accepting, failures.counts())
        };
        let thread = thread::Builder::new().spawn(accept).unwrap();
        // A connection made before does not keep the port occupied.
        let _client = TcpStream::connect(at).unwrap();
        let _served = told.recv().unwrap();
        listener.close();
        // The new listener stands for another process, which binds the port while this one still has its socket.
        let next = Listener::bind(at).unwrap();
        let (accepting, counts) = thread.join().unwrap();
        assert_eq!(counts, haulage::provider::Accepts::default(), "its end is no failure");
        drop(TcpStream::connect(at).unwrap());
        let mut failures = AcceptFailures::default();
        assert!(next.accept("port", &mut failures).is_some());
        assert!(accepting.accept("port", &mut failures).is_none());
    }
}
