//! Measures MGET and MPUT of short values over the loopback, from a thread that is not the core's.
//!
//! `many [--keys N] [--value-size BYTES] [--seconds S] [--rounds N]`: stores a value under each key, then in each round fetches
//! and stores values under keys drawn at random, 4096 of them a time. Prints how many a second. The server's core runs on
//! CPU 0, the client's on CPU 1; the thread that asks runs where the system puts it.
#![forbid(unsafe_code)]

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use haulage::core::{Core, NoService};
use haulage::cores::{self, CoreThread, Placement};
use haulage::limits::{ITEM_MAX, LIMITS_DEFAULT};
use haulage::polling::Polling;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::remote::RemoteClient;
use haulage::sys::clock;
use haulage_apps::cli::values::LogFormat;
use haulage_apps::output::Output;
use haulage_kv::client::{Client, ClientError};
use haulage_kv::index::Seed;
use haulage_kv::protocol::Key;
use haulage_kv::service::{KvService, binding};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match Options::typed().and_then(|options| run(&options)) {
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
    keys: u32,
    value_size: u32,
    seconds: u32,
    rounds: u32,
}

impl Options {
    fn typed() -> Result<Self, Failure> {
        let mut options = Self { keys: 10_000, value_size: 32, seconds: 1, rounds: 5 };
        let mut words = std::env::args().skip(1);
        while let Some(name) = words.next() {
            let value = words.next().ok_or("an option has a value")?.parse()?;
            match &*name {
                "--keys" => options.keys = value,
                "--value-size" => options.value_size = value,
                "--seconds" => options.seconds = value,
                "--rounds" => options.rounds = value,
                _ => {
                    let usage = "many [--keys N] [--value-size BYTES] [--seconds S] [--rounds N]";
                    return Err(usage.into());
                }
            }
        }
        if options.keys == 0 || options.seconds == 0 {
            return Err("keys and seconds are at least 1".into());
        }
        Ok(options)
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    let keys = options.keys;
    let server = cores::start(placement("server", 0), move || {
        let (provider, pool) = parts(MEMORY)?;
        let service = KvService::new(keys, Seed::random()?, ITEM_MAX, MEMORY as u64);
        let mut core = Core::new(provider, service, pool, LIMITS_DEFAULT, 1)?;
        let at = core.listen(([127, 0, 0, 1], 0).into())?;
        Ok::<_, Failure>((core, at))
    })?;
    let at = server.started;
    let mut client = cores::start(placement("client", 1), move || {
        let (provider, pool) = parts(MEMORY / 4)?;
        let mut core = Core::new(provider, NoService, pool, LIMITS_DEFAULT, 2)?;
        let connection = core.connect(clock::now(), at, binding(ITEM_MAX))?;
        let remote = RemoteClient::of(&core, connection).ok_or("no room for a client")?;
        Ok::<_, Failure>((core, remote))
    })?;
    let measured = measure(&mut client, options);
    client.stop()?;
    server.stop()?;
    measured
}

fn measure(core: &mut CoreThread<RemoteClient>, options: &Options) -> Result<(), Failure> {
    let names: Vec<_> = (0..options.keys).map(|number| format!("many-{number:08}")).collect();
    let keys: Vec<_> =
        names.iter().map(|name| Key::new(name.as_bytes())).collect::<Result<_, _>>()?;
    let value = vec![1; options.value_size as usize];
    let mut client = Client::new(&mut core.started, None);
    for keys in keys.chunks(AT_ONCE) {
        put(&mut client, keys, &value)?;
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        keys.get(usize::try_from(state % keys.len() as u64).ok()?).copied()
    };
    for _ in 0..options.rounds {
        let time = Duration::from_secs(options.seconds.into());
        let mut drawn = || (0..AT_ONCE).filter_map(|_| draw()).collect::<Vec<_>>();
        let fetched = rate(time, &mut drawn, |keys| get(&mut client, keys))?;
        let stored = rate(time, &mut drawn, |keys| put(&mut client, keys, &value))?;
        OUTPUT.line(&format!("mget {fetched:.3} M/s, mput {stored:.3} M/s"))?;
    }
    Ok(())
}

/// Returns how many keys a microsecond `act` acts on, without the time in which they are drawn.
fn rate<'a>(
    time: Duration,
    drawn: &mut impl FnMut() -> Vec<Key<'a>>,
    mut act: impl FnMut(&[Key<'a>]) -> Result<(), ClientError>,
) -> Result<f64, Failure> {
    let (mut done, mut took) = (0, Duration::ZERO);
    while took < time {
        let keys = drawn();
        let began = clock::now();
        act(&keys)?;
        took += clock::now().saturating_since(began);
        done += keys.len();
    }
    Ok(done as f64 / took.as_secs_f64() / 1e6)
}

fn get(client: &mut Client<'_>, keys: &[Key<'_>]) -> Result<(), ClientError> {
    let mut failed = None;
    client.get_many(keys, AT_ONCE, |value| match value {
        Ok(_) => ControlFlow::Continue(()),
        Err(error) => {
            failed = Some(error);
            ControlFlow::Break(())
        }
    })?;
    failed.map_or(Ok(()), Err)
}

fn put(client: &mut Client<'_>, keys: &[Key<'_>], value: &[u8]) -> Result<(), ClientError> {
    let pairs: Vec<_> = keys.iter().map(|key| (*key, value)).collect();
    let mut refused = None;
    client.put_many(&pairs, |stored| refused = refused.or(stored.err()))?;
    refused.map_or(Ok(()), |refusal| Err(refusal.into()))
}

fn parts(bytes: usize) -> Result<(Iwarp, Pool), Failure> {
    let memory = PoolConfig { bytes, pages: PagePreference::Best, node: None };
    Ok((Iwarp::new(&Config::default())?, Pool::new(&memory)?))
}

fn placement(name: &str, cpu: usize) -> Placement {
    Placement { name: name.to_owned(), cpu: Some(cpu), polling: Polling::Event }
}

/// Keys that are asked for at a time.
const AT_ONCE: usize = 4096;

/// Octets of the server's memory.
const MEMORY: usize = 512 << 20;
