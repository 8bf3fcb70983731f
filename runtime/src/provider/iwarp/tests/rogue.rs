//! A peer made of the protocol's own parts, which can do things that an RNIC would not.

use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Active, MpaReply, Offer};
use haulage_proto::iwarp::receive::{Delivery, Event as FpduEvent, Receiver};
use haulage_proto::iwarp::terminate::Code;
use haulage_proto::iwarp::transmit::{Fpdu, Transmitter};

use super::*;
use crate::sys::crc::crc32c;

/// The active end of a connection, as a plain socket.
pub(super) struct Rogue {
    pub(super) stream: TcpStream,
    pub(super) transmitter: Transmitter,
    crc: Option<Crc32c>,
    /// The node's queue pair of this connection.
    pub(super) qp: QpNum,
}

impl Rogue {
    /// Connects to a new listener of `node`, which accepts; each may have two Reads outstanding.
    pub(super) fn new(node: &mut Node, crc: bool) -> Self {
        let (_, at) = node.nic.listen(LOCAL).unwrap();
        Self::join(node, at, Offer { crc, ord: 2, ird: 2, rtr: false })
    }

    /// Connects to `node` at `at`. If `node` had a connection, requests are still posted on that one.
    pub(super) fn join(node: &mut Node, at: SocketAddr, offer: Offer) -> Self {
        let before = node.qp.take();
        let (mut handshake, request) = Active::new(offer, b"").unwrap();
        let mut stream = TcpStream::connect(at).unwrap();
        stream.write_all(&request).unwrap();
        for _ in 0..POLLS_MAX {
            node.poll();
            if node.qp.is_some() {
                break;
            }
        }
        let qp = node.qp();
        let params = ConnectionParams { private_data: b"", ord: 2, ird: 2 };
        node.nic.accept(Instant::ZERO, qp, &params);
        let mut room = [0; 24];
        stream.read_exact(&mut room).unwrap();
        let answer = handshake.handle(&mut &room[..]).unwrap();
        assert!(matches!(answer, Some(MpaReply::Accepted { .. })));
        node.poll();
        node.qp = before.or(Some(qp));
        let crc: Option<Crc32c> = if offer.crc { Some(crc32c) } else { None };
        Self { stream, transmitter: Transmitter::new(crc, Mulpdu::default()), crc, qp }
    }

    pub(super) fn send(&mut self, fpdu: &Fpdu, payload: &[u8]) {
        let octets = [fpdu.prefix(), &payload[..fpdu.payload_len()], fpdu.trailer()].concat();
        self.stream.write_all(&octets).unwrap();
    }

    /// Sends octets, and polls `node` while the sockets hold no more.
    pub(super) fn send_all(&mut self, node: &mut Node, octets: &[u8]) {
        self.stream.set_nonblocking(true).unwrap();
        let mut sent = 0;
        for _ in 0..POLLS_MAX {
            match self.stream.write(&octets[sent..]) {
                Ok(count) => sent += count,
                Err(_) => node.poll(),
            }
            if sent == octets.len() {
                return;
            }
        }
        panic!("{sent} of {} octets were taken", octets.len());
    }

    /// Polls `node` until it has closed its half, and returns the Terminate it sent.
    pub(super) fn terminate(&mut self, node: &mut Node) -> Code {
        self.stream.set_nonblocking(true).unwrap();
        let mut receiver = Receiver::new(self.crc);
        let mut code = None;
        for _ in 0..POLLS_MAX {
            node.poll();
            let mut room = [0; 4096];
            match self.stream.read(&mut room) {
                Ok(0) => return code.expect("a Terminate came before the end"),
                Ok(count) => {
                    let mut octets = &room[..count];
                    while let Some(event) = receiver.next(&mut octets).unwrap() {
                        if let FpduEvent::End(Delivery::Terminate(terminate)) = event {
                            code = Some(terminate.code);
                        }
                    }
                }
                Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        panic!("still open: {:?}", node.seen);
    }
}
