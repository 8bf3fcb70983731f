//! What is known of a connection before it is open.

use std::net::SocketAddr;

use haulage_proto::iwarp::mpa::handshake::{Active, Asked, Offer, Passive};
use haulage_proto::v2::connection::Role;

use super::config::{Config, Crc};
use crate::provider::base::ListenerId;
use crate::provider::{ConnectError, ConnectionParams, DisconnectReason};

/// What is known before a connection is open.
#[derive(Debug)]
pub(super) enum Setup {
    Active {
        handshake: Active,
        request: Box<[u8]>,
    },
    Passive {
        handshake: Passive,
        listener: ListenerId,
        peer: SocketAddr,
    },
    /// The peer waits for our answer; the second value is what it did wrong meanwhile.
    Asked(Asked, Option<DisconnectReason>),
}

impl Setup {
    pub(super) fn active(
        config: &Config,
        params: &ConnectionParams<'_>,
    ) -> Result<Self, ConnectError> {
        let offer = offer(config, Role::Client, params);
        let started = if config.enhanced {
            Active::new(offer, params.private_data)
        } else {
            Active::with_revision_one(offer, params.private_data)
        };
        let (handshake, request) =
            started.map_err(|fault| ConnectError::BadHandshake(fault.rule()))?;
        Ok(Self::Active { handshake, request })
    }
}

/// Returns what we offer: a server has CRCs if it is asked for them or wants them itself.
pub(super) fn offer(config: &Config, role: Role, params: &ConnectionParams<'_>) -> Offer {
    let crc = match role {
        Role::Client => config.crc != Crc::IfAsked,
        Role::Server => config.crc == Crc::Always,
    };
    Offer {
        crc,
        ord: params.ord.min(config.ord_max),
        ird: params.ird.min(config.ird_max),
        rtr: config.ready_to_receive,
    }
}
