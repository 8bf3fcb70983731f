//! Servers as processes of their own.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// A process that has said in one line that it is ready. It is killed when this is dropped.
#[derive(Debug)]
pub struct Started {
    /// The process. Its standard error can be read if the command made a pipe of it.
    pub process: Child,
    /// The line, with its end.
    pub ready: String,
}

impl Started {
    /// Starts a server, and waits until it is ready.
    ///
    /// # Panics
    /// If it does not start, or ends first.
    pub fn new(command: &mut Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().expect("there is a program");
        let stdout = process.stdout.take().expect("it is a pipe");
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready).expect("it writes text");
        if ready.is_empty() {
            let mut said = String::new();
            if let Some(mut stderr) = process.stderr.take() {
                stderr.read_to_string(&mut said).expect("it writes text");
            }
            panic!("it ended before it was ready: {said}");
        }
        Self { process, ready }
    }

    /// Returns the rest of a line that begins with `ready: `.
    ///
    /// # Panics
    /// If the line begins otherwise.
    pub fn address(&self) -> &str {
        let line = self.ready.trim_end();
        line.strip_prefix("ready: ").unwrap_or_else(|| panic!("no address in {line:?}"))
    }

    /// Returns a text of a line in JSON by its name.
    ///
    /// # Panics
    /// If the line has no such text.
    pub fn named(&self, name: &str) -> &str {
        let line = &self.ready;
        let begun =
            line.split_once(&format!("\"{name}\":\"")).and_then(|(_, at)| at.split_once('"'));
        begun.unwrap_or_else(|| panic!("no {name:?} in {line:?}")).0
    }

    /// Kills the process, and waits for its end.
    pub fn kill(&mut self) {
        // `kill` fails if the process has ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.kill();
    }
}
