//! A server that this command starts as a child process.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};

use haulage::sys::process;

use crate::cli::VersionOptions;
use crate::cli::values::{Polling, Provider, Switch};
use crate::failure::Failure;

use super::supervisor::SOCKET;

/// A server process, killed when this value is dropped.
#[derive(Debug)]
pub struct Server {
    /// The address at which the server listens.
    pub address: SocketAddr,
    process: Child,
}

/// The configuration of a server process.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The command line of the server, without `--listen`.
    pub arguments: &'a [&'a str],
    /// The server's provider.
    pub provider: Provider,
    /// The address of this machine at which the server listens.
    pub at: IpAddr,
    /// The CPUs to which the server's cores are pinned, as a list; `None` is one core that is not pinned.
    pub cores: Option<&'a str>,
    /// How the server's core waits for work.
    pub polling: Polling,
    /// Whether to ask for CRCs; `None` leaves it to the provider.
    pub crc: Option<Switch>,
    /// What the server speaks beside the versions, all of which it does.
    pub versions: VersionOptions,
    /// Whether the server's notes appear on this command's standard error.
    pub speaks: bool,
}

impl Server {
    /// Starts a server on a free port of this machine, and waits until it accepts connections.
    pub fn start(how: &Start<'_>) -> Result<Self, Failure> {
        let failed = |what: &str| Failure::failed(format!("cannot start the server: {what}"));
        let program = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
        let mut command = Command::new(program);
        let at = SocketAddr::new(how.at, 0).to_string();
        command.args(how.arguments).args(["--provider", how.provider.name(), "--listen", &at]);
        command.args(["--polling", how.polling.name()]);
        command.args(how.versions.to_server());
        if let Some(crc) = how.crc {
            command.args(["--crc", crc.name()]);
        }
        if let Some(cores) = how.cores {
            command.args(["--cores", cores]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if !how.speaks {
            command.stderr(Stdio::piped());
        }
        // The supervisor of this command awaits its word, not that of a server beside it.
        command.env_remove(SOCKET);
        process::end_with_us(&mut command);
        let mut process = command.spawn().map_err(|error| failed(&error.to_string()))?;
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        // From here on, dropping this value ends the process.
        let mut server = Self { address: SocketAddr::new(how.at, 0), process };
        let mut line = String::new();
        // No deadline: filling much memory takes long, and the server either becomes ready or ends.
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        match (read, line.trim_end().strip_prefix("ready: ").map(str::parse)) {
            (Some(Ok(_)), Some(Ok(address))) => server.address = address,
            _ => {
                // The server has ended; its last line is the reason.
                let mut said = String::new();
                stderr.map(|mut stderr| stderr.read_to_string(&mut said));
                let said = said.lines().last().unwrap_or("it did not say that it is ready");
                return Err(failed(said.trim_start_matches("haulage: ")));
            }
        }
        Ok(server)
    }

    /// Ends the server by SIGTERM and checks its exit status.
    pub fn stop(mut self) -> Result<(), Failure> {
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
        // Both fail only if the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
