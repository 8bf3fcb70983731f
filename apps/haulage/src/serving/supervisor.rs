//! Telling the supervisor that started this server, such as systemd, how the server fares: `sd_notify(3)`.
//!
//! # Normal operation
//! A supervisor that wants to know names a datagram socket in `NOTIFY_SOCKET`, and in `WATCHDOG_USEC` how long it waits
//! for a sign of life before it ends the server. The server says `READY=1` once it accepts connections, `STOPPING=1`
//! when it begins to drain, and `WATCHDOG=1` twice in each such time, but only if its core has turned since the last
//! time.

use std::ffi::OsString;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::cli::values::LogFormat;
use crate::output::Output;

/// The supervisor of this process.
#[derive(Debug, Default)]
pub struct Supervisor {
    /// `None` if there is none that wants to know.
    socket: Option<UnixDatagram>,
    /// How often it wants a sign of life.
    interval: Option<Duration>,
}

/// Returns what raises a limit of this process: a line in the unit where systemd started it, which has no shell, and else
/// a command of the shell from which it is started. `resource` is as systemd and prlimit name it.
pub fn raising(resource: &str, value: &str) -> String {
    if is_unit() {
        let value = if value == "unlimited" { "infinity" } else { value };
        return format!("`Limit{}={value}` in the unit", resource.to_uppercase());
    }
    format!("as root `prlimit --pid $$ --{resource}={value}:{value}`")
}

/// Returns whether what a server prints on standard error is likely to be kept, so that its version belongs there: it was
/// asked for more, or for JSON, or a supervisor or a container started it.
pub fn is_log_kept(output: &Output) -> bool {
    output.verbose || output.log == LogFormat::Json || is_unit() || std::process::id() == 1
}

/// Returns whether systemd started this very process, as the variables of its environment tell.
fn is_unit() -> bool {
    let is_us = |pid: OsString| pid == *std::process::id().to_string();
    std::env::var_os(SOCKET).is_some() || std::env::var_os("SYSTEMD_EXEC_PID").is_some_and(is_us)
}

impl Supervisor {
    /// Connects to the supervisor that the environment names, if any. Prints a warning if that fails.
    pub fn here(output: &Output) -> Self {
        let Some(name) = std::env::var_os(SOCKET) else { return Self::default() };
        match Self::at(&name) {
            Ok(socket) => {
                let variable = |name| std::env::var(name).ok();
                let interval = interval(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
                Self { socket: Some(socket), interval }
            }
            Err(error) => {
                let name = name.display();
                output.note(&format!(
                    "the supervisor at {name} (NOTIFY_SOCKET) is told nothing: {error}"
                ));
                Self::default()
            }
        }
    }

    fn at(name: &OsString) -> io::Result<UnixDatagram> {
        let address = match name.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
            _ => SocketAddr::from_pathname(name),
        }?;
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        // A supervisor that does not read must not stop the server.
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Returns how often to say [`Self::alive`], if at all.
    pub const fn interval(&self) -> Option<Duration> {
        self.interval
    }

    /// Says that the server accepts connections.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// Says that the core turns.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    /// Says that the server has begun to end.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, state: &str) {
        // A supervisor that is gone, or does not read, misses the message; nothing here depends on it.
        let _ = self.socket.as_ref().map(|socket| socket.send(state.as_bytes()));
    }
}

/// Returns how often the supervisor wants a sign of life: twice in the time after which it loses patience. The variable
/// may have been meant for the process that started this one, which `WATCHDOG_PID` then names.
fn interval(limit_us: Option<String>, process: Option<String>) -> Option<Duration> {
    let limit_us: u64 = limit_us?.parse().ok().filter(|limit| *limit > 0)?;
    let is_ours = process.is_none_or(|process| process == std::process::id().to_string());
    is_ours.then(|| Duration::from_micros(limit_us.div_ceil(2)))
}

/// The variable that names the socket of the supervisor.
pub const SOCKET: &str = "NOTIFY_SOCKET";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_are_for_whom_the_supervisor_watches() {
        let us = std::process::id().to_string();
        let of = |limit: &str, process: Option<&str>| {
            interval(Some(limit.to_owned()), process.map(str::to_owned))
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!((of("2000000", None), of("2000000", Some(&us))), (second, second));
        assert_eq!((of("2000000", Some("1")), of("0", None), of("soon", None)), (None, None, None));
        assert_eq!(interval(None, Some(us)), None);
    }
}
