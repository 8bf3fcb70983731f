//! The terms of an exchange over a connection of either version.

use haulage_proto::exchange::Terms;
use haulage_proto::negotiate::Engine;
use haulage_proto::v1::private_data::Agreement;
use haulage_proto::v2;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::reverse::Level;

use super::line::Line;

/// Maximum lengths of a message in each direction, in octets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thresholds {
    pub(super) send: u32,
    pub(super) receive: u32,
}

impl Line {
    pub(super) fn thresholds(&self) -> Thresholds {
        match (self.engine.engine(), self.settings.role) {
            (Engine::Two(two), _) => {
                let v2::thresholds::Thresholds { send, receive } = two.thresholds();
                Thresholds { send, receive }
            }
            (Engine::One(_), role) => {
                let Agreement { client_to_server, server_to_client, .. } = self.agreed;
                match role {
                    Role::Client => {
                        Thresholds { send: client_to_server, receive: server_to_client }
                    }
                    Role::Server => {
                        Thresholds { send: server_to_client, receive: client_to_server }
                    }
                }
            }
        }
    }

    /// Returns the terms of an exchange with this end as the Requester.
    pub(super) fn terms(&self, reply_messages: u32) -> Terms {
        let Thresholds { send, receive } = self.thresholds();
        let level = self.level();
        let may_chunk = |max: u32| if level == Level::General { max } else { 0 };
        let terms = match self.engine.engine() {
            // Version 1 does not announce these limits, so an end uses its own settings.
            Engine::One(_) => Terms {
                segment_size_max: self.settings.properties.segment_size_max,
                read_chunks_max: self.settings.chunks_max,
                write_chunks_max: self.settings.chunks_max,
                ..Terms::version_one(send, receive)
            },
            Engine::Two(two) => {
                let continues = level >= Level::Continued;
                let messages = if continues { two.messages_max(Kind::Call) } else { 1 };
                let peer = two.peer_properties();
                Terms {
                    call_messages_max: messages,
                    reply_messages_max: if messages > 1 { reply_messages } else { 1 },
                    ..Terms::version_two(send, receive, peer)
                }
            }
        };
        Terms {
            reduce_min: self.settings.reduce_min,
            read_chunks_max: may_chunk(terms.read_chunks_max),
            write_chunks_max: may_chunk(terms.write_chunks_max),
            ..terms
        }
    }

    /// Returns the terms of an exchange with this end as the Responder.
    pub(super) fn reply_terms(&self) -> Terms {
        let Thresholds { send, receive } = self.thresholds();
        match (self.engine.engine(), self.settings.role) {
            (Engine::One(_), _) => Terms::version_one(receive, send),
            (Engine::Two(two), role) => {
                let level = match role {
                    Role::Server => Level::General,
                    Role::Client => Level::of(self.settings.properties.reverse),
                };
                let continues = level >= Level::Continued;
                let messages = if continues { two.messages_max(Kind::Reply) } else { 1 };
                let two = Terms::version_two(receive, send, two.peer_properties());
                Terms { reply_messages_max: messages, ..two }
            }
        }
    }
}
