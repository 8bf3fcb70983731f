//! `haulage perf`: rate, latency and cost of Calls, next to the limits of the machine.
//!
//! - [`protocol`]: the RPC program; [`service`]: the server; [`serve`]: the command that runs it.
//! - [`load`]: the client, which keeps Calls in flight; [`calls`]: the Calls of each test; [`arrivals`]: the arrivals
//!   of an open loop.
//! - [`plan`]: the checked options, and the resources of both ends; [`run`]: the benchmark itself.
//! - [`tally`]: the results; `report`: how they are printed; `sweep`: the table of a sweep; `plot`: the SVG; `progress`: the progress line.

pub mod arrivals;
pub mod calls;
pub(crate) mod client;
pub mod load;
pub mod plan;
mod plot;
pub(crate) mod progress;
pub mod protocol;
pub(crate) mod report;
pub mod run;
pub mod serve;
pub mod service;
mod sweep;
pub mod tally;
