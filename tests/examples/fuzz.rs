//! Runs the fuzz targets on seeded mutations of their corpus for a given time.
//!
//! `fuzz [--seconds N] [--seed N] [TARGET...]` works on two targets at a time. It ends at the first input that fails,
//! with the command that repeats it: `fuzz TARGET --input HEX`. `fuzz --first` writes the first inputs of a corpus
//! instead. Coverage does not guide it, so it is no substitute for the crate in `tests/fuzz`; but it needs only a stable
//! compiler, and repeats from its seed.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, fs, thread};

use haulage::sys::alloc::Counting;
use haulage::sys::clock;
use haulage_test_support::hex::octets;
use haulage_tests::fuzz::mutate::Mutator;
use haulage_tests::fuzz::{Failure, TARGETS, Target, corpus, target};

/// Counts the allocations of the targets.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    match Options::parse(env::args().skip(1)).and_then(|options| options.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuzz: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    first: bool,
    seconds: u64,
    seed: u64,
    input: Option<Vec<u8>>,
    targets: Vec<Target>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let (input, targets) = (None, Vec::new());
        let mut options = Self { first: false, seconds: 10, seed: 1, input, targets };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--first" => options.first = true,
                "--seconds" => options.seconds = value()?.parse()?,
                "--seed" => options.seed = value()?.parse()?,
                "--input" => {
                    options.input =
                        Some(octets(&value()?).ok_or("--input: no pairs of hexadecimal digits")?)
                }
                name => {
                    let known = target(name).ok_or_else(|| format!("no target {name}"))?;
                    options.targets.push(known);
                }
            }
        }
        if options.targets.is_empty() {
            options.targets.extend(TARGETS);
        }
        Ok(options)
    }

    fn run(&self) -> Result<(), Box<dyn Error>> {
        if self.first {
            return self.targets.iter().try_for_each(write_first);
        }
        if let Some(input) = &self.input {
            return Ok(self.targets.iter().try_for_each(|target| target.attempt(input))?);
        }
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let worker = || {
            while let Some(target) = self.targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                let tried = self.try_for_a_while(target, &stop);
                stop.fetch_or(tried.is_err(), Ordering::Relaxed);
                tried?;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            Ok(())
        };
        thread::scope(|scope| {
            let workers = [scope.spawn(worker), scope.spawn(worker)];
            let outcomes = workers.map(|worker| match worker.join() {
                Ok(outcome) => outcome.map_err(|words: String| words.into()),
                Err(_) => Err("a worker panicked outside a target".into()),
            });
            outcomes.into_iter().collect()
        })
    }

    /// Tries inputs until one fails, the time is up, or another target has failed.
    fn try_for_a_while(&self, target: &Target, stop: &AtomicBool) -> Result<(), String> {
        let known = corpus::read(target).map_err(|error| error.to_string())?;
        let known = known.into_iter().map(|(_, data)| data).collect();
        let mut mutator = Mutator::new(known, self.seed);
        let end = clock::now().saturating_add(Duration::from_secs(self.seconds));
        let mut tried = 0_u64;
        while clock::now() < end && !stop.load(Ordering::Relaxed) {
            for _ in 0..BATCH {
                let outcome = target.attempt(&mutator.draw());
                outcome.map_err(|failure: Failure| failure.to_string())?;
            }
            tried += BATCH;
        }
        eprintln!("{}: {tried} inputs", target.name);
        Ok(())
    }
}

fn write_first(target: &Target) -> Result<(), Box<dyn Error>> {
    let directory = corpus::directory().join(target.name);
    fs::create_dir_all(&directory)?;
    for (name, data) in corpus::first(target)? {
        fs::write(directory.join(name), data)?;
    }
    Ok(())
}

/// Number of inputs between two readings of the clock.
const BATCH: u64 = 64;
