//! `haulage wire`: decodes and encodes RPC-over-RDMA messages.
//!
//! `decode` turns one message a line, in hex, into one JSON object a line, or the packets of a capture; `encode` is the
//! inverse of the former. The library describes messages ([`proto::describe`]).
//!
//! - [`v2`], [`rtrext`], [`v1`]: encodes the header types from their fields.
//! - [`chunks`]: parses segments and chunk lists.
//! - [`lines`]: lines of bounded length; [`fields`]: JSON input whose errors name the field; [`unique`]: its parser.
//! - [`capture`]: reads captures.
//!
//! # Limits
//!
//! Lines are handled one by one as they arrive. A message is at most [`MESSAGE_MAX`] octets, a line of JSON at most
//! [`JSON_MAX`]; a longer line is refused without being stored.

use haulage::sys::crc::crc32c;
use haulage_proto as proto;
use haulage_proto::describe::{Fields, Refusal};
use haulage_proto::xdr::Writer;

use crate::failure::Failure;
use crate::output::{self, Output, json};

pub use lines::MESSAGE_MAX;

use fields::{Complaint, Object};
use lines::{Line, Lines};

pub mod capture;
pub mod chunks;
pub mod fields;
pub mod lines;
pub mod rtrext;
pub mod unique;
pub mod v1;
pub mod v2;

/// Maximum length of a line of JSON, in octets: no field takes more than ten for each octet of its message.
pub const JSON_MAX: usize = 10 * MESSAGE_MAX;

/// Runs `wire decode`. An invalid message gives an `error` line, and the command still succeeds.
pub fn decode(output: &Output) -> Result<(), Failure> {
    decode_by(proto::describe::message, output)
}

/// Runs `wire decode --iwarp`. Like [`decode`], but each line is an MPA frame or an FPDU.
pub fn decode_iwarp(output: &Output) -> Result<(), Failure> {
    decode_by(|octets| proto::describe::iwarp::octets(octets, crc32c), output)
}

/// Describes octets, or refuses them.
type Describe = fn(&[u8]) -> Result<Fields<'_>, Refusal>;

fn decode_by(describe: Describe, output: &Output) -> Result<(), Failure> {
    each_line(2 * MESSAGE_MAX, output, |_, line| match line {
        Line::Whole(digits) => match decode_hex(digits) {
            Ok(message) => line_of(describe(&message)),
            Err(refusal) => line_of(Err(refusal)),
        },
        Line::TooLong => line_of(Err(Refusal::silent("longer than any message", MESSAGE_MAX))),
    })
}

/// Returns the JSON line of a description or a refusal.
fn line_of(described: Result<Fields<'_>, Refusal>) -> String {
    described.map_or_else(
        |refusal| json::object(|line| error(line, &refusal.to_string(), refusal.report)),
        |fields| fields.to_string(),
    )
}

/// Adds the members of an error to a line: the text, and the name of the error that a receiver reports.
fn error(line: &mut json::Object, text: &str, report: Option<&str>) {
    line.text("error", text);
    match report {
        Some(report) => line.text("report", report),
        None => line.json("report", "null"),
    };
}

/// Decodes an even number of hex digits of either case.
fn decode_hex(digits: &[u8]) -> Result<Vec<u8>, Refusal> {
    hex::decode(digits).map_err(|_| {
        match digits.iter().position(|digit| !digit.is_ascii_hexdigit()) {
            Some(index) => Refusal::silent("not a hex digit", index / 2),
            None => Refusal::silent("half an octet of hex", digits.len() / 2),
        }
    })
}

/// Runs `wire encode`. A line that cannot be encoded gives an empty line, so that the others keep their line numbers,
/// and the command fails at the end.
pub fn encode(output: &Output) -> Result<(), Failure> {
    let mut first = None;
    let mut more = 0_u64;
    each_line(JSON_MAX, output, |number, line| {
        let encoded = match line {
            Line::Whole(text) => assemble(text).map(|message| hex::encode(&message)),
            Line::TooLong => Err(Complaint::too_long()),
        };
        encoded.unwrap_or_else(|complaint| {
            match first {
                None => first = Some(format!("line {number}: {complaint}")),
                Some(_) => more += 1,
            }
            String::new()
        })
    })?;
    match (first, more) {
        (None, _) => Ok(()),
        (Some(first), 0) => Err(Failure::failed(first)),
        (Some(first), more) => Err(Failure::failed(format!("{first} (and {more} more)"))),
    }
}

/// Encodes one message from its JSON description.
///
/// Only the types of fields are checked, so that the result may be a message which its receiver refuses.
pub fn assemble(line: &[u8]) -> Result<Vec<u8>, Complaint> {
    // An empty Write chunk, `[],`, takes the most octets for each character.
    let mut room = vec![0; line.len().saturating_mul(3).min(MESSAGE_MAX)];
    let mut w = Writer::new(&mut room);
    let mut message = Object::parse(line)?;
    if message.has("error") {
        return Err(Complaint::new("error: no message to encode"));
    }
    let (xid, version, credit) =
        (message.u32("xid")?, message.take("vers")?, message.u32("credit")?);
    match version.as_u64() {
        Some(1) => v1::assemble(xid, credit, message, &mut w)?,
        Some(2) => v2::assemble(xid, credit, message, &mut w)?,
        _ => return Err(version.is_not("a version known here")),
    }
    Ok(w.written().to_vec())
}

/// Prints the result of `answer` for each line of standard input that is not blank.
///
/// Results are printed before waiting for more input.
fn each_line(
    length_max: usize,
    output: &Output,
    mut answer: impl FnMut(u64, Line<'_>) -> String,
) -> Result<(), Failure> {
    let unreadable = |error| Failure::failed(format!("cannot read standard input: {error}"));
    let mut lines = Lines::new(output::input().map_err(unreadable)?, length_max);
    let mut answers = String::new();
    while let Some((number, line)) = lines.next_line().map_err(unreadable)? {
        answers.push_str(&answer(number, line));
        answers.push('\n');
        if lines.must_wait() || answers.len() >= ANSWERS_MAX {
            output.text(&answers)?;
            answers.clear();
        }
    }
    output.text(&answers)
}

/// Octets of results that are collected before they are written.
const ANSWERS_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests;
