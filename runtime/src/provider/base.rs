//! The common parts of the providers in software, whatever joins the two ends: the life of a connection, the table of
//! all connections, listeners, deadlines, the progress of peers, payloads that wait to be sent, and reports.

mod deadlines;
mod life;
mod listeners;
mod payload;
mod progress;
mod reports;
mod setup;
mod slots;

pub use listeners::ListenerId;

pub(crate) use deadlines::Deadlines;
pub(crate) use life::{ConnectionState, Step};
pub(crate) use listeners::{Listeners, Peers};
pub(crate) use payload::Payload;
pub(crate) use progress::{Clock, Progress, Waiting, Watches};
pub(crate) use reports::Reports;
pub(crate) use setup::{SetupState, SetupStep};
pub(crate) use slots::Slots;
