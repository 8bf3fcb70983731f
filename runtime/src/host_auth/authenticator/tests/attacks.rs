//! Attacks by somebody between the ends, or at one of them.

use super::*;

#[test]
fn properties_said_in_further_messages_are_covered_too() {
    for index in [0, 1, 2, 3, 4, 5] {
        let (mut client, mut server) = (client(0xc1), server(0x51));
        client.properties = vec![b"a", b"b", b"c"];
        server.properties = vec![b"d", b"e", b"f"];
        let honest = talk(&mut client, &mut server, |_, _| {});
        assert_eq!(honest.len(), 6);
        assert!(client.outcome().unwrap().is_some() && server.outcome().unwrap().is_some());
        let (mut client, mut server) = (self::client(0xc1), self::server(0x51));
        client.properties = vec![b"a", b"b", b"c"];
        server.properties = vec![b"d", b"e", b"f"];
        talk(&mut client, &mut server, |at, wire| {
            if at == index {
                wire.properties.push(b'x');
            }
        });
        let outcomes = [client.outcome(), server.outcome()];
        assert!(outcomes.contains(&Err(Refused::WrongProof)), "{index}: {outcomes:?}");
    }
}

#[test]
fn every_property_of_either_end_is_covered() {
    for index in 0..4 {
        // The properties are changed, dropped, or one is added.
        let attacks: [fn(&mut Vec<u8>); 3] = [|p| p[3] ^= 1, Vec::clear, |p| p.extend([0; 12])];
        for attack in attacks {
            let outcomes = under(|at, wire| {
                if at == index {
                    attack(&mut wire.properties);
                }
            });
            assert!(outcomes.contains(&Err(Refused::WrongProof)), "{index}: {outcomes:?}");
        }
    }
}

#[test]
fn properties_cannot_be_moved_from_one_message_to_another() {
    let outcomes = under(|at, wire| match at {
        0 => wire.properties = b"client's firstclient's".to_vec(),
        2 => wire.properties = b" last".to_vec(),
        _ => {}
    });
    assert!(outcomes.contains(&Err(Refused::WrongProof)), "{outcomes:?}");
}

#[test]
fn what_was_agreed_before_is_covered() {
    let other: [(u32, &[u8], &[u8]); 4] = [
        (1, b"client's private", b"server's private"),
        (VERSION, b"client's Private", b"server's private"),
        (VERSION, b"client's private", b""),
        (VERSION, b"client's privates", b"erver's private"),
    ];
    for (version, client_private, server_private) in other {
        for role in [Role::Client, Role::Server] {
            let (mut client, mut server) = (client(0xc1), server(0x51));
            let (end, auth) = match role {
                Role::Client => {
                    (&mut client, with_nonce(keys(CLIENT, &[SERVER]), Nonce::fixed([0xc1; 32])))
                }
                Role::Server => {
                    (&mut server, with_nonce(keys(SERVER, &[CLIENT]), Nonce::fixed([0x51; 32])))
                }
            };
            end.auth = auth;
            end.auth.bind(role, version, client_private, server_private);
            talk(&mut client, &mut server, |_, _| {});
            assert_eq!(client.outcome(), Err(Refused::WrongProof), "{role:?} {version}");
            assert_ne!(server.outcome().map(|peer| peer.is_some()), Ok(true));
        }
    }
}

#[test]
fn a_final_cannot_be_turned_into_a_middle_or_back() {
    for index in 0..4 {
        let outcomes = under(|at, wire| {
            if at == index {
                wire.last = !wire.last;
            }
        });
        assert!(outcomes.iter().any(Result::is_err), "{index}: {outcomes:?}");
        assert!(outcomes.iter().filter(|o| **o == Ok(true)).count() < 2);
    }
}

#[test]
fn removing_host_authentication_from_any_message_is_noticed() {
    for index in 1..4 {
        let outcomes = under(|at, wire| {
            if at == index {
                wire.octets.clear();
            }
        });
        assert!(outcomes.contains(&Err(Refused::Malformed)), "{index}: {outcomes:?}");
    }
}

#[test]
fn each_octet_of_each_message_matters() {
    let lengths: Vec<_> = honest().iter().map(|message| message.octets.len()).collect();
    for (index, length) in lengths.into_iter().enumerate() {
        for octet in 0..length {
            let outcomes = under(|at, wire| {
                if at == index {
                    wire.octets[octet] ^= 0x40;
                }
            });
            assert!(outcomes.iter().any(Result::is_err), "{index} {octet}: {outcomes:?}");
        }
    }
}

#[test]
fn a_stranger_is_refused_in_either_role() {
    let stranger = |known| with_nonce(keys(STRANGER, &[known]), Nonce::fixed([9; 32]));
    let mut end = End::new(Role::Client, stranger(SERVER));
    let mut honest = server(0x51);
    talk(&mut end, &mut honest, |_, _| {});
    assert_eq!(honest.outcome(), Err(Refused::UnknownPeer));
    let mut end = End::new(Role::Server, stranger(CLIENT));
    let mut honest = client(0xc1);
    talk(&mut honest, &mut end, |_, _| {});
    assert_eq!(honest.outcome(), Err(Refused::UnknownPeer));
}

#[test]
fn a_known_key_is_no_use_without_its_secret() {
    // The impostor follows the protocol in everything but the key that signs.
    let messages = honest();
    let forge = |index: usize, kind: Kind| {
        let mut transcript = Transcript::new();
        transcript.bind(VERSION, b"client's private", b"server's private");
        let sent = [Kind::ClientHello, Kind::ServerHello, Kind::ClientProof];
        for (message, kind) in messages.iter().zip(sent).take(index) {
            transcript.heard(message.from, conn_prop_kind(message.last), &message.properties);
            transcript.said(kind, &message.octets);
        }
        let mut forged = messages[index].clone();
        transcript.heard(forged.from, conn_prop_kind(forged.last), &forged.properties);
        let said = forged.octets.len() - 64;
        let statement = transcript.statement(kind, &forged.octets[..said]);
        let owner = if forged.from == Role::Client { CLIENT } else { SERVER };
        // The forged message is the one that the owner of the key would have sent.
        assert_eq!(secret(owner).sign(&statement), forged.octets[said..]);
        forged.octets[said..].copy_from_slice(&secret(STRANGER).sign(&statement));
        forged
    };
    let mut victim = client_at(1);
    victim.take(&forge(1, Kind::ServerHello));
    assert_eq!(victim.outcome(), Err(Refused::WrongProof));
    let mut victim = server_at(2);
    victim.take(&forge(2, Kind::ClientProof));
    assert_eq!(victim.outcome(), Err(Refused::WrongProof));
    let mut victim = client_at(3);
    victim.take(&forge(3, Kind::ServerProof));
    assert_eq!(victim.outcome(), Err(Refused::WrongProof));
}

#[test]
fn a_recorded_handshake_cannot_be_played_again() {
    let recorded = honest();
    // The recording is replayed to a server, which has another nonce now.
    let mut victim = server(0x52);
    victim.take(&recorded[0]);
    victim.say().unwrap();
    victim.take(&recorded[2]);
    assert_eq!(victim.outcome(), Err(Refused::WrongProof));
    // The recording is replayed to a client.
    let mut victim = client(0xc2);
    victim.say().unwrap();
    victim.take(&recorded[1]);
    assert_eq!(victim.outcome(), Err(Refused::WrongProof));
    // The replay passes only where the server repeats its nonce.
    let mut same = server(0x51);
    same.take(&recorded[0]);
    same.say().unwrap();
    same.take(&recorded[2]);
    assert!(same.said.is_ok());
}

#[test]
fn our_own_messages_sent_back_are_refused() {
    // The victim trusts its own key, so an unknown key is not the reason for the refusal.
    let auth = with_nonce(keys(CLIENT, &[CLIENT]), Nonce::fixed([1; 32]));
    let mut victim = End::new(Role::Client, auth);
    let hello = victim.say().unwrap();
    let sent_back = |octets| Wire { from: Role::Server, octets, ..hello.clone() };
    let mut other = client_at(1);
    other.take(&sent_back(hello.octets.clone()));
    assert_eq!(other.outcome(), Err(Refused::Reflected));
    // The client's hello, with the tag of a server's hello and some signature.
    let mut octets = [&Kind::ServerHello.tag(), &hello.octets[4..]].concat();
    octets.extend([0; 64]);
    victim.take(&sent_back(octets));
    assert_eq!(victim.outcome(), Err(Refused::Reflected));
    // A server's own hello.
    let mut victim = server_at(2);
    let own = honest()[1].octets.clone();
    victim.take(&Wire { octets: own, ..honest()[2].clone() });
    assert_eq!(victim.outcome(), Err(Refused::Reflected));
    // A client's last signature as the server's.
    let mut victim = client_at(3);
    let proof = &honest()[2].octets;
    let octets = [&Kind::ServerProof.tag(), &proof[4..]].concat();
    victim.take(&Wire { octets, ..honest()[3].clone() });
    assert_eq!(victim.outcome(), Err(Refused::WrongProof));
}

#[test]
fn a_final_that_comes_too_early_is_refused() {
    let early = |message: &Wire| Wire { last: true, ..message.clone() };
    let messages = honest();
    let mut victim = server(0x51);
    victim.take(&early(&messages[0]));
    assert_eq!(victim.outcome(), Err(Refused::Unfinished));
    let mut victim = client_at(1);
    victim.take(&early(&messages[1]));
    assert_eq!(victim.outcome(), Err(Refused::Unfinished));
    // A server that is asked to send a FINAL before the client has proved itself fails as well.
    let mut victim = server_at(2);
    victim.auth.hear(Role::Server, ConnPropKind::Final, b"");
    assert_eq!(victim.auth.send(&mut Vec::new()), Err(Refused::Unfinished));
}

/// Returns a server that has seen the first `count` messages of an honest exchange.
fn server_at(count: usize) -> End {
    let mut end = server(0x51);
    for message in honest().iter().take(count) {
        match message.from {
            Role::Server => assert_eq!(end.say().as_ref(), Some(message)),
            Role::Client => end.take(message),
        }
    }
    end
}

#[test]
fn every_other_length_is_malformed() {
    let messages = honest();
    let at =
        |index: usize| if index.is_multiple_of(2) { server_at(index) } else { client_at(index) };
    for (index, message) in messages.iter().enumerate() {
        for length in (0..message.octets.len()).chain([message.octets.len() + 1]) {
            let mut octets = message.octets.clone();
            octets.resize(length, 0);
            let mut victim = at(index);
            victim.take(&Wire { octets, ..message.clone() });
            assert_eq!(victim.outcome(), Err(Refused::Malformed), "{index} {length}");
        }
    }
}

#[test]
fn there_is_no_second_attempt() {
    let messages = honest();
    let mut victim = client_at(1);
    victim.take(&Wire { octets: vec![0; 7], ..messages[1].clone() });
    victim.take(&messages[1]);
    assert_eq!(victim.said, Err(Refused::Malformed));
    assert_eq!(victim.auth.send(&mut Vec::new()), Err(Refused::Malformed));
}

#[test]
fn any_octets_in_any_state_are_answered() {
    let mut rng = 7_u64;
    let mut next = || {
        rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (rng >> 33) as usize
    };
    let messages = honest();
    for _ in 0..300 {
        let index = next() % 4;
        let mut victim = if index.is_multiple_of(2) { server_at(index) } else { client_at(index) };
        let mut octets = messages[next() % 4].octets.clone();
        octets.resize(next() % (2 * MESSAGE_MAX), 0);
        for octet in octets.iter_mut().skip(4) {
            *octet = next().to_le_bytes()[0];
        }
        victim.take(&Wire { octets, ..messages[index].clone() });
        assert!(victim.outcome().is_err());
        assert_eq!(victim.auth.peer(), None);
    }
}
