//! The statistics of a key-value server, as `kv stat` prints them.

use haulage_kv::stat::{CoreStat, Stat};

use crate::output::json;
use crate::output::table::{self, Align};

/// Returns the statistics as JSON.
pub fn to_json(stat: &Stat) -> String {
    json::object(|o| {
        o.count("shards", stat.shards).count("keys", stat.keys);
        o.count("value_bytes", stat.value_bytes);
        o.count("value_bytes_max", stat.value_bytes_max);
        o.count("memory_bytes", stat.memory_bytes);
        o.count("resident_bytes", stat.resident_bytes);
        o.count("connection_bytes", stat.connection_bytes);
        o.count("connections", stat.connections);
        o.object("leases", |o| {
            o.count("local", stat.leases_local).count("shared", stat.leases_shared);
            o.count("posted", stat.leases_posted).count("exposed", stat.leases_exposed);
        });
        o.count("registrations", stat.registrations).count("orphans", stat.orphans);
        o.object("invalidations", |o| {
            o.count("remote", stat.invalidations_remote);
            o.count("local", stat.invalidations_local);
        });
        o.object("pages", |o| {
            o.count("1g", stat.pages_1g).count("2m", stat.pages_2m);
            o.count("thp", stat.pages_thp).count("4k", stat.pages_4k);
        });
        o.object("copies", |o| {
            o.count("user", stat.copied_user).count("system", stat.copied_system);
        });
        o.object("held", |o| {
            o.count("connections", stat.connections_held).count("leases", stat.leases_held);
        });
        o.object("handshakes_failed", |o| {
            o.count("closed", stat.handshakes_closed);
            o.count("malformed", stat.handshakes_malformed);
            o.count("timed_out", stat.handshakes_timed_out);
            o.count("crowded_out", stat.handshakes_crowded_out);
            o.count("forbidden", stat.handshakes_forbidden);
        });
        o.object("accepts_failed", |o| {
            o.count("descriptors", stat.accepts_descriptors);
            o.count("memory", stat.accepts_memory).count("other", stat.accepts_other);
        });
        o.count("usable_bytes", stat.usable_bytes);
        o.count("usable_unmoved_bytes", stat.usable_unmoved_bytes);
        o.count("moved_bytes", stat.moved_bytes);
        o.count("keys_max", stat.keys_max).count("watches", stat.watches);
        o.count("hits", stat.hits).count("misses", stat.misses).count("refused", stat.refused);
        o.count("cores", stat.shards);
        let cores = stat.per_core.iter().map(|core| {
            let CoreStat { keys, gets, connections } = core;
            json::object(|o| {
                o.json("keys", &keys.to_string());
                o.count("gets", *gets).count("connections", *connections);
            })
        });
        o.json("per_core", &format!("[{}]", cores.collect::<Vec<_>>().join(",")));
    })
}

/// Returns the statistics as a table with columns for counts and for octets.
pub fn to_text(stat: &Stat) -> String {
    let pages = [
        ("memory in 1 GiB pages", stat.pages_1g),
        ("memory in 2 MiB pages", stat.pages_2m),
        ("memory in transparent huge pages", stat.pages_thp),
        ("memory in 4 KiB pages", stat.pages_4k),
    ];
    let count = |what: &str, count: u64| [what, &count.to_string(), ""].map(str::to_owned).to_vec();
    let octets = |what, octets: u64| [what, "", &octets.to_string()].map(str::to_owned).to_vec();
    let mut rows = vec![
        count("cores", stat.shards),
        count("keys", stat.keys),
        count("keys that fit", stat.keys_max),
        count("keys found", stat.hits),
        count("keys missed", stat.misses),
        count("keys and watches refused", stat.refused),
        count("watches", stat.watches),
        octets("values", stat.value_bytes),
        octets("values that fit", stat.value_bytes_max),
        octets("free and usable", stat.usable_bytes),
        octets("of it without moving", stat.usable_unmoved_bytes),
        octets("moved to make room", stat.moved_bytes),
        octets("memory for values and index", stat.memory_bytes),
        octets("resident memory", stat.resident_bytes),
        count("connections", stat.connections),
        octets("memory of connections", stat.connection_bytes),
        count("leases, local", stat.leases_local),
        count("leases, shared", stat.leases_shared),
        count("leases, posted", stat.leases_posted),
        count("leases, exposed", stat.leases_exposed),
        count("leases, orphaned", stat.orphans),
        count("leases of calls given up, held", stat.leases_held),
        count("connections over, held", stat.connections_held),
        count("registrations", stat.registrations),
        count("invalidations by peers", stat.invalidations_remote),
        count("invalidations by us", stat.invalidations_local),
        octets("copied in user space", stat.copied_user),
        octets("copied by the system", stat.copied_system),
        count("handshakes failed, closed", stat.handshakes_closed),
        count("handshakes failed, malformed", stat.handshakes_malformed),
        count("handshakes failed, timed out", stat.handshakes_timed_out),
        count("handshakes failed, crowded out", stat.handshakes_crowded_out),
        count("handshakes failed, forbidden", stat.handshakes_forbidden),
        count("accepts failed, no descriptor", stat.accepts_descriptors),
        count("accepts failed, no memory", stat.accepts_memory),
        count("accepts failed, other", stat.accepts_other),
    ];
    let pages = pages.into_iter().filter(|(_, bytes)| *bytes > 0);
    rows.extend(pages.map(|(kind, bytes)| octets(kind, bytes)));
    if stat.per_core.len() > 1 {
        for (number, core) in stat.per_core.iter().enumerate() {
            rows.push(count(&format!("connections of core {number}"), core.connections));
            rows.push(count(&format!("keys asked of core {number}"), core.gets));
        }
    }
    let columns = [("figure", Align::Left), ("count", Align::Right), ("bytes", Align::Right)];
    table::layout(&columns, &rows)
}

#[cfg(test)]
mod tests {
    use haulage_kv::protocol::{Answer, Carriage, Procedure};

    use super::*;

    #[test]
    fn counts_and_octets_have_columns_of_their_own() {
        let stat = Stat { keys: 3, value_bytes: 10_000, pages_2m: 4 << 20, ..Stat::default() };
        let text = to_text(&stat);
        let mut lines = text.lines();
        let title = lines.next().unwrap();
        let (count, bytes) = (title.find("count").unwrap() + 5, title.len());
        for line in lines {
            let counts = [
                "cores",
                "keys",
                "watches",
                "connections",
                "leases",
                "registrations",
                "invalid",
                "handshakes",
                "accepts",
            ];
            let end = if counts.iter().any(|it| line.starts_with(it)) { count } else { bytes };
            assert_eq!(line.len(), end, "{line:?} in {text}");
        }
        assert!(text.contains(" 10000\n") && text.contains(" 4194304\n"), "{text}");
    }

    #[test]
    fn json_has_the_keys_of_the_contract_in_their_order() {
        let mut results = vec![0; 4];
        let core = [1, u64::MAX, 42, 43];
        (1..=40_u64).chain(core).for_each(|figure| results.extend(figure.to_be_bytes()));
        let answer = Answer::decode(Procedure::Stat, &results, Carriage::Unreduced).unwrap();
        let Answer::Stat(stat) = answer else { panic!("{answer:?}") };
        assert_eq!(
            to_json(&stat),
            r#"{"shards":1,"keys":2,"value_bytes":3,"value_bytes_max":4,"memory_bytes":5,"#
                .to_owned()
                + r#""resident_bytes":6,"connection_bytes":7,"connections":8,"#
                + r#""leases":{"local":9,"shared":10,"posted":11,"exposed":12},"#
                + r#""registrations":13,"orphans":14,"invalidations":{"remote":15,"local":16},"#
                + r#""pages":{"1g":17,"2m":18,"thp":19,"4k":20},"copies":{"user":21,"system":22},"#
                + r#""held":{"connections":23,"leases":24},"handshakes_failed":{"closed":25,"#
                + r#""malformed":26,"timed_out":27,"crowded_out":28,"forbidden":29},"#
                + r#""accepts_failed":{"descriptors":30,"memory":31,"other":32},"#
                + r#""usable_bytes":33,"usable_unmoved_bytes":34,"moved_bytes":35,"#
                + r#""keys_max":36,"watches":37,"hits":38,"misses":39,"refused":40,"cores":1,"#
                + r#""per_core":[{"keys":-1,"gets":42,"connections":43}]}"#
        );
    }
}
