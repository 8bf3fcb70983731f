//! Clients that have to prove which hosts they are. One is written from the documentation of `haulage::host_auth` alone, and
//! proves it; others do not, or lie.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use haulage::cores::CoreThread;
use haulage::host_auth::{HostKeys, KnownHosts, SecretKey};
use haulage::hosts::{HostAuth, Policy};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::provider::iwarp::Config;
use haulage::service::{Binding, Procedure, Request};
use haulage_tests::ends::{Keeper, client_proving, server_proving};
use haulage_tests::link::{Failure, Link};
use sha2::{Digest as _, Sha256};

use super::two::{
    BARE, CALL_INLINE, CONNPROP_FINAL, CONNPROP_MIDDLE, CREDIT, ERROR, GRANT, Peer, REPLY_INLINE,
    message,
};
use super::{NULL, PRIVATE_DATA, PROGRAM, call, octets};

const SERVER: [u8; 32] = [2; 32];
const CLIENT: [u8; 32] = [1; 32];
const STRANGER: [u8; 32] = [9; 32];

/// Starts a server to which every host has to prove which it is. It knows one.
fn server(limits: Limits) -> CoreThread<SocketAddr> {
    server_proving(limits, auth(SERVER, CLIENT), |_| Keeper::default())
}

fn auth(own: [u8; 32], other: [u8; 32]) -> HostAuth {
    let mut known = KnownHosts::default();
    known.add("the other end", SecretKey::from_seed(&other).public());
    let hosts = Arc::new(HostKeys::new(SecretKey::from_seed(&own), known));
    HostAuth { policy: Policy::Required, hosts }
}

const LIMITS: Limits = Limits { connections_max: 16, receives_max: 256, ..LIMITS_DEFAULT };

/// A client that proves which host it is, message by message.
struct Crafted {
    peer: Peer,
    key: SigningKey,
    /// The hash of everything that both ends have said.
    said: Sha256,
    /// The octets of the server's hello.
    theirs: Vec<u8>,
}

const PURPOSE: &[u8] = b"Haulage RPC-over-RDMA host authentication\0";

/// Returns a property with octets of host authentication.
fn property(octets: &[u8]) -> Vec<u8> {
    let word = |number: usize| u32::try_from(number).unwrap().to_be_bytes();
    let padded = octets.len().next_multiple_of(4);
    let pad = vec![0; padded - octets.len()];
    [&word(6)[..], &word(4 + padded), &word(octets.len()), octets, &pad].concat()
}

/// Returns a message with these encoded properties.
fn properties(htype: u32, all: &[Vec<u8>]) -> Vec<u8> {
    let count = u32::try_from(all.len()).unwrap();
    message(1, htype, &[count], &all.concat())
}

impl Crafted {
    fn connect(server: SocketAddr, seed: [u8; 32]) -> Self {
        let (link, theirs) = Link::connect(server, &Config::default(), &PRIVATE_DATA, 16).unwrap();
        let mut said = Sha256::new_with_prefix(PURPOSE);
        said.update(b"B");
        said.update(2_u32.to_be_bytes());
        put(&mut said, &PRIVATE_DATA);
        put(&mut said, &theirs[..8]);
        Self { peer: Peer(link), key: SigningKey::from_bytes(&seed), said, theirs: Vec::new() }
    }

    /// Returns the hello, with a nonce that repeats one octet.
    fn hello(&mut self, nonce: u8) -> Vec<u8> {
        let key = self.key.verifying_key();
        let hello = [&b"HA\x01\x01"[..], &[nonce; 32], key.as_bytes()].concat();
        self.hears(b'C', false, &[]);
        self.says(b'C', &hello);
        hello
    }

    /// Takes the server's hello, and checks its signature.
    fn take_hello(&mut self) {
        let (htype, others, theirs) = self.next().expect("an answer to the hello");
        assert_eq!((htype, &theirs[..4], theirs.len()), (CONNPROP_MIDDLE, &b"HA\x01\x02"[..], 132));
        self.hears(b'S', false, &others);
        let (before, signature) = theirs.split_at(68);
        let key: [u8; 32] = before[36..].try_into().unwrap();
        assert_eq!(key, *SigningKey::from_bytes(&SERVER).verifying_key().as_bytes());
        let statement = self.statement(b'S', before);
        let signature = Signature::from_slice(signature).unwrap();
        VerifyingKey::from_bytes(&key).unwrap().verify_strict(&statement, &signature).unwrap();
        self.says(b'S', &theirs);
        self.theirs = theirs;
    }

    /// Returns the proof.
    fn proof(&mut self) -> Vec<u8> {
        self.hears(b'C', true, &[]);
        let statement = self.statement(b'C', b"HA\x01\x03");
        let signature = self.key.sign(&statement).to_bytes();
        let proof = [&b"HA\x01\x03"[..], &signature].concat();
        self.says(b'C', &proof);
        proof
    }

    fn take_proof(&mut self) {
        let (htype, others, theirs) = self.next().expect("an answer to the proof");
        assert_eq!((htype, &theirs[..4]), (CONNPROP_FINAL, &b"HA\x01\x04"[..]));
        self.hears(b'S', true, &others);
        let statement = self.statement(b'S', &theirs[..4]);
        let signature = Signature::from_slice(&theirs[4..]).unwrap();
        let key = SigningKey::from_bytes(&SERVER).verifying_key();
        key.verify_strict(&statement, &signature).unwrap();
    }

    /// Exchanges hellos. Returns its own.
    fn greet(&mut self) -> Vec<u8> {
        let hello = self.hello(1);
        self.send(CONNPROP_MIDDLE, &hello);
        self.take_hello();
        hello
    }

    /// Proves which host it is.
    fn prove(&mut self) {
        self.greet();
        let proof = self.proof();
        self.send(CONNPROP_FINAL, &proof);
        self.take_proof();
    }

    fn send(&mut self, htype: u32, octets: &[u8]) {
        self.send_all(&properties(htype, &[property(octets)]));
    }

    /// Sends a message. The server may have ended the connection already.
    fn send_all(&mut self, message: &[u8]) {
        let _ = self.peer.0.send(message);
    }

    fn hears(&mut self, from: u8, is_final: bool, others: &[u8]) {
        self.said.update([b'P', from, u8::from(is_final)]);
        put(&mut self.said, others);
    }

    fn says(&mut self, from: u8, octets: &[u8]) {
        self.said.update([b'A', from]);
        put(&mut self.said, octets);
    }

    fn statement(&self, from: u8, said: &[u8]) -> Vec<u8> {
        let mut all = self.said.clone();
        all.update([b'A', from]);
        put(&mut all, said);
        [PURPOSE, &said[..4], &all.finalize()].concat()
    }

    /// Returns the next CONNPROP message: its type, its other properties, and its host authentication. `None` if the
    /// connection has ended.
    fn next(&mut self) -> Option<(u32, Vec<u8>, Vec<u8>)> {
        let message = match self.peer.0.message(None) {
            Ok(message) => message.expect("nothing but a message ends the wait"),
            Err(Failure::Ended(_)) => return None,
            Err(other) => panic!("{other}"),
        };
        let word = |at: usize| u32::from_be_bytes(message[at..at + 4].try_into().unwrap());
        let (mut at, mut others, mut octets) = (20, Vec::new(), Vec::new());
        for _ in 0..word(16) {
            let length = usize::try_from(word(at + 4)).unwrap();
            let end = at + 8 + length.next_multiple_of(4);
            if word(at) == 6 {
                let length = usize::try_from(word(at + 8)).unwrap();
                octets.extend(&message[at + 12..at + 12 + length]);
            } else {
                others.extend(&message[at..end]);
            }
            at = end;
        }
        Some((word(12), others, octets))
    }

    /// Makes a NULL Call. Returns what comes of it: whether a Reply, and the words of an error.
    fn call(&mut self) -> Outcome {
        self.send_all(&message(7, CALL_INLINE, &BARE, &call(7, NULL, &[])));
        loop {
            let words = match self.peer.0.message(None) {
                Ok(message) => super::two::words(&message.expect("nothing else ends the wait")),
                Err(Failure::Ended(_)) => return Outcome::Closed,
                Err(other) => panic!("{other}"),
            };
            match words[..] {
                [7, 2, _, REPLY_INLINE, ..] => return Outcome::Served,
                [7, 2, _, ERROR, code, ..] => return Outcome::Refused(code),
                [_, 2, _, GRANT | ERROR | CONNPROP_MIDDLE | CONNPROP_FINAL, ..] => {}
                _ => panic!("{words:x?}"),
            }
        }
    }
}

fn put(hash: &mut Sha256, octets: &[u8]) {
    hash.update((octets.len() as u64).to_be_bytes());
    hash.update(octets);
}

/// What becomes of a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Served,
    /// The transport refuses it with this error.
    Refused(u32),
    Closed,
}

const INVAL_CONT: u32 = 5;

#[test]
fn a_client_that_is_written_from_the_documentation_proves_itself() {
    let server = server(LIMITS);
    let mut client = Crafted::connect(server.started, CLIENT);
    client.prove();
    assert_eq!(client.call(), Outcome::Served);
    client.peer.0.close().unwrap();
    server.stop().unwrap();
}

/// What a client does instead of proving itself, and what becomes of a Call behind it.
type Lie = (&'static str, fn(&mut Crafted), Outcome);

const LIES: [Lie; 13] = [
    ("it says nothing", |_| {}, Outcome::Closed),
    (
        "it has properties without a proof",
        |client| client.send_all(&properties(CONNPROP_FINAL, &[])),
        Outcome::Closed,
    ),
    (
        "its first properties have none",
        |client| client.send_all(&properties(CONNPROP_MIDDLE, &[])),
        Outcome::Closed,
    ),
    ("it proves nothing", |client| client.send(CONNPROP_MIDDLE, &[]), Outcome::Closed),
    (
        "it calls behind its hello",
        |client| {
            client.greet();
        },
        Outcome::Refused(INVAL_CONT),
    ),
    (
        "it ends with its hello",
        |client| {
            let hello = client.hello(1);
            client.send(CONNPROP_FINAL, &hello);
        },
        Outcome::Closed,
    ),
    (
        "it greets twice",
        |client| {
            let hello = client.greet();
            client.send(CONNPROP_MIDDLE, &hello);
        },
        Outcome::Closed,
    ),
    (
        "it ends without a proof",
        |client| {
            client.greet();
            client.send_all(&properties(CONNPROP_FINAL, &[]));
        },
        Outcome::Closed,
    ),
    (
        "its proof has one wrong bit",
        |client| {
            client.greet();
            let mut proof = client.proof();
            proof[40] ^= 1;
            client.send(CONNPROP_FINAL, &proof);
        },
        Outcome::Closed,
    ),
    (
        "its proof leaves out what it said",
        |client| {
            let hello = client.hello(1);
            // A property that the proof does not cover: the longest segment.
            let segment = octets(&[3, 4, 1 << 20]);
            client.send_all(&properties(CONNPROP_MIDDLE, &[segment, property(&hello)]));
            client.take_hello_unchecked();
            let proof = client.proof();
            client.send(CONNPROP_FINAL, &proof);
        },
        Outcome::Closed,
    ),
    (
        "it sends the server's hello back",
        |client| {
            client.greet();
            let theirs = client.theirs.clone();
            client.send(CONNPROP_FINAL, &theirs);
        },
        Outcome::Closed,
    ),
    (
        "it has more octets than any proof",
        |client| {
            for _ in 0..70 {
                client.send(CONNPROP_MIDDLE, &[0x48; 900]);
            }
        },
        Outcome::Closed,
    ),
    (
        "it proves itself, and begins again",
        |client| {
            client.prove();
            let hello = client.hello(2);
            client.send(CONNPROP_MIDDLE, &hello);
        },
        Outcome::Served,
    ),
];

impl Crafted {
    /// Takes the server's hello as it is: it signs what the client will not say again.
    fn take_hello_unchecked(&mut self) {
        let (_, others, theirs) = self.next().expect("an answer to the hello");
        self.hears(b'S', false, &others);
        self.says(b'S', &theirs);
    }
}

#[test]
fn a_client_that_does_not_prove_itself_is_not_served() {
    let server = server(LIMITS);
    for (what, lie, outcome) in LIES {
        let mut client = Crafted::connect(server.started, CLIENT);
        lie(&mut client);
        assert_eq!(client.call(), outcome, "{what}");
    }
    let mut stranger = Crafted::connect(server.started, STRANGER);
    let hello = stranger.hello(1);
    stranger.send(CONNPROP_MIDDLE, &hello);
    assert_eq!(stranger.call(), Outcome::Closed, "a stranger");
    server.stop().unwrap();
}

#[test]
fn a_proof_is_good_for_one_connection() {
    let server = server(LIMITS);
    let mut client = Crafted::connect(server.started, CLIENT);
    let hello = client.greet();
    let proof = client.proof();
    client.send(CONNPROP_FINAL, &proof);
    client.take_proof();
    // A stranger who has recorded both messages of the client sends them again.
    let mut again = Crafted::connect(server.started, STRANGER);
    again.send(CONNPROP_MIDDLE, &hello);
    again.take_hello_unchecked();
    again.send(CONNPROP_FINAL, &proof);
    assert_eq!((again.call(), client.call()), (Outcome::Closed, Outcome::Served));
    server.stop().unwrap();
}

/// Connects as far as the frames of MPA go (RFC 5044 section 7.1), and says nothing more.
fn silent(server: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    let request = [&b"MPA ID Req Frame"[..], &[0x40, 1, 0, 8], &PRIVATE_DATA].concat();
    stream.write_all(&request).unwrap();
    stream
}

#[test]
fn hosts_that_never_prove_themselves_are_gone_in_time_and_trouble_no_honest_one() {
    let setup_timeout = Duration::from_secs(3);
    let server = server(Limits { setup_timeout, ..LIMITS });
    let honest = || {
        let procedures = vec![Procedure::new("NULL")];
        let binding = Binding { program: PROGRAM, version: 1, procedures };
        client_proving(LIMITS, auth(CLIENT, SERVER), binding, server.started)
    };
    let null = |client: &mut CoreThread<haulage::remote::RemoteClient>| {
        let called = client.started.call(Request::new(NULL), |_| Ok(()));
        called.map(drop).map_err(|failed| failed.error)
    };
    let mut first = honest();
    null(&mut first).unwrap();
    // Some say hello and stop, most say nothing.
    let mut greeting = Vec::new();
    let mut silent_ones = Vec::new();
    for number in 0..256 {
        if number % 32 == 0
            && let Ok((link, _)) =
                Link::connect(server.started, &Config::default(), &PRIVATE_DATA, 16)
        {
            let key = SigningKey::from_bytes(&CLIENT).verifying_key();
            let hello = [&b"HA\x01\x01"[..], &[3; 32], key.as_bytes()].concat();
            let mut peer = Peer(link);
            let _ = peer.0.send(&properties(CONNPROP_MIDDLE, &[property(&hello)]));
            greeting.push(peer);
        } else {
            silent_ones.push(silent(server.started));
        }
        null(&mut first).unwrap();
    }
    let mut second = honest();
    null(&mut second).unwrap();
    for stream in &mut silent_ones {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut rest = Vec::new();
        // A reset is an end, too.
        let ended = stream.read_to_end(&mut rest).map_err(|error| error.kind());
        assert_ne!(ended.err(), Some(ErrorKind::WouldBlock), "the server has not ended it");
        null(&mut first).unwrap();
    }
    for mut peer in greeting {
        while peer.0.message(None).is_ok() {}
    }
    null(&mut second).unwrap();
    [first, second].into_iter().for_each(|client| client.stop().unwrap());
    server.stop().unwrap();
}

/// The credit word of every message here grants enough.
const _: () = assert!(CREDIT > 70);
