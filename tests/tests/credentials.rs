//! A server and the authentication flavors of its callers: the declared ones are served, the others denied.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};

use haulage::core::{Core, Cx, Service};
use haulage::cores::{self, CoreThread, Placement};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::polling::Polling;
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::service::{
    AUTH_NONE, AUTH_SYS, Binding, Call, CallToken, Data, Eligible, Outcome, Procedure, Program,
    Reply,
};
use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_proto::negotiate::Version;
use haulage_proto::v2::header::CALL_INLINE;
use haulage_tests::link::Link;

const PROGRAM: u32 = 0x2000_0008;
const FETCH: u32 = 1;
const LENGTH: usize = 2000;
const RPCSEC_GSS: u32 = 6;

/// A service that returns the same item to every caller with a declared flavor, at once or in a later turn.
struct Shelf {
    flavors: &'static [u32],
    pace: Pace,
    later: Vec<CallToken>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    Now,
    Later,
}

fn fill(cx: &Cx<'_>, reply: &mut Reply) -> Outcome {
    let mut lease = cx.pool().lease(LENGTH).unwrap();
    lease.bytes_mut().fill(0x5a);
    reply.item(Data::Local(lease));
    Outcome::Done
}

impl Service for Shelf {
    fn programs(&self) -> Vec<Program> {
        let item = Eligible::opaque(LENGTH);
        let procedures = vec![Procedure::new("NULL"), Procedure::new("FETCH").result(item)];
        let binding = Binding { program: PROGRAM, version: 1, procedures };
        vec![Program::new(binding).flavors(self.flavors)]
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        match (call.procedure, self.pace) {
            (FETCH, Pace::Now) => fill(cx, reply),
            (FETCH, Pace::Later) => {
                self.later.push(call.token);
                Outcome::Later
            }
            _ => Outcome::Done,
        }
    }

    fn resume(&mut self, cx: &mut Cx<'_>, _: CallToken, reply: &mut Reply) -> Outcome {
        fill(cx, reply)
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.later.drain(..).map(|token| cx.resume(token)).count() > 0
    }
}

fn server(flavors: &'static [u32], pace: Pace) -> CoreThread<SocketAddr> {
    let placement = Placement { name: "server".to_owned(), cpu: None, polling: Polling::ADAPTIVE };
    let limits = Limits { connections_max: 16, receives_max: 256, ..LIMITS_DEFAULT };
    cores::start(placement, move || {
        let memory = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&memory).map_err(std::io::Error::other)?;
        let nic = Iwarp::new(&Config::default())?;
        let core = Core::new(nic, Shelf { flavors, pace, later: Vec::new() }, pool, limits, 1);
        let mut core = core.map_err(std::io::Error::other)?;
        let at = core.listen((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok::<_, std::io::Error>((core, at))
    })
    .unwrap()
}

fn octets(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns a valid credential of this flavor.
fn credential(flavor: u32) -> Vec<u32> {
    match flavor {
        AUTH_SYS => vec![AUTH_SYS, 20, 1, 0, 1000, 1000, 0],
        // The credential is for data with integrity in context 1.
        RPCSEC_GSS => gss(0, 2).to_vec(),
        other => vec![other, 0],
    }
}

/// The outcome of a Call: the words of the RPC Reply from its status on, and the number of octets written by RDMA
/// Write.
type Outcomes = (Vec<u32>, usize);

/// Makes a FETCH Call with this credential, and a Write chunk for its result.
fn fetch(at: SocketAddr, version: Version, credential: &[u32]) -> Outcomes {
    let private_data = [0xf6, 0xab, 0x0e, 0x18, 1, 1, 3, 3];
    let (mut link, _) = Link::connect(at, &Config::default(), &private_data, 16).unwrap();
    let room = link.expose(&[], LENGTH, haulage_proto::verbs::Access::RemoteWrite).unwrap();
    let offset =
        [room.offset >> 32, room.offset & 0xffff_ffff].map(|word| u32::try_from(word).unwrap());
    let chunk = [1, 1, room.handle.0, room.length, offset[0], offset[1], 0];
    // There are no Read chunks, one Write chunk, and no Reply chunk.
    let lists = [&[0], &chunk[..], &[0]].concat();
    let header = match version {
        Version::One => vec![7, 1, 32, 0],
        Version::Two => vec![7, 2, 32, CALL_INLINE, 0],
    };
    let rpc = [&[7, 0, 2, PROGRAM, 1, FETCH], credential, &[AUTH_NONE, 0]].concat();
    link.send(&octets(&[header, lists, rpc].concat())).unwrap();
    let message = loop {
        let message = link.message(None).unwrap().unwrap();
        // In version 2 the first message may be the server's properties.
        if message.starts_with(&7_u32.to_be_bytes()) && message.len() > 40 {
            break message;
        }
    };
    let words: Vec<_> =
        message.as_chunks().0.iter().map(|word| u32::from_be_bytes(*word)).collect();
    let reply = words.windows(2).rposition(|two| two == [7, 1]).unwrap();
    let lease = link.retire(room.handle).unwrap();
    let written = lease.bytes().iter().filter(|octet| **octet == 0x5a).count();
    (words[reply + 2..].to_vec(), written)
}

/// Returns a denial: MSG_DENIED, AUTH_ERROR, and the reason (RFC 5531 section 9).
fn denied(why: u32) -> Outcomes {
    (vec![1, 1, why], 0)
}

const BADCRED: u32 = 1;
const REJECTEDCRED: u32 = 2;

#[test]
fn a_flavor_that_the_service_does_not_declare_is_denied() {
    let usual = server(&[AUTH_NONE, AUTH_SYS], Pace::Now);
    let strict = server(&[AUTH_SYS], Pace::Now);
    for version in [Version::One, Version::Two] {
        let ask = |server: &CoreThread<SocketAddr>, credential: &[u32]| {
            fetch(server.started, version, credential)
        };
        // The words are: accepted, no verifier, success, and the length of the item in the chunk.
        let served = (vec![0, 0, 0, 0, 2000], LENGTH);
        for flavor in [AUTH_NONE, AUTH_SYS] {
            assert_eq!(ask(&usual, &credential(flavor)), served, "{flavor} on {version:?}");
        }
        assert_eq!(ask(&strict, &credential(AUTH_SYS)), served, "{version:?}");
        assert_eq!(ask(&strict, &credential(AUTH_NONE)), denied(REJECTEDCRED), "{version:?}");
        for flavor in [2, 3, RPCSEC_GSS, 7, 0xffff_ffff] {
            let outcome = ask(&usual, &credential(flavor));
            assert_eq!(outcome, denied(REJECTEDCRED), "{flavor} on {version:?}");
        }
        // The bodies do not match their flavors.
        for credential in [&[AUTH_NONE, 4, 0][..], &[AUTH_SYS, 4, 0], &[AUTH_SYS, 0]] {
            assert_eq!(ask(&usual, credential), denied(BADCRED), "{credential:?} on {version:?}");
        }
    }
    usual.stop().unwrap();
    strict.stop().unwrap();
}

/// Returns a credential of RPCSEC_GSS: the procedure of a message, and the protection of its data.
const fn gss(procedure: u32, service: u32) -> [u32; 8] {
    [RPCSEC_GSS, 24, 1, procedure, 9, service, 4, 1]
}

/// Checks whether a service that takes this credential reduces its result.
fn is_reduced(credential: &[u32], expected: bool) {
    for pace in [Pace::Now, Pace::Later] {
        let server = server(&[RPCSEC_GSS], pace);
        for version in [Version::One, Version::Two] {
            let (words, written) = fetch(server.started, version, credential);
            let (in_chunk, in_stream) = if expected { (LENGTH, 0) } else { (0, LENGTH) };
            assert_eq!((&words[..5], written), (&[0, 0, 0, 0, 2000][..], in_chunk), "{version:?}");
            assert_eq!(words.len(), 5 + in_stream / 4, "{version:?}");
        }
        server.stop().unwrap();
    }
}

#[test]
fn nothing_is_reduced_under_integrity_though_the_service_takes_it() {
    is_reduced(&gss(0, 1), true);
    is_reduced(&gss(0, 2), false);
}

#[test]
fn nothing_is_reduced_while_a_context_is_made_or_destroyed() {
    for procedure in [1, 2, 3] {
        is_reduced(&gss(procedure, 1), false);
    }
}
