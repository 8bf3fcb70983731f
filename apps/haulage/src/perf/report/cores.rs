//! What a report says of a server of several cores: how the Calls were dealt to them, and which CPUs ends share.

use crate::output::json;
use crate::output::table::counted;
use crate::perf::tally::CoreShare;
use crate::placement::Sides;

/// Adds the CPUs of both sides.
pub(super) fn write_sides(sides: &Sides, o: &mut json::Object) {
    o.json("server_cores", &cpus(sides.servers.iter().copied()));
    o.json("client_cores", &cpus(sides.clients.iter().copied()));
    o.json("shared_cpus", &cpus(sides.shared.iter().copied().map(Some)));
}

/// Adds what each core of the server did.
pub(super) fn write_shares(shares: &[CoreShare], o: &mut json::Object) {
    let each = shares.iter().map(|share| {
        json::object(|o| {
            o.count("calls", share.calls).count("connections", share.connections);
            o.measure("server_cpu", share.cpu, 3);
        })
    });
    o.json("per_core", &json::array(each));
}

/// Returns a row for each core of the server.
pub(super) fn rows(shares: &[CoreShare]) -> Vec<(&'static str, String)> {
    let row = |share: &CoreShare| {
        let CoreShare { number, calls, connections, cpu } = *share;
        let connections = counted(usize::try_from(connections).unwrap_or(usize::MAX), "connection");
        ("core", format!("{number}: {calls} calls on {connections}, CPU {cpu:.2}"))
    };
    shares.iter().map(row).collect()
}

/// Returns CPUs as JSON; an end that is not pinned is `null`.
fn cpus(cpus: impl Iterator<Item = Option<usize>>) -> String {
    json::array(cpus.map(|cpu| cpu.map_or_else(|| "null".to_owned(), |cpu| cpu.to_string())))
}
