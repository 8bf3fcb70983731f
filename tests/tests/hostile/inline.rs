//! Clients of the key-value service that expect short values in the messages, and servers that have other ones: ours, one of
//! the release before, and some that claim anything.

use std::sync::mpsc::{Receiver, Sender, channel};

use haulage::core::{Cx, NoService, Service};
use haulage::cores::CoreThread;
use haulage::limits::{ITEM_MAX, LIMITS_DEFAULT, Limits, Versions};
use haulage::remote::RemoteClient;
use haulage::service::{Call, Data, Outcome, Program, Reply};
use haulage_kv::client::{Client, ClientError};
use haulage_kv::index::Seed;
use haulage_kv::inline::INLINE_MAX;
use haulage_kv::protocol::{Key, Procedure};
use haulage_kv::service::{KvService, binding};
use haulage_tests::ends::{client_within, server_of};

const VALUE_MAX: usize = 4 << 20;

/// Longer than any message.
const LONG: usize = 20_000;

/// Room for a value that is expected to be long.
const ROOM: usize = 30_000;

fn connect<S: Service>(
    versions: Versions,
    make: impl FnOnce() -> S + Send + 'static,
) -> (CoreThread<RemoteClient>, CoreThread<std::net::SocketAddr>) {
    let server = server_of(|_| make());
    let limits = Limits { versions, ..LIMITS_DEFAULT };
    let client = client_within(limits, || NoService, binding(VALUE_MAX), server.started);
    (client, server)
}

fn kv() -> KvService {
    KvService::new(100, Seed::fixed(1, 2), VALUE_MAX, 8 << 20)
}

fn key(key: &str) -> Key<'_> {
    Key::new(key.as_bytes()).unwrap()
}

fn value(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + salt) % 251).unwrap()).collect()
}

/// What a server was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    /// A value, without a chunk.
    Short,
    /// A value, with a chunk of as many octets.
    Long(u64),
    /// Several values, with a chunk for the first one or not.
    Many { has_chunk: bool },
    /// To keep values of which as many octets came in the message.
    Kept { inline: u64 },
}

/// A server that tells what it was asked for.
struct Telling(KvService, Sender<Asked>);

impl Service for Telling {
    fn programs(&self) -> Vec<Program> {
        self.0.programs()
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        let (room, before) = (reply.item_room(), cx.counters().bytes_unreduced);
        let procedure = Procedure::from_number(call.procedure);
        let outcome = self.0.call(cx, call, reply);
        let inline = cx.counters().bytes_unreduced - before;
        let asked = match procedure {
            Some(Procedure::Get) => room.map_or(Asked::Short, Asked::Long),
            Some(Procedure::MGet) => Asked::Many { has_chunk: room.is_some() },
            Some(Procedure::Put | Procedure::MPut) => Asked::Kept { inline },
            _ => return outcome,
        };
        self.1.send(asked).unwrap();
        outcome
    }
}

fn telling(versions: Versions) -> (CoreThread<RemoteClient>, impl FnOnce(), Receiver<Asked>) {
    let (tell, told) = channel();
    let (client, server) = connect(versions, || Telling(kv(), tell));
    (client, move || server.stop().unwrap(), told)
}

#[test]
fn a_value_is_asked_for_as_it_was_last() {
    for versions in [Versions::Both, Versions::OnlyOne] {
        let (mut core, stop, told) = telling(versions);
        let asked = || told.try_iter().collect::<Vec<_>>();
        let mut other = core.started.try_clone().unwrap();
        let mut other = Client::new(&mut other, None);
        let mut client = Client::new(&mut core.started, None);
        let got = |client: &mut Client<'_>, name: &str| {
            let value = client.get(key(name), ROOM).unwrap();
            (value.bytes().to_vec(), asked())
        };
        let (short, long) = (value(700, 1), value(LONG, 2));
        // The first PUT does not know yet how much a message takes.
        client.put(key("a"), &[]).unwrap();
        client.put(key("b"), &long).unwrap();
        client.put(key("a"), &short).unwrap();
        let kept = [0, 0, 700].map(|inline| Asked::Kept { inline });
        assert_eq!(asked(), kept);
        // Whoever stored a value knows its length.
        let chunk = Asked::Long(ROOM as u64);
        assert_eq!(got(&mut client, "a"), (short.clone(), vec![Asked::Short]));
        assert_eq!(got(&mut client, "b"), (long.clone(), vec![chunk]));
        // Whoever did not is told, once.
        let exact = Asked::Long(LONG as u64);
        assert_eq!(got(&mut other, "b"), (long.clone(), vec![Asked::Short, exact]));
        assert_eq!(got(&mut other, "b"), (long.clone(), vec![chunk]));
        assert_eq!(got(&mut other, "a"), (short.clone(), vec![chunk]));
        assert_eq!(got(&mut other, "a"), (short.clone(), vec![Asked::Short]));
        // A value grows, beyond a chunk of its old length, too, and shrinks.
        other.put(key("a"), &long).unwrap();
        assert_eq!(asked(), [Asked::Kept { inline: 0 }]);
        assert_eq!(got(&mut client, "a"), (long, vec![Asked::Short, exact]));
        let longer = value(3 * LONG, 3);
        other.put(key("a"), &longer).unwrap();
        assert_eq!(asked(), [Asked::Kept { inline: 0 }]);
        let (came, how) = got(&mut client, "a");
        assert!(came == longer, "{versions:?}: {how:?}");
        // In version 2 the value comes in parts, or the core offers a longer chunk. In version 1 the length is asked for.
        let again = Asked::Long(longer.len() as u64);
        let expected = match versions {
            Versions::OnlyOne => how == [chunk, Asked::Short, again],
            _ => how == [chunk] || how == [chunk, again],
        };
        assert!(expected, "{versions:?}: {how:?}");
        other.put(key("a"), &[]).unwrap();
        let last = Asked::Long(longer.len() as u64);
        assert_eq!(got(&mut client, "a"), (vec![], vec![Asked::Kept { inline: 0 }, last]));
        assert_eq!(got(&mut client, "a"), (vec![], vec![Asked::Short]));
        // What one client knows, another one can be told.
        let lengths = other.into_lengths();
        assert_eq!(lengths.expected(key("b")), LONG);
        client = client.with_lengths(lengths);
        assert_eq!(got(&mut client, "b").1, [chunk]);
        drop(client);
        core.stop().unwrap();
        stop();
    }
}

#[test]
fn several_short_values_go_in_one_message_both_ways() {
    for versions in [Versions::Both, Versions::OnlyOne] {
        let (mut core, stop, told) = telling(versions);
        let mut client = Client::new(&mut core.started, None);
        client.put(key("first"), b"").unwrap();
        let values: Vec<_> = [300, 0, 1, 299].map(|length| value(length, length)).into();
        let names = ["a", "b", "c", "d"];
        let pairs: Vec<_> =
            names.iter().zip(&values).map(|(name, value)| (key(name), &value[..])).collect();
        client.put_many(&pairs, |stored| assert_eq!(stored, Ok(()))).unwrap();
        let keys = names.map(key);
        let fetch = |client: &mut Client<'_>, keys: &[Key<'_>]| {
            let mut got = Vec::new();
            client.get_many(keys, ROOM, |value| {
                got.push(value.unwrap().bytes().to_vec());
                std::ops::ControlFlow::Continue(())
            })?;
            Ok::<_, ClientError>(got)
        };
        assert!(fetch(&mut client, &keys).unwrap() == values);
        let kept = [0, 600].map(|inline| Asked::Kept { inline });
        let short = Asked::Many { has_chunk: false };
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [kept[0], kept[1], short]);
        // Those that are long have a chunk, and so have those before them.
        let long = value(LONG, 9);
        let pairs = [(key("a"), &values[0][..]), (key("b"), &long[..]), (key("c"), &values[2])];
        client.put_many(&pairs, |stored| assert_eq!(stored, Ok(()))).unwrap();
        let expected = [values[0].clone(), long, values[2].clone()];
        assert!(fetch(&mut client, &keys[..3]).unwrap() == expected);
        let kept = Asked::Kept { inline: 301 };
        let chunk = Asked::Many { has_chunk: true };
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [kept, chunk]);
        drop(client);
        core.stop().unwrap();
        stop();
    }
}

/// A server of the release before: it sends any value as a GET asks for it.
struct Earlier(KvService);

impl Service for Earlier {
    fn programs(&self) -> Vec<Program> {
        self.0.programs()
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure != Procedure::Get as u32 || reply.item_room().is_some() {
            return self.0.call(cx, call, reply);
        }
        let name = call.arguments.opaque(100).unwrap();
        let length = str::from_utf8(name).unwrap().parse().unwrap();
        let mut item = cx.pool().lease(length).unwrap();
        item.bytes_mut().copy_from_slice(&value(length, length));
        reply.results(|w| w.u32(0));
        reply.item(Data::Local(item));
        Outcome::Done
    }
}

#[test]
fn a_server_of_the_release_before_is_understood() {
    for versions in [Versions::Both, Versions::OnlyOne] {
        let (mut core, server) = connect(versions, || Earlier(kv()));
        // They come in a message, in several, or not: the error of the transport tells the length, or on version 1 does not.
        for length in [1, 700, INLINE_MAX, INLINE_MAX + 1, 6000, LONG, 200_000, 2_000_000] {
            let (name, octets) = (length.to_string(), value(length, length));
            let mut client = Client::new(&mut core.started, None);
            client.put(key(&name), &octets).unwrap();
            // Another client does not know the length.
            let mut client = Client::new(&mut core.started, None);
            for known in [false, true] {
                let got = client.get(key(&name), 2 * length).unwrap();
                assert!(got.bytes() == octets, "{versions:?} {length} {known}");
            }
            let expected = client.into_lengths().expected(key(&name));
            assert_eq!(expected, if length > INLINE_MAX { length } else { 0 });
        }
        let mut client = Client::new(&mut core.started, None);
        let got = client.get(key("2000000"), 1000);
        match versions {
            // The room that the caller names is too short, and the server does not tell the length.
            Versions::OnlyOne => {
                assert!(matches!(got, Err(ClientError::Room { needed: None })), "{got:?}");
            }
            _ => assert_eq!(got.unwrap().len(), 2_000_000),
        }
        core.stop().unwrap();
        server.stop().unwrap();
    }
}

/// A server that always wants another chunk. It tells how often it was asked.
struct Greedy(Sender<()>);

impl Service for Greedy {
    fn programs(&self) -> Vec<Program> {
        kv().programs()
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        self.0.send(()).unwrap();
        let name = call.arguments.opaque(100).unwrap();
        let item = |cx: &mut Cx<'_>, length| Data::Local(cx.pool().lease(length).unwrap());
        match (name, reply.item_room()) {
            (b"absurd", _) => reply.results(|w| w.u32(5).and_then(|()| w.u64(u64::MAX))),
            (b"large", _) => {
                reply.results(|w| w.u32(5).and_then(|()| w.u64(ITEM_MAX as u64 + 1)));
            }
            (b"most", _) => reply.results(|w| w.u32(5).and_then(|()| w.u64(ITEM_MAX as u64))),
            (b"none", None) => reply.results(|w| w.u32(5).and_then(|()| w.u64(0))),
            (b"none" | b"again", Some(_)) | (b"again", None) => {
                reply.results(|w| w.u32(5).and_then(|()| w.u64(100)));
            }
            (_, None) => reply.results(|w| w.u32(5).and_then(|()| w.u64(10_000))),
            // Always more than there is.
            (_, Some(room)) => {
                let length = usize::try_from(room).unwrap() + 100_000;
                reply.results(|w| w.u32(0));
                reply.item(item(cx, length));
            }
        }
        Outcome::Done
    }
}

#[test]
fn a_server_that_always_wants_another_chunk_is_asked_a_few_times() {
    for versions in [Versions::Both, Versions::OnlyOne] {
        let (tell, told) = channel();
        let (mut core, server) = connect(versions, || Greedy(tell));
        for (name, needed) in [("absurd", usize::MAX), ("large", ITEM_MAX + 1), ("most", ITEM_MAX)]
        {
            // There is no such value, or the core has no memory for it.
            let got = Client::new(&mut core.started, None).get(key(name), ROOM);
            let Err(ClientError::Room { needed: Some(told) }) = got else { panic!("{got:?}") };
            assert_eq!(told, needed, "{name}");
        }
        assert_eq!(told.try_iter().count(), 3);
        // What it was offered it cannot ask for. A client that knows of a long value asks with a chunk first.
        let mut client = Client::new(&mut core.started, None);
        for (name, times) in [("none", 2), ("again", 1)] {
            let got = client.get(key(name), ROOM);
            let Err(ClientError::Mismatch(why)) = got else { panic!("{got:?}") };
            assert_eq!(why, "the server asks for a chunk that it was offered");
            assert_eq!(told.try_iter().count(), times, "{name}");
        }
        let got = Client::new(&mut core.started, None).get(key("more"), ROOM);
        assert!(matches!(got, Ok(_) | Err(ClientError::Room { .. })), "{got:?}");
        let times = told.try_iter().count();
        assert!((2..=16).contains(&times), "{versions:?}: {times} Calls");
        core.stop().unwrap();
        server.stop().unwrap();
    }
}
