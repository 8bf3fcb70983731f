//! The check for devices that the `verbs` provider can use.

use haulage::provider::verbs::{DeviceReport, Unavailable, devices};

use super::finding::{Finding, State};
use crate::node::verbs::{REGISTRATION, registration};

/// Lists the devices by libibverbs, as the provider does.
pub(super) fn finding() -> Finding {
    let mut finding = told(&devices());
    match registration() {
        Ok(None) => {}
        Ok(Some(strategy)) => {
            let name = strategy.name();
            finding.detail += &format!("; {} asks for {name}", REGISTRATION);
        }
        Err(wrong) => (finding.state, finding.detail) = (State::Missing, wrong.to_string()),
    }
    finding
}

fn told(found: &Result<Vec<DeviceReport>, Unavailable>) -> Finding {
    let missing = |error: &Unavailable| {
        let said = error.to_string();
        let (detail, fix) = said.split_once("; ").unwrap_or((&said, ""));
        (State::Missing, detail.to_owned(), fix.to_owned())
    };
    let (state, detail, fix) = match found {
        Err(error) => missing(error),
        Ok(devices) if devices.is_empty() => missing(&Unavailable::NoDevice),
        Ok(devices) => {
            let detail = devices.iter().map(describe).collect::<Vec<_>>().join("; ");
            let state = match devices.iter().find(|device| device.is_usable()) {
                None => State::Missing,
                Some(device) if device.has_windows && device.exact_bounds => State::Ok,
                Some(_) => State::Slower,
            };
            (state, detail, String::new())
        }
    };
    Finding { check: "verbs", state, detail, fix }
}

fn describe(device: &DeviceReport) -> String {
    let DeviceReport { name, is_active, lacking, gids, node, posting, .. } = device;
    let DeviceReport { has_windows, shares_receives, exact_bounds, .. } = device;
    if let Some(what) = lacking {
        return format!("{name}: has no {what}");
    }
    let port = if *is_active { "active" } else { "port not active" };
    let gid = gids.first().map_or_else(|| "no GID".to_owned(), ToString::to_string);
    let node = node.map(|node| format!(", node {node}")).unwrap_or_default();
    let windows = if *has_windows { "memory windows" } else { "registers by calls" };
    let receives = if *shares_receives { "" } else { ", a receive queue for each connection" };
    let bounds = if *exact_bounds { "" } else { ", does not hold peers to bounds: for tests" };
    format!("{name}: {port}, {gid}{node}, {windows}{receives}, posts by {posting}{bounds}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_as_good_as_its_windows() {
        let device = |has_windows, exact_bounds| DeviceReport {
            name: "mlx5_0".to_owned(),
            is_active: true,
            lacking: None,
            shares_receives: has_windows,
            has_windows,
            posting: "ibv_wr",
            exact_bounds,
            gids: Vec::new(),
            node: Some(1),
        };
        let state = |devices: Vec<DeviceReport>| told(&Ok(devices)).state;
        assert_eq!(state(vec![device(true, true)]), State::Ok);
        assert_eq!(state(vec![device(true, false)]), State::Slower);
        assert_eq!(state(vec![device(false, true)]), State::Slower);
        let ours = describe(&device(true, true));
        assert_eq!(ours, "mlx5_0: active, no GID, node 1, memory windows, posts by ibv_wr");
        let ours = describe(&device(false, true));
        assert!(
            ours.contains("registers by calls, a receive queue for each connection, posts"),
            "{ours}"
        );
        let none = told(&Ok(Vec::new()));
        assert_eq!(none.state, State::Missing);
        assert!(none.fix.starts_with("`rdma link add"), "{}", none.fix);
    }
}
