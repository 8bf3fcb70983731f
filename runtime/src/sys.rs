//! The code that needs `unsafe`: system calls, and the one place that mints completions.
//!
//! Each child offers a small safe API and proves each unsafe block. No module above this one has unsafe code.

pub mod affinity;
pub mod alloc;
pub mod barrier;
pub mod bus_error;
pub mod by_handle;
pub mod clock;
pub mod complete;
pub mod cpu;
pub mod crc;
pub mod elsewhere;
pub mod entries;
pub mod epoll;
pub mod file_user;
pub mod files;
#[cfg(feature = "verbs")]
pub mod ibverbs;
pub mod instructions;
pub mod interfaces;
pub mod lease;
pub mod local;
pub mod namespace;
pub mod private;
pub mod process;
pub mod shared;
pub mod signal;
pub mod sock_diag;
pub mod socket;
pub mod standard;
pub(crate) mod turns;
pub mod unix;
pub mod uring;
pub mod wake;
