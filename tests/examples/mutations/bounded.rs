//! Commands with a time limit, which also ends their child processes.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;
use std::{io, thread};

use rustix::process::{Pid, Signal, kill_process_group};

/// Runs `command` in a process group of its own. After `limit` it kills the group and returns `None`.
pub(crate) fn run(mut command: Command, limit: Duration) -> io::Result<Option<Output>> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn()?;
    let group = Pid::from_child(&child);
    let (ended, end) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || ended.send(child.wait_with_output()));
        match end.recv_timeout(limit) {
            Ok(output) => output.map(Some),
            Err(_) => {
                // There is no group left if it has just ended by itself.
                let _ = kill_process_group(group, Signal::KILL);
                Ok(None)
            }
        }
    })
}
