//! A peer that attacks the whole provider over a real socket: with octets instead of a handshake, or with FPDUs behind
//! a good one.
//!
//! The provider uses plain system calls for its sockets here, which take effect at once.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use haulage::provider::iwarp::{Backend, Config, Crc, Iwarp};
use haulage::provider::{Event, Operation, WorkRequest};
use haulage::sys::complete;
use haulage::sys::crc::crc32c;
use haulage_mr_pool::{Exposed, PagePreference, Pool, PoolConfig};
use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Active, MpaReply, Offer};
use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::iwarp::transmit::{Fpdu, Transmitter};
use haulage_proto::verbs::{Access, Handle, QpNum, Segment};

use super::super::beside::{Lent, PARAMS, Scene};
use super::super::octets::{octet, short, some_octets, spoil, word};
use crate::bed::{SIGNALED, claim};
use crate::by_number::ByNumber as _;
use crate::world::choices::Choices;

/// Attacks the victim as a peer. The attacker's connection ends at the latest when it leaves, no other does, and no
/// memory changes but what was exposed to be written.
pub(in super::super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let mut scene = Scene::new(provider(), provider());
    let stream = TcpStream::connect(scene.at).expect("it listens");
    stream.set_nodelay(true).expect("a socket of TCP");
    stream.set_nonblocking(true).expect("a socket");
    if choices.one_in(4) {
        stranger(&mut scene, &mut choices, stream);
    } else {
        peer(&mut scene, &mut choices, stream);
    }
    scene.until("the place", |scene| {
        // The handshake may have been good after all.
        if let Some(qp) = scene.requested() {
            scene.victim.provider.reject(scene.now, qp, b"too late");
        }
        (scene.victim.provider.connections() == 1).then_some(())
    });
    scene.assert_unharmed();
    scene.end();
}

/// Sends a spoiled handshake, and more octets behind it.
fn stranger(scene: &mut Scene<Iwarp>, choices: &mut Choices, stream: TcpStream) {
    let (_, request) = Active::new(OFFER, &some_octets(choices, 64)).expect("short enough");
    let mut octets = request.to_vec();
    spoil(choices, &mut octets);
    octets.extend(some_octets(choices, 64));
    send(scene, choices, &stream, &octets);
    let qp = scene.requested();
    if let Some(qp) = qp {
        match choices.one_in(2) {
            true => scene.victim.provider.accept(scene.now, qp, &PARAMS),
            false => scene.victim.provider.reject(scene.now, qp, b"no"),
        }
        let octets = some_octets(choices, 64);
        send(scene, choices, &stream, &octets);
    }
    drop(stream);
}

/// Connects properly, and sends FPDUs of which some break rules.
fn peer(scene: &mut Scene<Iwarp>, choices: &mut Choices, mut stream: TcpStream) {
    let offer = Offer { crc: choices.one_in(2), ..OFFER };
    let (mut handshake, request) = Active::new(offer, b"").expect("short enough");
    stream.write_all(&request).expect("room for a request");
    let qp = scene.until("a request", Scene::requested);
    scene.victim.provider.accept(scene.now, qp, &PARAMS);
    let mut reply = [0; 24];
    let mut length = 0;
    scene.until("an answer", |_| {
        length += stream.read(&mut reply[length..]).unwrap_or(0);
        (length == reply.len()).then_some(())
    });
    let answer = handshake.handle(&mut &reply[..]).expect("an answer");
    assert!(matches!(answer, Some(MpaReply::Accepted { .. })), "it was accepted");
    let crc: Option<Crc32c> = if offer.crc { Some(crc32c) } else { None };
    let mut rogue = Rogue {
        transmitter: Transmitter::new(crc, Mulpdu::from_mss(0)),
        qp,
        opened: Vec::new(),
        is_over: false,
    };
    for access in [Access::RemoteRead, Access::RemoteWrite] {
        rogue.opened.push(scene.victim.expose(qp, &CONTENTS, access));
    }
    for _ in 0..STEPS_MAX {
        if choices.is_spent() {
            break;
        }
        if choices.one_in(3) {
            rogue.work(scene, choices);
        } else {
            let octets = rogue.octets(choices);
            send(scene, choices, &stream, &octets);
        }
    }
    drop(stream);
    rogue.leave(scene);
}

/// Sends octets in pieces, and polls the victim after each, until the connection ends.
fn send(scene: &mut Scene<Iwarp>, choices: &mut Choices, stream: &TcpStream, octets: &[u8]) {
    let most = choices.pick(&[1, 16, 4096]);
    let (mut stream, mut rest) = (stream, octets);
    for _ in 0..SENDS_MAX {
        if rest.is_empty() {
            return;
        }
        let length = most.min(rest.len());
        match stream.write(&rest[..length]) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
        // The answers of the victim are ignored.
        let _ = stream.read(&mut [0; 4096]);
        scene.poll();
    }
}

/// The attacker, and the leases that the victim exposed to it.
struct Rogue {
    transmitter: Transmitter,
    qp: QpNum,
    /// A lease to be read, and a lease to be written.
    opened: Vec<(Exposed, Segment)>,
    is_over: bool,
}

impl Rogue {
    /// Draws a message as FPDUs; the victim takes most of them.
    fn octets(&mut self, choices: &mut Choices) -> Vec<u8> {
        let mut octets = Vec::new();
        let payload = vec![octet(choices); choices.pick(&[0, 1, 16, 64, 65, 400])];
        let to = self.target(choices, 1);
        let transmitter = &mut self.transmitter;
        match choices.below(8) {
            0..=2 => {
                let invalidate = choices.one_in(3).then_some(to.handle);
                cut(&mut octets, &payload, |done, rest| {
                    transmitter.send(invalidate, short(done), rest)
                });
            }
            3 | 4 => {
                let payload = &payload[..payload.len().min(64)];
                cut(&mut octets, payload, |done, rest| {
                    transmitter.write(to.handle, to.offset.wrapping_add(done as u64), rest)
                });
            }
            5 => {
                let from = self.target(choices, 0);
                let length = if choices.one_in(4) { word(choices) } else { from.length };
                let request = ReadRequest {
                    sink: Handle(short(choices.below(4))),
                    sink_offset: choices.below(64) as u64,
                    length,
                    source: from.handle,
                    source_offset: from.offset,
                };
                append(&mut octets, &self.transmitter.read_request(&request), &[]);
            }
            // The handles of the victim's Reads are unknown to the peer: it guesses.
            6 => cut(&mut octets, &payload, |done, rest| {
                transmitter.read_response(to.handle, to.offset.wrapping_add(done as u64), rest)
            }),
            _ if choices.one_in(4) => {
                let fault = choices.pick(&Fault::ALL);
                append(&mut octets, &transmitter.terminate(fault.code(), None), &[]);
            }
            _ => octets = some_octets(choices, 64),
        }
        if choices.one_in(8) {
            spoil(choices, &mut octets);
        }
        octets
    }

    /// Draws a segment: mostly the lease at `place`, or one near it.
    fn target(&self, choices: &mut Choices, place: usize) -> Segment {
        let place = if choices.one_in(8) { 1 - place } else { place };
        let segment = self.opened[place].1;
        match choices.below(8) {
            0 => Segment { handle: Handle(segment.handle.0 ^ (1 << choices.below(32))), ..segment },
            1 => Segment { offset: segment.offset.wrapping_add(choices.number()), ..segment },
            2 => Segment {
                offset: segment.offset.wrapping_add(short(choices.below(80)).into()),
                ..segment
            },
            _ => segment,
        }
    }

    /// Makes the victim do something on the connection.
    fn work(&mut self, scene: &mut Scene<Iwarp>, choices: &mut Choices) {
        let ended =
            |event: &Event<_>| matches!(event, Event::Disconnected { qp, .. } if *qp == self.qp);
        self.is_over |= scene.victim.log.iter().any(ended);
        match choices.below(if self.is_over { 2 } else { 4 }) {
            0 if scene.victim.pool.free_bytes() > 256 << 10 => {
                let (_, sink) = scene.victim.receive(self.qp, 64);
                scene.lend(Lent::Sink(sink));
            }
            2 => {
                let Some(lease) = scene.victim.pool.lease(100) else { return };
                let posted = lease.into_source();
                let source = posted.source(0..100).expect("the whole lease");
                scene.lend(Lent::Source(posted));
                self.post(scene, Operation::Send { source, invalidate: None });
            }
            3 => {
                let Some(lease) = scene.victim.pool.lease(100) else { return };
                let mut posted = lease.into_sink();
                let sink = posted.sink(0..100).expect("the whole lease");
                scene.lend(Lent::Sink(posted));
                let source = claim(Segment { handle: Handle(5), length: 100, offset: 7 });
                self.post(scene, Operation::Read { sink, source });
            }
            _ => scene.poll(),
        }
    }

    /// Posts a request, if there is room for it.
    fn post(&self, scene: &mut Scene<Iwarp>, operation: Operation) {
        let id = scene.victim.id();
        let mut batch = [WorkRequest { id, flags: SIGNALED, operation }].into();
        let _ = scene.victim.provider.post(self.qp, &mut batch);
    }

    /// Takes back the leases exposed to the peer, which has left.
    fn leave(self, scene: &mut Scene<Iwarp>) {
        let qp = self.qp;
        let mut receives = 0;
        let quiesced = scene.until("the end", |scene| {
            // The last messages of the peer may wait for Receives.
            if receives < RECEIVES_MAX {
                receives += 1;
                let (_, sink) = scene.victim.receive(qp, 64);
                scene.lend(Lent::Sink(sink));
            }
            scene.quiesced(qp)
        });
        for ((exposed, _), access) in
            self.opened.into_iter().zip([Access::RemoteRead, Access::RemoteWrite])
        {
            let proof = complete::destroyed(&exposed, &quiesced);
            let lease = exposed.fence(proof).map_err(|_| ()).expect("no view is left");
            let is_same = lease.bytes() == CONTENTS;
            assert!(is_same || access == Access::RemoteWrite, "what nobody was to write");
        }
    }
}

/// Appends all FPDUs of a message.
fn cut(stream: &mut Vec<u8>, payload: &[u8], mut next: impl FnMut(usize, &[u8]) -> Fpdu) {
    let mut done = 0;
    loop {
        let rest = &payload[done..];
        let fpdu = next(done, rest);
        append(stream, &fpdu, rest);
        done += fpdu.payload_len();
        if done == payload.len() {
            return;
        }
    }
}

fn append(stream: &mut Vec<u8>, fpdu: &Fpdu, payload: &[u8]) {
    stream.extend_from_slice(fpdu.prefix());
    stream.extend_from_slice(&payload[..fpdu.payload_len()]);
    stream.extend_from_slice(fpdu.trailer());
}

fn provider() -> (Iwarp, Pool) {
    let pool = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&pool).expect("memory for a pool");
    let config = Config {
        backend: Backend::Sockets,
        crc: Crc::IfAsked,
        connections_max: 4,
        send_queue_max: 16,
        receive_queue_max: 1024,
        registrations_max: 32,
        ord_max: 2,
        ird_max: 2,
        receive_buffers: 1,
        receive_buffer_bytes: 8 << 10,
        handshake_timeout: Duration::from_millis(50),
        close_timeout: Duration::from_millis(50),
        seed: Some(1),
        ..Config::default()
    };
    (Iwarp::new(&config).expect("a provider"), pool)
}

const OFFER: Offer = Offer { crc: false, ord: 2, ird: 2, rtr: false };
const CONTENTS: [u8; 64] = [7; 64];
const STEPS_MAX: usize = 64;
/// Maximum number of attempts to send a piece of one message.
const SENDS_MAX: usize = 2048;
/// Maximum number of Receives posted for a peer that has left.
const RECEIVES_MAX: usize = 100;
