//! Measures the NFS GETATTRs, or READs, a second that a storage server answers to a client that speaks as Linux does:
//! version 1 of RPC-over-RDMA over iWARP, with an AUTH_SYS credential.
//!
//! `getattr [--read SIZE --file NAME] [--depth N] [--seconds S] [--pairs N] [--connect ADDR:PORT --mount-connect
//! ADDR:PORT]`: starts `haulage store serve` of a memory export as a process of its own on another CPU, unless `--connect`
//! names a running server. Each pair is a raw TCP round trip between the same CPUs, and then GETATTRs of the export's root
//! with `--depth` under way; with `--read`, READs of `SIZE` octets at the multiples of `SIZE` of a file in that root, drawn
//! at random. The round trips show how busy the machine was: compare only rates with similar round trips.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use haulage::core::{ConnectOptions, Core, Cx, Service};
use haulage::limits::{LIMITS_DEFAULT, Limits, Versions};
use haulage::pool::Local;
use haulage::proto::time::Instant;
use haulage::provider::iwarp::Iwarp;
use haulage::service::{ConnectionId, Finished, Request};
use haulage::sys::{affinity, clock, process};
use haulage_apps::cli::values::{LogFormat, Switch};
use haulage_apps::failure::Failure;
use haulage_apps::limits::{self, Pair, SMALL};
use haulage_apps::node::NodeConfig;
use haulage_apps::output::Output;
use haulage_apps::placement;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::xdr::Writer;
use haulage_store::client::File;
use haulage_store::client::mount::{Refusal, Way};
use haulage_store::nfs3::Procedure;
use haulage_store::nfs3::binding;

fn main() -> ExitCode {
    // The server process runs this program, too.
    if std::env::args().nth(1).as_deref() == Some("store") {
        return haulage_apps::run(std::env::args_os());
    }
    match Options::typed().and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            OUTPUT.complain(&failure);
            failure.status()
        }
    }
}

const OUTPUT: Output = Output { json: false, verbose: false, log: LogFormat::Text };

/// The options of the command line.
struct Options {
    depth: u32,
    time: Duration,
    pairs: u32,
    /// Octets of each READ, and the name of the file that is read.
    read: Option<(u32, String)>,
    /// The addresses of a running server, if any.
    at: Option<Addresses>,
}

/// The addresses a server listens at.
#[derive(Clone, Copy)]
struct Addresses {
    nfs: SocketAddr,
    mount: SocketAddr,
}

impl Options {
    fn typed() -> Result<Self, Failure> {
        let usage = || {
            Failure::usage(
                "getattr [--read SIZE --file NAME] [--depth N] [--seconds S] [--pairs N] [--connect ADDR:PORT \
                 --mount-connect ADDR:PORT]",
            )
        };
        let mut options =
            Self { depth: 1, time: Duration::from_secs(1), pairs: 5, read: None, at: None };
        let (mut nfs, mut mount, mut size, mut file) = (None, None, None, None);
        let mut arguments = std::env::args().skip(1);
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or_else(usage)?;
            match option.as_str() {
                "--depth" => options.depth = value.parse().map_err(|_| usage())?,
                "--pairs" => options.pairs = value.parse().map_err(|_| usage())?,
                "--seconds" => {
                    let seconds = value.parse().map_err(|_| usage())?;
                    options.time = Duration::try_from_secs_f64(seconds).map_err(|_| usage())?;
                }
                "--read" => size = Some(value.parse::<u32>().map_err(|_| usage())?),
                "--file" => file = Some(value),
                "--connect" => nfs = Some(value.parse().map_err(|_| usage())?),
                "--mount-connect" => mount = Some(value.parse().map_err(|_| usage())?),
                _ => return Err(usage()),
            }
        }
        options.at = match (nfs, mount) {
            (Some(nfs), Some(mount)) => Some(Addresses { nfs, mount }),
            (None, None) => None,
            _ => return Err(usage()),
        };
        options.read = match (size, file) {
            (Some(size @ 1..=READ_MAX), Some(file)) => Some((size, file)),
            (None, None) => None,
            _ => return Err(usage()),
        };
        let Self { depth, pairs, .. } = options;
        if !(1..=DEPTH_MAX).contains(&depth) || pairs == 0 { Err(usage()) } else { Ok(options) }
    }
}

/// Measures all pairs and prints them, the median rate last.
fn run(options: &Options) -> Result<(), Failure> {
    let cpus = affinity::usable().map_err(|error| Failure::failed(error.to_string()))?;
    let (near, far) = match cpus {
        [near, far, ..] => (Some(*near), Some(*far)),
        _ => (None, None),
    };
    // The server starts before this thread is pinned: it would inherit the single CPU.
    let server = if options.at.is_none() { Some(Server::start(far)?) } else { None };
    let pair = match (near, far) {
        (Some(near), Some(far)) => {
            affinity::pin(near).map_err(|error| Failure::failed(error.to_string()))?;
            Pair::pinned(near, far)
        }
        _ => Pair::UNPINNED,
    };
    placement::favour(&OUTPUT);
    let at = options.at.or(server.as_ref().map(|server| server.at));
    let mut client = Client::connect(at.ok_or_else(|| Failure::failed("no server"))?)?;
    let what = if options.read.is_some() { "READ" } else { "GETATTR" };
    if let Some((size, file)) = &options.read {
        client.open(*size, file)?;
    }
    // The first round connects, and warms up buffers and caches.
    client.rate(options.depth, options.time.min(WARM))?;
    let mut rates = Vec::new();
    for _ in 0..options.pairs {
        let raw = limits::tcp_rtt_us(pair, SMALL, RAW_TIME);
        let raw = raw.map_err(|error| Failure::failed(error.to_string()))?;
        let rate = client.rate(options.depth, options.time)?;
        OUTPUT.line(&format!("raw TCP round trip {raw:.2} us, {rate:.0} {what}/s"))?;
        rates.push(rate);
    }
    rates.sort_by(f64::total_cmp);
    let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
    OUTPUT.line(&format!("median {median:.0}, best {best:.0} {what}/s, depth {}", options.depth))
}

/// A process that runs `haulage store serve`, killed when dropped.
struct Server {
    at: Addresses,
    process: Child,
}

impl Server {
    fn start(cpu: Option<usize>) -> Result<Self, Failure> {
        let failed = |what: &str| Failure::failed(format!("cannot start the server: {what}"));
        let program = std::env::current_exe().map_err(|error| failed(&error.to_string()))?;
        let mut command = Command::new(program);
        command.args(["store", "serve", "--export", "memory:64MiB", "--json", "--crc", "off"]);
        command.args(["--listen", ":0", "--mount-listen", ":0", "--tcp-listen", "off"]);
        if let Some(cpu) = cpu {
            command.arg("--cores").arg(cpu.to_string());
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        process::end_with_us(&mut command);
        let mut process = command.spawn().map_err(|error| failed(&error.to_string()))?;
        let mut ready = String::new();
        let read = process.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut ready));
        let address = |name: &str| {
            let (_, rest) = ready.split_once(&format!("\"{name}\":\""))?;
            rest.split_once('"')?.0.parse().ok()
        };
        match (read, address("listen"), address("mount_listen")) {
            (Some(Ok(_)), Some(nfs), Some(mount)) => {
                Ok(Self { at: Addresses { nfs, mount }, process })
            }
            _ => Err(failed("it did not say where it listens")),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A core on this thread that calls a server.
struct Client {
    core: Core<Iwarp, Caller>,
}

impl Client {
    /// Mounts the root of the server's export, and begins to connect.
    fn connect(at: Addresses) -> Result<Self, Failure> {
        let identity = process::identity()
            .map_err(|error| Failure::failed(format!("cannot find out who we are: {error}")))?;
        let way = Way::tcp(at.mount, &identity, TIMEOUT).map_err(Refusal::from);
        let root = way
            .and_then(|mut way| way.mount(b"/"))
            .map_err(|refusal| Failure::failed(refusal.to_string()))?;
        let limits = Limits {
            versions: Versions::OnlyOne,
            calls_out_max: DEPTH_MAX,
            setup_timeout: TIMEOUT,
            call_timeout: TIMEOUT,
            ..LIMITS_DEFAULT
        };
        let node = NodeConfig { crc: Some(Switch::Off), ..NodeConfig::new(ROOM, limits) };
        let (mut core, _) = node.build::<Iwarp, _>(|_, _| Ok(Caller::new(&root)))?;
        let binding = binding::binding(&NFS_LIMITS);
        let connection = core
            .connect(clock::now(), at.nfs, ConnectOptions::new(binding).identity(identity))
            .map_err(|error| Failure::failed(error.to_string()))?;
        core.cx(clock::now()).1.connection = Some(connection);
        Ok(Self { core })
    }

    /// Looks up a file in the root, and has the Calls from then on be READs of `size` octets of it.
    fn open(&mut self, size: u32, file: &str) -> Result<(), Failure> {
        let (mut cx, caller) = self.core.cx(clock::now());
        caller.look_up(&mut cx, file);
        while self.core.service().in_flight > 0 {
            self.core.turn(clock::now());
        }
        let (cx, caller) = self.core.cx(clock::now());
        if let Some(why) = &caller.failed {
            return Err(Failure::failed(format!("LOOKUP of {file}: {why}")));
        }
        let pool = cx.pool();
        let rooms = std::iter::repeat_with(|| pool.lease(size as usize)).take(DEPTH_MAX as usize);
        caller.rooms = rooms.flatten().collect();
        if caller.file_length < u64::from(size) {
            return Err(Failure::failed(format!("{file} has fewer than {size} octets")));
        }
        caller.size = size;
        Ok(())
    }

    /// Keeps `depth` Calls under way for `time`, then waits for the last Replies. Returns the Calls a second.
    fn rate(&mut self, depth: u32, time: Duration) -> Result<f64, Failure> {
        let start = clock::now();
        let until = start.saturating_add(time);
        let (mut cx, caller) = self.core.cx(start);
        caller.until = Some(until);
        caller.answered = 0;
        (0..depth).for_each(|_| caller.call(&mut cx));
        let mut now = start;
        while now < until || self.core.service().in_flight > 0 {
            for _ in 0..TURNS_PER_READING {
                self.core.turn(now);
            }
            now = clock::now();
            if let Some(why) = &self.core.service().failed {
                return Err(Failure::failed(format!("a Call failed: {why}")));
            }
        }
        let took = now.saturating_since(start).as_secs_f64();
        Ok(self.core.service().answered as f64 / took)
    }
}

/// A service that makes a Call for each one answered, until its time is over.
struct Caller {
    connection: Option<ConnectionId>,
    /// The encoded file handle of the root, or of the file that is read.
    handle: Vec<u8>,
    /// Octets of each READ; zero for GETATTRs.
    size: u32,
    file_length: u64,
    /// Memory for the octets of READs.
    rooms: Vec<Local>,
    /// The state of a generator of random numbers.
    random: u64,
    until: Option<Instant>,
    in_flight: u32,
    answered: u64,
    failed: Option<String>,
}

impl Caller {
    fn new(root: &File) -> Self {
        Self {
            connection: None,
            handle: encoded(root.handle().bytes()),
            size: 0,
            file_length: 0,
            rooms: Vec::new(),
            random: 1,
            until: None,
            in_flight: 0,
            answered: 0,
            failed: None,
        }
    }

    fn call(&mut self, cx: &mut Cx<'_>) {
        if self.size == 0 {
            return self.make(cx, Request::new(Procedure::GetAttr as u32), &[]);
        }
        let Some(room) = self.rooms.pop() else { return };
        // Marsaglia's xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let place = self.random % (self.file_length / u64::from(self.size));
        let mut arguments = [0; 12];
        let (offset, size) = arguments.split_at_mut(8);
        offset.copy_from_slice(&(place * u64::from(self.size)).to_be_bytes());
        size.copy_from_slice(&self.size.to_be_bytes());
        let request = Request::new(Procedure::Read as u32).room(room);
        self.make(cx, request, &arguments);
    }

    fn look_up(&mut self, cx: &mut Cx<'_>, name: &str) {
        self.make(cx, Request::new(Procedure::Lookup as u32), &encoded(name.as_bytes()));
    }

    /// Makes a Call whose arguments are the handle and `rest`.
    fn make(&mut self, cx: &mut Cx<'_>, request: Request, rest: &[u8]) {
        let Some(connection) = self.connection else { return };
        let encode = |w: &mut Writer<'_>| {
            w.put(&self.handle)?;
            w.put(rest)
        };
        match cx.call(connection, request, 0, encode) {
            Ok(()) => self.in_flight += 1,
            Err((why, _)) => self.failed = Some(why.to_string()),
        }
    }

    /// Takes in the handle and the length of the file that was looked up.
    fn found(&mut self, results: &mut PayloadReader<'_>) -> Option<()> {
        self.handle = encoded(results.opaque(HANDLE_MAX).ok()?);
        let attributes = results.u32().ok()? == 1;
        // The length is the sixth word of the attributes.
        for _ in 0..5 {
            results.u32().ok()?;
        }
        self.file_length = results.u64().ok()?;
        attributes.then_some(())
    }
}

impl Service for Caller {
    fn replied(&mut self, cx: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        self.in_flight -= 1;
        let room = finished.rooms.into_first();
        let is_whole = room.as_ref().is_none_or(|room| room.len() == self.size as usize);
        self.rooms.extend(room);
        match finished.results.map(|mut results| (results.u32(), results)) {
            Ok((Ok(0), mut results)) if self.until.is_none() => {
                if self.found(&mut results).is_none() {
                    self.failed = Some("no attributes".into());
                }
            }
            Ok((Ok(0), _)) if is_whole => self.answered += 1,
            Ok((status, _)) => self.failed = Some(format!("status {status:?}")),
            Err(why) => self.failed = Some(why.to_string()),
        }
        if self.until.is_some_and(|until| cx.now() < until) && self.failed.is_none() {
            Self::call(self, cx);
        }
    }
}

/// Returns an opaque as it is on the wire.
fn encoded(octets: &[u8]) -> Vec<u8> {
    let mut room = [0; 4 + NAME_MAX];
    let mut writer = Writer::new(&mut room);
    writer.opaque(octets).expect("a file handle or a name");
    writer.written().to_vec()
}

/// The limits that the binding declares.
const NFS_LIMITS: binding::Limits =
    binding::Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 64 << 10 };
/// Length of the longest file handle, in octets.
const HANDLE_MAX: usize = 64;
/// Length of the longest name, in octets.
const NAME_MAX: usize = 256;
/// Octets of the longest READ.
const READ_MAX: u32 = 64 << 10;
/// Maximum number of Calls under way.
const DEPTH_MAX: u32 = 1024;
/// Number of turns between two readings of the clock.
const TURNS_PER_READING: u32 = 8;
/// Time of the first Calls, which are not measured.
const WARM: Duration = Duration::from_millis(300);
/// Duration of each raw measurement.
const RAW_TIME: Duration = Duration::from_millis(150);
/// Memory beside the transport's buffers, in octets.
const ROOM: usize = 128 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
