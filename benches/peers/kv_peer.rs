//! Measures a server that speaks Redis's or memcached's protocol over TCP, by one connection with a number of requests
//! in flight.
//!
//! `kv_peer --connect ADDR:PORT [--protocol redis|memcached] [--operation get|set] [--value-size BYTES] [--keys N]
//! [--depth N] [--seconds S] [--server PID]`: stores a value under each key, fetches each once and compares it, and then
//! measures requests with random keys. The keys are those of `haulage kv bench`.
//!
//! Prints one line: requests a second; the share of the time in which this program had something to do; the share of a
//! CPU that the process `--server` used. The program asks the socket again and again rather than sleeping, so the server
//! never has to wake it. If its first share is near one, the figure is the client's limit rather than the server's.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Duration;

use haulage::sys::clock;
use haulage_apps::cli::bytes;
use haulage_apps::cli::values::LogFormat;
use haulage_apps::failure::Failure;
use haulage_apps::output::Output;

mod answers;

use answers::{Answer, Answers};

fn main() -> ExitCode {
    match Options::typed().and_then(|options| run(&options)) {
        Ok(line) => match OUTPUT.line(&line) {
            Ok(()) => ExitCode::SUCCESS,
            Err(failure) => failure.status(),
        },
        Err(failure) => {
            OUTPUT.complain(&failure);
            failure.status()
        }
    }
}

const OUTPUT: Output = Output { json: false, verbose: false, log: LogFormat::Text };

/// The options of the command line.
struct Options {
    to: SocketAddr,
    protocol: Protocol,
    operation: Operation,
    size: usize,
    keys: u32,
    depth: u32,
    time: Duration,
    server: Option<u32>,
}

#[derive(Clone, Copy)]
enum Protocol {
    Redis,
    Memcached,
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Get,
    Set,
}

impl Options {
    fn typed() -> Result<Self, Failure> {
        let usage = || Failure::usage(USAGE);
        let mut options = Self {
            to: SocketAddr::from(([127, 0, 0, 1], 0)),
            protocol: Protocol::Redis,
            operation: Operation::Get,
            size: 32,
            keys: 10_000,
            depth: 1,
            time: Duration::from_secs(2),
            server: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or_else(usage)?;
            match (option.as_str(), value.as_str()) {
                ("--connect", _) => options.to = value.parse().map_err(|_| usage())?,
                ("--protocol", "redis") => options.protocol = Protocol::Redis,
                ("--protocol", "memcached") => options.protocol = Protocol::Memcached,
                ("--operation", "get") => options.operation = Operation::Get,
                ("--operation", "set") => options.operation = Operation::Set,
                ("--value-size", _) => {
                    let size = bytes::parse(&value).map_err(|_| usage())?;
                    options.size = usize::try_from(size).map_err(|_| usage())?;
                }
                ("--keys", _) => options.keys = value.parse().map_err(|_| usage())?,
                ("--depth", _) => options.depth = value.parse().map_err(|_| usage())?,
                ("--seconds", _) => {
                    let seconds = value.parse().map_err(|_| usage())?;
                    options.time = Duration::try_from_secs_f64(seconds).map_err(|_| usage())?;
                }
                ("--server", _) => options.server = Some(value.parse().map_err(|_| usage())?),
                _ => return Err(usage()),
            }
        }
        let Self { to, keys, depth, size, .. } = options;
        if to.port() == 0 || keys == 0 || depth == 0 || size == 0 {
            return Err(usage());
        }
        Ok(options)
    }
}

const USAGE: &str = "kv_peer --connect ADDR:PORT [--protocol redis|memcached] [--operation get|set] \
     [--value-size BYTES] [--keys N] [--depth N] [--seconds S] [--server PID]";

/// Stores and compares all values, and measures. Returns the line of results.
fn run(options: &Options) -> Result<String, Failure> {
    let mut connection = Connection::new(options)?;
    connection.each_key(Operation::Set)?;
    connection.each_key(Operation::Get)?;
    connection.start(options.operation, Keys::Random(SEED));
    connection.last_for(WARM)?;
    let cpu = cpu_of(options.server)?;
    let figures = connection.last_for(options.time)?;
    let cpu = cpu_of(options.server)?.saturating_sub(cpu);
    let took = figures.took.as_secs_f64();
    let (rate, busy) = (figures.answers as f64 / took, 1.0 - figures.idle.as_secs_f64() / took);
    Ok(format!("{rate:.1} {busy:.3} {:.3}", cpu.as_secs_f64() / took))
}

/// Returns the CPU time that a process has used.
fn cpu_of(process: Option<u32>) -> Result<Duration, Failure> {
    let Some(process) = process else { return Ok(Duration::ZERO) };
    let path = format!("/proc/{process}/stat");
    let wrong = || Failure::failed(format!("cannot read {path}"));
    let stat = fs::read_to_string(&path).map_err(|_| wrong())?;
    // What follows the program's name, which may have spaces, begins with the third field.
    let (_, fields) = stat.rsplit_once(") ").ok_or_else(wrong)?;
    let ticks: Vec<u64> =
        fields.split(' ').skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    let [user, system] = ticks[..] else { return Err(wrong()) };
    Ok(TICK * u32::try_from(user + system).map_err(|_| wrong())?)
}

/// What was counted and timed.
struct Figures {
    answers: u64,
    took: Duration,
    /// The time in which the connection neither took nor gave anything.
    idle: Duration,
}

/// Which keys requests have.
#[derive(Clone, Copy)]
enum Keys {
    /// All of them once; this is the next.
    Each(u32),
    /// Random ones, from the state of the generator.
    Random(u64),
}

/// One connection with requests in flight.
struct Connection<'a> {
    options: &'a Options,
    stream: TcpStream,
    operation: Operation,
    keys: Keys,
    /// Requests in flight.
    in_flight: u32,
    /// Requests that are not sent yet, in octets, of which `sent` are.
    requests: Vec<u8>,
    sent: usize,
    /// The key numbers of values to compare, in the order of their requests, while values are compared.
    compared: VecDeque<u32>,
    answers: Answers,
}

impl<'a> Connection<'a> {
    fn new(options: &'a Options) -> Result<Self, Failure> {
        let stream = TcpStream::connect(options.to).map_err(|error| failed(&error))?;
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        stream.set_nonblocking(true).map_err(|error| failed(&error))?;
        Ok(Self {
            options,
            stream,
            operation: Operation::Set,
            keys: Keys::Each(0),
            in_flight: 0,
            requests: Vec::new(),
            sent: 0,
            compared: VecDeque::new(),
            answers: Answers::new(options.protocol, options.size),
        })
    }

    /// Makes one request for each key and waits for all answers.
    fn each_key(&mut self, operation: Operation) -> Result<(), Failure> {
        self.start(operation, Keys::Each(0));
        while self.in_flight > 0 {
            self.turn()?;
        }
        Ok(())
    }

    /// Puts the first requests in flight.
    fn start(&mut self, operation: Operation, keys: Keys) {
        self.operation = operation;
        self.keys = keys;
        self.answers.whole = matches!(keys, Keys::Each(_));
        for _ in 0..self.options.depth {
            self.request();
        }
    }

    /// Goes on for a time.
    fn last_for(&mut self, time: Duration) -> Result<Figures, Failure> {
        let start = clock::now();
        let mut figures = Figures { answers: 0, took: Duration::ZERO, idle: Duration::ZERO };
        let mut now = start;
        while figures.took < time {
            let turn = self.turn()?;
            let before = now;
            now = clock::now();
            if !turn.worked {
                figures.idle += now.saturating_since(before);
            }
            figures.answers += turn.answers;
            figures.took = now.saturating_since(start);
        }
        Ok(figures)
    }

    /// Sends and receives what the connection has room for, and follows each answer with a request.
    fn turn(&mut self) -> Result<Turn, Failure> {
        let mut turn = Turn { worked: false, answers: 0 };
        if self.sent < self.requests.len() {
            let sent = moved(self.stream.write(&self.requests[self.sent..]))?;
            self.sent += sent.unwrap_or(0);
            turn.worked |= sent.is_some();
            if self.sent == self.requests.len() {
                self.requests.clear();
                self.sent = 0;
            }
        }
        let Some(count) = moved(self.stream.read(self.answers.room()))? else { return Ok(turn) };
        if count == 0 {
            return Err(Failure::failed("the server closed the connection"));
        }
        turn.worked = true;
        self.answers.add(count);
        while let Some(answer) = self.answers.take()? {
            self.judge(&answer)?;
            turn.answers += 1;
            self.in_flight -= 1;
            self.request();
        }
        Ok(turn)
    }

    /// Checks an answer, with all its octets while each key is fetched once.
    fn judge(&mut self, answer: &Answer) -> Result<(), Failure> {
        let size = self.options.size;
        let length = (self.operation == Operation::Get).then_some(size);
        if answer.value.as_ref().map(Range::len) != length {
            return Err(Failure::failed("a value does not have the length that was stored"));
        }
        let Some(value) = &answer.value else { return Ok(()) };
        let Some(key) = self.compared.pop_front() else { return Ok(()) };
        let octets = &self.answers.octets[value.clone()];
        if !octets.iter().enumerate().all(|(at, found)| *found == octet(key, at)) {
            return Err(Failure::failed("a value does not have the octets that were stored"));
        }
        Ok(())
    }

    /// Makes the next request, if there is one.
    fn request(&mut self) {
        let Some(key) = self.next_key() else { return };
        self.in_flight += 1;
        let Options { protocol, size, .. } = *self.options;
        let to = &mut self.requests;
        // Writing to memory does not fail.
        let _ = match (protocol, self.operation) {
            (Protocol::Redis, Operation::Get) => {
                write!(to, "*2\r\n$3\r\nGET\r\n$14\r\nbench-{key:08}\r\n")
            }
            (Protocol::Redis, Operation::Set) => {
                write!(to, "*3\r\n$3\r\nSET\r\n$14\r\nbench-{key:08}\r\n${size}\r\n")
            }
            (Protocol::Memcached, Operation::Get) => write!(to, "get bench-{key:08}\r\n"),
            (Protocol::Memcached, Operation::Set) => {
                write!(to, "set bench-{key:08} 0 0 {size}\r\n")
            }
        };
        let each = matches!(self.keys, Keys::Each(_));
        if self.operation == Operation::Set {
            if each {
                to.extend((0..size).map(|at| octet(key, at)));
            } else {
                to.resize(to.len() + size, b'v');
            }
            to.extend(b"\r\n");
        } else if each {
            self.compared.push_back(key);
        }
    }

    /// Returns the number of the next request's key.
    fn next_key(&mut self) -> Option<u32> {
        match &mut self.keys {
            Keys::Each(next) => {
                let key = *next;
                *next += 1;
                (key < self.options.keys).then_some(key)
            }
            Keys::Random(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                let key = ((*state >> 32) * u64::from(self.options.keys)) >> 32;
                Some(u32::try_from(key).unwrap_or_default())
            }
        }
    }
}

/// What one turn of a connection did.
struct Turn {
    worked: bool,
    answers: u64,
}

/// Returns what a value has at an offset while values are compared.
fn octet(key: u32, at: usize) -> u8 {
    (u64::from(key) * 31 + at as u64 % 251).to_le_bytes()[0]
}

/// Returns the number of octets that a socket took or gave, `None` if it was not ready.
fn moved(result: io::Result<usize>) -> Result<Option<usize>, Failure> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
            Ok(None)
        }
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::failed(format!("the connection failed: {error}"))
}

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// How long requests go on before they are measured.
const WARM: Duration = Duration::from_millis(250);
/// The unit of CPU time in the files of processes.
const TICK: Duration = Duration::from_millis(10);
