//! What goes into an engine and what comes out of it: a connection of version 1, of version 2, or of either.
//!
//! What each of them hears, asks for, tells and gives up for is a parameter of these types; its own names for
//! them are in its own module.

/// Who opened the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We did.
    Client,
    /// The peer did.
    Server,
}

/// What an RPC message is, as far as credits care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A Call.
    Call,
    /// A Reply.
    Reply,
}

/// Everything that can happen to a connection whose messages are decoded to `M`.
#[derive(Debug)]
pub enum Input<'a, M> {
    /// The queue pair carries messages now.
    Established,
    /// A Receive completed; this is what it held.
    Received(&'a M),
    /// The caller has no more messages for the moment: what waits for company may leave alone.
    Idle,
    /// The deadline that the connection last named has passed.
    Deadline,
}

/// Everything a connection can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<Control, Event, CloseReason> {
    /// Encode and post this control message, in this order, before any message asked for later.
    Post(Control),
    /// Tell the application.
    Event(Event),
    /// Close the connection and destroy every registration of it.
    Close(CloseReason),
}

/// A message without RPC payload, ready to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control<Body> {
    /// Names the message it is about; zero if it is about none.
    pub xid: u32,
    /// The version word: ours, except where the peer's must be echoed.
    pub vers: u32,
    /// The credit word.
    pub credit: u32,
    /// What it says.
    pub body: Body,
}
