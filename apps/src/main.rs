//! The `haulage` command.
fn main() {}
