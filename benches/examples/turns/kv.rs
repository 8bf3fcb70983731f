//! Calls of the key-value service.

use haulage::provider::Provider;
use haulage::sys::clock;
use haulage_benches::{Asked, Kind, Part, Speech, World, loopback, shm_part};
use haulage_kv::index::Seed;
use haulage_kv::inline::INLINE_MAX_SHM;
use haulage_kv::protocol::many::{self, KEYS_MAX};
use haulage_kv::protocol::watch;
use haulage_kv::protocol::{Key, Procedure};
use haulage_kv::service::KvService;
use haulage_proto::xdr::Writer;

/// A client and a server of keys and values.
type Kv<P> = World<P, KvService>;

/// Fetches values of `length` octets.
pub(super) fn gets(length: usize, depth: u64, count: u64) {
    let mut world = filled([shm_part(), shm_part()], length);
    let room = if length <= INLINE_MAX_SHM { 0 } else { length };
    ask(&mut world, Procedure::Get, each_key(|key, w| w.opaque(key.bytes())), (0, room));
    world.batch(Kind::Asked, depth, count);
}

/// Stores values of 32 octets in the place of others.
pub(super) fn puts(depth: u64, count: u64) {
    filled([shm_part(), shm_part()], 32).batch(Kind::Asked, depth, count);
}

/// Stores values of 32 octets in the place of others, beside clients that watch and never answer, or do nothing.
pub(super) fn puts_beside<P: Provider>(
    parts: [Part<P>; 2],
    others: Procedure,
    (depth, count): (u64, u64),
) {
    let mut world = filled(parts, 32);
    let arguments = match others {
        Procedure::Watch => encoded(|w| w.opaque(b"")),
        _ => Vec::new(),
    };
    ask(&mut world, others, vec![arguments], (0, 0));
    world.crowd(OTHERS, &watch::binding());
    store(&mut world, 32);
    // A warm-up: each watching client is called with a first change, and never answers that Call.
    world.batch(Kind::Asked, 1, KEYS);
    world.batch(Kind::Asked, depth, count);
}

/// Fetches four values of 32 octets at a time.
pub(super) fn gets_of_several(depth: u64, count: u64) {
    let mut world = filled([shm_part(), shm_part()], 32);
    let names = names();
    let keys: Vec<Key<'_>> = names.iter().map(|name| key(name)).collect();
    let calls = keys.chunks(KEYS_MAX).map(|keys| encoded(|w| many::encode_keys(keys, w)));
    ask(&mut world, Procedure::MGet, calls.collect(), (0, 0));
    world.batch(Kind::Asked, depth, count);
}

/// Builds a server that has a value of `length` octets under each key. The Call that stores one is still set.
fn filled<P: Provider>(parts: [Part<P>; 2], length: usize) -> Kv<P> {
    let server = |_: &_, _: &_| KvService::new(1000, Seed::fixed(1, 2), 1 << 20, 16 << 20);
    let mut world = World::serving(clock::now(), parts, loopback(), Speech::Ours, server);
    store(&mut world, length);
    world.batch(Kind::Asked, 1, KEYS);
    world
}

/// Has the client store a value of `length` octets under each key in turn.
fn store<P: Provider>(world: &mut Kv<P>, length: usize) {
    let (value, placed) =
        if length <= INLINE_MAX_SHM { (Some(vec![1; length]), 0) } else { (None, length) };
    let calls = each_key(|key, w| {
        w.opaque(key.bytes())?;
        value.as_ref().map_or(Ok(()), |value| w.opaque(value))
    });
    ask(world, Procedure::Put, calls, (placed, 0));
}

/// Has the client call `procedure` with each of `arguments` in turn, and with `argument` and `room` octets by direct data
/// placement.
fn ask<P: Provider>(
    world: &mut Kv<P>,
    procedure: Procedure,
    arguments: Vec<Vec<u8>>,
    (argument, room): (usize, usize),
) {
    world.asks(clock::now(), Asked { procedure: procedure as u32, arguments, argument, room });
}

/// Returns what `encode` writes for each key.
fn each_key(
    encode: impl Fn(Key<'_>, &mut Writer<'_>) -> Result<(), haulage_proto::xdr::Truncated>,
) -> Vec<Vec<u8>> {
    names().iter().map(|name| encoded(|w| encode(key(name), w))).collect()
}

fn names() -> Vec<String> {
    (0..KEYS).map(|number| format!("bench-{number:08}")).collect()
}

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).expect("a short key")
}

fn encoded(
    encode: impl FnOnce(&mut Writer<'_>) -> Result<(), haulage_proto::xdr::Truncated>,
) -> Vec<u8> {
    let mut room = [0; 2048];
    let mut writer = Writer::new(&mut room);
    encode(&mut writer).expect("room for the arguments");
    writer.written().to_vec()
}

/// Connections of other clients: with the one that stores as many as an address may have.
const OTHERS: usize = 127;

/// Number of keys.
const KEYS: u64 = 64;
