//! The contract of `haulage::provider::Provider`: one check per line, named after it.
//!
//! Every check takes a fresh [`Network`](crate::network::Network) and works on any provider; none
//! looks behind the trait.

mod adopting;
mod connections;
mod port;
mod receive_queue;
mod registration;
mod send_queue;
mod sleeping;

pub use adopting::*;
pub use connections::*;
pub use port::*;
pub use receive_queue::*;
pub use registration::*;
pub use send_queue::*;
pub use sleeping::*;
