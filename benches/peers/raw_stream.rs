//! Measures a raw TCP stream over the loopback: messages of one size, fetched from the memory of one thread by another,
//! with a number of requests in flight: what the kernel does for a server that answers each request by itself. In
//! messages of 1 MiB it is near to the most octets that one thread can send.
//!
//! `raw_stream --cpus SERVER,CLIENT [--size BYTES] [--depth N] [--file BYTES] [--seconds S]`: the messages are those of a
//! file in memory, in turn. Prints one line: messages a second, and two dashes where other programs print shares of a CPU.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use haulage_apps::cli::bytes;
use haulage_apps::cli::values::LogFormat;
use haulage_apps::failure::Failure;
use haulage_apps::limits::{self, Pair};
use haulage_apps::output::Output;

fn main() -> ExitCode {
    let said = rate().and_then(|rate| OUTPUT.line(&format!("{rate:.1} - -")));
    match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            OUTPUT.complain(&failure);
            failure.status()
        }
    }
}

/// Measures as the command line says. Returns messages a second.
fn rate() -> Result<f64, Failure> {
    let usage = || Failure::usage(USAGE);
    let (mut pair, mut size, mut depth, mut file) = (None, 1 << 20, 8, 64 << 20);
    let mut time = Duration::from_secs(1);
    let octets =
        |text: &str| bytes::parse(text).ok().and_then(|octets| usize::try_from(octets).ok());
    let mut arguments = std::env::args().skip(1);
    while let Some(option) = arguments.next() {
        let value = arguments.next().ok_or_else(usage)?;
        match option.as_str() {
            "--cpus" => {
                let (server, client) = value.split_once(',').ok_or_else(usage)?;
                let cpu = |text: &str| text.parse().map_err(|_| usage());
                pair = Some(Pair::pinned(cpu(client)?, cpu(server)?));
            }
            "--size" => size = octets(&value).filter(|size| *size > 0).ok_or_else(usage)?,
            "--depth" => depth = value.parse().map_err(|_| usage())?,
            "--file" => file = octets(&value).ok_or_else(usage)?,
            "--seconds" => {
                let seconds = value.parse().map_err(|_| usage())?;
                time = Duration::try_from_secs_f64(seconds).map_err(|_| usage())?;
            }
            _ => return Err(usage()),
        }
    }
    let pair = pair.ok_or_else(usage)?;
    let speed = limits::tcp_file_gib_per_s(pair, size, depth, file, time)
        .map_err(|error| Failure::failed(format!("no stream: {error}")))?;
    Ok(speed * GIB / size as f64)
}

const OUTPUT: Output = Output { json: false, verbose: false, log: LogFormat::Text };
const USAGE: &str =
    "raw_stream --cpus SERVER,CLIENT [--size BYTES] [--depth N] [--file BYTES] [--seconds S]";
const GIB: f64 = (1_u64 << 30) as f64;
