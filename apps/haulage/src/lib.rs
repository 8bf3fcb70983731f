//! The parts of the `haulage` command.
//!
//! - [`cli`]: the command line; [`output`]: everything that is printed; [`logging`]: the log on standard error;
//!   [`failure`]: errors and exit statuses.
//! - [`kv`]: the key-value service; [`store`]: the commands of the storage server and its client; [`demo`]: a key-value
//!   server and client in one command.
//! - [`perf`]: the benchmark; [`wire`]: decoding and encoding of messages.
//! - [`metrics`]: Prometheus metrics of servers.
//! - [`node`]: building a core: memory, provider, limits; [`serving`] and [`calling`]: shared parts of server and
//!   client commands.
//! - [`hosts`]: host authentication; [`registration`]: rpcbind, for servers and clients.
//! - [`placement`]: the CPUs of the cores.
//! - `manual`: shell completions and manual pages.
//! - [`doctor`]: checks of this machine; [`limits`]: measurements of its limits; [`samples`]: statistics of measured
//!   durations.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use haulage::sys::{process, signal};

use cli::perf::Perf;
use cli::{Command, Kv, Parsed, Store, Wire};
use failure::Failure;
use logging::Log;
use output::Output;

pub mod calling;
pub mod cli;
pub mod demo;
pub mod doctor;
pub mod failure;
pub mod hosts;
pub mod kv;
pub mod limits;
mod locks;
pub mod logging;
mod manual;
mod memory;
pub mod metrics;
pub mod node;
pub mod open_files;
pub mod output;
pub mod perf;
pub mod placement;
pub mod registration;
pub mod samples;
pub mod serving;
pub mod store;
pub mod wire;

/// Runs the command line `arguments`, the program's name first. Returns its exit status.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    // If `end_as_first_process` fails, signals are ignored as by any other process 1.
    let _ = signal::end_as_first_process();
    // If the signal cannot be ignored, growing a file beyond the limit of file sizes ends the process.
    let _ = signal::ignore_file_size_limit();
    let arguments: Vec<_> = arguments.into_iter().collect();
    match cli::parse(&arguments) {
        Ok(Parsed::Help(text)) => {
            let output = Output::default();
            ended(&output, output.text(&text))
        }
        Ok(Parsed::Command(command, output)) => logged(&output, || execute(&command, &output)),
        // Who reads the log as JSON reads of wrong usage so, too.
        Err(failure) => {
            let output = Output { log: cli::log_format(&arguments), ..Output::default() };
            logged(&output, || Err(failure))
        }
    }
}

/// Runs a command with a log. Returns the exit status.
fn logged(output: &Output, run: impl FnOnce() -> Result<(), Failure>) -> ExitCode {
    let (log, wrong) = match Log::begin(output) {
        Ok(log) => (Some(log), None),
        Err(failure) => (Log::begin_as_usual(output).ok(), Some(failure)),
    };
    // Without a log, JSON has no writer.
    let output = if log.is_some() { *output } else { Output::default() };
    let status = ended(&output, wrong.map_or_else(run, Err));
    log.into_iter().for_each(Log::end);
    status
}

/// Prints the error of a failed command. Returns the exit status.
fn ended(output: &Output, outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.complain(&failure);
            failure.status()
        }
    }
}

fn execute(command: &Command, output: &Output) -> Result<(), Failure> {
    if let Err(error) = process::raise_open_files() {
        output.note(&format!("the limit of open files stays as it is: {error}"));
    }
    match command {
        Command::Demo(options) => demo::run(options, output),
        Command::Kv(Kv::Serve(options)) => kv::serve::run(options, output),
        Command::Kv(Kv::Put { connect, key, file }) => {
            kv::commands::put(connect, key, file, output)
        }
        Command::Kv(Kv::Get { connect, key }) => kv::commands::get(connect, key, output),
        Command::Kv(Kv::Mget { connect, keys }) => kv::many::get(connect, keys, output),
        Command::Kv(Kv::Watch { connect, prefix }) => kv::watch::run(connect, prefix, output),
        Command::Kv(Kv::Mput { connect, pairs }) => kv::many::put(connect, pairs, output),
        Command::Kv(Kv::Del { connect, key }) => kv::commands::del(connect, key, output),
        Command::Kv(Kv::Keys { connect }) => kv::commands::keys(connect, output),
        Command::Kv(Kv::Bench(options)) => kv::bench::run(options, output),
        Command::Kv(Kv::Stat { connect }) => kv::commands::stat(connect, output),
        Command::Store(Store::Serve(options)) => store::serve::run(options, output),
        Command::Store(Store::Ls { mount, path }) => store::commands::ls(mount, path, output),
        Command::Store(Store::Stat { mount, path }) => store::commands::stat(mount, path, output),
        Command::Store(Store::Df { mount, path }) => store::commands::df(mount, path, output),
        Command::Store(Store::Get { mount, path, file }) => {
            store::commands::get(mount, path, file, output)
        }
        Command::Store(Store::Put { mount, files }) => store::commands::put(mount, files, output),
        Command::Perf(Perf::Serve(options)) => perf::serve::run(options, output),
        Command::Perf(Perf::Run { options, connect, timeout, hosts }) => {
            perf::run::against(options, (connect, hosts), timeout.0, output)
        }
        Command::Perf(Perf::Local { options, threads, group }) => {
            let ends =
                if *threads { perf::plan::Ends::Threads } else { perf::plan::Ends::Processes };
            perf::run::locally(options, group, ends, output)
        }
        Command::Wire(Wire::Decode { pcap: Some(file), port, .. }) => {
            wire::capture::decode(file, port, output)
        }
        Command::Wire(Wire::Decode { iwarp: false, .. }) => wire::decode(output),
        Command::Wire(Wire::Decode { iwarp: true, .. }) => wire::decode_iwarp(output),
        Command::Wire(Wire::Encode) => wire::encode(output),
        Command::HostKey(command) => hosts::run(command, output),
        Command::Doctor => doctor::run(output),
        Command::Completions { shell } => manual::completions(*shell, output),
        Command::Man { dir } => manual::pages(dir),
    }
}
