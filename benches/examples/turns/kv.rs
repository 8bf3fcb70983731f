//! Calls of the key-value service.

use haulage::sys::clock;
use haulage_benches::{Asked, Kind, Speech, World, loopback, shm_part};
use haulage_kv::index::Seed;
use haulage_kv::inline::INLINE_MAX_SHM;
use haulage_kv::protocol::many::{self, KEYS_MAX};
use haulage_kv::protocol::{Key, Procedure};
use haulage_kv::service::KvService;
use haulage_proto::xdr::Writer;

/// A client and a server of keys and values over shared memory.
type Kv = World<haulage::provider::shm::Shm, KvService>;

/// Fetches values of `length` octets.
pub(super) fn gets(length: usize, depth: u64, count: u64) {
    let mut world = filled(length);
    let room = if length <= INLINE_MAX_SHM { 0 } else { length };
    ask(&mut world, Procedure::Get, each_key(|key, w| w.opaque(key.bytes())), (0, room));
    world.batch(Kind::Asked, depth, count);
}

/// Stores values of `length` octets in the place of others.
pub(super) fn puts(length: usize, depth: u64, count: u64) {
    filled(length).batch(Kind::Asked, depth, count);
}

/// Fetches four values of 32 octets at a time.
pub(super) fn gets_of_several(depth: u64, count: u64) {
    let mut world = filled(32);
    let names = names();
    let keys: Vec<Key<'_>> = names.iter().map(|name| key(name)).collect();
    let calls = keys.chunks(KEYS_MAX).map(|keys| encoded(|w| many::encode_keys(keys, w)));
    ask(&mut world, Procedure::MGet, calls.collect(), (0, 0));
    world.batch(Kind::Asked, depth, count);
}

/// Builds a server that has a value of `length` octets under each key. The Call that stores one is still set.
fn filled(length: usize) -> Kv {
    let server = |_: &_, _: &_| KvService::new(1000, Seed::fixed(1, 2), 1 << 20, 16 << 20);
    let parts = [shm_part(), shm_part()];
    let mut world = World::serving(clock::now(), parts, loopback(), Speech::Ours, server);
    let (value, placed) =
        if length <= INLINE_MAX_SHM { (Some(vec![1; length]), 0) } else { (None, length) };
    let calls = each_key(|key, w| {
        w.opaque(key.bytes())?;
        value.as_ref().map_or(Ok(()), |value| w.opaque(value))
    });
    ask(&mut world, Procedure::Put, calls, (placed, 0));
    world.batch(Kind::Asked, 1, KEYS);
    world
}

/// Has the client call `procedure` with each of `arguments` in turn, and with `argument` and `room` octets by direct data
/// placement.
fn ask(
    world: &mut Kv,
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

/// Number of keys.
const KEYS: u64 = 64;
