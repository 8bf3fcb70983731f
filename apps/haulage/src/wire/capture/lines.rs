//! The lines that a capture gives.

use std::fmt;
use std::net::SocketAddr;

use haulage_proto::describe::{self, Fields, Refusal, Value};

use super::super::error;
use crate::output::json;

/// The time of a packet, since 1970 began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Nanoseconds.
    pub nanoseconds: u64,
    /// The number of decimals that the capture has.
    pub decimals: Decimals,
}

/// The number of decimals of a time in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Decimals {
    /// Six.
    #[default]
    Micro,
    /// Nine.
    Nano,
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, rest) = (self.nanoseconds / 1_000_000_000, self.nanoseconds % 1_000_000_000);
        match self.decimals {
            Decimals::Micro => write!(f, "{seconds}.{:06}", rest / 1_000),
            Decimals::Nano => write!(f, "{seconds}.{rest:09}"),
        }
    }
}

/// The ends of what was sent.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
    /// The receiver's queue pair, over RoCE.
    pub queue_pair: Option<u32>,
}

/// Lines that were not printed yet.
#[derive(Debug, Default)]
pub struct Lines {
    text: String,
    at: Time,
    has_any: bool,
}

impl Lines {
    /// Sets the time of the lines that follow.
    pub fn at(&mut self, at: Time) {
        self.at = at;
    }

    /// Returns whether there has been no line.
    pub fn is_silent(&self) -> bool {
        !self.has_any
    }

    /// Returns the number of octets that [`Self::take`] returns.
    pub fn octets(&self) -> usize {
        self.text.len()
    }

    /// Returns the lines, which are those not taken before.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Adds a line for a header.
    pub fn fields(&mut self, way: Way, fields: &Fields<'_>) {
        self.line(way, |line| add(line, fields));
    }

    /// Adds a line for an RPC-over-RDMA message, with the RPC header in it.
    pub fn message(&mut self, way: Way, message: &Fields<'_>) {
        let payload = message.get("payload");
        let header = match payload {
            Some(Value::Octets(payload)) => describe::rpc(payload),
            _ => None,
        };
        // A later part of a continued message begins with anything.
        let header = header.filter(|header| header.get("xid") == message.get("xid"));
        self.line(way, |line| {
            add(line, message);
            if let Some(header) = header {
                line.json("rpc", &header.to_string());
            }
        });
    }

    /// Adds a line that says why octets are no message.
    pub fn refusal(&mut self, way: Way, refusal: &Refusal) {
        self.line(way, |line| error(line, &refusal.to_string(), refusal.report));
    }

    /// Adds a line that says what cannot be read.
    pub fn error(&mut self, way: Way, text: &str) {
        self.line(way, |line| error(line, text, None));
    }

    fn line(&mut self, way: Way, fill: impl FnOnce(&mut json::Object)) {
        self.has_any = true;
        self.text.push_str(&json::object(|line| {
            line.json("at", &self.at.to_string());
            line.text("from", &way.from.to_string()).text("to", &way.to.to_string());
            if let Some(number) = way.queue_pair {
                line.count("qp", number);
            }
            fill(line);
        }));
        self.text.push('\n');
    }
}

fn add(line: &mut json::Object, fields: &Fields<'_>) {
    for (name, value) in fields.iter() {
        line.json(name, &value.to_string());
    }
}
