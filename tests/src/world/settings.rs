//! How one end behaves, drawn once for each connection.

use std::time::Duration;

use haulage_proto::v2::connection::{ChunkLimits, Config, Role};
use haulage_proto::v2::credit::WINDOW_MIN;
use haulage_proto::v2::properties::Properties;

use super::choices::Choices;

/// How one end behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who opened the connection.
    pub role: Role,
    /// What it says about itself.
    pub properties: Properties,
    /// What it takes.
    pub chunks: ChunkLimits,
    /// Whether it takes less than it lets its peer believe, which costs a Call another attempt.
    pub is_stingy: bool,
    /// Credits it gives at first.
    pub window: usize,
    /// Whether the Receive of a Call may be kept until the Call is answered.
    pub keeps_receives: bool,
    /// Calls it makes at a time.
    pub calls_max: usize,
    /// Octets from which on an item is reduced.
    pub reduce_min: u32,
    /// Starts its XIDs.
    pub xid_seed: u64,
}

impl Settings {
    /// Draws the settings of both ends of a connection.
    pub fn draw(choices: &mut Choices) -> [Self; 2] {
        // Both ends often use the same XIDs at the same time.
        let seed = choices.number();
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
                xid_seed: if choices.one_in(4) { choices.number() } else { seed },
            }
        })
    }

    /// Returns what the connection has to know.
    pub fn config(&self) -> Config {
        Config {
            role: self.role,
            properties: self.properties,
            first_xid: 1 + (self.xid_seed & 0x7fff_ffff) as u32,
            chunks: self.chunks,
            continued_max: 1 << 22,
            continues_replies: true,
            setup_timeout: Duration::from_secs(3600),
        }
    }
}

/// Octets of the largest message an end sends or takes.
const MESSAGE_SIZES: [u32; 5] = [1024, 1500, 4096, 8192, 65536];
