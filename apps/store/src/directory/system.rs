//! What touches the system: places and descriptors, what files are like, and with whose rights it is done.
//!
//! All of it runs on any thread, and knows neither the core nor the helpers.

pub(super) mod acl;
pub(super) mod descriptors;
pub(super) mod file_system;
pub(super) mod listing;
pub(super) mod look;
pub(super) mod mounted;
pub(super) mod place;
pub(super) mod rights;
mod status;
