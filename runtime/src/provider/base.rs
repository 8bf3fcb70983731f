//! What the providers in software have in common, whatever joins the two ends: the life of a connection, the table of
//! all connections, listeners, deadlines, the progress of peers, and what is to be reported.

mod deadlines;
mod life;
mod listeners;
mod progress;
mod reports;
mod slots;

pub use listeners::ListenerId;

pub(crate) use deadlines::Deadlines;
pub(crate) use life::{State, Step};
pub(crate) use listeners::Listeners;
pub(crate) use progress::{Mark, Marks, Progress, Watches};
pub(crate) use reports::Reports;
pub(crate) use slots::Slots;
