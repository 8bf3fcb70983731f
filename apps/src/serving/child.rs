//! A server of this command's own, in a process of its own.

use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};

use haulage::sys::process;

use crate::cli::values::{Polling, Provider, Switch};
use crate::failure::Failure;

/// A server process, ended with this value.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    process: Child,
}

/// How to start one.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// What to serve and how, as it is typed; the place to listen at is not among it.
    pub arguments: &'a [&'a str],
    /// What carries its messages.
    pub provider: Provider,
    /// The address of this machine it listens at.
    pub at: IpAddr,
    /// The CPU it is pinned to, if any.
    pub cpu: Option<usize>,
    /// How its core waits.
    pub polling: Polling,
    /// Whether messages carry a CRC, if that is not left to the provider.
    pub crc: Option<Switch>,
    /// What it says of itself is for those who read what we say.
    pub speaks: bool,
}

impl Server {
    /// Starts one and waits until it accepts connections, on a free port of this machine.
    pub fn start(how: &Start<'_>) -> Result<Self, Failure> {
        let failed = |what: &str| Failure::failed(format!("cannot start the server: {what}"));
        let program = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
        let mut command = Command::new(program);
        let at = SocketAddr::new(how.at, 0).to_string();
        command.args(how.arguments).args(["--provider", how.provider.name(), "--listen", &at]);
        command.args(["--polling", how.polling.name()]);
        if let Some(crc) = how.crc {
            command.args(["--crc", crc.name()]);
        }
        if let Some(cpu) = how.cpu {
            command.arg("--cores").arg(cpu.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        if !how.speaks {
            command.stderr(Stdio::piped());
        }
        process::end_with_us(&mut command);
        let mut process = command.spawn().map_err(|error| failed(&error.to_string()))?;
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        // From here on the process ends with this value, whatever happens.
        let mut server = Self { address: SocketAddr::new(how.at, 0), process };
        let mut line = String::new();
        // No deadline: filling much memory takes long, and this very program either gets ready or ends.
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut line));
        match (read, line.trim_end().strip_prefix("ready: ").map(str::parse)) {
            (Some(Ok(_)), Some(Ok(address))) => server.address = address,
            _ => {
                // It has ended, and said why in its last line.
                let mut said = String::new();
                stderr.map(|mut stderr| stderr.read_to_string(&mut said));
                let said = said.lines().last().unwrap_or("it did not say that it is ready");
                return Err(failed(said.trim_start_matches("haulage: ")));
            }
        }
        Ok(server)
    }

    /// Ends it in order and checks that it ended well.
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
        // Both fail only if it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
