//! The other process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use crate::cli::values::{Polling, Switch};
use haulage::sys::process;

use crate::failure::Failure;

/// A key-value server in a process of its own, ended with this value.
#[derive(Debug)]
pub(super) struct Server {
    /// Where it listens.
    pub(super) address: SocketAddr,
    process: Child,
}

impl Server {
    /// Starts it on `cpu` and waits until it accepts connections.
    pub(super) fn start(
        cpu: Option<usize>,
        polling: Polling,
        crc: Option<Switch>,
    ) -> Result<Self, Failure> {
        let failed = |what: &str| Failure::failed(format!("cannot start the server: {what}"));
        let program = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
        let mut command = Command::new(program);
        command.args(["kv", "serve", "--listen", "127.0.0.1:0"]);
        command.args(["--memory", MEMORY, "--value-max", VALUE_MAX]);
        command.args(["--polling", polling.name()]);
        if let Some(crc) = crc {
            command.args(["--crc", crc.name()]);
        }
        if let Some(cpu) = cpu {
            command.arg("--cores").arg(cpu.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        process::end_with_us(&mut command);
        let mut process = command.spawn().map_err(|error| failed(&error.to_string()))?;
        let stdout = process.stdout.take();
        // From here on the process ends with this value, whatever happens.
        let mut server = Self { address: SocketAddr::from(([127, 0, 0, 1], 0)), process };
        let mut line = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        match (read, line.trim_end().strip_prefix("ready: ").map(str::parse)) {
            (Some(Ok(_)), Some(Ok(address))) => server.address = address,
            _ => return Err(failed("it did not say that it is ready")),
        }
        Ok(server)
    }

    /// Ends it in order and checks that it ended well.
    pub(super) fn stop(mut self) -> Result<(), Failure> {
        let ended = process::terminate(&mut self.process);
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::failed(format!("the server ended with {status}"))),
            Err(error) => Err(Failure::failed(format!("cannot end the server: {error}"))),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Values and index: four of the largest values being replaced, four being sent, and slack.
const MEMORY: &str = "96MiB";
const VALUE_MAX: &str = "4MiB";
