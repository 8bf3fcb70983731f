//! Shell completions and manual pages, generated from the parser's description of the command line.

use std::fs;
use std::path::Path;

use clap_complete::Shell;

use crate::cli;
use crate::failure::Failure;
use crate::output::Output;

/// Runs `haulage completions SHELL`.
pub(crate) fn completions(shell: Shell, output: &Output) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::description(), cli::NAME, &mut script);
    output.bytes(&script)
}

/// Runs `haulage man DIR`.
pub(crate) fn pages(directory: &Path) -> Result<(), Failure> {
    let made = fs::create_dir_all(directory);
    made.and_then(|()| clap_mangen::generate_to(cli::description(), directory)).map_err(|error| {
        let directory = directory.display();
        Failure::failed(format!("cannot write manual pages to {directory}: {error}"))
    })
}
