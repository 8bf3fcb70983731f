//! `haulage kv watch`.

use std::io;
use std::time::Duration;

use haulage::cores;
use haulage::limits::ITEM_MAX;
use haulage::provider::Waker;
use haulage::service::CallError;
use haulage::sys::standard::Standard;
use haulage::sys::{signal, wake};
use haulage_kv::client::{Client, ClientError};
use haulage_kv::protocol::KEY_MAX;
use haulage_kv::protocol::watch::State;
use haulage_kv::watch::{self, News, Watcher};
use haulage_proto::rpc::AcceptStat;

use super::client::ClientConfig;
use super::commands::config;
use crate::cli::ConnectOptions;
use crate::failure::Failure;
use crate::node::{Carrier, over};
use crate::output::progress::Step;
use crate::output::{Names, Output, json};

/// Runs `kv watch PREFIX`.
pub fn run(connect: &ConnectOptions, prefix: &str, output: &Output) -> Result<(), Failure> {
    if prefix.len() > KEY_MAX {
        return Err(Failure::usage(format!("a key has at most {KEY_MAX} bytes, so has a prefix")));
    }
    let config = config(connect, output)?;
    over!(config.provider, follow, (config, prefix, output))
}

fn follow<P: Carrier>(config: ClientConfig, prefix: &str, output: &Output) -> Result<(), Failure> {
    let waker = Waker::new()
        .map_err(|error| Failure::failed(format!("cannot make an eventfd: {error}")))?;
    let (watcher, told) = watch::way(waker.clone());
    let (callee, node) = (config.callee(), config.node(0));
    let mut core = cores::start(config.placement(), move || {
        let options = watch::options(ITEM_MAX);
        let (core, client) = callee.core::<P, Watcher>(node, watcher, options)?;
        let core_waker = core.waker();
        Ok::<_, Failure>((core, (client, core_waker)))
    })?;
    let (client, core_waker) = &mut core.started;
    begin(&mut Client::new(client, Some(config.timeout)), &config, prefix)?;
    signal::catch_termination()
        .map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))?;
    signal::wake_on_end(&waker).map_err(|_| Failure::failed("too many wakers"))?;
    output.line(if output.json { r#"{"watching":true}"# } else { "watching" })?;
    let names = Names::of_output();
    // Without this, the end of the reader is noticed within the interval of checks.
    let _ = waker.watch_end(io::stdout());
    while !signal::end_requested() {
        match told.next() {
            None if Standard::Output.is_cut_off() => return Err(Failure::ClosedPipe),
            None => wake::wait(&waker, CHECK_INTERVAL),
            Some(News::Closed(why)) => return Err(config.explain(why.into())),
            Some(News::Changes { changes, heading }) => {
                let changed = changes.iter().map(|(key, state)| change(key, *state, names, output));
                let merged = (heading.merged > 0).then(|| merged(heading.merged, output));
                output.text(&changed.chain(merged).collect::<String>())?;
                told.take(core_waker);
                if heading.is_over {
                    return Err(Failure::failed(
                        "more keys changed than the server keeps for a watch that lags; look at the keys, and watch again",
                    ));
                }
            }
        }
    }
    Ok(core.stop()?)
}

fn begin(client: &mut Client<'_>, config: &ClientConfig, prefix: &str) -> Result<(), Failure> {
    let _step = Step::begin(format_args!("waiting for {}", config.to));
    client.watch(prefix.as_bytes()).map_err(|error| match error {
        ClientError::Call(CallError::Rejected(AcceptStat::ProcUnavail)) => {
            Failure::failed(format!("{} is of a release without watch; update it", config.to))
        }
        error => config.explain(error),
    })
}

/// Returns the line that tells of a change.
fn change(key: &str, state: State, names: Names, output: &Output) -> String {
    if output.json {
        return json::object(|o| {
            match state {
                State::Set { length } => o.text("set", key).count("bytes", length),
                State::Deleted => o.text("del", key),
            };
        }) + "\n";
    }
    let name = names.show(key.as_bytes());
    match state {
        State::Set { length } => format!("set {name} {length}\n"),
        State::Deleted => format!("del {name}\n"),
    }
}

/// Returns the line that tells how many changes have no line.
fn merged(count: u64, output: &Output) -> String {
    if output.json {
        return json::object(|o| _ = o.count("merged", count)) + "\n";
    }
    format!("merged {count}\n")
}

/// Longest sleep; changes and signals end it.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
