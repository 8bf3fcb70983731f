//! Measures how soon a client that watches keys is told of changes, at a fixed rate of changes, over the loopback.
//!
//! `watch [--rate N] [--seconds S] [--keys N] [--rounds N]`: a client stores short values, N a second, under that many keys
//! in turn, and another client watches them. In each round the same is done without a watcher, too. Prints how long a PUT
//! took and how long after its beginning its change was told, as the median and the 99th percentile in microseconds, and
//! how many changes were told and merged.
//!
//! All three cores sleep when there is nothing to do, as there may be fewer CPUs than cores.
#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use haulage::core::{Core, NoService};
use haulage::cores::{self, CoreThread, Placement};
use haulage::limits::{ITEM_MAX, LIMITS_DEFAULT};
use haulage::polling::Polling;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::provider::Waker;
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::remote::{CALLS_MAX, RemoteClient};
use haulage::service::Request;
use haulage::sys::{clock, wake};
use haulage_apps::cli::values::LogFormat;
use haulage_apps::output::Output;
use haulage_kv::client::Client;
use haulage_kv::index::Seed;
use haulage_kv::protocol::Procedure;
use haulage_kv::protocol::watch::State;
use haulage_kv::service::{KvService, binding};
use haulage_kv::watch::{self, News, Told};
use haulage_proto::time::Instant;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match Options::typed().and_then(|options| (0..options.rounds).try_for_each(|_| round(&options)))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            OUTPUT.note(&failure.to_string());
            ExitCode::FAILURE
        }
    }
}

const OUTPUT: Output = Output { json: false, verbose: false, log: LogFormat::Text };

/// The options of the command line.
struct Options {
    rate: u32,
    seconds: u32,
    keys: u32,
    rounds: u32,
}

impl Options {
    fn typed() -> Result<Self, Failure> {
        let mut options = Self { rate: 10_000, seconds: 5, keys: 1000, rounds: 5 };
        let mut words = std::env::args().skip(1);
        while let Some(name) = words.next() {
            let value = words.next().ok_or("an option has a value")?.parse()?;
            match &*name {
                "--rate" => options.rate = value,
                "--seconds" => options.seconds = value,
                "--keys" => options.keys = value,
                "--rounds" => options.rounds = value,
                _ => return Err("watch [--rate N] [--seconds S] [--keys N] [--rounds N]".into()),
            }
        }
        if options.rate == 0 || options.seconds == 0 || options.keys == 0 {
            return Err("rate, seconds and keys are at least 1".into());
        }
        Ok(options)
    }

    const fn changes(&self) -> u32 {
        self.rate * self.seconds
    }
}

/// Measures without a watcher and with one.
fn round(options: &Options) -> Result<(), Failure> {
    let (alone, _) = run(options, None)?;
    let (sender, watched) = mpsc::channel();
    let (beside, begun) = run(options, Some(sender))?;
    let Watched { told, merged } = watched.recv()?;
    let count = told.len();
    let lags: Vec<_> = told
        .into_iter()
        .filter_map(|(number, at)| Some(at.saturating_since(*begun.get(number)?)))
        .collect();
    OUTPUT.line(&format!(
        "put {} us alone, {} us watched; told after {} us; {count} told, {merged} merged of {}",
        quantiles(alone),
        quantiles(beside),
        quantiles(lags),
        options.changes(),
    ))?;
    Ok(())
}

/// What a watcher was told: the number of each change, and when.
struct Watched {
    told: Vec<(usize, Instant)>,
    merged: u64,
}

/// Makes all changes at their times. Returns how long each PUT took, and when it began.
fn run(
    options: &Options,
    watched: Option<mpsc::Sender<Watched>>,
) -> Result<(Vec<Duration>, Vec<Instant>), Failure> {
    let server = cores::start(placement("server"), || {
        let (provider, pool) = parts()?;
        let service = KvService::new(100_000, Seed::random()?, ITEM_MAX, 64 << 20);
        let mut core = Core::new(provider, service, pool, LIMITS_DEFAULT, 1)?;
        let at = core.listen(([127, 0, 0, 1], 0).into())?;
        Ok::<_, Failure>((core, at))
    })?;
    let at = server.started;
    let mut writer = cores::start(placement("writer"), move || {
        let (provider, pool) = parts()?;
        let mut core = Core::new(provider, NoService, pool, LIMITS_DEFAULT, 2)?;
        let connection = core.connect(clock::now(), at, binding(ITEM_MAX))?;
        let remote = RemoteClient::of(&core, connection).ok_or("no room for a client")?;
        Ok::<_, Failure>((core, remote))
    })?;
    let watcher = watched.map(|sender| watcher(at, options, sender)).transpose()?;
    let written = write(&mut writer.started, options)?;
    if let Some(watcher) = watcher {
        watcher.join().map_err(|_| "the watcher panicked")??;
    }
    writer.stop()?;
    server.stop()?;
    Ok(written)
}

/// Starts a client that watches until it was told of all changes.
fn watcher(
    at: SocketAddr,
    options: &Options,
    sender: mpsc::Sender<Watched>,
) -> Result<thread::JoinHandle<Result<(), Failure>>, Failure> {
    let (changes, keys) = (u64::from(options.changes()), options.keys);
    let waker = Waker::new()?;
    let (service, told) = watch::way(waker.clone());
    let mut core = cores::start(placement("watcher"), move || {
        let (provider, pool) = parts()?;
        let mut core = Core::new(provider, service, pool, LIMITS_DEFAULT, 3)?;
        let connection = core.connect(clock::now(), at, watch::options(ITEM_MAX))?;
        let remote = RemoteClient::of(&core, connection).ok_or("no room for a client")?;
        let waker = core.waker();
        Ok::<_, Failure>((core, (remote, waker)))
    })?;
    Client::new(&mut core.started.0, None).watch(b"")?;
    let thread = thread::Builder::new().name("told".to_owned()).spawn(move || {
        sender.send(follow(&core, &told, &waker, (changes, keys))?)?;
        Ok(core.stop()?)
    });
    Ok(thread?)
}

fn follow(
    core: &CoreThread<(RemoteClient, Waker)>,
    told: &Told,
    waker: &Waker,
    (changes, keys): (u64, u32),
) -> Result<Watched, Failure> {
    let mut all = Vec::with_capacity(usize::try_from(changes)?);
    let mut merged = 0;
    while all.len() as u64 + merged < changes {
        match told.next() {
            None => wake::wait(waker, Duration::from_secs(1)),
            Some(News::Closed(why)) => return Err(why.into()),
            Some(News::Changes { changes, heading }) => {
                let now = clock::now();
                for (key, state) in changes {
                    // The length of a value is the number of earlier changes of its key.
                    let State::Set { length } = state else { return Err("a deletion".into()) };
                    let number = length * u64::from(keys) + key.parse::<u64>()?;
                    all.push((usize::try_from(number)?, now));
                }
                merged += heading.merged;
                told.take(&core.started.1);
            }
        }
    }
    Ok(Watched { told: all, merged })
}

/// Stores a value at each time of the schedule, however long the others take. Returns how long each PUT took, and when it
/// was due.
fn write(
    remote: &mut RemoteClient,
    options: &Options,
) -> Result<(Vec<Duration>, Vec<Instant>), Failure> {
    let value = vec![0; (options.changes() / options.keys) as usize];
    // It is never signaled.
    let nobody = Waker::new()?;
    let start = clock::now();
    let (mut begun, mut took) = (Vec::new(), Vec::new());
    for number in 0..options.changes() {
        let due = start.saturating_add(Duration::from_secs(1) * number / options.rate);
        while clock::now() < due {
            if took.len() == begun.len() {
                wake::wait(&nobody, due.saturating_since(clock::now()));
            } else {
                took.push(ended(remote, &begun)?);
            }
        }
        if begun.len() - took.len() == CALLS_MAX {
            took.push(ended(remote, &begun)?);
        }
        begun.push(due);
        let key = format!("{}", number % options.keys);
        let length = (number / options.keys) as usize;
        let put = remote.begin(Request::new(Procedure::Put as u32), |w| {
            w.opaque(key.as_bytes())?;
            w.opaque(value.get(..length).unwrap_or_default())
        });
        put.map_err(|failed| failed.error)?;
    }
    while took.len() < begun.len() {
        took.push(ended(remote, &begun)?);
    }
    Ok((took, begun))
}

/// Waits for the end of a PUT. Returns how long it took.
fn ended(remote: &mut RemoteClient, begun: &[Instant]) -> Result<Duration, Failure> {
    let (token, outcome) = remote.ended()?;
    remote.recycle(outcome.map_err(|failed| failed.error)?);
    let begun = begun.get(usize::try_from(token)?).ok_or("a Call that was not made")?;
    Ok(clock::now().saturating_since(*begun))
}

fn parts() -> Result<(Iwarp, Pool), Failure> {
    let memory = PoolConfig { bytes: 96 << 20, pages: PagePreference::Best, node: None };
    Ok((Iwarp::new(&Config::default())?, Pool::new(&memory)?))
}

fn placement(name: &str) -> Placement {
    Placement { name: name.to_owned(), cpu: None, polling: Polling::Event }
}

/// Returns the median and the 99th percentile in microseconds.
fn quantiles(mut times: Vec<Duration>) -> String {
    times.sort_unstable();
    let at = |part: usize| times.get(times.len() * part / 100).map_or(0, Duration::as_micros);
    format!("{}/{}", at(50), at(99))
}
