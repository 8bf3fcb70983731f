//! Clients that ask for several keys of the key-value service in one Call, and servers that answer as they like.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use haulage::core::{Cx, NoService, Service};
use haulage::cores::CoreThread;
use haulage::limits::{ITEM_MAX, LIMITS_DEFAULT, Limits, Versions};
use haulage::remote::RemoteClient;
use haulage::service::{Argument, Call, Data, Outcome, Program, Reply};
use haulage_kv::client::{Client, ClientError};
use haulage_kv::index::Seed;
use haulage_kv::protocol::{BadReply, Key, Procedure, Refusal};
use haulage_kv::service::{KvService, binding};
use haulage_proto::rpc::AcceptStat;
use haulage_tests::ends::{client_within, server_of};

const VALUE_MAX: usize = 4 << 20;

/// Room for each value at first.
const ROOM: usize = 3000;

fn connect(limits: Limits, to: SocketAddr) -> CoreThread<RemoteClient> {
    client_within(limits, || NoService, binding(VALUE_MAX), to)
}

fn kv() -> KvService {
    KvService::new(100, Seed::fixed(1, 2), VALUE_MAX, 8 << 20)
}

fn key(key: &str) -> Key<'_> {
    Key::new(key.as_bytes()).unwrap()
}

/// What became of a key: its value, or in words why there is none.
type Got = Result<Vec<u8>, String>;

fn get_many(remote: &mut RemoteClient, keys: &[Key<'_>]) -> (Vec<Got>, Result<(), ClientError>) {
    let mut got = Vec::new();
    let done = Client::new(remote, None).get_many(keys, ROOM, |value| {
        let value = value.map_err(|error| error.to_string());
        got.push(value.map(|value| value.bytes().to_vec()));
        ControlFlow::Continue(())
    });
    (got, done)
}

fn put_many(
    remote: &mut RemoteClient,
    pairs: &[(Key<'_>, &[u8])],
) -> (Vec<Result<(), Refusal>>, Result<(), ClientError>) {
    let mut stored = Vec::new();
    let done = Client::new(remote, None).put_many(pairs, |outcome| stored.push(outcome));
    (stored, done)
}

fn value(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + salt) % 251).unwrap()).collect()
}

/// Stores and fetches more keys than go in one Call: values of many lengths, keys without one, and keys that are named
/// twice.
fn stores_and_fetches(remote: &mut RemoteClient) {
    let lengths = [0, 1, 700, ROOM, ROOM + 1, 9000, 0, 100_000, 2_000_000, 3, 300_000];
    let names: Vec<_> = (0..lengths.len()).map(|n| format!("{n}{}", "k".repeat(n * 51))).collect();
    let values: Vec<_> = lengths.iter().enumerate().map(|(n, length)| value(*length, n)).collect();
    // Each key has another value at first. It goes in a Call of its own, which would take the server longer than the next.
    let (earlier, mut pairs) = (value(300_000, 99), Vec::new());
    for (name, value) in names.iter().zip(&values) {
        pairs.extend([(key(name), &earlier[..]), (key(name), &value[..])]);
    }
    let (stored, done) = put_many(remote, &pairs);
    done.unwrap();
    assert_eq!(stored, vec![Ok(()); pairs.len()]);
    let mut asked: Vec<_> = names.iter().map(|name| key(name)).collect();
    asked.extend([key("missing"), key(&names[8]), key(&names[8])]);
    let (got, done) = get_many(remote, &asked);
    done.unwrap();
    let missing = Err(Refusal::NotFound.to_string());
    let again = Ok(values[8].clone());
    let expected: Vec<_> =
        values.into_iter().map(Ok).chain([missing, again.clone(), again]).collect();
    assert!(got == expected);
    assert!(get_many(remote, &[]).1.is_ok() && put_many(remote, &[]).1.is_ok());
}

#[test]
fn any_number_of_keys_is_stored_and_fetched_in_both_versions() {
    for versions in [Versions::Both, Versions::OnlyOne] {
        let server = server_of(|_| kv());
        let mut core = connect(Limits { versions, ..LIMITS_DEFAULT }, server.started);
        stores_and_fetches(&mut core.started);
        core.stop().unwrap();
        server.stop().unwrap();
    }
}

/// A server of a release without MGET and MPUT.
struct Older(KvService);

impl Service for Older {
    fn programs(&self) -> Vec<Program> {
        let mut older = binding(VALUE_MAX);
        older.procedures.truncate(Procedure::MGet as usize);
        vec![Program::new(older)]
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        assert!(call.procedure < Procedure::MGet as u32);
        self.0.call(cx, call, reply)
    }
}

#[test]
fn an_older_server_is_asked_for_one_key_at_a_time() {
    for versions in [Versions::Both, Versions::OnlyOne] {
        let server = server_of(|_| Older(kv()));
        let mut core = connect(Limits { versions, ..LIMITS_DEFAULT }, server.started);
        let remote = &mut core.started;
        let long = value(ROOM, 2);
        let pairs = [(key("a"), &b"earlier"[..]), (key("b"), &b""[..]), (key("a"), &long[..])];
        let (stored, done) = put_many(remote, &pairs);
        done.unwrap();
        assert_eq!(stored, [Ok(()); 3]);
        let names = ["a", "none", "b", "a", "b", "a"];
        let (got, done) = get_many(remote, &names.map(key));
        done.unwrap();
        let (a, none) = (Ok(long.clone()), Err(Refusal::NotFound.to_string()));
        let b = Ok(Vec::new());
        assert!(got == [a.clone(), none, b.clone(), a.clone(), b, a], "{versions:?}");
        core.stop().unwrap();
        server.stop().unwrap();
    }
}

/// A server whose transport refuses each MGET: it answers with an item that has no room.
struct Refuser(KvService);

impl Service for Refuser {
    fn programs(&self) -> Vec<Program> {
        self.0.programs()
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure != Procedure::MGet as u32 {
            return self.0.call(cx, call, reply);
        }
        let item = cx.pool().lease(100_000).unwrap();
        reply.results(|w| w.u32(1).and_then(|()| w.u32(0)));
        reply.item(Data::Local(item));
        Outcome::Done
    }
}

// So do releases of version 1 without MGET: they look at the chunks of a Call before they look at its procedure.
#[test]
fn a_server_that_refuses_calls_for_several_keys_is_asked_for_one_at_a_time() {
    let server = server_of(|_| Refuser(kv()));
    let limits = Limits { versions: Versions::OnlyOne, ..LIMITS_DEFAULT };
    let mut core = connect(limits, server.started);
    let octets = value(ROOM, 3);
    Client::new(&mut core.started, None).put(key("a"), &octets).unwrap();
    let (got, done) = get_many(&mut core.started, &["a", "none", "a"].map(key));
    done.unwrap();
    assert!(got == [Ok(octets.clone()), Err(Refusal::NotFound.to_string()), Ok(octets)]);
    core.stop().unwrap();
    server.stop().unwrap();
}

#[test]
fn a_caller_that_has_seen_enough_keeps_nothing_under_way() {
    let server = server_of(|_| kv());
    let mut core = connect(LIMITS_DEFAULT, server.started);
    let names: Vec<_> = (0..40).map(|n| n.to_string()).collect();
    let octets = value(1500, 0);
    let pairs: Vec<_> = names.iter().map(|name| (key(name), &octets[..])).collect();
    put_many(&mut core.started, &pairs).1.unwrap();
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    for enough in [1, 4, 7] {
        let mut seen = 0;
        let mut client = Client::new(&mut core.started, None);
        let done = client.get_many(&keys, ROOM, |value| {
            seen += usize::from(value.is_ok());
            if seen == enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        done.unwrap();
        assert_eq!(seen, enough);
        assert!(core.started.ended().is_err(), "no Call is under way");
    }
    core.stop().unwrap();
    server.stop().unwrap();
}

#[test]
fn a_core_with_room_for_few_calls_is_given_few() {
    let server = server_of(|_| kv());
    for calls_out_max in [1, 3, 20] {
        let limits = Limits { calls_out_max, send_buffers_max: 4, ..LIMITS_DEFAULT };
        let mut core = connect(limits, server.started);
        let names: Vec<_> = (0..90).map(|n| n.to_string()).collect();
        let values: Vec<_> = (0..90).map(|n| value(60 + n, n)).collect();
        let both = names.iter().zip(&values);
        let pairs: Vec<_> = both.map(|(name, value)| (key(name), &value[..])).collect();
        let (stored, done) = put_many(&mut core.started, &pairs);
        done.unwrap();
        assert_eq!(stored, vec![Ok(()); 90], "{calls_out_max}");
        let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
        let (got, done) = get_many(&mut core.started, &keys);
        done.unwrap();
        assert!(got == values.into_iter().map(Ok).collect::<Vec<_>>(), "{calls_out_max}");
        core.stop().unwrap();
    }
    server.stop().unwrap();
}

#[test]
fn short_values_come_when_this_end_has_no_memory_left() {
    let server = server_of(|_| kv());
    let mut core = connect(LIMITS_DEFAULT, server.started);
    let names: Vec<_> = (0..12).map(|n| n.to_string()).collect();
    let octets = value(60, 1);
    let pairs: Vec<_> = names.iter().map(|name| (key(name), &octets[..])).collect();
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    put_many(&mut core.started, &pairs).1.unwrap();
    let mut held = Vec::new();
    while let Ok(lease) = core.started.lease(1) {
        held.push(lease);
    }
    // There is no memory for the arguments of more Calls at once than there were before, either.
    let (got, done) = get_many(&mut core.started, &keys.repeat(8));
    done.unwrap();
    assert_eq!(got, vec![Ok(octets.clone()); 96]);
    let got = Client::new(&mut core.started, None).get(keys[3], 0).unwrap();
    assert_eq!(got.bytes(), octets);
    drop(held);
    core.stop().unwrap();
    server.stop().unwrap();
}

#[test]
fn little_memory_at_this_end_makes_smaller_calls() {
    let server = server_of(|_| kv());
    let mut core = connect(LIMITS_DEFAULT, server.started);
    let octets = value(100_000, 1);
    let names: Vec<_> = (0..12).map(|n| n.to_string()).collect();
    let pairs: Vec<_> = names.iter().map(|name| (key(name), &octets[..])).collect();
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    // All memory is held but that for some values.
    let mut held = Vec::new();
    while let Ok(lease) = core.started.lease(150_000) {
        held.push(lease);
    }
    assert!(held.len() > 3);
    held.truncate(held.len() - 2);
    let (stored, done) = put_many(&mut core.started, &pairs);
    done.unwrap();
    assert_eq!(stored, vec![Ok(()); 12]);
    let mut got = 0;
    let mut client = Client::new(&mut core.started, None);
    let done = client.get_many(&keys, 100_000, |value| {
        assert!(value.unwrap().bytes() == octets);
        got += 1;
        ControlFlow::Continue(())
    });
    done.unwrap();
    assert_eq!(got, 12);
    // A value for which there is no memory is told with what it takes; the others come.
    let long = value(2_000_000, 2);
    drop(held);
    Client::new(&mut core.started, None).put(key("0"), &long).unwrap();
    let held: Vec<_> = (0..50).map_while(|_| core.started.lease(1_000_000).ok()).collect();
    let mut needed = Vec::new();
    let mut client = Client::new(&mut core.started, None);
    let done = client.get_many(&keys[..2], ROOM, |value| {
        needed.push(match value {
            Err(ClientError::Room { needed }) => needed,
            value => Some(value.unwrap().len()),
        });
        ControlFlow::Continue(())
    });
    done.unwrap();
    assert_eq!(needed, [Some(2_000_000), Some(100_000)]);
    drop(held);
    core.stop().unwrap();
    server.stop().unwrap();
}

/// A server that answers MGET and MPUT with what the first key asks for.
struct Liar;

/// The words that [`Liar`] answers with, and the octets that it writes into the first chunk.
fn lie(key: &[u8]) -> (&'static [u32], usize) {
    match key {
        b"more" => (&[3, 1, 1, 1], 0),
        b"fewer" => (&[1, 1], 0),
        b"status" => (&[2, 77, 1], 0),
        b"short" => (&[2, 1], 0),
        b"beyond" => (&[2, 1, 1, 0], 0),
        b"huge" => (&[2, 5, u32::MAX, u32::MAX, 1], 0),
        b"gone" => (&[2, 5, 0, 100_000, 1], 0),
        // A value is in the chunk of a key that has none, or is longer than the message.
        b"chunk" => (&[2, 1, 1], 1000),
        _ => (&[2, 0, 1000, 1], 0),
    }
}

impl Service for Liar {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding(VALUE_MAX))]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure == Procedure::Get as u32 {
            reply.results(|w| w.u32(1));
            return Outcome::Done;
        }
        call.arguments.u32().unwrap();
        let (words, chunk) = lie(call.arguments.opaque(512).unwrap());
        if call.procedure == Procedure::MPut as u32 {
            let value = call.arguments.item(usize::MAX).unwrap();
            assert!(!matches!(value, Argument::Refused { .. }));
        }
        reply.results(|w| words.iter().try_for_each(|word| w.u32(*word)));
        if chunk > 0 && call.procedure == Procedure::MGet as u32 {
            let Some(lease) = cx.pool().lease(chunk) else {
                return Outcome::Failed(AcceptStat::SystemErr);
            };
            reply.item_data(Data::Local(lease));
        }
        Outcome::Done
    }
}

#[test]
fn answers_that_make_no_sense_are_errors_and_the_client_goes_on() {
    let server = server_of(|_| Liar);
    let mut core = connect(LIMITS_DEFAULT, server.started);
    let remote = &mut core.started;
    let two = |name| [key(name), key("other")];
    for name in ["more", "fewer", "status", "short", "beyond", "chunk", "length"] {
        let (got, done) = get_many(remote, &two(name));
        let is_clear = match (name, &done) {
            ("more", Err(ClientError::BadReply(error))) => {
                *error == BadReply::Count { asked: 2, answered: 3 }
            }
            ("fewer", Err(ClientError::BadReply(error))) => {
                *error == BadReply::Count { asked: 2, answered: 1 }
            }
            ("status", Err(ClientError::BadReply(error))) => *error == BadReply::Status(77),
            (_, Err(ClientError::BadReply(BadReply::Garbage(_)))) => true,
            _ => false,
        };
        assert!(is_clear, "{name}: {done:?}");
        assert_eq!(got, []);
        if !["chunk", "length"].contains(&name) {
            let (stored, done) = put_many(remote, &two(name).map(|key| (key, &b"value"[..])));
            assert!(stored.is_empty() && matches!(done, Err(ClientError::BadReply(_))), "{name}");
        }
    }
    // The client takes no memory for a length that no value has, and believes what GET says.
    let mut told = Vec::new();
    for name in ["huge", "gone"] {
        let done = Client::new(remote, None).get_many(&two(name), ROOM, |value| {
            told.push(value.unwrap_err());
            ControlFlow::Continue(())
        });
        done.unwrap();
    }
    let [huge, other, gone, _] = &told[..] else { panic!("{told:?}") };
    assert!(matches!(huge, ClientError::Room { needed } if needed.is_none_or(|it| it > ITEM_MAX)));
    for missing in [other, gone] {
        assert!(matches!(missing, ClientError::Refused(Refusal::NotFound)), "{missing:?}");
    }
    core.stop().unwrap();
    server.stop().unwrap();
}
