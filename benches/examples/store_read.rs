//! Measures the speed of reading a file from the storage server over the loopback, next to a raw TCP stream of messages
//! of the same size.
//!
//! `store_read [--floor RATIO] [--pairs N] [--seconds S] [--file BYTES]`: measures pairs of the raw stream and of READs
//! of 1 MiB, eight under way as with `haulage store get`, and prints the ratio of each pair. A shared machine changes
//! its speed from moment to moment, so there are several pairs. The file is in the server's memory, and the raw stream
//! sends from memory of that length, too. There is no CRC, as `store get` asks for none.
//!
//! Fails if the best pair is below the floor. Other work on the machine may slow either half of a pair, so one bad pair
//! proves little; but a client or server that has become slower has no good pair.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use haulage::core::{ConnectOptions, NoService};
use haulage::cores::{self, CoreThread, Placement as Thread};
use haulage::limits::LIMITS_DEFAULT;
use haulage::polling::Polling;
use haulage::provider::iwarp::Iwarp;
use haulage::remote::RemoteClient;
use haulage::sys::{affinity, clock, process};
use haulage_apps::cli::bytes;
use haulage_apps::cli::values::{LogFormat, Switch};
use haulage_apps::failure::Failure;
use haulage_apps::limits::{self, Pair};
use haulage_apps::node::{NodeConfig, client_limits};
use haulage_apps::output::Output;
use haulage_apps::placement;
use haulage_store::access::{Policy, Squash};
use haulage_store::client::requester::Remote;
use haulage_store::client::{Client, File, memory_max};
use haulage_store::handle::Sealer;
use haulage_store::memory::{self, Memory};
use haulage_store::nfs3::Time;
use haulage_store::nfs3::binding::{Limits, binding};
use haulage_store::program::RESULTS_KEPT;
use haulage_store::replays::{self, Replays};
use haulage_store::server::gate::Gate;
use haulage_store::server::{Admission, Server};
use haulage_store::service::{Config, Service};
use haulage_store::trust::Trust;

fn main() -> ExitCode {
    match Options::typed().and_then(|options| judge(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            OUTPUT.complain(&failure);
            failure.status()
        }
    }
}

/// Measures all pairs. Fails if even the best is below the floor.
fn judge(options: &Options) -> Result<(), Failure> {
    let mut ratios = run(options)?;
    ratios.sort_by(f64::total_cmp);
    let (median, best) = (ratios[ratios.len() / 2], ratios[ratios.len() - 1]);
    let floor = options.floor;
    OUTPUT.line(&format!("median {median:.3}, best {best:.3}, floor {floor:.3}"))?;
    if best < floor {
        return Err(Failure::failed("READs are slower than they may be; profile both ends"));
    }
    Ok(())
}

const OUTPUT: Output = Output { json: false, verbose: false, log: LogFormat::Text };

/// The options of the command line.
struct Options {
    floor: f64,
    pairs: u32,
    time: Duration,
    file: u64,
}

impl Options {
    fn typed() -> Result<Self, Failure> {
        let usage = || {
            Failure::usage("store_read [--floor RATIO] [--pairs N] [--seconds S] [--file BYTES]")
        };
        let mut options =
            Self { floor: 0.75, pairs: 7, time: Duration::from_millis(300), file: 32 << 20 };
        let mut arguments = std::env::args().skip(1);
        while let Some(option) = arguments.next() {
            let value = arguments.next().ok_or_else(usage)?;
            let number = value.parse::<f64>().ok().filter(|number| *number >= 0.0);
            match option.as_str() {
                "--floor" => options.floor = number.ok_or_else(usage)?,
                "--pairs" => options.pairs = value.parse().map_err(|_| usage())?,
                "--seconds" => {
                    let time = number.and_then(|n| Duration::try_from_secs_f64(n).ok());
                    options.time = time.ok_or_else(usage)?;
                }
                "--file" => options.file = bytes::parse(&value).map_err(|_| usage())?,
                _ => return Err(usage()),
            }
        }
        if options.pairs == 0 || options.file == 0 { Err(usage()) } else { Ok(options) }
    }
}

/// Measures all pairs. Returns the ratio of each: the speed of READs over the speed of the raw stream.
fn run(options: &Options) -> Result<Vec<f64>, Failure> {
    let cpus = affinity::usable().map_err(|error| Failure::failed(error.to_string()))?;
    let (near, far) = match cpus {
        [near, far, ..] => (Some(*near), Some(*far)),
        _ => (None, None),
    };
    let pair = match (near, far) {
        (Some(near), Some(far)) => Pair::pinned(near, far),
        _ => Pair::UNPINNED,
    };
    // The thread that asks belongs to the client: on the server's CPU it takes time of what is measured.
    near.map_or(Ok(()), affinity::pin).map_err(|error| Failure::failed(error.to_string()))?;
    placement::favour(&OUTPUT);
    let server = serve(options, far)?;
    let (to, root) = server.started;
    let mut core = connect(to, near)?;
    let client = core.started.take().ok_or_else(|| Failure::failed("a core is asked once"))?;
    let client = Client::new(Remote::new(client, TIMEOUT), root, LIMITS);
    let mut client = client.map_err(|error| failed(&error))?;
    let file = client.create(&root, b"file", 0o600).map_err(|error| failed(&error))?.file;
    let mut left = options.file;
    client
        .write(&file, |room| {
            let count = usize::try_from(left).unwrap_or(usize::MAX).min(room.len());
            room[..count].fill(7);
            left -= count as u64;
            Ok(count)
        })
        .map_err(|error| failed(&error))?;
    // One pass warms up caches, TCP windows and the pool.
    read(&mut client, &file, options.file, Duration::ZERO)?;
    let file_room = usize::try_from(options.file).unwrap_or(usize::MAX);
    let mut ratios = Vec::new();
    for _ in 0..options.pairs {
        let raw = limits::tcp_file_gib_per_s(pair, PIECE, READS, file_room, options.time);
        let raw = raw.map_err(|error| Failure::failed(error.to_string()))?;
        let ours = read(&mut client, &file, options.file, options.time)?;
        let ratio = ours / raw;
        OUTPUT.line(&format!("raw {raw:.3} GiB/s, READ {ours:.3} GiB/s: {ratio:.3}"))?;
        ratios.push(ours / raw);
    }
    drop(client.into_requester());
    core.stop()?;
    server.stop()?;
    Ok(ratios)
}

/// Reads a file for `time`, and at least once. Returns the speed in GiB/s.
fn read(
    client: &mut Client<Remote>,
    file: &File,
    size: u64,
    time: Duration,
) -> Result<f64, Failure> {
    let start = clock::now();
    let mut octets = 0;
    loop {
        let count = client.read(file, size, |_| Ok(())).map_err(|error| failed(&error))?;
        if count != size {
            return Err(Failure::failed(format!("the file has {count} octets, not {size}")));
        }
        octets += count;
        let took = clock::now().saturating_since(start);
        if took >= time {
            return Ok(octets as f64 / GIB / took.as_secs_f64());
        }
    }
}

/// Starts a server with an empty memory export.
fn serve(
    options: &Options,
    cpu: Option<usize>,
) -> Result<CoreThread<(std::net::SocketAddr, File)>, Failure> {
    let room = usize::try_from(options.file).unwrap_or(usize::MAX).saturating_mul(2) + ROOM;
    cores::start(thread("server", cpu), move || {
        let crc = Some(Switch::Off);
        let node = NodeConfig { crc, ..NodeConfig::new(room, LIMITS_DEFAULT) };
        let mut root = None;
        let (mut core, _) = node.build::<Iwarp, _>(|pool, _| {
            let files = memory::Limits { files_max: 16, names_max: 16 };
            let backend = Memory::new(pool, files, 1, Time::default());
            let backend = backend.ok_or_else(|| Failure::failed("no memory"))?;
            let policy = Policy { squash: Squash::Nobody, ..Policy::default() };
            let config = Config { policy, read_only: false, limits: LIMITS };
            let service = Service::new(backend, Sealer::new(&[7; 32], 9), config);
            root = Some(File::from(service.root().as_file_handle()));
            let gate = Gate::new(Admission::default(), Trust::ALL);
            let replays = replays::Limits::of_memory(room, RESULTS_KEPT);
            let replays = Replays::new(&replays, 3);
            Ok(Server::new(service, &LIMITS, gate, replays))
        })?;
        let at = core.listen(([127, 0, 0, 1], 0).into())?;
        let root = root.ok_or_else(|| Failure::failed("there is no root"))?;
        Ok::<_, Failure>((core, (at, root)))
    })
}

fn connect(
    to: std::net::SocketAddr,
    cpu: Option<usize>,
) -> Result<CoreThread<Option<RemoteClient>>, Failure> {
    let identity = process::identity()
        .map_err(|error| Failure::failed(format!("cannot find out who we are: {error}")))?;
    cores::start(thread("client", cpu), move || {
        let room = memory_max(&LIMITS) + ROOM;
        let crc = Some(Switch::Off);
        let node = NodeConfig { crc, ..NodeConfig::new(room, client_limits(TIMEOUT)) };
        let (mut core, _) = node.build::<Iwarp, _>(|_, _| Ok(NoService))?;
        let connection = core
            .connect(clock::now(), to, ConnectOptions::new(binding(&LIMITS)).identity(identity))
            .map_err(|error| Failure::failed(error.to_string()))?;
        let client = RemoteClient::of(&core, connection);
        Ok::<_, Failure>((core, client))
    })
}

fn thread(name: &str, cpu: Option<usize>) -> Thread {
    Thread { name: name.to_owned(), cpu, polling: Polling::ADAPTIVE }
}

fn failed(error: &haulage_store::client::Error) -> Failure {
    Failure::failed(error.to_string())
}

/// The maximum lengths that `haulage store get` asks for.
const LIMITS: Limits = Limits { read_max: 1 << 20, write_max: 1 << 20, readdir_max: 64 << 10 };
/// Length of a READ, in octets.
const PIECE: usize = 1 << 20;
/// Number of READs under way.
const READS: usize = 8;
/// Memory beside files and items, in octets.
const ROOM: usize = 8 << 20;
const TIMEOUT: Duration = Duration::from_secs(10);
const GIB: f64 = (1_u64 << 30) as f64;
