//! What a handshake over MPA has come to.

use std::net::SocketAddr;

use haulage_proto::iwarp::mpa::handshake::{Active, Asked, Offer, Passive};

use super::config::{Config, Crc};
use crate::provider::base::ListenerId;
use crate::provider::{ConnectError, ConnectionParams, DisconnectReason, Place};

/// The part of a handshake that is left to be done.
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
        place: Place,
    },
    /// The peer waits for our answer; the second value says why the connection is broken already, if it is.
    Asked(Asked, Option<DisconnectReason>),
}

impl Setup {
    pub(super) fn active(
        config: &Config,
        params: &ConnectionParams<'_>,
    ) -> Result<Self, ConnectError> {
        let offer = Offer { crc: config.crc != Crc::IfAsked, ..offer(config, params) };
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

/// Returns our offer as a server, which has CRCs if the configuration says always.
pub(super) fn offer(config: &Config, params: &ConnectionParams<'_>) -> Offer {
    Offer {
        crc: config.crc == Crc::Always,
        ord: params.ord.min(config.ord_max),
        ird: params.ird.min(config.ird_max),
        rtr: config.ready_to_receive,
    }
}
