//! The committed inputs: one directory for each target, one file for each input.
//!
//! A corpus starts with [`first`]; `found-*` are inputs from libFuzzer that run code which no other input runs.

use std::path::{Path, PathBuf};
use std::{fs, io};

use haulage_test_support::hex::vectors;

use super::{Kind, Target};
use crate::world::choices::Choices;

/// Returns the directory of the corpus.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

/// Reads the inputs of one target, in the order of their names.
///
/// # Errors
/// Returns the error of the file system.
pub fn read(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(directory().join(target.name))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        inputs.push((name, fs::read(&path)?));
    }
    inputs.sort();
    Ok(inputs)
}

/// Makes the first inputs of a target: its vectors, and drawn messages or schedules.
///
/// # Errors
/// Returns the error of the file system.
pub fn first(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/vectors");
    let mut inputs = Vec::new();
    for kind in target.vectors {
        let mut files: Vec<_> = fs::read_dir(directory.join(kind))?.collect::<Result<_, _>>()?;
        files.sort_by_key(fs::DirEntry::path);
        for file in files {
            let path = file.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            for (name, octets) in vectors(&fs::read_to_string(&path)?) {
                inputs.push((format!("{stem}-{}", name.replace(' ', "-")), octets));
            }
        }
    }
    let drawn = (0..DRAWN).map(|seed| {
        let mut choices = Choices::seeded(seed);
        let input = match target.kind {
            Kind::Codec(codec) => (codec.valid)(&mut choices),
            Kind::Machine(_) => {
                let length = choices.of(16..=512);
                (0..length).map(|_| choices.number().to_be_bytes()[0]).collect()
            }
        };
        (format!("drawn-{seed:02}"), input)
    });
    inputs.extend(drawn);
    Ok(inputs)
}

/// Number of inputs drawn for a target, besides its vectors.
const DRAWN: u64 = 24;
