//! The inputs and outputs of an engine: a connection of version 1, of version 2, or of either.
//!
//! Messages, control messages, events and close reasons differ between the engines and are parameters of these types.
//! Each engine's module defines aliases with its own parameters.

/// The role of this end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// This end opened the connection.
    Client,
    /// The peer opened the connection.
    Server,
}

/// The treatment of the peer's Calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCalls {
    /// This end serves Calls of the peer.
    Served,
    /// The peer may send no Calls.
    Refused,
}

/// The kinds of RPC messages that credits distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A Call.
    Call,
    /// A Reply.
    Reply,
}

/// An input to a connection whose messages are decoded to `M`.
#[derive(Debug)]
pub enum Input<'a, M> {
    /// The queue pair is up and can carry messages.
    Established,
    /// A Receive completed with this message.
    Received(&'a M),
    /// The caller has no more messages for the moment: a grant that waits to be sent with another
    /// message may be sent alone.
    Idle,
    /// The deadline that the connection returned last has passed.
    Deadline,
}

/// An action that a connection asks its caller for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<Control, Event, CloseReason> {
    /// Encode and post this control message, before any message that the connection permits later.
    Post(Control),
    /// Report this event to the application.
    Event(Event),
    /// Close the connection and destroy every registration made for it.
    Close(CloseReason),
}

/// A message without RPC payload, ready to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control<Body> {
    /// The XID of the message it is about; zero if it is about none.
    pub xid: u32,
    /// The version word: this end's version, except where an answer echoes the peer's.
    pub vers: u32,
    /// The credit word.
    pub credit: u32,
    /// The content of the message.
    pub body: Body,
}
