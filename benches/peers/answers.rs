//! Takes the answers of a Redis or memcached server apart.

use std::ops::Range;

use haulage_apps::failure::Failure;

use crate::Protocol;

/// The answers that arrive, taken apart.
pub(crate) struct Answers {
    protocol: Protocol,
    /// Whether an answer is only taken when all of its value is here, for it to be compared.
    pub(crate) whole: bool,
    /// The octets that arrived and are not taken lie from `start` to `end`.
    pub(crate) octets: Vec<u8>,
    start: usize,
    end: usize,
    /// The answer whose value arrives, and the number of its octets that are to come.
    arriving: Option<(Answer, usize)>,
}

/// An answer: where its value is, if it has one. The octets are there only if the whole value was waited for.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) value: Option<Range<usize>>,
}

impl Answers {
    pub(crate) fn new(protocol: Protocol, size: usize) -> Self {
        Self {
            protocol,
            whole: true,
            octets: vec![0; ROOM.max(size + HEAD_MAX)],
            start: 0,
            end: 0,
            arriving: None,
        }
    }

    /// Returns the room for octets that arrive.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.octets.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        &mut self.octets[self.end..]
    }

    /// Adds octets that have arrived in the room.
    pub(crate) const fn add(&mut self, count: usize) {
        self.end += count;
    }

    /// Takes the next answer, if all of it has arrived.
    pub(crate) fn take(&mut self) -> Result<Option<Answer>, Failure> {
        let (answer, left) = match self.arriving.take() {
            Some(arriving) => arriving,
            None => match self.begin()? {
                Some(arriving) => arriving,
                None => return Ok(None),
            },
        };
        let count = left.min(self.end - self.start);
        self.start += count;
        if count < left {
            self.arriving = Some((answer, left - count));
            return Ok(None);
        }
        Ok(Some(answer))
    }

    /// Takes the head of an answer. Returns also the number of octets that follow it.
    fn begin(&mut self) -> Result<Option<(Answer, usize)>, Failure> {
        let arrived = &self.octets[self.start..self.end];
        let Some(ending) = arrived.iter().position(|octet| *octet == b'\n') else {
            return Ok(None);
        };
        let head = arrived[..ending].trim_ascii_end();
        let length = match (self.protocol, head) {
            (Protocol::Redis, b"+OK") | (Protocol::Memcached, b"STORED") => None,
            (Protocol::Redis, [b'$', length @ ..]) => Some(length),
            (Protocol::Memcached, [b'V', b'A', b'L', b'U', b'E', b' ', ..]) => {
                head.rsplit(|octet| *octet == b' ').next()
            }
            _ => return Err(refused(head)),
        };
        let ending = ending + 1;
        let Some(length) = length else {
            self.start += ending;
            return Ok(Some((Answer { value: None }, 0)));
        };
        let text = str::from_utf8(length).map_err(|_| refused(head))?;
        let length: usize = text.parse().map_err(|_| refused(head))?;
        let left = length + self.tail().len();
        if self.whole && arrived.len() < ending + left {
            return Ok(None);
        }
        self.start += ending;
        Ok(Some((Answer { value: Some(self.start..self.start + length) }, left)))
    }

    /// Returns what follows a value.
    const fn tail(&self) -> &'static [u8] {
        match self.protocol {
            Protocol::Redis => b"\r\n",
            Protocol::Memcached => b"\r\nEND\r\n",
        }
    }
}

fn refused(head: &[u8]) -> Failure {
    Failure::failed(format!("the server said: {}", head.escape_ascii()))
}

/// Octets received at once: those of many short values, and few enough to stay in the CPU's cache.
const ROOM: usize = 256 << 10;
/// The longest head and tail of an answer.
const HEAD_MAX: usize = 128;
