//! Connections that this end makes, and those among them that begin anew with version 1 (P6).
//!
//! # Normal operation
//! A connection begins with version 2 unless its server is known to speak version 1 alone. [`Attempt`] watches a server
//! that has not spoken. If the server stays silent or the connection is lost, the queue pair is closed. Once the provider
//! holds no memory of it, the connection begins anew, under its name and with the Calls that wait: nothing but properties
//! was sent, so no Call has left and no memory is exposed.

use std::net::SocketAddr;

use haulage_proto::negotiate::Remembered;
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Role;
use haulage_proto::verbs::QpNum;

use super::common::Common;
use super::connection::Attempt;
use super::inner::Inner;
use super::transmit;
use crate::key::ConnectionKey;
use crate::limits::our_private_data;
use crate::provider::{ConnectError, ConnectionParams, Provider, Quiesced};
use crate::service::CallError;

/// Starts to connect a queue pair.
///
/// # Errors
/// The provider cannot connect.
pub(crate) fn dial(
    provider: &mut impl Provider,
    common: &Common,
    now: Instant,
    to: SocketAddr,
) -> Result<QpNum, CallError> {
    let caps = provider.caps();
    let (_, private_data) = our_private_data(Role::Client, &common.abilities.promises);
    let (ord, ird) = (caps.ord_max, caps.ird_max);
    let params = ConnectionParams { private_data: &private_data, ord, ird };
    provider.connect(now, to, &params).map_err(CallError::Connect)
}

/// Takes in that the provider holds nothing any more of a connection, which begins anew.
pub(crate) fn begin_anew(
    provider: &mut impl Provider,
    inner: &mut Inner,
    now: Instant,
    (key, proof): (ConnectionKey, &Quiesced),
) {
    inner.bring_home(key, proof);
    if let Err(why) = redial(provider, &mut inner.common, now, key) {
        inner.end(key, why, Some(proof));
    }
}

fn redial(
    provider: &mut impl Provider,
    common: &mut Common,
    now: Instant,
    key: ConnectionKey,
) -> Result<(), CallError> {
    let Some(connection) = common.connections.get(key) else { return Ok(()) };
    let (peer, remembered) = (connection.peer(), connection.engine.remembered());
    if remembered == Remembered::OnlyVersionOne {
        common.old_servers.remember(now, peer);
    }
    common.trace.renewed(connection.subject(&key));
    common.connections.leave_queue_pair(key);
    let qp = dial(provider, common, now, peer)?;
    if common.renew(key, qp, remembered).is_none() {
        provider.disconnect(now, qp);
        return Err(CallError::Connect(ConnectError::NoQueuePair));
    }
    transmit::provide(provider, common, key);
    Ok(())
}

impl Inner {
    /// Gives up on a server that has not spoken in time: after the first attempt the connection begins anew, after the
    /// second it ends.
    pub(crate) fn expire_attempt(&mut self, now: Instant, key: ConnectionKey) {
        let Self { requester, common, .. } = self;
        let Some(connection) = common.connections.get_mut(key) else { return };
        match connection.attempt {
            Attempt::Unwatched | Attempt::Refused => {}
            Attempt::First { .. } if !connection.is_unanswered() => connection.attempt.settle(),
            Attempt::First { silent_at, .. } if now < silent_at => common.wake_by(silent_at),
            Attempt::First { by, .. } => {
                // [V2-4.3.3-2] this connection goes on in no other version.
                //~ V2-4.3.3-2: `common.connections.give_up(key);` -> `
                //~   use haulage_proto::negotiate::{Connection, Input};
                //~   let config = common.limits.engine((Role::Client, crate::limits::CallsGo::Forward), 1, Default::default());
                //~   if let Ok(mut engine) = Connection::new(config, Remembered::OnlyVersionOne) {
                //~     engine.reserve(connection.engine.reserved() - engine.reserved());
                //~     engine.handle(now, Input::Established);
                //~     connection.engine = engine;
                //~     connection.attempt.settle();
                //~   }
                //~   common.connections.touch(key);`
                common.connections.give_up(key);
                common.wake_by(by);
            }
            Attempt::Second { .. } if connection.life.has_replied() => connection.attempt.settle(),
            Attempt::Second { by } if now < by => common.wake_by(by),
            Attempt::Second { .. } if connection.life.is_connecting() => {
                common.connections.close(key, CallError::Connect(ConnectError::TimedOut));
            }
            Attempt::Second { .. } => {
                connection.attempt.settle();
                // A server with nothing to answer may be silent.
                if requester.calls.each().any(|told| told.connection == key) {
                    common.connections.close(key, CallError::Disconnected(SILENT.into()));
                }
            }
        }
    }
}

/// Why a connection ends whose server was silent twice.
const SILENT: &str = "the server answered neither version 2 nor version 1 of RPC-over-RDMA in time";
