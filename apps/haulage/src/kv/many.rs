//! `haulage kv mget` and `mput`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use haulage_kv::protocol::Key;

use super::client::{self, KvClient};
use super::commands::{config, parse_key, read};
use crate::cli::ConnectOptions;
use crate::failure::Failure;
use crate::output::{Names, Output, json};

/// Runs `kv mget KEY...`.
pub fn get(connect: &ConnectOptions, keys: &[String], output: &Output) -> Result<(), Failure> {
    let parsed: Vec<_> = keys.iter().map(|key| parse_key(key)).collect::<Result<_, _>>()?;
    let mut client = KvClient::connect(config(connect, output)?, ROOM)?;
    let shown = Names::of_output();
    let mut missing = 0_usize;
    client.get_many(&parsed, |key, value| {
        missing += usize::from(value.is_none());
        if output.json {
            return output.line(&found(key, value));
        }
        let name = shown.show(key.bytes());
        match value {
            None => output.line(&format!("{name} -")),
            Some(value) => {
                let head = format!("{name} {}\n", value.len());
                output.text(&head)?;
                output.bytes(value)
            }
        }
    })?;
    client.close()?;
    if missing == 0 {
        return Ok(());
    }
    Err(Failure::failed(format!("no such key: {missing} of {}", keys.len())))
}

fn found(key: Key<'_>, value: Option<&[u8]>) -> String {
    json::object(|o| {
        o.text("key", &key.to_string()).flag("found", value.is_some());
        match value {
            Some(value) => o.count("bytes", value.len() as u64),
            None => o.json("bytes", "null"),
        };
    })
}

/// Runs `kv mput KEY=FILE...`.
pub fn put(connect: &ConnectOptions, pairs: &[OsString], output: &Output) -> Result<(), Failure> {
    let parsed: Vec<_> = pairs.iter().map(|pair| parse(pair)).collect::<Result<_, _>>()?;
    if parsed.iter().filter(|(_, file)| *file == Path::new("-")).count() > 1 {
        return Err(Failure::usage("standard input, `-`, holds one value"));
    }
    let config = config(connect, output)?;
    let mut client: Option<KvClient> = None;
    let shown = Names::of_output();
    let (mut rest, mut unstored) = (parsed.as_slice(), 0_usize);
    // What cannot be told leaves no value unstored.
    let mut untold = Ok(());
    while !rest.is_empty() {
        let group = read_some(&mut rest);
        let values: Vec<_> = group.iter().filter_map(Pair::to_store).collect();
        let mut outcomes = Vec::new();
        let stored = if values.is_empty() {
            Ok(())
        } else {
            let room = values.iter().map(|(_, value)| value.len()).sum();
            let client = match &mut client {
                Some(client) => client,
                none => none.insert(KvClient::connect(config.clone(), room)?),
            };
            client.put_many(&values, |stored| outcomes.push(stored))
        };
        let mut outcomes = outcomes.into_iter();
        for Pair { key, value } in &group {
            let why = match value {
                Err(failure) => Some(failure.to_string()),
                // Of what comes behind a Call that failed, nothing is known.
                Ok(_) => match outcomes.next() {
                    Some(stored) => stored.err().map(|refusal| client::refused(&refusal)),
                    None => break,
                },
            };
            unstored += usize::from(why.is_some());
            let told = output.tell(&if output.json {
                stored_json(*key, why.as_deref())
            } else {
                let why = why.as_deref().unwrap_or("stored");
                format!("{} {why}", shown.show(key.bytes()))
            });
            untold = untold.and(told);
        }
        stored?;
    }
    client.map_or(Ok(()), KvClient::close)?;
    if unstored == 0 {
        return untold;
    }
    Err(Failure::failed(format!("not stored: {unstored} of {}", pairs.len())))
}

fn stored_json(key: Key<'_>, why: Option<&str>) -> String {
    json::object(|o| {
        o.text("key", &key.to_string()).flag("stored", why.is_none());
        why.into_iter().for_each(|why| _ = o.text("why", why));
    })
}

/// A key, and the value that is to be stored under it, or why it cannot be read.
struct Pair<'a> {
    key: Key<'a>,
    value: Result<Vec<u8>, Failure>,
}

impl Pair<'_> {
    fn to_store(&self) -> Option<(Key<'_>, &[u8])> {
        self.value.as_ref().ok().map(|value| (self.key, value.as_slice()))
    }
}

/// Takes pairs off the front and reads their files, until these have [`GROUP_OCTETS`].
fn read_some<'a>(pairs: &mut &[(Key<'a>, &Path)]) -> Vec<Pair<'a>> {
    let (mut group, mut octets) = (Vec::new(), 0);
    while let Some(((key, file), rest)) = pairs.split_first()
        && octets < GROUP_OCTETS
    {
        let value = read(file);
        octets += value.as_ref().map_or(0, Vec::len);
        group.push(Pair { key: *key, value });
        *pairs = rest;
    }
    group
}

/// Divides `KEY=FILE` at the last `=`.
fn parse(pair: &OsStr) -> Result<(Key<'_>, &Path), Failure> {
    let octets = pair.as_bytes();
    let wrong = || Failure::usage(format!("`{}` is not KEY=FILE", pair.to_string_lossy()));
    let at = octets.iter().rposition(|octet| *octet == b'=').ok_or_else(wrong)?;
    let (key, file) = octets.split_at(at);
    let key = parse_key(str::from_utf8(key).map_err(|_| wrong())?)?;
    match file.get(1..) {
        None | Some([]) => Err(wrong()),
        Some(file) => Ok((key, Path::new(OsStr::from_bytes(file)))),
    }
}

/// Memory for values of which several are fetched at once, in octets.
const ROOM: usize = 4 << 20;

/// Octets of files that are read before they are stored; the last of them may have more.
const GROUP_OCTETS: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_equals_sign_divides() {
        for (pair, parts) in [
            ("key=file", Some(("key", "file"))),
            ("a=b=/c d", Some(("a=b", "/c d"))),
            ("==-", Some(("=", "-"))),
            ("key", None),
            ("=file", None),
            ("key=", None),
        ] {
            let parsed = parse(OsStr::new(pair)).ok();
            let parts =
                parts.map(|(key, file)| (Key::new(key.as_bytes()).unwrap(), Path::new(file)));
            assert_eq!(parsed, parts, "{pair}");
        }
        assert!(matches!(parse(OsStr::from_bytes(b"\xff=file")), Err(Failure::Usage(_))));
    }
}
