//! Several data items in one Call, of every type but an opaque of any length, both ways.

use haulage::core::{Cx, Service};
use haulage::service::{
    Argument, Arguments, Call, Data, Kind as Type, Outcome, Place, Program, Reply,
};
use haulage_mr_pool::Leases;
use haulage_proto::rpc::AcceptStat;
use haulage_proto::xdr::Truncated;
use haulage_tests::ends::server_of;

use super::*;

/// The procedure that takes an array, optional data, an arm of a union and an opaque of a fixed length, and returns them.
const SHAPES: u32 = 1;
/// Octets of the opaque.
const FIXED: usize = 1200;
/// Octets of the arm.
const ARM: usize = 2000;

fn binding() -> Binding {
    let shapes = Procedure::new("SHAPES").results_max(12).idempotent();
    let shapes = [Type::Array, Type::Optional, Type::Arm, Type::Fixed].into_iter().fold(
        shapes,
        |it, kind| {
            let item = Eligible { kind, length_max: ITEM_MAX, count_max: 1 };
            it.argument(item).result(item)
        },
    );
    Binding { program: PROGRAM, version: 1, procedures: vec![Procedure::new("NULL"), shapes] }
}

/// A server that returns what it takes.
#[derive(Debug)]
struct Shapes;

impl Shapes {
    /// Takes an item of `length` octets.
    fn take(
        cx: &Cx<'_>,
        arguments: &mut Arguments<'_>,
        length: usize,
    ) -> Result<Leases, Truncated> {
        match arguments.item_data()? {
            Some(Argument::Placed(leases)) if leases.len() == length => Ok(leases),
            Some(_) => Err(Truncated { at: 0 }),
            None => {
                let mut lease = cx.pool().lease(length).unwrap();
                lease.bytes_mut().copy_from_slice(arguments.fixed(length)?);
                Ok(lease.into())
            }
        }
    }

    fn turn_round(
        cx: &Cx<'_>,
        arguments: &mut Arguments<'_>,
        reply: &mut Reply,
    ) -> Result<(), Truncated> {
        let count = arguments.u32()?;
        let array = Self::take(cx, arguments, 4 * count as usize)?;
        let present = arguments.u32()?;
        // As much as the array has: the test knows.
        let optional = (present == 1).then(|| Self::take(cx, arguments, 4 * count as usize));
        let optional = optional.transpose()?;
        let chosen = arguments.u32()?;
        let arm = Self::take(cx, arguments, ARM)?;
        let fixed = Self::take(cx, arguments, FIXED)?;
        assert!(arguments.is_empty());
        let data = |leases| Data::placed(leases).unwrap();
        reply.results(|w| w.u32(count));
        reply.item_data(data(array));
        reply.results(|w| w.u32(present));
        match optional {
            Some(optional) => reply.item_data(data(optional)),
            None => reply.absent(),
        }
        reply.results(|w| w.u32(chosen));
        reply.item_data(data(arm));
        reply.item_data(data(fixed));
        Ok(())
    }
}

impl Service for Shapes {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        match call.procedure {
            SHAPES if Self::turn_round(cx, &mut call.arguments, reply).is_err() => {
                Outcome::Failed(AcceptStat::GarbageArgs)
            }
            _ => Outcome::Done,
        }
    }
}

/// Returns the octets of the four items; those of optional data are none if it is absent.
fn items(array: usize, is_present: bool) -> [Vec<u8>; 4] {
    let optional = if is_present { array } else { 0 };
    [array, optional, ARM, FIXED].map(|length| pattern(length).into_iter().rev().collect())
}

/// Returns the words that stay in the stream: the count of an array of words, the discriminators of optional data and of a
/// union.
fn words([array, optional, ..]: &[Vec<u8>; 4]) -> Vec<u8> {
    let count = u32::try_from(array.len() / 4).unwrap();
    header::octets(&[count, u32::from(!optional.is_empty()), 7])
}

/// Returns where each item belongs, if the arguments begin at offset 40: behind its word, if it has one.
fn positions(items: &[Vec<u8>; 4]) -> [u32; 4] {
    let mut at = 40;
    let mut each = items.iter().zip([4, 4, 4, 0]).map(|(item, word)| {
        at += word;
        let position = at;
        at += u32::try_from(item.len()).unwrap();
        position
    });
    [(); 4].map(|()| each.next().unwrap())
}

// [V2-4.5.3.2-1] [V2-4.5.3.2-2] [V2-4.5.3.3-1] [V2-4.5.3.3-2] [V2-4.5.3.4-1] [V2-4.5.3.4-2]
#[test]
fn a_client_leaves_the_words_of_several_items_and_takes_each_result_in_its_chunk() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let mut client = client_within(LIMITS_DEFAULT, || NoService, binding(), at);
    let mut peer = Peer::accept(&listener, Crc::NotAsked, WINDOW);
    for (array, is_present) in [(3000, true), (4004, false), (9000, true)] {
        let given = items(array, is_present);
        let mut asked = Request::new(SHAPES);
        let places = [(Type::Array, 0), (Type::Optional, 4), (Type::Arm, 8), (Type::Fixed, 12)];
        for ((kind, at), item) in places.into_iter().zip(&given) {
            let mut lease = client.started.lease(item.len()).unwrap();
            lease.bytes_mut().copy_from_slice(item);
            asked = asked.argument_at(Place::At(kind, at), lease);
            asked = asked.room(client.started.lease(10_000).unwrap());
        }
        client.started.begin(asked, |w| w.put(words(&given).as_slice())).unwrap();
        let called = peer.receive();
        assert!(called.called(PROGRAM) == (SHAPES, &words(&given)[..]), "the words are left");
        let expected = positions(&given).into_iter().zip(&given).filter(|(_, it)| !it.is_empty());
        let mut read: Vec<(u32, Vec<u8>)> = Vec::new();
        for (position, segment) in &called.chunks.reads {
            let octets = peer.link.read(*segment);
            match read.last_mut().filter(|(last, _)| last == position) {
                Some((_, item)) => item.extend(octets),
                None => read.push((*position, octets)),
            }
        }
        assert!(read == expected.map(|(at, item)| (at, item.clone())).collect::<Vec<_>>());
        // The results differ from the arguments: they have optional data if the arguments have none.
        let taken = items(array + 400, !is_present);
        assert_eq!(called.chunks.writes.len(), 4);
        let writes = called.chunks.writes.iter().zip(&taken).map(|(room, item)| {
            let mut rest = &item[..];
            let written = fill(room, item.len());
            for segment in &written {
                let part;
                (part, rest) = rest.split_at(segment.length as usize);
                peer.link.write(part, *segment);
            }
            written
        });
        let invalidate = called.chunks.invalidate;
        let chunks = Chunks { invalidate, writes: writes.collect(), ..Chunks::default() };
        peer.send(Kind::Reply, &reply(called.xid, &words(&taken)), &[], &chunks);
        let (_, ended) = client.started.ended().unwrap();
        let ended = ended.unwrap();
        let mut results = ended.results();
        for (index, item) in taken.iter().enumerate() {
            if index < 3 {
                results.u32().unwrap();
            }
            let length = (!item.is_empty()).then_some(item.len() as u64);
            assert_eq!(results.eligible().unwrap(), length, "{index}");
        }
        assert!(results.is_empty());
        assert!(ended.rooms.iter().map(|room| room.bytes()).eq(&taken), "other results");
        assert!(ended.arguments.iter().map(|lease| lease.bytes()).eq(&given), "all come home");
    }
    client.stop().unwrap();
}

#[test]
fn a_server_reads_and_writes_several_items_in_segments_of_any_length() {
    let server = server_of(|_| Shapes);
    let mut peer = Peer::connect(server.started, Crc::Asked, WINDOW);
    for (xid, (array, is_present, parts)) in
        (1..).zip([(3000, true, 1), (4004, false, 3), (9000, true, 4), (400, true, 2)])
    {
        let given = items(array, is_present);
        let mut chunks = Chunks::default();
        for (position, item) in positions(&given).into_iter().zip(&given) {
            let part = item.len().div_ceil(parts).max(1);
            for octets in item.chunks(part) {
                chunks.reads.push((position, peer.link.expose(octets, Access::Read)));
            }
            let room = vec![0; item.len().div_ceil(parts)];
            let room = (0..parts).map(|_| peer.link.expose(&room, Access::Write));
            chunks.writes.push(room.collect());
        }
        chunks.invalidate = chunks.writes[0][0].handle;
        let arguments = call(xid, PROGRAM, SHAPES, &words(&given));
        peer.send(Kind::Call, &arguments, &[], &chunks);
        let answer = peer.receive();
        assert_eq!((answer.xid, answer.results()), (xid, &words(&given)[..]));
        assert_eq!(answer.chunks.invalidate, chunks.invalidate);
        let handles = |chunk: &Vec<Segment>| chunk.iter().map(|of| of.handle).collect::<Vec<_>>();
        let offered: Vec<_> = chunks.writes.iter().map(handles).collect();
        assert!(answer.chunks.writes.iter().map(handles).eq(offered), "all are returned");
        for (written, item) in answer.chunks.writes.iter().zip(&given) {
            let octets = written.iter().flat_map(|segment| {
                let mut octets = peer.link.retire(segment.handle);
                octets.truncate(segment.length as usize);
                octets
            });
            assert!(octets.collect::<Vec<_>>() == *item, "another result");
        }
        chunks.reads.iter().for_each(|(_, segment)| drop(peer.link.retire(segment.handle)));
    }
    server.stop().unwrap();
}

// [V2-4.5.3.2-1]
#[test]
fn arguments_with_an_item_that_begins_within_another_are_garbage_and_the_server_goes_on() {
    let server = server_of(|_| Shapes);
    let mut peer = Peer::connect(server.started, Crc::Asked, WINDOW);
    let given = items(3000, true);
    let at = positions(&given);
    // The second item is where it belongs at last.
    for (xid, second) in (1..).zip([at[0] + 4, at[0] + 2996, at[0], at[1]]) {
        let mut chunks = Chunks::default();
        for (position, item) in [at[0], second, at[2], at[3]].into_iter().zip(&given) {
            chunks.reads.push((position, peer.link.expose(item, Access::Read)));
        }
        for item in &given {
            chunks.writes.push(vec![peer.link.expose(&vec![0; item.len()], Access::Write)]);
        }
        peer.send(Kind::Call, &call(xid, PROGRAM, SHAPES, &words(&given)), &[], &chunks);
        let answer = peer.receive();
        let is_served = second == at[1];
        let expected = if is_served { reply(xid, &words(&given)) } else { garbage(xid) };
        assert_eq!((answer.xid, &answer.stream), (xid, &expected), "at {second}");
        let written: u32 =
            answer.chunks.writes.iter().flatten().map(|segment| segment.length).sum();
        assert_eq!(written > 0, is_served, "at {second}");
    }
    server.stop().unwrap();
}

/// Returns the Reply to a Call whose arguments make no sense.
fn garbage(xid: u32) -> Vec<u8> {
    header::octets(&[xid, 1, 0, 0, 0, 4])
}
