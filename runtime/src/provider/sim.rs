//! A deterministic fabric in virtual time, for tests.
