//! The configuration of a world, drawn before anything happens in it.

use std::time::Duration;

use haulage::limits::{LIMITS_DEFAULT, Limits, PLACING_SIZE, Profile, Versions};
use haulage::provider::Promises;
use haulage::provider::sim::FabricConfig;
use haulage_proto::negotiate::Version;

use crate::world::choices::Choices;

/// The service of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serves {
    /// The exercise, whose every octet is known.
    Exercise,
    /// Keys and values.
    Kv,
    /// Files.
    Nfs,
}

/// Draws the configuration of a network.
pub fn fabric(choices: &mut Choices) -> FabricConfig {
    let promises = Promises {
        remote_invalidation: !choices.one_in(4),
        handles_end: !choices.one_in(6),
        sends_wait: !choices.one_in(3),
        counts_placed: !choices.one_in(6),
        ..Promises::ALL
    };
    let latency_min_ns = choices.pick(&[1, 1_000]);
    let defaults = FabricConfig::default();
    FabricConfig {
        seed: choices.number(),
        latency_min_ns,
        latency_max_ns: latency_min_ns + choices.pick(&[1, 1_000, 20_000]),
        eager_percent: choices.pick(&[0, 25, 100]),
        copied_percent: choices.pick(&[0, 50, 100]),
        receives_each: choices.one_in(4).then(|| choices.of(8..=32)),
        receive_queue_max: 128,
        registrations_max: choices.pick(&[64, 256]),
        send_queue_max: choices.pick(&[24, 256]),
        ord_max: choices.pick(&[1, 2, 16]),
        ird_max: choices.pick(&[1, 2, 16]),
        promises,
        ..defaults
    }
}

/// Draws the limits of a core.
pub fn limits(choices: &mut Choices, versions: Versions) -> Limits {
    let receives_max = choices.pick(&[64, 128]);
    let credits_max = choices.pick(&[3, 8, 32]);
    let calls_out_max = choices.pick(&[4, 16, 32]);
    let send_buffers_max = choices.pick(&[8, 64]);
    let receive_size = choices.pick(&[LIMITS_DEFAULT.receive_size, 12 << 10, PLACING_SIZE]);
    let all = [(1, false), (2, false), (4, false), (1, true), (2, true), (4, true)];
    let (transmissions_max, responses) = choices.pick(&all);
    Limits {
        versions,
        connections_max: 16,
        connections_each_max: 16,
        receives_max,
        credits_max,
        calls_out_max,
        send_buffers_max,
        receive_size,
        transmissions_max,
        responses,
        send_size: choices.pick(&[LIMITS_DEFAULT.send_size, 12 << 10, PLACING_SIZE]),
        remote_clients_max: 1,
        // A Call that waits for memory is told that there is none before it times out.
        memory_timeout: LIMITS_DEFAULT.call_timeout / 4,
        ..LIMITS_DEFAULT
    }
}

/// Draws the text of version 1 that a node follows.
pub fn profile(choices: &mut Choices) -> Profile {
    if choices.one_in(2) { Profile::Rfc5666 } else { Profile::Rfc8166 }
}

/// Draws a server's idle timeout, and its maximum number of connections.
pub fn patience(choices: &mut Choices, limits: Limits) -> Limits {
    let idle_timeout = choices.pick(&[None, None, None, Some(IDLE_SHORT), Some(IDLE_LONG)]);
    // A server with room for few connections closes idle ones soon: others wait for their places.
    let is_crowded = idle_timeout == Some(IDLE_SHORT) && choices.one_in(2);
    let connections_max = if is_crowded { choices.of(1..=3) } else { 16 };
    let connections_max = u32::try_from(connections_max).expect("few connections");
    Limits { idle_timeout, connections_max, connections_each_max: connections_max, ..limits }
}

const IDLE_SHORT: Duration = Duration::from_millis(5);
const IDLE_LONG: Duration = Duration::from_secs(2);

/// Returns the version that two ends agree on; `None` if they have none in common.
pub fn common(client: Versions, server: Versions) -> Option<Version> {
    match (client, server) {
        (Versions::OnlyOne, Versions::OnlyTwo) | (Versions::OnlyTwo, Versions::OnlyOne) => None,
        (Versions::OnlyOne, _) | (_, Versions::OnlyOne) => Some(Version::One),
        _ => Some(Version::Two),
    }
}
