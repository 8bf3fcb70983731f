//! The committed inputs: one directory for each target, one file for each input.
//!
//! A corpus starts with [`first`]; `found-*` are what libFuzzer found since that runs code which nothing
//! else there runs.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::{Kind, Target};
use crate::world::choices::Choices;

/// Where the corpus is.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

/// Reads the inputs of one target, in the order of their names.
///
/// # Errors
/// Returns what the file system said.
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

/// Makes the inputs a target starts with: the vectors it understands, then drawn messages or schedules.
///
/// # Errors
/// Returns what the file system said.
pub fn first(target: &Target) -> io::Result<Vec<(String, Vec<u8>)>> {
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto/vectors");
    let mut inputs = Vec::new();
    for kind in target.vectors {
        let mut files: Vec<_> = fs::read_dir(vectors.join(kind))?.collect::<Result<_, _>>()?;
        files.sort_by_key(fs::DirEntry::path);
        for file in files {
            let path = file.path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let sections = sections(&fs::read_to_string(&path)?).into_iter();
            inputs.extend(sections.map(|(name, octets)| (format!("{stem}-{name}"), octets)));
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

/// Returns the sections of an annotated hex file: their names and their octets.
fn sections(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<(String, String)> = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if let Some(name) = line.strip_prefix("==") {
            found.push((name.trim().replace(' ', "-"), String::new()));
        } else if let Some((_, digits)) = found.last_mut() {
            digits.extend(line.chars().filter(|c| !c.is_whitespace()));
        }
    }
    let octet =
        |digits: &str, at| digits.get(at..at + 2).and_then(|d| u8::from_str_radix(d, 16).ok());
    let octets =
        |digits: &str| (0..digits.len()).step_by(2).map_while(|at| octet(digits, at)).collect();
    found.into_iter().map(|(name, digits)| (name, octets(&digits))).collect()
}

/// Inputs drawn for a target besides its vectors.
const DRAWN: u64 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_annotated_hex_are_named() {
        let text = "# a file\n== one\n0102 # and\n03\n\n== two\nff";
        let expected = [("one".to_owned(), vec![1, 2, 3]), ("two".to_owned(), vec![255])];
        assert_eq!(sections(text), expected);
    }
}
