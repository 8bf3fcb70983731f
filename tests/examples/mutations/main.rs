//! Breaks sentences of force, one at a time, in a copy of the workspace, and checks that the tests in their rows
//! notice. Of a row that holds in the runtime only tests of the runtime count: that a test of the library notices does
//! not show that the product obeys.
//!
//! `mutations [--seconds N] [--seed TEXT] [ID...]` tries all mutations of the rows named, or of all rows in an order
//! drawn from the seed until the seconds are over. It prints a line for each mutation, and fails if one goes unnoticed,
//! does not compile or does not apply.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a line for each mutation is its output")]

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fmt};

use haulage::sys::clock;
use haulage_tests::Rng;
use haulage_tests::mutation::Mutation;
use haulage_tests::source::Workspace;
use haulage_tests::tidy::{TestedRow, tested};

use copy::Copy;
use program::{Ended, by_program};

mod bounded;
mod copy;
mod program;

fn main() -> ExitCode {
    match Options::parse(env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutations: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    seconds: Option<u64>,
    seed: String,
    ids: Vec<String>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self { seconds: None, seed: String::new(), ids: Vec::new() };
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--seconds" => options.seconds = Some(value()?.parse()?),
                "--seed" => options.seed = value()?,
                option if option.starts_with('-') => {
                    return Err(format!("no option {option}").into());
                }
                id => options.ids.push(id.to_owned()),
            }
        }
        Ok(options)
    }
}

/// The outcome of one mutation.
enum Verdict {
    Caught(Vec<String>),
    Survived,
    /// The mutation proves nothing about the tests, for this reason.
    Useless(String),
}

/// Tries the chosen mutations. Returns whether all were noticed.
fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let workspace = Workspace::read(&root)?;
    let mutations = Mutation::all(&workspace);
    let breaks = chosen(&workspace, &mutations, options)?;
    let copy = Copy::of(&root)?;
    let started = clock::now();
    let (mut tried, mut wrong) = (0, 0);
    for Break { row, mutation } in &breaks {
        let began = clock::now();
        if options.seconds.is_some_and(|s| began.saturating_since(started).as_secs() >= s) {
            break;
        }
        let verdict = attempt(&workspace, &copy, row, mutation)?;
        let (path, marker) = mutation.first();
        println!(
            "{} in {path}:{}: {verdict} ({:.1} s)",
            row.id,
            marker.line,
            clock::now().saturating_since(began).as_secs_f64()
        );
        tried += 1;
        wrong += u32::from(!matches!(verdict, Verdict::Caught(_)));
    }
    let seconds = clock::now().saturating_since(started).as_secs();
    let (all, seed) = (breaks.len(), &options.seed);
    println!("{tried} of {all} mutations tried in {seconds} s (seed {seed:?}), {wrong} unnoticed");
    Ok(wrong == 0)
}

/// A mutation to try, and the row whose tests must notice it.
struct Break<'a> {
    row: TestedRow,
    mutation: &'a Mutation<'a>,
}

/// Returns the mutations of the rows named, or those of all rows, shuffled.
fn chosen<'a>(
    workspace: &Workspace,
    mutations: &'a BTreeMap<String, Vec<Mutation<'a>>>,
    options: &Options,
) -> Result<Vec<Break<'a>>, Box<dyn Error>> {
    let mut rows = tested(workspace);
    if !options.ids.is_empty() {
        let row = |id: &String| {
            let row = rows.iter().find(|row| row.id == *id).cloned();
            row.ok_or_else(|| format!("{id} is not a row with tests"))
        };
        rows = options.ids.iter().map(row).collect::<Result<_, _>>()?;
    }
    let mut breaks = Vec::new();
    for row in rows {
        let all = mutations.get(&row.id).ok_or_else(|| format!("no marker breaks {}", row.id))?;
        breaks.extend(all.iter().map(|mutation| Break { row: row.clone(), mutation }));
    }
    if options.ids.is_empty() {
        let mut rng = Rng::new(hash(&options.seed));
        for end in (1..breaks.len()).rev() {
            breaks.swap(end, usize::try_from(rng.below(0..end as u64 + 1))?);
        }
    }
    Ok(breaks)
}

/// Applies a mutation of a row, runs its tests, and restores the files.
fn attempt(
    workspace: &Workspace,
    copy: &Copy,
    row: &TestedRow,
    mutation: &Mutation<'_>,
) -> Result<Verdict, Box<dyn Error>> {
    let Some(broken) = mutation.broken() else {
        return Ok(Verdict::Useless("two of its markers overlap".to_owned()));
    };
    for (path, text) in broken {
        copy.write(path, text)?;
    }
    let verdict = judge(workspace, copy, row);
    for (path, text) in mutation.whole() {
        copy.write(path, text)?;
    }
    verdict
}

/// Runs the tests of a row, one program after another until one notices.
fn judge(workspace: &Workspace, copy: &Copy, row: &TestedRow) -> Result<Verdict, Box<dyn Error>> {
    for (program, tests) in by_program(workspace, &row.tests)? {
        let built = match program.build(copy)? {
            Ok(built) => built,
            Err(said) => return Ok(Verdict::Useless(format!("does not compile:\n{said}"))),
        };
        let mut caught = Vec::new();
        for test in tests {
            match built.run(&test.filter)? {
                Ended::Passed => {}
                Ended::Failed => caught.push(test.name),
                Ended::Late => caught.push(format!("{}, which did not end", test.name)),
                Ended::NotRun => {
                    return Ok(Verdict::Useless(format!("{} was not run", test.name)));
                }
            }
        }
        if !caught.is_empty() {
            return Ok(Verdict::Caught(caught));
        }
    }
    Ok(Verdict::Survived)
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Caught(tests) => write!(f, "caught by {}", tests.join(" ")),
            Self::Survived => write!(f, "SURVIVED"),
            Self::Useless(what) => write!(f, "USELESS: {what}"),
        }
    }
}

/// Returns the FNV-1a hash of `text`.
fn hash(text: &str) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
}
