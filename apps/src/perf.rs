//! `haulage perf`: what a Call costs, next to what the machine can do at best.
//!
//! - [`protocol`]: the RPC program; [`service`]: the server's half, and [`serve`], which runs it.
//! - [`load`]: the client's half, which keeps Calls in flight; [`calls`]: what they do; [`arrivals`]:
//!   when those of an open loop are due.
//! - [`figures`]: what an end has spent.
//! - [`plan`]: what was asked for, and what both ends need for it; [`run`]: doing it.
//! - `report`: what is printed; `plot`: what is drawn; `progress`: how far it has come.

pub mod arrivals;
pub mod calls;
pub(crate) mod client;
pub mod figures;
pub mod load;
pub mod plan;
mod plot;
pub(crate) mod progress;
pub mod protocol;
pub(crate) mod report;
pub mod run;
pub mod serve;
pub mod service;
