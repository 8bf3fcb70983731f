//! `haulage kv put`, `get`, `del`, `keys` and `stat`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use haulage::cores::Placement;
use haulage::limits::ITEM_MAX;
use haulage_kv::protocol::Key;

use super::client::{ClientConfig, KvClient};
use super::stat::{to_json, to_text};
use crate::calling;
use crate::cli::{ConnectOptions, CoreOptions, bytes};
use crate::failure::Failure;
use crate::hosts::ClientHosts;
use crate::output::{self, Names, Output, json};
use crate::registration::lookup;
use crate::registration::service::NamedProgram;

/// Runs `kv put KEY [FILE|-]`.
pub fn put(
    connect: &ConnectOptions,
    key: &str,
    file: &Path,
    output: &Output,
) -> Result<(), Failure> {
    let key = parse_key(key)?;
    let value = read(file)?;
    let mut client = KvClient::connect(config(connect, output)?, value.len())?;
    client.put(key, &value)?;
    client.close()
}

/// Runs `kv get KEY`, which prints the value unchanged.
pub fn get(connect: &ConnectOptions, key: &str, output: &Output) -> Result<(), Failure> {
    let key = parse_key(key)?;
    let mut client = KvClient::connect(config(connect, output)?, 0)?;
    output.bytes(client.get(key)?.bytes())?;
    client.close()
}

/// Runs `kv del KEY`.
pub fn del(connect: &ConnectOptions, key: &str, output: &Output) -> Result<(), Failure> {
    let key = parse_key(key)?;
    let mut client = KvClient::connect(config(connect, output)?, 0)?;
    client.del(key)?;
    client.close()
}

/// Runs `kv keys`, which prints one key a line: as it is, quoted on a terminal, or as a JSON string.
pub fn keys(connect: &ConnectOptions, output: &Output) -> Result<(), Failure> {
    let mut client = KvClient::connect(config(connect, output)?, 0)?;
    let shown = Names::of_output();
    client.keys(|key| {
        output.line(&if output.json {
            json::string(key).into()
        } else {
            shown.show(key.as_bytes())
        })
    })?;
    client.close()
}

/// Runs `kv stat`.
pub fn stat(connect: &ConnectOptions, output: &Output) -> Result<(), Failure> {
    let mut client = KvClient::connect(config(connect, output)?, 0)?;
    let stat = client.stat()?;
    client.close()?;
    if output.json { output.line(&to_json(&stat)) } else { output.text(&to_text(&stat)) }
}

pub(super) fn config(connect: &ConnectOptions, output: &Output) -> Result<ClientConfig, Failure> {
    let Placement { cpu, polling, .. } = calling::one_core("kv-client", &connect.core)?;
    let timeout = connect.timeout.0;
    let to = lookup::server(&connect.connect, NamedProgram::KV, timeout)?;
    let CoreOptions { crc, provider, versions, .. } = connect.core;
    let hosts = ClientHosts::of(&connect.hosts, versions.rpc_version, &connect.connect, output)?;
    Ok(ClientConfig { to, timeout, crc, cpu, polling, provider, versions, hosts })
}

pub(super) fn parse_key(key: &str) -> Result<Key<'_>, Failure> {
    Key::new(key.as_bytes()).map_err(|refusal| Failure::usage(refusal.to_string()))
}

/// Reads a file, or standard input for `-`, up to the maximum length of a value.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let mut value = Vec::new();
    let limit = ITEM_MAX as u64 + 1;
    let read = if file == Path::new("-") {
        output::input().and_then(|input| input.take(limit).read_to_end(&mut value))
    } else {
        File::open(file).and_then(|file| file.take(limit).read_to_end(&mut value))
    };
    match read {
        Ok(_) if value.len() > ITEM_MAX => Err(Failure::failed(format!(
            "{} is larger than {}, the largest value there can be",
            output::source(file),
            bytes::format(ITEM_MAX as u64)
        ))),
        Ok(_) => Ok(value),
        Err(error) => {
            Err(Failure::failed(format!("cannot read {}: {error}", output::source(file))))
        }
    }
}
