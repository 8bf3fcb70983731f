//! Everything that needs `unsafe`: system calls, and the one place that mints completions.
//!
//! Each child offers a small safe API and proves each unsafe block. Nothing above this module does.

pub mod clock;
pub mod wake;
