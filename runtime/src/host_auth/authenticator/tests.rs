use super::*;
use crate::host_auth::MESSAGE_MAX;

mod attacks;

const VERSION: u32 = 2;

/// A CONNPROP message on its way, which an attacker may change.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wire {
    from: Role,
    last: bool,
    properties: Vec<u8>,
    octets: Vec<u8>,
}

/// One end, and the messages that it has still to send.
struct End {
    auth: KeyAuthenticator,
    role: Role,
    properties: Vec<&'static [u8]>,
    /// The result of its last step; an error ends its part.
    said: Result<Progress, Refused>,
    finals: (bool, bool),
}

impl End {
    fn new(role: Role, auth: KeyAuthenticator) -> Self {
        let mut end = Self {
            auth,
            role,
            properties: Vec::new(),
            said: Ok(Progress::More),
            finals: (false, false),
        };
        end.properties = match role {
            Role::Client => vec![b"client's first", b"client's last"],
            Role::Server => vec![b"server's first", b"server's last"],
        };
        end.auth.bind(role, VERSION, b"client's private", b"server's private");
        end
    }

    /// Returns the next message to send, like a connection: a FINAL once nothing more is due.
    fn say(&mut self) -> Option<Wire> {
        let next = *self.properties.first()?;
        let last = self.properties.len() == 1 && self.said == Ok(Progress::Done);
        if self.properties.len() > 1 || last {
            self.properties.remove(0);
        }
        self.auth.hear(self.role, conn_prop_kind(last), next);
        let mut octets = Vec::new();
        self.said = self.auth.send(&mut octets);
        self.finals.0 |= last;
        let wire = Wire { from: self.role, last, properties: next.to_vec(), octets };
        self.said.ok().map(|_| wire)
    }

    fn take(&mut self, wire: &Wire) {
        self.auth.hear(wire.from, conn_prop_kind(wire.last), &wire.properties);
        self.said = self.auth.receive(&wire.octets);
        self.finals.1 |= wire.last;
    }

    /// Returns the peer's key if this end would let RPC messages pass now.
    fn outcome(&self) -> Result<Option<&[u8]>, Refused> {
        let open = self.said? == Progress::Done && self.finals == (true, true);
        Ok(self.auth.peer().filter(|_| open))
    }
}

const fn conn_prop_kind(last: bool) -> ConnPropKind {
    if last { ConnPropKind::Final } else { ConnPropKind::Middle }
}

/// Lets both ends talk, each message changed on its way by `attack`. Returns the messages that arrived.
fn talk(client: &mut End, server: &mut End, mut attack: impl FnMut(usize, &mut Wire)) -> Vec<Wire> {
    let mut arrived = Vec::new();
    while arrived.len() < 8 {
        let (from, to) = if arrived.len().is_multiple_of(2) {
            (&mut *client, &mut *server)
        } else {
            (&mut *server, &mut *client)
        };
        let Some(mut wire) = from.say() else { break };
        attack(arrived.len(), &mut wire);
        to.take(&wire);
        arrived.push(wire);
        if to.said.is_err() {
            break;
        }
    }
    arrived
}

fn secret(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

/// A secret key, and the hosts that are accepted.
type Keys = (Arc<SecretKey>, Option<Arc<KnownHosts>>);

fn with_nonce((secret, accepted): Keys, nonce: Nonce) -> KeyAuthenticator {
    KeyAuthenticator::with_nonce(secret, accepted, nonce)
}

fn fresh((secret, accepted): Keys) -> Result<KeyAuthenticator, NoEntropy> {
    KeyAuthenticator::new(secret, accepted)
}

fn keys(own: u8, known: &[u8]) -> Keys {
    let mut hosts = KnownHosts::default();
    known.iter().for_each(|seed| hosts.add(&seed.to_string(), secret(*seed).public()));
    (Arc::new(secret(own)), Some(Arc::new(hosts)))
}

const CLIENT: u8 = 1;
const SERVER: u8 = 2;
const STRANGER: u8 = 3;

fn client(nonce: u8) -> End {
    let auth = with_nonce(keys(CLIENT, &[SERVER]), Nonce::fixed([nonce; 32]));
    End::new(Role::Client, auth)
}

fn server(nonce: u8) -> End {
    let auth = with_nonce(keys(SERVER, &[CLIENT]), Nonce::fixed([nonce; 32]));
    End::new(Role::Server, auth)
}

fn honest() -> Vec<Wire> {
    talk(&mut client(0xc1), &mut server(0x51), |_, _| {})
}

/// Lets `attack` change the messages of an honest pair. Returns the outcome at each end.
fn under(attack: impl FnMut(usize, &mut Wire)) -> [Result<bool, Refused>; 2] {
    let (mut client, mut server) = (client(0xc1), server(0x51));
    talk(&mut client, &mut server, attack);
    [client, server].map(|end| end.outcome().map(|peer| peer.is_some()))
}

#[test]
fn both_ends_learn_who_the_other_is() {
    let (mut client, mut server) = (client(0xc1), server(0x51));
    let messages = talk(&mut client, &mut server, |_, _| {});
    assert_eq!(client.outcome(), Ok(Some(&secret(SERVER).public().octets()[..])));
    assert_eq!(server.outcome(), Ok(Some(&secret(CLIENT).public().octets()[..])));
    let shapes: Vec<_> = messages.iter().map(|m| (m.from, m.last, m.octets.len())).collect();
    let (c, s) = (Role::Client, Role::Server);
    assert_eq!(shapes, [(c, false, 68), (s, false, MESSAGE_MAX), (c, true, 68), (s, true, 68)]);
}

#[test]
fn nobody_is_named_before_all_is_said() {
    let (mut client, mut server) = (client(0xc1), server(0x51));
    talk(&mut client, &mut server, |index, _| assert!(index < 4));
    let mut early = [client_at(1), client_at(2), client_at(3)];
    assert!(early.iter_mut().all(|end| end.auth.peer().is_none()));
    assert!(client_at(4).auth.peer().is_some());
}

/// Returns a client that has seen the first `count` messages of an honest exchange.
fn client_at(count: usize) -> End {
    let mut end = client(0xc1);
    for message in honest().iter().take(count) {
        match message.from {
            Role::Client => assert_eq!(end.say().as_ref(), Some(message)),
            Role::Server => end.take(message),
        }
    }
    end
}

#[test]
fn the_messages_are_what_they_were() {
    // The vectors were made once with Python's `cryptography`, from the description of the formats.
    let expected = include_str!("../../../vectors/host_auth.hex");
    let expected: Vec<_> = expected.lines().filter(|line| !line.starts_with('#')).collect();
    let hex = |octets: &[u8]| octets.iter().map(|octet| format!("{octet:02x}")).collect::<String>();
    let messages: Vec<_> = honest().iter().map(|message| hex(&message.octets)).collect();
    assert_eq!(messages, expected);
}

#[test]
fn each_authenticator_has_a_nonce_of_its_own() {
    let make = || fresh(keys(CLIENT, &[SERVER])).unwrap();
    let (one, two) = (make(), make());
    assert_ne!(one.nonce.octets(), two.nonce.octets());
}

#[test]
fn a_host_that_knows_itself_can_call_itself() {
    let auth = |nonce| with_nonce(keys(CLIENT, &[CLIENT]), Nonce::fixed([nonce; 32]));
    let (mut client, mut server) =
        (End::new(Role::Client, auth(1)), End::new(Role::Server, auth(2)));
    talk(&mut client, &mut server, |_, _| {});
    assert_eq!(client.outcome(), Ok(Some(&secret(CLIENT).public().octets()[..])));
    assert_eq!(server.outcome(), client.outcome());
}

#[test]
fn nothing_that_is_printed_is_secret() {
    let printed = format!("{:?}", client_at(4).auth);
    assert!(printed.contains("Client") && printed.contains("Finished"), "{printed}");
    assert!(printed.contains(&secret(SERVER).public().to_string()), "{printed}");
    assert!(!printed.contains("1, 1, 1") && !printed.contains("0101"), "{printed}");
}
