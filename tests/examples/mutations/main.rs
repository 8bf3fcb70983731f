//! Breaks sentences of force, one at a time, in a copy of the workspace, and checks that the tests in their rows
//! notice. Of a row that holds in the runtime only tests of the runtime count: that a test of the library notices does
//! not show that the product obeys.
//!
//! `mutations [--seconds N] [--seed TEXT] [ID...]` tries the patches of the rows named, or all patches in an order
//! drawn from the seed until the seconds are over. It prints a line for each patch, and fails if one goes unnoticed,
//! does not compile or does not apply.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a line for each patch is its output")]

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fmt};

use haulage::sys::clock;
use haulage_tests::Rng;
use haulage_tests::mutation::Mutation;
use haulage_tests::source::Workspace;
use haulage_tests::tidy::{TestedRow, patch_path, tested};

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

/// The outcome of one patch.
enum Verdict {
    Caught(Vec<String>),
    Survived,
    /// The patch proves nothing about the tests, for this reason.
    Useless(String),
}

/// Tries the chosen patches. Returns whether all were noticed.
fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let workspace = Workspace::read(&root)?;
    let rows = chosen(&workspace, options)?;
    let copy = Copy::of(&root)?;
    let started = clock::now();
    let (mut tried, mut wrong) = (0, 0);
    for row in &rows {
        let began = clock::now();
        if options.seconds.is_some_and(|s| began.saturating_since(started).as_secs() >= s) {
            break;
        }
        let verdict = attempt(&workspace, &copy, row)?;
        println!(
            "{}: {verdict} ({:.1} s)",
            row.id,
            clock::now().saturating_since(began).as_secs_f64()
        );
        tried += 1;
        wrong += u32::from(!matches!(verdict, Verdict::Caught(_)));
    }
    let seconds = clock::now().saturating_since(started).as_secs();
    let (all, seed) = (rows.len(), &options.seed);
    println!("{tried} of {all} patches tried in {seconds} s (seed {seed:?}), {wrong} unnoticed");
    Ok(wrong == 0)
}

/// Returns the rows named, or all rows with a patch, shuffled.
fn chosen(workspace: &Workspace, options: &Options) -> Result<Vec<TestedRow>, Box<dyn Error>> {
    let mut rows = tested(workspace);
    if options.ids.is_empty() {
        rows.retain(|row| workspace.get(&patch_path(&row.id)).is_some());
        let mut rng = Rng::new(hash(&options.seed));
        for end in (1..rows.len()).rev() {
            rows.swap(end, usize::try_from(rng.below(0..end as u64 + 1))?);
        }
        return Ok(rows);
    }
    let row = |id: &String| {
        let row = rows.iter().find(|row| row.id == *id).cloned();
        row.ok_or_else(|| format!("{id} is not a row with tests").into())
    };
    options.ids.iter().map(row).collect()
}

/// Applies the patch of a row, runs its tests, and reverts the patch.
fn attempt(workspace: &Workspace, copy: &Copy, row: &TestedRow) -> Result<Verdict, Box<dyn Error>> {
    let useless = |what: String| Ok(Verdict::Useless(what));
    let Some(patch) = workspace.get(&patch_path(&row.id)) else {
        return useless("has no patch".to_owned());
    };
    let mutation = match Mutation::parse(&patch.text) {
        Ok(mutation) => mutation,
        Err(fault) => return useless(fault.to_string()),
    };
    let Some(source) = workspace.get(mutation.path()) else {
        return useless(format!("there is no file {}", mutation.path()));
    };
    let patched = match mutation.apply(&source.text) {
        Ok(patched) => patched,
        Err(fault) => return useless(fault.to_string()),
    };
    copy.write(mutation.path(), &patched)?;
    let verdict = judge(workspace, copy, row);
    copy.write(mutation.path(), &source.text)?;
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
