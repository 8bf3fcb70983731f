//! What a [`Service`](crate::core::Service) declares, serves and calls: its programs, Calls and Replies.

pub use haulage_proto::chunk::Kind;
pub use haulage_proto::negotiate::{Refusal as TransportError, Version};
pub use haulage_proto::rpc::auth::{AUTH_NONE, AUTH_SYS};
pub use haulage_proto::rpc::{Binding, Eligible, Procedure};
pub use haulage_proto::v2::connection::Role;

mod call;
mod error;
mod program;
mod reply;
mod unsupported;

pub use crate::items::Items;
pub use crate::outgoing::Data;
pub use call::{
    Argument, ArgumentItem, ArgumentLeases, Arguments, Call, CallToken, ConnectionId, Finished,
    Foreseen, InlineRoom, Peer, Place, Refusal, Request, ResultSource,
};
pub(crate) use call::{Ended, Placement, ReducedArgument, allows_to_reduce};
pub use error::CallError;
pub use program::Program;
pub(crate) use program::Serving;
pub(crate) use reply::LeftOut;
pub use reply::{Outcome, Reply};
pub use unsupported::{Declared, Unsupported};
