//! Two ends that prove to each other which hosts they are, and somebody between them who changes what they say.

use std::collections::VecDeque;
use std::sync::LazyLock;

use haulage::host_auth::{HostKeys, KnownHosts, SecretKey};
use haulage::hosts::Policy;
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::{Config, Connection, Input, Output, Role};
use haulage_proto::v2::header::decode_transport;
use haulage_proto::xdr::{Reader, Writer};

use super::bound::within;
use super::octets::{octet, some_octets};
use crate::world::choices::Choices;

/// Lets both ends talk, each message changed on its way by the choices. If both ends believe the other, each has heard what the
/// other said, and the host that it believes in is the one that is there.
pub(super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let mut ends = [Role::Client, Role::Server].map(|role| End::new(&mut choices, role));
    for _ in 0..MESSAGES_MAX {
        for at in 0..2 {
            let Some(message) = ends[1 - at].sent.pop_front() else { continue };
            let arrives = if choices.one_in(3) { changed(&mut choices, &message) } else { message };
            ends[at].hears(&arrives);
        }
        if ends.iter().all(|end| end.sent.is_empty()) {
            break;
        }
    }
    let believed = ends.each_ref().map(|end| end.connection.peer_identity().map(<[u8]>::to_vec));
    for (believed, other) in believed.iter().zip([&ends[1], &ends[0]]) {
        if let Some(key) = believed {
            assert!(!other.is_stranger, "a stranger is believed");
            assert_eq!(*key, KEYS[other.role as usize].public().octets(), "the host that is there");
        }
    }
    if believed.iter().all(Option::is_some) {
        assert_eq!(ends[0].heard, ends[1].said, "what the server said is what its client heard");
        assert_eq!(ends[1].heard, ends[0].said, "what the client said is what its server heard");
    }
}

/// One end, and what it said and heard: the parts of its CONNPROP messages that mean something.
struct End {
    role: Role,
    is_stranger: bool,
    connection: Connection,
    sent: VecDeque<Vec<u8>>,
    said: Vec<Meaning>,
    heard: Vec<Meaning>,
}

/// The type of a message, and its properties.
type Meaning = (u32, Vec<(u32, Vec<u8>)>);

impl End {
    fn new(choices: &mut Choices, role: Role) -> Self {
        let policy = choices.pick(&[Policy::Required, Policy::Required, Policy::Optional]);
        let is_stranger = choices.one_in(8);
        let (own, other) = match role {
            Role::Client => (Role::Client, Role::Server),
            Role::Server => (Role::Server, Role::Client),
        };
        let secret = if is_stranger { STRANGER } else { SEEDS[own as usize] };
        let mut known = KnownHosts::default();
        known.add("the other end", KEYS[other as usize].public());
        let keys = HostKeys::new(SecretKey::from_seed(&secret), known);
        let authenticator = keys.authenticator().expect("randomness");
        let mut connection = Connection::new(Config::new(role, 7));
        connection.reserve(64);
        for which in 0..choices.below(3) {
            let which = 0x5254_0000 + u32::try_from(which).expect("small");
            connection.announce(which, &some_octets(choices, 512));
        }
        connection.authenticate(policy, Box::new(authenticator), b"client", b"server");
        let (said, heard) = (Vec::new(), Vec::new());
        let mut end = Self { role, is_stranger, connection, sent: VecDeque::new(), said, heard };
        end.takes(Input::Established);
        end
    }

    fn hears(&mut self, message: &[u8]) {
        let decoded = decode_transport(message);
        self.heard.extend(meaning(message));
        // Both ends keep a hash, and octets of one proof at most.
        within(1 << 20, || self.takes(Input::Received(&decoded)));
        self.connection.reserve(1);
    }

    fn takes(&mut self, input: Input<'_>) {
        self.connection.handle(Instant::ZERO, input);
        while let Some(output) = self.connection.poll() {
            if let Output::Post(control) = output {
                let mut memory = [0; 4096];
                let mut w = Writer::new(&mut memory);
                self.connection.encode(&control, &mut w).expect("it fits a message");
                let message = w.written().to_vec();
                self.said.extend(meaning(&message));
                self.sent.push_back(message);
            }
        }
    }
}

/// Changes a message, or puts another in its place.
fn changed(choices: &mut Choices, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    match choices.below(5) {
        0 => message.truncate(choices.below(message.len() + 1)),
        1 => message.extend(some_octets(choices, 64)),
        2 if message.len() > HTYPE + 3 => message[HTYPE + 3] ^= 1,
        // The count of the properties, and one more.
        3 if message.len() > COUNT + 3 => {
            message[COUNT + 3] = message[COUNT + 3].wrapping_add(1);
            message.extend([0, 0, 0, 77, 0, 0, 0, 4, 1, 2, 3, 4]);
        }
        _ if message.len() > HTYPE => {
            let at = HTYPE + choices.below(message.len() - HTYPE);
            message[at] ^= octet(choices);
        }
        _ => {}
    }
    message
}

/// Returns what a message means, if it is a CONNPROP message of whole properties.
fn meaning(message: &[u8]) -> Option<Meaning> {
    let mut r = Reader::new(message.get(HTYPE..)?);
    let htype = r.u32().ok().filter(|htype| matches!(htype, 6 | 7))?;
    let count = r.u32().ok()?;
    let property = |_| Some((r.u32().ok()?, r.opaque(usize::MAX).ok()?.to_vec()));
    Some((htype, (0..count).map(property).collect::<Option<_>>()?))
}

const HTYPE: usize = 12;
const COUNT: usize = 16;
const MESSAGES_MAX: usize = 40;

/// The seeds of the keys of client and server, and of a host that neither knows.
const SEEDS: [[u8; 32]; 2] = [[1; 32], [2; 32]];
const STRANGER: [u8; 32] = [9; 32];
static KEYS: LazyLock<[SecretKey; 2]> =
    LazyLock::new(|| SEEDS.map(|seed| SecretKey::from_seed(&seed)));
