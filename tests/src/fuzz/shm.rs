//! The provider on shared memory, attacked by another process.
//!
//! Greetings and segments are built from the octets that the provider documents; none of its own code is used.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::time::Duration;

use haulage::provider::shm::{Config, Shm};
use haulage::sys::shared::Shared;
use haulage_mr_pool::{PagePreference, Pool, PoolConfig};

use super::beside::Scene;
use super::octets::Octets;

pub(super) mod hello;
pub(super) mod ring;

/// A greeting, by its fields.
#[derive(Clone, Debug)]
struct Hello {
    kind: u32,
    ring_bytes: u32,
    entries: u32,
    flags: u32,
    region: u64,
    private_data: Vec<u8>,
}

impl Hello {
    /// Builds a valid greeting, of an end that passes a region of this length, or none.
    fn new(kind: u32, region: Option<u64>) -> Self {
        let (ring_bytes, entries) = (RING_BYTES, ENTRIES);
        let (flags, region) = (u32::from(region.is_some()), region.unwrap_or(0));
        Self { kind, ring_bytes, entries, flags, region, private_data: Vec::new() }
    }

    fn encode(&self) -> Vec<u8> {
        let words = [self.kind, 4, 4, self.ring_bytes, self.entries, self.flags];
        let length = u32::try_from(self.private_data.len()).expect("short");
        let stream = Octets::default().put(MAGIC).words(&words).put(&self.region.to_be_bytes());
        stream.words(&[length]).put(&self.private_data).0
    }
}

/// Returns the length of a segment, in octets.
const fn segment_length(ring_bytes: u32, entries: u32) -> usize {
    (RING + ring_bytes as usize + entries as usize * LINE).next_multiple_of(4096)
}

fn memory(length: usize) -> (Shared, OwnedFd) {
    Shared::create(c"haulage-fuzz", length).expect("memory to share")
}

/// Returns the name of the socket for a port.
fn name(port: u16) -> Vec<u8> {
    format!("haulage-shm-{port}").into_bytes()
}

thread_local! {
    /// Pools whose memory is all home. Building one takes longer than the rest of a run.
    static SPARE: RefCell<Vec<Pool>> = const { RefCell::new(Vec::new()) };
}

fn provider() -> (Shm, Pool) {
    let pool = SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
        let pool = PoolConfig { bytes: 2 << 20, pages: PagePreference::Shared, node: None };
        Pool::new(&pool).expect("memory for a pool")
    });
    let config = Config {
        connections_max: 4,
        send_queue_max: 8,
        receive_queue_max: 2048,
        registrations_max: ENTRIES,
        ring_bytes: RING_BYTES,
        region_bytes_max: REGION_MAX,
        handshake_timeout: Duration::from_secs(5),
        close_timeout: Duration::from_millis(50),
        seed: Some(1),
        ..Config::default()
    };
    (Shm::new(&config, &pool).expect("a provider"), pool)
}

fn scene() -> Scene<Shm> {
    Scene::new(provider(), provider())
}

/// Ends both providers, and keeps their pools for the next run.
fn end(scene: Scene<Shm>) {
    SPARE.with_borrow_mut(|spare| spare.extend(scene.end()));
}

const MAGIC: &[u8] = b"haulshm4";
const RING_BYTES: u32 = 4096;
const ENTRIES: u32 = 16;
const LINE: usize = 64;
/// Offset of the ring in a segment.
const RING: usize = 6 * LINE;
const REGION_MAX: u64 = 2 << 20;
