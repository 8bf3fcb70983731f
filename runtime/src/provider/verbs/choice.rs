//! The choice of the device that a provider uses.
//!
//! # Normal operation
//!
//! By default a provider gets a device near the CPUs the core runs on, if one of those has an active port, else the
//! first that has one. A device can be asked for by name, or by an address that leads to it; the connection manager
//! then takes port and GID by that address, too, and connections leave by it. Otherwise the system's routes decide by
//! which address of the device a connection leaves, and so by which GID. All of these are of RoCE v2 unless the system
//! is configured otherwise. Servers of this crate listen at the best address that [`place`](super::place) finds.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use super::config::{Config, Unavailable};
use super::names::LISTENER;
use super::place::{self, Gid};
use crate::sys::ibverbs::{CmId, Device, EventChannel};
use crate::sys::interfaces;

/// The device that was chosen.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) device: Device,
    pub(super) name: String,
    why: Why,
}

/// The reason a device was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Named,
    Address(IpAddr),
    /// It is on the NUMA node of the core's CPUs.
    Near(usize),
    First,
}

/// A device that can be chosen.
struct Candidate {
    name: String,
    is_active: bool,
    node: Option<usize>,
}

impl Chosen {
    /// Chooses as `config` says.
    pub(super) fn new(config: &Config, channel: &EventChannel) -> Result<Self, Unavailable> {
        let devices = Device::all().map_err(Unavailable::NoRdma)?;
        let root = Path::new("/");
        let candidate = |device: &Device| {
            let name = device.name();
            let node = place::node_of(root, &name);
            let is_active = device.link().is_ok_and(|link| link.is_active);
            Candidate { name, is_active, node }
        };
        let candidates: Vec<_> = devices.iter().map(candidate).collect();
        let own = config.node.or_else(|| place::own_node(root));
        let (number, why) = match (&config.device, config.source) {
            (None, Some(source)) if !devices.is_empty() => {
                let leads = |device| is_at(channel, device, source);
                let number = devices.iter().position(leads);
                (number.ok_or(Unavailable::NoSuchAddress(source))?, Why::Address(source))
            }
            (named, _) => pick(&candidates, named.as_deref(), own)?,
        };
        let found = devices.into_iter().zip(candidates).nth(number);
        let (device, Candidate { name, .. }) = found.ok_or(Unavailable::NoDevice)?;
        if let Some(source) = config.source.filter(|source| !is_at(channel, &device, *source)) {
            return Err(Unavailable::NoSuchAddress(source));
        }
        Ok(Self { device, name, why })
    }

    /// Returns an address of this machine that leads to the device, those of the best GIDs first.
    pub(super) fn address(&self, channel: &EventChannel) -> Option<IpAddr> {
        if let Why::Address(source) = self.why {
            return Some(source);
        }
        let mut all: Vec<_> = self.gids().iter().map(|gid| gid.address).collect();
        // The GIDs of iWARP devices are no addresses.
        let mut others = interfaces::addresses().ok()?;
        others.retain(|address| !address.is_loopback());
        others.sort_by_key(IpAddr::is_ipv6);
        all.extend(others);
        all.into_iter().find(|address| is_at(channel, &self.device, *address))
    }

    /// Lists the device's GIDs, the best first.
    pub(super) fn gids(&self) -> Vec<Gid> {
        place::gids(Path::new("/"), &self.name)
    }
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match self.why {
            Why::Named => write!(f, "{name}, as asked for"),
            Why::Address(address) => write!(f, "{name}, which has {address}"),
            Why::Near(node) => write!(f, "{name}, on this core's node {node}"),
            Why::First => write!(f, "{name}, the first with an active port"),
        }
    }
}

/// Picks the candidate called `named`; or else one on `node`, or the first, whose port is active.
fn pick(
    candidates: &[Candidate],
    named: Option<&str>,
    node: Option<usize>,
) -> Result<(usize, Why), Unavailable> {
    let names = || candidates.iter().map(|candidate| candidate.name.clone()).collect();
    if candidates.is_empty() {
        return Err(Unavailable::NoDevice);
    }
    if let Some(named) = named {
        let found = candidates.iter().position(|candidate| candidate.name == named);
        let missing = || Unavailable::NoSuchDevice(named.to_owned(), names());
        return found.map(|number| (number, Why::Named)).ok_or_else(missing);
    }
    let near = node.and_then(|node| {
        let is_near = |candidate: &Candidate| candidate.is_active && candidate.node == Some(node);
        candidates.iter().position(is_near).map(|number| (number, Why::Near(node)))
    });
    let first = || candidates.iter().position(|candidate| candidate.is_active);
    near.or_else(|| first().map(|number| (number, Why::First)))
        .ok_or_else(|| Unavailable::NoPort(names()))
}

/// Returns whether an address belongs to this machine and leads to `device`.
fn is_at(channel: &EventChannel, device: &Device, address: IpAddr) -> bool {
    let id = CmId::new(channel, LISTENER);
    let bound = id.and_then(|mut id| id.bind(SocketAddr::new(address, 0)).map(|()| id));
    bound.is_ok_and(|id| id.is_on(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_near_the_core_is_picked_unless_another_is_named() {
        let candidate =
            |name: &str, is_active, node| Candidate { name: name.to_owned(), is_active, node };
        let all = [
            candidate("mlx5_0", false, Some(1)),
            candidate("mlx5_1", true, Some(0)),
            candidate("mlx5_2", true, Some(1)),
            candidate("siw0", true, None),
        ];
        let picked = |named, node| pick(&all, named, node).unwrap();
        assert_eq!(picked(None, Some(1)), (2, Why::Near(1)), "the first there is down");
        assert_eq!(picked(None, Some(0)), (1, Why::Near(0)));
        assert_eq!(picked(None, Some(7)), (1, Why::First));
        assert_eq!(picked(None, None), (1, Why::First));
        assert_eq!(picked(Some("siw0"), Some(1)), (3, Why::Named));
        let refused = |all, named| pick(all, named, None).unwrap_err();
        assert!(matches!(refused(&all, Some("mlx5_7")), Unavailable::NoSuchDevice(..)));
        assert!(matches!(refused(&all[..1], None), Unavailable::NoPort(_)));
        assert!(matches!(refused(&[], Some("mlx5_0")), Unavailable::NoDevice));
    }
}
