//! Host authentication with public keys: both ends prove with Ed25519 that they hold a known key.
//!
//! The draft defines how host authentication travels, but not the protocol itself (E11). This is our own protocol; no
//! other implementation speaks it.
//!
//! # Normal operation
//! ```text
//! client                                         server
//!   CONNPROP_MIDDLE  nonce, key             -->
//!                <--  CONNPROP_MIDDLE  nonce, key, signature
//!   CONNPROP_FINAL   signature              -->
//!                <--  CONNPROP_FINAL   signature
//! ```
//! Each signature covers the transcript of everything that both ends said before it: the protocol version, the private
//! data of both ends, every property of every CONNPROP message in order and whether the message was a FINAL, and every
//! host authentication message before it. An end with more to say sends further MIDDLEs between; the signatures of the
//! FINALs cover them too.
//!
//! A server proves itself, and asks its peers to, once its core has the keys:
//!
//! ```no_run
//! use std::path::Path;
//! use std::sync::Arc;
//!
//! use haulage::core::{Core, Service};
//! use haulage::host_auth::{HostKeys, KnownHosts, SecretKey};
//! use haulage::hosts::{HostAuth, Policy};
//! use haulage::provider::Provider;
//!
//! # type Error = Box<dyn std::error::Error>;
//! fn read_keys() -> Result<HostKeys, Error> {
//!     let secret = SecretKey::read(Path::new("host.key"))?;
//!     println!("others know us by {}", secret.public());
//!     Ok(HostKeys::new(secret, KnownHosts::read(Path::new("known-hosts"))?))
//! }
//!
//! fn protect<P: Provider, S: Service>(core: &mut Core<P, S>) -> Result<(), Error> {
//!     let hosts = Arc::new(read_keys()?);
//!     Ok(core.authenticate(HostAuth { policy: Policy::Required, hosts })?)
//! }
//! ```
//!
//! # What it guarantees
//! When [`Authenticator::peer`](crate::hosts::Authenticator::peer) returns a key, the holder of its secret took part in this very connection setup, and
//! both ends saw the same version, private data and properties. A replayed handshake, our own messages sent back, and
//! any change to what the transcript covers end in a [`Refused`](crate::hosts::Refused) at one end at least, and with it the connection. So
//! does a peer whose key is not known. (P9)
//!
//! # What it does not guarantee
//! - An attacker between the ends who passes every octet on unchanged is not noticed: nothing ties the handshake to the
//!   hardware path that it took.
//! - Nothing after the handshake is protected. There is no session key: an attacker who can change packets on the
//!   network can change RPC messages and the data that RDMA moves. Protection takes IPsec, MACsec or a private network.
//! - Nothing is secret: nonces, keys and signatures travel in the clear, so an observer learns which hosts talk.
//! - With [`Policy::Optional`](crate::hosts::Policy::Optional) at both ends, an attacker who can change messages can remove
//!   host authentication from them.
//!
//! # Limits
//! A message has at most [`MESSAGE_MAX`] octets, and each kind has one exact length. Both ends keep a running hash, not
//! the transcript.
//!
//! Nothing is compared that an attacker does not already know, so no comparison here needs to take
//! constant time; signing does, in the library that signs.

mod authenticator;
mod host_keys;
mod keys;
mod message;
mod nonce;
mod transcript;

pub use authenticator::KeyAuthenticator;
pub use host_keys::HostKeys;
pub use keys::{KeyFault, KnownHosts, PublicKey, SecretKey};
pub use message::MESSAGE_MAX;
pub use nonce::NoEntropy;
