//! ONC RPC message headers (RFC 5531), and the record marks that delimit messages on TCP.

pub mod auth;
pub mod binding;
pub mod call;
mod gss;
pub mod record;
pub mod reply;
mod stat;

pub use auth::{AuthSys, Credential};
pub use binding::{Binding, Eligible, Procedure, Violation};
pub use call::{CallFault, CallHeader, LikeCalls, PlainCalls};
pub use reply::{AcceptStat, RejectStat, ReplyBody, ReplyHeader};

/// The version of ONC RPC (RFC 5531 section 9).
pub const RPC_VERSION: u32 = 2;

const CALL: u32 = 0;
const REPLY: u32 = 1;

#[cfg(test)]
mod tests;
