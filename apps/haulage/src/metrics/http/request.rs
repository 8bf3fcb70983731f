//! An incremental parser of HTTP requests.

/// A request that is being received.
#[derive(Debug, Default)]
pub struct Request {
    octets: Vec<u8>,
}

/// A complete request, as far as this server distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// `/metrics`, with any query.
    Metrics(Part),
    /// Another page.
    Other(Part),
    /// Another method than GET and HEAD.
    NotGet,
}

/// How much of the response is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it: GET.
    Whole,
    /// All but the page: HEAD.
    Head,
}

/// The request is longer than [`REQUEST_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl Request {
    /// Appends received octets. Returns the request once the empty line after its headers has arrived.
    ///
    /// # Errors
    /// The request has no end within [`REQUEST_MAX`] octets.
    pub fn take(&mut self, octets: &[u8]) -> Result<Option<Asked>, TooLong> {
        // The end may begin in the octets received before.
        let from = self.octets.len().saturating_sub(END.len() - 1);
        let room = REQUEST_MAX - self.octets.len();
        self.octets.extend_from_slice(octets.get(..room).unwrap_or(octets));
        let fresh = self.octets.get(from..).unwrap_or_default();
        if fresh.windows(END.len()).any(|octets| octets == END) {
            return Ok(Some(self.asked()));
        }
        if self.octets.len() == REQUEST_MAX { Err(TooLong) } else { Ok(None) }
    }

    fn asked(&self) -> Asked {
        let line = self.octets.split(|octet| *octet == b'\r').next().unwrap_or_default();
        let mut words = line.split(|octet| *octet == b' ');
        let (method, target) = (words.next(), words.next());
        // A query, such as Prometheus adds for the `params` of a job, asks for no other page (RFC 9112 section 3.2.1).
        let path = target.and_then(|target| target.split(|octet| *octet == b'?').next());
        let part = match method {
            Some(b"GET") => Part::Whole,
            Some(b"HEAD") => Part::Head,
            _ => return Asked::NotGet,
        };
        if path == Some(b"/metrics") { Asked::Metrics(part) } else { Asked::Other(part) }
    }
}

/// Maximum length of a request, in octets.
pub const REQUEST_MAX: usize = 8192;
/// The end of the headers.
const END: &[u8] = b"\r\n\r\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_understood_however_it_is_cut() {
        for (octets, expected) in [
            (&b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"[..], Asked::Metrics(Part::Whole)),
            (b"GET /metrics?format=prometheus HTTP/1.1\r\n\r\n", Asked::Metrics(Part::Whole)),
            (b"GET /metrics?\r\n\r\n", Asked::Metrics(Part::Whole)),
            (b"GET /metricsx?/metrics HTTP/1.1\r\n\r\n", Asked::Other(Part::Whole)),
            (b"GET / HTTP/1.1\r\n\r\n", Asked::Other(Part::Whole)),
            (b"GET\r\n\r\n", Asked::Other(Part::Whole)),
            (b"HEAD /metrics HTTP/1.1\r\n\r\n", Asked::Metrics(Part::Head)),
            (b"HEAD / HTTP/1.1\r\n\r\n", Asked::Other(Part::Head)),
            (b"head /metrics HTTP/1.1\r\n\r\n", Asked::NotGet),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Asked::NotGet),
            (b"\r\n\r\n", Asked::NotGet),
        ] {
            for step in 1..=octets.len() {
                let (last, before) = octets
                    .chunks(step)
                    .collect::<Vec<_>>()
                    .split_last()
                    .map_or((&[][..], Vec::new()), |(last, before)| (*last, before.to_vec()));
                let mut request = Request::default();
                assert!(before.into_iter().all(|piece| request.take(piece) == Ok(None)));
                assert_eq!(request.take(last), Ok(Some(expected)));
            }
        }
    }

    #[test]
    fn a_request_without_end_is_refused() {
        let mut request = Request::default();
        assert_eq!(request.take(&[b'x'; REQUEST_MAX - 1]), Ok(None));
        assert_eq!(request.take(b"x"), Err(TooLong));
        let mut octets = [b'x'; REQUEST_MAX + 4];
        octets[REQUEST_MAX - 4..REQUEST_MAX].copy_from_slice(END);
        assert_eq!(Request::default().take(&octets), Ok(Some(Asked::NotGet)));
        octets.rotate_right(1);
        assert_eq!(Request::default().take(&octets), Err(TooLong));
    }
}
