//! The reactor, which reports sockets that are ready: an io_uring or an epoll, behind one interface.
//!
//! With a ring, octets come with the news, in a receive buffer of the ring; with epoll the provider reads the socket
//! itself. With either, a connection that is *hot* is read at every poll without asking the reactor, which is the
//! fastest way to serve a few busy ones.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

use haulage_proto::verbs::QpNum;

use super::config::{Backend, BackendReport, Config};
use crate::sys::epoll::Epoll;
use crate::sys::uring::{self, Filled, Outcome, Ring};

/// A ring or an epoll.
#[derive(Debug)]
pub(super) enum Reactor {
    Uring(Box<Ring>),
    Sockets { epoll: Box<Epoll>, ready: Vec<News> },
}

/// An event, and the connection or listener it concerns.
#[derive(Debug)]
pub(super) enum News {
    /// Octets arrived; give the buffer back.
    Received { qp: QpNum, filled: Filled, more: bool },
    /// The receive of this connection is over.
    ReceiveOver { qp: QpNum, why: Over },
    /// There may be something to read.
    Readable(QpNum),
    /// There may be room to write, or connecting is over.
    Writable(QpNum),
    /// A peer may be waiting at this listener.
    Acceptable(u16),
    /// The waker was signaled.
    Woken,
}

/// The reason that a receive is over.
#[derive(Debug)]
pub(super) enum Over {
    /// The peer sends no more.
    End,
    /// The connection is gone.
    Failed,
    /// The receive was canceled, or the ring ran out of buffers.
    Paused,
}

impl Reactor {
    pub(super) fn new(config: &Config) -> io::Result<(Self, BackendReport)> {
        let report = match config.backend {
            Backend::Sockets => BackendReport::Sockets,
            Backend::Auto | Backend::Uring => {
                let length = config.receive_buffer_bytes;
                match Ring::new(RING_ENTRIES, config.receive_buffers, length) {
                    Ok(ring) => return Ok((Self::Uring(Box::new(ring)), BackendReport::Uring)),
                    Err(why) if config.backend == Backend::Uring => {
                        return Err(io::Error::new(why.error.kind(), why));
                    }
                    Err(why) => BackendReport::NoUring(why),
                }
            }
        };
        let epoll = Box::new(Epoll::new()?);
        Ok((Self::Sockets { epoll, ready: Vec::new() }, report))
    }

    /// Adds a new socket.
    pub(super) fn adopt(&mut self, fd: RawFd, qp: QpNum) -> io::Result<()> {
        match self {
            Self::Uring(_) => Ok(()),
            Self::Sockets { epoll, .. } => epoll.watch(fd, Token::Connection(qp).into()),
        }
    }

    /// Receives the octets that arrive on a connection, until `ReceiveOver`. Only for a ring.
    pub(super) fn receive(&mut self, fd: RawFd, qp: QpNum) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.receive(fd, Token::Connection(qp).into()),
            Self::Sockets { .. } => Ok(()),
        }
    }

    /// Stops a `receive`, which ends with `ReceiveOver`.
    pub(super) fn pause(&mut self, qp: QpNum) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.cancel(Token::Connection(qp).into()),
            Self::Sockets { .. } => Ok(()),
        }
    }

    /// Reports once when a connection can be written to.
    pub(super) fn writable(&mut self, fd: RawFd, qp: QpNum) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.writable(fd, Token::Writable(qp).into()),
            Self::Sockets { .. } => Ok(()),
        }
    }

    /// Reports when a peer waits at a new listener: once with a ring, for each peer with epoll.
    pub(super) fn acceptable(&mut self, fd: RawFd, listener: u16) -> io::Result<()> {
        self.readable(fd, Token::Listener(listener))
    }

    /// Like `acceptable`, but for a listener that was reported.
    pub(super) fn acceptable_again(&mut self, fd: RawFd, listener: u16) -> io::Result<()> {
        self.readable_again(fd, Token::Listener(listener))
    }

    /// Stops `acceptable` of a listener whose socket is about to be closed.
    pub(super) fn forget(&mut self, listener: u16) {
        if let Self::Uring(ring) = self {
            // If the full queue cannot be emptied, a socket stays open, which does no other harm.
            let _ = ring.cancel(Token::Listener(listener).into());
        }
    }

    /// Reports when a new waker is signaled: once with a ring, every time with epoll.
    pub(super) fn woken(&mut self, fd: RawFd) -> io::Result<()> {
        self.readable(fd, Token::Waker)
    }

    /// Like `woken`, but for a waker that was reported.
    pub(super) fn woken_again(&mut self, fd: RawFd) -> io::Result<()> {
        self.readable_again(fd, Token::Waker)
    }

    /// Looks for news without waiting. Returns the system calls made, or `None` if there is no news.
    pub(super) fn look(&mut self) -> io::Result<Option<u64>> {
        match self {
            Self::Uring(ring) => {
                if ring.wants_enter() {
                    ring.enter()?;
                    return Ok(Some(1));
                }
                Ok(ring.has_events().then_some(0))
            }
            Self::Sockets { epoll, ready } => {
                gather(epoll, ready, Some(Duration::ZERO));
                Ok(Some(1))
            }
        }
    }

    /// Waits for news, at most `limit`.
    pub(super) fn wait(&mut self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.wait(limit),
            Self::Sockets { epoll, ready } => {
                gather(epoll, ready, limit);
                Ok(())
            }
        }
    }

    /// Takes one piece of news.
    pub(super) fn pop(&mut self) -> Option<News> {
        match self {
            Self::Uring(ring) => ring.pop().map(news),
            Self::Sockets { ready, .. } => ready.pop(),
        }
    }

    /// Returns the octets in a buffer.
    pub(super) fn bytes(&self, filled: &Filled) -> &[u8] {
        match self {
            Self::Uring(ring) => ring.bytes(filled),
            Self::Sockets { .. } => &[],
        }
    }

    /// Gives a buffer back to the ring.
    pub(super) fn give_back(&mut self, filled: Filled) {
        if let Self::Uring(ring) = self {
            ring.give_back(filled);
        }
    }

    /// Returns whether octets come with the news.
    pub(super) const fn receives(&self) -> bool {
        matches!(self, Self::Uring(_))
    }

    fn readable(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.readable(fd, token.into()),
            Self::Sockets { epoll, .. } => epoll.watch(fd, token.into()),
        }
    }

    fn readable_again(&mut self, fd: RawFd, token: Token) -> io::Result<()> {
        match self {
            Self::Uring(ring) => ring.readable(fd, token.into()),
            Self::Sockets { .. } => Ok(()),
        }
    }
}

fn gather(epoll: &mut Epoll, ready: &mut Vec<News>, limit: Option<Duration>) {
    for event in epoll.wait(limit) {
        match Token::from(event.token) {
            Token::Connection(qp) | Token::Writable(qp) => {
                if event.readable {
                    ready.push(News::Readable(qp));
                }
                if event.writable {
                    ready.push(News::Writable(qp));
                }
            }
            Token::Listener(listener) => ready.push(News::Acceptable(listener)),
            // An eventfd is always writable, and is reported so again when it is cleared.
            Token::Waker if event.readable => ready.push(News::Woken),
            Token::Waker => {}
        }
    }
}

fn news(event: uring::Event) -> News {
    match Token::from(event.token) {
        Token::Connection(qp) => match event.outcome {
            Outcome::Received(filled) => News::Received { qp, filled, more: event.more },
            Outcome::Ended => News::ReceiveOver { qp, why: Over::End },
            Outcome::Failed(_) => News::ReceiveOver { qp, why: Over::Failed },
            Outcome::Ready | Outcome::Starved | Outcome::Canceled => {
                News::ReceiveOver { qp, why: Over::Paused }
            }
        },
        Token::Writable(qp) => News::Writable(qp),
        Token::Listener(listener) => News::Acceptable(listener),
        Token::Waker => News::Woken,
    }
}

/// The origin of an event, as a number: its kind in the upper half, its name in the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Connection(QpNum),
    Writable(QpNum),
    Listener(u16),
    Waker,
}

impl From<Token> for u64 {
    fn from(token: Token) -> Self {
        let name = |qp: QpNum| Self::from(qp.generation()) << 16 | qp.slot() as Self;
        match token {
            Token::Connection(qp) => name(qp),
            Token::Writable(qp) => 1 << 32 | name(qp),
            Token::Listener(listener) => 2 << 32 | Self::from(listener),
            Token::Waker => 3 << 32,
        }
    }
}

impl From<u64> for Token {
    fn from(number: u64) -> Self {
        let [_, _, _, kind, a, b, c, d] = number.to_be_bytes();
        let qp = QpNum::new(u16::from_be_bytes([c, d]), u16::from_be_bytes([a, b]));
        match kind {
            0 => Self::Connection(qp),
            1 => Self::Writable(qp),
            2 => Self::Listener(u16::from_be_bytes([c, d])),
            _ => Self::Waker,
        }
    }
}

/// Requests queued between two enters; a full queue costs one more enter.
const RING_ENTRIES: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_its_number() {
        let qp = QpNum::new(0xfedc, 0xba98);
        for token in
            [Token::Connection(qp), Token::Writable(qp), Token::Listener(0xffff), Token::Waker]
        {
            assert_eq!(Token::from(u64::from(token)), token);
        }
    }
}
