//! The settings of one end, drawn once for each connection.

mod opening;

use std::time::Duration;

use haulage_proto::negotiate;
use haulage_proto::v1;
use haulage_proto::v1::connection::{CallLimits, Reverse};
use haulage_proto::v1::private_data::{Agreement, PrivateData};
use haulage_proto::v2::connection::{ChunkLimits, Config, Role};
use haulage_proto::v2::credit::WINDOW_MIN;
use haulage_proto::v2::host_auth::Policy;
use haulage_proto::v2::properties::{Properties, REVERSE_NONE, REVERSE_SIMPLE};
use haulage_proto::v2::reverse::Level;
use haulage_proto::xdr::Writer;

pub use opening::Opening;

use super::choices::Choices;

/// The settings of one end.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whether this end opened the connection.
    pub role: Role,
    /// The properties that it announces.
    pub properties: Properties,
    /// The chunks that it takes.
    pub chunks: ChunkLimits,
    /// Whether it takes fewer chunks than it announces, so that some Calls need another attempt.
    pub is_stingy: bool,
    /// Number of credits that it grants at first.
    pub window: usize,
    /// Whether the Receive of a Call may be kept until the Call is answered.
    pub keeps_receives: bool,
    /// Maximum number of Calls under way at once.
    pub calls_max: usize,
    /// Minimum length of an item to be reduced, in octets.
    pub reduce_min: u32,
    /// The seed of its XIDs.
    pub xid_seed: u64,
    /// How both ends arrive at their version.
    pub opening: Opening,
    /// Whether it supports version 1, and whether it supports version 2.
    pub versions: [bool; 2],
    /// Whether it sends private data with its version 1 inline thresholds.
    pub has_private_data: bool,
    /// Maximum number of chunks of one kind in a version 1 Call.
    pub chunks_max: u32,
    /// Whether its private data offers Remote Invalidation for version 1.
    pub invalidation: bool,
    /// Whether, as a version 1 server, it invalidates without having offered to, as Linux does
    /// (P8).
    pub is_tacit: bool,
}

impl Settings {
    /// Draws the settings of both ends of a connection.
    pub fn draw(choices: &mut Choices) -> [Self; 2] {
        // Both ends often use the same XIDs at the same time.
        let seed = choices.number();
        let opening = Opening::draw(choices);
        [Role::Client, Role::Server].map(|role| {
            let is_stingy = choices.one_in(8);
            let segments = choices.pick(&[16, 40, 300]);
            let most = |choices: &mut Choices| match is_stingy {
                true => u32::try_from(choices.below(3)).expect("it is small"),
                false => 16,
            };
            let properties = Properties {
                send_size_max: choices.pick(&MESSAGE_SIZES),
                receive_buffer_size: choices.pick(&MESSAGE_SIZES),
                segment_size_max: choices.pick(&[700, 4096, 1 << 20]),
                segment_count_max: segments,
                reverse: choices.pick(&[0, 1, 2, 3, 3]),
            };
            Self {
                role,
                properties,
                chunks: ChunkLimits {
                    read_chunks_max: most(choices),
                    write_chunks_max: most(choices),
                    segments_max: if is_stingy { 1 + most(choices) } else { segments },
                },
                is_stingy,
                window: choices.of(WINDOW_MIN as usize..=24),
                keeps_receives: choices.one_in(2),
                calls_max: choices.of(1..=12),
                reduce_min: choices.pick(&[1, 64, 1024]),
                opening,
                versions: opening.versions(role, choices.one_in(2)),
                has_private_data: !choices.one_in(4),
                chunks_max: choices.pick(&[1, 4]),
                invalidation: choices.one_in(2),
                is_tacit: choices.one_in(4),
                xid_seed: if choices.one_in(4) { choices.number() } else { seed },
            }
        })
    }

    /// Returns the configuration of the connection.
    pub fn config(&self) -> negotiate::Config {
        let two = Config {
            role: self.role,
            properties: self.properties,
            first_xid: 1 + (self.xid_seed & 0x7fff_ffff) as u32,
            chunks: self.chunks,
            continued_call_max: 1 << 22,
            continued_reply_max: 1 << 22,
            shares_credits: self.calls_max.is_multiple_of(2),
            continues_replies: true,
            setup_timeout: Duration::from_secs(3600),
        };
        let ChunkLimits { read_chunks_max, write_chunks_max, segments_max } = self.chunks;
        let calls = u32::try_from(self.calls_max).expect("few");
        let one = v1::connection::Config {
            role: self.role,
            credits_wanted: calls,
            credits_max: u32::try_from(self.window).expect("few"),
            calls: CallLimits { read_chunks_max, write_chunks_max, segments_max },
            reverse: match self.properties.reverse {
                REVERSE_NONE => Reverse::None,
                REVERSE_SIMPLE => Reverse::Inline,
                _ => Reverse::Chunks,
            },
            profile: None,
        };
        let [has_one, has_two] = self.versions;
        negotiate::Config {
            one: Some(one).filter(|_| has_one),
            two: Some(two).filter(|_| has_two),
            auth: Policy::Off,
        }
    }

    /// Returns the version 1 terms that this end and `peer` agree upon.
    pub fn agreement(&self, peer: &Self) -> Agreement {
        let [ours, theirs] = [self, peer].map(|end| PrivateData::find(&end.private_data()));
        let agreed = match self.role {
            Role::Client => Agreement::new(ours, theirs),
            Role::Server => Agreement::new(theirs, ours),
        };
        let is_allowed = theirs.is_some_and(|client| client.invalidation);
        let is_tacit = self.is_tacit && self.role == Role::Server && is_allowed;
        Agreement { invalidation: agreed.invalidation || is_tacit, ..agreed }
    }

    /// Returns whether the peer may invalidate handles of a version 1 Call.
    pub const fn lets_invalidate(&self) -> bool {
        self.has_private_data && self.invalidation
    }

    /// Returns the level at which a client serves version 1 Calls.
    pub const fn reverse_one(&self) -> Level {
        match self.properties.reverse {
            REVERSE_NONE => Level::None,
            REVERSE_SIMPLE => Level::Simple,
            _ => Level::General,
        }
    }

    /// Returns its private data, as a connection manager delivers it.
    fn private_data(&self) -> Vec<u8> {
        let Properties { send_size_max, receive_buffer_size, .. } = self.properties;
        let said = PrivateData {
            invalidation: self.invalidation,
            send_size: send_size_max,
            receive_size: receive_buffer_size,
        };
        let mut delivered = vec![0; 56];
        if self.has_private_data {
            said.encode(&mut Writer::new(&mut delivered)).expect("it is short");
        }
        delivered
    }
}

/// Maximum message lengths to draw from, in octets.
const MESSAGE_SIZES: [u32; 5] = [1024, 1500, 4096, 8192, 65536];
