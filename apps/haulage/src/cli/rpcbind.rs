//! rpcbind on the command line: where a server registers, and servers that clients look up.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::address::Address;

/// The rpcbind with which a server registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RpcbindAddress {
    /// The one that listens at this local socket.
    Local(PathBuf),
    /// The one that listens at this address over TCP.
    Tcp(Address),
}

impl FromStr for RpcbindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::Local(text.into()));
        }
        let address = text.parse().or_else(|_| Address::of_host(text, PORT));
        address.map(Self::Tcp).map_err(|_| {
            "give the path of rpcbind's socket, such as /run/rpcbind.sock, or its ADDR or ADDR:PORT"
                .to_owned()
        })
    }
}

/// The server that a client connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerAddress {
    /// The server at this address.
    At(Address),
    /// The server that is registered with the rpcbind at this address.
    Registered(Address),
}

impl ServerAddress {
    /// Returns whether a name of a host means this server: as the client names it, or for an address also its host alone.
    pub fn is_named(&self, name: &str) -> bool {
        match self {
            Self::At(address) => address.is_named(name),
            Self::Registered(_) => name.parse().is_ok_and(|named: Self| named == *self),
        }
    }
}

impl FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text.parse(), text.strip_prefix(PREFIX)) {
            // A host may have the name rpcbind: what is behind it is a port then.
            (Ok(address), _) => Ok(Self::At(address)),
            (Err(_), Some(host)) => Address::of_host(host, PORT).map(Self::Registered),
            (Err(error), None) => Err(format!("{error}, or rpcbind:HOST")),
        }
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Registered(address) => write!(f, "{PREFIX}{}", address.host()),
        }
    }
}

/// What begins the address of a server that is looked up.
const PREFIX: &str = "rpcbind:";
/// The TCP port of rpcbind (RFC 1833 section 3).
const PORT: u16 = 111;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_rpcbind_is_a_socket_or_an_address() {
        let tcp = |text: &str| RpcbindAddress::Tcp(text.parse().unwrap());
        for (typed, means) in [
            ("/run/rpcbind.sock", RpcbindAddress::Local("/run/rpcbind.sock".into())),
            ("./sock", RpcbindAddress::Local("./sock".into())),
            ("192.0.2.7", tcp("192.0.2.7:111")),
            ("192.0.2.7:1111", tcp("192.0.2.7:1111")),
            (":1111", tcp("127.0.0.1:1111")),
            ("::1", tcp("[::1]:111")),
            ("[::1]", tcp("[::1]:111")),
            ("[fe80::1%eth0]", tcp("[fe80::1%eth0]:111")),
            ("[::1]:1111", tcp("[::1]:1111")),
            ("localhost", tcp("localhost:111")),
        ] {
            assert_eq!(typed.parse(), Ok(means), "{typed}");
        }
        for wrong in ["", "a b", "host:port", "host:111:1", "[::1", "host:65536"] {
            let error = wrong.parse::<RpcbindAddress>().unwrap_err();
            assert!(error.contains("/run/rpcbind.sock"), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_server_has_an_address_or_is_registered_at_a_host() {
        for (typed, shown) in [
            (":20050", "127.0.0.1:20050"),
            ("rpcbind:20050", "rpcbind:20050"),
            ("rpcbind:server", "rpcbind:server"),
            ("rpcbind:192.0.2.7", "rpcbind:192.0.2.7"),
            ("rpcbind:::1", "rpcbind:[::1]"),
            ("rpcbind:[2001:db8::7]", "rpcbind:[2001:db8::7]"),
            ("rpcbind:[fe80::1%eth0]", "rpcbind:[fe80::1%eth0]"),
        ] {
            let server: ServerAddress = typed.parse().unwrap();
            assert_eq!(server.to_string(), shown);
            assert!(server.is_named(typed) && server.is_named(shown), "{typed}");
        }
        for (wrong, says) in [
            ("rpcbind:", "give a host"),
            ("rpcbind:server:111", "without a port"),
            ("rpcbind:a b", "no spaces"),
            ("rpcbind:[::1", "closed"),
            ("server", "rpcbind:HOST"),
            ("", "ADDR:PORT"),
        ] {
            let error = wrong.parse::<ServerAddress>().unwrap_err();
            assert!(error.contains(says), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_registered_server_has_one_name() {
        let server: ServerAddress = "rpcbind:server".parse().unwrap();
        for other in ["server", "server:111", "rpcbind", "rpcbind:other", ""] {
            assert!(!server.is_named(other), "{other}");
        }
        let at: ServerAddress = "server:20050".parse().unwrap();
        assert!(at.is_named("server") && !at.is_named("rpcbind:server"));
    }
}
