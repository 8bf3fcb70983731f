//! Addresses on the command line: `ADDR:PORT` or `:PORT`.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;
use std::{fmt, thread};

use crate::failure::Failure;
use crate::output::progress::Step;

/// A host and a port. The host may be a name that is not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// IPv4, IPv6 without brackets and perhaps with a scope behind `%`, or a host name.
    host: String,
    port: u16,
}

impl Address {
    /// Parses a host without a port, and returns its address with this port. An IPv6 address need not be in brackets.
    pub fn of_host(text: &str, port: u16) -> Result<Self, String> {
        if text.parse::<Ipv6Addr>().is_ok() {
            return format!("[{text}]:{port}").parse();
        }
        match text {
            "" => Err("give a host".to_owned()),
            _ if text.contains(':') && !text.starts_with('[') => {
                Err("give a host without a port".to_owned())
            }
            _ => format!("{text}:{port}").parse(),
        }
    }

    /// Resolves the host and returns at least one address. Waits for the resolver, which also looks up the interface that
    /// a scope names (RFC 4007 section 11), for as long as it takes, or for at most `within`.
    pub fn resolve(&self, within: Option<Duration>) -> Result<Vec<SocketAddr>, Failure> {
        let _step = Step::begin(format_args!("looking for {}", self.host));
        let (host, port) = (self.host.clone(), self.port);
        let found = finish(within, move || (host, port).to_socket_addrs().map(Vec::from_iter));
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                let host = &self.host;
                return Err(Failure::failed(match (host.split_once('%'), within) {
                    (_, Some(time)) if error.kind() == ErrorKind::TimedOut => format!(
                        "no name server told the address of {host} within {} s; give an IP address, or raise --timeout",
                        time.as_secs_f64()
                    ),
                    (Some((_, interface)), _) => format!(
                        "cannot find the address of {host}: {error}; {interface} is to be an interface of this \
                         machine, and the address link-local"
                    ),
                    (None, _) => format!(
                        "cannot find the address of {host}: {error}; check the name or give an IP address"
                    ),
                }));
            }
        };
        if found.is_empty() {
            return Err(Failure::failed(format!(
                "{} has no address; give an IP address",
                self.host
            )));
        }
        if found.iter().all(needs_scope) {
            return Err(Failure::failed(format!(
                "{} is the same on every link; name the interface, as in [{}%eth0]",
                self.host, self.host
            )));
        }
        Ok(found)
    }

    /// Returns whether a name of a host means this one: the address, or its host alone.
    pub fn is_named(&self, name: &str) -> bool {
        name == self.host || name.parse().is_ok_and(|named: Self| named == *self)
    }

    /// Returns the host, an IPv6 address in brackets.
    pub fn host(&self) -> Cow<'_, str> {
        if self.host.contains(':') {
            format!("[{}]", self.host).into()
        } else {
            self.host.as_str().into()
        }
    }

    /// Returns an address with the same host and another port.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        Self { host: self.host.clone(), port }
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or("give ADDR:PORT, or :PORT")?;
        let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|_| digits);
        let port = port.ok_or(match host {
            "rpcbind" => "nothing is looked up with rpcbind here, give ADDR:PORT",
            _ => "the port is a number from 0 to 65535",
        })?;
        let host = match host.strip_prefix('[') {
            Some(rest) => {
                let inner = rest.strip_suffix(']').ok_or("the bracket is not closed")?;
                let (v6, scope) = match inner.split_once('%') {
                    Some((v6, scope)) if is_scope(scope) => (v6, Some(scope)),
                    Some(_) => {
                        return Err("after % give the name or number of an interface".to_owned());
                    }
                    None => (inner, None),
                };
                let v6: Ipv6Addr = v6.parse().map_err(|_| "not an IPv6 address in brackets")?;
                scope.map_or_else(|| v6.to_string(), |scope| format!("{v6}%{scope}"))
            }
            None if host.contains(':') => {
                return Err("put an IPv6 address in brackets: [ADDR]:PORT".to_owned());
            }
            None if host.is_empty() => LOOPBACK.to_owned(),
            None if host.contains(|c: char| c.is_whitespace() || c.is_control()) => {
                return Err("a host name has no spaces".to_owned());
            }
            None => host.to_owned(),
        };
        Ok(Self { host, port })
    }
}

/// Returns what `work` returns, or after the time `within` that it timed out. Its thread then ends with the process.
fn finish<T: Send + 'static>(
    within: Option<Duration>,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let Some(time) = within else { return work() };
    let (sender, done) = mpsc::channel();
    thread::Builder::new().name("resolver".to_owned()).spawn(move || sender.send(work()))?;
    done.recv_timeout(time).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// Returns `at` with another port, and with the same scope.
pub fn at_port(mut at: SocketAddr, port: u16) -> SocketAddr {
    at.set_port(port);
    at
}

/// Returns whether an address is link-local and does not say on which link (RFC 4007 section 6).
pub fn needs_scope(at: &SocketAddr) -> bool {
    matches!(at, SocketAddr::V6(at) if at.ip().is_unicast_link_local() && at.scope_id() == 0)
}

/// Returns whether `text` may be the name or number of an interface.
fn is_scope(text: &str) -> bool {
    !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || c == '%')
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host(), self.port)
    }
}

/// The host of `:PORT`: serving other machines is an explicit choice.
const LOOPBACK: &str = "127.0.0.1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_the_contract_is_read() {
        for (typed, means) in [
            (":20050", "127.0.0.1:20050"),
            ("10.0.0.1:0", "10.0.0.1:0"),
            ("[::1]:65535", "[::1]:65535"),
            ("[2001:db8::1]:1", "[2001:db8::1]:1"),
            ("[fe80::fc:ff:fe00:1%eth0]:20050", "[fe80::fc:ff:fe00:1%eth0]:20050"),
            ("[fe80::0:1%2]:0", "[fe80::1%2]:0"),
            ("storage-7.example:20049", "storage-7.example:20049"),
        ] {
            assert_eq!(typed.parse::<Address>().unwrap().to_string(), means);
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_to_type() {
        for (typed, says) in [
            ("", "ADDR:PORT"),
            ("20050", "ADDR:PORT"),
            ("localhost", "ADDR:PORT"),
            ("localhost:", "65535"),
            (":65536", "65535"),
            (":+1", "65535"),
            ("rpcbind:server", "ADDR:PORT"),
            ("::1:5", "brackets"),
            ("[::1:5", "closed"),
            ("[localhost]:5", "IPv6"),
            ("[fe80::1%]:5", "interface"),
            ("[fe80::1%a b]:5", "interface"),
            ("[%lo]:5", "IPv6"),
            ("a b:5", "spaces"),
        ] {
            let error = typed.parse::<Address>().unwrap_err();
            assert!(error.contains(says), "{typed}: {error}");
        }
    }

    #[test]
    fn a_look_up_that_is_not_answered_ends() {
        let (answer, silent) = mpsc::channel::<()>();
        let waits = move || silent.recv().map_err(|_| ErrorKind::BrokenPipe.into());
        let ended = finish(Some(Duration::from_millis(1)), waits);
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::TimedOut);
        drop(answer);
        assert_eq!(finish(Some(Duration::MAX), || Ok(7)).unwrap(), 7);
    }

    #[test]
    fn addresses_resolve_without_a_resolver() {
        let resolve = |text: &str| text.parse::<Address>().unwrap().resolve(None).unwrap();
        assert_eq!(resolve(":7"), ["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(resolve("[::1]:7"), ["[::1]:7".parse().unwrap()]);
        assert_eq!(resolve("[fe80::1%7]:7"), ["[fe80::1%7]:7".parse().unwrap()]);
        let lo = resolve("[fe80::1%lo]:7");
        assert!(matches!(lo[..], [SocketAddr::V6(at)] if at.scope_id() == 1), "{lo:?}");
        let none = "[fe80::1%nowhere]:7".parse::<Address>().unwrap().resolve(None).unwrap_err();
        assert!(none.to_string().contains("nowhere is to be an interface"), "{none}");
        let unscoped = "[fe80::1]:7".parse::<Address>().unwrap().resolve(None).unwrap_err();
        assert!(unscoped.to_string().contains("[fe80::1%eth0]"), "{unscoped}");
    }
}
